//! Affinity of pods.
//!
//! Decides how manifests write terms.

use serde::Deserialize;

use super::fields::integer;
use super::selector::NodeSelector;
use crate::api::pod::{NodeSelectorTerm, PodAffinityTerm, PodShape};

/// `spec.affinity`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Affinity {
    node_affinity: NodeAffinity,
    pod_affinity: PodAffinity,
    pod_anti_affinity: PodAffinity,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeAffinity {
    required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
    preferred_during_scheduling_ignored_during_execution: Vec<PreferredNode>,
}

#[derive(Debug, Deserialize)]
struct PreferredNode {
    #[serde(deserialize_with = "integer::<1, 100, _, _>")]
    weight: i32,
    preference: NodeSelectorTerm,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodAffinity {
    required_during_scheduling_ignored_during_execution: Vec<PodAffinityTerm>,
    preferred_during_scheduling_ignored_during_execution: Vec<PreferredPods>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PreferredPods {
    #[serde(deserialize_with = "integer::<1, 100, _, _>")]
    weight: i32,
    pod_affinity_term: PodAffinityTerm,
}

impl Affinity {
    /// Writes it into a shape.
    pub(super) fn into_shape(self, shape: &mut PodShape) {
        let Self { node_affinity: node, pod_affinity: with, pod_anti_affinity: without } = self;
        let required = node.required_during_scheduling_ignored_during_execution;
        shape.required_node_affinity =
            required.map(|selector| selector.node_selector_terms).unwrap_or_default();
        let preferred = node.preferred_during_scheduling_ignored_during_execution.into_iter();
        shape.preferred_node_affinity = preferred.map(|term| (term.weight, term.preference)).collect();
        (shape.required_pod_affinity, shape.preferred_pod_affinity) = with.terms();
        (shape.required_pod_anti_affinity, shape.preferred_pod_anti_affinity) = without.terms();
    }
}

impl PodAffinity {
    fn terms(self) -> (Vec<PodAffinityTerm>, Vec<(i32, PodAffinityTerm)>) {
        let preferred = self.preferred_during_scheduling_ignored_during_execution.into_iter();
        let preferred = preferred.map(|term| (term.weight, term.pod_affinity_term)).collect();
        (self.required_during_scheduling_ignored_during_execution, preferred)
    }
}
