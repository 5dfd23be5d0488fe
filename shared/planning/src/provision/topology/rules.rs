//! A pod's rules about its neighbours: topology spread, pod affinity and anti-affinity, hard ones and preferred ones.
//!
//! Decides which rules a pod has, those of claims that it shares among them, and in which order it gives up preferences: the
//! node of pods with the same claim, preferred pod affinity, preferred pod anti-affinity, preferred node affinity, then
//! spread with `ScheduleAnyway`, of each the heaviest first.
//!
//! Source of the order: kubernetes-sigs/karpenter `pkg/controllers/provisioning/scheduling/preferences.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use tenon_domain::api::PodShape;
use tenon_domain::api::pod::{
    LabelSelector, NodeInclusionPolicy, NodeSelectorTerm, PodAffinityTerm, PodVolume,
    TopologySpreadConstraint, WhenUnsatisfiable,
};
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;

use super::super::input::ProvisionInput;
use super::census::is_of_nodes;
use super::defaults::default_constraints;
use super::selectors::{ClaimNames, PodSelector, SelectorId};

/// A rule about the pods of the same domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodRule {
    /// The label whose values are domains.
    pub(crate) key: Arc<str>,
    /// The pods that it counts.
    pub(crate) selector: SelectorId,
    /// What it asks.
    pub(crate) kind: RuleKind,
    /// Whether it binds pods that come later, too.
    pub(crate) force: Force,
}

/// Whether a rule binds others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Force {
    /// It is required: pods that come later keep it.
    Required,
    /// It is preferred: it counts only for the pod that has it, while that pod looks for a place.
    Preferred,
}

/// What a rule asks of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RuleKind {
    /// None of the pods is there.
    Apart,
    /// One of the pods is there.
    With,
    /// No more of the pods are there than elsewhere.
    Spread(SpreadTerms),
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apart => f.write_str("its anti-affinity"),
            Self::With => f.write_str("its affinity"),
            Self::Spread(terms) => write!(f, "its topology spread with `maxSkew` {}", terms.max_skew),
        }
    }
}

/// The terms of a topology spread constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpreadTerms {
    /// `maxSkew`.
    pub(crate) max_skew: u32,
    /// `minDomains`; 1 where absent.
    pub(crate) min_domains: u32,
    /// `nodeAffinityPolicy`.
    pub(crate) affinity: NodeInclusionPolicy,
    /// `nodeTaintsPolicy`.
    pub(crate) taints: NodeInclusionPolicy,
}

/// A preference, which a pod gives up where it finds no place with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// A rule.
    Rule(PodRule),
    /// A preferred term of the node affinity.
    Node(NodeSelectorTerm),
}

/// The rules of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Rules {
    /// What it requires.
    pub(crate) hard: Vec<PodRule>,
    /// What it prefers, in the order of giving up.
    pub(crate) soft: Vec<Wish>,
    /// Of the selectors, those of claims that it shares.
    pub(crate) of_claims: BTreeSet<SelectorId>,
}

/// The labels of namespaces, by name.
pub(crate) type Namespaces = BTreeMap<String, BTreeMap<String, String>>;

