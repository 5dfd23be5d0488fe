//! PersistentVolumeClaim, PersistentVolume and StorageClass.
//!
//! Decides nothing but what they say of places.

use crate::api::pod::NodeSelectorTerm;
use crate::api::storage::{PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeBinding};
use crate::requirement::Requirement;
use crate::requirement::hints::parse_word;

use super::decode::{At, Fields};
use super::meta::{Scope, read_meta};
use super::selector::read_node_terms;

/// The CSI driver that took over the in-tree volumes of EBS.
const EBS_DRIVER: &str = "ebs.csi.aws.com";

pub(super) fn read_persistent_volume_claim(at: At<'_>) -> Option<PersistentVolumeClaim> {
    let meta = read_meta(at, Scope::Namespaced, Fields::Any);
    let spec = at.object("spec", Fields::Any);
    let status = at.object("status", Fields::Any);
    Some(PersistentVolumeClaim {
        storage_class: spec.and_then(|spec| spec.text_of("storageClassName")),
        volume: spec.and_then(|spec| spec.text_of("volumeName")).filter(|name| !name.is_empty()),
        phase: status.and_then(|status| status.text_of("phase")).unwrap_or_else(|| "Pending".to_owned()),
        meta: meta?,
    })
}

pub(super) fn read_persistent_volume(at: At<'_>) -> Option<PersistentVolume> {
    let meta = read_meta(at, Scope::Cluster, Fields::Any);
    let spec = at.required_object("spec", Fields::Any)?;
    let node_affinity = spec
        .object("nodeAffinity", Fields::Any)
        .map(|affinity| read_node_terms(affinity, "required"))
        .unwrap_or_default();
    let csi = spec.object("csi", Fields::Any).and_then(|csi| csi.text_of("driver"));
    let driver = csi.or_else(|| spec.has("awsElasticBlockStore").then(|| EBS_DRIVER.to_owned()));
    Some(PersistentVolume { meta: meta?, node_affinity, driver })
}

pub(super) fn read_storage_class(at: At<'_>) -> Option<StorageClass> {
    let meta = read_meta(at, Scope::Cluster, Fields::Any);
    let provisioner = at.required_text("provisioner", "a provisioner such as `ebs.csi.aws.com`");
    let all = [VolumeBinding::Immediate, VolumeBinding::WaitForFirstConsumer];
    let binding = at
        .field("volumeBindingMode")
        .and_then(|field| {
            field.word(|text| {
                parse_word("a volume binding mode", text, &all, |mode| match mode {
                    VolumeBinding::Immediate => "Immediate",
                    VolumeBinding::WaitForFirstConsumer => "WaitForFirstConsumer",
                })
            })
        })
        .unwrap_or_default();
    let allowed_topologies = at
        .list("allowedTopologies")
        .map(|list| list.items().map(read_topology).collect())
        .unwrap_or_default();
    Some(StorageClass { meta: meta?, provisioner: provisioner?, binding, allowed_topologies })
}

fn read_topology(at: At<'_>) -> NodeSelectorTerm {
    if !at.check_map(Fields::Any) {
        return NodeSelectorTerm::default();
    }
    let Some(list) = at.list("matchLabelExpressions") else { return NodeSelectorTerm::default() };
    let match_expressions = list
        .items()
        .filter(|item| item.check_map(Fields::Any))
        .filter_map(|item| {
            let key = item.required_text("key", "a label key")?;
            Some(Requirement::one_of(&key, item.texts("values")))
        })
        .collect();
    NodeSelectorTerm { match_expressions, match_fields: Vec::new() }
}
