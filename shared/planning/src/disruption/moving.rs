//! The world that pods move in: promised room is taken, and each plan takes its own.
//!
//! Decides nothing; it keeps the plans of one pass from using the same room twice.

use std::collections::BTreeSet;

use tenon_domain::api::Pod;
use tenon_domain::claim::ClaimPhase;
use tenon_domain::id::{CommandId, Uid};

use super::blocked::reschedulable;
use super::due::due;
use super::input::{ClaimView, DisruptionInput};
use crate::provision::{PlanTrials, PlannedClaim, ProvisionPlan, ProvisionReport, Purpose};

/// The room that is left while commands are planned.
pub(crate) struct SpareCapacity<'a> {
    trials: PlanTrials<'a>,
    /// Nodes that pending pods go to.
    expecting: BTreeSet<String>,
    /// Pods of leaving nodes that no node has room for.
    homeless: BTreeSet<Uid>,
    /// Whether a move that is taken asks EC2 for what it refused.
    asks: bool,
}

/// Where pods of leaving nodes would run.
pub(crate) struct PlannedMove {
    /// The pods that count.
    pub(crate) pods: Vec<Pod>,
    /// Their places.
    pub(crate) plan: ProvisionPlan,
    /// Pods without a place.
    pub(crate) refused: ProvisionReport,
}

impl PlannedMove {
    /// Whether no pod waits for the answer to a probe of another one's.
    pub(crate) fn is_whole(&self) -> bool {
        let launched = self.plan.claims.iter().map(|claim| claim.pods.len());
        launched.fold(self.plan.placements.len(), usize::saturating_add) >= self.pods.len()
    }
}

impl<'a> SpareCapacity<'a> {
    /// The world without leaving, drifted and due nodes, and without the room for pending pods and pods of leaving
    /// nodes. A drifted or due node is no target: its pods would have to move again.
    pub(crate) fn new(input: &'a DisruptionInput) -> Self {
        let going = |view: &&ClaimView| is_going(view.claim.phase());
        let leaving =
            |view: &&ClaimView| going(view) || view.claim.drift.is_some() || due(input, view).is_some();
        let left: BTreeSet<&str> = input.claims.iter().filter(leaving).filter_map(node_name).collect();
        let bound = input.claims.iter().filter_map(|view| view.node.as_ref()).flat_map(|node| &node.pods);
        let mut trials = PlanTrials::new(
            &input.world,
            |node| !left.contains(node.name.as_str()),
            input.world.pods.iter().chain(bound),
        );
        // Pods of interrupted nodes are among the pending ones.
        let pending: BTreeSet<&Uid> = input.world.pods.iter().map(|pod| &pod.uid).collect();
        let moving = input
            .claims
            .iter()
            .filter(going)
            .filter_map(|view| view.node.as_ref())
            .flat_map(reschedulable)
            .filter(|pod| !input.counted.contains_key(&pod.uid) && !pending.contains(&pod.uid));
        let moving: Vec<Pod> = moving.collect();
        let (mut expecting, mut homeless) = (BTreeSet::new(), BTreeSet::new());
        // Pods that wait are bound before those that still run.
        for promised in [&input.world.pods, &moving] {
            let placed = trials.place(promised);
            trials.take(&BTreeSet::new(), &placed, promised);
            homeless = promised.iter().map(|pod| pod.uid.clone()).collect();
            for placement in placed.placements {
                homeless.remove(&placement.pod.uid);
                expecting.insert(placement.node);
            }
        }
        Self { trials, expecting, homeless, asks: false }
    }

    /// Where the candidates' pods would run without them. It takes no room yet.
    pub(crate) fn plan(
        &mut self,
        command: &CommandId,
        candidates: &BTreeSet<&str>,
        pods: &[Pod],
    ) -> (ProvisionPlan, ProvisionReport) {
        self.trials.plan(&Purpose::Replacement(command.clone()), candidates, pods)
    }

    /// The same, where the node of some pods doesn't wait for their room: if there is none for all pods, the others'
    /// alone counts.
    pub(crate) fn plan_move(
        &mut self,
        command: &CommandId,
        candidates: &BTreeSet<&str>,
        pods: Vec<Pod>,
        kept: &BTreeSet<Uid>,
    ) -> PlannedMove {
        let (plan, refused) = self.plan(command, candidates, &pods);
        if refused.unschedulable.is_empty() || pods.iter().all(|pod| !kept.contains(&pod.uid)) {
            return PlannedMove { pods, plan, refused };
        }
        let pods: Vec<Pod> = pods.into_iter().filter(|pod| !kept.contains(&pod.uid)).collect();
        let (plan, refused) = self.plan(command, candidates, &pods);
        PlannedMove { pods, plan, refused }
    }

    /// The same for a move that nothing available is left for: one claim that asks EC2 again for what it refused. One move
    /// of a look asks, because others would ask for the same; and none whose other pods have no way at all.
    pub(crate) fn plan_asking(
        &mut self,
        command: &CommandId,
        candidates: &BTreeSet<&str>,
        refused: &PlannedMove,
    ) -> Option<PlannedMove> {
        if self.asks {
            return None;
        }
        let pods = refused.pods.clone();
        let purpose = Purpose::AskingReplacement(command.clone());
        let (mut plan, refused) = self.trials.plan(&purpose, candidates, &pods);
        if !refused.unschedulable.is_empty() {
            return None;
        }
        // Of several claims the others wait for the answer, as they may ask for the same.
        let asks = plan.claims.iter().find(|claim| claim.asks_only())?.clone();
        plan.claims = vec![asks];
        Some(PlannedMove { pods, plan, refused })
    }

    /// Takes a plan's room: on nodes, of pools' limits, and the names of its claims; and the candidates' nodes away.
    pub(crate) fn commit(&mut self, candidates: &BTreeSet<&str>, plan: &ProvisionPlan, pods: &[Pod]) {
        self.asks = self.asks || plan.claims.iter().any(PlannedClaim::asks_only);
        self.trials.take(candidates, plan, pods);
    }

    /// Nodes that take no pods from now on, although other pods' rules count theirs.
    pub(crate) fn close<'n>(&mut self, nodes: impl Iterator<Item = &'n str>) {
        self.trials.close(&nodes.collect());
    }

    /// Whether pods of leaving nodes wait for nodes that aren't there yet.
    pub(crate) fn awaits_nodes(&self) -> bool {
        !self.homeless.is_empty()
    }

    /// Whether the pods of a leaving node have room on nodes that are there.
    pub(crate) fn has_room_for(&self, pods: &[Pod]) -> bool {
        pods.iter().all(|pod| !self.homeless.contains(&pod.uid))
    }

    /// Whether pending pods, or pods of leaving nodes, go to the node.
    pub(crate) fn expects_pods(&self, node: &str) -> bool {
        self.expecting.contains(node)
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
