//! Nodes of the manifests as room for pods.
//!
//! Decides the pods of a node: all that are bound to it and haven't ended, with DaemonSets'; which nodes are leaving; and
//! the resources of one that starts, of which its NodeClaim has what the kubelet doesn't report yet.

use std::collections::BTreeSet;

use tenon_domain::api::node_claim::NodeClaimObject;
use tenon_domain::api::{Node, Pod};
use tenon_domain::id::{NodeName, NodePoolName};
use tenon_domain::labels;
use tenon_domain::manifest::Manifests;
use tenon_domain::resources::ResourceList;
use tenon_domain::taint::Taint;
use tenon_planning::provision::{ExistingNode, NodeKind, Occupancy};

/// The nodes that are being deleted, themselves or by their NodeClaims: they have no room, and their pods leave.
pub(super) fn leaving(manifests: &Manifests) -> BTreeSet<NodeName> {
    let claims = || manifests.node_claims.iter().filter(|claim| claim.meta.deleted_at.is_some());
    let names: BTreeSet<&str> = claims().filter_map(|claim| claim.node_name.as_deref()).collect();
    let instances: BTreeSet<_> = claims().filter_map(|claim| claim.provider_id.as_ref()).collect();
    let leaves = |node: &&Node| {
        let claimed = || node.provider_id.as_ref().is_some_and(|id| instances.contains(id));
        node.meta.deleted_at.is_some() || names.contains(node.name.as_str()) || claimed()
    };
    manifests.nodes.iter().filter(leaves).map(|node| node.name.clone()).collect()
}

/// The nodes that may have room.
pub(super) fn existing(
    manifests: &Manifests,
    pods: &[Pod],
    leaving: &BTreeSet<NodeName>,
) -> Vec<ExistingNode> {
    let staying = manifests.nodes.iter().filter(|node| !leaving.contains(&node.name));
    staying.map(|node| room(node, manifests, pods)).collect()
}

fn room(node: &Node, manifests: &Manifests, pods: &[Pod]) -> ExistingNode {
    let bound = pods.iter().filter(|pod| pod.node.as_ref() == Some(&node.name) && !pod.is_finished());
    let mut labels = node.meta.labels.clone();
    labels.entry(labels::HOSTNAME.to_owned()).or_insert_with(|| node.name.to_string());
    let pool = labels.get(labels::NODEPOOL).and_then(|name| NodePoolName::parse(name).ok());
    let kind = kind_of(node, pool.as_ref());
    ExistingNode {
        name: node.name.to_string(),
        kind,
        taints: lasting_taints(node, kind, pool.as_ref(), manifests),
        allocatable: allocatable(node, kind, manifests),
        occupancy: Occupancy::of(bound),
        labels,
        pool,
    }
}

/// A node's resources, those that a starting kubelet doesn't report yet by its NodeClaim.
fn allocatable(node: &Node, kind: NodeKind, manifests: &Manifests) -> ResourceList {
    let mut allocatable = node.allocatable.clone();
    let is_of = |claim: &&NodeClaimObject| {
        claim.node_name.as_deref() == Some(node.name.as_str())
            || (claim.provider_id.is_some() && claim.provider_id == node.provider_id)
    };
    let claim = match kind {
        NodeKind::Starting => manifests.node_claims.iter().find(is_of),
        NodeKind::Initialized | NodeKind::InFlight => None,
    };
    let stated = claim.and_then(|claim| manifests.stated.node_claim(&claim.name));
    for (name, quantity) in stated.into_iter().flat_map(ResourceList::iter) {
        if allocatable.get(name).is_zero() {
            allocatable.insert(name.clone(), quantity);
        }
    }
    allocatable
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
    node.all_taints().into_iter().filter(|taint| !passes(taint)).collect()
}
