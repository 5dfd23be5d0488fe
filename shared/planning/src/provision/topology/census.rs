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
use tenon_domain::taint::{Taint, Toleration, tolerates_forbidding};

use super::super::Scope;
use super::super::input::ProvisionInput;
use super::super::needs::{Alternative, PodGroup};
use super::super::shared::Shared;
use super::super::volumes::shared_claims;
use super::super::ways::Ways;
use super::deal::Pin;
use super::neighbours::FirstOfItsKind;
use super::rules::{Force, PodRule, RuleKind, Rules, SpreadTerms};
use super::selectors::{PodSelector, SelectorId, Selectors};

/// Pods by domain.
pub(crate) type DomainCounts = BTreeMap<Arc<str>, u32>;

/// What the pods of a shape that runs are to the plan's selectors.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resident {
    /// The selectors that match it.
    pub(crate) is: Vec<SelectorId>,
    /// The rules of its required anti-affinity.
    pub(crate) keeps_out: Vec<(Arc<str>, SelectorId)>,
}

/// Where pods were dealt to.
#[derive(Debug, Clone)]
struct DealtTo {
    domain: Arc<str>,
    /// What they ask of their node: a spread may count only some nodes.
    asked: Arc<Ways>,
    /// The taints of the nodes that they may come to, by kind of node; none where nobody knows.
    taints: Vec<Vec<Taint>>,
    pods: u32,
}

/// Pods that were dealt, by domain, by the number of what they ask of their node and by what they tolerate.
type DealtPods = BTreeMap<(Arc<str>, usize, Vec<Toleration>), DealtTo>;

/// A node, as far as rules ask.
#[derive(Clone)]
struct NodeTally<'a> {
    labels: &'a BTreeMap<String, String>,
    offered: Requirements,
    taints: &'a [Taint],
    name: &'a str,
    counts: BTreeMap<SelectorId, u32>,
}

/// A domain that new nodes of a kind open, whether or not pods that a rule counts run there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpenedDomain {
    /// The label.
    pub(crate) key: Arc<str>,
    /// Its value.
    pub(crate) domain: Arc<str>,
    /// What is known of the nodes' labels.
    pub(crate) offered: Shared<Requirements>,
    /// Their taints.
    pub(crate) taints: Vec<Taint>,
}

impl OpenedDomain {
    /// Whether a spread of a group counts the nodes.
    pub(crate) fn counts_for(&self, rule: &PodRule, terms: SpreadTerms, group: &PodGroup<'_>) -> bool {
        let admits = |one: &Alternative| {
            one.asked.allows(&self.key, &self.domain) && one.asked.intersects(&self.offered).is_ok()
        };
        let has = |key: &Arc<str>| is_of_nodes(key) || self.offered.contains(key);
        rule.key == self.key
            && group.spread_keys().all(has)
            && (terms.affinity == NodeInclusionPolicy::Ignore || group.counted.iter().any(admits))
            && (terms.taints == NodeInclusionPolicy::Ignore
                || tolerates_forbidding(&self.taints, group.tolerations).is_ok())
    }
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
    /// Domains that the plan's claims open.
    opened: BTreeSet<OpenedDomain>,
    /// By key and selector, the pods on nodes.
    there: Counts,
    /// By key and selector, the pods that the plan has dealt, by domain and by what they ask of their node.
    dealt: BTreeMap<(Arc<str>, SelectorId), DealtPods>,
    /// By key and selector, the pods that the plan has dealt to several domains, in each of which they may be.
    perhaps: Counts,
    /// By key and selector, the pods of a domain that keep such pods out.
    keeping_out: Counts,
    /// By key and selector, the least skew that a dealt pod of the domain asks for.
    skews: Counts,
    /// The selectors that some pod matches, on a node or in the plan.
    present: BTreeSet<SelectorId>,
}

/// The selectors of all rules that a plan must know: those of the waiting pods, and of the anti-affinity of pods on
/// nodes.
pub(crate) fn selectors(input: &ProvisionInput, scope: &Scope<'_>) -> Selectors {
    let shared = shared_claims(input, scope);
    let mut found: BTreeSet<PodSelector> = BTreeSet::new();
    let mut seen: BTreeSet<*const PodShape> = BTreeSet::new();
    let pending = scope.pods.iter().map(|pod| &pod.shape);
    let residents = scope.nodes.iter().flat_map(|node| node.occupancy.shapes());
    let residents = residents.filter(|shape| !shape.required_pod_anti_affinity.is_empty());
    for shape in pending.chain(residents) {
        if seen.insert(Arc::as_ptr(shape)) {
            Rules::of(shape, input, &shared, |selector| {
                found.insert(selector);
                0
            });
        }
    }
    Selectors::of(found, shared)
}

