//! Pods that only an API server refuses.
//!
//! Decides the warnings about specs that Tenon can place and `kubectl apply` rejects: one check for each rule of
//! Kubernetes' validation that says something about placement. It refuses nothing, and asks nothing of an object with a
//! UID: an API server accepted that one.
//!
//! Source: Kubernetes 1.35 `pkg/apis/core/validation/validation.go`, read 2026-11.

use std::collections::BTreeSet;

use super::{AllocatedResources, Container, ContainerResourceFields, KeepUnknown, PodSpec};
use crate::manifest::decode::Place;
use crate::resources::{PodResources, ResourceList, ResourceName};
use crate::taint::{TaintEffect, TolerationOperator};

/// Nano-units in one device.
const WHOLE_DEVICE: i128 = 1_000_000_000;

/// A rule: it warns of each place that breaks it.
type Refusal = fn(&PodSpec, &Place<'_>);

const REFUSALS: [Refusal; 8] = [
    fractions_of_devices,
    requests_beside_limits,
    less_than_the_containers,
    values_that_nothing_compares,
    seconds_that_nothing_ends,
    repeated_spreads,
    label_keys_without_selector,
    repeated_host_ports,
];

impl PodSpec {
    /// Warns of everything that an API server refuses.
    pub(super) fn warn_of_refusals(&self, place: &Place<'_>) {
        REFUSALS.iter().for_each(|refusal| refusal(self, place));
    }
}

fn warn(place: &Place<'_>, what: &str, remedy: &str) {
    place.warn(format!("{what}: an API server refuses it"), remedy);
}

fn each_container(spec: &PodSpec, place: &Place<'_>, check: impl Fn(&ContainerResourceFields, &Place<'_>)) {
    let lists: [(&str, &[Container]); 2] =
        [("initContainers", &spec.init_containers), ("containers", &spec.containers)];
    for (key, containers) in lists {
        let list = place.key(key);
        for (index, container) in containers.iter().enumerate() {
            check(&container.resources.0, &list.index(index).key("resources"));
        }
    }
}

/// Kubernetes' own resources, which may be overcommitted; others are devices.
fn is_native(name: &ResourceName) -> bool {
    let name = name.as_str();
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Devices are whole.
fn fractions_of_devices(spec: &PodSpec, place: &Place<'_>) {
    each_container(spec, place, |resources, place| {
        let lists: [(&str, &ResourceList); 2] =
            [("requests", &resources.requests), ("limits", &resources.limits)];
        for (key, list) in lists {
            let broken = |quantity: i128| quantity % WHOLE_DEVICE != 0;
            for (name, quantity) in list.iter().filter(|(name, q)| !is_native(name) && broken(q.nanos())) {
                let what = format!("`{quantity}` is a part of a device");
                warn(&place.key(key).key(name.as_str()), &what, "write an integer");
            }
        }
    });
}

/// A request is at most its limit; of devices and huge pages it is exactly the limit.
fn requests_beside_limits(spec: &PodSpec, place: &Place<'_>) {
    each_container(spec, place, |resources, place| {
        let requests = place.key("requests");
        for (name, request) in resources.requests.iter() {
            let exact = !is_native(name) || name.as_str().starts_with("hugepages-");
            let limit = resources.limits.get(name);
            let at = requests.key(name.as_str());
            if !resources.limits.contains(name) {
                if exact {
                    warn(&at, "the request has no limit", "add the same limit");
                }
            } else if exact && request != limit {
                let what = format!("the request `{request}` isn't the limit `{limit}`");
                warn(&at, &what, "write the same for both");
            } else if request > limit {
                let what = format!("the request `{request}` exceeds the limit `{limit}`");
                warn(&at, &what, "raise the limit");
            }
        }
    });
}

/// A pod requests at least what its containers request together.
fn less_than_the_containers(spec: &PodSpec, place: &Place<'_>) {
    let Some(level) = &spec.resources else { return };
    let containers = PodResources {
        pod_level: None,
        overhead: ResourceList::new(),
        ..spec.all_resources(&AllocatedResources::default())
    };
    let sum = containers.requests();
    let resources = place.key("resources");
    let requests = resources.key("requests");
    for (name, request) in level.0.requests.iter().filter(|(name, request)| *request < sum.get(name)) {
        let what = format!("`{request}` is less than the containers' requests, `{}`", sum.get(name));
        warn(&requests.key(name.as_str()), &what, "raise it");
    }
}

/// `Exists` takes no value.
fn values_that_nothing_compares(spec: &PodSpec, place: &Place<'_>) {
    let list = place.key("tolerations");
    for (index, toleration) in spec.tolerations.0.iter().enumerate() {
        if toleration.operator == TolerationOperator::Exists && !toleration.value.is_empty() {
            let what = "operator `Exists` takes no value";
            warn(&list.index(index).key("value"), what, "leave it out, or write `operator: Equal`");
        }
    }
}

/// `tolerationSeconds` ends only a toleration of `NoExecute`.
fn seconds_that_nothing_ends(spec: &PodSpec, place: &Place<'_>) {
    let list = place.key("tolerations");
    for (index, toleration) in spec.tolerations.0.iter().enumerate() {
        if toleration.toleration_seconds.is_some() && toleration.effect != Some(TaintEffect::NoExecute) {
            let what = "`tolerationSeconds` needs `effect: NoExecute`";
            warn(&list.index(index).key("tolerationSeconds"), what, "leave it out, or write the effect");
        }
    }
}

/// A topology key has one constraint for each action.
fn repeated_spreads(spec: &PodSpec, place: &Place<'_>) {
    let list = place.key("topologySpreadConstraints");
    let mut seen = BTreeSet::new();
    for (index, spread) in spec.topology_spread_constraints.0.iter().enumerate() {
        if !seen.insert((&spread.topology_key, spread.when_unsatisfiable)) {
            let what = "another constraint has the same `topologyKey` and `whenUnsatisfiable`";
            warn(&list.index(index), what, "keep one of them");
        }
    }
}

/// `matchLabelKeys` add keys to a `labelSelector` that hasn't them.
fn label_keys_without_selector(spec: &PodSpec, place: &Place<'_>) {
    let list = place.key("topologySpreadConstraints");
    for (index, spread) in spec.topology_spread_constraints.0.iter().enumerate() {
        let constraint = list.index(index);
        let keys = constraint.key("matchLabelKeys");
        let Some(selector) = &spread.selector else {
            if !spread.match_label_keys.is_empty() {
                warn(&keys, "`matchLabelKeys` need a `labelSelector`", "add it");
            }
            continue;
        };
        for key in &spread.match_label_keys {
            if selector.requirements.iter().any(|asked| asked.key() == key.as_str()) {
                warn(&keys, &format!("`labelSelector` has `{key}` too"), "keep one of them");
            }
        }
    }
}

/// A pod has each host port once. Addresses count as they are written: an absent one isn't `0.0.0.0`.
fn repeated_host_ports(spec: &PodSpec, place: &Place<'_>) {
    let list = place.key("containers");
    let mut seen = BTreeSet::new();
    for (index, container) in spec.containers.iter().enumerate() {
        let container_place = list.index(index);
        let ports = container_place.key("ports");
        for (index, KeepUnknown(port)) in container.ports.iter().enumerate() {
            let Some(host_port) = spec.host_port(port) else { continue };
            let number = host_port.port;
            if !seen.insert((host_port, port.host_ip.is_empty())) {
                let what = format!("host port `{number}` is given twice");
                warn(&ports.index(index), &what, "keep one of them");
            }
        }
    }
}
