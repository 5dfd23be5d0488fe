//! Storage objects: the volumes that bind pods to places, and how many a Node may attach.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::api::meta::ObjectMeta;
use crate::api::pod::NodeSelectorTerm;

/// The CSI driver of EBS volumes, also of those that name the plugin [`EBS_PLUGIN`].
pub const EBS_DRIVER: &str = "ebs.csi.aws.com";
/// The name of EBS's plugin within Kubernetes, whose work the CSI driver does since 1.23.
pub const EBS_PLUGIN: &str = "kubernetes.io/aws-ebs";
/// The CSI driver of EKS Auto Mode, whose volumes only its own nodes attach.
pub const AUTO_MODE_DRIVER: &str = "ebs.csi.eks.amazonaws.com";

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentVolumeClaim {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.storageClassName`.
    pub storage_class: Option<String>,
    /// `spec.volumeName`, once bound.
    pub volume: Option<String>,
    /// `status.phase` is `Lost`, or another phase by its name.
    pub phase: String,
    /// How many pods may use it at a time.
    pub users: ClaimUsers,
}

/// How many pods may use a PersistentVolumeClaim at a time, by `spec.accessModes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ClaimUsers {
    /// Any number, wherever its volume can be.
    #[default]
    Many,
    /// One: `ReadWriteOncePod`.
    OnePod,
}

/// A PersistentVolume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentVolume {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.nodeAffinity.required`: terms are ORed.
    pub node_affinity: Vec<NodeSelectorTerm>,
    /// The CSI driver, if there is one.
    pub driver: Option<String>,
}

/// A StorageClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageClass {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `provisioner`.
    pub provisioner: String,
    /// `volumeBindingMode`.
    pub binding: VolumeBinding,
    /// `allowedTopologies`, ORed.
    pub allowed_topologies: Vec<NodeSelectorTerm>,
}

/// A CSINode: the CSI drivers of the Node of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiNode {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// By driver, `allocatable.count`: how many volumes the Node may attach; `None` without a limit.
    pub drivers: BTreeMap<String, Option<u32>>,
}

/// A VolumeAttachment: a volume that is attached to a Node, or will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeAttachment {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// `spec.attacher`: the CSI driver.
    pub driver: String,
    /// `spec.nodeName`.
    pub node: String,
    /// `spec.source.persistentVolumeName`; a volume that a pod names inline has none.
    pub volume: Option<String>,
}

/// `volumeBindingMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename = "a volume binding mode")]
pub enum VolumeBinding {
    /// At once.
    #[default]
    Immediate,
    /// When a pod is placed.
    WaitForFirstConsumer,
}
