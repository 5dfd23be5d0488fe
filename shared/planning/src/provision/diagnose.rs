//! Why a pool has no place for a pod.
//!
//! Decides words, not placements: it repeats the planner's checks in their order, and names the first that no
//! instance type passes.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenon_domain::catalog::{Availability, Incompatibility, Unavailability};
use tenon_domain::id::Zone;
use tenon_domain::labels;
use tenon_domain::requirement::{Conflict, Requirement, Requirements, UndefinedKeys};
use tenon_domain::resources::{ResourceList, ResourceName, Shortage};
use tenon_domain::taint::tolerates_forbidding;
use tenon_domain::unavailable::FIRST_HOLD;

use super::attachments::VolumesExceeded;
use super::daemons::{TypeRoom, taken_from};
use super::input::{PoolInput, PoolReadiness};
use super::limits::Limit;
use super::narrow::no_instance_type;
use super::needs::{Alternative, PodGroup, ports_conflict};
use super::pool::{Pool, Type};
use super::report::{Reason, Shortfall};

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

/// Why a group's pods have no place in a pool; `None` if nothing of the pool is against a pod alone.
pub(crate) fn cause(pool: &Pool<'_>, group: &PodGroup<'_>, now: Timestamp) -> Option<Reason> {
    if let Some(reason) = not_ready(pool.input).or_else(|| untolerated(pool, group)) {
        return Some(reason);
    }
    let mut nearest: Option<Reason> = None;
    for alternative in group.alternatives.iter() {
        nearest = nearest.max(Some(for_alternative(pool, group, alternative, now)?));
    }
    Some(nearest.unwrap_or_else(|| incompatible(pool, group, Vec::new())))
}

/// The taints of a pool that a group's pods don't tolerate.
pub(crate) fn untolerated(pool: &Pool<'_>, group: &PodGroup<'_>) -> Option<Reason> {
    let taints = &pool.input.pool.template.taints;
    tolerates_forbidding(taints, group.tolerations)
        .err()
        .map(|untolerated| Reason::TaintsNotTolerated { taints: untolerated.taints })
}

/// Conflicts of a pool and a group, with those that its volumes bring in.
pub(crate) fn incompatible(pool: &Pool<'_>, group: &PodGroup<'_>, conflicts: Vec<Conflict>) -> Reason {
    let is_of_pod = |key: &str, one: &Alternative| {
        let found = pool.offered.compatible(&one.asked, UndefinedKeys::WellKnownAreOpen).err();
        found.is_some_and(|found| found.conflicts.iter().any(|conflict| conflict.key() == key))
    };
    let is_named = |key: &str| group.counted.iter().any(|one| one.asked.contains(key));
    let keys: BTreeSet<&str> = conflicts.iter().map(Conflict::key).collect();
    let of_volumes = keys.into_iter().filter(|key| {
        group.required.iter().any(|one| one.asked.contains(key))
            && !(is_named(key) && group.counted.iter().all(|one| is_of_pod(key, one)))
    });
    let of_volumes = of_volumes.map(str::to_owned).collect();
    Reason::IncompatibleRequirements { conflicts, of_volumes }
}

/// The conflicts of an alternative that only an existing node can satisfy: a new node has none of the requested names.
pub(crate) fn name_conflicts(pool: &Pool<'_>, alternative: &Alternative) -> Vec<Conflict> {
    let found = pool.offered.compatible(&alternative.asked, UndefinedKeys::Absent);
    let mut conflicts = found.err().map(|found| found.conflicts).unwrap_or_default();
    let host = alternative.asked.get(labels::HOSTNAME).filter(|host| !host.is_complement());
    let names_host =
        |one: &Conflict| matches!(one, Conflict::Undefined { key, .. } if key == labels::HOSTNAME);
    conflicts.retain(|one| host.is_none() || !names_host(one));
    let named = host.into_iter().chain(alternative.fields.iter().filter(|field| !field.is_complement()));
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
) -> Option<Reason> {
    let Some(asked) = alternative.for_new_node() else {
        return Some(incompatible(pool, group, name_conflicts(pool, alternative)));
    };
    if let Err(found) = pool.offered.compatible(&asked, UndefinedKeys::WellKnownAreOpen) {
        return Some(incompatible(pool, group, found.conflicts));
    }
    let reason = for_requirements(pool, group, &asked, now)?;
    if !matches!(reason, Reason::InsufficientResources { .. } | Reason::HostPortsTaken) {
        return Some(reason);
    }
    // Beside fewer DaemonSets there may be room.
    let mut nearest = reason;
    for asked in pool.beside_daemons(&asked) {
        let found = for_requirements(pool, group, &asked, now)?;
        if ends_elsewhere(&found) {
            nearest = nearest.max(found);
        }
    }
    Some(nearest)
}

/// Whether a pod has room on an offered type, and something besides is in the way.
const fn ends_elsewhere(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::AllOfferingsUnavailable { .. }
            | Reason::ZonesShifted { .. }
            | Reason::MinValuesNotSatisfied { .. }
            | Reason::LimitsExceeded { .. }
            | Reason::MaxNodesReached
            | Reason::MaxVcpusReached { .. }
    )
}

