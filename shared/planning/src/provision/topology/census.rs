//! How many pods of which selectors are in which domain, with those that the plan has dealt so far.
//!
//! Decides which nodes count for a spread, by its `nodeAffinityPolicy` and `nodeTaintsPolicy`. A node without the
//! label is in no domain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::api::PodShape;
use tenon_domain::api::pod::NodeInclusionPolicy;
use tenon_domain::labels;
use tenon_domain::requirement::Requirements;
use tenon_domain::taint::tolerates_forbidding;

use super::super::input::ProvisionInput;
use super::super::needs::PodGroup;
use super::deal::Pin;
use super::neighbours::FirstOfItsKind;
use super::rules::{Force, PodRule, RuleKind, Rules, SpreadTerms};
use super::selectors::{PodSelector, SelectorId, Selectors};

/// Pods by domain.
pub(crate) type DomainCounts = BTreeMap<String, u32>;

/// What the pods of a shape that runs are to the plan's selectors.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resident {
    /// The selectors that match it.
    pub(crate) is: Vec<SelectorId>,
    /// The rules of its required anti-affinity.
    pub(crate) keeps_out: Vec<(String, SelectorId)>,
}

/// Where pods were dealt to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct DealtTo {
    domain: String,
    /// What they ask of their node, ORed: a spread may count only some nodes.
    asked: Vec<Requirements>,
}

/// A node, as far as rules ask.
#[derive(Clone)]
struct NodeTally<'a> {
    labels: &'a BTreeMap<String, String>,
    offered: Requirements,
    taints: &'a [tenon_domain::taint::Taint],
    name: &'a str,
    counts: BTreeMap<SelectorId, u32>,
}

impl Resident {
    /// The selectors of its anti-affinity on its node.
    pub(crate) fn on_nodes(&self) -> impl Iterator<Item = SelectorId> {
        self.keeps_out.iter().filter(|(key, _)| is_of_nodes(key)).map(|(_, selector)| *selector)
    }
}

/// The pods of all domains.
#[derive(Clone)]
pub(crate) struct Census<'a> {
    nodes: Vec<NodeTally<'a>>,
    /// By key and selector, the pods on nodes.
    there: BTreeMap<(String, SelectorId), DomainCounts>,
    /// By key and selector, the pods that the plan has dealt, by domain and by what they ask of their node.
    dealt: BTreeMap<(String, SelectorId), BTreeMap<DealtTo, u32>>,
    /// By key and selector, the pods of a domain that keep such pods out.
    keeping_out: BTreeMap<(String, SelectorId), DomainCounts>,
    /// By key and selector, the least skew that a dealt pod of the domain asks for.
    skews: BTreeMap<(String, SelectorId), DomainCounts>,
    /// The selectors that some pod matches, on a node or in the plan.
    present: BTreeSet<SelectorId>,
}

/// The selectors of all rules that a plan must know: those of the waiting pods, and of the anti-affinity of pods on
/// nodes.
pub(crate) fn selectors(input: &ProvisionInput) -> Selectors {
    let mut found: BTreeSet<PodSelector> = BTreeSet::new();
    let mut seen: BTreeSet<*const PodShape> = BTreeSet::new();
    let pending = input.pods.iter().map(|pod| &pod.shape);
    let residents = input.nodes.iter().flat_map(|node| node.occupancy.shapes());
    let residents = residents.filter(|shape| !shape.required_pod_anti_affinity.is_empty());
    for shape in pending.chain(residents) {
        if seen.insert(Arc::as_ptr(shape)) {
            Rules::of(shape, &input.namespaces, |selector| {
                found.insert(selector);
                0
            });
        }
    }
    Selectors::of(found)
}

/// The residents of all nodes, by node and then by pod.
pub(crate) fn residents(input: &ProvisionInput, selectors: &Selectors) -> Vec<Vec<Resident>> {
    if selectors.is_empty() {
        return input.nodes.iter().map(|_| Vec::new()).collect();
    }
    let mut known: BTreeMap<*const PodShape, Resident> = BTreeMap::new();
    let mut resident = |shape: &Arc<PodShape>| {
        let found = known.entry(Arc::as_ptr(shape)).or_insert_with(|| {
            let keeps_out = match shape.required_pod_anti_affinity.as_slice() {
                [] => Vec::new(),
                _ => {
                    let all = Rules::of(shape, &input.namespaces, |selector| selectors.id(&selector));
                    let apart = all.hard.into_iter().filter(|rule| rule.kind == RuleKind::Apart);
                    apart.map(|rule| (rule.key, rule.selector)).collect()
                }
            };
            Resident { is: selectors.matching(shape), keeps_out }
        });
        found.clone()
    };
    input.nodes.iter().map(|node| node.occupancy.shapes().iter().map(&mut resident).collect()).collect()
}

