//! NodeClaim, `karpenter.sh/v1`, in the cluster: the face of a claim, not its state (see [`crate::claim`]).

use jiff::Timestamp;

use crate::api::meta::ObjectMeta;
use crate::api::node_pool::NodeClaimTemplate;
use crate::id::{ClaimName, ProviderId};
use crate::resources::ResourceList;

/// A NodeClaim object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeClaimObject {
    /// Its metadata; a user's deletion counts like one of ours.
    pub meta: ObjectMeta,
    /// Its name.
    pub name: ClaimName,
    /// `spec`, the labels and annotations of its metadata among it.
    pub spec: NodeClaimTemplate,
    /// `spec.resources.requests`.
    pub requests: ResourceList,
    /// `status.providerID`.
    pub provider_id: Option<ProviderId>,
    /// `status.nodeName`.
    pub node_name: Option<String>,
    /// `status.lastPodEventTime`. A snapshot has the time when a pod last left the Node instead.
    pub last_pod_event: Option<Timestamp>,
    /// Fields of `spec` that this version doesn't know, by place.
    pub unknown: Vec<String>,
}
