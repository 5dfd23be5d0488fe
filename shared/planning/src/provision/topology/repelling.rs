//! Pods that keep each other out of the domains of a label, and what the first of them leave to the later ones.
//!
//! Decides that pods with less choice come before those with more that they repel or that repel them, whatever their turn, and
//! which domains the pods that wait need most. It forbids no domain: pods that have no other take one that others need.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::census::{Census, DomainCounts};
use super::clusters::{ClusterRules, DealtCluster, Turn};
use super::rules::{Force, PodRule, RuleKind};
use super::selectors::SelectorId;

/// So many clusters are asked which domains they need.
const MOST_ASKED: usize = 256;
/// How much pods need the only domain that is left to them. Each further one makes all of them much less needed.
const ONLY_DOMAIN: u32 = 1 << 20;

/// How much the pods that wait need each domain.
pub(super) type NeededDomains = BTreeMap<Arc<str>, u32>;

/// Pods that are dealt later, as far as others must leave them domains.
#[derive(Debug, Clone)]
pub(super) struct LaterPods {
    /// Their rules of the label.
    pub(super) rules: Vec<PodRule>,
    /// What they are to rules.
    pub(super) is: Vec<SelectorId>,
    /// The domains that they could have.
    pub(super) domains: Vec<Arc<str>>,
}

/// The pods of a label by what they are to the anti-affinity of others.
#[derive(Debug, Default)]
pub(super) struct RepellingPods {
    /// Each with the place of its cluster in the order; none for pods that this round doesn't deal.
    all: Vec<(Option<usize>, LaterPods)>,
    waits: BTreeSet<usize>,
    by_place: BTreeMap<usize, Vec<usize>>,
    by_is: BTreeMap<SelectorId, Vec<usize>>,
    by_apart: BTreeMap<SelectorId, Vec<usize>>,
}

impl RepellingPods {
    /// The clusters in an order, and pods that this round doesn't deal.
    pub(super) fn of(order: &[Vec<DealtCluster>], later: Vec<LaterPods>) -> Self {
        let is_apart = |rule: &PodRule| rule.kind == RuleKind::Apart;
        let some = order.iter().flatten().any(|one| one.key.shared.rules.iter().any(is_apart))
            || later.iter().any(|one| one.rules.iter().any(is_apart));
        let mut found = Self::default();
        if !some {
            return found;
        }
        for (place, together) in order.iter().enumerate() {
            for one in together {
                let ClusterRules { rules, is, .. } = &one.key.shared;
                let domains = one.offers.iter().map(|offer| Arc::clone(&offer.domain)).collect();
                let pods = LaterPods { rules: rules.clone(), is: is.clone(), domains };
                found.all.push((Some(place), pods));
            }
        }
        found.all.extend(later.into_iter().map(|one| (None, one)));
        for (index, (place, one)) in found.all.iter().enumerate() {
            if let Some(place) = place {
                found.by_place.entry(*place).or_default().push(index);
            }
            for selector in &one.is {
                found.by_is.entry(*selector).or_default().push(index);
            }
            let binding = one.rules.iter().filter(|rule| is_apart(rule) && rule.force == Force::Required);
            for rule in binding {
                found.by_apart.entry(rule.selector).or_default().push(index);
            }
            found.waits.insert(index);
        }
        found
    }

    /// How much others need the domains of a cluster that is dealt now, once it no longer waits itself.
    pub(super) fn needed(&mut self, place: usize, census: &Census<'_>, key: &Arc<str>) -> NeededDomains {
        let mut needed = NeededDomains::new();
        let Some(here) = self.by_place.get(&place) else { return needed };
        for index in here {
            self.waits.remove(index);
        }
        let Some((_, pods)) = here.first().and_then(|index| self.all.get(*index)) else { return needed };
        for (_, other) in self.around(&pods.rules, &pods.is) {
            let left = self.left(other, census, key);
            let more = u32::try_from(left.len().saturating_sub(1)).unwrap_or(u32::MAX);
            let need = ONLY_DOMAIN.checked_shr(more.saturating_mul(4)).unwrap_or(0);
            for domain in left {
                let all = needed.entry(Arc::clone(domain)).or_insert(0);
                *all = all.saturating_add(need);
            }
        }
        needed
    }