fn for_requirements(
    pool: &Pool<'_>,
    group: &PodGroup<'_>,
    asked: &Requirements,
    now: Timestamp,
) -> Option<Reason> {
    let merged = pool.offered.clone().and(asked);
    let rooms = pool.rooms(&merged);
    let all = pool.types.iter().zip(rooms.iter()).map(|(one, room)| TypeOnClaim { one, room });
    let labelled: Vec<TypeOnClaim<'_, '_>> =
        all.filter(|of| of.one.option.labels.intersects(&merged).is_ok()).collect();
    if labelled.is_empty() {
        return Some(no_instance_type(pool, group, &merged));
    }
    let large: Vec<TypeOnClaim<'_, '_>> =
        labelled.iter().filter(|of| of.shortage(group).is_none()).copied().collect();
    if large.is_empty() {
        let shortfall = nearest(pool, &labelled, group, &merged)?;
        return Some(Reason::InsufficientResources { shortfall: Box::new(shortfall) });
    }
    let exceeded = |of: &TypeOnClaim<'_, '_>| pool.exceeded_volumes(of.room, group);
    let attaching: Vec<TypeOnClaim<'_, '_>> =
        large.iter().filter(|of| exceeded(of).is_none()).copied().collect();
    if attaching.is_empty() {
        let VolumesExceeded { driver, volumes, most } =
            large.iter().filter_map(exceeded).max_by_key(|of| of.most)?;
        return Some(Reason::TooManyVolumes { driver: driver.to_string(), volumes, most });
    }
    let free = attaching.into_iter().filter(|of| !ports_conflict(group.host_ports, &of.room.host_ports));
    let free: Vec<&Type<'_>> = free.map(|of| of.one).collect();
    if free.is_empty() {
        return Some(Reason::HostPortsTaken);
    }
    by_offering(pool, &free, &merged, now)
}

fn by_offering(
    pool: &Pool<'_>,
    types: &[&Type<'_>],
    merged: &Requirements,
    now: Timestamp,
) -> Option<Reason> {
    let available: Vec<&Type<'_>> =
        types.iter().filter(|one| pool.offerings(one, merged, pool.open).next().is_some()).copied().collect();
    if available.is_empty() {
        return Some(unavailable(pool, types, merged, now));
    }
    let exceeded = |one: &&Type<'_>| {
        let over = pool.limits.iter().zip(&one.charges).find(|((_, left), charge)| *charge > left);
        over.map(|((limit, _), _)| limit.clone())
    };
    let over: Vec<_> = available.iter().map(exceeded).collect();
    if let Some(Some(limit)) = over.iter().min()
        && over.iter().all(Option::is_some)
    {
        return Some(match limit {
            Limit::Pool(resource) => Reason::LimitsExceeded { resource: resource.clone() },
            Limit::ClusterNodes => Reason::MaxNodesReached,
            Limit::ClusterVcpus => Reason::MaxVcpusReached { guessed: pool.input.vcpus_guessed.clone() },
        });
    }
    let allowed = available.into_iter().zip(over).filter(|(_, over)| over.is_none());
    pool.refusal_within_limits(merged, &allowed.map(|(one, _)| one).collect::<Vec<_>>())
}

/// Why no offering of these types is available.
fn unavailable(pool: &Pool<'_>, types: &[&Type<'_>], merged: &Requirements, now: Timestamp) -> Reason {
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
    match &pool.input.without {
        Some(waiting) if gone().any(|why| *why == Unavailability::PriceUnknown) => {
            Reason::NodeClassNotReady { waiting: waiting.clone() }
        }
        Some(_) | None => not_allowed(types, merged).unwrap_or_else(|| not_offered(types, merged)),
    }
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

/// No type is offered: what they can't do of the class, where that alone is in the way, and where a subnet would help.
fn not_offered(types: &[&Type<'_>], merged: &Requirements) -> Reason {
    let unsuited: BTreeSet<&Incompatibility> = gone(types, merged)
        .filter_map(|why| if let Unavailability::Incompatible(why) = why { Some(why) } else { None })
        .collect();
    let without_subnet = types.iter().flat_map(|one| &one.option.offerings).filter(|offering| {
        let why = &offering.availability;
        *why == Availability::Unavailable(Unavailability::NoSubnet) && offering.goes_with(merged)
    });
    let without_subnet: BTreeSet<&Zone> = without_subnet.map(|offering| &offering.zone).collect();
    Reason::NoOffering {
        incompatible: unsuited.into_iter().cloned().collect(),
        without_subnet: without_subnet.into_iter().cloned().collect(),
    }
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

/// A type with the room of its nodes for a pod.
#[derive(Clone, Copy)]
struct TypeOnClaim<'t, 'a> {
    one: &'t Type<'a>,
    room: &'t TypeRoom,
}

impl TypeOnClaim<'_, '_> {
    fn left(&self) -> ResourceList {
        taken_from(&self.one.option.allocatable, &self.room.overhead)
    }

    fn shortage(&self, group: &PodGroup<'_>) -> Option<Shortage> {
        group.requests.shortage(&self.left())
    }
}

/// The largest shortage on the type that lacks the fewest resources.
fn nearest(
    pool: &Pool<'_>,
    types: &[TypeOnClaim<'_, '_>],
    group: &PodGroup<'_>,
    merged: &Requirements,
) -> Option<Shortfall> {
    let lacking = |of: &TypeOnClaim<'_, '_>| {
        let (option, room) = (of.one.option, of.left());
        let short = group.requests.iter().filter(|(name, wanted)| *wanted > room.get(name)).count();
        let Shortage { resource, requested, available } = of.shortage(group)?;
        let allocatable = option.allocatable.get(&resource);
        let daemon_sets = of.room.overhead.get(&resource);
        let capacity = option.capacity.get(&resource);
        let promised = option.promised_storage.filter(|_| resource == ResourceName::EPHEMERAL_STORAGE);
        let in_the_way = match requested <= allocatable {
            true => pool.daemons.requesting(of.one, merged, &resource),
            false => Vec::new(),
        };
        let shortfall =
            Shortfall { resource, requested, allocatable, daemon_sets, in_the_way, capacity, promised };
        Some((short, std::cmp::Reverse(available), shortfall))
    };
    types.iter().filter_map(lacking).min().map(|(_, _, shortfall)| shortfall)
}
