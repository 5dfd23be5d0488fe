//! The invariant of interrupted nodes: their pods stay while their replacements start.
//!
//! Decides from the evictions and from the claims that count the pods. Pods that go at once by the agent's rules aren't
//! judged: those that a PodDisruptionBudget guards, those with a volume that one node at a time can have, and those that
//! need half of the time that is left, or all of it.

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::{Claim, ClaimState};
use tenon_domain::id::Uid;
use tenon_domain::manifest::pod_uid;
use tenon_simulated_cluster::Evicted;

use crate::history::ClusterMoment;
use crate::invariants::Invariant;

/// The time that a pod has to start elsewhere, and a second for the eviction itself.
const TO_START: SignedDuration = SignedDuration::from_secs(21);
/// The agent knows of an instance after this time: a ring may be lost, and a look may fail.
const KNOWN_WITHIN: SignedDuration = SignedDuration::from_secs(7);

/// A pod of an interrupted node isn't evicted while the instance of its replacement starts.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_replacement_first(
    moment: &ClusterMoment,
    evictions: &[Evicted],
) -> Result<(), (Invariant, String)> {
    for eviction in evictions.iter().filter(|eviction| !eviction.guarded && !eviction.has_volume) {
        let Some(uid) = pod_uid(&eviction.pod.namespace, &eviction.pod.name).ok() else { continue };
        let is_early = |claim: &Claim| {
            let ends = claim
                .state
                .holds_pods_until()
                .filter(|_| claim.state.node().is_some_and(|node| node.as_str() == eviction.node));
            ends.is_some_and(|ends| {
                let (left, grace) = (ends.duration_since(eviction.at), eviction.grace);
                left > grace.saturating_add(TO_START) && left >= grace.saturating_add(grace)
            })
        };
        if !moment.claims.iter().any(|claim| is_early(claim)) {
            continue;
        }
        let starts = |claim: &Claim| {
            launched_at(claim).is_some_and(|at| eviction.at.duration_since(at) > KNOWN_WITHIN)
        };
        if let Some(claim) = moment.claims.iter().find(|claim| starts(claim) && counts(moment, claim, &uid)) {
            let text = format!(
                "pod {} of interrupted node {} was evicted at {}, while its replacement {} starts",
                eviction.pod, eviction.node, eviction.at, claim.name
            );
            return Err((Invariant::ReplacementFirst, text));
        }
    }
    Ok(())
}

/// Since when the claim's instance starts, unless its Node is initialised.
const fn launched_at(claim: &Claim) -> Option<Timestamp> {
    match &claim.state {
        ClaimState::Launched { at, .. } | ClaimState::Registered { at, .. } => Some(*at),
        ClaimState::Planned
        | ClaimState::LaunchFailed { .. }
        | ClaimState::Initialized { .. }
        | ClaimState::Disrupting { .. }
        | ClaimState::Draining { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. }
        | ClaimState::Terminated { .. } => None,
    }
}

fn counts(moment: &ClusterMoment, claim: &Claim, uid: &Uid) -> bool {
    let of_claim = moment.launches.iter().flat_map(|launch| &launch.claims);
    of_claim.filter(|one| one.name == claim.name).any(|one| one.pods.contains(uid))
}
