//! Which pods without a place others wait for.
//!
//! Decides words, not placements: pods follow those that their required affinity selects, and where these have no place
//! either, theirs is the reason to look at, unless they wait in turn.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::Pod;
use tenon_domain::id::NamespacedName;

use super::ends::RefusedGroup;
use super::needs::PodGroup;
use super::report::DomainLack;
use super::topology::census::Census;
use super::topology::rules::{Force, RuleKind};
use super::topology::selectors::{SelectorId, Selectors};

/// The pods of a plan without a place.
pub(crate) struct WaitingGroups {
    groups: Vec<WaitingGroup>,
    /// By selector, the groups that it matches.
    matched: BTreeMap<SelectorId, Vec<usize>>,
}

/// Some of them.
struct WaitingGroup {
    /// The first.
    pod: NamespacedName,
    /// The pods of others that they require.
    follows: Vec<SelectorId>,
}

impl WaitingGroups {
    /// Those that the plan refused, and those that it can't plan for.
    pub(crate) fn of(refused: &[RefusedGroup<'_, '_>], unplanned: &[&Pod], selectors: &Selectors) -> Self {
        let mut all = Self { groups: Vec::new(), matched: BTreeMap::new() };
        for RefusedGroup { group, .. } in refused {
            let Some(first) = group.pods.first() else { continue };
            all.add(first, follows(group).collect(), &group.is);
        }
        if all.groups.iter().any(|group| !group.follows.is_empty()) {
            for pod in unplanned {
                all.add(pod, Vec::new(), &selectors.matching(&pod.shape));
            }
        }
        all
    }

    fn add(&mut self, first: &Pod, follows: Vec<SelectorId>, is: &[SelectorId]) {
        for selector in is {
            self.matched.entry(*selector).or_default().push(self.groups.len());
        }
        self.groups.push(WaitingGroup { pod: first.name.clone(), follows });
    }

    /// Why no pod that a group requires is anywhere; `None` if some are, or it requires none.
    pub(crate) fn awaited(&self, group: &PodGroup<'_>, census: &Census<'_>) -> Option<DomainLack> {
        let missing: Vec<SelectorId> =
            follows(group).filter(|selector| !census.is_present(*selector)).collect();
        if missing.is_empty() {
            return None;
        }
        let direct = self.matched_by(&missing);
        let back: Vec<usize> = direct
            .iter()
            .copied()
            .filter(|first| self.chain(*first, census).iter().any(|one| self.requires(*one, group, census)))
            .collect();
        let names = |groups: &[usize]| -> Vec<String> {
            groups.iter().filter_map(|one| self.groups.get(*one)).map(|one| one.pod.to_string()).collect()
        };
        Some(match (direct.is_empty(), back.is_empty()) {
            (true, _) => DomainLack::Peers,
            (false, true) => DomainLack::PeersWait { pods: names(&direct) },
            (false, false) => DomainLack::PeersWaitBack { pods: names(&back) },
        })
    }

    fn matched_by(&self, selectors: &[SelectorId]) -> Vec<usize> {
        let all = selectors.iter().filter_map(|selector| self.matched.get(selector)).flatten();
        all.copied().collect::<BTreeSet<usize>>().into_iter().collect()
    }

    /// Whether waiting pods wait for those of a group.
    fn requires(&self, index: usize, group: &PodGroup<'_>, census: &Census<'_>) -> bool {
        self.missing(index, census).any(|selector| group.is.contains(&selector))
    }

    fn missing<'w>(&'w self, index: usize, census: &'w Census<'_>) -> impl Iterator<Item = SelectorId> + 'w {
        let follows = self.groups.get(index).into_iter().flat_map(|group| group.follows.iter().copied());
        follows.filter(|selector| !census.is_present(*selector))
    }

    /// A group, those that it waits for, those that these wait for, and so on.
    fn chain(&self, first: usize, census: &Census<'_>) -> BTreeSet<usize> {
        let (mut seen, mut open) = (BTreeSet::from([first]), vec![first]);
        while let Some(index) = open.pop() {
            let missing: Vec<SelectorId> = self.missing(index, census).collect();
            open.extend(self.matched_by(&missing).into_iter().filter(|next| seen.insert(*next)));
        }
        seen
    }
}

/// The pods of others that a group's pods require.
fn follows(group: &PodGroup<'_>) -> impl Iterator<Item = SelectorId> {
    let required =
        group.rules.iter().filter(|rule| rule.kind == RuleKind::With && rule.force == Force::Required);
    required.map(|rule| rule.selector).filter(|selector| !group.is.contains(selector))
}
