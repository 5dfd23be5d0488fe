//! `spec.requirements` of NodePools and NodeClaims.
//!
//! Decides keys, operators, value counts and `minValues` as Karpenter does (kubernetes-sigs/karpenter
//! `pkg/apis/v1/nodepool.go`, `nodepool_validation.go`, `nodeclaim.go`). What Karpenter accepts without effect (values
//! with `Exists`, `NotIn` without values) gets a warning.

use serde::Deserialize;

use super::decode::{Place, quoted};
use super::fields::{LabelKey, LabelValue, within};
use super::selector::refusal;
use crate::labels;
use crate::requirement::aliases::normalize;
use crate::requirement::hints::label_hint;
use crate::requirement::{NodeSelectorRequirement, Operator, Requirement, Requirements};

/// Karpenter's bounds.
const MAX_REQUIREMENTS: usize = 100;
const MAX_KEY: usize = 316;
const MAX_MIN_VALUES: i64 = 50;
/// Labels with a fixed set of values; a requirement must name at least one of them.
const KNOWN_VALUES: [(&str, &[&str]); 2] = [
    (labels::CAPACITY_TYPE, &["on-demand", "spot", "reserved"]),
    (labels::INSTANCE_TENANCY, &["default", "dedicated"]),
];

/// The author of requirements and labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequirementsOwner {
    /// A user: labels that Karpenter sets are rejected.
    NodePool,
    /// Karpenter or Tenon.
    NodeClaim,
}

/// One of `requirements`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequirementEntry {
    key: LabelKey,
    operator: Operator,
    #[serde(default)]
    values: Vec<LabelValue>,
    #[serde(default, deserialize_with = "within::<1, MAX_MIN_VALUES, _, _>")]
    min_values: Option<u32>,
}

/// `requirements` of a spec; an error if they are missing.
pub(super) fn requirements(
    wanted: Option<Vec<RequirementEntry>>,
    spec: &Place<'_>,
    owner: RequirementsOwner,
) -> Requirements {
    let Some(wanted) = wanted else {
        spec.missing("requirements", "a list, `[]` for none");
        return Requirements::new();
    };
    let list = spec.key("requirements");
    if wanted.len() > MAX_REQUIREMENTS {
        list.error(format!("more than {MAX_REQUIREMENTS} requirements"), "leave some out");
    }
    let read = |(index, wanted): (usize, RequirementEntry)| wanted.into_domain(&list.index(index), owner);
    wanted.into_iter().enumerate().filter_map(read).collect()
}

/// Rejects a label that users may neither set nor require.
pub(super) fn check_key(at: &Place<'_>, key: &str, owner: RequirementsOwner) {
    if owner == RequirementsOwner::NodeClaim {
        return;
    }
    if let Some(restricted) = labels::restricted_label(normalize(key)) {
        let why = restricted.to_string();
        let (why, remedy) = why.split_once("; ").unwrap_or((&why, "leave it out"));
        let hint = label_hint(key, []).filter(|label| labels::restricted_label(label).is_none());
        let remedy = hint.map_or_else(|| remedy.to_owned(), |label| format!("did you mean `{label}`?"));
        at.error(format!("label `{key}` is restricted: {why}"), remedy);
    }
}

impl RequirementEntry {
    fn into_domain(self, at: &Place<'_>, owner: RequirementsOwner) -> Option<Requirement> {
        let Self { key: LabelKey(key), operator, values, min_values } = self;
        let field = at.key("key");
        if key.len() > MAX_KEY {
            field.error(format!("a key of more than {MAX_KEY} characters"), "shorten it");
        }
        check_key(&field, &key, owner);
        let values: Vec<String> = values.into_iter().map(|LabelValue(value)| value).collect();
        check_known_values(at, &key, operator, &values);
        parse(at, NodeSelectorRequirement { key, operator, values, min_values })
    }
}

fn parse(at: &Place<'_>, mut written: NodeSelectorRequirement) -> Option<Requirement> {
    match written.operator {
        Operator::Exists | Operator::DoesNotExist if !written.values.is_empty() => {
            let operator = written.operator;
            at.warn(format!("operator `{operator}` ignores `values`"), "leave `values` out");
            written.values.clear();
        }
        Operator::NotIn if written.values.is_empty() => {
            at.warn("operator `NotIn` without values has no effect", "add `values`, or write `Exists`");
            return Some(
                Requirement::none_of(&written.key, written.values).with_min_values(written.min_values),
            );
        }
        Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
            let negative = written.values.first().is_some_and(|value| value.starts_with('-'));
            if negative {
                at.error(
                    format!("operator `{}` takes an integer of zero or more", written.operator),
                    "write a number that isn't negative",
                );
                return None;
            }
        }
        Operator::In | Operator::NotIn | Operator::Exists | Operator::DoesNotExist => {}
    }
    let refused = |error| {
        let (message, remedy) = refusal(&error);
        at.error(message, remedy);
    };
    Requirement::parse(&written).map_err(refused).ok()
}

fn check_known_values(at: &Place<'_>, key: &str, operator: Operator, values: &[String]) {
    let known = KNOWN_VALUES.iter().find(|(known, _)| *known == key).map(|(_, values)| *values);
    let (Some(known), Operator::In, false) = (known, operator, values.is_empty()) else { return };
    let unknown: Vec<&str> =
        values.iter().map(String::as_str).filter(|value| !known.contains(value)).collect();
    if unknown.is_empty() {
        return;
    }
    let message = format!("no such value of `{key}`: {}", quoted(&unknown));
    let remedy = format!("write one or more of {}", quoted(known));
    if unknown.len() == values.len() { at.error(message, remedy) } else { at.warn(message, remedy) }
}
