//! The invariant of Nodes that open: the agent keeps a Ready Node closed for some seconds at most. Also the worlds in
//! which it has a reason to: their pods spread over Nodes, so Nodes of one wave open together.
//!
//! Decides from the Nodes' own conditions and taints, and from the times at which their agent ran.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::id::ClusterName;
use tenon_region::engine::SimulatedRegion;
use tenon_region::scenario::Scenario;
use tenon_snapshot::Kind;
use tenon_snapshot::object::{deleted_at, list, name, text, true_since};

use crate::invariants::{Found, Invariant};
use crate::random::Dice;
use crate::world::set;

/// How many of a thousand worlds have such pods.
const SPREAD: u64 = 150;
/// How long a Node that is Ready may wait for those that were launched with it.
const CLOSED_AT_MOST: SignedDuration = SignedDuration::from_secs(10);
/// A write that conflicts is repeated within this time.
const WRITTEN_AGAIN: SignedDuration = SignedDuration::from_secs(3);
/// How soon an agent without other work looks at such a Node again, also after steps that failed.
const LOOKS_WITHIN: SignedDuration = SignedDuration::from_secs(15);
/// The taint of a Node that is registered and closed.
const CLOSED: &str = "tenon.dev/opening";

/// Lets the pods of some worlds' Deployments spread over Nodes.
pub(crate) fn spread(mut world: Scenario) -> Scenario {
    if !Dice::new(world.seed, 28).permille(SPREAD) {
        return world;
    }
    let objects = world.clusters.iter_mut().flat_map(|cluster| &mut cluster.objects);
    for deployment in objects.filter(|object| object["kind"] == "Deployment") {
        let constraint = json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": name(deployment)}},
        }]);
        set(deployment, &["spec", "template", "spec", "topologySpreadConstraints"], constraint);
    }
    world
}

/// Since when Nodes were seen Ready and closed by nothing but the agent, by name.
#[derive(Debug, Default)]
pub(crate) struct ClosedSince(BTreeMap<String, Timestamp>);

/// A Node that nothing but the agent's own taint closes is open once the agent has converged some seconds after the
/// Node's longest wait, and an agent without other work converges soon.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_opened_in_time(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    seen: &mut ClosedSince,
) -> Found {
    let Some(site) = region.site(cluster) else { return Ok(()) };
    let nodes = site.cluster().objects(Kind::Node);
    let closed: BTreeMap<&str, Timestamp> = nodes
        .iter()
        .filter(|node| is_closed_by_agent(node))
        .filter_map(|node| Some((name(node), true_since(node, "Ready")?)))
        .collect();
    seen.0.retain(|node, _| closed.contains_key(node.as_str()));
    for (node, ready_at) in closed {
        let since = *seen.0.entry(node.to_owned()).or_insert_with(|| region.now());
        let until = ready_at.saturating_add(CLOSED_AT_MOST).unwrap_or(Timestamp::MAX).max(since);
        let converged_at = site.agent_converged_at();
        let late = site.agent_free_since().is_some_and(|free| {
            region.now().duration_since(free.max(until)) > LOOKS_WITHIN && converged_at < until
        });
        if late || converged_at.duration_since(until) > WRITTEN_AGAIN {
            let text = format!(
                "Node {node} is Ready since {ready_at}, seen closed since {since}, and the agent doesn't open it: it \
                 converged at {converged_at}"
            );
            return Err((Invariant::OpenedInTime, text));
        }
    }
    Ok(())
}

/// Whether it has the agent's taint, and neither leaves nor has another taint of a Node that starts.
fn is_closed_by_agent(node: &Value) -> bool {
    let keys = || list(node, "/spec/taints").iter().filter_map(|taint| text(taint, "/key"));
    let elsewhere = |key: &str| key.starts_with("node.kubernetes.io/") || key.starts_with("karpenter.sh/");
    deleted_at(node).is_none() && keys().any(|key| key == CLOSED) && !keys().any(elsewhere)
}
