//! Quantities that AWS bills, counted while the region runs.

use std::collections::BTreeMap;

use serde_json::json;
use tenon_domain::journal::JournalRecord;
use tenon_domain::wake::FunctionName;

/// What CloudWatch Logs counts for a line beside its text. Source: its API Reference, `PutLogEvents`, read 2026-11.
pub const LINE_OVERHEAD: u64 = 26;

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
    /// Bytes of the lines that functions log, without Lambda's own.
    pub logged_bytes: u64,
}

/// The bytes of a told record in a function's log: what `shared/lambda/src/log.rs` writes.
#[must_use]
pub fn logged_bytes(record: &JournalRecord) -> u64 {
    let line = json!({
        "timestamp": "2026-01-01T00:00:00.000000Z",
        "level": "INFO",
        "message": record.message,
        "subject": record.subject.to_string(),
        "decision": record.decision.as_str(),
        "reason": record.details.get("reason").map_or("", String::as_str),
    });
    LINE_OVERHEAD + u64::try_from(line.to_string().len()).unwrap_or(u64::MAX)
}