impl<'a> Census<'a> {
    /// The pods on the nodes; `keys` are those that any rule asks about.
    pub(crate) fn of(
        input: &'a ProvisionInput,
        residents: &[Vec<Resident>],
        keys: &BTreeSet<String>,
    ) -> Self {
        let mut census = Self {
            nodes: Vec::new(),
            there: BTreeMap::new(),
            dealt: BTreeMap::new(),
            keeping_out: BTreeMap::new(),
            skews: BTreeMap::new(),
            present: BTreeSet::new(),
        };
        for (node, pods) in input.nodes.iter().zip(residents) {
            let mut counts: BTreeMap<SelectorId, u32> = BTreeMap::new();
            for pod in pods {
                for selector in &pod.is {
                    *counts.entry(*selector).or_insert(0) += 1;
                }
                for (key, selector) in &pod.keeps_out {
                    let Some(domain) = node.labels.get(key) else { continue };
                    add(&mut census.keeping_out, key, *selector, domain, 1);
                }
            }
            census.present.extend(counts.keys().copied());
            for key in keys {
                let Some(domain) = node.labels.get(key) else { continue };
                for (selector, count) in &counts {
                    add(&mut census.there, key, *selector, domain, *count);
                }
            }
            if !keys.is_empty() {
                let pairs = node.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                census.nodes.push(NodeTally {
                    labels: &node.labels,
                    offered: Requirements::from_labels(pairs),
                    taints: &node.taints,
                    name: &node.name,
                    counts,
                });
            }
        }
        census
    }

    /// The selectors of anti-affinity that keep pods out of domains of a key.
    pub(crate) fn kept_out(&self, key: &str) -> impl Iterator<Item = SelectorId> {
        self.keeping_out.keys().filter(move |(of, _)| of == key).map(|(_, selector)| *selector)
    }

    /// The keys of such anti-affinity, and those of the spreads of dealt pods.
    pub(crate) fn keys(&self) -> impl Iterator<Item = String> {
        self.keeping_out.keys().chain(self.skews.keys()).map(|(key, _)| key.clone())
    }

    /// The selectors that pods which the plan has dealt are spread by.
    pub(crate) fn skewed(&self, key: &str) -> impl Iterator<Item = SelectorId> {
        self.skews.keys().filter(move |(of, _)| of == key).map(|(_, selector)| *selector)
    }

    /// Whether pods that a selector matches are kept out of a domain.
    pub(crate) fn keeps_out(&self, key: &str, selector: SelectorId, domain: &str) -> bool {
        count(&self.keeping_out, key, selector, domain) > 0
    }

    /// Whether no pod that a group needs on its node is anywhere yet.
    pub(crate) fn first_of(&self, group: &PodGroup<'_>) -> FirstOfItsKind {
        let some = group.node_rules.with.iter().any(|selector| self.present.contains(selector));
        if some { FirstOfItsKind::No } else { FirstOfItsKind::Yes }
    }

    /// Pods that these selectors match are somewhere now.
    pub(crate) fn now_present(&mut self, selectors: &[SelectorId]) {
        self.present.extend(selectors.iter().copied());
    }

    /// How many pods of a selector are in each domain of its key.
    pub(crate) fn counts(&self, key: &str, selector: SelectorId) -> DomainCounts {
        let mut counts = self.there.get(&(key.to_owned(), selector)).cloned().unwrap_or_default();
        for (to, more) in self.dealt.get(&(key.to_owned(), selector)).into_iter().flatten() {
            *counts.entry(to.domain.clone()).or_insert(0) += more;
        }
        counts
    }

