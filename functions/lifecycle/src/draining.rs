//! Drains: how they begin, when they are over, and what a person is told of one that doesn't go on.
//!
//! Decides the deadline of a drain, also of one whose Node becomes unhealthy meanwhile, and its end. It doesn't decide which pods go when: the agent does.
//!
//! Invariants: a drain ends only with the agent's report, without a Node, at its deadline, or with an instance that fails
//! its status check and stops no pods; only the last two end it before load balancers had the time that their pool gives
//! them.

use tenon_domain::claim::{Claim, ClaimState, LaunchedInstance, RemovalReason};
use tenon_domain::drain_block::DrainBlock;
use tenon_domain::evidence::HEARTBEAT_EVERY;
use tenon_domain::id::NodeName;
use tenon_domain::journal::Decision;
use tenon_domain::labels::{LOAD_BALANCER_DEREGISTRATION, TERMINATION_TIMESTAMP};
use tenon_domain::report::{Finding, Shown};
use tenon_domain::snapshot::ActionProgress;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_snapshot::ActionKind;

use crate::input::{LifecycleInput, NodeSeen};
use crate::repair::{self, Health, dead, health};
use crate::step::{ClaimNext, LifecycleStep, STOPPED_GRACE, subject};

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

/// By how much an annotated end is earlier than the deadline that it shortens: the agent annotates the deadline itself,
/// in whole seconds.
const EARLIER_BY: SignedDuration = SignedDuration::from_secs(1);

/// The deadline of a drain that begins now: the claim's `terminationGracePeriod` bounds it, the annotation of its
/// NodeClaim, and any other deadline too.
pub(crate) fn deadline(claim: &Claim, other: Option<Timestamp>, input: &LifecycleInput) -> Option<Timestamp> {
    let other = other.into_iter().chain(annotated_end(claim, input)).min();
    match claim.terms_or(input.pool_of(claim)) {
        Some(terms) => terms.deadline(input.now, other),
        None => other,
    }
}

/// When the drain has to be over by the annotation of the claim's NodeClaim.
fn annotated_end(claim: &Claim, input: &LifecycleInput) -> Option<Timestamp> {
    let snapshot = input.snapshot_after(claim.created_at)?;
    let object = snapshot.node_claims.iter().find(|object| object.name == claim.name)?;
    object.meta.annotations.get(TERMINATION_TIMESTAMP)?.parse().ok()
}

/// The claim with an earlier deadline of its drain, and what is said of it: somebody annotated its NodeClaim with an
/// earlier end than the drain has.
pub(crate) fn shortened(claim: &Claim, input: &LifecycleInput) -> Option<(Claim, String)> {
    let mut after = claim.clone();
    let ClaimState::Draining { deadline, .. } = &mut after.state else { return None };
    let end = annotated_end(claim, input)?;
    let earlier = end.saturating_add(EARLIER_BY).unwrap_or(end);
    if deadline.is_some_and(|known| known < earlier) {
        return None;
    }
    *deadline = Some(end);
    after.revision = claim.revision.saturating_add(1);
    let message = format!(
        "the drain of NodeClaim `{}` ends at {end:.0}: its annotation `{TERMINATION_TIMESTAMP}` was set to that",
        claim.name
    );
    Some((after, message))
}

/// What an unhealthy Node makes of a drain that goes on.
pub(crate) enum UnhealthyDrain {
    /// It ends as soon as that of a Node that is repaired: the claim, and what is said of it.
    Ends(Box<Claim>, String),
    /// It stays as it is: when to look again, or why it isn't forced.
    Stays(ClaimNext),
}

