//! Announces on the bus which images can be launched, and which can't any longer.

use serde_json::json;
use tenon_runtime::{BusEvent, Ports, Signals};

use crate::plan::ImageChange;

pub(crate) async fn execute<P: Ports>(ports: &P, changes: &[ImageChange]) {
    let event = |change: &ImageChange| {
        let detail = json!({ "image": change.record.id.as_str(), "state": change.record.state.as_str() });
        let detail_type = change.announcement?.as_str();
        Some(BusEvent::new(ports.installation(), None, detail_type, detail))
    };
    let events: Vec<BusEvent> = changes.iter().filter_map(event).collect();
    if !events.is_empty() {
        ports.signals().publish(&events).await;
    }
}
