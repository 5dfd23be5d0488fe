//! Groups that wait for what the rounds do to others: their rules ask about pods of the same plan.
//!
//! Decides who may be helped by other pods' places, and when these groups are tried again: before pods of a lower priority, and
//! before claims come to larger types for pods that must be beside others. It doesn't decide what their rules allow
//! (`topology`).
//!
//! Invariant: they are tried again only where pods found places, or domains were closed, since the last time; with larger
//! types once more.

use std::collections::{BTreeMap, BTreeSet};

use super::PlanState;
use super::ends::DomainEnd;
use super::needs::PodGroup;
use super::rest::Rest;
use super::round::Growth;
use super::topology::rules::{Force, RuleKind};
use super::topology::selectors::SelectorId;

/// The groups that wait for others.
#[derive(Debug, Clone)]
pub(crate) struct Resting {
    groups: BTreeSet<usize>,
    /// Whether other pods' places changed since they were tried.
    is_changed: bool,
}

impl Resting {
    /// None.
    pub(crate) const fn new() -> Self {
        Self { groups: BTreeSet::new(), is_changed: false }
    }

    /// Whether a group is among them.
    pub(crate) fn holds(&self, group: usize) -> bool {
        self.groups.contains(&group)
    }

    /// A group waits.
    pub(crate) fn add(&mut self, group: usize) {
        self.groups.insert(group);
    }

    /// A group waits no longer.
    pub(crate) fn remove(&mut self, group: usize) {
        self.groups.remove(&group);
    }

    /// Pods found places, or left a domain to others.
    pub(crate) const fn something_changed(&mut self) {
        self.is_changed = true;
    }

    /// Lets all be tried again. Returns whether that may help any.
    pub(crate) fn wake(&mut self) -> bool {
        let wakes = self.is_changed && !self.groups.is_empty();
        if wakes {
            *self = Self::new();
        }
        wakes
    }
}

/// Which groups selectors match, and whom the anti-affinity of groups keeps out.
pub(crate) struct Relations {
    matched: BTreeMap<SelectorId, Matched>,
    kept_out: BTreeMap<SelectorId, Matched>,
}

/// The first and the last of some groups.
#[derive(Clone, Copy)]
struct Matched {
    first: usize,
    last: usize,
}

impl Matched {
    const fn has_other(self, group: usize) -> bool {
        self.first != group || self.last != group
    }
}

impl Relations {
    /// Those among all groups of a plan.
    pub(crate) fn of(groups: &[PodGroup<'_>]) -> Self {
        let mut of = Self { matched: BTreeMap::new(), kept_out: BTreeMap::new() };
        let note = |to: &mut BTreeMap<SelectorId, Matched>, selector: SelectorId, group: usize| {
            to.entry(selector).or_insert(Matched { first: group, last: group }).last = group;
        };
        for (index, group) in groups.iter().enumerate() {
            group.is.iter().for_each(|selector| note(&mut of.matched, *selector, index));
            let apart = group.rules.iter().filter(|rule| rule.kind == RuleKind::Apart);
            for rule in apart.filter(|rule| rule.force == Force::Required) {
                note(&mut of.kept_out, rule.selector, index);
            }
        }
        of
    }

    /// Whether pods of other groups decide where a group's pods may be.
    pub(crate) fn bind(&self, index: usize, group: &PodGroup<'_>) -> bool {
        let other = |of: &BTreeMap<SelectorId, Matched>, selector: &SelectorId| {
            of.get(selector).is_some_and(|matched| matched.has_other(index))
        };
        group.rules.iter().any(|rule| other(&self.matched, &rule.selector))
            || group.is.iter().any(|selector| other(&self.kept_out, selector))
    }
}

impl<'a> Rest<'a> {
    /// The same pods, of each priority only after all pods of higher ones.
    pub(crate) fn by_priority(mut self) -> Self {
        let from = self.groups.iter().map(|group| group.priority).max();
        self.from = from;
        self
    }

    /// Whether pods are to be tried later.
    pub(super) fn is_held(&self, group: &PodGroup<'_>) -> bool {
        self.from.is_some_and(|from| group.priority < from)
    }

    /// These groups end for now, or for good if no other pods' places can help them.
    pub(super) fn give_up_on(&mut self, failed: &[usize]) {
        if failed.is_empty() {
            return;
        }
        let relations = Relations::of(&self.groups);
        for index in failed {
            if self.groups.get(*index).is_some_and(|group| relations.bind(*index, group)) {
                self.resting.add(*index);
            } else {
                self.done.insert(*index);
            }
        }
    }

    /// Lets claims come to larger types for pods that must be beside others, which are tried everywhere again. Returns
    /// whether there are any.
    pub(super) fn grows(&mut self, state: &mut PlanState<'a>) -> bool {
        if state.growth == Growth::Yes || state.open.is_empty() {
            return false;
        }
        let all = self.groups.iter().enumerate();
        let waiting = all.filter(|(_, group)| group.needs_neighbours() && !group.pods.is_empty());
        let waiting: BTreeSet<usize> =
            waiting.filter(|(_, group)| !self.is_held(group)).map(|(index, _)| index).collect();
        if waiting.is_empty() {
            return false;
        }
        state.growth = Growth::Yes;
        self.closed.retain(|(index, _, _), end| end.by == DomainEnd::Limit || !waiting.contains(index));
        for index in waiting {
            self.done.remove(&index);
            self.resting.remove(index);
        }
        true
    }

    /// Goes on to the next lower priority. Returns whether there is one.
    pub(super) fn goes_on(&mut self) -> bool {
        let held = self.groups.iter().filter(|group| self.is_held(group));
        let next = held.map(|group| group.priority).max();
        if next.is_some() {
            self.from = next;
        }
        next.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_tried_again_once_for_each_change() {
        let mut resting = Resting::new();
        resting.something_changed();
        assert!(!resting.wake(), "nobody waits");
        resting.add(3);
        assert!(resting.holds(3) && resting.wake() && !resting.holds(3));
        resting.add(3);
        assert!(!resting.wake() && resting.holds(3));
        resting.something_changed();
        assert!(resting.wake());
    }
}
