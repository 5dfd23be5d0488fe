//! Reads manifests: turns files, and objects of an API server, into [`crate::api`]'s objects.
//!
//! Decides which manifests are accepted: of Karpenter's kinds whatever Karpenter 1.14 accepts, of Kubernetes' kinds the
//! fields that placement needs. The serde types in this module's files are the only list of these fields: the agent
//! keeps and sends them, and drops all others ([`keep`]). It doesn't decide whether objects fit each other (a
//! NodePool's class may be missing).
//!
//! Files are read strictly. A reading reports all errors at once, each with its place and a remedy. Unknown fields are
//! errors in Karpenter's kinds. Objects of an API server stay readable: unknown fields of Karpenter's specs are named on
//! the object. Unknown fields of pods' placement are named on the pods in both, with a warning in files: a cluster may
//! be newer than this program. Those of a controller's own spec get a warning in files. All others are ignored.
//!
//! Invariants: the API server's defaults are filled in; equal pods share one shape; objects of files are ordered by
//! namespace and name, whatever the order of the files; the last of two objects of one name counts.

mod affinity;
pub(crate) mod class_devices;
mod class_selectors;
mod decode;
pub(crate) mod duration;
mod error;
mod expand;
pub(crate) mod fields;
mod kinds;
mod kubelet;
mod kubelet_fields;
mod meta;
mod node;
mod node_claim;
mod node_class;
mod node_pool;
mod pdb;
mod place;
mod pod;
mod priority;
mod requirements;
mod scalar;
mod selector;
mod service;
mod shapes;
mod stated;
mod storage;
mod unread;
mod workload;
mod yaml;

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod stored_tests;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::api::meta::ObjectMeta;
use crate::api::node::Node;
use crate::api::node_claim::NodeClaimObject;
use crate::api::node_class::Ec2NodeClass;
use crate::api::node_pool::NodePool;
use crate::api::pod::Pod;
use crate::api::storage::{CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment};
use crate::api::workload::{DaemonSet, PodDisruptionBudget, Service, Workload};

use decode::{At, ManifestContext};
use error::ObjectProblem;
use priority::Priorities;

pub use error::{ManifestError, ManifestErrors};
pub use expand::expand_workloads;
pub use pod::pod_uid;
pub use stated::{StatedClass, StatedReadiness, StatedReservation, StatedStatuses};

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
    /// CSINodes.
    pub csi_nodes: Vec<CsiNode>,
    /// VolumeAttachments.
    pub volume_attachments: Vec<VolumeAttachment>,
    /// Services.
    pub services: Vec<Service>,
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
    /// What files say in the status of NodePools and EC2NodeClasses.
    pub stated: StatedStatuses,
    /// Ignored kinds, each once, by name.
    pub skipped: Vec<String>,
}

/// The objects of a reading, and its warnings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct ReadManifests {
    /// The objects.
    pub manifests: Manifests,
    /// Warnings: accepted, but probably a mistake.
    pub warnings: Vec<ManifestError>,
}

/// One object of a kind that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestObject {
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
    /// A CSINode.
    CsiNode(Box<CsiNode>),
    /// A VolumeAttachment.
    VolumeAttachment(Box<VolumeAttachment>),
    /// A Service.
    Service(Box<Service>),
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
    /// A PriorityClass; pods that name it carry its value.
    PriorityClass(String),
    /// The name of an ignored kind.
    Skipped(String),
}

/// Reads files: pairs of a name, for messages, and a text of YAML documents or JSON.
///
/// # Errors
/// All errors of all files, in the order of the files, then by line.
pub fn read_files(files: &[(&str, &str)]) -> Result<ReadManifests, ManifestErrors> {
    let parsed: Vec<(&str, yaml::Documents)> =
        files.iter().map(|(name, text)| (*name, yaml::parse(name, text))).collect();
    let mut priorities = Priorities::of_files();
    for document in parsed.iter().flat_map(|(_, documents)| &documents.documents) {
        kinds::each_item(&document.value, None, &mut |item, listed| priorities.add(item, listed));
    }
    let mut context = ManifestContext::of_files(priorities);
    let mut collected = kinds::Collected::default();
    let mut stated = StatedStatuses::default();
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    for (file, documents) in parsed {
        let mut problems: Vec<ObjectProblem> = Vec::new();
        for error in documents.errors {
            let yaml::SyntaxError { line, message, remedy } = error;
            problems.push(ObjectProblem { line, field: String::new(), message, remedy });
        }
        let mut is_empty = problems.is_empty();
        for yaml::YamlDocument { value, lines } in documents.documents {
            kinds::each_item(&value, None, &mut |item, listed| {
                stated.add(item, listed);
                is_empty &= item.is_null();
            });
            context.begin(lines);
            kinds::read_document(At::root(&value, &context), &mut collected);
        }
        problems.append(&mut context.problems.borrow_mut());
        errors.extend(sorted(problems, file));
        if is_empty {
            warnings.push(nothing_in(file));
        }
        warnings.extend(sorted(std::mem::take(&mut *context.warnings.borrow_mut()), file));
    }
    let manifests = Manifests { stated, ..collected.into_manifests() };
    if errors.is_empty() { Ok(ReadManifests { manifests, warnings }) } else { Err(ManifestErrors(errors)) }
}

