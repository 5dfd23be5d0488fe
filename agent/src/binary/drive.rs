//! The leader's loop: runs steps for changes, rings and times.
//!
//! It decides no times: it reports events to the pace, and runs the steps of the pace. SIGTERM doesn't interrupt a
//! step; only the end of the lease does.

use std::convert::Infallible;
use std::future::Future;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tenon_snapshot::{Kube, Versions};
use tenon_table::Table;
use tokio::sync::watch;

use super::aws::{Doorbell, Heard};
use super::karpenter::ConvergedClaims;
use super::logging::chain;
use super::metrics::{Metrics, StepLabels};
use crate::agent::{Agent, Reported};
use crate::bell::Bell;
use crate::deleted::{Tainted, taint_deleted};
use crate::pace::{AgentPace, StepEnded, run_step};

/// The wait after a queue that gave no answer.
const DOORBELL_RETRY: Duration = Duration::from_secs(5);
/// The timeout of a step. Each call has its own timeout, but a large drain makes many calls.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// Deletions that follow each other closely are one look.
const DELETIONS_WINDOW: Duration = Duration::from_millis(100);
/// The wait before Nodes are tainted again after a conflict, or without an answer of the API server.
const TAINT_RETRY: Duration = Duration::from_secs(1);

/// Drives the agent until shutdown.
pub(super) async fn drive<K: Kube, T: Table, B: Bell>(
    agent: &mut Agent<K, T, B>,
    mut changes: watch::Receiver<Versions>,
    doorbell: &Doorbell,
    metrics: &Metrics,
    mut stopped: watch::Receiver<bool>,
) {
    let mut pace = AgentPace::default();
    let mut due = Timestamp::now();
    let mut rings = std::pin::pin!(listen(doorbell));
    let kube = agent.kube();
    while !*stopped.borrow() {
        metrics.turn();
        let now = Timestamp::now();
        if due <= now
            && let Some(work) = pace.begin(now)
        {
            // Noted before the step, so that changes during it cause another step.
            pace.note(*changes.borrow_and_update());
            let started = Instant::now();
            let step = run_step(agent, work, Timestamp::now);
            let step = beside(step, taint_meanwhile(&*kube, changes.clone()));
            let ended = tokio::time::timeout(STEP_TIMEOUT, step).await.ok();
            count(agent, ended.as_ref(), metrics).await;
            if let Some(ended) = ended {
                tell(metrics, &ended, started.elapsed());
                due = pace.end(&ended, Timestamp::now());
            } else {
                tracing::error!(error_type = "StepTimeout", "a step timed out, starting it again");
                pace.restart();
                due = Timestamp::now();
            }
            continue;
        }
        due = pace.due(now);
        let wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            changed = changes.changed() => {
                // The watches are there for as long as the agent.
                if changed.is_ok() {
                    pace.observe(*changes.borrow_and_update(), Timestamp::now());
                }
            }
            () = &mut rings => {
                metrics.rings.inc();
                pace.observe_ring();
                rings.set(listen(doorbell));
            }
            _ = stopped.changed() => {}
        }
        due = pace.due(Timestamp::now());
    }
}

/// Runs a step, or the loop, beside an endless future.
pub(super) async fn beside<S>(step: impl Future<Output = S>, guard: impl Future<Output = Infallible>) -> S {
    tokio::select! {
        ended = step => ended,
        never = guard => match never {},
    }
}

/// Taints deleted Nodes during a step, because the step may wait for AWS.
async fn taint_meanwhile<K: Kube>(kube: &K, mut changes: watch::Receiver<Versions>) -> Infallible {
    let mut seen = changes.borrow_and_update().deletions;
    loop {
        let Ok(versions) = changes.wait_for(|versions| versions.deletions != seen).await.map(|v| *v) else {
            return std::future::pending().await;
        };
        seen = versions.deletions;
        tokio::time::sleep(DELETIONS_WINDOW).await;
        while !matches!(taint_deleted(kube).await, Ok(Tainted::All)) {
            tokio::time::sleep(TAINT_RETRY).await;
        }
    }
}

