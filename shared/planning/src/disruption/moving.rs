//! The world that pods move in: promised room is taken, and each plan takes its own.
//!
//! Decides nothing; it keeps the plans of one pass from using the same room twice. The room of an evicted pod's successor
//! is taken before the snapshot shows the successor.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::Pod;
use tenon_domain::api::meta::OwnerReference;
use tenon_domain::claim::{ClaimPhase, ClaimState, CommandRole};
use tenon_domain::id::{CommandId, Uid};

use super::blocked::reschedulable;
use super::due::due;
use super::input::{ClaimView, DisruptionInput};
use crate::provision::{
    PlanTrials, PlannedClaim, ProvisionPlan, ProvisionReport, Purpose, Reason, Unschedulable,
};

/// The room that is left while commands are planned.
pub(crate) struct SpareCapacity<'a> {
    trials: PlanTrials<'a>,
    /// Nodes that pending pods go to.
    expecting: BTreeSet<String>,
    /// The nodes with room for them, and for pods of leaving nodes.
    promised: BTreeMap<Uid, String>,
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
    /// How many pods wait for the answer to a probe of another one's.
    pub(crate) fn unplanned(&self) -> u32 {
        let launched = self.plan.claims.iter().map(|claim| claim.pods.len());
        let placed = launched.fold(self.plan.placements.len(), usize::saturating_add);
        u32::try_from(self.pods.len().saturating_sub(placed)).unwrap_or(u32::MAX)
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
        let trials = PlanTrials::new(
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
            .chain(successors_of_evicted(input))
            .filter(|pod| !input.counted.contains_key(&pod.uid) && !pending.contains(&pod.uid));
        let mut moving: Vec<Pod> = moving.collect();
        let mut world = Self {
            trials,
            expecting: BTreeSet::new(),
            promised: BTreeMap::new(),
            homeless: BTreeSet::new(),
            asks: false,
        };
        // Pods that wait are bound before those that still run.
        world.promise(&input.world.pods, |_| true);
        // What waits for its replacement goes there, although other nodes may have room by now.
        let (replacements, pods) = replaced(input);
        let replaced: Vec<Pod> = moving.iter().filter(|pod| pods.contains(&pod.uid)).cloned().collect();
        world.promise(&replaced, |node| replacements.contains(node));
        moving.retain(|pod| !world.promised.contains_key(&pod.uid));
        world.homeless = world.promise(&moving, |_| true);
        world
    }

    /// Takes the room for pods on some of the nodes. Returns those without a place.
    fn promise(&mut self, pods: &[Pod], to: impl Fn(&str) -> bool) -> BTreeSet<Uid> {
        let mut homeless: BTreeSet<Uid> = pods.iter().map(|pod| pod.uid.clone()).collect();
        if pods.is_empty() {
            return homeless;
        }
        let placed = self.trials.place(pods, to);
        self.trials.take(&BTreeSet::new(), &placed, pods);
        for placement in placed.placements {
            homeless.remove(&placement.pod.uid);
            self.expecting.insert(placement.node.clone());
            self.promised.insert(placement.pod.uid, placement.node);
        }
        homeless
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
    /// of a look asks, because others would ask for the same; and none whose other pods could use nothing that EC2 may
    /// have again.
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
        if !refused.unschedulable.iter().all(waits_for_probe) {
            return None;
        }
        // Of several claims the others wait for the answer, as they may ask for the same; and so do pods whose offerings
        // were asked for a moment ago.
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

    /// Whether one of these nodes has room for the pod of a leaving node, and expects it.
    pub(crate) fn is_promised(&self, pod: &Pod, nodes: &BTreeSet<&str>) -> bool {
        self.promised.get(&pod.uid).is_some_and(|node| nodes.contains(node.as_str()))
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

/// The nodes that replace others, and the pods of those that still wait for them.
fn replaced(input: &DisruptionInput) -> (BTreeSet<&str>, BTreeSet<&Uid>) {
    let (mut nodes, mut commands) = (BTreeSet::new(), BTreeSet::new());
    for view in &input.claims {
        if let CommandRole::Replacement(command) = &view.claim.role {
            // A claim without a Node is known by its own name.
            nodes.insert(node_name(view).unwrap_or_else(|| view.claim.name.as_str()));
            commands.insert(command);
        }
    }
    let waits = |view: &&ClaimView| matches!(&view.claim.state, ClaimState::Disrupting { command, .. } if commands.contains(command));
    let waiting = input.claims.iter().filter(waits).filter_map(|view| view.node.as_ref());
    (nodes, waiting.flat_map(|node| &node.pods).map(|pod| &pod.uid).collect())
}

/// The controller of a pod, in its namespace.
type Controller<'a> = (&'a str, &'a OwnerReference);

/// Pods that a drain evicted, and whose successors the snapshot doesn't show yet: these take as much room. A StatefulSet's
/// aren't among them: their names stay, so that they move as themselves.
///
/// A controller makes the successor at once, but the eviction alone may be written: a later snapshot shows the successor.
fn successors_of_evicted(input: &DisruptionInput) -> Vec<Pod> {
    let mut evicted: BTreeMap<Controller<'_>, Vec<(Timestamp, &Pod)>> = BTreeMap::new();
    let draining = input.claims.iter().filter_map(|view| Some((drains_since(view)?, view.node.as_ref()?)));
    for (since, node) in draining {
        for pod in node.pods.iter().filter(|pod| !pod.is_finished()) {
            if let (Some(at), Some(controller)) = (deletion_asked_at(pod), controller(pod))
                && is_replicated(controller.1)
            {
                evicted.entry(controller).or_default().push((at.max(since), pod));
            }
        }
    }
    if evicted.is_empty() {
        return Vec::new();
    }
    evicted.values_mut().for_each(|pods| pods.sort_by_key(|(at, _)| Reverse(*at)));
    let bound = input.claims.iter().filter_map(|view| view.node.as_ref()).flat_map(|node| &node.pods);
    let alive = |pod: &&Pod| pod.deleted_at.is_none() && !pod.is_finished();
    for pod in bound.chain(&input.world.pods).filter(alive) {
        let (Some(came), Some(pods)) =
            (pod.created_at.or(pod.bound_at), controller(pod).and_then(|one| evicted.get_mut(&one)))
        else {
            continue;
        };
        // Kubernetes' times are of whole seconds.
        let is_later = |(at, _): &(Timestamp, &Pod)| at.as_second() <= came.as_second();
        if let Some(index) = pods.iter().position(is_later) {
            pods.remove(index);
        }
    }
    let unbound = |pod: &Pod| Pod { node: None, deleted_at: None, ..pod.clone() };
    evicted.into_values().flatten().map(|(_, pod)| unbound(pod)).collect()
}

/// When the deletion of a terminating pod began: its time of deletion is the end of its grace.
fn deletion_asked_at(pod: &Pod) -> Option<Timestamp> {
    let grace = SignedDuration::from_secs(pod.shape.termination_grace_seconds.into());
    Some(pod.deleted_at?.saturating_sub(grace).unwrap_or(Timestamp::MIN))
}

fn controller(pod: &Pod) -> Option<Controller<'_>> {
    let owner = pod.shape.owner.as_ref()?;
    Some((pod.name.namespace.as_str(), owner))
}

/// Whether the controller makes another pod, of another name, as soon as one is deleted.
fn is_replicated(owner: &OwnerReference) -> bool {
    !matches!(owner.kind.as_str(), "DaemonSet" | "StatefulSet" | "Node")
}

const fn drains_since(view: &ClaimView) -> Option<Timestamp> {
    match view.claim.state {
        ClaimState::Draining { at, .. } => Some(at),
        ClaimState::Planned
        | ClaimState::LaunchFailed { .. }
        | ClaimState::Launched { .. }
        | ClaimState::Registered { .. }
        | ClaimState::Initialized { .. }
        | ClaimState::Disrupting { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. }
        | ClaimState::Terminated { .. } => None,
    }
}

/// Whether a pod waits for nothing but the time of a probe.
fn waits_for_probe(refused: &Unschedulable) -> bool {
    matches!(refused.reason(), Reason::AllOfferingsUnavailable { until: Some(_), .. })
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
