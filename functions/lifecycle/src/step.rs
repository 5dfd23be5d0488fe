//! The next step of one claim.
//!
//! Decides from the observations whether a claim steps, and why. [`crate::node`] decides the Node's target state,
//! `gone` whether EC2 ended an instance, and `provisioner` handles launches without an answer.
//!
//! Invariants: a stale snapshot never proves absence; nothing is terminated without an answer of EC2 in the same pass.

use tenon_domain::api::Node;
use tenon_domain::api::pod::Readiness;
use tenon_domain::boot::JOIN_CHECKS;
use tenon_domain::claim::joining::REGISTRATION_TIMEOUT;
use tenon_domain::claim::{Claim, ClaimState, LaunchedInstance, RemovalReason};
use tenon_domain::evidence::Waiting;
use tenon_domain::id::NodeName;
use tenon_domain::journal::{Decision, Subject, SubjectKind};
use tenon_domain::report::Finding;
use tenon_domain::{SignedDuration, Timestamp};

use crate::draining::{DrainIntent, deadline, drain, draining, drains};
use crate::expiry::{announced, expiry, expiry_wait, last_moment};
use crate::gone::{gone, taken_by_ec2};
use crate::input::{LifecycleInput, NodeSeen};
use crate::plan::LOOK_AGAIN;
use crate::repair::{self, Health, health};
use crate::statuses::failed_check;
use crate::{TERMINATION_POLL, node};

/// How long after registration an uninitialised Node is reported. Most are initialised by then, and it is longer than
/// a sweep's interval, so that they need no wake of their own.
pub const INITIALIZED_SOON: SignedDuration = SignedDuration::from_mins(4);
/// How long after its registration a Node must be initialised. The peer waits for ever: the pods that it was made for
/// would, too.
pub const INITIALIZATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(30);
/// The time to evict the pods of a stopped instance, or of an unhealthy Node: its kubelet may not stop them gracefully.
pub const STOPPED_GRACE: SignedDuration = SignedDuration::from_mins(2);

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifecycleStep {
    /// The state that follows.
    pub to: ClaimState,
    /// The decision.
    pub decision: Decision,
    /// One sentence for a person.
    pub message: String,
}

/// The result of a look at a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimNext {
    /// It stays until something changes.
    Stay,
    /// It stays until this time.
    At(Timestamp),
    /// It waits for EC2's answer about its instance; the query is due at that time.
    AskEc2(Timestamp),
    /// It stays because evidence is missing.
    Wait(Waiting),
    /// It stays, and a person is told why.
    Tell {
        /// Why.
        finding: Box<Finding>,
        /// The time of the next look, even without a change.
        again: Option<Timestamp>,
    },
    /// It steps.
    Step(Box<LifecycleStep>),
}

impl ClaimNext {
    pub(crate) fn step(step: LifecycleStep) -> Self {
        Self::Step(Box::new(step))
    }

    /// A person has to act: the next look is soon.
    fn refuse(claim: &Claim, reason: &str, (sentence, why): (&str, String), now: Timestamp) -> Self {
        let finding = Box::new(Finding::refused(subject(claim), reason, sentence, why));
        Self::Tell { finding, again: now.saturating_add(LOOK_AGAIN).ok() }
    }
}

/// The claim, as what is told of it names it.
pub(crate) fn subject(claim: &Claim) -> Subject {
    Subject { kind: SubjectKind::Claim, name: claim.name.to_string() }
}

/// The claim's next step. During a halt, or before EC2's answer in this pass, nothing is terminated: the answer
/// itself may cause a halt.
#[must_use]
pub fn next(claim: &Claim, input: &LifecycleInput, halted: Halted) -> ClaimNext {
    match (observed(claim, input), halted) {
        (ClaimNext::Step(step), Halted::Yes) if step.decision == Decision::Terminating => {
            ClaimNext::Wait(Waiting::TableRestored)
        }
        (ClaimNext::Step(step), Halted::No)
            if step.decision == Decision::Terminating && input.ec2.is_none() =>
        {
            ClaimNext::AskEc2(poll(input))
        }
        (next, Halted::Yes | Halted::No) => next,
    }
}

