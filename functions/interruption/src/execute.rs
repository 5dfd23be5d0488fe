//! Doorbells: the agent drains, `provisioner` makes room elsewhere, `lifecycle` watches the drain, `disruption` replaces
//! what may stay for now. Best effort.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde_json::json;
use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::id::ClusterName;
use tenon_domain::wake::FunctionName;
use tenon_runtime::{BusEvent, Ports, Signals};

use crate::plan::{Event, InterruptionPlan};

/// Rings for all plans of a cluster.
pub async fn execute<P: Ports>(ports: &P, cluster: &ClusterName, plans: &[InterruptionPlan]) {
    let (drained, announced): (Vec<&Claim>, Vec<&Claim>) = plans
        .iter()
        .filter_map(|plan| plan.claim.as_ref())
        .partition(|claim| claim.phase() == ClaimPhase::Draining);
    if !drained.is_empty() {
        ports.signals().ring_agent(cluster).await;
    }
    let events: Vec<BusEvent> = plans
        .iter()
        .filter_map(|plan| plan.event.as_ref())
        .map(|event| bus_event(ports, cluster, event))
        .collect();
    if !events.is_empty() {
        ports.signals().publish(&events).await;
    }
    let mut woken = BTreeSet::new();
    if !drained.is_empty() {
        woken.extend([FunctionName::Provisioner, FunctionName::Lifecycle]);
    }
    // The pool of an announced one decides whether it stays.
    if !announced.is_empty() {
        woken.extend([FunctionName::Disruption, FunctionName::Lifecycle]);
    }
    for function in woken {
        ports.signals().wake(function, cluster, SignedDuration::ZERO).await;
    }
}

fn bus_event<P: Ports>(ports: &P, cluster: &ClusterName, event: &Event) -> BusEvent {
    let detail = json!({
        "nodeClaim": event.claim,
        "instance": event.instance,
        "node": event.node,
        "reason": event.reason,
        "deadline": event.deadline.map(|deadline| deadline.to_string()),
    });
    BusEvent::new(ports.installation(), Some(cluster), "Node Interrupted", detail)
}
