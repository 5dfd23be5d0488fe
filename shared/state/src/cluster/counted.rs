//! Which pods are counted on a claim, so that no other plan counts them.
//!
//! kube-scheduler binds pods as it likes: on a Node that takes pods, those that were planned for it may find their places
//! taken by pods that were planned for another. Whoever finds no room there any more is planned anew at once, against
//! the room that is really left; whoever still has room is kube-scheduler's to bind, and is planned anew when it didn't
//! within the claim's window.
//!
//! Invariants: a pod is counted on a claim only while it exists unbound under the same UID, the claim counts pods, and
//! its Node, once it is there, has room for it beside those that are bound there and counted before it.

use tenon_domain::Timestamp;
use tenon_domain::api::{Node, Pod};
use tenon_domain::claim::{Claim, PodsCounted};
use tenon_domain::id::Uid;
use tenon_domain::launch::LaunchClaim;
use tenon_domain::resources::ResourceList;

use super::ObservedCluster;

impl<'a> ObservedCluster<'a> {
    pub(super) fn count(&mut self) {
        // A pod that was planned twice belongs to the later plan.
        let mut launches: Vec<_> = self.view.launches.values().collect();
        launches.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        for launch in launches {
            for planned in &launch.claims {
                let Some(claim) = self.view.claims.get(&planned.name) else { continue };
                let counts = claim.counts_pods(self.view.now);
                if counts != PodsCounted::No {
                    self.count_on(claim, planned, counts);
                }
            }
        }
    }

    fn count_on(&mut self, claim: &Claim, planned: &'a LaunchClaim, counts: PodsCounted) {
        let mut waiting: Vec<(&'a Uid, &'a Pod)> =
            planned.pods.iter().filter_map(|pod| Some((&pod.uid, *self.unbound.get(&pod.uid)?))).collect();
        if waiting.is_empty() {
            return;
        }
        if let Some(mut room) = self.node_of(claim).map(|node| self.room_on(node)) {
            waiting.retain(|(_, pod)| {
                let finds_room = has_room(&room, &pod.shape.requests);
                if finds_room {
                    room.subtract(&pod.shape.requests);
                }
                finds_room
            });
        }
        if let (PodsCounted::Until(end), false) = (counts, waiting.is_empty()) {
            self.recount_at = Some(self.recount_at.map_or(end, |at: Timestamp| at.min(end)));
        }
        self.counted.extend(waiting.iter().map(|(uid, _)| (*uid, &planned.name)));
    }

    /// What a Node reports, without what is bound there.
    fn room_on(&self, node: &Node) -> ResourceList {
        let here = self.bound.get(&node.name).map_or(&[][..], Vec::as_slice);
        let taken = ResourceList::sum(here.iter().map(|pod| &pod.shape.requests));
        node.allocatable.clone().without_zeroes().minus(&taken)
    }
}

/// Whether the pod finds room. What a starting Node doesn't report yet is there: its plan knew it.
fn has_room(room: &ResourceList, requests: &ResourceList) -> bool {
    requests.iter().all(|(name, requested)| !room.contains(name) || requested <= room.get(name))
}
