//! Doorbells: the agent drains, `provisioner` makes room elsewhere, `lifecycle` watches the drain. Best effort.

use jiff::SignedDuration;
use serde_json::json;
use tenon_domain::id::ClusterName;
use tenon_domain::wake::FunctionName;
use tenon_runtime::{BusEvent, Ports, Signals};

use crate::plan::{Event, InterruptionPlan};

/// Rings for all plans of a cluster.
pub async fn execute<P: Ports>(ports: &P, cluster: &ClusterName, plans: &[InterruptionPlan]) {
    let drains = plans.iter().any(|plan| plan.claim.is_some());
    if drains {
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
    if drains {
        for function in [FunctionName::Provisioner, FunctionName::Lifecycle] {
            ports.signals().wake(function, cluster, SignedDuration::ZERO).await;
        }
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