    /// The same for a spread of a group: only nodes that count, and every domain that such a node is in.
    pub(crate) fn spread_counts(
        &self,
        rule: &PodRule,
        terms: SpreadTerms,
        group: &PodGroup<'_>,
    ) -> DomainCounts {
        let mut counts = DomainCounts::new();
        for node in &self.nodes {
            let Some(domain) = node.labels.get(&rule.key) else { continue };
            let fits = terms.affinity == NodeInclusionPolicy::Ignore
                || group.alternatives.iter().any(|one| one.admits(node.name, &node.offered));
            let tolerated = terms.taints == NodeInclusionPolicy::Ignore
                || tolerates_forbidding(node.taints, group.tolerations).is_ok();
            if fits && tolerated {
                let here = node.counts.get(&rule.selector).copied().unwrap_or(0);
                *counts.entry(domain.clone()).or_insert(0) += here;
            }
        }
        let meets = |to: &DealtTo| {
            terms.affinity == NodeInclusionPolicy::Ignore
                || to
                    .asked
                    .iter()
                    .any(|other| group.alternatives.iter().any(|one| one.asked.intersects(other).is_ok()))
        };
        let dealt = self.dealt.get(&(rule.key.clone(), rule.selector)).into_iter().flatten();
        for (to, more) in dealt.filter(|(to, _)| meets(to)) {
            *counts.entry(to.domain.clone()).or_insert(0) += more;
        }
        counts
    }

    /// Whether a spread of dealt pods over a label counts the pods of a group.
    pub(crate) fn counts_for_a_spread(&self, key: &str, group: &PodGroup<'_>) -> bool {
        self.skewed(key).any(|selector| group.is.contains(&selector))
    }

    /// The least skew that pods which the plan has dealt to a domain ask for.
    pub(crate) fn skew_asked(&self, key: &str, selector: SelectorId, domain: &str) -> Option<u32> {
        self.skews.get(&(key.to_owned(), selector))?.get(domain).copied()
    }

    /// Pods of a group were dealt to a domain, after others of these pins.
    pub(crate) fn deal(&mut self, group: &PodGroup<'_>, pins: &[Pin], pods: u32) {
        let Some(Pin { key, value: domain }) = pins.last() else { return };
        let to = DealtTo { domain: domain.clone(), asked: group.asked(pins) };
        for selector in &group.is {
            let dealt = self.dealt.entry((key.clone(), *selector)).or_default();
            *dealt.entry(to.clone()).or_insert(0) += pods;
        }
        for rule in group.rules.iter().filter(|rule| rule.key == *key && rule.force == Force::Required) {
            match rule.kind {
                RuleKind::Apart => add(&mut self.keeping_out, key, rule.selector, domain, pods),
                RuleKind::With => {}
                RuleKind::Spread(terms) => {
                    let domains = self.skews.entry((key.clone(), rule.selector)).or_default();
                    let least = domains.entry(domain.clone()).or_insert(terms.max_skew);
                    *least = (*least).min(terms.max_skew);
                }
            }
        }
    }

    /// Dealt pods found no place in the domain after all.
    pub(crate) fn take_back(&mut self, group: &PodGroup<'_>, pins: &[Pin], pods: u32) {
        let Some(Pin { key, value: domain }) = pins.last() else { return };
        let to = DealtTo { domain: domain.clone(), asked: group.asked(pins) };
        for selector in &group.is {
            let dealt = self.dealt.get_mut(&(key.clone(), *selector));
            if let Some(count) = dealt.and_then(|dealt| dealt.get_mut(&to)) {
                *count = count.saturating_sub(pods);
            }
        }
        let apart = |rule: &&PodRule| {
            rule.key == *key && rule.kind == RuleKind::Apart && rule.force == Force::Required
        };
        for rule in group.rules.iter().filter(apart) {
            take(&mut self.keeping_out, key, rule.selector, domain, pods);
        }
    }
}

/// Whether the domains of a key are single nodes.
pub(crate) fn is_of_nodes(key: &str) -> bool {
    key == labels::HOSTNAME
}

type Counts = BTreeMap<(String, SelectorId), DomainCounts>;

fn add(to: &mut Counts, key: &str, selector: SelectorId, domain: &str, pods: u32) {
    let domains = to.entry((key.to_owned(), selector)).or_default();
    match domains.get_mut(domain) {
        Some(count) => *count = count.saturating_add(pods),
        None => {
            domains.insert(domain.to_owned(), pods);
        }
    }
}

fn take(from: &mut Counts, key: &str, selector: SelectorId, domain: &str, pods: u32) {
    let domains = from.get_mut(&(key.to_owned(), selector));
    if let Some(count) = domains.and_then(|domains| domains.get_mut(domain)) {
        *count = count.saturating_sub(pods);
    }
}

fn count(of: &Counts, key: &str, selector: SelectorId, domain: &str) -> u32 {
    of.get(&(key.to_owned(), selector)).and_then(|domains| domains.get(domain)).copied().unwrap_or(0)
}