impl Rules {
    /// The rules of a pod, the cluster's default spread among them; `id` gives each selector its index.
    pub(crate) fn of(
        shape: &PodShape,
        input: &ProvisionInput,
        shared: &ClaimNames,
        mut id: impl FnMut(PodSelector) -> SelectorId,
    ) -> Self {
        let namespaces = &input.namespaces;
        let mut rules = Self::default();
        rules.share_claims(shape, shared, &mut id);
        let mut term = |term: &PodAffinityTerm, kind, force| PodRule {
            key: key_of(&term.topology_key),
            selector: id(selector_of(term, shape, namespaces)),
            kind,
            force,
        };
        let apart = &shape.required_pod_anti_affinity;
        rules.hard.extend(apart.iter().map(|one| term(one, RuleKind::Apart, Force::Required)));
        for (preferred, kind) in [
            (&shape.preferred_pod_affinity, RuleKind::With),
            (&shape.preferred_pod_anti_affinity, RuleKind::Apart),
        ] {
            let heaviest = heaviest_first(preferred);
            rules.soft.extend(heaviest.into_iter().map(|one| Wish::Rule(term(one, kind, Force::Preferred))));
        }
        if let Some(selector) = all_of(&shape.required_pod_affinity, shape, namespaces) {
            let with = shape.required_pod_affinity.iter().map(|one| PodRule {
                key: key_of(&one.topology_key),
                selector: id(selector.clone()),
                kind: RuleKind::With,
                force: Force::Required,
            });
            rules.hard.extend(with);
        }
        let preferred = heaviest_first(&shape.preferred_node_affinity);
        rules.soft.extend(preferred.into_iter().cloned().map(Wish::Node));
        let own = shape.topology_spread.iter().map(|one| (one.clone(), spread_selector(one, shape)));
        for (constraint, selector) in own.chain(default_constraints(shape, &input.default_spread)) {
            let rule = spread(&constraint, id(selector));
            match constraint.when_unsatisfiable {
                WhenUnsatisfiable::DoNotSchedule => rules.hard.push(rule),
                WhenUnsatisfiable::ScheduleAnyway => rules.soft.push(Wish::Rule(rule)),
            }
        }
        rules.hard.sort();
        rules.hard.dedup();
        rules
    }

    /// The volume of a claim that isn't bound comes to the zone of its first pod, and there it is attached to one node.
    /// kube-scheduler keeps later pods to the zone alone.
    fn share_claims(
        &mut self,
        shape: &PodShape,
        shared: &ClaimNames,
        id: &mut impl FnMut(PodSelector) -> SelectorId,
    ) {
        if shared.is_empty() {
            return;
        }
        for selector in shared_by(shape, shared) {
            let selector = id(selector);
            let with = |key: &str, force| PodRule { key: key_of(key), selector, kind: RuleKind::With, force };
            self.hard.push(with(labels::ZONE, Force::Required));
            self.soft.push(Wish::Rule(with(labels::HOSTNAME, Force::Preferred)));
            self.of_claims.insert(selector);
        }
    }

    /// The labels of all rules.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.all().map(|rule| &rule.key)
    }

    /// The selectors of all rules about single nodes.
    pub(crate) fn on_nodes(&self) -> impl Iterator<Item = SelectorId> {
        self.all().filter(|rule| is_of_nodes(&rule.key)).map(|rule| rule.selector)
    }

    fn all(&self) -> impl Iterator<Item = &PodRule> {
        let soft = self.soft.iter().filter_map(|wish| match wish {
            Wish::Rule(rule) => Some(rule),
            Wish::Node(_) => None,
        });
        self.hard.iter().chain(soft)
    }

    /// The rules that count after so many preferences were given up.
    pub(crate) fn without(&self, given_up: usize) -> Vec<PodRule> {
        let kept = self.soft.iter().skip(given_up).filter_map(|wish| match wish {
            Wish::Rule(rule) => Some(rule),
            Wish::Node(_) => None,
        });
        let mut all: Vec<PodRule> = self.hard.iter().chain(kept).cloned().collect();
        all.sort();
        all.dedup();
        all
    }

    /// The preferred node term that counts after so many preferences were given up: the heaviest that is left.
    pub(crate) fn preferred_node(&self, given_up: usize) -> Option<&NodeSelectorTerm> {
        self.soft.iter().skip(given_up).find_map(|wish| match wish {
            Wish::Node(term) => Some(term),
            Wish::Rule(_) => None,
        })
    }
}

/// The pods of each claim that a pod shares.
fn shared_by(shape: &PodShape, shared: &ClaimNames) -> Vec<PodSelector> {
    let is_shared = |name: &String| shared.contains(&(shape.namespace.clone(), name.clone()));
    let claims = shape.volumes.iter().filter_map(|volume| match volume {
        PodVolume::Claim(name) if is_shared(name) => Some(name),
        PodVolume::Claim(_) | PodVolume::Ephemeral { .. } => None,
    });
    let claims: BTreeSet<&String> = claims.collect();
    let of = |claim: &String| PodSelector {
        namespaces: Some(BTreeSet::from([shape.namespace.clone()])),
        labels: Some(LabelSelector { requirements: Vec::new() }),
        controller: None,
        claim: Some(claim.clone()),
    };
    claims.into_iter().map(of).collect()
}

