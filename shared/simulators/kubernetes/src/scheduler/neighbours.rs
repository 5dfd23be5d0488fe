//! The filters on other pods: PodTopologySpread (`DoNotSchedule`) and required InterPodAffinity.
//!
//! Counts over other nodes are made once for a pod, not once for each node. A node counts for spreads only if it has
//! the labels of all the pod's constraints; a pod counts for affinity only if all the pod's terms select it. A pod without
//! terms that no running pod keeps away skips InterPodAffinity, and with it the terms of nominated pods.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::taint::tolerates_forbidding;

use super::filter::{Infeasible, admits};
use super::info::{NodeInfo, SamePods};
use super::shape::SchedulingNeeds;
use super::terms::{Inclusion, Matches, SpreadRule};

/// A label and its value.
type Domain<'a> = (&'a str, &'a str);

/// The effect of existing pods on one pod.
#[derive(Clone)]
pub(super) struct Neighbours<'a> {
    shape: &'a SchedulingNeeds,
    matches: &'a Matches,
    /// By constraint, the pods of each domain.
    spread: Vec<BTreeMap<&'a str, i64>>,
    /// Domains with pods that all affinity terms select.
    near: BTreeSet<Domain<'a>>,
    /// Domains that the pod keeps away from.
    avoided: BTreeSet<Domain<'a>>,
    /// Domains whose pods exclude it.
    forbidden: BTreeSet<Domain<'a>>,
}

impl<'a> Neighbours<'a> {
    pub(super) fn new(
        shape: &'a SchedulingNeeds,
        nodes: impl Iterator<Item = &'a NodeInfo>,
        matches: &'a Matches,
    ) -> Self {
        let mut all = Self {
            shape,
            matches,
            spread: vec![BTreeMap::new(); shape.spread.len()],
            near: BTreeSet::new(),
            avoided: BTreeSet::new(),
            forbidden: BTreeSet::new(),
        };
        for node in nodes {
            all.open_domains(node);
            for equal in node.pods.values() {
                all.count(node, equal);
            }
        }
        all
    }

    /// A domain without pods counts, too.
    fn open_domains(&mut self, node: &'a NodeInfo) {
        if !self.has_all_labels(node) {
            return;
        }
        for (rule, counts) in self.shape.spread.iter().zip(&mut self.spread) {
            if let (Some(value), true) = (node.label(&rule.key), rule.includes(self.shape, node)) {
                counts.entry(value).or_insert(0);
            }
        }
    }

    /// Pods that run.
    fn count(&mut self, node: &'a NodeInfo, equal: &SamePods) {
        self.add_spread(node, &equal.shape, equal.staying, Counted::Running);
        self.add_terms(node, &equal.shape);
    }

    /// Pods that are nominated for the node.
    fn add(&mut self, node: &'a NodeInfo, others: &[&SchedulingNeeds]) {
        let minds_terms = self.minds_terms();
        for other in others {
            self.add_spread(node, other, 1, Counted::Nominated);
            if minds_terms {
                self.add_terms(node, other);
            }
        }
    }

    /// Whether InterPodAffinity filters nodes: `PreFilter` in kubernetes/kubernetes
    /// `pkg/scheduler/framework/plugins/interpodaffinity/filtering.go`, 1.35.4, read 2026-11.
    fn minds_terms(&self) -> bool {
        let Self { shape, forbidden, .. } = self;
        !shape.affinity.is_empty() || !shape.anti_affinity.is_empty() || !forbidden.is_empty()
    }

    fn add_spread(&mut self, node: &'a NodeInfo, other: &SchedulingNeeds, pods: i64, counted: Counted) {
        if self.shape.spread.is_empty()
            || !self.has_all_labels(node)
            || other.namespace != self.shape.namespace
        {
            return;
        }
        for (rule, counts) in self.shape.spread.iter().zip(&mut self.spread) {
            let unseen = rule.counts_nobody && counted == Counted::Running;
            let Some(value) = node.label(&rule.key).filter(|_| !unseen) else { continue };
            if rule.includes(self.shape, node) && self.matches.of(self.shape, rule.term, other) {
                *counts.entry(value).or_insert(0) += pods;
            }
        }
    }

