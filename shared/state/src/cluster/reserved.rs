//! Free capacity of reservations between two queries of `node-classes` to EC2.
//!
//! Decides which claims of the cluster EC2's count didn't include. Other clusters' claims show only in EC2's
//! refusals.

use std::collections::BTreeMap;

use tenon_domain::Timestamp;
use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::id::ReservationId;
use tenon_domain::launch::LaunchState;
use tenon_domain::reservation::LaunchedInto;

use super::ObservedCluster;

impl ObservedCluster<'_> {
    /// By reservation, the number of claims whose instances were launched after that time, or are still to be
    /// launched.
    pub(super) fn launched_since(&self, asked: Timestamp) -> BTreeMap<ReservationId, u32> {
        let mut launched = BTreeMap::new();
        for claim in self.view.claims.values() {
            if let Some(into) = self.reservation_of(claim).filter(|_| self.is_later(claim, asked)) {
                let count: &mut u32 = launched.entry(into.id.clone()).or_default();
                *count = count.saturating_add(1);
            }
        }
        launched
    }

    /// The reservation that a claim has, or will have, an instance of.
    fn reservation_of<'c>(&'c self, claim: &'c Claim) -> Option<&'c LaunchedInto> {
        match claim.phase() {
            ClaimPhase::Planned => self.view.launches.get(&claim.launch)?.reservation.as_ref(),
            ClaimPhase::LaunchFailed | ClaimPhase::Terminated => None,
            ClaimPhase::Launched
            | ClaimPhase::Registered
            | ClaimPhase::Initialized
            | ClaimPhase::Disrupting
            | ClaimPhase::Draining
            | ClaimPhase::Drained
            | ClaimPhase::Terminating => claim.state.instance()?.reservation.as_ref(),
        }
    }

    /// Whether EC2 was queried before a claim's launch was answered.
    fn is_later(&self, claim: &Claim, asked: Timestamp) -> bool {
        match self.view.launches.get(&claim.launch).map(|launch| &launch.state) {
            Some(LaunchState::Requested { .. }) => true,
            Some(LaunchState::Settled { at, .. }) => *at >= asked,
            None => claim.created_at >= asked,
        }
    }
}
