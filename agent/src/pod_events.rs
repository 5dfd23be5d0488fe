//! When pods last came to Nodes or left them: what NodeClaims show as `status.lastPodEventTime`.
//!
//! Decides the times only; a look that finds fewer pods on a Node is the time at which one left. Pods of DaemonSets and
//! static pods don't count: they say nothing of a Node's use.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/nodeclaim/podevents/controller.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_snapshot::object::{self, Object, text};
use tenon_snapshot::pod::{PodLife, PodRef, PodRunner};
use tenon_snapshot::snapshot::ClusterObjects;

use crate::freed::{Keeps, keeps};

/// The field of NodeClaims' `status`.
const EVENT_FIELD: &str = "lastPodEventTime";
const EVENT_TIME: &str = "/status/lastPodEventTime";

/// The pods of Nodes at the last look, and the times until then.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodEvents {
    /// How many pods each Node had; none before the first look.
    counts: Option<BTreeMap<String, usize>>,
    latest: BTreeMap<String, Timestamp>,
    left: BTreeMap<String, Timestamp>,
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
        if self.counts.is_none() {
            self.left = shown_events(objects);
        }
        let left: Vec<String> = self
            .counts
            .iter()
            .flatten()
            .filter(|(node, had)| count_of(node) < **had)
            .map(|(node, _)| node.clone())
            .collect();
        let came = seen.iter().filter_map(|(node, (_, bound_at))| Some(((*node).to_owned(), (*bound_at)?)));
        self.left.extend(left.iter().map(|node| (node.clone(), whole_second(now))));
        for (node, at) in came.chain(left.into_iter().map(|node| (node, now))) {
            let latest = self.latest.entry(node).or_insert(at);
            *latest = (*latest).max(at);
        }
        let nodes: BTreeSet<&str> = objects.nodes.iter().map(|node| object::name(node)).collect();
        self.latest.retain(|node, _| nodes.contains(node.as_str()));
        let told = told_nodes(objects);
        self.left.retain(|node, _| told.contains(node.as_str()));
        self.counts = Some(seen.into_iter().map(|(node, (count, _))| (node.to_owned(), count)).collect());
    }

    /// When a pod last came or left, by Node; nothing of Nodes that none is known of.
    pub(crate) const fn latest(&self) -> &BTreeMap<String, Timestamp> {
        &self.latest
    }

    /// When a pod last left, by Node, of those that somebody asks for it. After a restart it is the event that NodeClaims show.
    pub(crate) const fn left(&self) -> &BTreeMap<String, Timestamp> {
        &self.left
    }
}

/// Not before the time.
fn whole_second(at: Timestamp) -> Timestamp {
    let begun = Timestamp::from_second(at.as_second()).unwrap_or(at);
    if begun < at { begun.saturating_add(SignedDuration::from_secs(1)).unwrap_or(at) } else { at }
}

/// The Nodes of which it is told when pods left: those of NodeClaims whose pool consolidates. A change of others would be
/// written for nobody.
fn told_nodes(objects: &ClusterObjects) -> BTreeSet<&str> {
    let claimed: BTreeSet<&str> =
        objects.node_claims.iter().filter_map(|claim| text(claim, "/status/nodeName")).collect();
    let ours = objects.nodes.iter().filter(|node| claimed.contains(object::name(node)));
    ours.filter(|node| keeps(objects, node) != Keeps::All).map(|node| object::name(node)).collect()
}

/// What NodeClaims show, by Node.
fn shown_events(objects: &ClusterObjects) -> BTreeMap<String, Timestamp> {
    let shown = |claim: &Object| {
        Some((text(claim, "/status/nodeName")?.to_owned(), object::time(claim, EVENT_TIME)?))
    };
    objects.node_claims.iter().filter_map(shown).collect()
}

/// NodeClaims as they are reported: with the time when a pod last left their Node, instead of that of its last event. Those
/// that come are among the pods that are reported.
#[derive(Debug, Default)]
pub(crate) struct ReportedClaims {
    /// The times of the last report.
    left: BTreeMap<String, Timestamp>,
    /// By name, so that an unchanged claim is the same object again.
    made: BTreeMap<String, ReportedClaim>,
}

#[derive(Debug)]
struct ReportedClaim {
    of: Object,
    left_at: Option<Timestamp>,
    object: Object,
}

impl ReportedClaims {
    /// Whether a report with these times says something else than the last one.
    pub(crate) fn is_news(&self, left: &BTreeMap<String, Timestamp>) -> bool {
        self.left != *left
    }

    /// The times of the report that was written last.
    pub(crate) fn wrote(&mut self, left: BTreeMap<String, Timestamp>) {
        self.left = left;
    }

    /// The claims with the times of the last report.
    pub(crate) fn as_before(&mut self, claims: &[Object]) -> Vec<Object> {
        let left = std::mem::take(&mut self.left);
        let with = self.with(claims, &left);
        self.left = left;
        with
    }

    /// The claims with these times.
    pub(crate) fn with(&mut self, claims: &[Object], left: &BTreeMap<String, Timestamp>) -> Vec<Object> {
        let mut before = std::mem::take(&mut self.made);
        for of in claims {
            let left_at = text(of, "/status/nodeName").and_then(|node| left.get(node).copied());
            let name = object::name(of).to_owned();
            let known = before.remove(&name);
            let known = known.filter(|known| Arc::ptr_eq(&known.of, of) && known.left_at == left_at);
            let made = known.unwrap_or_else(|| ReportedClaim {
                of: Arc::clone(of),
                left_at,
                object: reported_claim(of, left_at),
            });
            self.made.insert(name, made);
        }
        claims.iter().filter_map(|of| Some(Arc::clone(&self.made.get(object::name(of))?.object))).collect()
    }
}

fn reported_claim(of: &Object, left_at: Option<Timestamp>) -> Object {
    if object::at(of, EVENT_TIME).is_none() && left_at.is_none() {
        return Arc::clone(of);
    }
    let mut claim = Value::clone(of);
    if let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut) {
        let _shown = status.remove(EVENT_FIELD);
        status.extend(left_at.map(|at| (EVENT_FIELD.to_owned(), json!(format!("{at:.0}")))));
    }
    Arc::new(claim)
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
    fn it_is_told_of_nodes_that_consolidate_when_a_pod_left_them() {
        let check = |claimed: &str, after: &str, told: Option<i64>| {
            let mut events = PodEvents::default();
            let mut look = |pods: &[(&str, &str, i64)], now: i64| {
                let labels = json!({"karpenter.sh/nodepool": "default"});
                let claim =
                    json!({"kind": "NodeClaim", "metadata": {"name": "c"}, "status": {"nodeName": claimed}});
                let pool = json!({"kind": "NodePool", "metadata": {"name": "default"},
                    "spec": {"disruption": {"consolidateAfter": after}}});
                let node = json!({"kind": "Node", "metadata": {"name": "n", "labels": labels}});
                let objects = ClusterObjects {
                    pods: pods.iter().copied().map(pod).collect(),
                    nodes: vec![Arc::new(node)],
                    node_claims: vec![Arc::new(claim)],
                    node_pools: vec![Arc::new(pool)],
                    ..ClusterObjects::default()
                };
                events.observe(&objects, at(now));
            };
            look(&[("web", "ReplicaSet", 20)], 50);
            look(&[], 80);
            assert_eq!(events.left().get("n").map(|at| at.as_second()), told, "{claimed} {after}");
        };
        check("n", "5m", Some(80));
        check("n", "Never", None);
        check("other", "5m", None);
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
