//! Effects outside the table after the commit: terminations, tags, deletions of launch templates, doorbells.
//!
//! Decides nothing. It may run late, twice or partly: terminations are repeated until EC2 confirms them, deletions
//! until EC2's list confirms them, tags until the audit sees them, and doorbells are best effort.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::journal::Decision;
use tenon_domain::wake::FunctionName;
use tenon_ec2::{Ec2, Ec2Error};
use tenon_runtime::ports::WAKE_AT_MOST;
use tenon_runtime::{BusEvent, Installation, Ports, Signals};
use tenon_table::items::keys;
use tenon_table::{Consistency, Table};

use crate::boots::CLASSES_LOOK;
use crate::commit::{AuditCommit, CommittedClaims, TemplatesCommit};
use crate::plan::{ClaimStep, LifecyclePlan};
use crate::remind::halted;

/// The interval of the scheduled sweep; an earlier look needs its own wake. The last sweep before a later one sends it.
pub(crate) const SWEEP_EVERY: SignedDuration = SignedDuration::from_mins(3);
/// The most instances in a call of TerminateInstances.
const TERMINATE_AT_ONCE: usize = 100;

/// Executes.
///
/// # Errors EC2's refusals, except transient ones; everything else is done.
pub async fn execute<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    plan: &LifecyclePlan,
    done: &CommittedClaims,
    now: Timestamp,
) -> Result<(), Ec2Error> {
    let ids = to_terminate(plan, done);
    // Another pass may have halted the cluster meanwhile, and a termination can't be undone.
    let holds = !ids.is_empty() && is_halted(ports, cluster).await;
    let terminated = if holds { Ok(()) } else { terminate(ports, &ids).await };
    let tagged = tag(ports, plan).await;
    ring(ports, cluster, plan, done, now).await;
    let deleted = delete_templates(ports, plan, done).await;
    terminated.and(tagged).and(deleted)
}

/// Instances whose claims' termination is committed, and orphans whose audit is.
fn to_terminate(plan: &LifecyclePlan, done: &CommittedClaims) -> Vec<InstanceId> {
    let steps: BTreeSet<_> = plan.steps.iter().map(|step| &step.after.name).collect();
    let stands = |claim| !steps.contains(claim) || done.claims.contains(claim);
    let claims = plan.terminate.iter().filter(|(claim, _)| stands(*claim)).map(|(_, instance)| instance);
    let mut ids: BTreeSet<InstanceId> = BTreeSet::new();
    if done.audit == AuditCommit::Written {
        ids.extend(claims.cloned());
        ids.extend(plan.audit.orphans.iter().cloned());
    }
    ids.into_iter().collect()
}

/// Whether a halt exists, or can't be read.
async fn is_halted<P: Ports>(ports: &P, cluster: &ClusterName) -> bool {
    let found = ports.table().get(&keys::halt(cluster), Consistency::Strong).await;
    found.map_or(true, |halt| halt.is_some())
}

async fn terminate<P: Ports>(ports: &P, ids: &[InstanceId]) -> Result<(), Ec2Error> {
    let mut result = Ok(());
    for chunk in ids.chunks(TERMINATE_AT_ONCE) {
        let answer = match ports.ec2().terminate_instances(chunk).await {
            // One unknown id refuses the whole call, so it is repeated without the ids that EC2 names.
            Err(Ec2Error::NotFound { ids: unknown, .. }) => {
                let known = chunk.iter().filter(|id| !unknown.iter().any(|name| name == id.as_str()));
                let known: Vec<InstanceId> = known.cloned().collect();
                if known.is_empty() || known.len() == chunk.len() {
                    continue;
                }
                ports.ec2().terminate_instances(&known).await
            }
            answer => answer,
        };
        result = result.and(unless_busy(answer.map(|_| ())));
    }
    result
}

async fn tag<P: Ports>(ports: &P, plan: &LifecyclePlan) -> Result<(), Ec2Error> {
    for (id, tags) in &plan.audit.tags {
        let answer = ports.ec2().create_tags(std::slice::from_ref(id), tags).await;
        if matches!(answer, Err(Ec2Error::Throttled { .. })) {
            // The rest is left to the next audit.
            return Ok(());
        }
        unless_busy(answer)?;
    }
    Ok(())
}

