//! A pod between two looks: its own part, the part that equal pods share, and the part for a drain.
//!
//! Decides what is kept of a pod after reading. Up to 20,000 pods are in memory, and most are alike: equal needs are
//! stored once ([`PodNeeds`]), and a pod's own part has a few hundred bytes. Their JSON isn't kept.
//!
//! Invariants: equal needs are one shape; an unchanged pod is the same shared value.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use serde_json::Value;
use tenon_domain::api::pod::PodPhase;
use tenon_domain::id::Uid;
use tenon_domain::labels::DO_NOT_DISRUPT;
use tenon_domain::manifest;
use tenon_domain::taint::Taint;

use crate::object::{self, Kind, Object, ObjectKey, text};
use crate::snapshot::{pod_row, pod_shape, shape_digest};

/// A shared pod: listing thousands copies nothing.
pub type PodRef = Arc<SeenPod>;

/// With fewer shapes than this, unused ones aren't removed.
const FEW_SHAPES: usize = 64;

/// A pod that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenPod {
    /// Which.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: String,
    /// Its `resourceVersion`; empty where it has none.
    pub version: String,
    /// The Node that it is bound to.
    pub node: Option<String>,
    /// Whether its containers ended for good.
    pub life: PodLife,
    /// `status.phase`.
    pub phase: PodPhase,
    /// `metadata.creationTimestamp`.
    pub created_at: Option<Timestamp>,
    /// When it was bound: since when its condition `PodScheduled` is True.
    pub bound_at: Option<Timestamp>,
    /// Since when its condition `Ready` is True; `None` while it isn't.
    pub ready_at: Option<Timestamp>,
    /// `metadata.deletionTimestamp`.
    pub deleted_at: Option<Timestamp>,
    /// `status.startTime`.
    pub started_at: Option<Timestamp>,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_seconds: Option<i64>,
    /// The value of `karpenter.sh/do-not-disrupt`.
    pub do_not_disrupt: Option<String>,
    /// Whether the cluster can't do without it.
    pub criticality: Criticality,
    /// Its controller.
    pub runner: PodRunner,
    /// Whether it stays on a node that is being disrupted.
    pub disruption: PodDisruption,
    row: Box<str>,
    shape: Arc<PodNeeds>,
}

/// Whether a pod is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodLife {
    /// It waits, starts or runs.
    Active,
    /// `Succeeded` or `Failed`.
    Finished,
}

/// Whether a pod is critical.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Criticality {
    /// Its priority class is `system-cluster-critical` or `system-node-critical`.
    Critical,
    /// It isn't.
    Ordinary,
}

/// The controller of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodRunner {
    /// A DaemonSet.
    DaemonSet,
    /// The kubelet itself: a static pod, or the mirror of one.
    Kubelet,
    /// Any other controller, or none.
    Other,
}

/// A pod's behaviour on a disrupted node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodDisruption {
    /// It tolerates `karpenter.sh/disrupted`: it stays, and the drain doesn't wait for it.
    Tolerated,
    /// It must be evicted.
    Leaves,
}

/// Whether a pod's place depends on other pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacementOrder {
    /// kube-scheduler may refuse it until others run: it has a required topology spread.
    AfterOthers,
    /// It doesn't.
    Any,
}

/// The needs of equal pods.
#[derive(Debug, PartialEq, Eq)]
pub struct PodNeeds {
    digest: String,
    text: Box<str>,
    order: PlacementOrder,
}

impl PodNeeds {
    /// The digest that rows name it by.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether their places depend on other pods.
    #[must_use]
    pub const fn order(&self) -> PlacementOrder {
        self.order
    }

    /// Its JSON.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl SeenPod {
    /// Reads one pod, with its own shape; `None` without a name.
    #[must_use]
    pub fn read(pod: &Value) -> Option<Self> {
        PodNeedsSet::default().read(pod)
    }

    /// The pod's needs.
    #[must_use]
    pub const fn shape(&self) -> &Arc<PodNeeds> {
        &self.shape
    }

    /// The pod's own part, as JSON.
    #[must_use]
    pub fn row(&self) -> &str {
        &self.row
    }

    /// The pod with a deletion time that the API server hasn't reported yet.
    #[must_use]
    pub fn going(&self, at: Timestamp) -> Self {
        Self { deleted_at: Some(self.deleted_at.unwrap_or(at)), ..self.clone() }
    }

    /// The UID that snapshots give the pod while it is bound, by which claims count it: it follows from its name.
    #[must_use]
    pub fn counted_as(&self) -> Option<Uid> {
        match Uid::parse(self.key.name.as_str()) {
            Ok(_) => manifest::pod_uid(&self.key.namespace, &self.key.name).ok(),
            Err(_) => Uid::parse(self.uid.as_str()).ok(),
        }
    }

