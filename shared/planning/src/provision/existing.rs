//! Room on existing nodes and launched claims.
//!
//! Decides which pods fit where. The order is: initialised nodes, starting nodes, claims in flight; then by name.
//! Room that DaemonSets still need stays free.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::pod::HostPort;
use tenon_domain::labels;
use tenon_domain::requirement::{Requirements, UndefinedKeys};
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::taint::tolerates_forbidding;

use super::attachments::SharedHere;
use super::daemons::{Daemon, taken_from};
use super::dense::{DenseAmounts, take_times};
use super::input::{ExistingNode, NodeKind, Purpose};
use super::needs::{PodGroup, counted, ports_conflict};
use super::output::Placement;
use super::steps::Steps;
use super::topology::census::{Census, Resident};
use super::topology::neighbours::{BindingRules, FirstOfItsKind, NodeNeighbours, NodeRules};
use super::{InputMeasures, Scope};

/// A node's room while the plan is made.
#[derive(Clone)]
struct NodeRoom<'a> {
    node: &'a ExistingNode,
    offered: Requirements,
    left: DenseAmounts,
    shared: SharedHere,
    host_ports: BTreeSet<HostPort>,
    neighbours: NodeNeighbours,
}

/// The room of all nodes while the plan is made.
#[derive(Clone)]
pub(crate) struct Rooms<'a> {
    rooms: Vec<NodeRoom<'a>>,
}

