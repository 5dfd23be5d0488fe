//! Journal records and events as lines.
//!
//! Decides which of them are lines, and their audience.

use jiff::Timestamp;
use serde_json::{Value, json};
use tenon_table::{Item, Key};

use crate::happening::{Audience, Happening, HappeningKind};

/// The line of a journal record; `None` for the day's list, which repeats it.
pub(crate) fn happening(key: &Key, item: &Item) -> Option<Happening> {
    // `JOURNAL#<cluster>#<kind>#<name>`, or `JOURNAL#REGION#<region>#<kind>#<name>`.
    let rest = key.pk.strip_prefix("JOURNAL#")?;
    let (cluster, rest) = match rest.strip_prefix("REGION#") {
        Some(of_region) => of_region.split_once('#')?,
        None => rest.split_once('#')?,
    };
    let (kind, name) = rest.split_once('#')?;
    if kind == "day" {
        return None;
    }
    let text = |name: &str| item.get(name).and_then(tenon_table::Value::as_text);
    let at: Timestamp = text("at")?.parse().ok()?;
    let happening = Happening::new(at, HappeningKind::Decision, format!("{kind}/{name}"), text("message")?);
    Some(
        happening
            .with("cluster", json!(cluster))
            .with("decision", json!(text("decision")))
            .with("by", json!(text("by"))),
    )
}

/// An event's line. Sweeps and wakes of our own say nothing of the world, so they have none.
pub(crate) fn event(at: Timestamp, event: &Value) -> Option<Happening> {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
    let (source, detail_type) = (text("/source")?, text("/detail-type")?);
    if source == "tenon.schedule" {
        return None;
    }
    let named = ["instance-id", "ImageId", "image", "nodeClaim", "nodeClass", "cluster"];
    let subject = named.iter().find_map(|name| text(&format!("/detail/{name}"))).unwrap_or(source);
    let state = text("/detail/state").or_else(|| text("/detail/State"));
    let changed = event.pointer("/detail/changed").and_then(Value::as_array);
    let changed = changed.map(|kinds| kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "));
    let more = state.map(str::to_owned).or(changed);
    let message = more.map_or_else(|| detail_type.to_owned(), |more| format!("{detail_type}: {more}"));
    let happening = Happening::new(at, HappeningKind::Event, subject, message);
    Some(happening.with("source", json!(source)).told_to(audience(source, detail_type, state)))
}

/// People see events from outside. Our own events and the agents' repeat a decision, a node or a pod, and so do an
/// instance's usual states; only a stop of an instance comes from outside.
fn audience(source: &str, detail_type: &str, state: Option<&str>) -> Audience {
    let ours = source == "tenon" || source.starts_with("tenon.agent.");
    let on_its_way = detail_type == "EC2 Instance State-change Notification"
        && matches!(state, Some("pending" | "running" | "shutting-down" | "terminated"));
    if ours || on_its_way { Audience::Scripts } else { Audience::Everybody }
}
