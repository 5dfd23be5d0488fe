//! Announces on the bus which parts are refreshed, stale or taken from the release.

use serde_json::{Map, Value, json};
use tenon_domain::evidence::{CatalogPart, PartOrigin};
use tenon_runtime::{BusEvent, Ports, Signals};

use crate::commit::{CommittedParts, Refreshed};
use crate::plan::{Announcements, Stale};

/// The most names of types in an event, so that it stays small; they are examples.
const NAMES: usize = 20;

pub(crate) async fn execute<P: Ports>(ports: &P, report: &Announcements, committed: &CommittedParts) {
    let event = |kind, detail| BusEvent::new(ports.installation(), None, kind, Value::Object(detail));
    let refreshed = committed.refreshed.iter();
    let mut events: Vec<BusEvent> = refreshed
        .map(|(part, refreshed)| event("Catalog Refreshed", refreshed_detail(*part, refreshed, report)))
        .collect();
    events.extend(report.stale.iter().map(|stale| event("Catalog Stale", stale_detail(stale))));
    if !events.is_empty() {
        ports.signals().publish(&events).await;
    }
}

fn refreshed_detail(part: CatalogPart, refreshed: &Refreshed, report: &Announcements) -> Map<String, Value> {
    let Refreshed { meta, failed_since } = refreshed;
    let left_out = report.left_out.get(&part).map_or(&[][..], Vec::as_slice);
    let named: Vec<Value> = left_out
        .iter()
        .take(NAMES)
        .map(|left_out| json!({ "instanceType": left_out.instance_type, "reason": left_out.reason }))
        .collect();
    let unpriced = report.unpriced.get(&part).map(|unpriced| {
        let names: Vec<&str> = unpriced.iter().take(NAMES).map(AsRef::as_ref).collect();
        json!({ "count": unpriced.len(), "types": names })
    });
    let fields = [
        ("part", Some(json!(part.as_str()))),
        ("generation", Some(json!(meta.generation))),
        ("count", Some(json!(meta.count))),
        ("leftOut", Some(json!({ "count": left_out.len(), "types": named }))),
        ("unpriced", unpriced),
        ("currency", meta.currency.map(|currency| json!(currency.as_str()))),
        ("failedSince", failed_since.map(|since| json!(since.to_string()))),
    ];
    detail(fields.into_iter().chain(origin_fields(Some(&meta.origin))))
}

fn stale_detail(stale: &Stale) -> Map<String, Value> {
    let fields = [
        ("part", Some(json!(stale.part.as_str()))),
        ("ageSeconds", Some(json!(stale.age.map(|age| age.as_secs())))),
        ("error", Some(json!(stale.failure.message))),
        ("errorKind", Some(json!(stale.failure.kind.as_str()))),
        ("failingSince", Some(json!(stale.failing_since.to_string()))),
    ];
    detail(fields.into_iter().chain(origin_fields(stale.stand_in.as_ref())))
}

/// Where content is from that AWS didn't answer with.
fn origin_fields(origin: Option<&PartOrigin>) -> [(&'static str, Option<Value>); 3] {
    let shipped = origin.and_then(|origin| match origin {
        PartOrigin::Answered => None,
        PartOrigin::Shipped { as_of, region } => Some((as_of, region)),
    });
    [
        ("origin", shipped.map(|_| json!("shipped"))),
        ("asOf", shipped.map(|(as_of, _)| json!(as_of.to_string()))),
        ("ofRegion", shipped.map(|(_, region)| json!(region.as_str()))),
    ]
}

/// The fields that apply.
fn detail(fields: impl Iterator<Item = (&'static str, Option<Value>)>) -> Map<String, Value> {
    fields.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
