//! Nodes whose pods need another one soon: EC2 takes their instances back.
//!
//! Decides which nodes these are. Their pods run, and are planned for as if they were pending, so that a replacement starts
//! before they are evicted.

use std::collections::BTreeMap;

use tenon_domain::claim::Claim;
use tenon_domain::id::{InstanceId, NodeName};
use tenon_domain::snapshot::Snapshot;

use crate::view::ClusterView;

/// The names of interrupted nodes whose time isn't over.
pub(super) fn interrupted<'a>(
    view: &ClusterView,
    snapshot: &'a Snapshot,
    by_instance: &BTreeMap<&InstanceId, &Claim>,
) -> Vec<&'a NodeName> {
    let holds = |claim: &&Claim| claim.state.holds_pods_until().is_some_and(|until| view.now < until);
    let nodes = snapshot.nodes.iter().filter(|node| {
        let instance = node.provider_id.as_ref().map(|id| &id.instance);
        instance.and_then(|instance| by_instance.get(instance).copied()).filter(holds).is_some()
    });
    nodes.map(|node| &node.name).collect()
}
