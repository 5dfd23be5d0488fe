//! Why a pool has no place for a pod.
//!
//! Decides words, not placements: it repeats the planner's checks in their order, and names the first that no
//! instance type passes.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenon_domain::catalog::{Availability, Incompatibility, Unavailability};
use tenon_domain::id::Zone;
use tenon_domain::requirement::{Conflict, Requirement, Requirements, UndefinedKeys};
use tenon_domain::resources::{ResourceName, Shortage};
use tenon_domain::taint::tolerates_forbidding;
use tenon_domain::unavailable::FIRST_HOLD;

use super::attachments::VolumesExceeded;
use super::input::{PoolInput, PoolReadiness};
use super::limits::Limit;
use super::narrow::no_instance_type;
use super::needs::{Alternative, PodGroup, ports_conflict};
use super::pool::{Pool, Type, taken_from};
use super::report::{Reason, Shortfall, UnschedulableCause};

/// Why a pool that isn't ready can't be used.
pub(crate) fn not_ready(input: &PoolInput) -> Option<Reason> {
    match &input.readiness {
        PoolReadiness::Ready => None,
        PoolReadiness::NodeClassNotFound(class) => {
            let wanted = &input.pool.template.node_class;
            Some(if wanted.is_served() {
                Reason::NodeClassNotFound { class: class.clone() }
            } else {
                Reason::NodeClassNotServed { kind: wanted.kind.clone(), group: wanted.group.clone() }
            })
        }
        PoolReadiness::NotReady(waiting) => Some(Reason::NodeClassNotReady { waiting: waiting.clone() }),
    }
}

/// Why a group's pods have no place in a pool.
pub(crate) fn cause(pool: &Pool<'_>, group: &PodGroup<'_>, now: Timestamp) -> UnschedulableCause {
    let reason = not_ready(pool.input).unwrap_or_else(|| match untolerated(pool, group) {
        Some(reason) => reason,
        None => group
            .alternatives
            .iter()
            .map(|alternative| for_alternative(pool, group, alternative, now))
            .max()
            .unwrap_or(Reason::IncompatibleRequirements { conflicts: Vec::new() }),
    });
    UnschedulableCause { pool: Some(pool.input.pool.name.clone()), reason }
}

/// The taints of a pool that a group's pods don't tolerate.
pub(crate) fn untolerated(pool: &Pool<'_>, group: &PodGroup<'_>) -> Option<Reason> {
    let taints = &pool.input.pool.template.taints;
    tolerates_forbidding(taints, group.tolerations)
        .err()
        .map(|untolerated| Reason::TaintsNotTolerated { taints: untolerated.taints })
}

/// The conflicts of an alternative that only an existing node can satisfy: a new node has none of the requested names.
pub(crate) fn name_conflicts(pool: &Pool<'_>, alternative: &Alternative) -> Vec<Conflict> {
    let found = pool.offered.compatible(&alternative.asked, UndefinedKeys::Absent);
    let mut conflicts = found.err().map(|found| found.conflicts).unwrap_or_default();
    let named = alternative.fields.iter().filter(|field| !field.is_complement());
    conflicts.extend(named.map(|field| Conflict::NoCommonValue {
        node: Requirement::none_of(field.key(), field.values().iter().cloned()),
        pod: field.clone(),
    }));
    conflicts
}

fn for_alternative(
    pool: &Pool<'_>,
    group: &PodGroup<'_>,
    alternative: &Alternative,
    now: Timestamp,
) -> Reason {
    let Some(asked) = alternative.for_new_node() else {
        return Reason::IncompatibleRequirements { conflicts: name_conflicts(pool, alternative) };
    };
    if let Err(found) = pool.offered.compatible(&asked, UndefinedKeys::WellKnownAreOpen) {
        return Reason::IncompatibleRequirements { conflicts: found.conflicts };
    }
    let merged = pool.offered.clone().and(&asked);
    let labelled: Vec<&Type<'_>> =
        pool.types.iter().filter(|one| one.option.labels.intersects(&merged).is_ok()).collect();
    if labelled.is_empty() {
        return no_instance_type(pool, group, &merged);
    }
    let large: Vec<&Type<'_>> =
        labelled.iter().filter(|one| shortage(one, group).is_none()).copied().collect();
    if large.is_empty() {
        return nearest(&labelled, group).map_or(Reason::StepBudgetExhausted, |shortfall| {
            Reason::InsufficientResources { shortfall: Box::new(shortfall) }
        });
    }
    let attaching: Vec<&Type<'_>> =
        large.iter().filter(|one| pool.exceeded_volumes(one, group).is_none()).copied().collect();
    if attaching.is_empty() {
        let most = large.iter().filter_map(|one| pool.exceeded_volumes(one, group)).max_by_key(|of| of.most);
        return most.map_or(Reason::StepBudgetExhausted, |VolumesExceeded { driver, volumes, most }| {
            Reason::TooManyVolumes { driver: driver.to_string(), volumes, most }
        });
    }
    let free: Vec<&Type<'_>> =
        attaching.into_iter().filter(|one| !ports_conflict(group.host_ports, &one.host_ports)).collect();
    if free.is_empty() {
        return Reason::HostPortsTaken;
    }
    by_offering(pool, &free, &merged, now)
}

