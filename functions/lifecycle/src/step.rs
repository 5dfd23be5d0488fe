//! The next step of one claim.
//!
//! Decides from the observations whether a claim steps, and why. [`crate::node`] decides the Node's target state, and
//! `provisioner` handles launches without an answer.
//!
//! Invariants: a stale snapshot never proves absence; an instance outside EC2's list is gone only after EC2's
//! consistency delay, and never while its Node is Ready; nothing is terminated without an answer of EC2 in the same
//! pass.

use tenon_domain::api::Node;
use tenon_domain::api::pod::Readiness;
use tenon_domain::claim::{Claim, ClaimState, LaunchedInstance, RemovalReason};
use tenon_domain::evidence::{HEARTBEAT_EVERY, Waiting};
use tenon_domain::id::NodeName;
use tenon_domain::journal::Decision;
use tenon_domain::launch::EC2_CONSISTENCY;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_ec2::port::InstanceState;

use crate::input::{Input, NodeSeen, Seen};
use crate::{TERMINATION_POLL, node};

/// How long after its launch a Node must have joined. Source: kubernetes-sigs/karpenter
/// `pkg/controllers/nodeclaim/lifecycle/liveness.go`.
pub const REGISTRATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(15);
/// How long after registration an uninitialised Node is reported. Most are initialised by then, and it is longer than
/// a sweep's interval, so that they need no wake of their own.
pub const INITIALIZED_SOON: SignedDuration = SignedDuration::from_mins(4);
/// The time to evict the pods of a stopped instance, whose kubelet can't stop them gracefully.
pub const STOPPED_GRACE: SignedDuration = SignedDuration::from_mins(2);

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The state that follows.
    pub to: ClaimState,
    /// The decision.
    pub decision: Decision,
    /// One sentence for a person.
    pub message: String,
}

/// A refusal that needs a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// A CamelCase reason.
    pub reason: &'static str,
    /// The refused action on `{}`, the claim.
    pub sentence: &'static str,
    /// The reason, and the remedy.
    pub why: String,
}

/// The result of a look at a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// It stays until something changes.
    Stay,
    /// It stays until this time.
    At(Timestamp),
    /// It waits for EC2's answer about its instance; the query is due at that time.
    AskEc2(Timestamp),
    /// It stays because evidence is missing.
    Wait(Waiting),
    /// It stays; the obstacle needs a person.
    Refuse(Refused),
    /// It has been registered without initialisation for so long that the reason is reported.
    NotInitialized {
        /// What it lacks.
        why: String,
        /// The time of the next look, even without a change.
        again: Option<Timestamp>,
    },
    /// It steps.
    Step(Step),
}

/// The claim's next step. During a halt, or before EC2's answer in this pass, nothing is terminated: the answer
/// itself may cause a halt.
#[must_use]
pub fn next(claim: &Claim, input: &Input, halted: Halted) -> Next {
    match (observed(claim, input), halted) {
        (Next::Step(step), Halted::Yes) if step.decision == Decision::Terminating => {
            Next::Wait(Waiting::TableRestored)
        }
        (Next::Step(step), Halted::No) if step.decision == Decision::Terminating && input.ec2.is_none() => {
            Next::AskEc2(poll(input))
        }
        (next, Halted::Yes | Halted::No) => next,
    }
}

fn observed(claim: &Claim, input: &Input) -> Next {
    match &claim.state {
        // The answer of their launch is the provisioner's to record.
        ClaimState::Planned | ClaimState::LaunchFailed { .. } | ClaimState::Terminated { .. } => Next::Stay,
        ClaimState::Launched { instance, at } => launched(claim, instance, *at, input),
        ClaimState::Registered { instance, node, .. } => registered(claim, instance, node, input),
        ClaimState::Initialized { instance, node, .. } | ClaimState::Disrupting { instance, node, .. } => {
            leave(claim, instance, node, input)
        }
        ClaimState::Draining { instance, node, reason, deadline, .. } => {
            let gone = gone(claim, instance, node.as_ref(), *reason, input);
            gone.map_or_else(
                || draining(claim, (instance, node.as_ref(), *reason), *deadline, input),
                Next::Step,
            )
        }
        ClaimState::Drained { instance, node, reason, .. } => {
            let message = format!("instance {} terminates: {}", instance.id, reason.as_str());
            let step = || terminating(instance, node.clone(), *reason, input.now, message);
            Next::Step(gone(claim, instance, node.as_ref(), *reason, input).unwrap_or_else(step))
        }
        ClaimState::Terminating { instance, node, reason, .. } => {
            gone(claim, instance, node.as_ref(), *reason, input).map_or(Next::AskEc2(poll(input)), Next::Step)
        }
    }
}

