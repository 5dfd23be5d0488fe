//! The scheduler's data about a pod; equal pods share it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{
    ContainerResources, InitContainer, InitRestart, PodResources, ResourceList, ResourceName,
};
use tenon_domain::taint::Toleration;

use tenon_snapshot::object::{self, list, text, texts};

/// A pod's needs.
#[derive(Debug)]
pub(super) struct SchedulingNeeds {
    /// Equal shapes have equal ids.
    pub(super) id: usize,
    pub(super) namespace: String,
    pub(super) labels: Value,
    pub(super) requests: ResourceList,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) node_selector: BTreeMap<String, String>,
    /// Terms of the required node affinity; none if there is no such affinity.
    pub(super) node_terms: Option<Vec<Value>>,
    /// Address, port, protocol.
    pub(super) ports: Vec<(String, u64, String)>,
    /// `topologySpreadConstraints` with `DoNotSchedule`.
    pub(super) spread: Vec<Value>,
    pub(super) affinity: Vec<Value>,
    pub(super) anti_affinity: Vec<Value>,
    /// Names of DRA claims: refused.
    pub(super) resource_claims: usize,
}

impl SchedulingNeeds {
    /// Whether its place depends on where other pods are.
    pub(super) fn minds_neighbours(&self) -> bool {
        !self.spread.is_empty() || !self.affinity.is_empty() || !self.anti_affinity.is_empty()
    }
}

/// The known shapes.
#[derive(Debug, Default)]
pub(super) struct SeenNeeds {
    known: BTreeMap<String, Arc<SchedulingNeeds>>,
    by_uid: BTreeMap<String, Arc<SchedulingNeeds>>,
}

impl SeenNeeds {
    /// The pod's shape. Its source never changes while the pod lives.
    pub(super) fn of(&mut self, pod: &Value) -> Arc<SchedulingNeeds> {
        let uid = object::uid(pod);
        if let Some(shape) = self.by_uid.get(uid) {
            return Arc::clone(shape);
        }
        let mut spec = pod.get("spec").cloned().unwrap_or(Value::Null);
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("nodeName");
        }
        let labels = pod.pointer("/metadata/labels").cloned().unwrap_or(Value::Null);
        let form = format!("{} {labels} {spec}", object::namespace(pod));
        let id = self.known.len();
        let shape = self.known.entry(form).or_insert_with(|| Arc::new(read(id, pod, labels)));
        self.by_uid.insert(uid.to_owned(), Arc::clone(shape));
        Arc::clone(shape)
    }
}

fn read(id: usize, pod: &Value, labels: Value) -> SchedulingNeeds {
    let spread = list(pod, "/spec/topologySpreadConstraints");
    let required = |kind: &str| {
        list(pod, &format!("/spec/affinity/{kind}/requiredDuringSchedulingIgnoredDuringExecution")).to_vec()
    };
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    SchedulingNeeds {
        id,
        namespace: object::namespace(pod).to_owned(),
        labels,
        requests: requests(pod),
        tolerations: object::tolerations(pod),
        node_selector: object::text_map(pod, "/spec/nodeSelector"),
        node_terms: pod.pointer(terms).and_then(Value::as_array).cloned(),
        ports: ports(pod),
        spread: spread
            .iter()
            .filter(|c| text(c, "/whenUnsatisfiable") != Some("ScheduleAnyway"))
            .cloned()
            .collect(),
        affinity: required("podAffinity"),
        anti_affinity: required("podAntiAffinity"),
        resource_claims: list(pod, "/spec/resourceClaims").len(),
    }
}

fn ports(pod: &Value) -> Vec<(String, u64, String)> {
    let containers = list(pod, "/spec/containers").iter();
    let ports = containers.flat_map(|container| list(container, "/ports"));
    let read = |port: &Value| {
        let number = port.get("hostPort").and_then(Value::as_u64).filter(|port| *port > 0)?;
        let address = text(port, "/hostIP").filter(|ip| !ip.is_empty()).unwrap_or("0.0.0.0");
        Some((address.to_owned(), number, text(port, "/protocol").unwrap_or("TCP").to_owned()))
    };
    ports.filter_map(read).collect()
}

fn requests(pod: &Value) -> ResourceList {
    let init = |container: &Value| InitContainer {
        resources: resources(container),
        restart: match text(container, "/restartPolicy") {
            Some("Always") => InitRestart::Always,
            _ => InitRestart::OnCompletion,
        },
    };
    PodResources {
        containers: list(pod, "/spec/containers").iter().map(resources).collect(),
        init_containers: list(pod, "/spec/initContainers").iter().map(init).collect(),
        overhead: quantities(pod, "/spec/overhead"),
        pod_level: pod.pointer("/spec/resources").map(|_| resources(pod.get("spec").unwrap_or(&Value::Null))),
    }
    .requests()
}

fn resources(container: &Value) -> ContainerResources {
    ContainerResources {
        requests: quantities(container, "/resources/requests"),
        limits: quantities(container, "/resources/limits"),
        allocated: ResourceList::new(),
    }
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
