//! Requirements of pods and DaemonSets on a node: groups of equal pods, their node affinity as alternatives, host
//! ports.
//!
//! Decides which pods are equal to the planner, and which are unsupported. Unsupported constraints are refused by
//! name; ignored preferences are reported.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::api::pod::{
    HostPort, NodeSelectorTerm, PodVolume, TopologySpreadConstraint, WhenUnsatisfiable,
};
use tenon_domain::api::storage::{PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeBinding};
use tenon_domain::api::workload::DaemonSet;
use tenon_domain::api::{Pod, PodShape};
use tenon_domain::id::Uid;
use tenon_domain::labels;
use tenon_domain::launch::CountedPod;
use tenon_domain::quantity::Quantity;
use tenon_domain::requirement::{Requirement, Requirements};
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::taint::Toleration;

use super::dense::{DenseAmounts, Dimensions};
use super::input::{ProvisionInput, Storage};
use super::report::{Reason, Unschedulable, UnschedulableCause};

/// One way to satisfy a pod's node selector and required node affinity, whose terms are ORed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alternative {
    /// The requirements on labels.
    pub(crate) asked: Requirements,
    /// The requirements on fields; only `metadata.name` exists.
    pub(crate) fields: Vec<Requirement>,
}

impl Alternative {
    /// The requirements on a node without a name yet; `None` if only an existing node can satisfy them. A new node is
    /// none of the named ones.
    pub(crate) fn for_new_node(&self) -> Option<Requirements> {
        let mut asked = self.asked.clone();
        let host = asked.remove(labels::HOSTNAME);
        let open = host.iter().chain(&self.fields).all(Requirement::is_complement);
        open.then_some(asked)
    }

    /// Whether an existing node satisfies this.
    pub(crate) fn admits(&self, name: &str, offered: &Requirements) -> bool {
        use tenon_domain::requirement::UndefinedKeys;
        self.fields.iter().all(|field| field.has(name))
            && offered.is_compatible(&self.asked, UndefinedKeys::Absent)
    }
}

/// The alternatives of a shape; empty where its terms match no node.
pub(crate) fn alternatives(shape: &PodShape) -> Vec<Alternative> {
    let selected: Requirements =
        shape.node_selector.iter().map(|(key, value)| Requirement::one_of(key, [value.as_str()])).collect();
    if shape.required_node_affinity.is_empty() {
        return vec![Alternative { asked: selected, fields: Vec::new() }];
    }
    let with_term = |term: &NodeSelectorTerm| {
        let mut asked = selected.clone();
        term.match_expressions.iter().cloned().for_each(|requirement| asked.add(requirement));
        Alternative { asked, fields: term.match_fields.clone() }
    };
    // An empty term matches nothing.
    let says_something =
        |term: &&NodeSelectorTerm| !term.match_expressions.is_empty() || !term.match_fields.is_empty();
    shape.required_node_affinity.iter().filter(says_something).map(with_term).collect()
}

/// Pods that are equal to the planner.
#[derive(Debug)]
pub(crate) struct PodGroup<'a> {
    /// The pods, oldest first.
    pub(crate) pods: Vec<&'a Pod>,
    /// The requests of one of them.
    pub(crate) requests: &'a ResourceList,
    /// The same, dense.
    pub(crate) need: DenseAmounts,
    /// Ways to satisfy its affinity.
    pub(crate) alternatives: Vec<Alternative>,
    /// Its tolerations.
    pub(crate) tolerations: &'a [Toleration],
    /// Its host ports; where there are any, a node takes one pod.
    pub(crate) host_ports: &'a BTreeSet<HostPort>,
}

/// The properties that equal pods share.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PodGroupKey<'a> {
    requests: &'a ResourceList,
    node_selector: &'a BTreeMap<String, String>,
    affinity: &'a [NodeSelectorTerm],
    tolerations: &'a [Toleration],
    host_ports: &'a BTreeSet<HostPort>,
}

/// The order in which groups are placed: most CPU first, then most memory, then the oldest pod.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct GroupRank<'a> {
    cpu: std::cmp::Reverse<Quantity>,
    memory: std::cmp::Reverse<Quantity>,
    created_at: Option<Timestamp>,
    uid: Option<&'a Uid>,
}

