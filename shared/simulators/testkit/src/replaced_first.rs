//! The invariant of interrupted nodes: their pods stay while their replacements start.
//!
//! Decides from the evictions, from the times at which the agent's steps that made them began, and from the claims that
//! count the pods, and since when. Pods that go at once by the agent's rules aren't judged: those that a PodDisruptionBudget guards, those
//! with a volume that one node at a time can have, and those that need half of the time that is left, or all of it. Nor
//! does it judge how long a step takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::{Claim, ClaimState};
use tenon_domain::id::{LaunchId, Uid};
use tenon_domain::launch::Launch;
use tenon_domain::manifest::pod_uid;
use tenon_simulated_cluster::Evicted;

use crate::history::ClusterMoment;
use crate::invariants::Invariant;

/// The time that a pod has to start elsewhere, and a second for the eviction itself.
const TO_START: SignedDuration = SignedDuration::from_secs(21);
/// A step of the agent that begins so long after a claim's state knows of it. Every step reads the claims, so no ring is
/// waited for; but the state has the time before it was written, EC2's refusals are written first, calls are slow, and a
/// counter that is read may be a second old.
const KNOWN_WITHIN: SignedDuration = SignedDuration::from_secs(5);

/// The most steps of a launch that no pod joined and whose first call was answered: its commit, and the answer.
const ANSWERED_AT_ONCE: u64 = 2;

/// Whether pods joined the launch since the step before, in which it may not have been there yet.
pub(crate) fn has_been_joined(before: Option<&Arc<Launch>>, now: &Launch) -> bool {
    before.map_or(now.revision > ANSWERED_AT_ONCE, |before| before.claims != now.claims)
}