    /// The pods that wait and that others repel, or that repel these.
    fn around(&self, rules: &[PodRule], is: &[SelectorId]) -> Vec<&(Option<usize>, LaterPods)> {
        let apart = rules.iter().filter(|rule| rule.kind == RuleKind::Apart);
        let repelled = apart.filter_map(|rule| self.by_is.get(&rule.selector)).flatten();
        let repelling = is.iter().filter_map(|selector| self.by_apart.get(selector)).flatten();
        let waiting = repelled.chain(repelling).filter(|index| self.waits.contains(index));
        let found: BTreeSet<usize> = waiting.take(MOST_ASKED).copied().collect();
        found.into_iter().filter_map(|index| self.all.get(index)).collect()
    }

    /// The domains that are left to pods, as far as is known by now.
    fn left<'p>(&self, pods: &'p LaterPods, census: &Census<'_>, key: &Arc<str>) -> Vec<&'p Arc<str>> {
        let mut left: Vec<&Arc<str>> = pods.domains.iter().collect();
        let is_some =
            |counts: &DomainCounts, domain: &Arc<str>| counts.get(domain).is_some_and(|pods| *pods > 0);
        left.retain(|domain| !pods.is.iter().any(|selector| census.keeps_out(key, *selector, domain)));
        for rule in &pods.rules {
            let counts = || census.most_counts(key, rule.selector);
            match rule.kind {
                RuleKind::Spread(_) => {}
                RuleKind::Apart => {
                    let there = counts();
                    left.retain(|domain| !is_some(&there, domain));
                }
                RuleKind::With => {
                    let there = counts();
                    let first = pods.is.contains(&rule.selector);
                    if first && there.values().all(|count| *count == 0) {
                        continue;
                    }
                    let leads = self.by_is.get(&rule.selector).into_iter().flatten();
                    let leads = leads.filter(|index| !first && self.waits.contains(index));
                    let lead: BTreeSet<&Arc<str>> = leads
                        .filter_map(|index| self.all.get(*index))
                        .flat_map(|(_, one)| &one.domains)
                        .collect();
                    left.retain(|domain| is_some(&there, domain) || lead.contains(domain));
                }
            }
        }
        left
    }
}

/// The turn of each of these clusters: pods with less choice come no later than those with more that they repel or that
/// repel them. Pods that follow others can't come sooner.
pub(super) fn turns(all: &[Vec<DealtCluster>]) -> Vec<Turn> {
    let first = |place: usize| all.get(place).and_then(|together| together.first());
    let choice = |place: usize| first(place).map_or(0, |one| one.choice);
    let own = all.iter().map(|together| together.first().map_or(Turn::WithOthers, |one| one.key.shared.turn));
    let mut turns: Vec<Turn> = own.collect();
    let pods = RepellingPods::of(all, Vec::new());
    if pods.all.is_empty() {
        return turns;
    }
    let mut places: Vec<usize> = (0..all.len()).collect();
    places.sort_by_key(|place| Reverse(choice(*place)));
    for place in places {
        let Some(one) = first(place).filter(|one| one.key.shared.turn != Turn::WithOthers) else { continue };
        let has = |domain: &Arc<str>| one.offers.iter().any(|offer| offer.domain == *domain);
        let around = pods.around(&one.key.shared.rules, &one.key.shared.is);
        let freer = around.into_iter().filter_map(|(other, theirs)| {
            let other = (*other).filter(|other| choice(*other) > one.choice)?;
            theirs.domains.iter().any(has).then_some(other)
        });
        let sooner = freer.filter_map(|other| turns.get(other)).min().copied();
        if let (Some(sooner), Some(turn)) = (sooner, turns.get_mut(place)) {
            *turn = sooner.min(*turn);
        }
    }
    turns
}
