//! The reader of manifests: YAML and JSON texts, and values from an API server, become [`crate::api`]'s objects.
//!
//! Decides which manifests are accepted: what Karpenter 1.14 accepts of its own kinds, and of Kubernetes' kinds what
//! placement needs. All errors of a reading come together, each with its place and a remedy. It doesn't decide whether
//! objects fit each other (a NodePool's class may be missing).
//!
//! Invariants: defaults that the API server fills in are filled in; equal pods share one shape; what is read from files
//! is ordered by namespace and name, whatever the order of the files; the last of two objects of one name counts.

mod affinity;
mod class_devices;
mod class_selectors;
mod decode;
pub(crate) mod duration;
mod error;
mod expand;
mod kinds;
mod kubelet;
mod meta;
mod node;
mod node_claim;
mod node_class;
mod node_pool;
mod pdb;
mod pod;
mod priority;
mod requirements;
mod scalar;
mod selector;
mod shapes;
mod storage;
mod tree;
mod workload;

#[cfg(test)]
mod tests;

use crate::api::meta::ObjectMeta;
use crate::api::node::Node;
use crate::api::node_claim::NodeClaimObject;
use crate::api::node_class::Ec2NodeClass;
use crate::api::node_pool::NodePool;
use crate::api::pod::Pod;
use crate::api::storage::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use crate::api::workload::{DaemonSet, PodDisruptionBudget, Workload};

use decode::{At, Context};
use error::Problem;
use priority::Priorities;
use tree::Tree;

pub use error::{ManifestError, ManifestErrors};
pub use expand::expand_workloads;
pub use pod::pod_uid;

/// Objects by kind, each list by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifests {
    /// Pods.
    pub pods: Vec<Pod>,
    /// Deployments, ReplicaSets, StatefulSets, Jobs and CronJobs.
    pub workloads: Vec<Workload>,
    /// DaemonSets.
    pub daemon_sets: Vec<DaemonSet>,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// PersistentVolumes.
    pub persistent_volumes: Vec<PersistentVolume>,
    /// PersistentVolumeClaims.
    pub persistent_volume_claims: Vec<PersistentVolumeClaim>,
    /// StorageClasses.
    pub storage_classes: Vec<StorageClass>,
    /// Namespaces.
    pub namespaces: Vec<ObjectMeta>,
    /// PodDisruptionBudgets.
    pub pdbs: Vec<PodDisruptionBudget>,
    /// NodePools.
    pub node_pools: Vec<NodePool>,
    /// EC2NodeClasses.
    pub node_classes: Vec<Ec2NodeClass>,
    /// NodeClaims.
    pub node_claims: Vec<NodeClaimObject>,
    /// Kinds that aren't read, each once, by name.
    pub skipped: Vec<String>,
}

/// What was read, and what is worth knowing of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct Read {
    /// The objects.
    pub manifests: Manifests,
    /// Accepted, but probably not what was meant; in the form of errors.
    pub warnings: Vec<ManifestError>,
}

/// One object of a kind that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A Pod.
    Pod(Box<Pod>),
    /// A controller of pods.
    Workload(Box<Workload>),
    /// A DaemonSet.
    DaemonSet(Box<DaemonSet>),
    /// A Node.
    Node(Box<Node>),
    /// A PersistentVolume.
    PersistentVolume(Box<PersistentVolume>),
    /// A PersistentVolumeClaim.
    PersistentVolumeClaim(Box<PersistentVolumeClaim>),
    /// A StorageClass.
    StorageClass(Box<StorageClass>),
    /// A Namespace.
    Namespace(Box<ObjectMeta>),
    /// A PodDisruptionBudget.
    PodDisruptionBudget(Box<PodDisruptionBudget>),
    /// A NodePool.
    NodePool(Box<NodePool>),
    /// An EC2NodeClass.
    NodeClass(Box<Ec2NodeClass>),
    /// A NodeClaim.
    NodeClaim(Box<NodeClaimObject>),
    /// A PriorityClass: its value is in the pods that name it.
    PriorityClass(String),
    /// Another kind, which isn't read: its name.
    Skipped(String),
}