/// The residents of all nodes, by node and then by pod.
pub(crate) fn residents(
    input: &ProvisionInput,
    scope: &Scope<'_>,
    selectors: &Selectors,
) -> Vec<Vec<Resident>> {
    if selectors.is_empty() {
        return scope.nodes.iter().map(|_| Vec::new()).collect();
    }
    let mut known: BTreeMap<*const PodShape, Resident> = BTreeMap::new();
    let mut resident = |shape: &Arc<PodShape>| {
        let found = known.entry(Arc::as_ptr(shape)).or_insert_with(|| {
            let keeps_out = match shape.required_pod_anti_affinity.as_slice() {
                [] => Vec::new(),
                _ => {
                    let all = Rules::of(shape, input, &selectors.shared, |selector| selectors.id(&selector));
                    let apart = all.hard.into_iter().filter(|rule| rule.kind == RuleKind::Apart);
                    apart.map(|rule| (rule.key, rule.selector)).collect()
                }
            };
            Resident { is: selectors.matching(shape), keeps_out }
        });
        found.clone()
    };
    scope.nodes.iter().map(|node| node.occupancy.shapes().iter().map(&mut resident).collect()).collect()
}

impl<'a> Census<'a> {
    /// The pods on the nodes; `keys` are those that any rule asks about.
    pub(crate) fn of(scope: &Scope<'a>, residents: &[Vec<Resident>], keys: &BTreeSet<Arc<str>>) -> Self {
        let mut census = Self {
            nodes: Vec::new(),
            opened: BTreeSet::new(),
            there: BTreeMap::new(),
            dealt: BTreeMap::new(),
            perhaps: BTreeMap::new(),
            keeping_out: BTreeMap::new(),
            skews: BTreeMap::new(),
            present: BTreeSet::new(),
        };
        for (node, pods) in scope.nodes.iter().copied().zip(residents) {
            let mut counts: BTreeMap<SelectorId, u32> = BTreeMap::new();
            for pod in pods {
                for selector in &pod.is {
                    *counts.entry(*selector).or_insert(0) += 1;
                }
                for (key, selector) in &pod.keeps_out {
                    let Some(domain) = node.labels.get(&**key) else { continue };
                    add(&mut census.keeping_out, key, *selector, &domain.as_str().into(), 1);
                }
            }
            census.present.extend(counts.keys().copied());
            for key in keys {
                let Some(domain) = node.labels.get(&**key) else { continue };
                let domain: Arc<str> = domain.as_str().into();
                for (selector, count) in &counts {
                    add(&mut census.there, key, *selector, &domain, *count);
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

    /// These domains will be there.
    pub(crate) fn open(&mut self, domains: BTreeSet<OpenedDomain>) {
        self.opened.extend(domains);
    }

    /// The selectors of anti-affinity that keep pods out of domains of a key.
    pub(crate) fn kept_out(&self, key: &str) -> impl Iterator<Item = SelectorId> {
        self.keeping_out.keys().filter(move |(of, _)| **of == *key).map(|(_, selector)| *selector)
    }

    /// The keys of such anti-affinity, and those of the spreads of dealt pods.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Arc<str>> {
        self.keeping_out.keys().chain(self.skews.keys()).map(|(key, _)| key.clone())
    }

    /// The selectors that pods which the plan has dealt are spread by.
    pub(crate) fn skewed(&self, key: &str) -> impl Iterator<Item = SelectorId> {
        self.skews.keys().filter(move |(of, _)| **of == *key).map(|(_, selector)| *selector)
    }

    /// The same over any label.
    pub(crate) fn skewed_anywhere(&self) -> impl Iterator<Item = SelectorId> {
        self.skews.keys().map(|(_, selector)| *selector)
    }

    /// Whether pods that a selector matches are kept out of a domain.
    pub(crate) fn keeps_out(&self, key: &Arc<str>, selector: SelectorId, domain: &str) -> bool {
        count(&self.keeping_out, key, selector, domain) > 0
    }

    /// Whether no pod that a group needs on its node is anywhere yet.
    pub(crate) fn first_of(&self, group: &PodGroup<'_>) -> FirstOfItsKind {
        let some = group.node_rules.with.iter().any(|selector| self.present.contains(selector));
        if some { FirstOfItsKind::No } else { FirstOfItsKind::Yes }
    }

    /// Whether some pod that a selector matches is anywhere, on a node or in the plan.
    pub(crate) fn is_present(&self, selector: SelectorId) -> bool {
        self.present.contains(&selector)
    }

    /// Whether any node has a label.
    pub(crate) fn has_label(&self, key: &str) -> bool {
        self.nodes.iter().any(|node| node.labels.contains_key(key))
    }

    /// Pods that these selectors match are somewhere now.
    pub(crate) fn now_present(&mut self, selectors: &[SelectorId]) {
        self.present.extend(selectors.iter().copied());
    }

    /// How many pods of a selector are in each domain of its key.
    pub(crate) fn counts(&self, key: &Arc<str>, selector: SelectorId) -> DomainCounts {
        let of = (Arc::clone(key), selector);
        let mut counts = self.there.get(&of).cloned().unwrap_or_default();
        for to in self.dealt.get(&of).into_iter().flat_map(BTreeMap::values) {
            *counts.entry(Arc::clone(&to.domain)).or_insert(0) += to.pods;
        }
        counts
    }

    /// The same with those that may come to other domains instead.
    pub(crate) fn most_counts(&self, key: &Arc<str>, selector: SelectorId) -> DomainCounts {
        let mut counts = self.counts(key, selector);
        for (domain, pods) in self.perhaps.get(&(Arc::clone(key), selector)).into_iter().flatten() {
            let count = counts.entry(Arc::clone(domain)).or_insert(0);
            *count = count.saturating_add(*pods);
        }
        counts
    }

    /// The same as a spread of a group counts: only nodes that count, and every domain that such a node is in.
    /// kube-scheduler counts a node only if it has the labels of all required spreads of the pod.
    pub(crate) fn spread_counts(
        &self,
        rule: &PodRule,
        terms: SpreadTerms,
        group: &PodGroup<'_>,
    ) -> DomainCounts {
        let mut counts = self.counts_before(rule, terms, group);
        let meets = |to: &DealtTo| {
            let common = |other: &Alternative| {
                group.counted.iter().any(|one| one.asked.intersects(&other.asked).is_ok())
            };
            let tolerates = |taints: &Vec<Taint>| tolerates_forbidding(taints, group.tolerations).is_ok();
            (terms.affinity == NodeInclusionPolicy::Ignore || to.asked.iter().any(common))
                && (terms.taints == NodeInclusionPolicy::Ignore
                    || to.taints.is_empty()
                    || to.taints.iter().any(tolerates))
        };
        let dealt = self.dealt.get(&(Arc::clone(&rule.key), rule.selector));
        for to in dealt.into_iter().flat_map(BTreeMap::values).filter(|to| meets(to)) {
            *counts.entry(Arc::clone(&to.domain)).or_insert(0) += to.pods;
        }
        counts
    }

    /// The same without the pods that the plan has dealt.
    pub(crate) fn counts_before(
        &self,
        rule: &PodRule,
        terms: SpreadTerms,
        group: &PodGroup<'_>,
    ) -> DomainCounts {
        let mut counts = DomainCounts::new();
        let labelled =
            |node: &&NodeTally<'_>| group.spread_keys().all(|key| node.labels.contains_key(&**key));
        for node in self.nodes.iter().filter(labelled) {
            let Some(domain) = node.labels.get(&*rule.key) else { continue };
            let fits = terms.affinity == NodeInclusionPolicy::Ignore
                || group.counted.iter().any(|one| one.admits(node.name, &node.offered));
            let tolerated = terms.taints == NodeInclusionPolicy::Ignore
                || tolerates_forbidding(node.taints, group.tolerations).is_ok();
            if fits && tolerated {
                let here = node.counts.get(&rule.selector).copied().unwrap_or(0);
                match counts.get_mut(domain.as_str()) {
                    Some(count) => *count += here,
                    None => {
                        counts.insert(domain.as_str().into(), here);
                    }
                }
            }
        }
        for one in self.opened.iter().filter(|one| one.counts_for(rule, terms, group)) {
            counts.entry(Arc::clone(&one.domain)).or_insert(0);
        }
        counts
    }

    /// Whether a spread of dealt pods over a label counts the pods of a group.
    pub(crate) fn counts_for_a_spread(&self, key: &str, group: &PodGroup<'_>) -> bool {
        self.skewed(key).any(|selector| group.is.contains(&selector))
    }

    /// The least skew that pods which the plan has dealt to a domain ask for.
    pub(crate) fn skew_asked(&self, key: &Arc<str>, selector: SelectorId, domain: &str) -> Option<u32> {
        self.skews.get(&(Arc::clone(key), selector))?.get(domain).copied()
    }

    /// Pods of a group were dealt to domains, after others of these pins. There they ask for such nodes, and these have
    /// such taints.
    pub(crate) fn deal(
        &mut self,
        group: &PodGroup<'_>,
        pins: &[Pin],
        (asked, taints): (&Arc<Ways>, &[Vec<Taint>]),
        pods: u32,
    ) {
        let Some(Pin { key, values }) = pins.last() else { return };
        if let [domain] = values.as_slice() {
            for selector in group.is.iter() {
                let dealt = self.dealt.entry((Arc::clone(key), *selector)).or_default();
                let of = (Arc::clone(domain), asked.id, group.tolerations.to_vec());
                let to = dealt.entry(of).or_insert_with(|| DealtTo {
                    domain: Arc::clone(domain),
                    asked: Arc::clone(asked),
                    taints: taints.to_vec(),
                    pods: 0,
                });
                to.pods += pods;
            }
        } else {
            let each = group.is.iter().flat_map(|selector| values.iter().map(move |to| (*selector, to)));
            each.for_each(|(selector, domain)| add(&mut self.perhaps, key, selector, domain, pods));
        }
        for rule in group.rules.iter().filter(|rule| rule.key == *key && rule.force == Force::Required) {
            for domain in values {
                match rule.kind {
                    RuleKind::Apart => add(&mut self.keeping_out, key, rule.selector, domain, pods),
                    RuleKind::With => {}
                    RuleKind::Spread(terms) => {
                        let domains = self.skews.entry((Arc::clone(key), rule.selector)).or_default();
                        let least = domains.entry(Arc::clone(domain)).or_insert(terms.max_skew);
                        *least = (*least).min(terms.max_skew);
                    }
                }
            }
        }
    }

    /// Dealt pods found no place in the domains after all.
    pub(crate) fn take_back(&mut self, group: &PodGroup<'_>, pins: &[Pin], asked: &Arc<Ways>, pods: u32) {
        let Some(Pin { key, values }) = pins.last() else { return };
        if let [domain] = values.as_slice() {
            for selector in group.is.iter() {
                let dealt = self.dealt.get_mut(&(Arc::clone(key), *selector));
                let of = (Arc::clone(domain), asked.id, group.tolerations.to_vec());
                if let Some(to) = dealt.and_then(|dealt| dealt.get_mut(&of)) {
                    to.pods = to.pods.saturating_sub(pods);
                }
            }
        } else {
            let each = group.is.iter().flat_map(|selector| values.iter().map(move |to| (*selector, to)));
            each.for_each(|(selector, domain)| take(&mut self.perhaps, key, selector, domain, pods));
        }
        let apart = |rule: &&PodRule| {
            rule.key == *key && rule.kind == RuleKind::Apart && rule.force == Force::Required
        };
        for rule in group.rules.iter().filter(apart) {
            for domain in values {
                take(&mut self.keeping_out, key, rule.selector, domain, pods);
            }
        }
    }
}

/// Whether the domains of a key are single nodes.
pub(crate) fn is_of_nodes(key: &str) -> bool {
    key == labels::HOSTNAME
}

type Counts = BTreeMap<(Arc<str>, SelectorId), DomainCounts>;

fn add(to: &mut Counts, key: &Arc<str>, selector: SelectorId, domain: &Arc<str>, pods: u32) {
    let domains = to.entry((Arc::clone(key), selector)).or_default();
    match domains.get_mut(domain) {
        Some(count) => *count = count.saturating_add(pods),
        None => {
            domains.insert(Arc::clone(domain), pods);
        }
    }
}

fn take(from: &mut Counts, key: &Arc<str>, selector: SelectorId, domain: &str, pods: u32) {
    let domains = from.get_mut(&(Arc::clone(key), selector));
    if let Some(count) = domains.and_then(|domains| domains.get_mut(domain)) {
        *count = count.saturating_sub(pods);
    }
}

fn count(of: &Counts, key: &Arc<str>, selector: SelectorId, domain: &str) -> u32 {
    of.get(&(Arc::clone(key), selector)).and_then(|domains| domains.get(domain)).copied().unwrap_or(0)
}