/// A pod of an interrupted node isn't evicted while the instance of its replacement starts.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_replacement_first(
    moment: &ClusterMoment,
    evictions: &[Evicted],
    joined_at: &BTreeMap<LaunchId, Timestamp>,
) -> Result<(), (Invariant, String)> {
    for eviction in evictions.iter().filter(|eviction| !eviction.guarded && !eviction.has_volume) {
        let Some(uid) = pod_uid(&eviction.pod.namespace, &eviction.pod.name).ok() else { continue };
        let is_known = |at: Timestamp| eviction.looked_at.duration_since(at) > KNOWN_WITHIN;
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
        let keeps = |claim: &Claim| is_early(claim) && claim.state.since().is_some_and(is_known);
        if !moment.claims.iter().any(|claim| keeps(claim)) {
            continue;
        }
        let starts = |claim: &Claim| {
            launched_at(claim).is_some_and(is_known)
                && joined_at.get(&claim.launch).is_none_or(|at| is_known(*at))
        };
        // The newest launch that counts a pod has its place: an earlier one lost it.
        let counting =
            moment.claims.iter().filter_map(|claim| Some((counted_since(moment, claim, &uid)?, claim)));
        let newest = counting.max_by_key(|(at, _)| *at).map(|(_, claim)| claim);
        if let Some(claim) = newest.filter(|claim| starts(claim)) {
            let text = format!(
                "pod {} of interrupted node {} was evicted at {} by a step of {}, while its replacement {} starts",
                eviction.pod, eviction.node, eviction.at, eviction.looked_at, claim.name
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

/// When the launch was made that counts the pod on the claim.
fn counted_since(moment: &ClusterMoment, claim: &Claim, uid: &Uid) -> Option<Timestamp> {
    let launch = moment
        .launches
        .iter()
        .find(|launch| launch.claims.iter().any(|one| one.name == claim.name && one.pods.contains(uid)))?;
    Some(launch.created_at)
}

#[cfg(test)]
mod tests {
    use tenon_domain::catalog::CapacityType;
    use tenon_domain::claim::{LaunchedInstance, RemovalReason};
    use tenon_domain::launch::{LaunchCause, LaunchClaim, LaunchState};
    use tenon_snapshot::{Kind, ObjectKey};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn instance(id: &str) -> LaunchedInstance {
        LaunchedInstance {
            id: id.parse().unwrap(),
            instance_type: "m5.large".parse().unwrap(),
            zone: "us-east-1a".parse().unwrap(),
            subnet: None,
            capacity_type: CapacityType::Spot,
            reservation: None,
            placement: None,
            image: "ami-00000000000000001".parse().unwrap(),
        }
    }

    fn claim(name: &str, state: ClaimState) -> Arc<Claim> {
        let of = ("default".parse().unwrap(), "default".parse().unwrap());
        let planned = Claim::planned(name.parse().unwrap(), of, "launch-a".parse().unwrap(), at(0));
        Arc::new(Claim { state, ..planned })
    }

    /// A node is interrupted at 100 s and ends at 220 s; its pod's replacement has an instance from 102 s on.
    fn moment() -> ClusterMoment {
        let goes = ClaimState::Draining {
            instance: instance("i-00000000000000001"),
            node: Some("goes".parse().unwrap()),
            reason: RemovalReason::SpotInterrupted,
            at: at(100),
            deadline: Some(at(220)),
        };
        let comes = ClaimState::Launched { instance: instance("i-00000000000000002"), at: at(102) };
        let counted = LaunchClaim {
            name: "default-b".parse().unwrap(),
            pods: vec![pod_uid("default", "web").unwrap()],
        };
        let launch = Launch {
            id: "launch-a".parse().unwrap(),
            revision: 1,
            pool: "default".parse().unwrap(),
            class: "default".parse().unwrap(),
            token: "token".parse().unwrap(),
            request: String::new(),
            made_from: None,
            reservation: None,
            placement: None,
            claims: vec![counted],
            cause: LaunchCause::PendingPods,
            created_at: at(101),
            state: LaunchState::Settled { at: at(102), instances: 1 },
        };
        ClusterMoment {
            at: at(130),
            claims: vec![claim("default-a", goes), claim("default-b", comes)],
            launches: vec![Arc::new(launch)],
            commands: Vec::new(),
            instances: Vec::new(),
            pod_deletions: Vec::new(),
        }
    }

    #[test]
    fn pods_may_join_a_launch_within_the_step_of_its_commit() {
        let first = moment().launches.remove(0);
        let later = |revision, pods: &[&str]| {
            let mut launch = Launch { revision, ..(*first).clone() };
            launch.claims[0].pods = pods.iter().map(|name| pod_uid("default", name).unwrap()).collect();
            launch
        };
        let check = |before: Option<&Arc<Launch>>, now: &Launch, expected| {
            assert_eq!(has_been_joined(before, now), expected, "{now:?}");
        };
        check(None, &later(2, &["web"]), false);
        check(None, &later(3, &["web", "web-2"]), true);
        check(Some(&first), &later(2, &["web"]), false);
        check(Some(&first), &later(3, &["web", "web-2"]), true);
    }

    #[test]
    fn an_eviction_is_judged_by_what_its_step_could_know() {
        let joined = |second: i64| BTreeMap::from([("launch-a".parse::<LaunchId>().unwrap(), at(second))]);
        let check = |(looked_at, evicted_at): (i64, i64), joined_at: BTreeMap<_, _>, is_kept: bool| {
            let evicted = Evicted {
                at: at(evicted_at),
                looked_at: at(looked_at),
                pod: ObjectKey::new(Kind::Pod, "default", "web"),
                node: "goes".to_owned(),
                grace: SignedDuration::from_secs(30),
                guarded: false,
                has_volume: false,
                budgets: Vec::new(),
            };
            let found = invariant_replacement_first(&moment(), &[evicted], &joined_at);
            assert_eq!(found.is_ok(), is_kept, "{found:?}");
        };
        check((108, 109), BTreeMap::new(), false);
        // However long the step takes.
        check((107, 125), BTreeMap::new(), true);
        check((101, 108), BTreeMap::new(), true);
        // The pod may have joined a claim that was on its way already.
        check((110, 111), joined(104), false);
        check((109, 111), joined(104), true);
    }
}
