//! The world that pods move in: promised room is taken, and each plan takes its own.
//!
//! Decides nothing; it keeps the plans of one pass from using the same room twice.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::Pod;
use tenon_domain::claim::ClaimPhase;
use tenon_domain::id::{CommandId, Uid};
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{ResourceList, ResourceName};

use super::blocked::reschedulable;
use super::input::{ClaimView, DisruptionInput};
use crate::provision::{self, Purpose};

/// The room that is left while commands are planned.
pub(crate) struct SpareCapacity(provision::ProvisionInput);

impl SpareCapacity {
    /// The world without leaving and drifted nodes, and without the room for pending pods and pods of leaving nodes.
    /// A drifted node is no target: its pods would have to move again.
    pub(crate) fn new(input: &DisruptionInput) -> Self {
        let going = |view: &&ClaimView| is_going(view.claim.phase());
        let leaving = |view: &&ClaimView| going(view) || view.claim.drift.is_some();
        let left: BTreeSet<&str> = input.claims.iter().filter(leaving).filter_map(node_name).collect();
        let mut world = input.world.clone();
        world.nodes.retain(|node| !left.contains(node.name.as_str()));
        let moving = input
            .claims
            .iter()
            .filter(going)
            .filter_map(|view| view.node.as_ref())
            .flat_map(reschedulable)
            .filter(|pod| !input.counted.contains(&pod.uid));
        let promised: Vec<Pod> = world.pods.iter().cloned().chain(moving).collect();
        world.pods = Vec::new();
        let mut world = Self(world);
        let placing = provision::ProvisionInput { pods: promised, pools: Vec::new(), ..world.0.clone() };
        let (plan, _) = provision::plan(&placing);
        world.take(&plan, &placing.pods);
        world
    }

    /// Where the candidate's pods would run without it. It takes no room yet.
    pub(crate) fn plan(
        &self,
        command: &CommandId,
        candidates: &BTreeSet<&str>,
        pods: Vec<Pod>,
    ) -> (provision::ProvisionPlan, provision::ProvisionReport) {
        let mut input = provision::ProvisionInput {
            pods,
            purpose: Purpose::Replacement(command.clone()),
            ..self.0.clone()
        };
        input.nodes.retain(|node| !candidates.contains(node.name.as_str()));
        provision::plan(&input)
    }

    /// Takes a plan's room: on nodes, of pools' limits, and the names of its claims; and the candidates' nodes away.
    pub(crate) fn commit(
        &mut self,
        candidates: &BTreeSet<&str>,
        plan: &provision::ProvisionPlan,
        pods: &[Pod],
    ) {
        self.0.nodes.retain(|node| !candidates.contains(node.name.as_str()));
        self.take(plan, pods);
    }

    fn take(&mut self, plan: &provision::ProvisionPlan, pods: &[Pod]) {
        let by_uid: BTreeMap<&Uid, &Pod> = pods.iter().map(|pod| (&pod.uid, pod)).collect();
        let mut taken: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        for placement in &plan.placements {
            let pod = by_uid.get(&placement.pod.uid).copied();
            taken.entry(placement.node.as_str()).or_default().extend(pod);
        }
        for node in &mut self.0.nodes {
            node.occupancy.extend(taken.get(node.name.as_str()).into_iter().flatten().copied());
        }
        for claim in &plan.claims {
            self.0.taken_names.insert(claim.name.clone());
            for pool in self.0.pools.iter_mut() {
                pool.nodes_left = pool.nodes_left.map(|left| left.saturating_sub(1));
                if pool.pool.name == claim.pool {
                    let one = ResourceList::new().with(ResourceName::NODES, Quantity::from_integer(1));
                    // A pool with limits charges every type of a claim at most what the first type charges.
                    let largest = pool
                        .types
                        .iter()
                        .filter(|option| claim.instance_types.contains(&option.facts.name))
                        .fold(ResourceList::new(), |most, option| most.max(&option.capacity));
                    pool.usage.add(&largest.plus(&one));
                }
            }
        }
    }
}

pub(crate) fn node_name(view: &ClaimView) -> Option<&str> {
    view.node.as_ref().map(|node| node.name.as_str())
}

/// Whether a claim is leaving but its instance isn't terminating yet.
pub(crate) fn is_going(phase: ClaimPhase) -> bool {
    match phase {
        ClaimPhase::Disrupting | ClaimPhase::Draining | ClaimPhase::Drained => true,
        ClaimPhase::Planned
        | ClaimPhase::LaunchFailed
        | ClaimPhase::Launched
        | ClaimPhase::Registered
        | ClaimPhase::Initialized
        | ClaimPhase::Terminating
        | ClaimPhase::Terminated => false,
    }
}