/// The input's pods as groups in the order in which they are placed, and the pods that can't be planned for.
pub(crate) fn groups<'a>(
    input: &'a ProvisionInput,
    dimensions: &Dimensions,
) -> (Vec<PodGroup<'a>>, Vec<Unschedulable>) {
    let volumes = Volumes::of(&input.storage);
    let mut equal: BTreeMap<PodGroupKey<'a>, Vec<&'a Pod>> = BTreeMap::new();
    let mut refused = Vec::new();
    for pod in &input.pods {
        let shape: &'a PodShape = &pod.shape;
        if let Some(reason) = unsupported(shape).or_else(|| volumes.refusal(shape)) {
            refused.push(Unschedulable {
                pod: counted(pod),
                causes: vec![UnschedulableCause { pool: None, reason }],
            });
            continue;
        }
        let key = PodGroupKey {
            requests: &shape.requests,
            node_selector: &shape.node_selector,
            affinity: &shape.required_node_affinity,
            tolerations: &shape.tolerations,
            host_ports: &shape.host_ports,
        };
        equal.entry(key).or_default().push(pod);
    }
    let mut groups: Vec<PodGroup<'a>> = Vec::with_capacity(equal.len());
    for (key, mut pods) in equal {
        pods.sort_by(|a, b| (a.created_at, &a.uid, &a.name).cmp(&(b.created_at, &b.uid, &b.name)));
        let Some(first) = pods.first() else { continue };
        groups.push(PodGroup {
            requests: key.requests,
            need: dimensions.need(key.requests),
            alternatives: alternatives(&first.shape),
            tolerations: key.tolerations,
            host_ports: key.host_ports,
            pods,
        });
    }
    groups.sort_by(|a, b| rank(a).cmp(&rank(b)));
    (groups, refused)
}

fn rank<'a>(group: &PodGroup<'a>) -> GroupRank<'a> {
    GroupRank {
        cpu: std::cmp::Reverse(group.requests.get(&ResourceName::CPU)),
        memory: std::cmp::Reverse(group.requests.get(&ResourceName::MEMORY)),
        created_at: group.pods.first().and_then(|pod| pod.created_at),
        uid: group.pods.first().map(|pod| &pod.uid),
    }
}

/// A pod as plans record it.
pub(crate) fn counted(pod: &Pod) -> CountedPod {
    CountedPod { name: pod.name.clone(), uid: pod.uid.clone() }
}

fn unsupported(shape: &PodShape) -> Option<Reason> {
    if !shape.scheduling_gates.is_empty() {
        return Some(Reason::SchedulingGated { gates: shape.scheduling_gates.clone() });
    }
    let spread = |constraint: &TopologySpreadConstraint| match constraint.when_unsatisfiable {
        WhenUnsatisfiable::DoNotSchedule => true,
        WhenUnsatisfiable::ScheduleAnyway => false,
    };
    let field = if let Some(unknown) = shape.unknown.first() {
        unknown
    } else if !shape.required_pod_affinity.is_empty() {
        "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    } else if !shape.required_pod_anti_affinity.is_empty() {
        "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    } else if shape.topology_spread.iter().any(spread) {
        "spec.topologySpreadConstraints[].whenUnsatisfiable: DoNotSchedule"
    } else if !shape.resource_claims.is_empty() {
        "spec.resourceClaims"
    } else {
        return None;
    };
    Some(Reason::UnsupportedConstraint { field: field.to_owned() })
}

/// The ignored preferences of pods, one sentence for each kind.
pub(crate) fn ignored_preferences(pods: &[Pod]) -> Vec<String> {
    let shapes = || pods.iter().map(|pod| &*pod.shape);
    let mut warnings = Vec::new();
    let mut warn = |found: bool, what: &str| {
        if found {
            warnings.push(format!("{what} don't shape new nodes yet, only kube-scheduler applies them"));
        }
    };
    warn(shapes().any(|s| !s.preferred_node_affinity.is_empty()), "preferred node affinities");
    warn(
        shapes().any(|s| !s.preferred_pod_affinity.is_empty() || !s.preferred_pod_anti_affinity.is_empty()),
        "preferred pod affinities",
    );
    // DoNotSchedule is refused elsewhere, so the rest is ScheduleAnyway.
    warn(
        shapes().any(|s| {
            s.topology_spread.iter().any(|c| c.when_unsatisfiable == WhenUnsatisfiable::ScheduleAnyway)
        }),
        "topology spreads with `ScheduleAnyway`",
    );
    warnings
}

