//! Pods and what their templates ask for.
//!
//! Decides what a pod needs of its node, with the defaults that the API server fills in. Sums over containers are those
//! of [`PodResources`]; priorities of classes come from [`super::priority`].

use std::collections::{BTreeMap, BTreeSet};

use crate::api::meta::{ObjectMeta, OwnerReference, OwnerRole};
use crate::api::pod::{
    DoNotDisrupt, HostPort, Pod, PodOrigin, PodPhase, PodShape, PodVolume, Readiness, SchedulingVerdict,
};
use crate::digest::Digest;
use crate::id::{NamespacedName, NodeName, ParseIdError, Uid};
use crate::labels;
use crate::resources::{ContainerResources, InitContainer, InitRestart, PodResources, ResourceList};
use crate::taint::{TaintEffect, Toleration, TolerationOperator};

use super::affinity;
use super::decode::{At, Fields};
use super::duration;
use super::meta::{Scope, read_meta};
use super::priority::Completeness;

/// Kubernetes' default of `terminationGracePeriodSeconds`.
const GRACE_SECONDS: u32 = 30;
const STATIC_POD: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(super) fn read_pod(at: At<'_>) -> Option<Pod> {
    let before = at.context().errors();
    let meta = read_meta(at, Scope::Namespaced, Fields::Any)?;
    let spec = at.required_object("spec", Fields::Any)?;
    let status = at.object("status", Fields::Any);
    let owner = meta.owners.iter().find(|owner| owner.role == OwnerRole::Controller).cloned();
    let shape = read_shape(spec, status, &meta, owner);
    let node =
        spec.field("nodeName").filter(|f| f.text() != Some("")).and_then(|field| field.id(NodeName::parse));
    let phase = status.and_then(|status| status.field("phase").and_then(read_phase)).unwrap_or_default();
    let uid = meta.uid.clone().or_else(|| pod_uid(&meta.namespace, &meta.name).ok())?;
    let pod = Pod {
        name: NamespacedName { namespace: meta.namespace, name: meta.name },
        uid,
        created_at: meta.created_at,
        started_at: status.and_then(|status| status.timestamp("startTime")),
        scheduling: status.map(|status| read_verdict(status, node.as_ref())).unwrap_or_default(),
        node,
        phase,
        readiness: status.map(read_readiness).unwrap_or_default(),
        deleted_at: meta.deleted_at,
        shape: at.context().shapes.borrow_mut().intern(shape),
    };
    (at.context().errors() == before).then_some(pod)
}

/// The UID of a pod whose own nobody knows: always the same for a name, in the form of a UUID.
///
/// # Errors
/// None: a UUID is a UID.
pub fn pod_uid(namespace: &str, name: &str) -> Result<Uid, ParseIdError> {
    let hex = Digest::of_texts(["pod", namespace, name]).hex();
    let parts: Vec<&str> =
        [0..8, 8..12, 12..16, 16..20, 20..32].into_iter().filter_map(|range| hex.get(range)).collect();
    Uid::parse(parts.join("-"))
}

fn read_phase(at: At<'_>) -> Option<PodPhase> {
    Some(match at.text()? {
        "Pending" => PodPhase::Pending,
        "Running" => PodPhase::Running,
        "Succeeded" => PodPhase::Succeeded,
        "Failed" => PodPhase::Failed,
        _ => PodPhase::Unknown,
    })
}

/// A condition's status and reason.
fn condition(status: At<'_>, kind: &str) -> Option<(String, String)> {
    let list = status.list("conditions")?;
    let found = list.items().find(|item| item.tree().text("type") == Some(kind))?;
    let text = |key| found.tree().text(key).unwrap_or_default().to_owned();
    Some((text("status"), text("reason")))
}

fn read_readiness(status: At<'_>) -> Readiness {
    match condition(status, "Ready") {
        Some((value, _)) if value == "True" => Readiness::Ready,
        Some(_) | None => Readiness::NotReady,
    }
}

fn read_verdict(status: At<'_>, node: Option<&NodeName>) -> SchedulingVerdict {
    if node.is_some() {
        return SchedulingVerdict::None;
    }
    if status.text_of("nominatedNodeName").is_some_and(|name| !name.is_empty()) {
        return SchedulingVerdict::Nominated;
    }
    match condition(status, "PodScheduled") {
        Some((value, reason)) if value == "False" => match reason.as_str() {
            "Unschedulable" => SchedulingVerdict::Unschedulable,
            "SchedulingGated" => SchedulingVerdict::Gated,
            _ => SchedulingVerdict::None,
        },
        Some(_) | None => SchedulingVerdict::None,
    }
}

