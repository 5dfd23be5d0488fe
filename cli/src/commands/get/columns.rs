//! Each kind's columns: their heads, and the sources of their cells.

use super::cell::CellPlace::{self, Age, At, Condition, Due, OnDemand, Origin, Prober, Spot, When};
use crate::state::GetKind;

/// A column.
type TableColumn = (&'static str, CellPlace);

/// The columns of a kind.
pub(super) const fn of(kind: GetKind) -> &'static [TableColumn] {
    match kind {
        GetKind::Claims => CLAIMS,
        GetKind::Nodes => NODES,
        GetKind::Pools => POOLS,
        GetKind::Classes => CLASSES,
        GetKind::Images => IMAGES,
        GetKind::Types => TYPES,
        GetKind::Unavailable => UNAVAILABLE,
        GetKind::Learned => LEARNED,
        GetKind::Rollouts => ROLLOUTS,
        GetKind::Catalog => CATALOG,
        GetKind::Events => EVENTS,
    }
}

const CLAIMS: &[TableColumn] = &[
    ("NAME", At("/name")),
    ("POOL", At("/pool")),
    ("PHASE", At("/phase")),
    ("TYPE", At("/instance/type")),
    ("ZONE", At("/instance/zone")),
    ("CAPACITY", At("/instance/capacity_type")),
    ("NODE", At("/node")),
    ("INSTANCE", At("/instance/id")),
    ("SINCE", At("/phase_at")),
];
const NODES: &[TableColumn] = &[
    ("NAME", At("/name")),
    ("POOL", At("/pool")),
    ("READY", At("/ready")),
    ("TYPE", At("/instance_type")),
    ("ZONE", At("/zone")),
    ("CAPACITY", At("/capacity_type")),
    ("CPU", At("/allocatable/cpu")),
    ("MEMORY", At("/allocatable/memory")),
    ("% CPU", At("/requested_percent/cpu")),
    ("% MEMORY", At("/requested_percent/memory")),
    ("PODS", At("/pods")),
    ("USD/H", At("/usd_per_hour")),
    ("MADE", When("/created_at")),
    ("DISRUPTION", At("/disruption")),
];
const POOLS: &[TableColumn] = &[
    ("NAME", At("/name")),
    ("NODES", At("/nodes")),
    ("CPU", At("/resources/cpu")),
    ("MEMORY", At("/resources/memory")),
    ("READY", Condition("Ready")),
    ("DISRUPTION PAUSED", At("/disruption_paused")),
    // Sentences.
    ("UNSUPPORTED", At("/unsupported")),
];
const CLASSES: &[TableColumn] = &[
    ("NAME", At("/name")),
    ("READY", Condition("Ready")),
    ("SUBNETS", At("/subnets")),
    ("NEWEST IMAGE", At("/images/0/id")),
    ("IMAGE NAME", At("/images/0/name")),
    ("RESOLVED", At("/resolved_at")),
];
const IMAGES: &[TableColumn] = &[
    ("ID", At("/id")),
    ("NAME", At("/name")),
    ("STATE", At("/state")),
    ("ARCH", At("/architecture")),
    ("OWNER", At("/owner")),
    ("FAILED", At("/failed")),
    ("SEEN", At("/seen_at")),
];
const TYPES: &[TableColumn] = &[
    ("NAME", At("/name")),
    ("CPU", At("/capacity/cpu")),
    ("MEMORY", At("/capacity/memory")),
    ("ZONES", At("/zones")),
    ("USD/H ON-DEMAND", OnDemand),
    ("USD/H SPOT", Spot),
];
const UNAVAILABLE: &[TableColumn] = &[
    ("WHAT", At("/what")),
    ("CODE", At("/code")),
    ("COUNT", At("/count")),
    ("SINCE", When("/since")),
    ("ASKED", When("/asked_at")),
    ("UNTIL", When("/until")),
    ("NEXT PROBE", Due("/next_probe")),
    ("PROBED BY", Prober),
    ("SEEN BY", At("/seen_by")),
];
const LEARNED: &[TableColumn] = &[
    ("WHAT", At("/what")),
    ("TYPE", At("/instance_type")),
    ("IMAGE", At("/image")),
    ("BYTES", At("/memory_bytes")),
    ("REPORTED BY", At("/cluster")),
    ("SEEN", When("/seen_at")),
];
const ROLLOUTS: &[TableColumn] = &[
    ("ID", At("/id")),
    ("POOL", At("/pool")),
    ("REASON", At("/reason")),
    ("PHASE", At("/phase")),
    ("CANDIDATES", At("/candidates")),
    ("REPLACEMENTS", At("/replacements")),
    ("SINCE", At("/phase_at")),
];
const CATALOG: &[TableColumn] = &[
    ("PART", At("/part")),
    ("GENERATION", At("/generation")),
    ("AGE", Age),
    ("COUNT", At("/count")),
    ("FAILING SINCE", When("/failing_since")),
    ("ERROR KIND", At("/last_error_kind")),
    ("ORIGIN", Origin),
    ("AS OF", At("/as_of")),
    // A sentence.
    ("ERROR", At("/last_error")),
];
const EVENTS: &[TableColumn] = &[
    ("AT", At("/at")),
    ("KIND", At("/kind")),
    ("NAME", At("/name")),
    ("DECISION", At("/decision")),
    ("MESSAGE", At("/message")),
];
