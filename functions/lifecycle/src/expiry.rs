//! Expiry: when a node is drained for its age.
//!
//! Decides the time after which nothing keeps an expired node. Until then `disruption` replaces it within its pool's
//! budgets.

use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::pool_annotations::expiry_wait_or_default;
use tenon_domain::{SignedDuration, Timestamp};

use crate::input::LifecycleInput;

/// When the claim is drained for its age; `None` if that is unknown or never. `disruption` replaces it earlier, where its
/// pool's budgets allow.
pub(crate) fn expiry(claim: &Claim, input: &LifecycleInput) -> Option<Timestamp> {
    let at = claim.terms_or(input.pool_of(claim))?.expires_at(claim.created_at)?;
    Some(at.saturating_add(expiry_wait(claim, input)).unwrap_or(Timestamp::MAX))
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
