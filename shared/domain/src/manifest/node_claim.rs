//! NodeClaim, `karpenter.sh/v1`.
//!
//! Decides the same as for a NodePool's template, except that a NodeClaim carries the labels that Karpenter sets.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::decode::{At, KeepUnknown, NameUnknown, told};
use super::fields::{Lapse, PlainDuration, time};
use super::meta::{KindScope, ObjectFields};
use super::node_pool::NodeClaimSpec;
use super::requirements::{RequirementEntry, RequirementsOwner};
use crate::api::node_claim::NodeClaimObject;
use crate::api::node_pool::{NodeClaimTemplate, NodeClassRef};
use crate::id::{ClaimName, ParseIdError, ProviderId};
use crate::resources::ResourceList;
use crate::taint::Taint;

/// [`NodeClaimSpec`] and the fields that only a NodeClaim has.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeClaimFields {
    node_class_ref: Option<NodeClassRef>,
    requirements: Option<Vec<RequirementEntry>>,
    resources: ClaimResources,
    taints: Vec<Taint>,
    startup_taints: Vec<Taint>,
    expire_after: Option<Lapse>,
    termination_grace_period: Option<PlainDuration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimResources {
    requests: ResourceList,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeClaimStatusFields {
    #[serde(rename = "providerID")]
    provider_id: Option<ProviderId>,
    node_name: Option<String>,
    #[serde(deserialize_with = "time")]
    last_pod_event_time: Option<Timestamp>,
}

impl<'de> Deserialize<'de> for ProviderId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(|ParseIdError { kind, value, expected }| {
            Error::custom(told(
                format_args!("`{value}` is not a valid {kind}"),
                format_args!("write {expected}"),
            ))
        })
    }
}

pub(super) fn read_node_claim(at: At<'_, '_>) -> Option<NodeClaimObject> {
    let mut form: ObjectFields<NameUnknown<NodeClaimFields>, KeepUnknown<NodeClaimStatusFields>> =
        at.read()?;
    let NameUnknown(written) = form.spec(&at.place)?;
    let KeepUnknown(status) = form.status.unwrap_or_default();
    let spec = NodeClaimSpec {
        node_class_ref: written.node_class_ref,
        requirements: written.requirements,
        taints: written.taints,
        startup_taints: written.startup_taints,
        expire_after: written.expire_after,
        termination_grace_period: written.termination_grace_period,
    };
    let template = spec.into_domain(&at.place.key("spec"), RequirementsOwner::NodeClaim);
    let meta = form.metadata.of_object(&at.place, KindScope::Cluster)?;
    let (labels, annotations) = (meta.labels.clone(), meta.annotations.clone());
    Some(NodeClaimObject {
        name: ClaimName::parse(meta.name.clone()).ok()?,
        meta,
        spec: NodeClaimTemplate { labels, annotations, ..template? },
        requests: written.resources.requests,
        provider_id: status.provider_id,
        node_name: status.node_name,
        last_pod_event: status.last_pod_event_time,
        unknown: Vec::new(),
    })
}
