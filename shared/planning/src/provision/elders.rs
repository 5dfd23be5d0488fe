//! Which of equal pods have the places of a plan: the oldest, as kube-scheduler tries them first.
//!
//! Decides single pods, not places. A round may leave older pods than the next one places, because it dealt them to
//! a domain without room. In the end the youngest wait.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::Pod;
use tenon_domain::id::Uid;
use tenon_domain::launch::CountedPod;

use super::needs::{PodGroup, counted};
use super::output::{Placement, PlannedClaim};
use super::rest::Rest;

/// The pods of each group, oldest first.
pub(crate) struct PodsByAge<'a>(Vec<Vec<&'a Pod>>);

impl<'a> PodsByAge<'a> {
    /// The pods of groups from which nothing is placed yet.
    pub(crate) fn of(groups: &[PodGroup<'a>]) -> Self {
        Self(groups.iter().map(|group| group.pods.clone()).collect())
    }

    /// Gives the places of each group to its oldest pods, in the order of those that had them.
    pub(crate) fn give(
        &self,
        rest: &mut Rest<'a>,
        placements: &mut [Placement],
        claims: &mut [PlannedClaim],
    ) {
        let mut instead: BTreeMap<&Uid, CountedPod> = BTreeMap::new();
        for (all, group) in self.0.iter().zip(&mut rest.groups) {
            let left = group.pods.len();
            let waits: BTreeSet<&Uid> = group.pods.iter().map(|pod| &pod.uid).collect();
            let placed: Vec<&Pod> = all.iter().filter(|pod| !waits.contains(&pod.uid)).copied().collect();
            if left == 0 || placed.len() + left != all.len() {
                continue;
            }
            instead.extend(placed.iter().zip(all).map(|(had, has)| (&had.uid, counted(has))));
            group.pods = all.iter().skip(placed.len()).copied().collect();
        }
        if instead.is_empty() {
            return;
        }
        let in_claims = claims.iter_mut().flat_map(|claim| &mut claim.pods);
        for pod in placements.iter_mut().map(|one| &mut one.pod).chain(in_claims) {
            if let Some(other) = instead.get(&pod.uid) {
                pod.clone_from(other);
            }
        }
        claims.iter_mut().for_each(|claim| claim.pods.sort());
    }
}