/// Deletes launch templates whose names leave.
async fn delete_templates<P: Ports>(
    ports: &P,
    plan: &LifecyclePlan,
    done: &CommittedClaims,
) -> Result<(), Ec2Error> {
    if done.templates != TemplatesCommit::Written {
        return Ok(());
    }
    for name in &plan.templates.delete {
        let answer = ports.ec2().delete_launch_template(name).await;
        if matches!(answer, Err(Ec2Error::Throttled { .. })) {
            // Launches need the tokens more. The next look deletes the rest.
            return Ok(());
        }
        unless_busy(answer)?;
    }
    Ok(())
}

/// Drops transient errors, because the next wake repeats the call.
fn unless_busy(answer: Result<(), Ec2Error>) -> Result<(), Ec2Error> {
    match answer {
        Ok(())
        | Err(
            Ec2Error::Throttled { .. }
            | Ec2Error::ServerError { .. }
            | Ec2Error::NoAnswer { .. }
            | Ec2Error::NotFound { .. },
        ) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn ring<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    plan: &LifecyclePlan,
    done: &CommittedClaims,
    now: Timestamp,
) {
    if done.actions > 0 {
        ports.signals().ring_agent(cluster).await;
    }
    let committed: Vec<&ClaimStep> =
        plan.steps.iter().filter(|step| done.claims.contains(&step.after.name)).collect();
    let mut events: Vec<BusEvent> =
        committed.iter().flat_map(|step| events_of(ports.installation(), cluster, step)).collect();
    if let (Some(halt), AuditCommit::Written) = (&plan.audit.halt, done.audit) {
        events.push(halted(ports.installation(), cluster, halt));
    }
    if !events.is_empty() {
        ports.signals().publish(&events).await;
    }
    if committed.iter().any(|step| step.loses_room()) {
        ports.signals().wake(FunctionName::Provisioner, cluster, SignedDuration::ZERO).await;
    }
    if committed.iter().any(|step| step.gives_up()) {
        ports.signals().wake(FunctionName::Disruption, cluster, SignedDuration::ZERO).await;
    }
    if !done.held.is_empty() {
        ports.signals().wake(FunctionName::NodeClasses, cluster, SignedDuration::ZERO).await;
    }
    let wait = plan.wake_at.duration_since(now).max(SignedDuration::ZERO);
    if !done.held.is_empty() {
        ports.signals().wake(FunctionName::Lifecycle, cluster, CLASSES_LOOK).await;
    } else if done.lost > 0 {
        ports.signals().wake(FunctionName::Lifecycle, cluster, SignedDuration::from_secs(1)).await;
    } else if wait < SWEEP_EVERY {
        let wait = wait.max(SignedDuration::from_secs(1)).min(WAKE_AT_MOST);
        ports.signals().wake(FunctionName::Lifecycle, cluster, wait).await;
    }
}

fn events_of(installation: &Installation, cluster: &ClusterName, step: &ClaimStep) -> Vec<BusEvent> {
    let detail_type = |decision: Decision| match decision {
        Decision::Registered => Some("NodeClaim Registered"),
        Decision::Initialized => Some("NodeClaim Initialized"),
        Decision::Terminated => Some("NodeClaim Terminated"),
        Decision::Planned
        | Decision::Launched
        | Decision::LaunchFailed
        | Decision::Placed
        | Decision::Drifted
        | Decision::Consolidatable
        | Decision::Announced
        | Decision::Kept
        | Decision::Disrupting
        | Decision::Draining
        | Decision::Drained
        | Decision::Terminating
        | Decision::Resolved
        | Decision::NotReady
        | Decision::ZonalShiftActive
        | Decision::ZonalShiftCleared
        | Decision::ImageState
        | Decision::ImageRejected
        | Decision::Refused
        | Decision::Waiting
        | Decision::OrphanTerminated
        | Decision::TemplatesDeleted
        | Decision::Unknown => None,
    };
    let claim = &step.after;
    let detail = json!({
        "nodeClaim": claim.name.as_str(),
        "nodePool": claim.pool.as_str(),
        "instance": claim.state.instance().map(|instance| instance.id.as_str()),
        "instanceType": claim.state.instance().map(|instance| instance.instance_type.as_str()),
        "zone": claim.state.instance().map(|instance| instance.zone.as_str()),
        "capacityType": claim.state.instance().map(|instance| instance.capacity_type.as_str()),
        "node": claim.state.node().map(|node| node.as_str()),
        "reason": claim.state.removal().map(|reason| reason.as_str()),
    });
    step.decisions()
        .filter_map(detail_type)
        .map(|name| BusEvent::new(installation, Some(cluster), name, detail.clone()))
        .collect()
}
