//! Pods and pod templates.
//!
//! Decides a pod's needs of its node, with the API server's defaults, and which fields may affect placement: below
//! [`NameUnknown`] an unknown field is named; directly in a pod's `spec` and in a container, [`super::unread`] decides;
//! elsewhere it is ignored. [`PodResources`] sums the containers' requests, and [`super::priority`] knows the priority
//! classes. [`allocated`] has what a node reserves during a resize, [`refused`] what only the API server refuses.

mod allocated;
mod refused;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use allocated::{AllocatedResources, ResizeVerdict};

use super::affinity::Affinity;
use super::decode::{At, KeepUnknown, ManifestSource, NameUnknown, Place, Whole, told};
use super::fields::{MOST, WIDEST, labels, text, time, within};
use super::meta::{KindScope, ObjectFields};
use super::priority::Completeness;
use crate::api::meta::{ObjectMeta, OwnerReference, OwnerRole, is_kubernetes_node};
use crate::api::pod::{
    DEFAULT_SCHEDULER, DoNotDisrupt, HostPort, Pod, PodOrigin, PodPhase, PodShape, PodVolume, Readiness,
    SchedulingVerdict, TopologySpreadConstraint, WhenUnsatisfiable,
};
use crate::digest::Digest;
use crate::id::{NamespacedName, NodeName, ParseIdError, Uid};
use crate::labels::DO_NOT_DISRUPT;
use crate::resources::{InitContainer, InitRestart, PodResources, ResourceList};
use crate::taint::{TaintEffect, Toleration, TolerationOperator};

/// Kubernetes' default of `terminationGracePeriodSeconds`.
const GRACE_SECONDS: u32 = 30;
const STATIC_POD: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// `spec` of a pod or of a template. Its serde name is [`super::unread::POD_SPEC`].
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename = "tenon:pod spec", rename_all = "camelCase")]
pub(super) struct PodSpec {
    node_name: String,
    scheduler_name: Option<String>,
    #[serde(deserialize_with = "labels")]
    node_selector: BTreeMap<String, String>,
    affinity: NameUnknown<Affinity>,
    topology_spread_constraints: NameUnknown<Vec<TopologySpreadConstraint>>,
    tolerations: NameUnknown<Vec<Toleration>>,
    overhead: ResourceList,
    resources: Option<NameUnknown<ContainerResourceFields>>,
    resource_claims: NameUnknown<Vec<ResourceClaim>>,
    #[serde(deserialize_with = "within::<{ i32::MIN as i64 }, MOST, _, _>")]
    priority: Option<i32>,
    priority_class_name: String,
    scheduling_gates: Vec<SchedulingGate>,
    #[serde(deserialize_with = "within::<0, WIDEST, _, _>")]
    termination_grace_period_seconds: Option<u32>,
    host_network: bool,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    pub(super) volumes: Vec<Volume>,
}