    /// Whether it waits for a node.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.node.is_none() && self.life == PodLife::Active && self.deleted_at.is_none()
    }

    /// Whether both are equal except for `resourceVersion`.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let own = self.uid == other.uid && self.row == other.row && self.life == other.life;
        own && self.shape == other.shape && self.do_not_disrupt == other.do_not_disrupt
    }
}

/// The shapes in use, each once.
#[derive(Debug, Default)]
pub struct PodNeedsSet {
    known: BTreeMap<String, Weak<PodNeeds>>,
    clean_at: usize,
}

impl PodNeedsSet {
    /// Reads a pod. Nothing without a name.
    pub fn read(&mut self, pod: &Value) -> Option<SeenPod> {
        let owner = |kind: &str| object::controller(pod).is_some_and(|of| text(of, "/kind") == Some(kind));
        let mirror = object::at(pod, "/metadata/annotations/kubernetes.io~1config.mirror").is_some();
        let disrupted = Taint::disrupted();
        let tolerates = object::tolerations(pod).iter().any(|toleration| toleration.tolerates(&disrupted));
        let critical = matches!(
            text(pod, "/spec/priorityClassName"),
            Some("system-cluster-critical" | "system-node-critical")
        );
        let kept = object::texts(pod, "/metadata/annotations").find(|(key, _)| *key == DO_NOT_DISRUPT);
        let of_node = object::list(pod, "/metadata/ownerReferences").iter().any(object::is_node_owner);
        let runner = if mirror || of_node {
            PodRunner::Kubelet
        } else if owner("DaemonSet") {
            PodRunner::DaemonSet
        } else {
            PodRunner::Other
        };
        let phase = match text(pod, "/status/phase") {
            None | Some("") => PodPhase::Pending,
            Some(phase) => PodPhase::parse(phase).unwrap_or(PodPhase::Unknown),
        };
        let finished = matches!(phase, PodPhase::Succeeded | PodPhase::Failed);
        Some(SeenPod {
            key: ObjectKey::new(Kind::Pod, namespace(pod), text(pod, "/metadata/name")?),
            uid: object::uid(pod).to_owned(),
            version: text(pod, "/metadata/resourceVersion").unwrap_or_default().to_owned(),
            node: text(pod, "/spec/nodeName").map(str::to_owned),
            life: if finished { PodLife::Finished } else { PodLife::Active },
            phase,
            created_at: object::time(pod, "/metadata/creationTimestamp"),
            bound_at: object::true_since(pod, "PodScheduled"),
            ready_at: object::true_since(pod, "Ready"),
            deleted_at: object::deleted_at(pod),
            started_at: object::time(pod, "/status/startTime"),
            grace_seconds: object::at(pod, "/spec/terminationGracePeriodSeconds").and_then(Value::as_i64),
            do_not_disrupt: kept.map(|(_, value)| value.to_owned()),
            criticality: if critical { Criticality::Critical } else { Criticality::Ordinary },
            runner,
            disruption: if tolerates { PodDisruption::Tolerated } else { PodDisruption::Leaves },
            row: pod_row(pod).to_string().into_boxed_str(),
            shape: self.intern(pod_shape(pod).to_string(), order(pod)),
        })
    }

    fn intern(&mut self, text: String, order: PlacementOrder) -> Arc<PodNeeds> {
        let digest = shape_digest(&text);
        if let Some(known) = self.known.get(&digest).and_then(Weak::upgrade) {
            return known;
        }
        if self.known.len() >= self.clean_at {
            self.known.retain(|_, shape| shape.strong_count() > 0);
            self.clean_at = self.known.len().saturating_mul(2).max(FEW_SHAPES);
        }
        let shape = Arc::new(PodNeeds { digest: digest.clone(), text: text.into_boxed_str(), order });
        self.known.insert(digest, Arc::downgrade(&shape));
        shape
    }
}

fn namespace(pod: &Value) -> &str {
    match object::namespace(pod) {
        "" => "default",
        namespace => namespace,
    }
}

fn order(pod: &Value) -> PlacementOrder {
    let mut spreads = object::list(pod, "/spec/topologySpreadConstraints").iter();
    let must = |spread: &Value| text(spread, "/whenUnsatisfiable") != Some("ScheduleAnyway");
    if spreads.any(must) { PlacementOrder::AfterOthers } else { PlacementOrder::Any }
}

/// Reads lists of pods repeatedly. An object is read once: it is known again by its shared pointer or its
/// `resourceVersion`.
#[derive(Debug, Default)]
pub struct PodReader {
    shapes: PodNeedsSet,
    seen: Vec<Object>,
    read: Vec<PodRef>,
}

