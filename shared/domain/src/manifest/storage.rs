//! PersistentVolumeClaim, PersistentVolume, StorageClass, CSINode and VolumeAttachment.
//!
//! Reads only what restricts placement.

use serde::Deserialize;

use super::decode::{At, KeepUnknown, Whole};
use super::fields::{LabelKey, MOST, text, within};
use super::meta::{KindScope, Metadata, ObjectFields, Unread};
use super::selector::NodeSelector;
use crate::api::pod::NodeSelectorTerm;
use crate::api::storage::{
    ClaimUsers, CsiNode, EBS_DRIVER, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment,
    VolumeBinding,
};
use crate::requirement::Requirement;

/// The access mode of claims for one pod at a time.
const FOR_ONE_POD: &str = "ReadWriteOncePod";

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct VolumeClaimSpec {
    storage_class_name: Option<String>,
    volume_name: String,
    access_modes: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct VolumePhase {
    phase: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct VolumeSpec {
    node_affinity: KeepUnknown<VolumeAffinity>,
    #[serde(rename = "storageClassName")]
    _storage_class_name: Whole,
    csi: Option<Csi>,
    aws_elastic_block_store: Option<Whole>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct VolumeAffinity {
    required: Option<NodeSelector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Csi {
    driver: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClassForm {
    #[serde(default, rename = "apiVersion")]
    _api_version: Whole,
    #[serde(default, rename = "kind")]
    _kind: Whole,
    #[serde(default)]
    metadata: Metadata,
    #[serde(deserialize_with = "text")]
    provisioner: String,
    #[serde(default)]
    volume_binding_mode: VolumeBinding,
    #[serde(default)]
    allowed_topologies: KeepUnknown<Vec<Topology>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Topology {
    match_label_expressions: Vec<TopologyTerm>,
}

#[derive(Debug, Deserialize)]
struct TopologyTerm {
    key: LabelKey,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CsiNodeSpec {
    drivers: Vec<CsiNodeDriver>,
}

#[derive(Debug, Deserialize)]
struct CsiNodeDriver {
    #[serde(deserialize_with = "text")]
    name: String,
    #[serde(default)]
    allocatable: DriverAllocatable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DriverAllocatable {
    #[serde(deserialize_with = "within::<0, MOST, _, _>")]
    count: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttachmentSpec {
    #[serde(deserialize_with = "text")]
    attacher: String,
    #[serde(deserialize_with = "text")]
    node_name: String,
    #[serde(default)]
    source: AttachmentSource,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AttachmentSource {
    persistent_volume_name: Option<String>,
}

pub(super) fn read_persistent_volume_claim(at: At<'_, '_>) -> Option<PersistentVolumeClaim> {
    let form: ObjectFields<VolumeClaimSpec, VolumePhase> = at.read()?;
    let spec = form.spec.unwrap_or_default();
    let for_one_pod = spec.access_modes.iter().any(|mode| mode == FOR_ONE_POD);
    Some(PersistentVolumeClaim {
        users: if for_one_pod { ClaimUsers::OnePod } else { ClaimUsers::Many },
        storage_class: spec.storage_class_name,
        volume: Some(spec.volume_name).filter(|name| !name.is_empty()),
        phase: form.status.and_then(|status| status.phase).unwrap_or_else(|| "Pending".to_owned()),
        meta: form.metadata.of_object(&at.place, KindScope::Namespaced)?,
    })
}

pub(super) fn read_persistent_volume(at: At<'_, '_>) -> Option<PersistentVolume> {
    let mut form: ObjectFields<VolumeSpec, VolumePhase> = at.read()?;
    let spec = form.spec(&at.place)?;
    let terms = spec.node_affinity.0.required.map(|selector| selector.node_selector_terms);
    let driver = spec.csi.and_then(|csi| csi.driver);
    Some(PersistentVolume {
        meta: form.metadata.of_object(&at.place, KindScope::Cluster)?,
        node_affinity: terms.unwrap_or_default(),
        driver: driver.or_else(|| spec.aws_elastic_block_store.map(|_| EBS_DRIVER.to_owned())),
    })
}

pub(super) fn read_storage_class(at: At<'_, '_>) -> Option<StorageClass> {
    let form: ClassForm = at.read()?;
    let asked = |place: TopologyTerm| Requirement::one_of(&place.key.0, place.values);
    let term = |topology: Topology| NodeSelectorTerm {
        match_expressions: topology.match_label_expressions.into_iter().map(asked).collect(),
        match_fields: Vec::new(),
    };
    Some(StorageClass {
        meta: form.metadata.of_object(&at.place, KindScope::Cluster)?,
        provisioner: form.provisioner,
        binding: form.volume_binding_mode,
        allowed_topologies: form.allowed_topologies.0.into_iter().map(term).collect(),
    })
}

pub(super) fn read_csi_node(at: At<'_, '_>) -> Option<CsiNode> {
    let form: ObjectFields<CsiNodeSpec, Unread> = at.read()?;
    let drivers = form.spec.unwrap_or_default().drivers.into_iter();
    Some(CsiNode {
        meta: form.metadata.of_object(&at.place, KindScope::Cluster)?,
        drivers: drivers.map(|driver| (driver.name, driver.allocatable.count)).collect(),
    })
}

pub(super) fn read_volume_attachment(at: At<'_, '_>) -> Option<VolumeAttachment> {
    let mut form: ObjectFields<AttachmentSpec, Unread> = at.read()?;
    let spec = form.spec(&at.place)?;
    Some(VolumeAttachment {
        meta: form.metadata.of_object(&at.place, KindScope::Cluster)?,
        driver: spec.attacher,
        node: spec.node_name,
        volume: spec.source.persistent_volume_name,
    })
}
