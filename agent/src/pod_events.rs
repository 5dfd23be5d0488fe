//! When pods last came to Nodes or left them: what NodeClaims show as `status.lastPodEventTime`.
//!
//! Decides the times only; a look that finds fewer pods on a Node is the time at which one left. Pods of DaemonSets and
//! static pods don't count: they say nothing of a Node's use.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/nodeclaim/podevents/controller.go`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_snapshot::object;
use tenon_snapshot::pod::{PodLife, PodRef, PodRunner};
use tenon_snapshot::snapshot::ClusterObjects;

/// The pods of Nodes at the last look, and the times until then.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodEvents {
    /// How many pods each Node had.
    counts: BTreeMap<String, usize>,
    latest: BTreeMap<String, Timestamp>,
}

impl PodEvents {
    /// Takes note of pods that came or left since the last look.
    pub(crate) fn observe(&mut self, objects: &ClusterObjects, now: Timestamp) {
        let stays = |pod: &&PodRef| {
            pod.life == PodLife::Active && pod.runner == PodRunner::Other && pod.deleted_at.is_none()
        };
        let mut seen: BTreeMap<&str, (usize, Option<Timestamp>)> = BTreeMap::new();
        for pod in objects.pods.iter().filter(stays) {
            let Some(node) = pod.node.as_deref() else { continue };
            let (count, bound_at) = seen.entry(node).or_default();
            *count += 1;
            *bound_at = (*bound_at).max(pod.bound_at.filter(|at| *at <= now));
        }
        let count_of = |node: &str| seen.get(node).map_or(0, |(count, _)| *count);
        let left: Vec<String> = self
            .counts
            .iter()
            .filter(|(node, had)| count_of(node) < **had)
            .map(|(node, _)| node.clone())
            .collect();
        let came = seen.iter().filter_map(|(node, (_, bound_at))| Some(((*node).to_owned(), (*bound_at)?)));
        for (node, at) in came.chain(left.into_iter().map(|node| (node, now))) {
            let latest = self.latest.entry(node).or_insert(at);
            *latest = (*latest).max(at);
        }
        let nodes: BTreeSet<&str> = objects.nodes.iter().map(|node| object::name(node)).collect();
        self.latest.retain(|node, _| nodes.contains(node.as_str()));
        self.counts = seen.into_iter().map(|(node, (count, _))| (node.to_owned(), count)).collect();
    }

    /// When a pod last came or left, by Node; nothing of Nodes that none is known of.
    pub(crate) const fn latest(&self) -> &BTreeMap<String, Timestamp> {
        &self.latest
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tenon_snapshot::pod::SeenPod;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A pod of the Node `n` by its name, its owner's kind, and when it was bound.
    fn pod((name, owner, bound_at): (&str, &str, i64)) -> PodRef {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": true}]);
        let bound = json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(bound_at).to_string()}]);
        let pod = SeenPod::read(&json!({"kind": "Pod",
            "metadata": {"name": name, "namespace": "a", "uid": name, "ownerReferences": owner},
            "spec": {"nodeName": "n"}, "status": {"conditions": bound}}));
        Arc::new(pod.unwrap())
    }

    #[test]
    fn a_pod_that_comes_or_leaves_is_an_event_of_its_node() {
        let mut events = PodEvents::default();
        let mut look = |pods: &[(&str, &str, i64)], now: i64| {
            let objects = ClusterObjects {
                pods: pods.iter().copied().map(pod).collect(),
                nodes: vec![Arc::new(json!({"kind": "Node", "metadata": {"name": "n"}}))],
                ..ClusterObjects::default()
            };
            events.observe(&objects, at(now));
            events.latest().get("n").map(|at| at.as_second())
        };
        let (web, other, daemon) =
            (("web", "ReplicaSet", 20), ("other", "Job", 30), ("log", "DaemonSet", 40));
        assert_eq!(look(&[], 10), None);
        assert_eq!(look(&[daemon], 45), None);
        assert_eq!(look(&[web, daemon], 50), Some(20));
        assert_eq!(look(&[web, other, daemon], 60), Some(30));
        assert_eq!(look(&[web, other], 70), Some(30));
        assert_eq!(look(&[web], 80), Some(80), "one left");
        assert_eq!(look(&[web], 90), Some(80));
        assert_eq!(look(&[], 100), Some(100));
    }
}
