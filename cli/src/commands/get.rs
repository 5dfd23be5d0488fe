//! `tenon get`: lists of the state table.
//!
//! Decides each kind's columns. Documents hold all attributes, tables those that fit a line.

use serde_json::Value;

use crate::args::GetArgs;
use crate::errors::{Failure, Outcome};
use crate::output::{self, Columns, Format};
use crate::state::Kind;
use crate::target;

/// Runs the command.
pub(crate) fn run(args: &GetArgs) -> Result<Outcome, Failure> {
    let list = target::open(&args.target)?.items(args.kind, args.cluster.as_deref(), args.name.as_deref())?;
    match args.output.format {
        Format::Table if list.items.is_empty() => eprintln!("no {} found", args.kind.as_str()),
        Format::Table => {
            output::write(&table(args.kind, &list.items))?;
        }
        format @ (Format::Json | Format::Yaml) => {
            output::write(&output::document_text(format, &list))?;
        }
    }
    Ok(if args.name.is_some() && list.items.is_empty() { Outcome::No } else { Outcome::Done })
}

/// A column: its head, and where its cell is found.
type Column = (&'static str, &'static str);

const CLAIMS: &[Column] = &[
    ("NAME", "/name"),
    ("POOL", "/pool"),
    ("PHASE", "/phase"),
    ("TYPE", "/instance/type"),
    ("ZONE", "/instance/zone"),
    ("CAPACITY", "/instance/capacity_type"),
    ("NODE", "/node"),
    ("INSTANCE", "/instance/id"),
    ("SINCE", "/phase_at"),
];
const NODES: &[Column] = &[
    ("NAME", "/name"),
    ("POOL", "/pool"),
    ("READY", "/ready"),
    ("TYPE", "/instance_type"),
    ("ZONE", "/zone"),
    ("CAPACITY", "/capacity_type"),
    ("CPU", "/allocatable/cpu"),
    ("MEMORY", "/allocatable/memory"),
];
const POOLS: &[Column] = &[
    ("NAME", "/name"),
    ("NODES", "/nodes"),
    ("CPU", "/resources/cpu"),
    ("MEMORY", "/resources/memory"),
    ("READY", "Ready"),
];
const CLASSES: &[Column] = &[
    ("NAME", "/name"),
    ("READY", "Ready"),
    ("SUBNETS", "/subnets"),
    ("NEWEST IMAGE", "/images/0/id"),
    ("IMAGE NAME", "/images/0/name"),
    ("RESOLVED", "/resolved_at"),
];
const IMAGES: &[Column] = &[
    ("ID", "/id"),
    ("NAME", "/name"),
    ("STATE", "/state"),
    ("ARCH", "/architecture"),
    ("OWNER", "/owner"),
    ("SEEN", "/seen_at"),
];
const TYPES: &[Column] = &[
    ("NAME", "/name"),
    ("CPU", "/capacity/cpu"),
    ("MEMORY", "/capacity/memory"),
    ("ZONES", "/zones"),
    ("USD/H ON-DEMAND", "/on_demand_usd_per_hour"),
];
const UNAVAILABLE: &[Column] = &[
    ("WHAT", "/what"),
    ("CODE", "/code"),
    ("COUNT", "/count"),
    ("SINCE", "/since"),
    ("UNTIL", "/until"),
    ("SEEN BY", "/seen_by"),
];
const ROLLOUTS: &[Column] = &[
    ("ID", "/id"),
    ("POOL", "/pool"),
    ("REASON", "/reason"),
    ("PHASE", "/phase"),
    ("CANDIDATES", "/candidates"),
    ("REPLACEMENTS", "/replacements"),
    ("SINCE", "/phase_at"),
];
const CATALOG: &[Column] = &[
    ("PART", "/part"),
    ("GENERATION", "/generation"),
    ("COUNT", "/count"),
    ("REFRESHED", "/refreshed_at"),
    ("LAST ERROR", "/last_error"),
];
const EVENTS: &[Column] = &[
    ("AT", "/at"),
    ("KIND", "/kind"),
    ("NAME", "/name"),
    ("DECISION", "/decision"),
    ("MESSAGE", "/message"),
];

const fn columns(kind: Kind) -> &'static [Column] {
    match kind {
        Kind::Claims => CLAIMS,
        Kind::Nodes => NODES,
        Kind::Pools => POOLS,
        Kind::Classes => CLASSES,
        Kind::Images => IMAGES,
        Kind::Types => TYPES,
        Kind::Unavailable => UNAVAILABLE,
        Kind::Rollouts => ROLLOUTS,
        Kind::Catalog => CATALOG,
        Kind::Events => EVENTS,
    }
}

fn table(kind: Kind, items: &[Value]) -> String {
    let columns = columns(kind);
    let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    let mut table = Columns::new(&heads);
    for item in items {
        table.row(columns.iter().map(|(_, place)| cell(item, place)));
    }
    table.text()
}

/// What is at a JSON pointer; or, for a condition's type, its status.
fn cell(item: &Value, place: &str) -> String {
    let found = if place.starts_with('/') { item.pointer(place) } else { condition(item, place) };
    match found {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(list)) => {
            let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            texts.map_or_else(|| list.len().to_string(), |texts| texts.join(","))
        }
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Object(_))) => other.to_string(),
    }
}

fn condition<'a>(item: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = item.get("conditions")?.as_array()?;
    let found = conditions.iter().find(|c| c.get("type").and_then(Value::as_str) == Some(kind));
    found?.get("status")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(place: &str, expected: &str) {
        let item = json!({
            "name": "default-3k9x2",
            "instance": {"type": "m5.large"},
            "zones": ["a", "b"],
            "subnets": [{"id": "subnet-1"}],
            "count": 3,
            "conditions": [{"type": "Ready", "status": "False"}],
        });
        assert_eq!(cell(&item, place), expected, "{place}");
    }

    #[test]
    fn cells_are_found_by_pointer_or_condition() {
        check("/name", "default-3k9x2");
        check("/instance/type", "m5.large");
        check("/zones", "a,b");
        check("/subnets", "1");
        check("/count", "3");
        check("/absent", "-");
        check("Ready", "False");
    }
}