impl PodReader {
    /// The pods of a list, in its order; those without a name are left out.
    pub fn read(&mut self, pods: &[Object]) -> Vec<PodRef> {
        let same = self.seen.len() == pods.len()
            && self.seen.iter().zip(pods).all(|(one, other)| Arc::ptr_eq(one, other));
        if same {
            return self.read.clone();
        }
        let mut known: BTreeMap<String, PodRef> =
            std::mem::take(&mut self.read).into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
        self.read = pods.iter().filter_map(|pod| self.shapes.read_again(pod, &mut known)).collect();
        self.seen = pods.to_vec();
        self.read.clone()
    }
}

impl PodNeedsSet {
    fn read_again(&mut self, pod: &Value, known: &mut BTreeMap<String, PodRef>) -> Option<PodRef> {
        let version = text(pod, "/metadata/resourceVersion").unwrap_or_default();
        match known.remove(object::uid(pod)) {
            Some(known) if known.version == version && !version.is_empty() => Some(known),
            Some(_) | None => self.read(pod).map(Arc::new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, version: u32, cpu: &str) -> Object {
        Arc::new(
            json!({"kind": "Pod", "metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]}}),
        )
    }

    #[test]
    fn the_needs_of_a_pod_name_its_controller_and_its_node() {
        let check = |owner: Value, expected: PodRunner| {
            let owners = json!([owner]);
            let pod = json!({"kind": "Pod", "metadata": {"name": "a", "ownerReferences": owners},
                "spec": {"containers": [{"name": "a"}]}});
            let read = PodNeedsSet::default().read(&pod).unwrap();
            assert_eq!(read.runner, expected);
            let named = object::at(&pod_shape(&pod), "/metadata/ownerReferences").cloned();
            assert_eq!(named, (expected != PodRunner::Other).then_some(owners));
        };
        let owner = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind, "name": "b", "uid": "u"});
        check(owner("v1", "Node"), PodRunner::Kubelet);
        check(owner("longhorn.io/v1beta2", "Node"), PodRunner::Other);
        check(owner("apps/v1", "ReplicaSet"), PodRunner::Other);
    }

    #[test]
    fn equal_needs_are_one_shape_while_somebody_has_them() {
        let mut reader = PodReader::default();
        let read = reader.read(&[pod("a", 1, "1"), pod("b", 1, "1"), pod("c", 1, "2")]);
        let [a, b, c] = &read[..] else { panic!("{read:?}") };
        assert!(Arc::ptr_eq(a.shape(), b.shape()) && !Arc::ptr_eq(a.shape(), c.shape()));
        let mut shapes = PodNeedsSet::default();
        for cpu in 0..1_000 {
            shapes.read(&pod("a", 1, &cpu.to_string())).unwrap();
        }
        assert!(shapes.known.len() <= FEW_SHAPES, "{}", shapes.known.len());
    }

    #[test]
    fn pods_with_a_required_spread_come_after_others() {
        let order = |spec: Value| {
            SeenPod::read(&json!({"metadata": {"name": "a"}, "spec": spec})).unwrap().shape().order()
        };
        let spread = |when: &str| json!({"topologySpreadConstraints": [{"whenUnsatisfiable": when}]});
        let affinity = "requiredDuringSchedulingIgnoredDuringExecution";
        assert_eq!(order(json!({})), PlacementOrder::Any);
        assert_eq!(order(spread("ScheduleAnyway")), PlacementOrder::Any);
        assert_eq!(order(spread("DoNotSchedule")), PlacementOrder::AfterOthers);
        for kind in ["podAffinity", "podAntiAffinity"] {
            assert_eq!(order(json!({"affinity": {kind: {affinity: [{}]}}})), PlacementOrder::Any);
        }
    }

    #[test]
    fn times_are_those_of_conditions_that_hold() {
        let read = |ready: &str| {
            SeenPod::read(&json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "status": {"phase": "Running", "conditions": [
                    {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"},
                    {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:09Z"}]}}))
            .unwrap()
        };
        let seconds = |at: Option<Timestamp>| at.map(|at| at.as_second() - 1_767_225_600);
        let pod = read("True");
        let times = [pod.created_at, pod.bound_at, pod.ready_at].map(seconds);
        assert_eq!((pod.phase, times), (PodPhase::Running, [Some(0), Some(5), Some(9)]));
        assert_eq!(read("False").ready_at, None);
    }

    #[test]
    fn what_did_not_change_is_the_same_pod() {
        let mut reader = PodReader::default();
        let before = reader.read(&[pod("a", 1, "1"), pod("b", 1, "1")]);
        let after = reader.read(&[pod("a", 1, "1"), pod("b", 2, "1")]);
        assert!(Arc::ptr_eq(&before[0], &after[0]) && !Arc::ptr_eq(&before[1], &after[1]));
        assert!(before[1].is_like(&after[1]));
    }
}
