//! Quantities that AWS bills, counted while the region runs.

use std::collections::BTreeMap;

use tenon_domain::wake::FunctionName;

/// Counts since the region's beginning.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegionUsage {
    /// Invocations by function.
    pub invocations: BTreeMap<FunctionName, u64>,
    /// Events sent to our own bus.
    pub events_published: u64,
    /// Times that a schedule fired.
    pub schedules_fired: u64,
    /// Doorbells to agents.
    pub agent_rings: u64,
}
