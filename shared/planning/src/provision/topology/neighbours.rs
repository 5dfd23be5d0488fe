//! Rules about the pods of one node: those with the key `kubernetes.io/hostname`.
//!
//! Decides how many pods of a group may join the pods of a node. A new node is empty, so a spread allows as many pods
//! on each as its `maxSkew`.

use super::rules::{Force, PodRule, RuleKind};
use super::selectors::SelectorId;

/// What a group of pods asks of the other pods of its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct NodeRules {
    /// At most so many pods of the selector.
    pub(crate) caps: Vec<(SelectorId, u32)>,
    /// No pod of these.
    pub(crate) apart: Vec<SelectorId>,
    /// A pod of each of these.
    pub(crate) with: Vec<SelectorId>,
    /// Of `caps` and `apart`, what binds pods that come later.
    pub(crate) binding: BindingRules,
    /// What its own pods are, of the selectors that nodes are asked about.
    pub(crate) is: Vec<SelectorId>,
}

/// What the pods of a node ask of newcomers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct BindingRules {
    /// At most so many pods of the selector.
    pub(crate) caps: Vec<(SelectorId, u32)>,
    /// No pod of these.
    pub(crate) apart: Vec<SelectorId>,
}

impl NodeRules {
    /// The rules of one node among all; `is` are the selectors that match the pod.
    pub(crate) fn of<'r>(rules: impl Iterator<Item = &'r PodRule>, is: Vec<SelectorId>) -> Self {
        let mut of = Self { is, ..Self::default() };
        for rule in rules {
            let binds = rule.force == Force::Required;
            match rule.kind {
                RuleKind::Apart => {
                    of.apart.push(rule.selector);
                    of.binding.apart.extend(binds.then_some(rule.selector));
                }
                RuleKind::With => of.with.push(rule.selector),
                RuleKind::Spread(terms) => {
                    let cap = (rule.selector, terms.max_skew);
                    of.caps.push(cap);
                    of.binding.caps.extend(binds.then_some(cap));
                }
            }
        }
        of
    }

    /// Whether it asks nothing and nobody can ask anything of it.
    pub(crate) const fn is_free(&self) -> bool {
        self.caps.is_empty() && self.apart.is_empty() && self.with.is_empty() && self.is.is_empty()
    }

    /// Whether its pods need other pods on their node.
    pub(crate) const fn keeps_together(&self) -> bool {
        !self.with.is_empty()
    }
}

/// Whether a group's pods may come without the pods that they need beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstOfItsKind {
    /// They may, once: none are anywhere yet.
    Yes,
    /// There are some.
    No,
}

/// The pods of a node, as far as rules ask about them.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeNeighbours {
    counts: Vec<(SelectorId, u32)>,
    caps: Vec<(SelectorId, u32)>,
    kept_out: Vec<SelectorId>,
}

impl NodeNeighbours {
    /// An empty node again, in the same memory.
    pub(crate) fn clear(&mut self) {
        let Self { counts, caps, kept_out } = self;
        counts.clear();
        caps.clear();
        kept_out.clear();
    }

    fn count(&self, selector: SelectorId) -> u32 {
        self.counts.iter().find(|(id, _)| *id == selector).map_or(0, |(_, count)| *count)
    }

    /// How many pods of a group may join.
    pub(crate) fn admits(&self, rules: &NodeRules, first: FirstOfItsKind) -> u32 {
        if rules.is_free() {
            return u32::MAX;
        }
        let needs = |selector: &SelectorId| {
            self.count(*selector) > 0 || (first == FirstOfItsKind::Yes && rules.is.contains(selector))
        };
        let met = |selector: &SelectorId| self.count(*selector) > 0;
        if rules.is.iter().any(|selector| self.kept_out.contains(selector))
            || rules.apart.iter().any(met)
            || !rules.with.iter().all(needs)
        {
            return 0;
        }
        let of_itself = rules.apart.iter().any(|selector| rules.is.contains(selector));
        let mut most = if of_itself { 1 } else { u32::MAX };
        for (selector, cap) in &rules.caps {
            most = most.min(self.left(rules, *selector, *cap));
        }
        for (selector, cap) in self.caps.iter().filter(|(selector, _)| rules.is.contains(selector)) {
            most = most.min(self.left(rules, *selector, *cap));
        }
        most
    }

    fn left(&self, rules: &NodeRules, selector: SelectorId, cap: u32) -> u32 {
        let here = self.count(selector);
        match (rules.is.contains(&selector), here <= cap) {
            (true, _) => cap.saturating_sub(here),
            (false, true) => u32::MAX,
            (false, false) => 0,
        }
    }

    /// So many pods of a group have joined.
    pub(crate) fn add(&mut self, rules: &NodeRules, count: u32) {
        if count == 0 || rules.is_free() {
            return;
        }
        self.count_in(rules, count);
        for (selector, cap) in &rules.binding.caps {
            match self.caps.iter_mut().find(|(id, _)| id == selector) {
                Some((_, least)) => *least = (*least).min(*cap),
                None => self.caps.push((*selector, *cap)),
            }
        }
    }

    /// So many pods are there already: their spread binds no newcomer.
    pub(crate) fn count_in(&mut self, rules: &NodeRules, count: u32) {
        for selector in &rules.is {
            match self.counts.iter_mut().find(|(id, _)| id == selector) {
                Some((_, here)) => *here = here.saturating_add(count),
                None => self.counts.push((*selector, count)),
            }
        }
        for selector in &rules.binding.apart {
            if !self.kept_out.contains(selector) {
                self.kept_out.push(*selector);
            }
        }
    }
}