/// The claim's drain, which may have begun for any reason: a Node that stays unhealthy is repaired, so nothing holds its pods
/// any longer. Without anything to wait for the drain ends anyway, and `draining` ends one that stops no pods.
pub(crate) fn forced(claim: &Claim, input: &LifecycleInput) -> UnhealthyDrain {
    let stays = UnhealthyDrain::Stays(ClaimNext::Stay);
    let ClaimState::Draining { instance, node, at, deadline, .. } = &claim.state else { return stays };
    let seen = input.node_of(instance, *at);
    let Some(found) = seen.node().filter(|_| drained(progress(claim, input), seen).is_none()) else {
        return stays;
    };
    let later = |time: SignedDuration| input.now.saturating_add(time).unwrap_or(Timestamp::MAX);
    let is_sooner = |end: Timestamp| deadline.is_none_or(|known| end < known);
    let (why, end) = match health(found, input) {
        Health::Unhealthy(due) if is_sooner(due) => return UnhealthyDrain::Stays(ClaimNext::At(due)),
        Health::TooMany(why) if is_sooner(later(STOPPED_GRACE)) => {
            return UnhealthyDrain::Stays(repair::refuse(claim, why, input));
        }
        Health::Replace { why, grace } if !grace.is_zero() && is_sooner(later(grace)) => (why, later(grace)),
        Health::Healthy | Health::Unhealthy(_) | Health::TooMany(_) | Health::Replace { .. } => return stays,
    };
    let (instance, node) = (instance.clone(), node.clone());
    let reason = RemovalReason::Unhealthy;
    let state = ClaimState::Draining { instance, node, reason, at: *at, deadline: Some(end) };
    let revision = claim.revision.saturating_add(1);
    let message = format!("the drain of NodeClaim `{}` ends at {end:.0}: {why}", claim.name);
    UnhealthyDrain::Ends(Box::new(Claim { state, revision, ..claim.clone() }), message)
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
    let passed = deadline.is_some_and(|deadline| deadline <= input.now);
    let message = match (drained(progress, seen), Deregistration::of(claim, seen, input)) {
        (Some(_), Some(wait)) if input.now < wait.until && !passed => {
            let ends = deadline.map_or(wait.until, |deadline| deadline.min(wait.until));
            return ClaimNext::Tell { finding: Box::new(wait.finding(claim, ends)), again: Some(ends) };
        }
        (Some(message), Some(wait)) => Some(format!("{message}; {}", wait.words(input.now))),
        (Some(message), None) => Some(message),
        (None, _) if passed => Some("drain ended: its deadline has passed".to_owned()),
        (None, _) => {
            let dead = seen.node().and_then(|found| dead(found, input));
            dead.map(|why| {
                format!("drain ended: {why}, and its kubelet doesn't report, so nothing stops its pods")
            })
        }
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

/// What is said of a drain that no pod and no volume holds any longer; `None` of another.
fn drained(progress: Option<&ActionProgress>, seen: NodeSeen<'_>) -> Option<String> {
    const EMPTY: &str = "drained: no evictable pod is left on the node";
    match (progress, seen) {
        (Some(ActionProgress::Done), _) => Some(EMPTY.to_owned()),
        (Some(ActionProgress::Left { volumes }), _) => {
            let names = volumes.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let (are, see) = match volumes.len() {
                1 => ("is still attached, and the end of the instance detaches it", "its VolumeAttachment"),
                _ => (
                    "are still attached, and the end of the instance detaches them",
                    "their VolumeAttachments",
                ),
            };
            let noun = if volumes.len() == 1 { "volume" } else { "volumes" };
            Some(format!("{EMPTY}; {noun} {names} {are}: see why {see} stayed"))
        }
        (Some(ActionProgress::Working { .. }) | None, NodeSeen::Absent) => {
            Some("drained: the NodeClaim has no Node".to_owned())
        }
        (
            Some(ActionProgress::Working { .. }) | None,
            NodeSeen::Unknown | NodeSeen::Present(_) | NodeSeen::Several,
        ) => None,
    }
}

/// The time that load balancers have to deregister an instance. Nothing tells when they have: their controllers don't
/// write it into the cluster.
struct Deregistration {
    /// How long their pool gives them.
    within: SignedDuration,
    /// Until when.
    until: Timestamp,
}

impl Deregistration {
    /// The time begins with the label that tells load balancers. The agent deletes the Node only once it has the label,
    /// which may be long after a drain begins.
    fn of(claim: &Claim, seen: NodeSeen<'_>, input: &LifecycleInput) -> Option<Self> {
        let within = claim.load_balancer_deregistration(input.pool_of(claim))?;
        if within.is_zero() {
            return None;
        }
        let began = claim.state.since().unwrap_or(claim.created_at);
        let labelled = seen.node().and_then(|node| node.meta.deleted_at).map_or(began, |at| at.max(began));
        Some(Self { within, until: labelled.saturating_add(within).unwrap_or(Timestamp::MAX) })
    }

    /// What is told of a drain that waits for nothing else, until this time.
    fn finding(&self, claim: &Claim, ends: Timestamp) -> Finding {
        let seconds = self.within.as_secs();
        let why = format!(
            "load balancers have {seconds} s from the drain's begin to deregister it, as \
             `{LOAD_BALANCER_DEREGISTRATION}` of NodePool `{}` says; it is terminated at {ends:.0}",
            claim.pool
        );
        let sentence = "{} is drained, and its instance stays";
        Finding::waiting(subject(claim), "LoadBalancerDeregistration", sentence, why)
    }

    /// What the record of the drain's end says of it.
    fn words(&self, now: Timestamp) -> String {
        let seconds = self.within.as_secs();
        if now < self.until {
            return format!(
                "its deadline left load balancers less than {seconds} s to deregister the instance"
            );
        }
        format!("load balancers had {seconds} s to deregister the instance")
    }
}

/// How far the agent reports the claim's drain to be.
fn progress<'a>(claim: &Claim, input: &'a LifecycleInput) -> Option<&'a ActionProgress> {
    let action = input.actions.get(&claim.name).filter(|action| action.kind == ActionKind::Drain)?;
    input.progress_of(action)
}

fn blocks(progress: &ActionProgress) -> &[DrainBlock] {
    match progress {
        ActionProgress::Working { blocks, .. } => blocks,
        ActionProgress::Done | ActionProgress::Left { .. } => &[],
    }
}

/// What a person is told of a drain with these obstacles. It is another finding only where the obstacles are others: the
/// pods that they keep become fewer.
fn blocked(claim: &Claim, blocks: &[DrainBlock], deadline: Option<Timestamp>) -> Finding {
    let kinds = blocks.iter().map(|block| format!("{} {}", block.by, block.names.join(",")));
    let kinds = kinds.collect::<Vec<_>>().join("; ");
    let mut why = blocks.iter().map(DrainBlock::words).collect::<Vec<_>>().join("; ");
    if let Some(deadline) = deadline {
        why = format!("{why}; at {deadline:.0} the instance is terminated anyway");
    }
    Finding::refused(subject(claim), "DrainBlocked", "{} isn't drained yet", why)
        .condition(kinds)
        .shown(Shown::DrainBlocked)
}
