//! NodeClaim, `karpenter.sh/v1`.
//!
//! Decides the same as for a NodePool's template, but that a claim carries the labels that Karpenter sets.

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::decode::{At, Kept, Named, told};
use super::fields::{Lapse, Plain};
use super::meta::{Form, Scope};
use super::node_pool::ClaimSpec;
use super::requirements::{Owner, Wanted};
use crate::api::node_claim::NodeClaimObject;
use crate::api::node_pool::{NodeClaimTemplate, NodeClassRef};
use crate::id::{ClaimName, ParseIdError, ProviderId};
use crate::resources::ResourceList;
use crate::taint::Taint;

/// [`ClaimSpec`], and what only a NodeClaim has.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Written {
    node_class_ref: Option<NodeClassRef>,
    requirements: Option<Vec<Wanted>>,
    resources: Resources,
    taints: Vec<Taint>,
    startup_taints: Vec<Taint>,
    expire_after: Option<Lapse>,
    termination_grace_period: Option<Plain>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: ResourceList,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[serde(rename = "providerID")]
    provider_id: Option<ProviderId>,
    node_name: Option<String>,
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
    let mut form: Form<Named<Written>, Kept<Status>> = at.read()?;
    let Named(written) = form.spec(&at.place)?;
    let Kept(status) = form.status.unwrap_or_default();
    let spec = ClaimSpec {
        node_class_ref: written.node_class_ref,
        requirements: written.requirements,
        taints: written.taints,
        startup_taints: written.startup_taints,
        expire_after: written.expire_after,
        termination_grace_period: written.termination_grace_period,
    };
    let template = spec.into_domain(&at.place.key("spec"), Owner::NodeClaim);
    let meta = form.metadata.of_object(&at.place, Scope::Cluster)?;
    let (labels, annotations) = (meta.labels.clone(), meta.annotations.clone());
    Some(NodeClaimObject {
        name: ClaimName::parse(meta.name.clone()).ok()?,
        meta,
        spec: NodeClaimTemplate { labels, annotations, ..template? },
        requests: written.resources.requests,
        provider_id: status.provider_id,
        node_name: status.node_name,
        unknown: Vec::new(),
    })
}
