//! Affinity and topology spread of pods.
//!
//! Decides how the terms are read, with the defaults that the API server fills in.

use crate::api::pod::{
    NodeInclusionPolicy, PodAffinityTerm, PodShape, TopologySpreadConstraint, WhenUnsatisfiable,
};
use crate::requirement::hints::parse_word;

use super::decode::{At, Fields};
use super::selector::{read_label_selector, read_node_term, read_node_terms};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Reads `affinity` into a shape.
pub(super) fn read_affinity(spec: At<'_>, shape: &mut PodShape) {
    let Some(at) = spec.object("affinity", Fields::Any) else { return };
    if let Some(node) = at.object("nodeAffinity", Fields::Any) {
        shape.required_node_affinity = read_node_terms(node, REQUIRED);
        shape.preferred_node_affinity = read_preferred(node, "preference", |term| Some(read_node_term(term)));
    }
    if let Some(pods) = at.object("podAffinity", Fields::Any) {
        shape.required_pod_affinity = read_pod_terms(pods);
        shape.preferred_pod_affinity = read_preferred(pods, "podAffinityTerm", read_pod_term);
    }
    if let Some(pods) = at.object("podAntiAffinity", Fields::Any) {
        shape.required_pod_anti_affinity = read_pod_terms(pods);
        shape.preferred_pod_anti_affinity = read_preferred(pods, "podAffinityTerm", read_pod_term);
    }
}

fn read_preferred<T>(at: At<'_>, key: &str, read: impl Fn(At<'_>) -> Option<T>) -> Vec<(i32, T)> {
    let Some(list) = at.list(PREFERRED) else { return Vec::new() };
    list.items()
        .filter(|item| item.check_map(Fields::Any))
        .filter_map(|item| {
            if !item.has("weight") {
                item.missing("weight", "a weight from 1 to 100");
            }
            let weight = item.integer_of("weight", 1..=100);
            let term = item.required_object(key, Fields::Any).and_then(&read);
            Some((weight?, term?))
        })
        .collect()
}

fn read_pod_terms(at: At<'_>) -> Vec<PodAffinityTerm> {
    let Some(list) = at.list(REQUIRED) else { return Vec::new() };
    list.items().filter_map(read_pod_term).collect()
}

fn read_pod_term(at: At<'_>) -> Option<PodAffinityTerm> {
    if !at.check_map(Fields::Any) {
        return None;
    }
    Some(PodAffinityTerm {
        selector: read_label_selector(at, "labelSelector"),
        namespaces: at.texts("namespaces"),
        namespace_selector: read_label_selector(at, "namespaceSelector"),
        topology_key: at
            .required_text("topologyKey", "a topology key such as `topology.kubernetes.io/zone`")?,
        match_label_keys: at.texts("matchLabelKeys"),
        mismatch_label_keys: at.texts("mismatchLabelKeys"),
    })
}

/// Reads `topologySpreadConstraints`.
pub(super) fn read_topology_spread(spec: At<'_>) -> Vec<TopologySpreadConstraint> {
    let Some(list) = spec.list("topologySpreadConstraints") else { return Vec::new() };
    list.items().filter(|item| item.check_map(Fields::Any)).filter_map(read_spread).collect()
}

fn read_spread(at: At<'_>) -> Option<TopologySpreadConstraint> {
    if !at.has("maxSkew") {
        at.missing("maxSkew", "a skew of 1 or more");
    }
    let max_skew = at.integer_of("maxSkew", 1..=i64::from(i32::MAX));
    let topology_key =
        at.required_text("topologyKey", "a topology key such as `topology.kubernetes.io/zone`");
    at.required_text("whenUnsatisfiable", "`DoNotSchedule` or `ScheduleAnyway`")?;
    let when_unsatisfiable = at.field("whenUnsatisfiable")?.word(|text| {
        let all = [WhenUnsatisfiable::DoNotSchedule, WhenUnsatisfiable::ScheduleAnyway];
        parse_word("an action", text, &all, |action| match action {
            WhenUnsatisfiable::DoNotSchedule => "DoNotSchedule",
            WhenUnsatisfiable::ScheduleAnyway => "ScheduleAnyway",
        })
    });
    let min_domains = at.integer_of("minDomains", 1..=i64::from(i32::MAX));
    if when_unsatisfiable == Some(WhenUnsatisfiable::ScheduleAnyway)
        && let Some(field) = at.field("minDomains")
    {
        field.error("`minDomains` needs `whenUnsatisfiable: DoNotSchedule`", "leave it out");
    }
    Some(TopologySpreadConstraint {
        max_skew: max_skew?,
        topology_key: topology_key?,
        when_unsatisfiable: when_unsatisfiable?,
        selector: read_label_selector(at, "labelSelector"),
        min_domains,
        node_affinity_policy: read_policy(at, "nodeAffinityPolicy").unwrap_or(NodeInclusionPolicy::Honor),
        node_taints_policy: read_policy(at, "nodeTaintsPolicy").unwrap_or(NodeInclusionPolicy::Ignore),
        match_label_keys: at.texts("matchLabelKeys"),
    })
}

fn read_policy(at: At<'_>, key: &str) -> Option<NodeInclusionPolicy> {
    let all = [NodeInclusionPolicy::Honor, NodeInclusionPolicy::Ignore];
    at.field(key)?.word(|text| {
        parse_word("a node inclusion policy", text, &all, |policy| match policy {
            NodeInclusionPolicy::Honor => "Honor",
            NodeInclusionPolicy::Ignore => "Ignore",
        })
    })
}