fn by_offering(pool: &Pool<'_>, types: &[&Type<'_>], merged: &Requirements, now: Timestamp) -> Reason {
    let available: Vec<&Type<'_>> =
        types.iter().filter(|one| pool.offerings(one, merged, pool.open).next().is_some()).copied().collect();
    if available.is_empty() {
        let gone = || gone(types, merged);
        if let Some(zones) = shifted(types, merged) {
            return Reason::ZonesShifted { zones };
        }
        // Room that this plan used up will be free again some time.
        let used_up = types.iter().any(|one| one.option.available(merged).next().is_some());
        if used_up || gone().any(is_temporary) {
            return Reason::AllOfferingsUnavailable {
                types: types.iter().filter(|one| !is_barred(one, merged)).count(),
                zones: zones(types, merged),
                until: asked_for_at(gone(), now),
            };
        }
        return match &pool.input.without {
            Some(waiting) if gone().any(|why| *why == Unavailability::PriceUnknown) => {
                Reason::NodeClassNotReady { waiting: waiting.clone() }
            }
            Some(_) | None => not_allowed(types, merged).unwrap_or_else(|| not_offered(types, merged)),
        };
    }
    let exceeded = |one: &&Type<'_>| {
        let over = pool.limits.iter().zip(&one.charges).find(|((_, left), charge)| *charge > left);
        over.map(|((limit, _), _)| limit.clone())
    };
    let over: Vec<_> = available.iter().map(exceeded).collect();
    if let Some(Some(limit)) = over.iter().min()
        && over.iter().all(Option::is_some)
    {
        return match limit {
            Limit::Pool(resource) => Reason::LimitsExceeded { resource: resource.clone() },
            Limit::ClusterNodes => Reason::MaxNodesReached,
            Limit::ClusterVcpus => Reason::MaxVcpusReached { guessed: pool.input.vcpus_guessed.clone() },
        };
    }
    pool.min_values_refusal(merged, &available).unwrap_or(Reason::StepBudgetExhausted)
}

/// Whether only the cluster's stack is against a type that is offered.
fn is_barred(one: &Type<'_>, merged: &Requirements) -> bool {
    let mut offerings = one.option.offerings.iter().filter(|offering| offering.goes_with(merged));
    offerings
        .any(|offering| offering.availability == Availability::Unavailable(Unavailability::FamilyNotAllowed))
}

