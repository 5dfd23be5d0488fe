//! Announces changed classes, and images that they reject, on the bus.

use serde_json::json;
use tenon_domain::id::ClusterName;
use tenon_ec2::port::ImageState;
use tenon_runtime::{BusEvent, Ports, Signals};

use crate::change::{ClassChange, ClassRejection};
use crate::commit::CommittedClasses;
use crate::plan::NodeClassesPlan;

pub(crate) async fn execute<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    plan: &NodeClassesPlan,
    committed: &CommittedClasses,
) {
    let written = plan.changes.iter().filter(|change| !committed.lost.contains(&change.status.name));
    let events: Vec<BusEvent> = written
        .flat_map(|change| {
            let told = change.rejections.iter();
            let told = told.map(move |rejection| rejected(ports, cluster, change, rejection));
            let said = change.record.as_ref().map(|_| event(ports, cluster, change));
            said.into_iter().chain(told)
        })
        .collect();
    if !events.is_empty() {
        ports.signals().publish(&events).await;
    }
}

/// EC2 reports the image as available; the class doesn't accept it.
fn rejected<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    change: &ClassChange,
    rejection: &ClassRejection,
) -> BusEvent {
    let image = &rejection.image;
    let reasons: Vec<&str> = image.reasons.iter().map(|reason| reason.fault.as_str()).collect();
    let detail = json!({
        "nodeClass": change.status.name.as_str(),
        "image": image.id.as_str(),
        "state": ImageState::Available.as_str(),
        "reasons": reasons,
        "message": image.why(),
    });
    BusEvent::new(ports.installation(), Some(cluster), "Image Rejected", detail)
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
