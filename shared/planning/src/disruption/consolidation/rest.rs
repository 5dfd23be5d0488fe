//! The rest of moved pods: a pod that a consolidation moved isn't moved for little again soon.
//!
//! Decides what a move must save beside the pool's own minimum, for pods that were moved lately. Where pods come and go, a
//! node is freed and needed again by turns; without a rest each turn evicts the same pods. A pod counts as moved if it was
//! bound while the nodes of a consolidation left. A pod that a user scaled up at that moment does too, so it may rest for
//! nothing.

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::Pod;
use tenon_domain::money::UsdPerHour;

use crate::disruption::input::MovingTime;

/// A thousandth is the smallest share.
const WHOLE: u64 = 1_000;

/// The number of these pods that were moved within the rest.
pub(super) fn moved(pods: &[Pod], times: &[MovingTime], rest: SignedDuration, now: Timestamp) -> usize {
    pods.iter().filter(|pod| missing(pod, times, rest, now) > 0).count()
}

/// What a move of the node must save for its moved pods. Right after they moved nothing is enough. After half of the rest it
/// is the node's price, if all were moved, so that the node may go without a replacement; after all of it, nothing.
pub(super) fn worth(
    price: UsdPerHour,
    pods: &[Pod],
    times: &[MovingTime],
    (rest, now): (SignedDuration, Timestamp),
) -> UsdPerHour {
    let missing = pods.iter().map(|pod| missing(pod, times, rest, now)).fold(0, u64::saturating_add);
    let count = u128::from(WHOLE) * u128::try_from(pods.len().max(1)).unwrap_or(u128::MAX);
    let nanos = u128::from(price.nanos()).saturating_mul(missing.into()).checked_div(count);
    UsdPerHour::from_nanos(nanos.and_then(|nanos| u64::try_from(nanos).ok()).unwrap_or(u64::MAX))
}

/// By how much the rest exceeds the time since the pod was moved, in thousandths of that time; zero for other pods.
fn missing(pod: &Pod, times: &[MovingTime], rest: SignedDuration, now: Timestamp) -> u64 {
    // Most pods are older, and need no search.
    let young = pod.bound_at.filter(|at| now.duration_since(*at) < rest);
    let Some(bound) = young.filter(|at| times.iter().any(|time| time.holds(*at))) else { return 0 };
    let since = u64::try_from(now.duration_since(bound).as_secs()).unwrap_or(0).max(1);
    let rest = u64::try_from(rest.as_secs()).unwrap_or(0);
    rest.saturating_mul(WHOLE).checked_div(since).unwrap_or(0).saturating_sub(WHOLE)
}