/// The value of a text of one YAML document or of JSON; null if it is empty.
///
/// # Errors
/// The first problem, with its remedy.
pub(crate) fn document(text: &str) -> Result<Value, String> {
    let yaml::Documents { documents, errors } = yaml::parse("", text);
    if let Some(yaml::SyntaxError { message, remedy, .. }) = errors.into_iter().next() {
        return Err(format!("{message}; {remedy}"));
    }
    let mut documents = documents.into_iter();
    match (documents.next(), documents.next()) {
        (document, None) => Ok(document.map_or(Value::Null, |document| document.value)),
        (_, Some(_)) => Err("it is more than one document; write one".to_owned()),
    }
}

/// The line of a field of a text's first document, or of what is around it: `place` is as in `steps[3].run`.
#[must_use]
pub fn line_of(text: &str, place: &str) -> Option<u32> {
    yaml::parse("", text).documents.first()?.lines.of(place)
}

/// The objects of a text as `kubectl` would send them, with Lists split into their items. Skips documents with syntax
/// errors and validates nothing else.
#[must_use]
pub fn objects(file: &str, text: &str) -> Vec<Value> {
    let mut objects = Vec::new();
    for document in &yaml::parse(file, text).documents {
        kinds::each_item(&document.value, None, &mut |item, _listed| objects.push(item.clone()));
    }
    objects.retain(Value::is_object);
    objects
}

/// The warning about a file without objects: a command that failed looks like a cluster without pods.
fn nothing_in(file: &str) -> ManifestError {
    ManifestError {
        file: file.to_owned(),
        line: None,
        field: String::new(),
        message: "it holds no object".to_owned(),
        remedy: "check the command that wrote it".to_owned(),
    }
}

fn sorted(mut problems: Vec<ObjectProblem>, file: &str) -> Vec<ManifestError> {
    problems.sort_by_key(|problem| problem.line);
    problems.into_iter().map(|problem| problem.of(file)).collect()
}

/// Reads one object as strictly as one of a file; `place` names it in messages.
///
/// # Errors
/// All its errors.
pub fn read_value(value: &Value, place: &str) -> Result<ManifestObject, ManifestErrors> {
    read_as(value, place, ManifestContext::default(), |at| kinds::read_strictly(at, None))
}

/// Reads one object that an API server accepted. Messages don't name it: the caller knows its kind and name.
///
/// # Errors
/// All its errors. An unknown field is none.
pub fn read_stored(value: &Value) -> Result<ManifestObject, ManifestErrors> {
    read_as(value, "", ManifestContext::of_server(), kinds::read_stored)
}

/// Reads a value with `read`, which reports an error whenever it returns `None`.
fn read_as<T>(
    value: &Value,
    place: &str,
    context: ManifestContext,
    read: impl FnOnce(At<'_, '_>) -> Option<T>,
) -> Result<T, ManifestErrors> {
    let object = read(At::root(value, &context));
    let mut problems = context.problems.take();
    match object {
        Some(object) if problems.is_empty() => Ok(object),
        Some(_) | None => {
            if problems.is_empty() {
                let message = "not a readable object".to_owned();
                problems.push(ObjectProblem {
                    line: None,
                    field: String::new(),
                    message,
                    remedy: String::new(),
                });
            }
            Err(ManifestErrors(sorted(problems, place)))
        }
    }
}

/// Reads a Pod that an API server accepted; see [`read_stored`].
///
/// # Errors
/// All its errors.
pub fn pod_from_value(value: &Value) -> Result<Pod, ManifestErrors> {
    read_as(value, "", ManifestContext::of_server(), pod::read_pod)
}

/// Reads a Node that an API server accepted; see [`read_stored`].
///
/// # Errors
/// All its errors.
pub fn node_from_value(value: &Value) -> Result<Node, ManifestErrors> {
    read_as(value, "", ManifestContext::of_server(), node::read_node)
}

/// Reads an EC2NodeClass that an API server accepted; see [`read_stored`].
///
/// # Errors
/// All its errors.
pub fn node_class_from_value(value: &Value) -> Result<Ec2NodeClass, ManifestErrors> {
    read_as(value, "", ManifestContext::of_server(), node_class::read_node_class)
}

/// Reads a part of an object that an API server accepted, such as a taint; `None` after an error.
#[must_use]
pub fn part<T: serde::de::DeserializeOwned>(value: &Value) -> Option<T> {
    read_as(value, "", ManifestContext::of_server(), |at| at.read()).ok()
}

/// Drops the fields of an object that this module's types don't have. Invalid values stay, so that the next reader
/// reports them. Objects of ignored kinds stay whole.
pub fn keep(kind: &str, object: &mut Value) {
    let context = ManifestContext::of_server();
    let _ = kinds::read_kind(At::root(object, &context), kind);
    for pointer in context.dropped() {
        let Some((around, name)) = pointer.rsplit_once('/') else { continue };
        if let Some(fields) = object.pointer_mut(around).and_then(Value::as_object_mut) {
            fields.remove(&name.replace("~1", "/").replace("~0", "~"));
        }
    }
}
