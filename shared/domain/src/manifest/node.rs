//! Node.
//!
//! Decides nothing but what a node's manifest says; a node of another cloud has no provider id here.

use crate::api::node::{Node, NodeCondition, Schedulable};
use crate::api::pod::Readiness;
use crate::id::{NodeName, ProviderId};

use super::decode::{At, Fields};
use super::meta::{Scope, read_meta};
use super::node_pool::read_taints;

pub(super) fn read_node(at: At<'_>) -> Option<Node> {
    let meta = read_meta(at, Scope::Cluster, Fields::Any);
    let spec = at.object("spec", Fields::Any);
    let status = at.object("status", Fields::Any);
    let provider_id =
        spec.and_then(|spec| spec.text_of("providerID")).and_then(|text| ProviderId::parse(&text).ok());
    let schedulable = match spec.and_then(|spec| spec.boolean("unschedulable")) {
        Some(true) => Schedulable::No,
        Some(false) | None => Schedulable::Yes,
    };
    let taints = spec.map(|spec| read_taints(spec, "taints")).unwrap_or_default();
    let capacity = status.map(|status| status.resources("capacity")).unwrap_or_default();
    let allocatable = match status {
        Some(status) if status.has("allocatable") => status.resources("allocatable"),
        // As the API server fills it in.
        Some(_) | None => capacity.clone(),
    };
    let conditions = status.map(read_conditions).unwrap_or_default();
    let readiness = readiness(&conditions);
    let meta = meta?;
    let name = NodeName::parse(meta.name.clone()).ok()?;
    Some(Node { meta, name, provider_id, taints, schedulable, capacity, allocatable, readiness, conditions })
}

fn read_conditions(status: At<'_>) -> Vec<NodeCondition> {
    let Some(list) = status.list("conditions") else { return Vec::new() };
    list.items()
        .filter(|item| item.check_map(Fields::Any))
        .filter_map(|item| {
            Some(NodeCondition {
                kind: item.required_text("type", "the condition's type")?,
                status: item.text_of("status").unwrap_or_else(|| "Unknown".to_owned()),
                since: item.timestamp("lastTransitionTime"),
            })
        })
        .collect()
}

fn readiness(conditions: &[NodeCondition]) -> Readiness {
    if conditions.iter().any(|c| c.kind == "Ready" && c.status == "True") {
        Readiness::Ready
    } else {
        Readiness::NotReady
    }
}