/// Waits for a ring.
async fn listen(doorbell: &Doorbell) {
    loop {
        match doorbell.listen().await {
            Ok(Heard::Ring) => return,
            Ok(Heard::Nothing) => {}
            Err(error) => {
                tracing::warn!(error_type = "Doorbell", error = %chain(&error), "not receiving from the agent's queue, trying again");
                tokio::time::sleep(DOORBELL_RETRY).await;
            }
        }
    }
}

/// Counts what a step did, for Karpenter's metrics.
async fn count<K: Kube, T: Table, B: Bell>(
    agent: &mut Agent<K, T, B>,
    ended: Option<&StepEnded>,
    metrics: &Metrics,
) {
    let evictions = agent.take_evictions();
    let claims = &agent.decided().claims;
    metrics.karpenter.observe_evictions(&evictions, claims);
    let Some(converged) = ended.and_then(|ended| ended.converged.as_ref()) else { return };
    let commands = metrics.karpenter.unknown_commands(claims);
    // Without an answer, these replacements are counted after the next step.
    let reasons = agent.command_reasons(&commands).await.unwrap_or_default();
    metrics.karpenter.observe_claims(ConvergedClaims {
        claims,
        reasons: &reasons,
        reports: &converged.reports,
    });
    let now = Timestamp::now();
    if metrics.karpenter.wants_offerings(now)
        && let Ok(record) = agent.seen_by_disruption().await
    {
        metrics.karpenter.observe_offerings(record, now);
    }
}

fn tell(metrics: &Metrics, ended: &StepEnded, took: Duration) {
    metrics.step_seconds.observe(took.as_secs_f64());
    let outcome = if ended.errors.is_empty() { "ended" } else { "failed" };
    metrics.steps.get_or_create(&StepLabels { outcome }).inc();
    for error in &ended.errors {
        tracing::warn!(error_type = "Step", error = %chain(error), "a step failed, starting it again");
    }
    if let Some(converged) = &ended.converged {
        let working = converged.reports.iter().filter(|report| !report.progress.is_done()).count();
        metrics.actions.set(i64::try_from(working).unwrap_or(i64::MAX));
        for error in &converged.unwritten {
            tracing::warn!(error_type = "Unwritten", error = %chain(error), "not written to Kubernetes, trying again");
        }
        for unreadable in &converged.unreadable {
            tracing::error!(error_type = "Unreadable", name = unreadable.name, errors = ?unreadable.errors, "ignoring an invalid object");
        }
    }
    if let Some(reported) = &ended.reported {
        metrics.reported_at.set(Timestamp::now().as_duration().as_secs_f64());
        if let Reported::Changed(ring) = reported {
            let (generation, pending) = (ring.generation, ring.pending_pods);
            metrics.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
            metrics.pending_pods.set(i64::from(pending));
            tracing::info!(generation, pending_pods = pending, changed = ?ring.changed, "reported");
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;
    use tenon_domain::taint::Taint;
    use tenon_simulated_cluster::{SimulatedCluster, SimulationConfig};
    use tenon_snapshot::{Kind, ObjectChange, object};

    use super::*;

    #[tokio::test]
    async fn a_step_that_waits_for_aws_keeps_no_node_from_its_taint() {
        let kube = SimulatedCluster::new(SimulationConfig::default(), Timestamp::UNIX_EPOCH);
        let objects = [
            json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": "a", "annotations": {"tenon.dev/nodeclaim": "claim"}}, "spec": {}}),
            json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "claim",
                "finalizers": ["karpenter.sh/termination"], "annotations": {"tenon.dev/launch": "launch-1"}}}),
        ];
        for object in objects {
            kube.apply(object).unwrap();
        }
        let (tells, changes) = watch::channel(Versions::default());
        let step = async {
            tokio::task::yield_now().await;
            kube.delete(Kind::NodeClaim, "", "claim");
            tells.send_modify(|versions| versions.count(ObjectChange::Deletion));
            loop {
                let node = kube.object(Kind::Node, "", "a").unwrap();
                if object::taints(&node).contains(&Taint::disrupted()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let tainted =
            tokio::time::timeout(Duration::from_secs(3), beside(step, taint_meanwhile(&kube, changes)));
        assert!(tainted.await.is_ok(), "not within 3 s");
    }
}
