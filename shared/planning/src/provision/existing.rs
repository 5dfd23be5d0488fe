//! Room on existing nodes and launched claims.
//!
//! Decides which pods fit where. The order is: initialised nodes, starting nodes, claims in flight; then by name.
//! Room that DaemonSets still need stays free.

use std::collections::BTreeSet;

use tenon_domain::api::pod::HostPort;
use tenon_domain::labels;
use tenon_domain::requirement::{Requirements, UndefinedKeys};
use tenon_domain::resources::ResourceList;
use tenon_domain::taint::tolerates_forbidding;

use super::dense::{DenseAmounts, Dimensions, take_times, times_fit};
use super::input::{ExistingNode, NodeKind, ProvisionInput, Purpose};
use super::needs::{Daemon, PodGroup, counted, ports_conflict};
use super::output::Placement;
use super::pool::taken_from;
use super::steps::Steps;

/// A node's room while the plan is made.
struct NodeRoom<'a> {
    node: &'a ExistingNode,
    offered: Requirements,
    left: DenseAmounts,
    host_ports: BTreeSet<HostPort>,
}

/// Places as many pods as fit, and takes them off `remaining`, each group's number of pods without a place. Pods of a
/// group are placed oldest first.
pub(crate) fn place(
    input: &ProvisionInput,
    groups: &[PodGroup<'_>],
    remaining: &mut [u32],
    steps: &mut Steps,
) -> Vec<Placement> {
    let requests = groups.iter().map(|group| group.requests);
    let dimensions = Dimensions::of(requests);
    let daemons = super::needs::daemons(&input.daemon_sets);
    let mut rooms: Vec<NodeRoom<'_>> =
        usable(input).into_iter().filter_map(|node| NodeRoom::of(node, &daemons, &dimensions)).collect();
    let mut placements = Vec::new();
    for (group, left) in groups.iter().zip(remaining.iter_mut()) {
        let need = dimensions.need(group.requests);
        let mut pods = group.pods.iter();
        for room in &mut rooms {
            if *left == 0 || !steps.take(1) {
                break;
            }
            let count = room.holds(group, &need).min(*left);
            room.fill(group, &need, count);
            *left -= count;
            let placed = pods.by_ref().take(usize::try_from(count).unwrap_or(usize::MAX));
            placements
                .extend(placed.map(|pod| Placement { pod: counted(pod), node: room.node.name.clone() }));
        }
    }
    placements.sort();
    placements
}

/// Nodes in the order of filling. Pods of a leaving node are only placed on working nodes.
fn usable(input: &ProvisionInput) -> Vec<&ExistingNode> {
    let works = |node: &&ExistingNode| match (&input.purpose, node.kind) {
        (Purpose::PendingPods, _) | (Purpose::Replacement(_), NodeKind::Initialized) => true,
        (Purpose::Replacement(_), NodeKind::Starting | NodeKind::InFlight) => false,
    };
    let mut nodes: Vec<&ExistingNode> = input.nodes.iter().filter(works).collect();
    nodes.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    nodes
}

impl<'a> NodeRoom<'a> {
    /// A node's room; none if it is overdrawn.
    fn of(node: &'a ExistingNode, daemons: &[Daemon<'_>], dimensions: &Dimensions) -> Option<Self> {
        let offered = Requirements::from_labels(node.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())));
        let mut expected = ResourceList::new();
        for daemon in daemons.iter().filter(|daemon| runs_on(daemon, node, &offered)) {
            expected.add(daemon.requests);
        }
        let awaited: ResourceList = expected
            .iter()
            .map(|(name, quantity)| {
                (name.clone(), quantity.saturating_sub(node.daemon_used.get(name)).at_least_zero())
            })
            .collect();
        let free = taken_from(&node.allocatable, &node.used);
        if free.iter().any(|(_, quantity)| quantity.is_negative()) {
            return None;
        }
        let left = dimensions.room(&taken_from(&free, &awaited));
        Some(Self { node, offered, left, host_ports: node.host_ports.clone() })
    }

    fn holds(&self, group: &PodGroup<'_>, need: &[i64]) -> u32 {
        let count = times_fit(need, &self.left);
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

    fn fill(&mut self, group: &PodGroup<'_>, need: &[i64], count: u32) {
        if count > 0 {
            take_times(&mut self.left, need, count);
            self.host_ports.extend(group.host_ports.iter().cloned());
        }
    }
}

fn runs_on(daemon: &Daemon<'_>, node: &ExistingNode, offered: &Requirements) -> bool {
    let mut without_host = offered.clone();
    without_host.remove(labels::HOSTNAME);
    tolerates_forbidding(&node.taints, daemon.tolerations).is_ok()
        && daemon.alternatives.iter().any(|asked| without_host.is_compatible(asked, UndefinedKeys::Absent))
}
