//! Pods counted on a claim, which no other plan counts.
//!
//! kube-scheduler binds pods as it likes, so a Node's counted pods may find their room taken by others. A pod without
//! room is pending again at once, and planned against the room that is left. A pod with room is kube-scheduler's to
//! bind; if the claim's window ends without a binding, it is pending again.
//!
//! Invariants: a pod is counted on one claim at most; a claim counts a pod only while the pod exists under the same UID,
//! unbound or on an interrupted node, and while the claim counts pods; once the Node is there, it has room for the pod
//! beside its bound pods and those counted earlier.

use tenon_domain::Timestamp;
use tenon_domain::api::{Node, Pod};
use tenon_domain::claim::{Claim, PodsCounted};
use tenon_domain::id::Uid;
use tenon_domain::launch::LaunchClaim;
use tenon_domain::resources::ResourceList;

use super::ObservedCluster;

impl<'a> ObservedCluster<'a> {
    pub(super) fn count(&mut self) {
        // A pod of two claims belongs to the one that was launched later, if it has room there. It takes none on the other.
        let mut launches: Vec<_> = self.view.launches.values().collect();
        launches.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        for launch in launches {
            for planned in launch.claims.iter().rev() {
                let Some(claim) = self.view.claims.get(&planned.name) else { continue };
                let counts = claim.counts_pods(self.view.now);
                if counts != PodsCounted::No {
                    self.count_on(claim, planned, counts);
                }
            }
        }
    }

    fn count_on(&mut self, claim: &Claim, planned: &'a LaunchClaim, counts: PodsCounted) {
        let others = planned.pods.iter().filter(|uid| !self.counted.contains_key(*uid));
        let mut waiting: Vec<(&'a Uid, &'a Pod)> =
            others.filter_map(|uid| Some((uid, *self.unbound.get(uid)?))).collect();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::SignedDuration;
    use serde_json::{Value, json};
    use tenon_domain::claim::ClaimState;
    use tenon_domain::id::{ClientToken, LaunchId};
    use tenon_domain::launch::{Launch, LaunchCause, LaunchState};
    use tenon_domain::wake::FunctionName;
    use tenon_harness::cluster::{Cluster, pod};
    use tenon_harness::{FunctionWorld, WorldConfig, claims};
    use tenon_memory_table::block_on;
    use tenon_snapshot::SeenPod;
    use tenon_table::items::{keys, set};

    use super::*;
    use crate::heads::Watch;
    use crate::observe::{Caches, ClusterObservation, observe};
    use crate::view::{Want, Wants};

    const WANTS: Wants<'static> = Wants {
        function: FunctionName::Provisioner,
        parts: &[],
        sets: &[Want::Claims, Want::Launches],
        watch: Watch::Everything,
    };

    /// The Node of the n-th claim, with so much CPU.
    fn node(n: usize, cpu: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": claims::node_name(n).as_str(), "uid": format!("node-{n}"), "resourceVersion": "1", "labels": {}},
            "spec": {"providerID": format!("aws:///us-east-1a/{}", claims::instance_id(n))},
            "status": {"allocatable": {"cpu": cpu, "pods": "20"}, "conditions": []}})
    }

    /// The n-th claim, whose Node isn't ready yet, and its launch, of these pods. The second launch is later.
    fn put_claim(cluster: &Cluster, n: usize, pods: &[&str]) {
        let at = cluster.world.clock.now();
        let state = ClaimState::Registered { instance: claims::instance(n), node: claims::node_name(n), at };
        let launch = LaunchId::parse(format!("launch-{n}")).unwrap();
        let claim = Claim { launch, ..claims::claim(n, state) };
        let uid = |pod: &&str| Uid::parse(format!("uid-{pod}")).unwrap();
        let launch = Launch {
            id: claim.launch.clone(),
            revision: 2,
            pool: claim.pool.clone(),
            class: claim.class.clone(),
            token: ClientToken::parse(format!("tenon-{n}")).unwrap(),
            request: String::new(),
            made_from: None,
            reservation: None,
            placement: None,
            claims: vec![LaunchClaim { name: claim.name.clone(), pods: pods.iter().map(uid).collect() }],
            cause: LaunchCause::PendingPods,
            created_at: at + SignedDuration::from_secs(i64::try_from(n).unwrap()),
            state: LaunchState::Settled { at, instances: 1 },
        };
        cluster.put(set(keys::launch(&cluster.name, &launch.id), &launch)).unwrap();
        cluster.put(set(keys::claim(&cluster.name, &claim.name), &claim)).unwrap();
    }

    /// Checks on which of two claims the pods `a` and `b`, of one CPU each, are counted.
    fn check(nodes: [&str; 2], planned: [&[&str]; 2], expected: &[(&str, usize)]) {
        let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
        let mut cluster = Cluster::new(world, &["m5.large"]).unwrap();
        for (n, (cpu, pods)) in nodes.into_iter().zip(planned).enumerate() {
            put_claim(&cluster, n, pods);
            cluster.objects.nodes.push(Arc::new(node(n, cpu)));
        }
        let waiting = |name| Arc::new(SeenPod::read(&pod(name, "1", None)).unwrap());
        cluster.objects.pods = ["a", "b"].map(waiting).into();
        cluster.report().unwrap();
        let seen = block_on(observe(&cluster.world, &cluster.name, WANTS, &Caches::default())).unwrap();
        let ClusterObservation { view, snapshot, .. } = seen;
        let (registry, snapshot) = (view.registry.as_ref().unwrap(), snapshot.unwrap());
        let world = ObservedCluster::new(&cluster.name, registry, &view, &snapshot);
        let expected = expected.iter().map(|(pod, n)| (format!("uid-{pod}"), claims::claim_name(*n)));
        let counted = world.counted().into_iter().map(|(uid, claim)| (uid.to_string(), claim));
        assert_eq!(counted.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{nodes:?} {planned:?}");
    }

    #[test]
    fn a_pod_of_two_claims_is_counted_on_the_later_one_that_has_room() {
        check(["1", "1"], [&["a"], &["a"]], &[("a", 1)]);
        check(["1", "500m"], [&["a"], &["a"]], &[("a", 0)]);
        check(["500m", "500m"], [&["a"], &["a"]], &[]);
    }

    #[test]
    fn a_pod_that_is_counted_elsewhere_takes_no_room() {
        check(["1", "1"], [&["a", "b"], &["a"]], &[("a", 1), ("b", 0)]);
        check(["1", "500m"], [&["a", "b"], &["a"]], &[("a", 0)]);
    }
}
