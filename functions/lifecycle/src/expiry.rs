//! Expiry and announcements: when a node is drained for its age, or for what EC2 will do.
//!
//! Decides the time after which nothing keeps such a node. Until then `disruption` replaces it within its pool's
//! budgets.

use tenon_domain::claim::{Claim, ClaimPhase, InstanceAnnouncement};
use tenon_domain::pool_annotations::{expiry_wait_or_default, rebalance_order_or_default};
use tenon_domain::{SignedDuration, Timestamp};

use crate::input::LifecycleInput;

/// When the claim is drained for its age; `None` if that is unknown or never. `disruption` replaces it earlier, where its
/// pool's budgets allow.
pub(crate) fn expiry(claim: &Claim, input: &LifecycleInput) -> Option<Timestamp> {
    let at = claim.terms_or(input.pool_of(claim))?.expires_at(claim.created_at)?;
    Some(at.saturating_add(expiry_wait(claim, input)).unwrap_or(Timestamp::MAX))
}

/// What EC2 announced about the claim's instance, and when nothing keeps its node any longer.
pub(crate) fn announced(claim: &Claim, input: &LifecycleInput) -> Option<(InstanceAnnouncement, Timestamp)> {
    let announced = claim.announced?;
    Some((announced, announced.forced_at(rebalance_order_or_default(input.pool_of(claim)))?))
}

/// The next moment at which nothing keeps the claim's node any longer.
pub(crate) fn last_moment(claim: &Claim, input: &LifecycleInput) -> Option<Timestamp> {
    [expiry(claim, input), announced(claim, input).map(|(_, at)| at)].into_iter().flatten().min()
}

/// How long the expired claim waits for its pool's budgets; one whose Node never took pods, or that leaves, doesn't.
pub(crate) fn expiry_wait(claim: &Claim, input: &LifecycleInput) -> SignedDuration {
    match claim.phase() {
        ClaimPhase::Initialized | ClaimPhase::Disrupting => expiry_wait_or_default(input.pool_of(claim)),
        ClaimPhase::Planned
        | ClaimPhase::LaunchFailed
        | ClaimPhase::Launched
        | ClaimPhase::Registered
        | ClaimPhase::Draining
        | ClaimPhase::Drained
        | ClaimPhase::Terminating
        | ClaimPhase::Terminated => SignedDuration::ZERO,
    }
}
