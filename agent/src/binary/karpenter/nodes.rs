//! Gauges of Nodes: their resources, and those of their pods.
//!
//! Decides the lists of a Node. The kubelet states capacity and allocatable; pods count from their binding until they
//! are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::encoding::DescriptorEncoder;
use tenon_domain::labels::{INSTANCE_CPU, INSTANCE_MEMORY, INSTANCE_TYPE, well_known};
use tenon_domain::manifest;
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_snapshot::object::{self, Object, text};
use tenon_snapshot::pod::PodRunner;

use super::labels::{amount, resource_type};
use super::look::ClusterLook;
use super::objects::seconds;
use super::scrape::GaugeFamily;
use super::usage::PodUse;

/// The gauges by resource, in the order of [`NodeSeries::lists`].
const LISTS: [(&str, &str); 6] = [
    ("karpenter_nodes_allocatable", "Resources that Nodes have for pods."),
    (
        "karpenter_nodes_system_overhead",
        "Resources that Nodes keep for themselves: capacity less allocatable.",
    ),
    (
        "karpenter_nodes_total_pod_requests",
        "Resources that the pods of Nodes request, DaemonSets' pods among them.",
    ),
    ("karpenter_nodes_total_pod_limits", "Limits of the pods of Nodes, DaemonSets' pods among them."),
    ("karpenter_nodes_total_daemon_requests", "Resources that DaemonSets' pods of Nodes request."),
    ("karpenter_nodes_total_daemon_limits", "Limits of DaemonSets' pods of Nodes."),
];
/// Bytes of a mebibyte, the unit of the label of an instance type's memory.
const MEBIBYTE: f64 = 1_048_576.0;

/// The Nodes of a look.
#[derive(Debug)]
pub(super) struct NodePicture {
    nodes: Vec<NodeSeries>,
    /// Nodes, and NodeClaims without one.
    count: usize,
    /// Requested percents of what can be allocated, by resource.
    utilization: BTreeMap<String, f64>,
    /// Cores and bytes of the instance types that there are.
    types: BTreeMap<String, (Option<f64>, Option<f64>)>,
}

/// Labels of metrics that well-known labels become, by the well-known label.
type LabelNames = BTreeMap<&'static str, Arc<str>>;

/// A Node's samples.
#[derive(Debug)]
struct NodeSeries {
    labels: Vec<(Arc<str>, String)>,
    lists: [Vec<(String, f64)>; 6],
    age_seconds: Option<f64>,
}

/// The resources of the pods of one Node.
#[derive(Debug, Default)]
struct NodeUse {
    pod_requests: ResourceList,
    pod_limits: ResourceList,
    daemon_requests: ResourceList,
    daemon_limits: ResourceList,
}

impl NodePicture {
    /// The Nodes of a look; `uses` are of its pods.
    pub(super) fn new(look: &ClusterLook, uses: &[Arc<PodUse>], now: Timestamp) -> Self {
        let names = label_names();
        let of_pods = sum_pods(look, uses);
        let managed: BTreeSet<&str> =
            look.claims.iter().filter_map(|claim| text(claim, "/status/providerID")).collect();
        let mut picture =
            Self { nodes: Vec::new(), count: 0, utilization: BTreeMap::new(), types: BTreeMap::new() };
        let (mut allocatable, mut requested) = (ResourceList::new(), ResourceList::new());
        for node in &look.nodes {
            let pods = of_pods.get(object::name(node)).unwrap_or(&NO_PODS);
            let own = list(node, "/status/allocatable");
            allocatable.add(&own);
            requested.add(&pods.pod_requests);
            picture.observe_type(node);
            let overhead = list(node, "/status/capacity").minus(&own);
            let lists = [
                &own,
                &overhead,
                &pods.pod_requests,
                &pods.pod_limits,
                &pods.daemon_requests,
                &pods.daemon_limits,
            ];
            let has_claim = text(node, "/spec/providerID").is_some_and(|id| managed.contains(id));
            let fixed =
                [("node_name", object::name(node)), ("managed", if has_claim { "true" } else { "false" })];
            picture.nodes.push(NodeSeries {
                labels: node_labels(node, fixed, &names),
                lists: lists.map(by_type),
                age_seconds: object::time(node, "/metadata/creationTimestamp").map(|at| seconds(at, now)),
            });
        }
        picture.utilization = utilization(&allocatable, &requested);
        picture.count = count(look, &managed);
        picture
    }

    fn observe_type(&mut self, node: &Object) {
        let number = |key: &str| {
            let found = object::texts(node, "/metadata/labels").find(|(one, _)| *one == key);
            found.and_then(|(_, value)| value.parse::<f64>().ok())
        };
        let mut labels = object::texts(node, "/metadata/labels");
        if let Some((_, name)) = labels.find(|(key, _)| *key == INSTANCE_TYPE) {
            let (cores, bytes) = (number(INSTANCE_CPU), number(INSTANCE_MEMORY).map(|mebi| mebi * MEBIBYTE));
            if cores.is_some() || bytes.is_some() {
                self.types.insert(name.to_owned(), (cores, bytes));
            }
        }
    }