/// A container. Its serde name is [`super::unread::CONTAINER`].
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename = "tenon:container", rename_all = "camelCase")]
struct Container {
    name: String,
    resources: NameUnknown<ContainerResourceFields>,
    restart_policy: String,
    ports: Vec<KeepUnknown<Port>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerResourceFields {
    requests: ResourceList,
    limits: ResourceList,
    #[serde(rename = "claims")]
    _claims: Whole,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Port {
    #[serde(deserialize_with = "within::<0, 65_535, _, _>")]
    host_port: Option<u16>,
    #[serde(deserialize_with = "within::<1, 65_535, _, _>")]
    container_port: Option<u16>,
    protocol: Option<Protocol>,
    #[serde(rename = "hostIP")]
    host_ip: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename = "a protocol", rename_all = "UPPERCASE")]
enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceClaim {
    #[serde(deserialize_with = "text")]
    name: String,
    #[serde(default, rename = "resourceClaimName")]
    _claim: Whole,
    #[serde(default, rename = "resourceClaimTemplateName")]
    _template: Whole,
}

#[derive(Debug, Deserialize)]
struct SchedulingGate {
    #[serde(deserialize_with = "text")]
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Volume {
    name: String,
    persistent_volume_claim: Option<KeepUnknown<ClaimSource>>,
    ephemeral: Option<KeepUnknown<Ephemeral>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSource {
    #[serde(deserialize_with = "text")]
    claim_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Ephemeral {
    volume_claim_template: ClaimTemplate,
}

/// A template of a PersistentVolumeClaim.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClaimTemplate {
    pub(super) metadata: VolumeClaimName,
    pub(super) spec: EphemeralClaimSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct VolumeClaimName {
    pub(super) name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct EphemeralClaimSpec {
    pub(super) storage_class_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    phase: String,
    #[serde(deserialize_with = "time")]
    start_time: Option<Timestamp>,
    nominated_node_name: String,
    conditions: Vec<PodConditionFields>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
    allocated_resources: ResourceList,
    resources: RunningResources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodConditionFields {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    #[serde(rename = "lastTransitionTime", deserialize_with = "time")]
    last_transition_time: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    allocated_resources: ResourceList,
    resources: RunningResources,
}

/// The resources with which a container, or a pod, runs now.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RunningResources {
    requests: ResourceList,
}

impl<'de> Deserialize<'de> for Toleration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct TolerationFields {
            key: String,
            operator: TolerationOperator,
            value: String,
            effect: Option<TaintEffect>,
            #[serde(deserialize_with = "within::<{ i64::MIN }, { i64::MAX }, _, _>")]
            toleration_seconds: Option<i64>,
        }
        let TolerationFields { key, operator, value, effect, toleration_seconds } =
            TolerationFields::deserialize(deserializer)?;
        if key.is_empty() && operator == TolerationOperator::Equal {
            let message = "a toleration without a key needs `operator: Exists`";
            return Err(Error::custom(told(message, "add the key or the operator")));
        }
        Ok(Self { key, operator, value, effect, toleration_seconds })
    }
}

pub(super) fn read_pod(at: At<'_, '_>) -> Option<Pod> {
    let before = at.place.context().errors();
    let mut form: ObjectFields<PodSpec, PodStatus> = at.read()?;
    let mut spec = form.spec(&at.place)?;
    let status = form.status.unwrap_or_default();
    let meta = form.metadata.of_object(&at.place, KindScope::Namespaced)?;
    let place = at.place.key("spec");
    let node = match std::mem::take(&mut spec.node_name) {
        name if name.is_empty() => None,
        name => Some(node_name(&place, name)?),
    };
    let owner = meta.owners.iter().find(|owner| owner.role == OwnerRole::Controller).cloned();
    let scheduling = status.verdict(node.as_ref());
    let readiness = match status.condition("Ready") {
        Some(ready) if ready.status == "True" => Readiness::Ready,
        Some(_) | None => Readiness::NotReady,
    };
    let phase = match status.phase.as_str() {
        "" => PodPhase::Pending,
        phase => PodPhase::parse(phase).unwrap_or(PodPhase::Unknown),
    };
    let started_at = status.start_time;
    let scheduled = status.condition("PodScheduled").filter(|scheduled| scheduled.status == "True");
    let bound_at = scheduled.and_then(|scheduled| scheduled.last_transition_time);
    let resize = status.resize();
    let statuses = status.container_statuses.into_iter().chain(status.init_container_statuses);
    let allocated = AllocatedResources {
        resize,
        containers: statuses
            .map(|status| (status.name, status.allocated_resources.max(&status.resources.requests)))
            .collect(),
        pod: status.allocated_resources.max(&status.resources.requests),
    };
    let mut shape = spec.into_shape(&place, &meta, PodSurroundings { owner, allocated });
    shape.unknown = at.place.context().named();
    shape.meant = at.place.context().meant();
    let uid = meta.uid.clone().or_else(|| pod_uid(&meta.namespace, &meta.name).ok())?;
    let pod = Pod {
        name: NamespacedName { namespace: meta.namespace, name: meta.name },
        uid,
        created_at: meta.created_at,
        started_at,
        scheduling,
        bound_at: bound_at.filter(|_| node.is_some()),
        node,
        phase,
        readiness,
        deleted_at: meta.deleted_at,
        shape: at.place.context().shapes.borrow_mut().intern(shape),
    };
    (at.place.context().errors() == before).then_some(pod)
}

fn node_name(spec: &Place<'_>, name: String) -> Option<NodeName> {
    let parsed = NodeName::parse(name);
    parsed
        .map_err(|ParseIdError { kind, value, expected }| {
            let message = format!("`{value}` is not a valid {kind}");
            spec.key("nodeName").error(message, format!("write {expected}"));
        })
        .ok()
}

/// The UID of a pod that has none yet: a UUID that is always the same for a name.
///
/// # Errors
/// None: a UUID is a UID.
pub fn pod_uid(namespace: &str, name: &str) -> Result<Uid, ParseIdError> {
    let hex = Digest::of_texts(["pod", namespace, name]).hex();
    let parts: Vec<&str> =
        [0..8, 8..12, 12..16, 16..20, 20..32].into_iter().filter_map(|range| hex.get(range)).collect();
    Uid::parse(parts.join("-"))
}

impl PodStatus {
    fn condition(&self, kind: &str) -> Option<&PodConditionFields> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    fn resize(&self) -> ResizeVerdict {
        match self.condition("PodResizePending") {
            Some(pending) if pending.reason == "Infeasible" => ResizeVerdict::Infeasible,
            Some(_) | None => ResizeVerdict::Open,
        }
    }

    fn verdict(&self, node: Option<&NodeName>) -> SchedulingVerdict {
        if node.is_some() {
            return SchedulingVerdict::None;
        }
        if !self.nominated_node_name.is_empty() {
            return SchedulingVerdict::Nominated;
        }
        match self.condition("PodScheduled").filter(|scheduled| scheduled.status == "False") {
            Some(scheduled) if scheduled.reason == "Unschedulable" => SchedulingVerdict::Unschedulable,
            Some(scheduled) if scheduled.reason == "SchedulingGated" => SchedulingVerdict::Gated,
            Some(_) | None => SchedulingVerdict::None,
        }
    }
}

/// The parts of a shape that aren't in the pod's spec.
#[derive(Debug, Default)]
pub(super) struct PodSurroundings {
    /// The controller.
    pub(super) owner: Option<OwnerReference>,
    /// What its node reserves for it.
    pub(super) allocated: AllocatedResources,
}

/// The kubelet owns the mirror of a static pod by its Node, and annotates it.
fn origin(meta: &ObjectMeta) -> PodOrigin {
    // The kind of a Node of another API group has its group's name.
    let of_node = meta.owners.iter().any(|owner| is_kubernetes_node("v1", &owner.kind));
    if of_node || meta.annotations.contains_key(STATIC_POD) { PodOrigin::Static } else { PodOrigin::Api }
}

impl PodSpec {
    /// The shape of a pod or of a template's pods.
    pub(super) fn into_shape(
        self,
        place: &Place<'_>,
        meta: &ObjectMeta,
        around: PodSurroundings,
    ) -> PodShape {
        self.check(place);
        if place.context().source == ManifestSource::File && meta.uid.is_none() {
            self.warn_of_refusals(place);
        }
        let mut shape = PodShape {
            namespace: meta.namespace.clone(),
            labels: meta.labels.clone(),
            host_ports: self.host_ports(),
            volumes: self.volumes.iter().filter_map(Volume::placing).collect(),
            priority: self.priority(place),
            requests: self.requests(&around.allocated),
            node_selector: self.node_selector,
            tolerations: self.tolerations.0,
            resource_claims: self.resource_claims.0.into_iter().map(|claim| claim.name).collect(),
            priority_class: self.priority_class_name,
            scheduling_gates: self.scheduling_gates.into_iter().map(|gate| gate.name).collect(),
            scheduler_name: self
                .scheduler_name
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| DEFAULT_SCHEDULER.to_owned()),
            owner: around.owner,
            do_not_disrupt: DoNotDisrupt::parse(meta.annotations.get(DO_NOT_DISRUPT).map(String::as_str)),
            deletion_cost: meta.annotations.get(DELETION_COST).and_then(|c| c.parse().ok()).unwrap_or(0),
            termination_grace_seconds: self.termination_grace_period_seconds.unwrap_or(GRACE_SECONDS),
            origin: origin(meta),
            topology_spread: self.topology_spread_constraints.0,
            ..PodShape::default()
        };
        self.affinity.0.into_shape(&mut shape);
        if let DoNotDisrupt::Invalid(value) = &shape.do_not_disrupt {
            place.warn(
                format!("annotation `karpenter.sh/do-not-disrupt` is `{value}`, which is ignored"),
                "write `\"true\"` or a positive duration such as `30m`",
            );
        }
        shape
    }

    fn check(&self, place: &Place<'_>) {
        if self.containers.is_empty() {
            place.missing("containers", "at least one container");
        }
        let constraints = place.key("topologySpreadConstraints");
        for (index, spread) in self.topology_spread_constraints.0.iter().enumerate() {
            if spread.min_domains.is_some() && spread.when_unsatisfiable == WhenUnsatisfiable::ScheduleAnyway
            {
                let message = "`minDomains` needs `whenUnsatisfiable: DoNotSchedule`";
                constraints.index(index).key("minDomains").error(message, "leave it out");
            }
        }
        for (index, volume) in self.volumes.iter().enumerate() {
            if volume.ephemeral.is_some() && volume.name.is_empty() {
                place.key("volumes").index(index).missing("name", "the volume's name");
            }
        }
    }

    /// `spec.priority`, which the API server sets, else the class's value.
    fn priority(&self, place: &Place<'_>) -> i32 {
        let (class, priorities) = (&self.priority_class_name, &place.context().priorities);
        if let Some(priority) = self.priority.or_else(|| priorities.of(class)) {
            return priority;
        }
        if priorities.completeness() == Completeness::Files {
            place.warn(
                format!("PriorityClass `{class}` isn't in the manifests: its pods get priority 0"),
                "add it, or `spec.priority`",
            );
        }
        0
    }

    fn requests(&self, allocated: &AllocatedResources) -> ResourceList {
        self.all_resources(allocated).requests()
    }

    fn all_resources(&self, allocated: &AllocatedResources) -> PodResources {
        let container = |of: &Container| allocated.of(&of.resources.0, allocated.containers.get(&of.name));
        let init = |of: &Container| InitContainer {
            resources: container(of),
            restart: if of.is_sidecar() { InitRestart::Always } else { InitRestart::OnCompletion },
        };
        PodResources {
            containers: self.containers.iter().map(container).collect(),
            init_containers: self.init_containers.iter().map(init).collect(),
            overhead: self.overhead.clone(),
            pod_level: self.resources.as_ref().map(|level| allocated.of(&level.0, Some(&allocated.pod))),
        }
    }

    /// Host ports of containers and sidecars; with `hostNetwork`, all their ports.
    fn host_ports(&self) -> BTreeSet<HostPort> {
        let sidecars = self.init_containers.iter().filter(|container| container.is_sidecar());
        let ports = self.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
        ports.filter_map(|KeepUnknown(port)| self.host_port(port)).collect()
    }

    fn host_port(&self, port: &Port) -> Option<HostPort> {
        let inherited = port.container_port.filter(|_| self.host_network);
        Some(HostPort {
            ip: if port.host_ip.is_empty() { "0.0.0.0" } else { &port.host_ip }.to_owned(),
            port: port.host_port.filter(|port| *port > 0).or(inherited)?,
            protocol: match port.protocol {
                None | Some(Protocol::Tcp) => "TCP",
                Some(Protocol::Udp) => "UDP",
                Some(Protocol::Sctp) => "SCTP",
            }
            .to_owned(),
        })
    }
}

impl Container {
    fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
}

impl Volume {
    /// The volume, if it restricts where the pod runs.
    fn placing(&self) -> Option<PodVolume> {
        if let Some(KeepUnknown(source)) = &self.persistent_volume_claim {
            return Some(PodVolume::Claim(source.claim_name.clone()));
        }
        let KeepUnknown(Ephemeral { volume_claim_template: template }) = self.ephemeral.as_ref()?;
        let storage_class = template.spec.storage_class_name.clone();
        Some(PodVolume::Ephemeral { volume: self.name.clone(), storage_class })
    }
}