fn observed(claim: &Claim, input: &LifecycleInput) -> ClaimNext {
    match &claim.state {
        // The answer of their launch is the provisioner's to record.
        ClaimState::Planned | ClaimState::LaunchFailed { .. } | ClaimState::Terminated { .. } => {
            ClaimNext::Stay
        }
        ClaimState::Launched { instance, at } => launched(claim, instance, *at, input),
        ClaimState::Registered { instance, node, .. } => registered(claim, instance, node, input),
        ClaimState::Initialized { instance, node, .. } | ClaimState::Disrupting { instance, node, .. } => {
            match leave(claim, instance, node, input) {
                ClaimNext::Stay => repaired(claim, (instance, node), None, input),
                ClaimNext::At(at) => repaired(claim, (instance, node), Some(at), input),
                next @ (ClaimNext::AskEc2(_)
                | ClaimNext::Wait(_)
                | ClaimNext::Tell { .. }
                | ClaimNext::Step(_)) => next,
            }
        }
        ClaimState::Draining { instance, node, reason, deadline, .. } => {
            let gone = gone(claim, instance, node.as_ref(), *reason, input);
            gone.map_or_else(
                || {
                    let node = node.as_ref();
                    let drain = DrainIntent { instance, node, reason: *reason, deadline: *deadline };
                    draining(claim, drain, input)
                },
                ClaimNext::step,
            )
        }
        ClaimState::Drained { instance, node, reason, .. } => {
            let message = format!("terminating instance `{}` ({})", instance.id, reason.words());
            let step = || terminating(instance, node.clone(), *reason, input.now, message);
            ClaimNext::step(gone(claim, instance, node.as_ref(), *reason, input).unwrap_or_else(step))
        }
        ClaimState::Terminating { instance, node, reason, .. } => {
            gone(claim, instance, node.as_ref(), *reason, input)
                .map_or(ClaimNext::AskEc2(poll(input)), ClaimNext::step)
        }
    }
}

