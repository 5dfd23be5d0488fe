//! Requirements of every sort: node selector terms, label selectors, and those of NodePools and NodeClaims.
//!
//! Decides which operators and values each of them admits.

use std::collections::BTreeMap;

use crate::api::pod::{LabelSelector, NodeSelectorTerm};
use crate::requirement::{NodeSelectorRequirement, Operator, Requirement, RequirementError};

use super::decode::{At, Fields};

/// Operators of node selectors.
pub(super) const NODE_OPERATORS: [Operator; 6] =
    [Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist, Operator::Gt, Operator::Lt];
/// Operators of label selectors.
pub(super) const LABEL_OPERATORS: [Operator; 4] =
    [Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist];

/// Reads one requirement of a pod or a volume.
pub(super) fn read_requirement(at: At<'_>, operators: &[Operator]) -> Option<Requirement> {
    if !at.check_map(Fields::Any) {
        return None;
    }
    let key = at.required_text("key", "a label key")?;
    if let Some(field) = at.field("key") {
        field.check_label_key(&key);
    }
    let operator = read_operator(at, operators)?;
    let written = NodeSelectorRequirement { key, operator, values: at.texts("values"), min_values: None };
    Requirement::parse(&written).map_err(|error| report(at, &error)).ok()
}

/// Reads `operator`.
pub(super) fn read_operator(at: At<'_>, operators: &[Operator]) -> Option<Operator> {
    let words: Vec<&str> = operators.iter().map(|operator| operator.as_str()).collect();
    at.required_text("operator", "an operator such as `In`")?;
    let word = at.field("operator")?.one_of("an operator", &words)?.to_owned();
    operators.iter().copied().find(|operator| operator.as_str() == word)
}

/// Says what is wrong with a requirement.
pub(super) fn report(at: At<'_>, error: &RequirementError) {
    let (message, remedy) = match error {
        RequirementError::NoValues { key, operator } => {
            (format!("operator `{operator}` of `{key}` needs at least one value"), "add `values`".to_owned())
        }
        RequirementError::UnexpectedValues { key, operator, .. } => {
            (format!("operator `{operator}` of `{key}` takes no values"), "leave `values` out".to_owned())
        }
        RequirementError::NotOneInteger { key, operator, values } => (
            format!(
                "operator `{operator}` of `{key}` takes exactly one integer, found {}",
                if values.is_empty() { "none".to_owned() } else { format!("`{}`", values.join("`, `")) }
            ),
            "write one integer in quotes, such as `[\"4\"]`".to_owned(),
        ),
        RequirementError::MinValuesUnreachable { key, min_values, values } => (
            format!("`minValues` of `{key}` is `{min_values}`, but `values` lists only `{values}`"),
            "lower it or list more".to_owned(),
        ),
    };
    at.error(message, remedy);
}

/// Reads `matchExpressions` and `matchFields`.
pub(super) fn read_node_term(at: At<'_>) -> NodeSelectorTerm {
    if !at.check_map(Fields::Any) {
        return NodeSelectorTerm::default();
    }
    let all = |key: &'static str| -> Vec<Requirement> {
        let Some(list) = at.list(key) else { return Vec::new() };
        list.items().filter_map(|item| read_requirement(item, &NODE_OPERATORS)).collect()
    };
    NodeSelectorTerm { match_expressions: all("matchExpressions"), match_fields: all("matchFields") }
}

/// Reads `nodeSelectorTerms` of a required node affinity.
pub(super) fn read_node_terms(at: At<'_>, key: &str) -> Vec<NodeSelectorTerm> {
    let Some(selector) = at.object(key, Fields::Any) else { return Vec::new() };
    let Some(list) = selector.list("nodeSelectorTerms") else {
        selector.missing("nodeSelectorTerms", "at least one term");
        return Vec::new();
    };
    list.items().map(read_node_term).collect()
}

/// Reads a label selector.
pub(super) fn read_label_selector(at: At<'_>, key: &str) -> Option<LabelSelector> {
    let selector = at.object(key, Fields::Any)?;
    let mut requirements = from_labels(&selector.labels("matchLabels"));
    if let Some(list) = selector.list("matchExpressions") {
        requirements.extend(list.items().filter_map(|item| read_requirement(item, &LABEL_OPERATORS)));
    }
    Some(LabelSelector { requirements })
}

fn from_labels(labels: &BTreeMap<String, String>) -> Vec<Requirement> {
    labels.iter().map(|(key, value)| Requirement::one_of(key, [value.as_str()])).collect()
}
