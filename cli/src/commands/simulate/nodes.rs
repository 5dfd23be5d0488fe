//! Nodes of the manifests as room for pods.
//!
//! Decides the used part of a node: the requests of all its running pods, with DaemonSets'.

use std::collections::BTreeSet;

use tenon_domain::api::node::Schedulable;
use tenon_domain::api::{Node, Pod};
use tenon_domain::id::NodePoolName;
use tenon_domain::labels;
use tenon_domain::manifest::Manifests;
use tenon_domain::resources::ResourceList;
use tenon_domain::taint::{Taint, TaintEffect, UNSCHEDULABLE};
use tenon_planning::provision::{ExistingNode, NodeKind};

/// The nodes that may have room.
pub(super) fn existing(manifests: &Manifests, pods: &[Pod]) -> Vec<ExistingNode> {
    let staying = manifests.nodes.iter().filter(|node| node.meta.deleted_at.is_none());
    staying.map(|node| room(node, manifests, pods)).collect()
}

fn room(node: &Node, manifests: &Manifests, pods: &[Pod]) -> ExistingNode {
    let bound: Vec<&Pod> =
        pods.iter().filter(|pod| pod.node.as_ref() == Some(&node.name) && !pod.is_finished()).collect();
    let of_daemon_set = |pod: &&&Pod| pod.shape.owner.as_ref().is_some_and(|owner| owner.kind == "DaemonSet");
    let sum = |pods: &mut dyn Iterator<Item = &&Pod>| {
        pods.fold(ResourceList::new(), |sum, pod| sum.plus(&pod.shape.requests))
    };
    let mut labels = node.meta.labels.clone();
    labels.entry(labels::HOSTNAME.to_owned()).or_insert_with(|| node.name.to_string());
    let host_ports: BTreeSet<_> = bound.iter().flat_map(|pod| pod.shape.host_ports.iter().cloned()).collect();
    let pool = labels.get(labels::NODEPOOL).and_then(|name| NodePoolName::parse(name).ok());
    let kind = kind_of(node, pool.as_ref());
    ExistingNode {
        name: node.name.to_string(),
        kind,
        taints: lasting_taints(node, kind, pool.as_ref(), manifests),
        allocatable: node.allocatable.clone(),
        used: sum(&mut bound.iter()),
        daemon_used: sum(&mut bound.iter().filter(of_daemon_set)),
        host_ports,
        labels,
        pool,
    }
}

fn kind_of(node: &Node, pool: Option<&NodePoolName>) -> NodeKind {
    let initialized = node.meta.labels.get(labels::INITIALIZED).is_some_and(|value| value == "true");
    if pool.is_none() || initialized { NodeKind::Initialized } else { NodeKind::Starting }
}

/// A node's taints, without those that are removed while it starts.
fn lasting_taints(
    node: &Node,
    kind: NodeKind,
    pool: Option<&NodePoolName>,
    manifests: &Manifests,
) -> Vec<Taint> {
    let pool = manifests.node_pools.iter().find(|found| Some(&found.name) == pool);
    let startup = pool.map(|pool| pool.template.startup_taints.as_slice()).unwrap_or_default();
    let passes = |taint: &Taint| match kind {
        NodeKind::Starting => taint.is_ephemeral() || startup.iter().any(|other| other.matches(taint)),
        NodeKind::Initialized | NodeKind::InFlight => false,
    };
    let mut taints: Vec<Taint> = node.taints.iter().filter(|taint| !passes(taint)).cloned().collect();
    if node.schedulable == Schedulable::No && !taints.iter().any(|taint| taint.key == UNSCHEDULABLE) {
        taints.push(Taint::new(UNSCHEDULABLE, TaintEffect::NoSchedule));
    }
    taints
}
