//! Drains: how they begin, when they are over, and what a person is told of one that doesn't go on.
//!
//! Decides the deadline of a drain and its end. It doesn't decide which pods go when: the agent does.
//!
//! Invariant: a drain ends only with the agent's report, without a Node, or at its deadline.

use tenon_domain::claim::{Claim, ClaimState, LaunchedInstance, RemovalReason};
use tenon_domain::drain_block::DrainBlock;
use tenon_domain::evidence::HEARTBEAT_EVERY;
use tenon_domain::id::NodeName;
use tenon_domain::journal::Decision;
use tenon_domain::report::{Finding, Shown};
use tenon_domain::snapshot::ActionProgress;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_snapshot::ActionKind;

use crate::input::{LifecycleInput, NodeSeen};
use crate::step::{ClaimNext, LifecycleStep, subject};

/// How long a drain may be blocked before somebody is told: most obstacles are gone by then.
pub(crate) const TOLD_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// A drain that begins or continues.
#[derive(Clone, Copy)]
pub(crate) struct DrainIntent<'a> {
    pub(crate) instance: &'a LaunchedInstance,
    pub(crate) node: Option<&'a NodeName>,
    pub(crate) reason: RemovalReason,
    /// When it has to be over.
    pub(crate) deadline: Option<Timestamp>,
}

/// What is said of a drain that begins.
pub(crate) fn drains(claim: &Claim, reason: RemovalReason, why: &str) -> String {
    format!("draining NodeClaim `{}` ({}): {why}", claim.name, reason.words())
}

/// The deadline of a drain that begins now: the claim's `terminationGracePeriod` bounds it, and any other deadline
/// too.
pub(crate) fn deadline(claim: &Claim, other: Option<Timestamp>, input: &LifecycleInput) -> Option<Timestamp> {
    match claim.terms_or(input.pool_of(claim)) {
        Some(terms) => terms.deadline(input.now, other),
        None => other,
    }
}

/// The step to a drain that begins now.
pub(crate) fn drain(drain: DrainIntent<'_>, input: &LifecycleInput, message: String) -> LifecycleStep {
    let DrainIntent { instance, node, reason, deadline } = drain;
    let (instance, node) = (instance.clone(), node.cloned());
    let to = ClaimState::Draining { instance, node, reason, at: input.now, deadline };
    LifecycleStep { to, decision: Decision::Draining, message }
}

/// What follows for a claim that is being drained.
pub(crate) fn draining(claim: &Claim, drain: DrainIntent<'_>, input: &LifecycleInput) -> ClaimNext {
    let DrainIntent { instance, node, reason, deadline } = drain;
    let since = claim.state.since().unwrap_or(claim.created_at);
    let seen = input.node_of(instance, since);
    let progress = progress(claim, input);
    let message = if progress == Some(&ActionProgress::Done) {
        Some("drained: no evictable pod is left on the node".to_owned())
    } else if matches!(seen, NodeSeen::Absent) {
        Some("drained: the NodeClaim has no Node".to_owned())
    } else if deadline.is_some_and(|deadline| deadline <= input.now) {
        Some("drain ended: its deadline has passed".to_owned())
    } else {
        None
    };
    if let Some(message) = message {
        let (instance, node) = (instance.clone(), node.cloned());
        let to = ClaimState::Drained { instance, node, reason, at: input.now };
        return ClaimNext::step(LifecycleStep { to, decision: Decision::Drained, message });
    }
    // The snapshot is older than the drain: the agent's next heartbeat decides, even without a change.
    if matches!(seen, NodeSeen::Unknown) {
        let soon = input.now.saturating_add(HEARTBEAT_EVERY).unwrap_or(input.now);
        return ClaimNext::At(deadline.map_or(soon, |deadline| deadline.min(soon)));
    }
    let blocks = progress.map_or(&[][..], blocks);
    if blocks.is_empty() {
        return deadline.map_or(ClaimNext::Stay, ClaimNext::At);
    }
    let told_at = since.saturating_add(TOLD_AFTER).unwrap_or(since);
    if input.now < told_at {
        return ClaimNext::At(deadline.map_or(told_at, |deadline| deadline.min(told_at)));
    }
    ClaimNext::Tell { finding: Box::new(blocked(claim, blocks, deadline)), again: deadline }
}

/// How far the agent reports the claim's drain to be.
fn progress<'a>(claim: &Claim, input: &'a LifecycleInput) -> Option<&'a ActionProgress> {
    let action = input.actions.get(&claim.name).filter(|action| action.kind == ActionKind::Drain)?;
    input.progress_of(action)
}

fn blocks(progress: &ActionProgress) -> &[DrainBlock] {
    match progress {
        ActionProgress::Working { blocks, .. } => blocks,
        ActionProgress::Done => &[],
    }
}

/// What a person is told of a drain with these obstacles. It is another finding only where the obstacles are others: the
/// pods that they keep become fewer.
fn blocked(claim: &Claim, blocks: &[DrainBlock], deadline: Option<Timestamp>) -> Finding {
    let kinds = blocks.iter().map(|block| format!("{} {}", block.by, block.names.join(",")));
    let kinds = kinds.collect::<Vec<_>>().join("; ");
    let mut why = blocks.iter().map(DrainBlock::words).collect::<Vec<_>>().join("; ");
    if let Some(deadline) = deadline {
        why = format!("{why}; at {deadline} the instance is terminated anyway");
    }
    Finding::refused(subject(claim), "DrainBlocked", "{} isn't drained yet", why)
        .condition(kinds)
        .shown(Shown::DrainBlocked)
}
