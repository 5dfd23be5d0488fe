//! Groups of planned claims that share a launch.
//!
//! Decides which claims are equal, and how many of them one launch holds. It doesn't decide what a launch asks for.
//!
//! Invariants: a group holds at most [`CLAIMS_PER_LAUNCH`] claims and [`PODS_PER_LAUNCH`] pods; every claim is in
//! exactly one group.

use tenon_domain::launch::{CLAIMS_PER_LAUNCH, PODS_PER_LAUNCH};
use tenon_planning::provision::{AskReason, PlannedClaim};

use crate::fleet::EfaRequest;

/// Groups of equal claims, in the order of each group's first claim, cut to the size of a launch. A claim with
/// nothing but probes is alone: its launch takes more leases than fit beside several claims.
pub(super) fn groups(claims: &[PlannedClaim]) -> Vec<Vec<&PlannedClaim>> {
    let mut groups: Vec<Vec<&PlannedClaim>> = Vec::new();
    for claim in claims {
        let has_room = |group: &&mut Vec<&PlannedClaim>| {
            let pods: usize = group.iter().map(|claim| claim.pods.len()).sum();
            group.first().is_some_and(|first| equal(first, claim))
                && !asks_only(claim)
                && group.len() < CLAIMS_PER_LAUNCH
                && pods + claim.pods.len() <= PODS_PER_LAUNCH
        };
        match groups.iter_mut().find(has_room) {
            Some(group) => group.push(claim),
            None => groups.push(vec![claim]),
        }
    }
    groups
}

fn asks_only(claim: &PlannedClaim) -> bool {
    claim.offerings.iter().all(|offering| offering.asked == AskReason::Probe)
}

/// Whether one instance suits both claims.
fn equal(a: &PlannedClaim, b: &PlannedClaim) -> bool {
    (&a.pool, &a.class, &a.requirements, &a.labels) == (&b.pool, &b.class, &b.requirements, &b.labels)
        && (&a.taints, &a.startup_taints) == (&b.taints, &b.startup_taints)
        && EfaRequest::of(a) == EfaRequest::of(b)
        && a.offerings == b.offerings
}
