//! Says on the bus which parts have new content and which are stale.

use serde_json::{Value, json};
use tenon_domain::evidence::CatalogPart;
use tenon_entrypoint::{BusEvent, Ports, Signals};
use tenon_table::items::PartMeta;

use crate::commit::Committed;
use crate::plan::{Plan, Report, Stale};

/// The most names of types in an event: they say what to look for, and the event stays small.
const NAMES: usize = 20;

pub(crate) async fn execute<P: Ports>(ports: &P, plan: &Plan, report: &Report, committed: &Committed) {
    let event = |kind, detail| BusEvent::new(ports.installation(), None, kind, detail);
    let refreshed = committed.changed.iter();
    let mut events: Vec<BusEvent> = refreshed
        .map(|(part, meta)| event("Catalog Refreshed", refreshed_detail(*part, meta, report)))
        .collect();
    let stale = report.stale.iter().filter(|stale| plan.failed.contains_key(&stale.part));
    events.extend(stale.map(|stale| event("Catalog Stale", stale_detail(stale))));
    if !events.is_empty() {
        ports.signals().publish(&events).await;
    }
}

fn refreshed_detail(part: CatalogPart, meta: &PartMeta, report: &Report) -> Value {
    let left_out = report.left_out.get(&part).map_or(&[][..], Vec::as_slice);
    let named: Vec<Value> = left_out
        .iter()
        .take(NAMES)
        .map(|left_out| json!({ "instanceType": left_out.instance_type, "reason": left_out.reason }))
        .collect();
    let mut detail = json!({
        "part": part.as_str(),
        "generation": meta.generation,
        "count": meta.count,
        "leftOut": { "count": left_out.len(), "types": named },
    });
    if let (Some(unpriced), Some(detail)) = (report.unpriced.get(&part), detail.as_object_mut()) {
        let names: Vec<&str> = unpriced.iter().take(NAMES).map(AsRef::as_ref).collect();
        detail.insert("unpriced".to_owned(), json!({ "count": unpriced.len(), "types": names }));
    }
    detail
}

fn stale_detail(stale: &Stale) -> Value {
    let Stale { part, age, error } = stale;
    json!({ "part": part.as_str(), "ageSeconds": age.map(|age| age.as_secs()), "error": error })
}
