//! The spread that kube-scheduler gives pods without a constraint of their own.
//!
//! Decides which pods get the cluster's default constraints, and which pods these count: those of the same controller,
//! a ReplicaSet, a ReplicationController or a StatefulSet, that all Services of the pod select. A pod with neither is
//! left alone. A controller's pods are known by their owner, because its selector matches them and no others: the agent
//! reports no ReplicaSets.
//!
//! Source: `buildDefaultConstraints` and `DefaultSelector` in kubernetes/kubernetes `pkg/scheduler/framework/plugins`,
//! read 2026-11.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::PodShape;
use tenon_domain::api::pod::{LabelSelector, NodeInclusionPolicy, TopologySpreadConstraint};
use tenon_domain::requirement::Requirement;

use super::super::input::DefaultSpread;
use super::selectors::{PodController, PodSelector};

/// Kinds whose pods are spread together. A Deployment's pods have ReplicaSets; in manifests it stands for its own.
const CONTROLLERS: [&str; 4] = ["ReplicaSet", "ReplicationController", "StatefulSet", "Deployment"];

/// The cluster's default constraints for a pod, with the pods that they count.
pub(crate) fn default_constraints<'a>(
    shape: &PodShape,
    defaults: &'a DefaultSpread,
) -> impl Iterator<Item = (TopologySpreadConstraint, PodSelector)> + 'a {
    let own = !shape.topology_spread.is_empty() || defaults.constraints.is_empty();
    let selector = if own { None } else { selector(shape, defaults) };
    selector.into_iter().flat_map(|selector| {
        defaults.constraints.iter().map(move |one| {
            let constraint = TopologySpreadConstraint {
                max_skew: one.max_skew,
                topology_key: one.topology_key.clone(),
                when_unsatisfiable: one.when_unsatisfiable,
                selector: None,
                min_domains: None,
                node_affinity_policy: NodeInclusionPolicy::Honor,
                node_taints_policy: NodeInclusionPolicy::Ignore,
                match_label_keys: Vec::new(),
            };
            (constraint, selector.clone())
        })
    })
}

fn selector(shape: &PodShape, defaults: &DefaultSpread) -> Option<PodSelector> {
    let mut served: BTreeMap<&str, &str> = BTreeMap::new();
    for service in defaults.services.iter().filter(|service| service.meta.namespace == shape.namespace) {
        let Some(selector) = &service.selector else { continue };
        if selector.iter().all(|(key, value)| shape.labels.get(key) == Some(value)) {
            served.extend(selector.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        }
    }
    let controller = shape.owner.as_ref().filter(|owner| CONTROLLERS.contains(&owner.kind.as_str()));
    let controller = controller.map(|of| PodController { kind: of.kind.clone(), name: of.name.clone() });
    if served.is_empty() && controller.is_none() {
        return None;
    }
    let requirements = served.into_iter().map(|(key, value)| Requirement::one_of(key, [value])).collect();
    Some(PodSelector {
        namespaces: Some(BTreeSet::from([shape.namespace.clone()])),
        labels: Some(LabelSelector { requirements }),
        controller,
        claim: None,
    })
}