/// The families that only the cluster's stack is against, if there are any.
fn not_allowed(types: &[&Type<'_>], merged: &Requirements) -> Option<Reason> {
    let barred = types.iter().filter(|one| is_barred(one, merged));
    let families: BTreeSet<&str> = barred.map(|one| one.option.facts.name.family()).collect();
    let families: Vec<String> = families.into_iter().map(str::to_owned).collect();
    (!families.is_empty()).then_some(Reason::FamiliesNotAllowed { families })
}

/// No type is offered: what they can't do of the class, where that alone is in the way.
fn not_offered(types: &[&Type<'_>], merged: &Requirements) -> Reason {
    let unsuited: BTreeSet<&Incompatibility> = gone(types, merged)
        .filter_map(|why| if let Unavailability::Incompatible(why) = why { Some(why) } else { None })
        .collect();
    Reason::NoOffering { incompatible: unsuited.into_iter().cloned().collect() }
}

/// Why the compatible offerings aren't available.
fn gone<'g>(types: &'g [&Type<'_>], merged: &'g Requirements) -> impl Iterator<Item = &'g Unavailability> {
    let offerings = types.iter().flat_map(|one| &one.option.offerings);
    offerings.filter(|offering| offering.goes_with(merged)).filter_map(|offering| {
        match &offering.availability {
            Availability::Available => None,
            Availability::Unavailable(why) => Some(why),
        }
    })
}

/// The zones where compatible offerings are only unavailable for now.
fn zones(types: &[&Type<'_>], merged: &Requirements) -> Vec<Zone> {
    let offerings = types.iter().flat_map(|one| &one.option.offerings);
    let awaited = offerings.filter(|offering| offering.goes_with(merged)).filter(|offering| match &offering
        .availability
    {
        Availability::Available => true,
        Availability::Unavailable(why) => is_temporary(why),
    });
    let zones: BTreeSet<&Zone> = awaited.map(|offering| &offering.zone).collect();
    zones.into_iter().cloned().collect()
}

/// The zones of compatible offerings that only the zonal shift makes unavailable, if no other offering is left.
fn shifted(types: &[&Type<'_>], merged: &Requirements) -> Option<Vec<Zone>> {
    let mut zones = BTreeSet::new();
    let offerings = types.iter().flat_map(|one| &one.option.offerings);
    for offering in offerings.filter(|offering| offering.goes_with(merged)) {
        match &offering.availability {
            Availability::Unavailable(Unavailability::ZoneShifted) => {
                zones.insert(offering.zone.clone());
            }
            Availability::Unavailable(why) if !is_temporary(why) => {}
            Availability::Available | Availability::Unavailable(_) => return None,
        }
    }
    (!zones.is_empty()).then(|| zones.into_iter().collect())
}

/// Whether an offering is only unavailable for now.
const fn is_temporary(why: &Unavailability) -> bool {
    match why {
        Unavailability::Exhausted { .. }
        | Unavailability::ZoneShifted
        | Unavailability::ReservationUsedUp
        | Unavailability::ReservationExpiring => true,
        Unavailability::NotOffered
        | Unavailability::NoSubnet
        | Unavailability::Incompatible(_)
        | Unavailability::PriceUnknown
        | Unavailability::FamilyNotAllowed => false,
    }
}

/// The time of the next probe of any of them. A due offering that this plan doesn't probe is probed by a later one.
fn asked_for_at<'g>(gone: impl Iterator<Item = &'g Unavailability>, now: Timestamp) -> Option<Timestamp> {
    let soon = now.saturating_add(FIRST_HOLD).unwrap_or(now);
    let at = |why: &Unavailability| match why {
        Unavailability::Exhausted { until, last_resort_at } => {
            let at = *until.min(last_resort_at);
            Some(if at > now { at } else { soon })
        }
        Unavailability::NotOffered
        | Unavailability::NoSubnet
        | Unavailability::Incompatible(_)
        | Unavailability::PriceUnknown
        | Unavailability::FamilyNotAllowed
        | Unavailability::ZoneShifted
        | Unavailability::ReservationUsedUp
        | Unavailability::ReservationExpiring => None,
    };
    gone.filter_map(at).min()
}

fn shortage(one: &Type<'_>, group: &PodGroup<'_>) -> Option<Shortage> {
    group.requests.shortage(&taken_from(&one.option.allocatable, &one.overhead))
}

/// The largest shortage on the type that lacks the fewest resources.
fn nearest(types: &[&Type<'_>], group: &PodGroup<'_>) -> Option<Shortfall> {
    let lacking = |one: &&Type<'_>| {
        let room = taken_from(&one.option.allocatable, &one.overhead);
        let short = group.requests.iter().filter(|(name, wanted)| *wanted > room.get(name)).count();
        let Shortage { resource, requested, available } = shortage(one, group)?;
        let allocatable = one.option.allocatable.get(&resource);
        let daemon_sets = one.overhead.get(&resource);
        let capacity = one.option.capacity.get(&resource);
        let promised = one.option.promised_storage.filter(|_| resource == ResourceName::EPHEMERAL_STORAGE);
        let shortfall = Shortfall { resource, requested, allocatable, daemon_sets, capacity, promised };
        Some((short, std::cmp::Reverse(available), shortfall))
    };
    types.iter().filter_map(lacking).min().map(|(_, _, shortfall)| shortfall)
}