/// Reads what a pod, or a template's pods, need.
pub(super) fn read_shape(
    spec: At<'_>,
    status: Option<At<'_>>,
    meta: &ObjectMeta,
    owner: Option<OwnerReference>,
) -> PodShape {
    let priority_class = spec.text_of("priorityClassName").unwrap_or_default();
    let mut shape = PodShape {
        namespace: meta.namespace.clone(),
        labels: meta.labels.clone(),
        requests: read_resources(spec, status).requests(),
        node_selector: spec.labels("nodeSelector"),
        tolerations: read_tolerations(spec),
        host_ports: read_host_ports(spec),
        volumes: read_volumes(spec),
        resource_claims: read_names(spec, "resourceClaims"),
        priority: read_priority(spec, &priority_class),
        priority_class,
        scheduling_gates: read_names(spec, "schedulingGates"),
        scheduler_name: spec.text_of("schedulerName").unwrap_or_else(|| "default-scheduler".to_owned()),
        owner,
        do_not_disrupt: do_not_disrupt(&meta.annotations),
        deletion_cost: meta.annotations.get(DELETION_COST).and_then(|c| c.parse().ok()).unwrap_or(0),
        termination_grace_seconds: spec
            .integer_of("terminationGracePeriodSeconds", 0..=i64::from(u32::MAX))
            .unwrap_or(GRACE_SECONDS),
        origin: if meta.annotations.contains_key(STATIC_POD) { PodOrigin::Static } else { PodOrigin::Api },
        topology_spread: affinity::read_topology_spread(spec),
        ..PodShape::default()
    };
    affinity::read_affinity(spec, &mut shape);
    if let DoNotDisrupt::Invalid(value) = &shape.do_not_disrupt {
        spec.warn(
            format!("annotation `karpenter.sh/do-not-disrupt` is `{value}`, which is ignored"),
            "write `\"true\"` or a positive duration such as `30m`",
        );
    }
    shape
}

fn do_not_disrupt(annotations: &BTreeMap<String, String>) -> DoNotDisrupt {
    match annotations.get(labels::DO_NOT_DISRUPT).map(String::as_str) {
        None => DoNotDisrupt::No,
        Some("true") => DoNotDisrupt::Always,
        Some(text) => match duration::parse_go(text) {
            Some(duration) if duration.is_positive() => DoNotDisrupt::For(duration),
            Some(_) | None => DoNotDisrupt::Invalid(text.to_owned()),
        },
    }
}

/// `spec.priority`, which the API server fills in, else the class's.
fn read_priority(spec: At<'_>, class: &str) -> i32 {
    let range = i64::from(i32::MIN)..=i64::from(i32::MAX);
    if let Some(priority) = spec.integer_of("priority", range) {
        return priority;
    }
    let priorities = &spec.context().priorities;
    if let Some(priority) = priorities.of(class) {
        return priority;
    }
    if priorities.completeness() == Completeness::Files {
        spec.warn(
            format!("PriorityClass `{class}` isn't among the manifests; its pods count with priority 0"),
            "add it, or `spec.priority`",
        );
    }
    0
}

fn read_resources(spec: At<'_>, status: Option<At<'_>>) -> PodResources {
    let allocated = status.map(read_allocated).unwrap_or_default();
    let mut resources = PodResources {
        overhead: spec.resources("overhead"),
        pod_level: spec.field("resources").map(|_| read_container(spec, &BTreeMap::new())),
        ..PodResources::default()
    };
    match spec.list("containers") {
        None => spec.missing("containers", "at least one container"),
        Some(list) => {
            let maps = list.items().filter(|item| item.check_map(Fields::Any));
            resources.containers = maps.map(|item| read_container(item, &allocated)).collect();
        }
    }
    if let Some(list) = spec.list("initContainers") {
        let maps = list.items().filter(|item| item.check_map(Fields::Any));
        resources.init_containers = maps
            .map(|item| InitContainer {
                resources: read_container(item, &allocated),
                restart: if is_sidecar(item) { InitRestart::Always } else { InitRestart::OnCompletion },
            })
            .collect();
    }
    resources
}

fn is_sidecar(container: At<'_>) -> bool {
    container.tree().text("restartPolicy") == Some("Always")
}

fn read_container(at: At<'_>, allocated: &BTreeMap<String, ResourceList>) -> ContainerResources {
    let own = at.tree().text("name").and_then(|name| allocated.get(name)).cloned().unwrap_or_default();
    let Some(resources) = at.object("resources", Fields::Any) else {
        return ContainerResources { allocated: own, ..ContainerResources::default() };
    };
    ContainerResources {
        requests: resources.resources("requests"),
        limits: resources.resources("limits"),
        allocated: own,
    }
}