/// Storage objects by name.
struct Volumes<'a> {
    claims: BTreeMap<(&'a str, &'a str), &'a PersistentVolumeClaim>,
    volumes: BTreeMap<&'a str, &'a PersistentVolume>,
    classes: BTreeMap<&'a str, &'a StorageClass>,
}

impl<'a> Volumes<'a> {
    fn of(storage: &'a Storage) -> Self {
        Self {
            claims: storage
                .claims
                .iter()
                .map(|claim| ((claim.meta.namespace.as_str(), claim.meta.name.as_str()), claim))
                .collect(),
            volumes: storage.volumes.iter().map(|volume| (volume.meta.name.as_str(), volume)).collect(),
            classes: storage.classes.iter().map(|class| (class.meta.name.as_str(), class)).collect(),
        }
    }

    /// Why a pod can't be planned for because of its volumes.
    fn refusal(&self, shape: &PodShape) -> Option<Reason> {
        let unsupported = |field: &str| Some(Reason::UnsupportedConstraint { field: field.to_owned() });
        shape.volumes.iter().find_map(|volume| match volume {
            PodVolume::Claim(name) => match self.claims.get(&(shape.namespace.as_str(), name.as_str())) {
                None => Some(Reason::VolumeClaimNotFound { claim: name.clone() }),
                Some(claim) => match claim.volume.as_deref().map(|name| self.volumes.get(name)) {
                    Some(Some(bound)) if bound.node_affinity.is_empty() => None,
                    Some(_) => unsupported("PersistentVolume spec.nodeAffinity"),
                    None => self.unbound(claim.storage_class.as_deref()),
                },
            },
            PodVolume::Ephemeral { storage_class, .. } => self.unbound(storage_class.as_deref()),
        })
    }

    fn unbound(&self, class: Option<&str>) -> Option<Reason> {
        let field = match class.and_then(|name| self.classes.get(name)) {
            Some(class) => match class.binding {
                VolumeBinding::WaitForFirstConsumer if class.allowed_topologies.is_empty() => return None,
                VolumeBinding::WaitForFirstConsumer => "StorageClass allowedTopologies",
                VolumeBinding::Immediate => {
                    "an unbound PersistentVolumeClaim with volumeBindingMode: Immediate"
                }
            },
            None => "an unbound PersistentVolumeClaim without a known StorageClass",
        };
        Some(Reason::UnsupportedConstraint { field: field.to_owned() })
    }
}

/// A DaemonSet, and its pod's share of each node.
#[derive(Debug)]
pub(crate) struct Daemon<'a> {
    /// The requests of its pod.
    pub(crate) requests: &'a ResourceList,
    /// Ways to satisfy its affinity, host names left out: a template names none, its pods are each given one.
    pub(crate) alternatives: Vec<Requirements>,
    /// Its tolerations.
    pub(crate) tolerations: &'a [Toleration],
    /// Its host ports.
    pub(crate) host_ports: &'a BTreeSet<HostPort>,
}

/// The DaemonSets, by namespace and name.
pub(crate) fn daemons(daemon_sets: &[DaemonSet]) -> Vec<Daemon<'_>> {
    let mut sorted: Vec<&DaemonSet> = daemon_sets.iter().collect();
    sorted.sort_by(|a, b| (&a.meta.namespace, &a.meta.name).cmp(&(&b.meta.namespace, &b.meta.name)));
    let without_host = |alternative: Alternative| {
        let mut asked = alternative.asked;
        asked.remove(labels::HOSTNAME);
        asked
    };
    let daemon = |set: &'_ DaemonSet| -> Vec<Requirements> {
        alternatives(&set.template).into_iter().map(without_host).collect()
    };
    sorted
        .into_iter()
        .map(|set| Daemon {
            requests: &set.template.requests,
            alternatives: daemon(set),
            tolerations: &set.template.tolerations,
            host_ports: &set.template.host_ports,
        })
        .collect()
}

/// Whether two sets of host ports can't be on one node: the same port and protocol, on one address or on all of them.
pub(crate) fn ports_conflict(a: &BTreeSet<HostPort>, b: &BTreeSet<HostPort>) -> bool {
    let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0" || ip == "::";
    let clash = |a: &HostPort, b: &HostPort| {
        a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || any(&a.ip) || any(&b.ip))
    };
    a.iter().any(|port| b.iter().any(|other| clash(port, other)))
}
