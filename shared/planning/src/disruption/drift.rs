//! Whether a claim drifted from its pool or its class.
//!
//! Decides drift marks, what claims of older releases take over, and whether the drift of a disrupted node is over; a mark
//! alone disrupts nothing. While the class isn't ready, or a fact isn't known, a mark of the class is neither set nor
//! cleared.
//!
//! Source: aws/karpenter-provider-aws `pkg/cloudprovider/drift.go`; kubernetes-sigs/karpenter
//! `pkg/controllers/nodeclaim/disruption/drift.go`.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::catalog::{CapacityType, find_option};
use tenon_domain::claim::{ClaimPhase, Drift, DriftReason, LaunchedInstance, NO_LABEL};
use tenon_domain::class_hash::{FieldDigests, PoolHash};
use tenon_domain::class_status::image_for;
use tenon_domain::id::{PlacementGroupId, SubnetId};
use tenon_domain::requirement::{Requirements, UndefinedKeys};

use super::input::{ClaimView, ClassReadiness, ClassView, DisruptionInput, DriftingReservations};
use super::output::{Adoption, DriftMark};

/// How old a claim is when its type is looked for, as with the peer.
const TYPES_SEEN_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// The most subnets or reservations that a mark names: a claim is at most 1 KB.
const NAMED: usize = 5;
/// Where a claim, or its class, has none.
const NONE: &str = "none";

/// The marks to set, change or clear, by claim.
pub(crate) fn marks(input: &DisruptionInput) -> Vec<DriftMark> {
    let mut marks: Vec<DriftMark> = input.claims.iter().filter_map(|view| mark(input, view)).collect();
    marks.sort_by(|a, b| a.claim.cmp(&b.claim));
    marks
}

fn mark(input: &DisruptionInput, view: &ClaimView) -> Option<DriftMark> {
    let claim = &view.claim;
    let judged = match claim.phase() {
        ClaimPhase::Launched | ClaimPhase::Registered | ClaimPhase::Initialized => true,
        ClaimPhase::Planned
        | ClaimPhase::LaunchFailed
        | ClaimPhase::Disrupting
        | ClaimPhase::Draining
        | ClaimPhase::Drained
        | ClaimPhase::Terminating
        | ClaimPhase::Terminated => false,
    };
    if !judged {
        return None;
    }
    let found = found(input, view)?;
    let same = match (&claim.drift, &found) {
        (None, None) => true,
        (Some(had), Some(has)) => (had.reason, &had.from, &had.to) == (has.reason, &has.from, &has.to),
        (None, Some(_)) | (Some(_), None) => false,
    };
    // Since when it has drifted orders replacement: another target doesn't send it to the end of the line.
    let since = claim.drift.as_ref().map_or(input.now, |had| had.since);
    let drift = found.map(|has| Drift { since, ..has });
    (!same).then(|| DriftMark { claim: claim.name.clone(), drift })
}

/// Whether the claim of a disrupted node is known to have drifted no longer.
pub(crate) fn is_over(input: &DisruptionInput, view: &ClaimView) -> bool {
    let has_pool = input.pools.iter().any(|pool| pool.name == view.claim.pool);
    has_pool && view.node.is_some() && matches!(found(input, view), Some(None))
}

/// The claim's drift, in the peer's order; the outer `None` if it can't be decided.
#[expect(clippy::option_option, reason = "unknown and none are different answers")]
fn found(input: &DisruptionInput, view: &ClaimView) -> Option<Option<Drift>> {
    let of_pool = of_pool(input, view);
    if of_pool.is_some() {
        return Some(of_pool);
    }
    let class = input.classes.iter().find(|class| class.name == view.claim.class);
    let class = class.filter(|class| class.readiness == ClassReadiness::Ready)?;
    of_class(view, class, input.now)
}

