//! What pods request and may use, by their shapes.
//!
//! Decides nothing: requests are those of plans. A shape is read once for as long as a pod has it, because there are a
//! thousand of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tenon_domain::manifest;
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{
    ContainerResources, InitContainer, InitRestart, PodResources, ResourceList, ResourceName,
};
use tenon_snapshot::object::{self, text};
use tenon_snapshot::pod::{PodNeeds, PodRef};

/// What a pod of one shape uses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PodUse {
    /// Its requests, `pods` among them. A list has a slot for eleven resources; this has those that there are.
    pub(super) requests: Box<[(ResourceName, Quantity)]>,
    /// Its limits, `pods` among them.
    pub(super) limits: Box<[(ResourceName, Quantity)]>,
    /// Its controller, as a path of the API server; empty without one.
    pub(super) owner: Box<str>,
}

impl PodUse {
    fn of(needs: &PodNeeds) -> Self {
        let shape: Value = serde_json::from_str(needs.text()).unwrap_or_default();
        let requests =
            manifest::pod_from_value(&shape).map(|pod| pod.shape.requests.clone()).unwrap_or_default();
        let boxed = |list: ResourceList| list.iter().map(|(name, amount)| (name.clone(), amount)).collect();
        Self { requests: boxed(requests), limits: boxed(limits(&shape)), owner: owner(&shape).into() }
    }
}

/// The shapes that were read.
#[derive(Debug, Default)]
pub(super) struct PodUses(BTreeMap<Box<str>, Arc<PodUse>>);

impl PodUses {
    /// What the pods use, in their order. Shapes without a pod are forgotten.
    pub(super) fn read(&mut self, pods: &[PodRef]) -> Vec<Arc<PodUse>> {
        let mut before = std::mem::take(&mut self.0);
        let mut read = |pod: &PodRef| {
            let digest = pod.shape().digest();
            if let Some(known) = self.0.get(digest) {
                return Arc::clone(known);
            }
            let (key, known) = before
                .remove_entry(digest)
                .unwrap_or_else(|| (digest.into(), Arc::new(PodUse::of(pod.shape()))));
            Arc::clone(self.0.entry(key).or_insert(known))
        };
        pods.iter().map(&mut read).collect()
    }
}

/// The limits of a pod, summed as its requests are.
fn limits(shape: &Value) -> ResourceList {
    let of = |container: &Value| ContainerResources {
        requests: object::at(container, "/resources/limits").and_then(manifest::part).unwrap_or_default(),
        ..ContainerResources::default()
    };
    let init = |container: &Value| InitContainer {
        resources: of(container),
        restart: match text(container, "/restartPolicy") {
            Some("Always") => InitRestart::Always,
            Some(_) | None => InitRestart::OnCompletion,
        },
    };
    let resources = PodResources {
        containers: object::list(shape, "/spec/containers").iter().map(of).collect(),
        init_containers: object::list(shape, "/spec/initContainers").iter().map(init).collect(),
        overhead: ResourceList::new(),
        pod_level: object::at(shape, "/spec").map(of),
    };
    resources.requests()
}

/// The controller's path, as the peer writes it.
fn owner(shape: &Value) -> String {
    let Some(owner) = object::controller(shape) else { return String::new() };
    let part = |pointer| text(owner, pointer).unwrap_or_default();
    let kind = part("/kind").to_lowercase();
    format!("/apis/{}/namespaces/{}/{kind}s/{}", part("/apiVersion"), object::namespace(shape), part("/name"))
}
