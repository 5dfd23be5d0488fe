//! A region's state in lines: its clusters' pods, claims with their nodes, what its classes' conditions tell, and pauses
//! that NodePools show.

use std::collections::BTreeMap;

use serde_json::Value;
use tenon_domain::claim::Claim;
use tenon_domain::class_status::{Condition, ConditionStatus, ConditionType};
use tenon_domain::id::ClusterName;
use tenon_domain::pool_status::PoolConditionType;
use tenon_snapshot::{Kind, Object, object};

use crate::engine::SimulatedRegion;
use crate::site::Site;
use crate::view::SummaryNode;

/// The lines. Claims that have ended are left out.
pub(super) fn standing(region: &SimulatedRegion) -> Vec<String> {
    region.sites().flat_map(|site| of_site(region, site)).collect()
}

fn of_site(region: &SimulatedRegion, site: &Site) -> Vec<String> {
    let name = site.name();
    let pods = site.cluster().pod_counts();
    let mut lines = vec![format!("cluster {name}: pods: {} running, {} pending", pods.running, pods.pending)];
    lines.extend(classes(region, name));
    lines.extend(pauses(site));
    let mut nodes: BTreeMap<String, SummaryNode> =
        region.nodes(name).into_iter().map(|node| (node.name.clone(), node)).collect();
    let by_instance = nodes_by_provider(site);
    for claim in region.claims(name) {
        let node = claim_node(&claim, &by_instance).and_then(|node| nodes.remove(node));
        if !claim.phase().is_final() {
            lines.push(claim_line(&claim, node.as_ref()));
        } else if let Some(node) = node {
            lines.push(format!("  node {} of claim {} that has ended", node.name, claim.name));
        }
    }
    lines.extend(nodes.into_values().map(|node| format!("  node {} of no claim", node.name)));
    lines.extend(waiting_pods(site));
    lines
}

/// Node names by provider id.
fn nodes_by_provider(site: &Site) -> BTreeMap<String, String> {
    let text =
        |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let nodes = site.cluster().objects(Kind::Node);
    nodes
        .into_iter()
        .filter_map(|node| Some((text(&node, "/spec/providerID")?, text(&node, "/metadata/name")?)))
        .collect()
}

fn claim_node<'a>(claim: &Claim, by_instance: &'a BTreeMap<String, String>) -> Option<&'a String> {
    let instance = claim.state.instance()?;
    by_instance.iter().find(|(provider, _)| provider.ends_with(instance.id.as_str())).map(|(_, node)| node)
}

fn claim_line(claim: &Claim, node: Option<&SummaryNode>) -> String {
    let mut line = format!("  claim {} is {}", claim.name, claim.phase());
    if let Some(instance) = claim.state.instance() {
        let capacity_type = instance.capacity_type.as_str();
        line += &format!(": {}, {}, {capacity_type}", instance.instance_type, instance.zone);
    }
    if let Some(node) = node {
        line += &format!("; node {}, pods: {}", node.name, node.pods);
    }
    line
}

/// Conditions of classes that don't hold, and warnings of validation.
fn classes(region: &SimulatedRegion, cluster: &ClusterName) -> Vec<String> {
    let mut lines = Vec::new();
    for class in region.classes(cluster) {
        let told = |condition: &&Condition| {
            let warns =
                condition.condition == ConditionType::ValidationSucceeded && !condition.message.is_empty();
            condition.status != ConditionStatus::True || warns
        };
        for condition in class.conditions.iter().filter(told) {
            let Condition { condition: which, status, message, .. } = condition;
            let (which, status, reason) = (which.as_str(), status.as_str(), condition.reason_text());
            lines.push(format!("  class {}: {which} is {status} ({reason}): {message}", class.name));
        }
    }
    lines
}

/// What NodePools show of a pause of voluntary disruption.
fn pauses(site: &Site) -> Vec<String> {
    let pause = |pool: &Object| {
        let kind = PoolConditionType::DisruptionPaused.as_str();
        let all = object::list(pool, "/status/conditions");
        let pause = all.iter().find(|one| object::text(one, "/type") == Some(kind))?;
        let text = |field| object::text(pause, field).unwrap_or_default();
        let (status, reason, message) = (text("/status"), text("/reason"), text("/message"));
        Some(format!("  NodePool {}: DisruptionPaused is {status} ({reason}): {message}", object::name(pool)))
    };
    site.cluster().objects(Kind::NodePool).iter().filter_map(pause).collect()
}

fn waiting_pods(site: &Site) -> Vec<String> {
    let pods = site.cluster().objects(Kind::Pod);
    let text = |pod: &Value, pointer: &str| pod.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let waiting = pods.into_iter().filter(|pod| text(pod, "/spec/nodeName").is_none());
    waiting
        .map(|pod| {
            let name = text(&pod, "/metadata/name").unwrap_or_default();
            let why = text(&pod, "/status/conditions/0/message");
            let why = why.unwrap_or_else(|| "the scheduler hasn't seen it".to_owned());
            format!("  pod {name} waits: {why}")
        })
        .collect()
}
