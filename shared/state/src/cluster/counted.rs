//! Pods counted on a claim, which no other plan counts.
//!
//! kube-scheduler binds pods as it likes, so a Node's counted pods may find their room taken by others. A pod without
//! room is pending again at once, and planned against the room that is left. A pod with room is kube-scheduler's to
//! bind; if the claim's window ends without a binding, it is pending again.
//!
//! Invariants: a claim counts a pod only while the pod exists under the same UID, unbound or on an interrupted node, and
//! while the claim counts pods; once the Node is there, it has room for the pod beside its bound pods and those counted
//! earlier.

use tenon_domain::Timestamp;
use tenon_domain::api::{Node, Pod};
use tenon_domain::claim::{Claim, PodsCounted};
use tenon_domain::id::Uid;
use tenon_domain::launch::LaunchClaim;
use tenon_domain::resources::ResourceList;

use super::ObservedCluster;

impl<'a> ObservedCluster<'a> {
    pub(super) fn count(&mut self) {
        // A pod in two plans belongs to the later one.
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
            planned.pods.iter().filter_map(|uid| Some((uid, *self.unbound.get(uid)?))).collect();
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

    /// The Node's reported resources, less those of its bound pods.
    fn room_on(&self, node: &Node) -> ResourceList {
        let here = self.bound.get(&node.name).map_or(&[][..], Vec::as_slice);
        let taken = ResourceList::sum(here.iter().map(|pod| &pod.shape.requests));
        node.allocatable.clone().without_zeroes().minus(&taken)
    }
}

/// Whether the pod fits. A resource that a starting Node doesn't report yet counts as available: the plan knew it.
fn has_room(room: &ResourceList, requests: &ResourceList) -> bool {
    requests.iter().all(|(name, requested)| !room.contains(name) || requested <= room.get(name))
}
