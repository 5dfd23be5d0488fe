//! Reminders with every sweep: the cluster is halted, the agent is silent.
//!
//! Decides the events and their words, not the halt. Alarms count matches of an event rule, so Tenon needs no metric
//! of its own: the alarm ends with the reminders.
//!
//! Invariants: a cluster without a halt and with a reporting agent has no reminders; only the scheduled sweep sends
//! them, because other wakes may come by the hundred.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::evidence::ahead;
use tenon_domain::id::ClusterName;
use tenon_runtime::{BusEvent, Installation, Ports, Signals};
use tenon_table::items::{Halt, keys};

use crate::observe::ChangeCheck;

/// The silence after which an agent is reported: seven heartbeats, so that an upgrade or a change of leader isn't.
pub const SILENT_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// Sends the reminders of a sweep to the bus.
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
    // A report of the future is none: its time would hide that the agent is silent.
    let of_the_future = check.agent_seen_at.is_some_and(|at| ahead(at, now).is_some());
    let silent = (of_the_future || age.is_none_or(|age| age >= SILENT_AFTER)).then(|| {
        let detail = json!({
            "lastHeartbeat": check.agent_seen_at.map(|at| at.to_string()),
            "ageSeconds": age.map(|age| age.as_secs()),
        });
        BusEvent::new(installation, Some(cluster), "Agent Silent", detail)
    });
    halted.into_iter().chain(silent).collect()
}

/// The event of a halt: the observation, and how to end the halt.
pub(crate) fn halted(installation: &Installation, cluster: &ClusterName, halt: &Halt) -> BusEvent {
    let key = keys::halt(cluster);
    let (region, table) = (&installation.region, &installation.table);
    let key = format!(r#"{{"pk": {{"S": "{}"}}, "sk": {{"S": "{}"}}}}"#, key.pk, key.sk);
    let remedy = format!("aws dynamodb delete-item --region {region} --table-name {table} --key '{key}'");
    let detail = json!({ "since": halt.since.to_string(), "reason": halt.reason, "remedy": remedy });
    BusEvent::new(installation, Some(cluster), "Termination Halted", detail)
}
