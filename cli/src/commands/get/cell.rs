//! A cell of a table for people.
//!
//! Decides the short form of an attribute. Times that people compare with now are distances from the time of the
//! read, by the region's clock, which is virtual on this machine.

use serde_json::Value;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::{SignedDuration, Timestamp};

/// The cell of an absent attribute.
const NONE: &str = "-";

/// Where a cell is found in an item.
#[derive(Debug, Clone, Copy)]
pub(super) enum CellPlace {
    /// The value at a JSON pointer.
    At(&'static str),
    /// The status of the condition of this type.
    Condition(&'static str),
    /// The moment at a JSON pointer, from now.
    When(&'static str),
    /// The same, for a time at which something is due.
    Due(&'static str),
    /// The cluster and the launch that hold a mark's lease, while it lives.
    Prober,
    /// How old a part of the catalogue is, and whether that is too old for decisions.
    Age,
    /// Where a part of the catalogue is from.
    Origin,
    /// A type's on-demand price: one that isn't in USD with its currency, one of another region with that region.
    OnDemand,
    /// A type's spot prices by zone.
    Spot,
}

impl CellPlace {
    /// The cell of an item.
    pub(super) fn cell(self, item: &Value, now: Option<Timestamp>) -> String {
        match self {
            Self::At(pointer) => text(item.pointer(pointer)),
            Self::Condition(kind) => text(condition(item, kind)),
            Self::When(pointer) => distance(item, pointer, now).map_or_else(
                || text(item.pointer(pointer)),
                |ahead| {
                    let far = short(ahead);
                    if ahead.is_positive() { format!("in {far}") } else { format!("{far} ago") }
                },
            ),
            Self::Due(pointer) => distance(item, pointer, now).map_or_else(
                || text(item.pointer(pointer)),
                |ahead| if ahead.is_positive() { format!("in {}", short(ahead)) } else { "due".to_owned() },
            ),
            Self::Prober => prober(item, now),
            Self::Age => age(item, now),
            Self::Origin => origin(item),
            Self::OnDemand => on_demand(item),
            Self::Spot => spot(item),
        }
    }
}

fn text(found: Option<&Value>) -> String {
    match found {
        None | Some(Value::Null) => NONE.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(list)) => {
            let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            match texts.as_deref() {
                Some([]) => NONE.to_owned(),
                Some(texts) => texts.join(","),
                None => list.len().to_string(),
            }
        }
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Object(_))) => other.to_string(),
    }
}

fn condition<'a>(item: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = item.get("conditions")?.as_array()?;
    let found = conditions.iter().find(|c| c.get("type").and_then(Value::as_str) == Some(kind));
    found?.get("status")
}

/// How long until the moment at a pointer; negative if it has passed.
fn distance(item: &Value, pointer: &str, now: Option<Timestamp>) -> Option<SignedDuration> {
    let moment: Timestamp = item.pointer(pointer)?.as_str()?.parse().ok()?;
    now.map(|now| moment.duration_since(now))
}

/// A duration in its largest two units: `42s`, `3m20s`, `2h`, `3d4h`.
fn short(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().unsigned_abs();
    let units =
        [(seconds / 86_400, 'd'), (seconds / 3600 % 24, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let first = units.iter().position(|(count, _)| *count > 0).unwrap_or(units.len() - 1);
    let largest = units.iter().skip(first).take(2).enumerate();
    let told = largest.filter(|(place, (count, _))| *place == 0 || *count > 0);
    told.map(|(_, (count, unit))| format!("{count}{unit}")).collect()
}

fn prober(item: &Value, now: Option<Timestamp>) -> String {
    let lives = distance(item, "/probe/until", now).is_none_or(|ahead| ahead.is_positive());
    match (item.pointer("/probe/cluster"), item.pointer("/probe/launch")) {
        (Some(cluster), Some(launch)) if lives => format!("{}/{}", text(Some(cluster)), text(Some(launch))),
        (Some(_) | None, Some(_) | None) => NONE.to_owned(),
    }
}

fn age(item: &Value, now: Option<Timestamp>) -> String {
    const MOMENT: &str = "/refreshed_at";
    if item.pointer(MOMENT).is_none() {
        return "never".to_owned();
    }
    let Some(age) = distance(item, MOMENT, now).map(|ahead| -ahead) else {
        return text(item.pointer(MOMENT));
    };
    let part = item.get("part").and_then(Value::as_str).and_then(CatalogPart::parse);
    let stale = part.is_some_and(|part| age > part.stale_after());
    format!("{}{}", short(age), if stale { ", stale" } else { "" })
}

fn origin(item: &Value) -> String {
    match (item.get("origin"), item.get("of_region")) {
        (Some(origin), Some(region)) => format!("{}, {}", text(Some(origin)), text(Some(region))),
        (Some(origin), None) => text(Some(origin)),
        // AWS's own answer has no origin in the table.
        (None, _) => if item.get("refreshed_at").is_some() { "AWS" } else { NONE }.to_owned(),
    }
}

fn on_demand(item: &Value) -> String {
    let usd = item.get("on_demand_usd_per_hour").map(|price| text(Some(price)));
    let cny = || item.get("on_demand_cny_per_hour").map(|price| format!("{} CNY", text(Some(price))));
    let Some(price) = usd.or_else(cny) else { return NONE.to_owned() };
    match item.get("on_demand_of_region").and_then(Value::as_str) {
        Some(region) => format!("{price} of {region}"),
        None => price,
    }
}

fn spot(item: &Value) -> String {
    let prices = |name: &str, currency: &str| -> Option<String> {
        let prices = item.get(name)?.as_object()?;
        let told = prices.iter().map(|(zone, price)| format!("{zone}={}{currency}", text(Some(price))));
        Some(told.collect::<Vec<_>>().join(","))
    };
    let told = prices("spot_usd_per_hour", "").or_else(|| prices("spot_cny_per_hour", " CNY"));
    told.filter(|told| !told.is_empty()).unwrap_or_else(|| NONE.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(place: CellPlace, expected: &str) {
        let item = json!({
            "name": "default-3k9x2",
            "instance": {"type": "m5.large"},
            "zones": ["a", "b"],
            "subnets": [{"id": "subnet-1"}],
            "count": 3,
            "conditions": [{"type": "Ready", "status": "False"}],
            "since": "2026-01-01T00:00:00Z",
        });
        assert_eq!(place.cell(&item, None), expected, "{place:?}");
    }

    #[test]
    fn cells_are_found_by_pointer_or_condition() {
        check(CellPlace::At("/name"), "default-3k9x2");
        check(CellPlace::At("/instance/type"), "m5.large");
        check(CellPlace::At("/zones"), "a,b");
        check(CellPlace::At("/subnets"), "1");
        check(CellPlace::At("/count"), "3");
        check(CellPlace::At("/absent"), "-");
        check(CellPlace::Condition("Ready"), "False");
        // Without a time to compare with, the moment itself.
        check(CellPlace::When("/since"), "2026-01-01T00:00:00Z");
        check(CellPlace::Due("/absent"), "-");
    }

    #[test]
    fn durations_have_their_largest_two_units() {
        let told =
            [0, 42, 60, 200, 7200, 7205, 90_000, 1_000_000].map(|s| short(SignedDuration::from_secs(s)));
        assert_eq!(told, ["0s", "42s", "1m", "3m20s", "2h", "2h", "1d1h", "11d13h"]);
        assert_eq!(short(SignedDuration::from_secs(-90)), "1m30s");
    }
}
