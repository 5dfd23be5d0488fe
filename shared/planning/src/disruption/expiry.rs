//! Expired nodes: `expireAfter` has passed.
//!
//! Decides from when a node is replaced for its age, within its pool's budgets. `lifecycle` drains it whatever these say
//! once the pool's wait is over. A pool without a wait leaves expiry to `lifecycle` alone, as the peer does.

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::ClaimPhase;
use tenon_domain::pool_annotations::expiry_wait_or_default;

use super::input::{ClaimView, DisruptionInput};

/// When the node may be replaced for its age; `None` if never.
fn expires_at(input: &DisruptionInput, view: &ClaimView) -> Option<Timestamp> {
    let pool = input.pools.iter().find(|pool| pool.name == view.claim.pool);
    let at = view.claim.terms_or(pool)?.expires_at(view.claim.created_at)?;
    (expiry_wait_or_default(pool) > SignedDuration::ZERO).then_some(at)
}

/// Whether a node waits to be replaced for its age.
pub(crate) fn is_expired(input: &DisruptionInput, view: &ClaimView) -> bool {
    view.claim.phase() == ClaimPhase::Initialized && expires_at(input, view).is_some_and(|at| at <= input.now)
}

/// When the next node expires.
pub(crate) fn next(input: &DisruptionInput) -> Option<Timestamp> {
    let living = input.claims.iter().filter(|view| view.claim.phase() == ClaimPhase::Initialized);
    living.filter_map(|view| expires_at(input, view)).filter(|at| input.now < *at).min()
}
