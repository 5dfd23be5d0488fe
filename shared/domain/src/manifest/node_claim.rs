//! NodeClaim, `karpenter.sh/v1`.
//!
//! Decides the same as for a NodePool's template, but that a claim carries the labels that Karpenter sets.

use crate::api::node_claim::NodeClaimObject;
use crate::api::node_pool::NodeClaimTemplate;
use crate::id::{ClaimName, ProviderId};

use super::decode::{At, Fields};
use super::meta::{META_FIELDS, Scope, read_meta};
use super::node_pool::{OBJECT_FIELDS, read_claim_spec};
use super::requirements::Owner;

pub(super) fn read_node_claim(at: At<'_>) -> Option<NodeClaimObject> {
    at.check_map(OBJECT_FIELDS);
    let meta = read_meta(at, Scope::Cluster, META_FIELDS);
    let fields = Fields::Only(&[
        "nodeClassRef",
        "requirements",
        "resources",
        "taints",
        "startupTaints",
        "expireAfter",
        "terminationGracePeriod",
    ]);
    let spec = at.required_object("spec", fields)?;
    let template = read_claim_spec(spec, Owner::NodeClaim);
    let requests = spec
        .object("resources", Fields::Only(&["requests"]))
        .map(|resources| resources.resources("requests"))
        .unwrap_or_default();
    let status = at.object("status", Fields::Any);
    let provider_id = status.and_then(|status| {
        let field = status.field("providerID")?;
        let text = field.text()?;
        ProviderId::parse(text).map_err(|error| field.report_id(&error)).ok()
    });
    let node_name = status.and_then(|status| status.text_of("nodeName"));
    let meta = meta?;
    let name = ClaimName::parse(meta.name.clone()).ok()?;
    let (labels, annotations) = (meta.labels.clone(), meta.annotations.clone());
    let spec = NodeClaimTemplate { labels, annotations, ..template? };
    Some(NodeClaimObject { meta, name, spec, requests, provider_id, node_name })
}
