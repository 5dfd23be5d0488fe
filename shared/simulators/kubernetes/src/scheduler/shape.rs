//! The scheduler's data about a pod; equal pods share it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tenon_domain::labels;
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{
    ContainerResources, InitContainer, InitRestart, PodResources, ResourceList, ResourceName,
};
use tenon_domain::taint::Toleration;

use super::attachments::{NamedVolume, named_volumes};
use super::terms::{PodTerm, SpreadRule};
use tenon_snapshot::object::{self, list, text, texts};

/// What a container without a request counts for in LeastAllocated.
const UNREQUESTED: [(ResourceName, &str); 2] = [(ResourceName::CPU, "100m"), (ResourceName::MEMORY, "200Mi")];
/// The cluster's default constraints (`defaultingType: System`), `ScheduleAnyway`: label, `maxSkew`.
const DEFAULT_SPREAD: [(&str, i64); 2] = [(labels::HOSTNAME, 3), (labels::ZONE, 5)];

/// Where the terms of the required node affinity are.
const NODE_TERMS: &str =
    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

/// A pod's needs.
#[derive(Debug)]
pub(super) struct SchedulingNeeds {
    /// Equal shapes have equal ids.
    pub(super) id: usize,
    pub(super) namespace: String,
    pub(super) labels: Value,
    pub(super) priority: i64,
    pub(super) requests: ResourceList,
    /// CPU and memory, for scores.
    pub(super) asked: PodAmounts,
    /// The same with [`UNREQUESTED`].
    pub(super) counted: PodAmounts,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) node_selector: BTreeMap<String, String>,
    /// Terms of the required node affinity; none if there is no such affinity.
    pub(super) node_terms: Option<Vec<Value>>,
    /// Weight and term of the preferred node affinity.
    pub(super) preferred_nodes: Vec<(i64, Value)>,
    /// Address, port, protocol.
    pub(super) ports: Vec<(String, u64, String)>,
    /// All terms about other pods; the fields below hold indexes of this list.
    pub(super) terms: Vec<PodTerm>,
    /// `topologySpreadConstraints` with `DoNotSchedule`.
    pub(super) spread: Vec<SpreadRule>,
    pub(super) soft_spread: SoftSpread,
    pub(super) affinity: Vec<usize>,
    pub(super) anti_affinity: Vec<usize>,
    /// Preferred terms with their weights; those of anti-affinity are negative.
    pub(super) preferred: Vec<(usize, i64)>,
    /// Volumes that may count against limits of nodes.
    pub(super) volumes: Vec<NamedVolume>,
    /// Names of DRA claims: refused.
    pub(super) resource_claims: usize,
}

/// CPU in thousandths of a core and memory in bytes, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PodAmounts {
    pub(super) cpu: i64,
    pub(super) memory: i64,
}

/// Spread constraints with `ScheduleAnyway`.
#[derive(Debug, Default)]
pub(super) struct SoftSpread {
    pub(super) rules: Vec<SpreadRule>,
    pub(super) scored: ScoredNodes,
}

/// Which nodes have a place in soft spreads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ScoredNodes {
    /// Those with all labels: the pod's own constraints.
    WithAllLabels,
    /// All, so that nodes without a zone are spread by host name: the cluster's default constraints.
    #[default]
    All,
}

impl SchedulingNeeds {
    /// Whether its place depends on where other pods are.
    pub(super) fn minds_neighbours(&self) -> bool {
        !self.spread.is_empty() || !self.affinity.is_empty() || !self.anti_affinity.is_empty()
    }
}

impl PodAmounts {
    pub(super) fn of(list: &ResourceList) -> Self {
        let (cpu, memory) = (list.get(&ResourceName::CPU), list.get(&ResourceName::MEMORY));
        Self { cpu: cpu.milli_ceil(), memory: memory.value_ceil() }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { cpu: self.cpu.saturating_add(other.cpu), memory: self.memory.saturating_add(other.memory) }
    }
}

/// The known shapes.
#[derive(Debug, Default)]
pub(super) struct SeenNeeds {
    known: BTreeMap<String, Arc<SchedulingNeeds>>,
    by_uid: BTreeMap<String, Arc<SchedulingNeeds>>,
}

impl SeenNeeds {
    /// Forgets which pod has which shape.
    pub(super) fn look_again(&mut self) {
        self.by_uid.clear();
    }

    /// The pod's shape. But for the Services that select it, its source never changes while the pod lives. `owner` gives
    /// the selector of the pods that it is spread with by default.
    pub(super) fn of(&mut self, pod: &Value, owner: impl FnOnce() -> Option<Value>) -> Arc<SchedulingNeeds> {
        let uid = object::uid(pod);
        if let Some(shape) = self.by_uid.get(uid) {
            return Arc::clone(shape);
        }
        let mut spec = pod.get("spec").cloned().unwrap_or(Value::Null);
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("nodeName");
        }
        let labels = pod.pointer("/metadata/labels").cloned().unwrap_or(Value::Null);
        let owner = owner();
        let selected = owner.as_ref().map(Value::to_string).unwrap_or_default();
        let form = format!("{} {labels} {selected} {spec}", object::namespace(pod));
        let id = self.known.len();
        let shape = self.known.entry(form).or_insert_with(|| Arc::new(read(id, pod, owner.as_ref())));
        self.by_uid.insert(uid.to_owned(), Arc::clone(shape));
        Arc::clone(shape)
    }
}

