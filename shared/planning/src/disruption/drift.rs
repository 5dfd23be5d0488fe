//! Whether a claim drifted from its class.
//!
//! Decides drift marks; a mark alone disrupts nothing. While the class isn't ready, or a fact isn't known, a mark is
//! neither set nor cleared.
//!
//! Source: aws/karpenter-provider-aws `pkg/cloudprovider/drift.go`; kubernetes-sigs/karpenter
//! `pkg/controllers/nodeclaim/disruption/drift.go`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenon_domain::claim::{ClaimPhase, Drift, DriftReason, LaunchedInstance};
use tenon_domain::class_status::image_for;
use tenon_domain::id::{PlacementGroupId, SubnetId};

use super::input::{ClaimView, ClassReadiness, ClassView, DisruptionInput, DriftingReservations};
use super::output::DriftMark;

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
    let class = input.classes.iter().find(|class| class.name == claim.class);
    let class = class.filter(|class| judged && class.readiness == ClassReadiness::Ready)?;
    let found = drift(view, class, input.now)?;
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

/// The claim's drift; the outer `None` if it can't be decided.
#[expect(clippy::option_option, reason = "unknown and none are different answers")]
fn drift(view: &ClaimView, class: &ClassView, now: Timestamp) -> Option<Option<Drift>> {
    let instance = view.claim.state.instance()?;
    let image = image_for(&class.images, view.facts.as_ref()?)?;
    // A joined node shows that its image works. The class passes over the image for an hour only, so a replacement would
    // be replaced in turn.
    let stays = view.claim.state.node().is_some() && class.failed_images.contains(&instance.image);
    if image.id != instance.image && !stays {
        return Some(Some(Drift {
            reason: DriftReason::AmiDrift,
            since: now,
            from: instance.image.to_string(),
            to: image.id.to_string(),
        }));
    }
    let subnet = instance.subnet.as_ref().filter(|subnet| !class.subnets.contains(subnet));
    let subnet = subnet.map(|subnet| Drift {
        reason: DriftReason::SubnetDrift,
        since: now,
        from: subnet.to_string(),
        to: named(&class.subnets),
    });
    let reservation = || of_reservation(instance, class.reservations.as_ref()?, now);
    Some(subnet.or_else(reservation).or_else(|| of_placement_group(instance, class, now)))
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
    Some(Drift { reason, since: now, from, to })
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