fn heaviest_first<T>(weighted: &[(i32, T)]) -> Vec<&T> {
    let mut sorted: Vec<&(i32, T)> = weighted.iter().collect();
    sorted.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    sorted.into_iter().map(|(_, one)| one).collect()
}

/// The pods that required affinity counts: those that all its terms select, whatever their labels' domains.
fn all_of(terms: &[PodAffinityTerm], shape: &PodShape, namespaces: &Namespaces) -> Option<PodSelector> {
    let both = |one: PodSelector, other: PodSelector| PodSelector {
        namespaces: match (one.namespaces, other.namespaces) {
            (Some(one), Some(other)) => Some(one.intersection(&other).cloned().collect()),
            (named, None) | (None, named) => named,
        },
        labels: one.labels.zip(other.labels).map(|(mut one, other)| {
            one.requirements.extend(other.requirements);
            sorted(one)
        }),
        controller: None,
        claim: None,
    };
    terms.iter().map(|term| selector_of(term, shape, namespaces)).reduce(both)
}

/// The pods that an affinity term counts. Without namespaces it counts those of the pod's own.
fn selector_of(term: &PodAffinityTerm, shape: &PodShape, namespaces: &Namespaces) -> PodSelector {
    let named: BTreeSet<String> = match (&term.namespace_selector, term.namespaces.is_empty()) {
        (None, true) => BTreeSet::from([shape.namespace.clone()]),
        (None, false) => term.namespaces.iter().cloned().collect(),
        (Some(selector), _) if selector.requirements.is_empty() => {
            let labels = with_keys(term, shape);
            return PodSelector { namespaces: None, labels, controller: None, claim: None };
        }
        (Some(selector), _) => {
            let selected = namespaces.iter().filter(|(_, labels)| selector.matches(labels));
            term.namespaces.iter().cloned().chain(selected.map(|(name, _)| name.clone())).collect()
        }
    };
    PodSelector { namespaces: Some(named), labels: with_keys(term, shape), controller: None, claim: None }
}

fn with_keys(term: &PodAffinityTerm, shape: &PodShape) -> Option<LabelSelector> {
    let mut labels = term.selector.clone()?;
    let value = |key: &String| Some((key.clone(), shape.labels.get(key)?.clone()));
    let same = term.match_label_keys.iter().filter_map(value);
    labels.requirements.extend(same.map(|(key, value)| Requirement::one_of(&key, [value])));
    let other = term.mismatch_label_keys.iter().filter_map(value);
    labels.requirements.extend(other.map(|(key, value)| Requirement::none_of(&key, [value])));
    Some(sorted(labels))
}

/// The pods that a pod's own spread counts.
fn spread_selector(constraint: &TopologySpreadConstraint, shape: &PodShape) -> PodSelector {
    let labels = constraint.selector.clone().map(|mut labels| {
        let value = |key: &String| Some(Requirement::one_of(key, [shape.labels.get(key)?.clone()]));
        labels.requirements.extend(constraint.match_label_keys.iter().filter_map(value));
        sorted(labels)
    });
    let namespaces = Some(BTreeSet::from([shape.namespace.clone()]));
    PodSelector { namespaces, labels, controller: None, claim: None }
}

fn spread(constraint: &TopologySpreadConstraint, selector: SelectorId) -> PodRule {
    PodRule {
        key: key_of(&constraint.topology_key),
        selector,
        kind: RuleKind::Spread(SpreadTerms {
            max_skew: constraint.max_skew,
            min_domains: constraint.min_domains.unwrap_or(1),
            affinity: constraint.node_affinity_policy,
            taints: constraint.node_taints_policy,
        }),
        force: match constraint.when_unsatisfiable {
            WhenUnsatisfiable::DoNotSchedule => Force::Required,
            WhenUnsatisfiable::ScheduleAnyway => Force::Preferred,
        },
    }
}

fn sorted(mut labels: LabelSelector) -> LabelSelector {
    labels.requirements.sort();
    labels.requirements.dedup();
    labels
}

fn key_of(label: &str) -> Arc<str> {
    label.into()
}
