//! Pods that get spare room of claims on their way: they join the claims' launches.
//!
//! Decides what is written of a plan's placements, so that the plan which was made is the plan which happens: other plans
//! leave these pods alone, and the agent nominates them when the Node opens. A pod with room on a Node that takes pods is
//! kube-scheduler's at once, and isn't written. It decides no placement.
//!
//! Invariants: a launch is written only where it counts more pods afterwards, or others on a claim; it is settled, and
//! the write is conditional on its revision.

use std::collections::BTreeMap;

use tenon_domain::claim::Claim;
use tenon_domain::id::{ClaimName, LaunchId};
use tenon_domain::launch::{CountedPod, Launch, LaunchState};
use tenon_launching::build::{LaunchInput, join_record};
use tenon_planning::provision::Placement;
use tenon_state::cluster::ObservedCluster;
use tenon_state::step::Change;
use tenon_state::view::ClusterView;
use tenon_table::items::{ClaimPods, DecisionCounter, LaunchedPods, keys, set};
use tenon_table::{Expect, WriteGroup};

/// The pods that are placed on claims.
type PlacedPods<'a> = BTreeMap<&'a ClaimName, (&'a Claim, Vec<&'a CountedPod>)>;

/// The writes of placements on claims on their way, a group a launch.
pub(crate) fn joins(
    input: &LaunchInput<'_>,
    world: &ObservedCluster<'_>,
    view: &ClusterView,
    placements: &[Placement],
) -> Vec<WriteGroup> {
    let coming = world.on_their_way();
    let mut joining: BTreeMap<&LaunchId, PlacedPods<'_>> = BTreeMap::new();
    for Placement { pod, node } in placements {
        let Some(claim) = coming.get(node.as_str()).copied() else { continue };
        let of_launch = joining.entry(&claim.launch).or_default();
        of_launch.entry(&claim.name).or_insert_with(|| (claim, Vec::new())).1.push(pod);
    }
    joining.iter().filter_map(|(launch, pods)| join(input, view.launches.get(*launch)?, pods)).collect()
}

/// The writes of pods that join a launch; `None` if it counts none of them that it didn't count before.
fn join(input: &LaunchInput<'_>, launch: &Launch, placed: &PlacedPods<'_>) -> Option<WriteGroup> {
    match launch.state {
        LaunchState::Settled { .. } => {}
        // Its settlement is conditional on the revision.
        LaunchState::Requested { .. } => return None,
    }
    let pods = placed.iter().flat_map(|(name, (_, pods))| pods.iter().map(move |pod| (*name, &pod.uid)));
    let next = launch.joined_by(pods)?;
    let cluster = &input.registry.cluster;
    let key = keys::launch(cluster, &next.id);
    let mut change = Change::of(cluster);
    change.replace(Expect::Revision(launch.revision), set(key.clone(), &next));
    let mut names = LaunchedPods { launch: next.id.clone(), at: input.now, claims: Vec::new() };
    for (name, (claim, pods)) in placed {
        let counts = |launch: &Launch, pod: &CountedPod| {
            launch.claims.iter().any(|one| one.name == **name && one.pods.contains(&pod.uid))
        };
        let new = pods.iter().filter(|pod| counts(&next, pod) && !counts(launch, pod));
        let new: Vec<CountedPod> = new.map(|pod| (*pod).clone()).collect();
        if new.is_empty() {
            continue;
        }
        change.record(&join_record(input, claim, &new), DecisionCounter::Item(&key, next.revision));
        let pods = new.into_iter().map(|pod| pod.name).collect();
        names.claims.push(ClaimPods { claim: (*name).clone(), pods });
    }
    if let Some(names) = names.write(cluster) {
        change.write(names);
    }
    Some(change.group())
}