/// The drift from the claim's pool: its template, its requirements, its instance types.
fn of_pool(input: &DisruptionInput, view: &ClaimView) -> Option<Drift> {
    let (claim, now) = (&view.claim, input.now);
    let pool = input.pools.iter().find(|pool| pool.name == claim.pool)?;
    let hash = PoolHash::of(&pool.template);
    let drift = |reason, from: String, to: String| Drift { reason, since: now, from, to, fields: Vec::new() };
    if let Some(had) = claim.pool_hash.filter(|had| *had != hash) {
        let has = FieldDigests::of_template(&pool.template);
        let fields = claim.pool_fields.as_ref().map(|had| had.changed_in_template(&has));
        let edited = drift(DriftReason::NodePoolDrifted, had.to_string(), hash.to_string());
        return Some(Drift { fields: fields.unwrap_or_default(), ..edited });
    }
    let node = view.node.as_ref()?;
    let known = match input.world.nodes.iter().find(|known| known.name == node.name) {
        Some(known) => &known.labels,
        None if claim.phase() == ClaimPhase::Disrupting => &node.labels,
        None => return None,
    };
    let labels = Requirements::from_labels(known.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    for asked in pool.template.requirements.iter() {
        let one = Requirements::from_iter([asked.clone()]);
        if !labels.is_compatible(&one, UndefinedKeys::Absent) {
            let value = known.get(asked.key()).map_or_else(
                || format!("{NO_LABEL}{}", asked.key()),
                |value| format!("{}={value}", asked.key()),
            );
            return Some(drift(DriftReason::RequirementsDrifted, value, asked.to_string()));
        }
    }
    gone(input, view).map(|(from, to)| drift(DriftReason::InstanceTypeNotFound, from, to.to_owned()))
}

/// The claim's type and what its pool lacks of it. Only of old nodes: the catalogue that they were launched from is known
/// to every function by then. A reserved node stays while its type is sold on demand.
fn gone(input: &DisruptionInput, view: &ClaimView) -> Option<(String, &'static str)> {
    let instance = view.claim.state.instance()?;
    if input.now.duration_since(view.claim.created_at) < TYPES_SEEN_AFTER {
        return None;
    }
    let pool = input.world.pools.iter().find(|pool| pool.pool.name == view.claim.pool)?;
    if pool.types.is_empty() {
        return None;
    }
    let name = instance.instance_type.to_string();
    let Some(option) = find_option(&pool.types, &instance.instance_type) else {
        return Some((name, "no such type any longer"));
    };
    let ways = match instance.capacity_type {
        CapacityType::Reserved => [CapacityType::Reserved, CapacityType::OnDemand],
        paid @ (CapacityType::Spot | CapacityType::OnDemand) => [paid, paid],
    };
    let sold = option
        .offerings
        .iter()
        .any(|offering| offering.zone == instance.zone && ways.contains(&offering.capacity_type));
    (!sold).then_some((name, "no such offering in its zone any longer"))
}

/// What claims of older releases take over.
pub(crate) fn adoptions(input: &DisruptionInput) -> Vec<Adoption> {
    let adopts = |view: &ClaimView| {
        let claim = &view.claim;
        let pool = input.pools.iter().find(|pool| pool.name == claim.pool);
        let class = input.classes.iter().find(|class| class.name == claim.class);
        let class = class.filter(|class| class.readiness == ClassReadiness::Ready);
        let pool_hash = pool.filter(|_| claim.pool_hash.is_none()).map(|pool| PoolHash::of(&pool.template));
        let groups = class.filter(|_| claim.security_groups.is_none());
        let security_groups = groups.map(|class| class.security_groups.clone());
        let class_hash = class.filter(|_| claim.class_hash.is_none()).and_then(|class| class.hash);
        let any = pool_hash.is_some() || class_hash.is_some() || security_groups.is_some();
        let stays = claim.phase() == ClaimPhase::Initialized && claim.drift.is_none();
        (any && stays).then(|| Adoption { claim: claim.name.clone(), pool_hash, class_hash, security_groups })
    };
    let mut found: Vec<Adoption> = input.claims.iter().filter_map(adopts).collect();
    found.sort_by(|a, b| a.claim.cmp(&b.claim));
    found
}

/// The claim's drift from its class; the outer `None` if it can't be decided.
#[expect(clippy::option_option, reason = "unknown and none are different answers")]
fn of_class(view: &ClaimView, class: &ClassView, now: Timestamp) -> Option<Option<Drift>> {
    let drift = |reason, from: String, to: String| {
        Some(Some(Drift { reason, since: now, from, to, fields: Vec::new() }))
    };
    if let (Some(had), Some(has)) = (view.claim.class_hash, class.hash)
        && had != has
    {
        let known = view.claim.class_fields.as_ref().zip(class.fields.as_ref());
        let fields = known.map(|(had, has)| had.changed_in_class(has)).unwrap_or_default();
        let (reason, from, to) = (DriftReason::NodeClassDrift, had.to_string(), has.to_string());
        return Some(Some(Drift { reason, since: now, from, to, fields }));
    }
    let instance = view.claim.state.instance()?;
    let image = image_for(&class.images, view.facts.as_ref()?)?;
    // A joined node shows that its image works. The class passes over the image for an hour only, so a replacement would
    // be replaced in turn.
    let stays = view.claim.state.node().is_some() && class.failed_images.contains(&instance.image);
    if image.id != instance.image && !stays {
        return drift(DriftReason::AmiDrift, instance.image.to_string(), image.id.to_string());
    }
    let groups = view.claim.security_groups.as_ref().filter(|groups| **groups != class.security_groups);
    if let Some(groups) = groups {
        let [from, to] = [groups, &class.security_groups]
            .map(|ids| told(&ids.iter().map(AsRef::as_ref).collect::<Vec<_>>()));
        return drift(DriftReason::SecurityGroupDrift, from, to);
    }
    let subnet = instance.subnet.as_ref().filter(|subnet| !class.subnets.contains(subnet));
    if let Some(subnet) = subnet {
        return drift(DriftReason::SubnetDrift, subnet.to_string(), named(&class.subnets));
    }
    let reservation = || of_reservation(instance, class.reservations.as_ref()?, now);
    Some(reservation().or_else(|| of_placement_group(instance, class, now)))
}

/// Only a reservation that our launch named can drift: open reservations take instances on their own.
fn of_reservation(
    instance: &LaunchedInstance,
    reservations: &DriftingReservations,
    now: Timestamp,
) -> Option<Drift> {
    let into = instance.reservation.as_ref()?;
    if reservations.of_class.has(reservations.right, &into.id) {
        return None;
    }
    let ids: Vec<&str> = reservations.of_class.shown().iter().map(|one| one.id.as_str()).collect();
    let (reason, from) = (DriftReason::CapacityReservationDrift, into.id.to_string());
    let to = if ids.is_empty() { NONE.to_owned() } else { told(&ids) };
    Some(Drift { reason, since: now, from, to, fields: Vec::new() })
}

/// The group that the launch named against the class's. The partition never drifts: without a requirement EC2 chose it.
fn of_placement_group(instance: &LaunchedInstance, class: &ClassView, now: Timestamp) -> Option<Drift> {
    let launched = instance.placement.as_ref().map(|placed| &placed.group);
    let selected = class.placement_group.as_ref();
    let named = |group: Option<&PlacementGroupId>| group.map_or_else(|| NONE.to_owned(), ToString::to_string);
    (launched != selected).then(|| Drift {
        reason: DriftReason::PlacementGroupDrift,
        since: now,
        from: named(launched),
        to: named(selected),
        fields: Vec::new(),
    })
}

/// The class's subnets in a stable order: the status's order changes with their free addresses.
fn named(subnets: &[SubnetId]) -> String {
    let all: BTreeSet<&str> = subnets.iter().map(AsRef::as_ref).collect();
    told(&all.into_iter().collect::<Vec<_>>())
}

fn told(all: &[&str]) -> String {
    let mut text = all.iter().take(NAMED).copied().collect::<Vec<_>>().join(",");
    if let Some(others) = all.len().checked_sub(NAMED).filter(|others| *others > 0) {
        text.push_str(&format!(" and {others} more"));
    }
    text
}
