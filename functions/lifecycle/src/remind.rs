//! What is told again with every sweep while it lasts: that everything is halted, that the agent is silent.
//!
//! Decides what is told, and in which words. It doesn't decide what halts. Alarms count these events by the rules that
//! they match, so there is no metric of our own: whoever stops repeating ends the alarm.
//!
//! Invariants: nothing is told of a cluster that isn't halted and whose agent reports; only the schedule's sweep repeats,
//! so that wakes of other causes, of which there may be hundreds, tell nothing.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::id::ClusterName;
use tenon_runtime::{BusEvent, Installation, Ports, Signals};
use tenon_table::items::{Halt, keys};

use crate::observe::ChangeCheck;

/// An agent that didn't report for so long is silent: seven of its heartbeats, so that an upgrade or a change of its
/// leader isn't one.
pub const SILENT_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// Tells on the bus what a sweep found to last.
pub async fn remind<P: Ports>(ports: &P, cluster: &ClusterName, check: &ChangeCheck, now: Timestamp) {
    let events = reminders(ports.installation(), cluster, check, now);
    if !events.is_empty() {
        ports.signals().publish(&events).await;
    }
}

fn reminders(
    installation: &Installation,
    cluster: &ClusterName,
    check: &ChangeCheck,
    now: Timestamp,
) -> Vec<BusEvent> {
    let halted = check.halt.as_ref().map(|halt| halted(installation, cluster, halt));
    let age = check.agent_seen_at.map(|at| now.duration_since(at));
    let silent = age.is_none_or(|age| age >= SILENT_AFTER).then(|| {
        let detail = json!({
            "lastHeartbeat": check.agent_seen_at.map(|at| at.to_string()),
            "ageSeconds": age.map(|age| age.as_secs()),
        });
        BusEvent::new(installation, Some(cluster), "Agent Silent", detail)
    });
    halted.into_iter().chain(silent).collect()
}

/// The event of a halt: what was seen, and what ends it once that is dealt with.
pub(crate) fn halted(installation: &Installation, cluster: &ClusterName, halt: &Halt) -> BusEvent {
    let key = keys::halt(cluster);
    let (region, table) = (&installation.region, &installation.id);
    let key = format!(r#"{{"pk": {{"S": "{}"}}, "sk": {{"S": "{}"}}}}"#, key.pk, key.sk);
    let remedy = format!("aws dynamodb delete-item --region {region} --table-name {table} --key '{key}'");
    let detail = json!({ "since": halt.since.to_string(), "reason": halt.reason, "remedy": remedy });
    BusEvent::new(installation, Some(cluster), "Termination Halted", detail)
}
