//! Announces changed classes on the bus.

use serde_json::json;
use tenon_domain::id::ClusterName;
use tenon_runtime::{BusEvent, Ports, Signals};

use crate::change::ClassChange;
use crate::commit::CommittedClasses;
use crate::plan::NodeClassesPlan;

pub(crate) async fn execute<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    plan: &NodeClassesPlan,
    committed: &CommittedClasses,
) {
    let said =
        |change: &&ClassChange| change.record.is_some() && !committed.lost.contains(&change.status.name);
    let events: Vec<BusEvent> =
        plan.changes.iter().filter(said).map(|change| event(ports, cluster, change)).collect();
    if !events.is_empty() {
        ports.signals().publish(&events).await;
    }
}

fn event<P: Ports>(ports: &P, cluster: &ClusterName, change: &ClassChange) -> BusEvent {
    let status = &change.status;
    let class = status.name.as_str();
    match status.obstacle() {
        None => {
            let images: Vec<&str> = status.images.iter().map(|image| image.id.as_str()).collect();
            let shifted: Vec<String> =
                status.shifts().into_iter().map(|zone| zone.zone_id.to_string()).collect();
            let detail = if shifted.is_empty() {
                json!({ "nodeClass": class, "images": images })
            } else {
                json!({ "nodeClass": class, "images": images, "shiftedZones": shifted })
            };
            BusEvent::new(ports.installation(), Some(cluster), "Node Class Ready", detail)
        }
        Some(obstacle) => {
            let detail =
                json!({ "nodeClass": class, "reason": obstacle.reason_text(), "message": obstacle.message });
            BusEvent::new(ports.installation(), Some(cluster), "Node Class Not Ready", detail)
        }
    }
}
