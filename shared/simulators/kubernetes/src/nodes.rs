//! Instances and their Nodes: a kubelet joins, is Ready, falls silent; the cloud controller deletes its Node.
//!
//! Decides the Node's conditions, and the taints that follow from them. It doesn't decide the agent's changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::taint::{NOT_READY, UNREACHABLE};

use super::state::{ClusterState, Timer};
use super::store::{child, set_condition};
use tenon_snapshot::object::{self, Kind, ObjectKey, text};

/// An instance that boots, and the Node that its kubelet makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// The Node's name.
    pub name: String,
    /// `spec.providerID`; names the instance.
    pub provider_id: String,
    /// Labels that the kubelet sets.
    pub labels: BTreeMap<String, String>,
    /// Taints with which the kubelet registers, in Kubernetes' form.
    pub taints: Vec<Value>,
    /// `status.capacity`.
    pub capacity: BTreeMap<String, String>,
    /// `status.allocatable`.
    pub allocatable: BTreeMap<String, String>,
    /// From now until the kubelet makes its Node.
    pub joins_after: SignedDuration,
    /// From then until it is Ready.
    pub ready_after: SignedDuration,
}

/// A kubelet.
#[derive(Debug)]
pub(super) struct SimulatedKubelet {
    spec: NodeSpec,
    power: Power,
}

/// Whether an instance runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    /// It runs, but its kubelet doesn't.
    Silent,
    Off,
}

impl ClusterState {
    pub(super) fn boot(&mut self, spec: NodeSpec) {
        let instance = spec.provider_id.clone();
        self.after(spec.joins_after, Timer::Join(instance.clone()));
        self.kubelets.insert(instance, SimulatedKubelet { spec, power: Power::On });
    }

    pub(super) fn power_off(&mut self, instance: &str) {
        let Some(kubelet) = self.kubelets.get_mut(instance) else { return };
        let before = std::mem::replace(&mut kubelet.power, Power::Off);
        match before {
            Power::On => self.after(self.config.unreachable_after, Timer::Unreachable(instance.to_owned())),
            Power::Silent if !self.is_ready(instance) => self.notice_end(instance),
            Power::Silent | Power::Off => {}
        }
    }

    pub(super) fn silence(&mut self, instance: &str) {
        let Some(kubelet) = self.kubelets.get_mut(instance).filter(|kubelet| kubelet.power == Power::On)
        else {
            return;
        };
        kubelet.power = Power::Silent;
        self.after(self.config.unreachable_after, Timer::Unreachable(instance.to_owned()));
    }

    pub(super) fn is_silent(&self, instance: &str) -> bool {
        self.kubelets.get(instance).is_some_and(|kubelet| kubelet.power == Power::Silent)
    }

    fn is_ready(&self, instance: &str) -> bool {
        let node = self.node_of(instance).and_then(|key| self.store.get(&key));
        node.is_some_and(|node| object::condition(node, "Ready") == Some("True"))
    }

    /// The cloud controller looks at Nodes that aren't Ready, and deletes those without an instance.
    fn notice_end(&mut self, instance: &str) {
        self.after(self.config.cloud_controller_after, Timer::CloudController(instance.to_owned()));
    }

    /// Whether the node's kubelet runs pods: its instance runs, its Node exists, and was Ready once.
    pub(super) fn is_served(&self, node: &str) -> bool {
        let Some(object) = self.store.get(&ObjectKey::node(node)) else { return false };
        match text(object, "/spec/providerID").and_then(|instance| self.kubelets.get(instance)) {
            Some(kubelet) => kubelet.power == Power::On && object::condition(object, "Ready") == Some("True"),
            // A hand-made Node is served while its condition Ready is True.
            None => object::condition(object, "Ready") == Some("True"),
        }
    }

    pub(super) fn join(&mut self, instance: &str) {
        let Some(kubelet) = self.kubelets.get(instance).filter(|kubelet| kubelet.power == Power::On) else {
            return;
        };
        let spec = kubelet.spec.clone();
        let mut labels = spec.labels;
        labels.entry("kubernetes.io/hostname".to_owned()).or_insert_with(|| spec.name.clone());
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": spec.name, "labels": labels},
            "spec": {"providerID": spec.provider_id, "taints": spec.taints},
            "status": {"capacity": spec.capacity, "allocatable": spec.allocatable},
        });
        set_condition(&mut node, "Ready", "False", "KubeletNotReady", self.now);
        set_taint(&mut node, json!({"key": NOT_READY, "effect": "NoSchedule"}));
        // A Node of that name that is still there is another's: the kubelet tries again with the next instance.
        if self.store.create(node, self.now).is_ok() {
            self.after(spec.ready_after, Timer::Ready(instance.to_owned()));
        }
    }

    pub(super) fn become_ready(&mut self, instance: &str) {
        let now = self.now;
        let on = self.kubelets.get(instance).is_some_and(|kubelet| kubelet.power == Power::On);
        let Some(key) = self.node_of(instance).filter(|_| on) else { return };
        self.store.change(&key, |node| {
            set_condition(node, "Ready", "True", "KubeletReady", now);
            drop_taints(node, NOT_READY);
        });
        let pods: Vec<_> = self.store.pods_on(&key.name).map(Arc::clone).collect();
        for pod in pods {
            if let Some(key) = ObjectKey::of(&pod) {
                self.observe_bound_pod(&key, &pod);
            }
        }
    }

    pub(super) fn become_unreachable(&mut self, instance: &str) {
        let now = self.now;
        let Some(key) = self.node_of(instance) else { return };
        self.store.change(&key, |node| {
            set_condition(node, "Ready", "Unknown", "NodeStatusUnknown", now);
            drop_taints(node, NOT_READY);
            for effect in ["NoSchedule", "NoExecute"] {
                set_taint(node, json!({"key": UNREACHABLE, "effect": effect, "timeAdded": now.to_string()}));
            }
        });
        let pods: Vec<ObjectKey> =
            self.store.pods_on(&key.name).filter_map(|pod| ObjectKey::of(pod)).collect();
        for pod in pods {
            self.store.change(&pod, |pod| set_condition(pod, "Ready", "False", "NodeNotReady", now));
        }
        if self.kubelets.get(instance).is_some_and(|kubelet| kubelet.power == Power::Off) {
            self.notice_end(instance);
        }
    }

    /// The cloud controller: deletes a Node that isn't Ready and has no instance; finalizers delay it.
    pub(super) fn delete_node_of(&mut self, instance: &str) {
        if let Some(key) = self.node_of(instance) {
            let _deleted = self.store.delete(&key, None, self.now);
        }
    }

    fn node_of(&self, instance: &str) -> Option<ObjectKey> {
        let name = &self.kubelets.get(instance)?.spec.name;
        let key = ObjectKey::new(Kind::Node, "", name.as_str());
        let node = self.store.get(&key)?;
        (text(node, "/spec/providerID") == Some(instance)).then_some(key)
    }
}

/// Adds a taint where there is none of its key and effect.
fn set_taint(node: &mut Value, taint: Value) {
    let taints = child(node, "spec").entry("taints").or_insert_with(|| json!([]));
    let same = |known: &Value| {
        text(known, "/key") == text(&taint, "/key") && text(known, "/effect") == text(&taint, "/effect")
    };
    if let Some(list) = taints.as_array_mut()
        && !list.iter().any(same)
    {
        list.push(taint);
    }
}

fn drop_taints(node: &mut Value, key: &str) {
    if let Some(Value::Array(list)) = child(node, "spec").get_mut("taints") {
        list.retain(|taint| text(taint, "/key") != Some(key));
    }
}