fn poll(input: &Input) -> Timestamp {
    input.now.saturating_add(TERMINATION_POLL).unwrap_or(input.now)
}

/// Whether a halt holds terminations back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halted {
    /// It does.
    Yes,
    /// There is none.
    No,
}

fn launched(claim: &Claim, instance: &LaunchedInstance, at: Timestamp, input: &Input) -> Next {
    if let Some(step) = taken_by_ec2(claim, instance, None, input) {
        return Next::Step(step);
    }
    let seen = input.node_of(instance, at);
    if let NodeSeen::Several = seen {
        let why =
            format!("several Nodes carry the providerID of instance {}: delete the wrong one", instance.id);
        let (reason, sentence) = ("SeveralNodes", "not registering a Node for {}");
        return Next::Refuse(Refused { reason, sentence, why });
    }
    if let Some(found) = seen.node() {
        if node::is_registered(found) {
            let to = ClaimState::Registered {
                instance: instance.clone(),
                node: found.name.clone(),
                at: input.now,
            };
            let message = format!("Node {} joined with instance {}", found.name, instance.id);
            return Next::Step(Step { to, decision: Decision::Registered, message });
        }
        if let Some(step) = removal(claim, instance, Some(found), input) {
            return Next::Step(step);
        }
    } else if input.is_deleted_by_user(claim) {
        let message = "the user deleted its NodeClaim or its NodePool before a Node joined".to_owned();
        return Next::Step(terminating(instance, None, RemovalReason::Deleted, input.now, message));
    }
    registration_timeout(instance, at, seen, input)
}

fn registration_timeout(
    instance: &LaunchedInstance,
    at: Timestamp,
    seen: NodeSeen<'_>,
    input: &Input,
) -> Next {
    let timeout = at.saturating_add(REGISTRATION_TIMEOUT).unwrap_or(at);
    if input.now < timeout {
        return Next::At(timeout);
    }
    let step = || {
        let minutes = REGISTRATION_TIMEOUT.as_mins();
        let message = format!("no Node joined with instance {} within {minutes} minutes", instance.id);
        Next::Step(terminating(instance, None, RemovalReason::RegistrationTimeout, input.now, message))
    };
    match (seen, &input.snapshot) {
        // The kubelet is alive, so only the registration hangs: that is the agent's problem, and no reason to lose
        // the node.
        (NodeSeen::Present(node), _) if node.readiness == Readiness::Ready => {
            let why = format!(
                "Node {} is Ready, but the agent hasn't registered it: look at the agent's log",
                node.name
            );
            let (reason, sentence) =
                ("NotRegistered", "not terminating {}, whose Node isn't registered in time");
            Next::Refuse(Refused { reason, sentence, why })
        }
        (NodeSeen::Present(_) | NodeSeen::Absent, _) => step(),
        // An agent that never reported can't show a Node: the first node of a cluster that starts from zero fails.
        (NodeSeen::Unknown, Err(Waiting::SnapshotMissing)) => step(),
        (NodeSeen::Unknown, Err(waiting)) => Next::Wait(waiting.clone()),
        (NodeSeen::Unknown | NodeSeen::Several, _) => Next::Stay,
    }
}

