//! Says on the bus which parts have new content and which are stale.

use serde_json::{Value, json};
use tenon_entrypoint::{BusEvent, Ports, Signals};

use crate::commit::Committed;
use crate::plan::{Plan, Report, Stale};

/// The most names of left-out types in an event: it says what to look for, and stays small.
const NAMES: usize = 20;

pub(crate) async fn execute<P: Ports>(ports: &P, plan: &Plan, report: &Report, committed: &Committed) {
    let mut events = Vec::new();
    for (part, meta) in &committed.changed {
        let left_out = report.left_out.get(part).map_or(&[][..], Vec::as_slice);
        let names: Vec<Value> = left_out
            .iter()
            .take(NAMES)
            .map(|left_out| json!({ "instanceType": left_out.instance_type, "reason": left_out.reason }))
            .collect();
        let detail = json!({
            "part": part.as_str(),
            "generation": meta.generation,
            "count": meta.count,
            "leftOut": { "count": left_out.len(), "types": names },
        });
        events.push(BusEvent::new(ports.installation(), None, "Catalog Refreshed", detail));
    }
    events.extend(report.stale.iter().filter(|stale| plan.failed.contains_key(&stale.part)).map(|stale| {
        let Stale { part, age, error } = stale;
        let detail =
            json!({ "part": part.as_str(), "ageSeconds": age.map(|age| age.as_secs()), "error": error });
        BusEvent::new(ports.installation(), None, "Catalog Stale", detail)
    }));
    if !events.is_empty() {
        ports.signals().publish(&events).await;
    }
}
