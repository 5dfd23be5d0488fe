//! Requirements of pods and volumes: node selector terms and label selectors.
//!
//! Decides which operators and values each of them allows.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error};

use super::decode::{not_a_word, told};
use super::fields::{LabelKey, labels, text};
use crate::api::pod::{LabelSelector, NodeSelectorTerm};
use crate::requirement::{NodeSelectorRequirement, Operator, Requirement, RequirementError};

/// The operators that a selector allows.
pub(super) trait Operators {
    const WORDS: &'static [&'static str];
}

/// Node selectors.
#[derive(Debug)]
pub(super) enum OfNodes {}
/// Label selectors.
#[derive(Debug)]
pub(super) enum OfLabels {}

impl Operators for OfNodes {
    const WORDS: &'static [&'static str] = &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
}
impl Operators for OfLabels {
    const WORDS: &'static [&'static str] = &["In", "NotIn", "Exists", "DoesNotExist"];
}

/// One requirement of a pod or a volume.
#[derive(Debug)]
pub(super) struct AskedRequirement<K>(Requirement, PhantomData<K>);

impl<'de, K: Operators> Deserialize<'de> for AskedRequirement<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let RequirementFields { key, operator, values } = RequirementFields::<K>::deserialize(deserializer)?;
        let written = NodeSelectorRequirement { key: key.0, operator: operator.0, values, min_values: None };
        let requirement = Requirement::parse(&written).map_err(|error| {
            let (message, remedy) = refusal(&error);
            Error::custom(told(message, remedy))
        })?;
        Ok(Self(requirement, PhantomData))
    }
}

#[derive(serde::Deserialize)]
#[serde(bound = "K: Operators")]
struct RequirementFields<K> {
    key: LabelKey,
    operator: Word<K>,
    #[serde(default)]
    values: Vec<String>,
}

struct Word<K>(Operator, PhantomData<K>);

impl<'de, K: Operators> Deserialize<'de> for Word<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = text(deserializer)?;
        let known = K::WORDS.contains(&word.as_str()).then(|| Operator::parse(&word)).flatten();
        let unknown = || Error::custom(not_a_word(&word, "an operator", K::WORDS));
        Ok(Self(known.ok_or_else(unknown)?, PhantomData))
    }
}

/// The message and the remedy for an invalid requirement.
pub(super) fn refusal(error: &RequirementError) -> (String, &'static str) {
    match error {
        RequirementError::NoValues { key, operator } => {
            (format!("operator `{operator}` of `{key}` needs at least one value"), "add `values`")
        }
        RequirementError::UnexpectedValues { key, operator, .. } => {
            (format!("operator `{operator}` of `{key}` takes no values"), "leave `values` out")
        }
        RequirementError::NotOneInteger { key, operator, values } => (
            format!(
                "operator `{operator}` of `{key}` takes exactly one integer, found {}",
                if values.is_empty() { "none".to_owned() } else { format!("`{}`", values.join("`, `")) }
            ),
            "write one integer in quotes, such as `[\"4\"]`",
        ),
        RequirementError::MinValuesUnreachable { key, min_values, values } => (
            format!("`minValues` of `{key}` is `{min_values}`, but `values` lists only `{values}`"),
            "lower it or list more",
        ),
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SelectorTerm {
    match_expressions: Vec<AskedRequirement<OfNodes>>,
    match_fields: Vec<AskedRequirement<OfNodes>>,
}

impl<'de> Deserialize<'de> for NodeSelectorTerm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let SelectorTerm { match_expressions, match_fields } = SelectorTerm::deserialize(deserializer)?;
        let all = |asked: Vec<AskedRequirement<OfNodes>>| asked.into_iter().map(|asked| asked.0).collect();
        Ok(Self { match_expressions: all(match_expressions), match_fields: all(match_fields) })
    }
}

/// A node selector: its terms are ORed.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeSelector {
    #[serde(deserialize_with = "terms")]
    pub(super) node_selector_terms: Vec<NodeSelectorTerm>,
}

fn terms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<NodeSelectorTerm>, D::Error> {
    let terms = Vec::deserialize(deserializer)?;
    if terms.is_empty() {
        return Err(Error::custom(told("must not be empty", "add at least one term")));
    }
    Ok(terms)
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Labelled {
    #[serde(deserialize_with = "labels")]
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<AskedRequirement<OfLabels>>,
}

impl<'de> Deserialize<'de> for LabelSelector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Labelled { match_labels, match_expressions } = Labelled::deserialize(deserializer)?;
        let given = match_labels.iter().map(|(key, value)| Requirement::one_of(key, [value.as_str()]));
        let asked = match_expressions.into_iter().map(|asked| asked.0);
        Ok(Self { requirements: given.chain(asked).collect() })
    }
}