fn registered(claim: &Claim, instance: &LaunchedInstance, name: &NodeName, input: &Input) -> Next {
    match leave(claim, instance, name, input) {
        step @ Next::Step(_) => return step,
        Next::Stay
        | Next::At(_)
        | Next::AskEc2(_)
        | Next::Wait(_)
        | Next::Refuse(_)
        | Next::NotInitialized { .. } => {}
    }
    let since = claim.state.since().unwrap_or(claim.created_at);
    match input.node_of(instance, since) {
        NodeSeen::Present(found) => match node::not_initialized(claim, found, input) {
            None => {
                let to =
                    ClaimState::Initialized { instance: instance.clone(), node: name.clone(), at: input.now };
                let message =
                    format!("Node {name} is Ready, without start-up taints, and has what was asked for");
                Next::Step(Step { to, decision: Decision::Initialized, message })
            }
            Some(why) => {
                let expiry = expiry(claim, input);
                let told_at = since.saturating_add(INITIALIZED_SOON).unwrap_or(since);
                if input.now < told_at {
                    return Next::At(expiry.map_or(told_at, |expiry| expiry.min(told_at)));
                }
                Next::NotInitialized { why, again: expiry }
            }
        },
        NodeSeen::Unknown | NodeSeen::Absent | NodeSeen::Several => Next::Stay,
    }
}

/// The removal of a claim with a Node, if there is a reason.
fn leave(claim: &Claim, instance: &LaunchedInstance, name: &NodeName, input: &Input) -> Next {
    if let Some(step) = taken_by_ec2(claim, instance, Some(name), input) {
        return Next::Step(step);
    }
    let since = claim.state.since().unwrap_or(claim.created_at);
    let seen = input.node_of(instance, since);
    let step = match seen {
        NodeSeen::Absent => {
            let message = format!("Node {name} was deleted");
            Some(drain(instance, Some(name.clone()), (RemovalReason::Deleted, None), input, message))
        }
        NodeSeen::Present(found) => removal(claim, instance, Some(found), input),
        NodeSeen::Unknown | NodeSeen::Several => removal(claim, instance, None, input),
    };
    match step {
        Some(mut step) => {
            if let ClaimState::Draining { node, .. } = &mut step.to {
                *node = Some(name.clone());
            }
            Next::Step(step)
        }
        None => expiry(claim, input).map_or(Next::Stay, Next::At),
    }
}

/// EC2's interruption of a claim that should stay.
fn taken_by_ec2(
    claim: &Claim,
    instance: &LaunchedInstance,
    node: Option<&NodeName>,
    input: &Input,
) -> Option<Step> {
    if let Some(step) = gone(claim, instance, node, RemovalReason::InstanceTerminated, input) {
        return Some(step);
    }
    let (reason, grace) = match input.instance(&instance.id) {
        Seen::State(InstanceState::ShuttingDown) => (RemovalReason::InstanceTerminated, SignedDuration::ZERO),
        Seen::State(InstanceState::Stopping | InstanceState::Stopped) => {
            (RemovalReason::InstanceStopped, STOPPED_GRACE)
        }
        Seen::State(InstanceState::Pending | InstanceState::Running | InstanceState::Terminated)
        | Seen::NotAsked
        | Seen::Missing => return None,
    };
    let deadline = deadline(claim, input.now.saturating_add(grace).ok(), input);
    let message = format!("EC2 says that instance {} goes: {}", instance.id, reason.as_str());
    Some(drain(instance, node.cloned(), (reason, deadline), input, message))
}

