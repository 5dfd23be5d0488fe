//! What it costs to move pods, in the peer's measure.
//!
//! Decides a pod's eviction cost from its deletion cost and priority. Whole numbers only, so sums are exact.
//!
//! Source: kubernetes-sigs/karpenter `pkg/utils/disruption/disruption.go`.

use tenon_domain::api::Pod;

/// The cost of an ordinary pod: a deletion cost of 2^27 doubles it, and so does a priority of 2^25.
pub(crate) const ORDINARY: i64 = 1 << 27;

/// A pod costs at most ten times as much, and at least minus ten times.
const MOST: i64 = 10 * ORDINARY;

/// A priority weighs as much as four times its value of deletion cost.
const PRIORITY: i64 = 4;

fn eviction(pod: &Pod) -> i64 {
    let (cost, priority) = (i64::from(pod.shape.deletion_cost), i64::from(pod.shape.priority));
    ORDINARY
        .saturating_add(cost)
        .saturating_add(priority.saturating_mul(PRIORITY))
        .clamp(MOST.saturating_neg(), MOST)
}

/// The cost of a node and its pods that would move. A pod that costs nothing, or less, adds nothing to it.
pub(crate) fn disruption(pods: &[Pod]) -> u64 {
    let moved = pods.iter().map(|pod| eviction(pod).max(0).unsigned_abs());
    moved.fold(ORDINARY.unsigned_abs(), u64::saturating_add)
}
