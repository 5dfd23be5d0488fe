//! Instances that EC2 ends: those that are gone, and those on their way.
//!
//! Decides from EC2's answer, and from the Node where the answer has no such instance. It asks nobody, and terminates
//! nothing.
//!
//! Invariant: an instance outside EC2's list is gone only after EC2's consistency delay, and never while its Node is
//! Ready.

use tenon_domain::SignedDuration;
use tenon_domain::api::pod::Readiness;
use tenon_domain::claim::{Claim, ClaimState, LaunchedInstance, RemovalReason};
use tenon_domain::id::NodeName;
use tenon_domain::journal::Decision;
use tenon_domain::launch::EC2_CONSISTENCY;
use tenon_ec2::port::InstanceState;

use crate::boots::failed_launch;
use crate::draining::{DrainIntent, deadline, drain, drains};
use crate::input::{InstanceSeen, LifecycleInput, NodeSeen};
use crate::step::{LifecycleStep, STOPPED_GRACE};

/// EC2's interruption of a claim that should stay.
pub(crate) fn taken_by_ec2(
    claim: &Claim,
    instance: &LaunchedInstance,
    node: Option<&NodeName>,
    input: &LifecycleInput,
) -> Option<LifecycleStep> {
    if let Some(step) = gone(claim, instance, node, RemovalReason::InstanceTerminated, input) {
        return Some(step);
    }
    let (reason, grace, state) = match input.instance(&instance.id) {
        InstanceSeen::State(InstanceState::ShuttingDown) => {
            (RemovalReason::InstanceTerminated, SignedDuration::ZERO, "is shutting down")
        }
        InstanceSeen::State(InstanceState::Stopping | InstanceState::Stopped) => {
            (RemovalReason::InstanceStopped, STOPPED_GRACE, "is stopping or stopped")
        }
        InstanceSeen::State(InstanceState::Pending | InstanceState::Running | InstanceState::Terminated)
        | InstanceSeen::NotAsked
        | InstanceSeen::Missing => return None,
    };
    let deadline = deadline(claim, input.now.saturating_add(grace).ok(), input);
    let message = drains(claim, reason, &format!("instance `{}` {state}", instance.id));
    Some(drain(DrainIntent { instance, node, reason, deadline }, input, message))
}

/// Whether the claim's instance is gone. A Ready Node overrules an answer without the instance: the answer may be
/// old, and the kubelet is alive.
pub(crate) fn gone(
    claim: &Claim,
    instance: &LaunchedInstance,
    node: Option<&NodeName>,
    reason: RemovalReason,
    input: &LifecycleInput,
) -> Option<LifecycleStep> {
    let since = claim.state.since().unwrap_or(claim.created_at);
    let settled = input.since(since) >= EC2_CONSISTENCY;
    let is_gone = match input.instance(&instance.id) {
        InstanceSeen::State(InstanceState::Terminated) => true,
        InstanceSeen::State(
            InstanceState::Pending
            | InstanceState::Running
            | InstanceState::Stopping
            | InstanceState::Stopped
            | InstanceState::ShuttingDown,
        )
        | InstanceSeen::NotAsked => false,
        InstanceSeen::Missing if !settled => false,
        InstanceSeen::Missing => missing_is_gone(claim, input.node_of(instance, since)),
    };
    let message = || {
        let words = reason.words();
        match failed_launch(instance, input).filter(|_| node.is_none()) {
            Some(told) => {
                format!("EC2 terminated instance `{}` ({words}): {}", instance.id, told.words)
            }
            None => format!("instance `{}` is terminated ({words})", instance.id),
        }
    };
    is_gone.then(|| LifecycleStep {
        to: ClaimState::Terminated {
            instance: Some(instance.clone()),
            node: node.cloned(),
            reason,
            at: input.now,
        },
        decision: Decision::Terminated,
        message: message(),
    })
}

fn missing_is_gone(claim: &Claim, seen: NodeSeen<'_>) -> bool {
    let ready = seen.node().is_some_and(|node| node.readiness == Readiness::Ready);
    match &claim.state {
        // Tenon terminated it, so it needs no evidence from the cluster; only a Ready Node contradicts.
        ClaimState::Terminating { .. } => !ready,
        // Left to the registration's timeout.
        ClaimState::Launched { .. } => false,
        ClaimState::Registered { .. }
        | ClaimState::Initialized { .. }
        | ClaimState::Disrupting { .. }
        | ClaimState::Draining { .. }
        | ClaimState::Drained { .. } => match seen {
            NodeSeen::Absent => true,
            NodeSeen::Present(_) => !ready,
            NodeSeen::Unknown | NodeSeen::Several => false,
        },
        ClaimState::Planned | ClaimState::LaunchFailed { .. } | ClaimState::Terminated { .. } => false,
    }
}