fn read(id: usize, pod: &Value, owner: Option<&Value>) -> SchedulingNeeds {
    let mut terms = Vec::new();
    let mut term = |term: PodTerm| {
        terms.push(term);
        terms.len() - 1
    };
    let constraints = list(pod, "/spec/topologySpreadConstraints");
    let is_soft = |one: &&Value| text(one, "/whenUnsatisfiable") == Some("ScheduleAnyway");
    let mut rule = |one: &Value| {
        let index = term(PodTerm::of_spread(pod, one));
        SpreadRule::of(one, index)
    };
    let spread = constraints.iter().filter(|one| !is_soft(one)).map(&mut rule).collect();
    let mut soft = SoftSpread {
        rules: constraints.iter().filter(is_soft).map(&mut rule).collect(),
        ..SoftSpread::default()
    };
    match (constraints, owner) {
        ([], Some(selector)) => {
            let own = |(key, skew): (&str, i64)| {
                SpreadRule::default_of(key, skew, term(PodTerm::of_workload(pod, key, selector)))
            };
            soft.rules = DEFAULT_SPREAD.into_iter().map(own).collect();
        }
        ([], None) => {}
        ([_, ..], _) => soft.scored = ScoredNodes::WithAllLabels,
    }
    let required = |kind: &str| {
        list(pod, &format!("/spec/affinity/{kind}/requiredDuringSchedulingIgnoredDuringExecution"))
    };
    let preferred = |kind: &str| {
        list(pod, &format!("/spec/affinity/{kind}/preferredDuringSchedulingIgnoredDuringExecution"))
    };
    let weight = |one: &Value| one.get("weight").and_then(Value::as_i64).unwrap_or(0);
    let affinity = required("podAffinity").iter().map(|one| term(PodTerm::of_affinity(pod, one))).collect();
    let anti_affinity =
        required("podAntiAffinity").iter().map(|one| term(PodTerm::of_affinity(pod, one))).collect();
    let mut preferences = Vec::new();
    for (kind, sign) in [("podAffinity", 1), ("podAntiAffinity", -1)] {
        for one in preferred(kind) {
            let inner = one.get("podAffinityTerm").unwrap_or(&Value::Null);
            preferences.push((term(PodTerm::of_affinity(pod, inner)), sign * weight(one)));
        }
    }
    let preferred_nodes = preferred("nodeAffinity").iter();
    let preferred_nodes =
        preferred_nodes.filter_map(|one| Some((weight(one), one.get("preference")?.clone())));
    let requests = resources_of(pod, resources).requests();
    SchedulingNeeds {
        id,
        namespace: object::namespace(pod).to_owned(),
        labels: pod.pointer("/metadata/labels").cloned().unwrap_or(Value::Null),
        priority: pod.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or(0),
        asked: PodAmounts::of(&requests),
        counted: PodAmounts::of(&resources_of(pod, at_least_unrequested).requests()),
        requests,
        tolerations: object::tolerations(pod),
        node_selector: object::text_map(pod, "/spec/nodeSelector"),
        node_terms: pod.pointer(NODE_TERMS).and_then(Value::as_array).cloned(),
        preferred_nodes: preferred_nodes.collect(),
        ports: ports(pod),
        spread,
        soft_spread: soft,
        affinity,
        anti_affinity,
        preferred: preferences,
        terms,
        volumes: named_volumes(pod),
        resource_claims: list(pod, "/spec/resourceClaims").len(),
    }
}

/// Host ports of containers and sidecars.
fn ports(pod: &Value) -> Vec<(String, u64, String)> {
    let sidecars = list(pod, "/spec/initContainers").iter().filter(|one| is_sidecar(one));
    let containers = list(pod, "/spec/containers").iter().chain(sidecars);
    let ports = containers.flat_map(|container| list(container, "/ports"));
    let read = |port: &Value| {
        let number = port.get("hostPort").and_then(Value::as_u64).filter(|port| *port > 0)?;
        let address = text(port, "/hostIP").filter(|ip| !ip.is_empty()).unwrap_or("0.0.0.0");
        Some((address.to_owned(), number, text(port, "/protocol").unwrap_or("TCP").to_owned()))
    };
    ports.filter_map(read).collect()
}

fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == Some("Always")
}

fn resources_of(pod: &Value, of: impl Fn(&Value) -> ContainerResources) -> PodResources {
    let init = |container: &Value| InitContainer {
        resources: of(container),
        restart: if is_sidecar(container) { InitRestart::Always } else { InitRestart::OnCompletion },
    };
    PodResources {
        containers: list(pod, "/spec/containers").iter().map(&of).collect(),
        init_containers: list(pod, "/spec/initContainers").iter().map(init).collect(),
        overhead: quantities(pod, "/spec/overhead"),
        pod_level: pod.pointer("/spec/resources").map(|_| resources(pod.get("spec").unwrap_or(&Value::Null))),
    }
}

fn resources(container: &Value) -> ContainerResources {
    ContainerResources {
        requests: quantities(container, "/resources/requests"),
        limits: quantities(container, "/resources/limits"),
        allocated: ResourceList::new(),
    }
}

fn at_least_unrequested(container: &Value) -> ContainerResources {
    let mut found = resources(container);
    for (name, amount) in UNREQUESTED {
        if !found.requests.contains(&name)
            && !found.limits.contains(&name)
            && let Ok(amount) = Quantity::parse(amount)
        {
            found.requests.insert(name, amount);
        }
    }
    found
}

/// The quantities at a JSON pointer, without unreadable ones.
pub(super) fn quantities(value: &Value, pointer: &str) -> ResourceList {
    let numbers = value.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let numbers =
        numbers.filter_map(|(name, n)| n.as_i64().map(|n| (name.as_str(), Quantity::from_integer(n))));
    let parsed = texts(value, pointer).filter_map(|(name, text)| Some((name, Quantity::parse(text).ok()?)));
    numbers
        .chain(parsed)
        .filter_map(|(name, quantity)| Some((ResourceName::parse(name).ok()?, quantity)))
        .collect()
}