/// Whether the claim's instance is gone. A Ready Node overrules an answer without the instance: the answer may be
/// old, and the kubelet is alive.
fn gone(
    claim: &Claim,
    instance: &LaunchedInstance,
    node: Option<&NodeName>,
    reason: RemovalReason,
    input: &Input,
) -> Option<Step> {
    let since = claim.state.since().unwrap_or(claim.created_at);
    let settled = input.since(since) >= EC2_CONSISTENCY;
    let is_gone = match input.instance(&instance.id) {
        Seen::State(InstanceState::Terminated) => true,
        Seen::State(
            InstanceState::Pending
            | InstanceState::Running
            | InstanceState::Stopping
            | InstanceState::Stopped
            | InstanceState::ShuttingDown,
        )
        | Seen::NotAsked => false,
        Seen::Missing if !settled => false,
        Seen::Missing => missing_is_gone(claim, input.node_of(instance, since)),
    };
    let message = || format!("instance {} is gone: {}", instance.id, reason.as_str());
    is_gone.then(|| Step {
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

/// A removal by the user, or by expiry.
fn removal(claim: &Claim, instance: &LaunchedInstance, found: Option<&Node>, input: &Input) -> Option<Step> {
    let deadline = deadline(claim, None, input);
    let (reason, message) = if let Some(node) = found.filter(|node| node.meta.deleted_at.is_some()) {
        (RemovalReason::Deleted, format!("the user deleted Node {}", node.name))
    } else if input.is_deleted_by_user(claim) {
        (RemovalReason::Deleted, "the user deleted its NodeClaim or its NodePool".to_owned())
    } else if expiry(claim, input).is_some_and(|at| at <= input.now) {
        (RemovalReason::Expired, "its `expireAfter` passed".to_owned())
    } else {
        return None;
    };
    let node = found.map(|node| node.name.clone());
    Some(drain(instance, node, (reason, deadline), input, message))
}

/// When the claim expires; nothing where that isn't known or never.
fn expiry(claim: &Claim, input: &Input) -> Option<Timestamp> {
    claim.terms_or(input.pool_of(claim))?.expires_at(claim.created_at)
}

/// The deadline of a drain that begins now: the claim's `terminationGracePeriod` bounds it, and any other deadline
/// too.
fn deadline(claim: &Claim, other: Option<Timestamp>, input: &Input) -> Option<Timestamp> {
    match claim.terms_or(input.pool_of(claim)) {
        Some(terms) => terms.deadline(input.now, other),
        None => other,
    }
}

fn draining(
    claim: &Claim,
    (instance, node, reason): (&LaunchedInstance, Option<&NodeName>, RemovalReason),
    deadline: Option<Timestamp>,
    input: &Input,
) -> Next {
    let since = claim.state.since().unwrap_or(claim.created_at);
    let seen = input.node_of(instance, since);
    let done = input
        .actions
        .get(&claim.name)
        .is_some_and(|action| action.kind == tenon_snapshot::ActionKind::Drain && input.is_done(action));
    let message = if done {
        Some("nothing is left on it that is waited for".to_owned())
    } else if matches!(seen, NodeSeen::Absent) {
        Some("it has no Node, so there is nothing to drain".to_owned())
    } else if deadline.is_some_and(|deadline| deadline <= input.now) {
        Some("the drain's deadline passed".to_owned())
    } else {
        None
    };
    match message {
        Some(message) => {
            let (instance, node) = (instance.clone(), node.cloned());
            let to = ClaimState::Drained { instance, node, reason, at: input.now };
            Next::Step(Step { to, decision: Decision::Drained, message })
        }
        // The snapshot is older than the drain: the agent's next heartbeat decides, even without a change.
        None if matches!(seen, NodeSeen::Unknown) => {
            let soon = input.now.saturating_add(HEARTBEAT_EVERY).unwrap_or(input.now);
            Next::At(deadline.map_or(soon, |deadline| deadline.min(soon)))
        }
        None => deadline.map_or(Next::Stay, Next::At),
    }
}

fn drain(
    instance: &LaunchedInstance,
    node: Option<NodeName>,
    (reason, deadline): (RemovalReason, Option<Timestamp>),
    input: &Input,
    message: String,
) -> Step {
    let to = ClaimState::Draining { instance: instance.clone(), node, reason, at: input.now, deadline };
    Step { to, decision: Decision::Draining, message }
}

fn terminating(
    instance: &LaunchedInstance,
    node: Option<NodeName>,
    reason: RemovalReason,
    at: Timestamp,
    message: String,
) -> Step {
    let to = ClaimState::Terminating { instance: instance.clone(), node, reason, at };
    Step { to, decision: Decision::Terminating, message }
}
