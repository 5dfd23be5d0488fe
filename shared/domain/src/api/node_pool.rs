//! NodePool, `karpenter.sh/v1`.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::Deserialize;

use crate::api::meta::ObjectMeta;
use crate::budget::Budget;
use crate::id::{NodeClassName, NodePoolName};
use crate::labels::{PAUSE_DISRUPTION, PROVIDER_DOMAIN};
use crate::manifest::fields::{api_group, text};
use crate::requirement::Requirements;
use crate::resources::ResourceList;
use crate::taint::Taint;

/// A NodePool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePool {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Its name.
    pub name: NodePoolName,
    /// `spec.template`.
    pub template: NodeClaimTemplate,
    /// `spec.disruption`.
    pub disruption: DisruptionPolicy,
    /// `spec.limits`, the pseudo-resource `nodes` among them.
    pub limits: ResourceList,
    /// `spec.weight`: higher first; 0 where absent.
    pub weight: u8,
    /// `spec.replicas`: a static pool.
    pub replicas: Option<u32>,
    /// Fields of `spec` that this version doesn't know, by place.
    pub unknown: Vec<String>,
    /// What an API server accepted and is probably a mistake: the place, what is wrong, the remedy.
    pub warnings: Vec<String>,
}

impl NodePool {
    /// Whether an annotation pauses voluntary disruption of its nodes. Any value but `false` does: a typing error must
    /// not disrupt what somebody wants to keep.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.meta.annotations.get(PAUSE_DISRUPTION).is_some_and(|value| value != "false")
    }

    /// Whether it is static: nothing acts on the whole pool yet.
    #[must_use]
    pub const fn is_static(&self) -> bool {
        self.replicas.is_some()
    }
}

/// `spec.template`, from which the pool's claims are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeClaimTemplate {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec.nodeClassRef`.
    pub node_class: NodeClassRef,
    /// `spec.requirements`, with `minValues`.
    pub requirements: Requirements,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.startupTaints`.
    pub startup_taints: Vec<Taint>,
    /// `spec.expireAfter`; `None` is `Never`.
    pub expire_after: Option<SignedDuration>,
    /// `spec.terminationGracePeriod`.
    pub termination_grace_period: Option<SignedDuration>,
}

/// `nodeClassRef`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct NodeClassRef {
    /// `group`; Tenon serves `karpenter.k8s.aws`.
    #[serde(deserialize_with = "api_group")]
    pub group: String,
    /// `kind`; Tenon serves `EC2NodeClass`.
    #[serde(deserialize_with = "text")]
    pub kind: String,
    /// `name`.
    pub name: NodeClassName,
}

impl NodeClassRef {
    /// Whether it is a kind of class that Tenon serves.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.group == PROVIDER_DOMAIN && self.kind == "EC2NodeClass"
    }

    /// Whether it is this EC2NodeClass. Other APIs' classes may have the same name.
    #[must_use]
    pub fn means(&self, class: &NodeClassName) -> bool {
        self.is_served() && self.name == *class
    }
}

/// `spec.disruption`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisruptionPolicy {
    /// `consolidateAfter`; `None` is `Never`.
    pub consolidate_after: Option<SignedDuration>,
    /// `consolidationPolicy`.
    pub consolidation_policy: ConsolidationPolicy,
    /// `budgets`; one of 10 % where absent.
    pub budgets: Vec<Budget>,
}

/// `consolidationPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename = "a consolidation policy")]
pub enum ConsolidationPolicy {
    /// Only empty nodes.
    WhenEmpty,
    /// Empty and underutilised nodes.
    WhenEmptyOrUnderutilized,
    /// Underutilised nodes where the saving is worth the disruption.
    Balanced,
}