/// Reads files: pairs of a name, for messages, and a text of YAML documents or JSON.
///
/// # Errors
/// All errors of all files, by file as given, then line.
pub fn read_files(files: &[(&str, &str)]) -> Result<Read, ManifestErrors> {
    let parsed: Vec<(&str, tree::Documents)> =
        files.iter().map(|(name, text)| (*name, tree::parse(name, text))).collect();
    let mut context = Context { priorities: Priorities::of_files(), ..Context::default() };
    for tree in parsed.iter().flat_map(|(_, documents)| &documents.trees) {
        kinds::each_item(tree, &mut |item| context.priorities.add(item));
    }
    let mut collected = kinds::Collected::default();
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    for (file, documents) in parsed {
        let mut problems: Vec<Problem> = Vec::new();
        for error in documents.errors {
            let tree::SyntaxError { line, message, remedy } = error;
            problems.push(Problem { line, field: String::new(), message, remedy });
        }
        for tree in &documents.trees {
            kinds::read_document(At::root(tree, &context), &mut collected);
        }
        problems.append(&mut context.problems.borrow_mut());
        errors.extend(sorted(problems, file));
        warnings.extend(sorted(std::mem::take(&mut *context.warnings.borrow_mut()), file));
    }
    let manifests = collected.into_manifests();
    if errors.is_empty() { Ok(Read { manifests, warnings }) } else { Err(ManifestErrors(errors)) }
}

/// The objects of a text as it writes them, Lists as their items: what an API server would be given. Documents that
/// [`read_files`] refuses for their syntax are left out; nothing else of them is looked at.
#[must_use]
pub fn objects(file: &str, text: &str) -> Vec<serde_json::Value> {
    let mut objects = Vec::new();
    for tree in &tree::parse(file, text).trees {
        kinds::each_item(tree, &mut |item| objects.extend(serde_json::from_str(&item.to_json()).ok()));
    }
    objects.retain(serde_json::Value::is_object);
    objects
}

fn sorted(mut problems: Vec<Problem>, file: &str) -> Vec<ManifestError> {
    problems.sort_by_key(|problem| problem.line);
    problems.into_iter().map(|problem| problem.of(file)).collect()
}

/// Reads one object from a value that says its `apiVersion` and `kind`; `place` names it in messages.
///
/// # Errors
/// All that is wrong with it.
pub fn read_value(value: &serde_json::Value, place: &str) -> Result<Object, ManifestErrors> {
    read_as(value, place, |at| kinds::read_object(at, None))
}

/// Reads a value with a reader; what a reader leaves out it has reported.
fn read_as<T>(
    value: &serde_json::Value,
    place: &str,
    read: impl FnOnce(At<'_>) -> Option<T>,
) -> Result<T, ManifestErrors> {
    let tree = Tree::from_json(value);
    let context = Context::default();
    let object = read(At::root(&tree, &context));
    let mut problems = context.problems.take();
    match object {
        Some(object) if problems.is_empty() => Ok(object),
        Some(_) | None => {
            if problems.is_empty() {
                let message = "not an object that can be read".to_owned();
                problems.push(Problem { line: None, field: String::new(), message, remedy: String::new() });
            }
            Err(ManifestErrors(sorted(problems, place)))
        }
    }
}

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident, $kind:literal, $result:ty, $read:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// All that is wrong with it.
        pub fn $name(value: &serde_json::Value) -> Result<$result, ManifestErrors> {
            read_as(value, $kind, $read)
        }
    )*};
}

values! {
    /// Reads a Pod.
    pod_from_value, "Pod", Pod, pod::read_pod;
    /// Reads a DaemonSet.
    daemon_set_from_value, "DaemonSet", DaemonSet, workload::read_daemon_set;
    /// Reads a Node.
    node_from_value, "Node", Node, node::read_node;
    /// Reads a PersistentVolume.
    persistent_volume_from_value, "PersistentVolume", PersistentVolume, storage::read_persistent_volume;
    /// Reads a PersistentVolumeClaim.
    persistent_volume_claim_from_value, "PersistentVolumeClaim", PersistentVolumeClaim,
        storage::read_persistent_volume_claim;
    /// Reads a StorageClass.
    storage_class_from_value, "StorageClass", StorageClass, storage::read_storage_class;
    /// Reads a Namespace.
    namespace_from_value, "Namespace", ObjectMeta, kinds::read_namespace;
    /// Reads a PodDisruptionBudget.
    pod_disruption_budget_from_value, "PodDisruptionBudget", PodDisruptionBudget,
        pdb::read_pod_disruption_budget;
    /// Reads a NodePool.
    node_pool_from_value, "NodePool", NodePool, node_pool::read_node_pool;
    /// Reads an EC2NodeClass.
    node_class_from_value, "EC2NodeClass", Ec2NodeClass, node_class::read_node_class;
    /// Reads a NodeClaim.
    node_claim_from_value, "NodeClaim", NodeClaimObject, node_claim::read_node_claim;
}
