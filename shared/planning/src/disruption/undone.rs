//! Commands that were undone for want of a replacement, and when their candidates are tried again.
//!
//! Decides how long a command waits for a replacement, and the wait after it. It doesn't decide when a command of which no
//! replacement failed ends.
//!
//! Invariant: each undone command of the same disruption doubles the wait, from [`FIRST_WAIT`] to [`LONGEST_WAIT`], so
//! that a node's taint doesn't come and go, and other candidates have their turn.

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::{Claim, RemovalReason};
use tenon_domain::wait::doubled;

use super::input::{DisruptionInput, UndoneCommand};
use super::output::{NotDisrupted, RefusalReason};

/// How long after its begin a command goes on to plan replacements for failed ones: the shortest limit of the peer's
/// commands. Meanwhile its candidates' taint keeps pods out. Source: kubernetes-sigs/karpenter
/// `pkg/controllers/disruption/queue.go`.
pub(crate) const UNREPLACED_FOR: SignedDuration = SignedDuration::from_mins(10);
/// The wait after the first command.
const FIRST_WAIT: SignedDuration = SignedDuration::from_mins(10);
/// Never longer than this.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(2);

/// When a candidate is tried again whose command is undone now.
pub(crate) fn next_try(input: &DisruptionInput, claim: &Claim, why: RemovalReason) -> Timestamp {
    after(input.now, undone(input, claim, why).count())
}

/// Refuses a candidate whose command was undone lately.
pub(crate) fn rested(input: &DisruptionInput, claim: &Claim, why: RemovalReason) -> Result<(), NotDisrupted> {
    let Some(last) = undone(input, claim, why).map(|one| one.at).max() else { return Ok(()) };
    let until = after(last, undone(input, claim, why).count().saturating_sub(1));
    if until <= input.now {
        return Ok(());
    }
    Err(NotDisrupted { reason: RefusalReason::NotReplacedLately { until }, again: Some(until) })
}

/// The undone commands of the claim's disruption. A later drift is another one, and so is one to something else: the edit
/// that made it may be what was missing.
fn undone<'a>(
    input: &'a DisruptionInput,
    claim: &'a Claim,
    why: RemovalReason,
) -> impl Iterator<Item = &'a UndoneCommand> {
    let drift = claim.drift.as_ref().filter(|_| why == RemovalReason::Drifted);
    let drift = drift.map(|drift| (drift.since, drift.target()));
    input.undone.iter().filter(move |one| {
        let same = |(since, target): &(Timestamp, String)| {
            *since <= one.at && one.drifted_to.as_ref().is_none_or(|had| had == target)
        };
        one.claim == claim.name && one.reason == why && drift.as_ref().is_none_or(same)
    })
}

/// The end of the wait after a command, before which so many were undone.
fn after(at: Timestamp, before: usize) -> Timestamp {
    let wait = doubled(FIRST_WAIT, u32::try_from(before).unwrap_or(u32::MAX), LONGEST_WAIT);
    at.saturating_add(wait).unwrap_or(Timestamp::MAX)
}