impl<'a> Rooms<'a> {
    /// The nodes' room; `residents` are the pods of each node of the scope.
    pub(crate) fn of(scope: &Scope<'a>, measures: &InputMeasures<'_>, residents: &[Vec<Resident>]) -> Self {
        let mut nodes: Vec<(&ExistingNode, &Vec<Resident>)> =
            scope.nodes.iter().copied().zip(residents).collect();
        nodes.retain(|(node, _)| is_usable(node, scope.purpose));
        nodes.sort_by(|(a, _), (b, _)| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        let asked: BTreeSet<&ResourceName> = scope
            .pods
            .iter()
            .flat_map(|pod| pod.shape.requests.iter())
            .filter(|(_, amount)| amount.nanos() > 0)
            .map(|(name, _)| name)
            .collect();
        let room = |(node, pods): (&'a ExistingNode, &Vec<Resident>)| {
            let mut room = NodeRoom::of(node, measures)?;
            // What only DaemonSets ask for keeps no pod away.
            for (left, name) in room.left.iter_mut().zip(measures.dimensions.names()) {
                if !asked.contains(name) {
                    *left = (*left).max(0);
                }
            }
            for pod in pods {
                let binding = BindingRules { apart: pod.on_nodes().collect(), caps: Vec::new() };
                room.neighbours
                    .count_in(&NodeRules { is: pod.is.clone(), binding, ..NodeRules::default() }, 1);
            }
            Some(room)
        };
        Self { rooms: nodes.into_iter().filter_map(room).collect() }
    }

    /// Places as many pods as fit, and takes them off `remaining`, each group's number of pods without a place. Pods of
    /// a group are placed oldest first.
    pub(crate) fn place(
        &mut self,
        groups: &[PodGroup<'_>],
        remaining: &mut [u32],
        census: &mut Census<'_>,
        steps: &mut Steps,
    ) -> Vec<Placement> {
        let mut placements = Vec::new();
        for (group, left) in groups.iter().zip(remaining.iter_mut()) {
            let mut pods = group.pods.iter();
            for room in &mut self.rooms {
                if *left == 0 || !steps.take(1) {
                    break;
                }
                let count = room.holds(group, census.first_of(group)).min(*left);
                if count == 0 {
                    continue;
                }
                room.fill(group, count);
                census.now_present(&group.is);
                *left -= count;
                let placed = pods.by_ref().take(usize::try_from(count).unwrap_or(usize::MAX));
                placements
                    .extend(placed.map(|pod| Placement { pod: counted(pod), node: room.node.name.clone() }));
            }
        }
        placements
    }

    /// Whether a node has room for another pod of a group.
    pub(crate) fn hold(&self, group: &PodGroup<'_>) -> bool {
        self.rooms.iter().any(|room| room.holds(group, FirstOfItsKind::Yes) > 0)
    }

    /// By value of a label, how many pods of a group have room on the nodes with it.
    pub(crate) fn room_by(&self, key: &str, group: &PodGroup<'_>) -> BTreeMap<&'a str, u32> {
        let mut room = BTreeMap::new();
        for one in &self.rooms {
            if let Some(domain) = one.node.labels.get(key) {
                let count: &mut u32 = room.entry(domain.as_str()).or_default();
                *count = count.saturating_add(one.holds(group, FirstOfItsKind::Yes));
            }
        }
        room
    }
}

/// Whether pods may be placed on a node: those of a leaving node only go to working nodes.
fn is_usable(node: &ExistingNode, purpose: &Purpose) -> bool {
    match (purpose, node.kind) {
        (Purpose::PendingPods, _)
        | (Purpose::Replacement(_) | Purpose::AskingReplacement(_), NodeKind::Initialized) => true,
        (
            Purpose::Replacement(_) | Purpose::AskingReplacement(_),
            NodeKind::Starting | NodeKind::InFlight,
        ) => false,
    }
}

impl<'a> NodeRoom<'a> {
    /// A node's room; none if it is overdrawn.
    fn of(node: &'a ExistingNode, measures: &InputMeasures<'_>) -> Option<Self> {
        let InputMeasures { daemons, dimensions, limits, .. } = measures;
        let offered = Requirements::from_labels(node.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())));
        let mut expected = ResourceList::new();
        for daemon in daemons.iter().filter(|daemon| runs_on(daemon, node, &offered)) {
            expected.add(daemon.requests);
        }
        let awaited: ResourceList = expected
            .iter()
            .map(|(name, quantity)| {
                (
                    name.clone(),
                    quantity.saturating_sub(node.occupancy.daemon_used().get(name)).at_least_zero(),
                )
            })
            .collect();
        let free = taken_from(&node.allocatable, node.occupancy.used());
        if free.iter().any(|(_, quantity)| quantity.is_negative()) {
            return None;
        }
        let mut left = dimensions.room(&taken_from(&free, &awaited));
        let (volumes, shared) = limits.of_node(node);
        left.extend(volumes);
        let host_ports = node.occupancy.host_ports().clone();
        Some(Self { node, offered, left, shared, host_ports, neighbours: NodeNeighbours::default() })
    }

    fn holds(&self, group: &PodGroup<'_>, first: FirstOfItsKind) -> u32 {
        let fitting = self.shared.times_fit(&group.need, &group.volumes, &self.left);
        let count =
            if fitting == 0 { 0 } else { fitting.min(self.neighbours.admits(&group.node_rules, first)) };
        if count == 0
            || tolerates_forbidding(&self.node.taints, group.tolerations).is_err()
            || !group.alternatives.iter().any(|one| one.admits(&self.node.name, &self.offered))
        {
            return 0;
        }
        match (group.host_ports.is_empty(), ports_conflict(group.host_ports, &self.host_ports)) {
            (true, _) => count,
            (false, true) => 0,
            (false, false) => 1,
        }
    }

    fn fill(&mut self, group: &PodGroup<'_>, count: u32) {
        take_times(&mut self.left, &group.need, count);
        self.shared.add(&group.volumes, &mut self.left, -1);
        self.host_ports.extend(group.host_ports.iter().cloned());
        self.neighbours.add(&group.node_rules, count);
    }
}

fn runs_on(daemon: &Daemon<'_>, node: &ExistingNode, offered: &Requirements) -> bool {
    let mut without_host = offered.clone();
    without_host.remove(labels::HOSTNAME);
    tolerates_forbidding(&node.taints, daemon.tolerations).is_ok()
        && daemon.alternatives.iter().any(|asked| without_host.is_compatible(asked, UndefinedKeys::Absent))
}