    fn add_terms(&mut self, node: &'a NodeInfo, other: &SchedulingNeeds) {
        let shape = self.shape;
        let keys = |terms: &[usize]| -> Vec<Domain<'a>> {
            let of = |term: &usize| {
                let key = shape.terms.get(*term)?.key.as_str();
                Some((key, node.label(key)?))
            };
            terms.iter().filter_map(of).collect()
        };
        if !shape.affinity.is_empty()
            && shape.affinity.iter().all(|term| self.matches.of(shape, *term, other))
        {
            self.near.extend(keys(&shape.affinity));
        }
        for term in shape.anti_affinity.iter().filter(|term| self.matches.of(shape, **term, other)) {
            self.avoided.extend(keys(&[*term]));
        }
        for term in other.anti_affinity.iter().filter(|term| self.matches.of(other, **term, shape)) {
            let found =
                other.terms.get(*term).and_then(|term| node.labels.as_object()?.get_key_value(&term.key));
            self.forbidden.extend(found.and_then(|(key, value)| Some((key.as_str(), value.as_str()?))));
        }
    }

    fn has_all_labels(&self, node: &NodeInfo) -> bool {
        self.shape.spread.iter().all(|rule| node.label(&rule.key).is_some())
    }

    /// Whether the node takes the pod when these pods, which are nominated for it, run there.
    pub(super) fn check_beside(
        &self,
        node: &'a NodeInfo,
        beside: &[&SchedulingNeeds],
    ) -> Result<(), Infeasible> {
        if beside.is_empty() {
            return Ok(());
        }
        let mut with = self.clone();
        with.add(node, beside);
        with.check(node)
    }

    pub(super) fn check(&self, node: &NodeInfo) -> Result<(), Infeasible> {
        for (rule, counts) in self.shape.spread.iter().zip(&self.spread) {
            let Some(value) = node.label(&rule.key) else { return Err(Infeasible::SpreadLabelMissing) };
            let enough = i64::try_from(counts.len()).is_ok_and(|domains| domains >= rule.min_domains);
            let least = counts.values().copied().min().filter(|_| enough).unwrap_or(0);
            let own = i64::from(self.matches.of(self.shape, rule.term, self.shape));
            if counts.get(value).copied().unwrap_or(0) + own - least > rule.max_skew {
                return Err(Infeasible::Spread);
            }
        }
        self.check_affinity(node)?;
        let inside = |(key, value): &Domain<'_>| node.label(key) == Some(value);
        if self.avoided.iter().any(inside) {
            return Err(Infeasible::PodAntiAffinity);
        }
        if self.forbidden.iter().any(inside) {
            return Err(Infeasible::ExistingAntiAffinity);
        }
        Ok(())
    }

    /// The first pod of its kind may come without the others, but not to a node without the labels.
    fn check_affinity(&self, node: &NodeInfo) -> Result<(), Infeasible> {
        let shape = self.shape;
        let mut here = true;
        for term in shape.affinity.iter().filter_map(|term| shape.terms.get(*term)) {
            let Some(value) = node.label(&term.key) else { return Err(Infeasible::PodAffinity) };
            here &= self.near.contains(&(term.key.as_str(), value));
        }
        let itself = || shape.affinity.iter().all(|term| self.matches.of(shape, *term, shape));
        if here || (self.near.is_empty() && itself()) { Ok(()) } else { Err(Infeasible::PodAffinity) }
    }
}

/// How a pod came to be counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    Running,
    Nominated,
}

impl SpreadRule {
    /// Whether a node counts for the spread of a pod.
    pub(super) fn includes(&self, shape: &SchedulingNeeds, node: &NodeInfo) -> bool {
        (self.node_affinity == Inclusion::Ignore || admits(shape, node))
            && (self.node_taints == Inclusion::Ignore
                || tolerates_forbidding(&node.taints, &shape.tolerations).is_ok())
    }
}