    /// Writes them.
    ///
    /// # Errors Those of the writer.
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (index, (name, help)) in LISTS.into_iter().enumerate() {
            let mut family = GaugeFamily::new(encoder, name, help)?;
            for node in &self.nodes {
                for (resource, value) in node.lists.get(index).into_iter().flatten() {
                    let labels = (node.labels.as_slice(), [("resource_type", resource.as_str())]);
                    family.sample(&labels, *value)?;
                }
            }
        }
        let mut family =
            GaugeFamily::new(encoder, "karpenter_nodes_current_lifetime_seconds", "Age of Nodes.")?;
        for node in &self.nodes {
            if let Some(age) = node.age_seconds {
                family.sample(&node.labels, age)?;
            }
        }
        let help = "Nodes, and NodeClaims whose Node hasn't joined yet.";
        GaugeFamily::new(encoder, "karpenter_cluster_state_node_count", help)?.alone(self.count as f64)?;
        let help = "Percent of the allocatable resources of all Nodes that pods request.";
        let mut family = GaugeFamily::new(encoder, "karpenter_cluster_utilization_percent", help)?;
        for (resource, percent) in &self.utilization {
            family.sample(&[("resource_type", resource.as_str())], *percent)?;
        }
        self.encode_types(encoder)
    }

    fn encode_types(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let name = "karpenter_cloudprovider_instance_type_cpu_cores";
        let mut family = GaugeFamily::new(encoder, name, "vCPUs of the instance types of Nodes.")?;
        for (instance_type, (cores, _)) in &self.types {
            if let Some(cores) = cores {
                family.sample(&[("instance_type", instance_type.as_str())], *cores)?;
            }
        }
        let name = "karpenter_cloudprovider_instance_type_memory_bytes";
        let mut family =
            GaugeFamily::new(encoder, name, "Memory of the instance types of Nodes, as EC2 states it.")?;
        for (instance_type, (_, bytes)) in &self.types {
            if let Some(bytes) = bytes {
                family.sample(&[("instance_type", instance_type.as_str())], *bytes)?;
            }
        }
        Ok(())
    }
}

/// The use of a Node without pods.
static NO_PODS: NodeUse = NodeUse {
    pod_requests: ResourceList::new(),
    pod_limits: ResourceList::new(),
    daemon_requests: ResourceList::new(),
    daemon_limits: ResourceList::new(),
};

fn sum_pods<'a>(look: &'a ClusterLook, uses: &[Arc<PodUse>]) -> BTreeMap<&'a str, NodeUse> {
    let mut sums: BTreeMap<&str, NodeUse> = BTreeMap::new();
    for (pod, one) in look.pods.iter().zip(uses) {
        let Some(node) = pod.node.as_deref() else { continue };
        let sum = sums.entry(node).or_default();
        add(&mut sum.pod_requests, &one.requests);
        add(&mut sum.pod_limits, &one.limits);
        match pod.runner {
            PodRunner::DaemonSet => {
                add(&mut sum.daemon_requests, &one.requests);
                add(&mut sum.daemon_limits, &one.limits);
            }
            PodRunner::Kubelet | PodRunner::Other => {}
        }
    }
    sums
}

fn add(sum: &mut ResourceList, amounts: &[(ResourceName, Quantity)]) {
    for (name, amount) in amounts {
        sum.insert(name.clone(), sum.get(name).saturating_add(*amount));
    }
}

/// Nodes, and NodeClaims with an instance that no Node has.
fn count(look: &ClusterLook, managed: &BTreeSet<&str>) -> usize {
    let joined: BTreeSet<&str> =
        look.nodes.iter().filter_map(|node| text(node, "/spec/providerID")).collect();
    look.nodes.len() + managed.difference(&joined).count()
}

fn utilization(allocatable: &ResourceList, requested: &ResourceList) -> BTreeMap<String, f64> {
    let percent = |(name, all): (&ResourceName, Quantity)| {
        let (all, used) = (amount(name, all), amount(name, requested.get(name)));
        (all > 0.0).then(|| (resource_type(name.as_str()), 100.0 * used / all))
    };
    allocatable.iter().filter_map(percent).collect()
}

fn list(node: &Object, pointer: &str) -> ResourceList {
    object::at(node, pointer).and_then(manifest::part).unwrap_or_default()
}

fn by_type(list: &ResourceList) -> Vec<(String, f64)> {
    list.iter().map(|(name, quantity)| (resource_type(name.as_str()), amount(name, quantity))).collect()
}

fn label_names() -> LabelNames {
    let name = |key: &'static str| key.split_once('/').map(|(_, name)| (key, resource_type(name).into()));
    well_known().filter_map(name).collect()
}

fn node_labels(node: &Object, fixed: [(&str, &str); 2], names: &LabelNames) -> Vec<(Arc<str>, String)> {
    let own = object::texts(node, "/metadata/labels").filter(|(_, value)| !value.is_empty());
    let own = own.filter_map(|(key, value)| Some((Arc::clone(names.get(key)?), value.to_owned())));
    fixed.into_iter().map(|(key, value)| (key.into(), value.to_owned())).chain(own).collect()
}