fn poll(input: &LifecycleInput) -> Timestamp {
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

fn launched(claim: &Claim, instance: &LaunchedInstance, at: Timestamp, input: &LifecycleInput) -> ClaimNext {
    if let Some(step) = taken_by_ec2(claim, instance, None, input) {
        return ClaimNext::step(step);
    }
    let seen = input.node_of(instance, at);
    if let NodeSeen::Several = seen {
        let why =
            format!("several Nodes have the providerID of instance `{}`; delete the wrong ones", instance.id);
        let told = ("not registering a Node for {}", why);
        return ClaimNext::refuse(claim, "SeveralNodes", told, input.now);
    }
    if let Some(found) = seen.node() {
        if node::is_registered(found) {
            let to = ClaimState::Registered {
                instance: instance.clone(),
                node: found.name.clone(),
                at: input.now,
            };
            let message = format!("Node `{}` registered (instance `{}`)", found.name, instance.id);
            return ClaimNext::step(LifecycleStep { to, decision: Decision::Registered, message });
        }
        if let Some(step) = removal(claim, instance, Some(found), input) {
            return ClaimNext::step(step);
        }
    } else if let Some(deleted) = input.deleted_by_user(claim) {
        let message = format!("terminating instance `{}`: {deleted} before a Node joined", instance.id);
        return ClaimNext::step(terminating(instance, None, RemovalReason::Deleted, input.now, message));
    }
    let next = registration_timeout(claim, instance, seen, input);
    if matches!(next, ClaimNext::At(_)) && input.awaits_partition(claim, instance) {
        return ClaimNext::AskEc2(poll(input));
    }
    next
}

fn registration_timeout(
    claim: &Claim,
    instance: &LaunchedInstance,
    seen: NodeSeen<'_>,
    input: &LifecycleInput,
) -> ClaimNext {
    let at = claim.state.since().unwrap_or(claim.created_at);
    let timeout = at.saturating_add(REGISTRATION_TIMEOUT).unwrap_or(at);
    if input.now < timeout {
        return ClaimNext::At(timeout);
    }
    let step = || {
        let minutes = REGISTRATION_TIMEOUT.as_mins();
        let console = input.console_of(instance);
        let console = console.map_or("", |_| "; this record has the end of its console output");
        let failed = failed_check(&instance.id, input);
        let failed = failed
            .map(|(check, since)| format!(", and it fails its {check} status check since `{since:.0}`"));
        let message = format!(
            "terminating instance `{}`: no Node joined within {minutes} minutes{}: check {JOIN_CHECKS}{console}",
            instance.id,
            failed.unwrap_or_default()
        );
        ClaimNext::step(terminating(instance, None, RemovalReason::RegistrationTimeout, input.now, message))
    };
    match (seen, &input.snapshot) {
        // The kubelet is alive, so only the registration hangs: that is the agent's problem, and no reason to lose
        // the node.
        (NodeSeen::Present(node), _) if node.readiness == Readiness::Ready => {
            let why = format!(
                "Node `{}` is Ready, but the agent hasn't registered it; check the agent's log",
                node.name
            );
            let told = ("not terminating {} after its registration timeout", why);
            ClaimNext::refuse(claim, "NotRegistered", told, input.now)
        }
        (NodeSeen::Present(_) | NodeSeen::Absent, _) => step(),
        // An agent that never reported can't show a Node: the first node of a cluster that starts from zero fails.
        (NodeSeen::Unknown, Err(Waiting::SnapshotMissing)) => step(),
        (NodeSeen::Unknown, Err(waiting)) => ClaimNext::Wait(waiting.clone()),
        (NodeSeen::Unknown | NodeSeen::Several, _) => ClaimNext::Stay,
    }
}

fn registered(
    claim: &Claim,
    instance: &LaunchedInstance,
    name: &NodeName,
    input: &LifecycleInput,
) -> ClaimNext {
    match leave(claim, instance, name, input) {
        step @ ClaimNext::Step(_) => return step,
        ClaimNext::Stay
        | ClaimNext::At(_)
        | ClaimNext::AskEc2(_)
        | ClaimNext::Wait(_)
        | ClaimNext::Tell { .. } => {}
    }
    let since = claim.state.since().unwrap_or(claim.created_at);
    match input.node_of(instance, since) {
        NodeSeen::Present(found) => match node::not_initialized(claim, found, input) {
            None => {
                let to =
                    ClaimState::Initialized { instance: instance.clone(), node: name.clone(), at: input.now };
                let message = format!(
                    "Node `{name}` is initialised: ready, startup taints removed, requested resources registered"
                );
                ClaimNext::step(LifecycleStep { to, decision: Decision::Initialized, message })
            }
            Some(why) => {
                let (told_at, timeout) = [INITIALIZED_SOON, INITIALIZATION_TIMEOUT]
                    .map(|after| since.saturating_add(after).unwrap_or(since))
                    .into();
                if input.now >= timeout {
                    return ClaimNext::step(not_initialized(claim, instance, found, &why, input));
                }
                let again = last_moment(claim, input).map_or(timeout, |expiry| expiry.min(timeout));
                if input.now < told_at {
                    return ClaimNext::At(again.min(told_at));
                }
                let (reason, sentence) = ("NotInitialized", "{} isn't initialised yet");
                let why = format!(
                    "{why}: see `kubectl describe node {name}`; if that lasts, it drains at {timeout}"
                );
                let finding = Box::new(Finding::refused(subject(claim), reason, sentence, why));
                ClaimNext::Tell { finding, again: Some(again) }
            }
        },
        NodeSeen::Unknown | NodeSeen::Absent | NodeSeen::Several => ClaimNext::Stay,
    }
}

/// The removal of a claim whose Node never became ready for pods.
fn not_initialized(
    claim: &Claim,
    instance: &LaunchedInstance,
    found: &Node,
    why: &str,
    input: &LifecycleInput,
) -> LifecycleStep {
    let reason = RemovalReason::InitializationTimeout;
    let minutes = INITIALIZATION_TIMEOUT.as_mins();
    let message = drains(claim, reason, &format!("{minutes} minutes after it registered, {why}"));
    let deadline = deadline(claim, None, input);
    drain(DrainIntent { instance, node: Some(&found.name), reason, deadline }, input, message)
}

/// The removal of a claim with a Node, if there is a reason.
fn leave(claim: &Claim, instance: &LaunchedInstance, name: &NodeName, input: &LifecycleInput) -> ClaimNext {
    if let Some(step) = taken_by_ec2(claim, instance, Some(name), input) {
        return ClaimNext::step(step);
    }
    let since = claim.state.since().unwrap_or(claim.created_at);
    let seen = input.node_of(instance, since);
    let step = match seen {
        NodeSeen::Absent => {
            let reason = RemovalReason::Deleted;
            let message = drains(claim, reason, &format!("Node `{name}` is gone"));
            Some(drain(DrainIntent { instance, node: Some(name), reason, deadline: None }, input, message))
        }
        NodeSeen::Present(found) => removal(claim, instance, Some(found), input),
        NodeSeen::Unknown | NodeSeen::Several => removal(claim, instance, None, input),
    };
    match step {
        Some(mut step) => {
            if let ClaimState::Draining { node, .. } = &mut step.to {
                *node = Some(name.clone());
            }
            ClaimNext::step(step)
        }
        None => last_moment(claim, input).map_or(ClaimNext::Stay, ClaimNext::At),
    }
}

/// What follows for a claim that stays, at least until the given time, if its Node is unhealthy.
fn repaired(
    claim: &Claim,
    (instance, node): (&LaunchedInstance, &NodeName),
    until: Option<Timestamp>,
    input: &LifecycleInput,
) -> ClaimNext {
    let since = claim.state.since().unwrap_or(claim.created_at);
    let seen = input.node_of(instance, since).node();
    match seen.map_or(Health::Healthy, |found| health(found, input)) {
        Health::Healthy => until.map_or(ClaimNext::Stay, ClaimNext::At),
        Health::Unhealthy(due) => ClaimNext::At(until.map_or(due, |at| at.min(due))),
        Health::Replace { why, grace } => {
            let reason = RemovalReason::Unhealthy;
            let deadline = deadline(claim, input.now.saturating_add(grace).ok(), input);
            let message = drains(claim, reason, &why);
            ClaimNext::step(drain(
                DrainIntent { instance, node: Some(node), reason, deadline },
                input,
                message,
            ))
        }
        Health::TooMany(why) => repair::refuse(claim, why, input),
    }
}

/// A removal by the user, or by expiry.
fn removal(
    claim: &Claim,
    instance: &LaunchedInstance,
    found: Option<&Node>,
    input: &LifecycleInput,
) -> Option<LifecycleStep> {
    let mut ends = None;
    let (reason, why) = if let Some(node) = found.filter(|node| node.meta.deleted_at.is_some()) {
        (RemovalReason::Deleted, format!("Node `{}` was deleted", node.name))
    } else if let Some(deleted) = input.deleted_by_user(claim) {
        (RemovalReason::Deleted, deleted)
    } else if let Some((found, _)) = announced(claim, input).filter(|(_, at)| *at <= input.now) {
        ends = found.starts_at.filter(|at| input.now < *at);
        let why = match found.starts_at {
            None => "EC2 recommends to move its pods".to_owned(),
            Some(at) => {
                let waited = if found.at < input.now { ", and its budgets kept it until now" } else { "" };
                format!("AWS Health announced a change of its instance at `{at:.0}`{waited}")
            }
        };
        (found.removal(), why)
    } else if expiry(claim, input).is_some_and(|at| at <= input.now) {
        let why = match expiry_wait(claim, input).is_zero() {
            true => "its `expireAfter` has passed",
            false => {
                "its `expireAfter` has passed, and so has the time that it waits for its NodePool's budgets"
            }
        };
        (RemovalReason::Expired, why.to_owned())
    } else {
        return None;
    };
    let (node, deadline) = (found.map(|node| &node.name), deadline(claim, ends, input));
    Some(drain(DrainIntent { instance, node, reason, deadline }, input, drains(claim, reason, &why)))
}

fn terminating(
    instance: &LaunchedInstance,
    node: Option<NodeName>,
    reason: RemovalReason,
    at: Timestamp,
    message: String,
) -> LifecycleStep {
    let to = ClaimState::Terminating { instance: instance.clone(), node, reason, at };
    LifecycleStep { to, decision: Decision::Terminating, message }
}
