//! Nodes whose time is over: `expireAfter` has passed, or EC2 announced something about their instance.
//!
//! Decides from when such a node is replaced, within its pool's budgets. `lifecycle` drains it whatever these say once its
//! last moment comes. A pool without a wait leaves expiry to `lifecycle` alone, as the peer does.

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::{ClaimPhase, RemovalReason};
use tenon_domain::pool_annotations::{expiry_wait_or_default, rebalance_order_or_default};

use super::input::{ClaimView, DisruptionInput};

/// When the node may be replaced for its age; `None` if never.
fn expires_at(input: &DisruptionInput, view: &ClaimView) -> Option<Timestamp> {
    let pool = input.pools.iter().find(|pool| pool.name == view.claim.pool);
    let at = view.claim.terms_or(pool)?.expires_at(view.claim.created_at)?;
    (expiry_wait_or_default(pool) > SignedDuration::ZERO).then_some(at)
}

/// Why the node waits to be replaced, if its time is over.
pub(crate) fn due(input: &DisruptionInput, view: &ClaimView) -> Option<RemovalReason> {
    if view.claim.phase() != ClaimPhase::Initialized {
        return None;
    }
    let pool = || input.pools.iter().find(|pool| pool.name == view.claim.pool);
    let is_replaced = |announced: &tenon_domain::claim::InstanceAnnouncement| {
        announced.is_replaced(rebalance_order_or_default(pool()))
    };
    if let Some(announced) = view.claim.announced.filter(is_replaced) {
        return Some(announced.removal());
    }
    expires_at(input, view).filter(|at| *at <= input.now).map(|_| RemovalReason::Expired)
}

/// For how long whatever keeps an expired node counts; then `lifecycle` drains it.
pub(crate) fn waits_for(input: &DisruptionInput, view: &ClaimView) -> Option<SignedDuration> {
    let pool = input.pools.iter().find(|pool| pool.name == view.claim.pool);
    let wait = expiry_wait_or_default(pool);
    expires_at(input, view).filter(|at| *at <= input.now).map(|_| wait)
}

/// When the next node expires.
pub(crate) fn next(input: &DisruptionInput) -> Option<Timestamp> {
    let living = input.claims.iter().filter(|view| view.claim.phase() == ClaimPhase::Initialized);
    living.filter_map(|view| expires_at(input, view)).filter(|at| input.now < *at).min()
}
