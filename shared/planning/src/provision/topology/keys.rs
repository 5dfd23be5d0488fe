//! The labels whose domains pods are dealt to, and which pods for each.
//!
//! Decides the order of the labels. For a label that only counts nodes for spreads of others, it decides from the nodes that
//! these spreads count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::api::pod::NodeInclusionPolicy;

use super::super::needs::PodGroup;
use super::census::{Census, is_of_nodes};
use super::rules::{Force, PodRule, RuleKind};
use super::selectors::SelectorId;

/// The keys with rules about more than one node; those with spreads come first, because they leave least choice.
pub(super) fn keys(groups: &[PodGroup<'_>], waiting: &[u32], census: &Census<'_>) -> Vec<Arc<str>> {
    let of_groups =
        groups.iter().zip(waiting).filter(|(_, pods)| **pods > 0).flat_map(|(group, _)| group.rules.iter());
    let spread = |key: &str, waits: &[u32]| {
        let waiting = groups.iter().zip(waits).filter(|(_, pods)| **pods > 0);
        let mut rules = waiting.flat_map(|(group, _)| group.rules_of(key));
        rules.any(|rule| matches!(rule.kind, RuleKind::Spread(_)))
    };
    let asked = of_groups.map(|rule| Arc::clone(&rule.key));
    let all: BTreeSet<Arc<str>> = asked.chain(census.keys()).filter(|key| !is_of_nodes(key)).collect();
    let (first, last): (Vec<Arc<str>>, Vec<Arc<str>>) = all.into_iter().partition(|key| spread(key, waiting));
    first.into_iter().chain(last).collect()
}

/// Why pods are dealt to the domains of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DealPurpose {
    /// Spreads of other labels count only nodes with some of its values, so that it must be certain whether they count
    /// the pods.
    Certainty,
    /// Rules ask about its domains.
    Rules,
}

impl DealPurpose {
    /// Whether pods of a group are dealt to the domains, where these selectors ask.
    pub(super) fn concerns(self, group: &PodGroup<'_>, key: &str, asked: &BTreeSet<SelectorId>) -> bool {
        let counted = group.is.iter().any(|id| asked.contains(id));
        match self {
            Self::Certainty => counted && !group.alternatives.iter().any(|one| one.asked.contains(key)),
            Self::Rules => counted || group.rules_of(key).next().is_some(),
        }
    }
}

/// The labels that pods with required spreads ask of their nodes, with the selectors of these spreads, but for the
/// labels of rules.
pub(super) fn node_keys(
    groups: &[PodGroup<'_>],
    waiting: &[u32],
    keys: &[Arc<str>],
) -> BTreeMap<Arc<str>, BTreeSet<SelectorId>> {
    let mut found: BTreeMap<Arc<str>, BTreeSet<SelectorId>> = BTreeMap::new();
    for (group, _) in groups.iter().zip(waiting).filter(|(_, pods)| **pods > 0) {
        let honours = |rule: &&PodRule| match rule.kind {
            RuleKind::Spread(terms) => {
                rule.force == Force::Required
                    && terms.affinity == NodeInclusionPolicy::Honor
                    && !is_of_nodes(&rule.key)
            }
            RuleKind::Apart | RuleKind::With => false,
        };
        let selectors: BTreeSet<SelectorId> =
            group.rules.iter().filter(honours).map(|rule| rule.selector).collect();
        let asked = group.counted.iter().flat_map(|one| one.asked.iter());
        let labels = asked.filter(|one| !one.is_complement() && !is_of_nodes(one.key()));
        for label in labels.filter(|one| !keys.iter().any(|key| **key == *one.key())) {
            if !selectors.is_empty() {
                found.entry(label.key().into()).or_default().extend(&selectors);
            }
        }
    }
    found
}

/// The selectors that rules of a key ask about.
pub(super) fn asked_by_rules(
    census: &Census<'_>,
    groups: &[PodGroup<'_>],
    waiting: &[u32],
    key: &str,
) -> BTreeSet<SelectorId> {
    let of_groups = groups.iter().zip(waiting).filter(|(_, pods)| **pods > 0);
    let rules = of_groups.flat_map(|(group, _)| group.rules_of(key)).map(|rule| rule.selector);
    rules.chain(census.kept_out(key)).chain(census.skewed(key)).collect()
}