/// `allocatedResources` by container: larger than the requests while a pod is being resized.
fn read_allocated(status: At<'_>) -> BTreeMap<String, ResourceList> {
    let mut allocated = BTreeMap::new();
    for key in ["containerStatuses", "initContainerStatuses"] {
        let Some(list) = status.list(key) else { continue };
        for item in list.items() {
            if let Some(name) = item.tree().text("name").filter(|_| item.has("allocatedResources")) {
                allocated.insert(name.to_owned(), item.resources("allocatedResources"));
            }
        }
    }
    allocated
}

fn read_tolerations(spec: At<'_>) -> Vec<Toleration> {
    let Some(list) = spec.list("tolerations") else { return Vec::new() };
    list.items()
        .filter(|item| item.check_map(Fields::Any))
        .filter_map(|item| {
            let operator = match item.field("operator") {
                None => TolerationOperator::Equal,
                Some(field) => field.word(TolerationOperator::parse)?,
            };
            let effect = match item.field("effect").filter(|field| field.text() != Some("")) {
                None => None,
                Some(field) => Some(field.word(TaintEffect::parse)?),
            };
            let key = item.text_of("key").unwrap_or_default();
            if key.is_empty() && operator == TolerationOperator::Equal {
                item.error(
                    "a toleration without a key needs `operator: Exists`",
                    "add the key or the operator",
                );
                return None;
            }
            let value = item.text_of("value").unwrap_or_default();
            let seconds = item.integer_of("tolerationSeconds", i64::MIN..=i64::MAX);
            Some(Toleration { key, operator, value, effect, toleration_seconds: seconds })
        })
        .collect()
}

#[derive(Debug, Clone, Copy)]
enum PodNetwork {
    Own,
    Host,
}

/// Host ports of containers and sidecars; on the host's network every port is one.
fn read_host_ports(spec: At<'_>) -> BTreeSet<HostPort> {
    let network = match spec.boolean("hostNetwork") {
        Some(true) => PodNetwork::Host,
        Some(false) | None => PodNetwork::Own,
    };
    let mut ports = BTreeSet::new();
    for key in ["containers", "initContainers"] {
        let Some(list) = spec.list(key) else { continue };
        for container in list.items().filter(|item| key == "containers" || is_sidecar(*item)) {
            let Some(list) = container.list("ports") else { continue };
            ports.extend(list.items().filter_map(|item| read_host_port(item, network)));
        }
    }
    ports
}

fn read_host_port(at: At<'_>, network: PodNetwork) -> Option<HostPort> {
    if !at.check_map(Fields::Any) {
        return None;
    }
    let given: Option<u16> = at.integer_of("hostPort", 0..=65_535);
    let inherited = || match network {
        PodNetwork::Host => at.integer_of("containerPort", 1..=65_535),
        PodNetwork::Own => None,
    };
    let port = given.filter(|port| *port > 0).or_else(inherited)?;
    let protocol = match at.field("protocol") {
        None => "TCP",
        Some(field) => field.one_of("a protocol", &["TCP", "UDP", "SCTP"])?,
    };
    let ip = at.text_of("hostIP").filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
    Some(HostPort { ip, port, protocol: protocol.to_owned() })
}

fn read_volumes(spec: At<'_>) -> Vec<PodVolume> {
    let Some(list) = spec.list("volumes") else { return Vec::new() };
    list.items()
        .filter(|item| item.check_map(Fields::Any))
        .filter_map(|item| {
            if let Some(claim) = item.object("persistentVolumeClaim", Fields::Any) {
                return claim.required_text("claimName", "the claim's name").map(PodVolume::Claim);
            }
            let ephemeral = item.object("ephemeral", Fields::Any)?;
            let volume = item.required_text("name", "the volume's name")?;
            let template = ephemeral.object("volumeClaimTemplate", Fields::Any);
            Some(PodVolume::Ephemeral { volume, storage_class: template.and_then(read_storage_class_name) })
        })
        .collect()
}

/// `spec.storageClassName` of a claim or a template of one.
pub(super) fn read_storage_class_name(claim: At<'_>) -> Option<String> {
    claim.object("spec", Fields::Any).and_then(|spec| spec.text_of("storageClassName"))
}

fn read_names(spec: At<'_>, key: &str) -> Vec<String> {
    let Some(list) = spec.list(key) else { return Vec::new() };
    list.items()
        .filter(|item| item.check_map(Fields::Any))
        .filter_map(|item| item.required_text("name", "a name"))
        .collect()
}
