//! The pods that a plan hasn't placed yet, from round to round.
//!
//! Decides what the next round tries: pods without a place in their domain are dealt to another one, then they give up
//! a preference. A group that can do neither is refused. A plan by priority tries the pods of the next lower priority
//! only then.
//!
//! Invariant: each round closes a domain, gives up a preference, goes on to a lower priority or is the last.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::api::Pod;

use super::input::ProvisionInput;
use super::needs::PodGroup;
use super::pool::Pool;
use super::topology::census::is_of_nodes;
use super::topology::deal::{self, DomainOffer, Pin, Share, Undealt, WaitingPods};
use super::topology::rules::{Force, PodRule, RuleKind, SpreadTerms};
use super::ways::WaysTable;
use super::{InputMeasures, PlanState, compiled, count};

/// A group in a domain, with the preferences that it had given up by then.
type GroupInDomain = (usize, usize, Vec<Pin>);

/// Where groups found no more room, with the pods that did find some there.
type ClosedDomains = BTreeMap<GroupInDomain, u32>;

/// What another round can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Nothing.
    Nothing,
    /// Help pods that are left.
    More,
    /// The plan must begin again: a domain had no room whose pods a spread counts.
    Begin,
}

/// The pods without a place.
#[derive(Clone)]
pub(crate) struct Rest<'a> {
    groups: Vec<PodGroup<'a>>,
    closed: ClosedDomains,
    /// The pods that have a place, by domain.
    placed: BTreeMap<GroupInDomain, u32>,
    /// By group, the label without a domain that was the last to fail.
    undealt: BTreeMap<usize, Arc<str>>,
    /// Groups that no further round can help.
    done: BTreeSet<usize>,
    /// The lowest priority whose pods are tried by now, in a plan by priority.
    from: Option<i32>,
}

/// A required spread of a group.
pub(crate) struct GroupSpread<'g, 'a> {
    index: usize,
    pub(crate) group: &'g PodGroup<'a>,
    pub(crate) rule: &'g PodRule,
    pub(crate) terms: SpreadTerms,
}

/// How many pods have no place, by priority, the highest first.
pub(crate) type Unplaced = BTreeMap<Reverse<i32>, usize>;

/// The groups of a round.
pub(crate) struct Dealt<'a> {
    /// Each with its domains, as groups of their own.
    pub(crate) parts: Vec<PodGroup<'a>>,
    shares: Vec<Share>,
    /// Pods that no domain is right for.
    undealt: Vec<(Undealt, Vec<&'a Pod>)>,
    /// Groups that follow pods which have no place yet.
    deferred: BTreeSet<usize>,
}

/// The pods of shares, and those that are left of each group.
struct DealtPods<'a> {
    of_shares: Vec<Vec<&'a Pod>>,
    rest: Vec<std::vec::IntoIter<&'a Pod>>,
}

impl<'a> DealtPods<'a> {
    fn take(&mut self, group: usize, pods: u32) -> Vec<&'a Pod> {
        let some = usize::try_from(pods).unwrap_or(usize::MAX);
        self.rest.get_mut(group).map(|rest| rest.take(some).collect()).unwrap_or_default()
    }

    fn give(&mut self, group: usize, share: usize, pods: u32) {
        let taken = self.take(group, pods);
        self.of_shares.iter_mut().skip(share).take(1).for_each(|of| of.extend(&taken));
    }
}

impl<'a> Rest<'a> {
    /// All pods.
    pub(crate) const fn of(groups: Vec<PodGroup<'a>>) -> Self {
        Self {
            groups,
            closed: BTreeMap::new(),
            placed: BTreeMap::new(),
            undealt: BTreeMap::new(),
            done: BTreeSet::new(),
            from: None,
        }
    }

    /// The same pods, of each priority only after all pods of higher ones.
    pub(crate) fn by_priority(self) -> Self {
        let from = self.groups.iter().map(|group| group.priority).max();
        Self { from, ..self }
    }

    /// Whether pods differ in priority.
    pub(crate) fn has_priorities(&self) -> bool {
        let first = self.groups.first().map(|group| group.priority);
        self.groups.iter().any(|group| Some(group.priority) != first)
    }

    /// The pods without a place.
    pub(crate) fn unplaced(&self) -> Unplaced {
        let mut unplaced = Unplaced::new();
        for group in &self.groups {
            *unplaced.entry(Reverse(group.priority)).or_default() += group.pods.len();
        }
        unplaced
    }

    /// The required spreads of all pods over domains of several nodes.
    pub(crate) fn spreads(&self) -> impl Iterator<Item = GroupSpread<'_, 'a>> {
        self.groups.iter().enumerate().flat_map(|(index, group)| {
            group.rules.iter().filter_map(move |rule| match (rule.kind, rule.force) {
                (RuleKind::Spread(terms), Force::Required) if !is_of_nodes(&rule.key) => {
                    Some(GroupSpread { index, group, rule, terms })
                }
                (RuleKind::Spread(_) | RuleKind::Apart | RuleKind::With, _) => None,
            })
        })
    }

    /// Whether pods of a spread found no more room in a domain.
    pub(crate) fn is_full(&self, spread: &GroupSpread<'_, 'a>, domain: &str) -> bool {
        let pin = Pin { key: Arc::clone(&spread.rule.key), value: Some(domain.into()) };
        self.closed.contains_key(&(spread.index, spread.group.given_up, vec![pin]))
    }

    /// Whether pods are to be tried later.
    fn is_held(&self, group: &PodGroup<'_>) -> bool {
        self.from.is_some_and(|from| group.priority < from)
    }

    /// How many pods of each group are to be dealt, now and at all.
    fn waiting(&self) -> WaitingPods {
        let waiting = |index: usize, group: &PodGroup<'a>| {
            if self.done.contains(&index) { 0 } else { count(group.pods.len()) }
        };
        let ever: Vec<u32> =
            self.groups.iter().enumerate().map(|(index, group)| waiting(index, group)).collect();
        let held = self.groups.iter().zip(&ever);
        let now = held.map(|(group, pods)| if self.is_held(group) { 0 } else { *pods }).collect();
        WaitingPods { now, ever }
    }

    /// Deals the pods to domains.
    pub(crate) fn deal<'p>(
        &mut self,
        state: &mut PlanState<'a>,
        pools: &mut Vec<Pool<'p>>,
        input: &'p ProvisionInput,
        measures: &InputMeasures<'p>,
    ) -> Dealt<'a> {
        let waiting = self.waiting();
        let PlanState { rooms, census, .. } = state;
        let (closed, placed) = (&self.closed, &self.placed);
        let offers = |group: &PodGroup<'a>, share: &Share, key: &Arc<str>| -> Option<Vec<DomainOffer>> {
            if pools.is_empty() {
                *pools = compiled(input, measures);
            }
            let pinned = group.part(Vec::new(), measures.ways.pinned(&group.alternatives, &share.pins));
            let mut found: BTreeMap<Arc<str>, DomainOffer> = BTreeMap::new();
            for (domain, room) in rooms.room_by(key, &pinned).into_iter().filter(|(_, room)| *room > 0) {
                let domain: Arc<str> = domain.into();
                found.insert(Arc::clone(&domain), DomainOffer { domain, price: None, room, most: u32::MAX });
            }
            for pool in pools.iter_mut().filter(|pool| pool.is_ready()) {
                for (domain, price) in pool.domains(&pinned, key).iter() {
                    let offer = found.entry(Arc::clone(domain)).or_insert_with(|| DomainOffer {
                        domain: Arc::clone(domain),
                        price: None,
                        room: 0,
                        most: u32::MAX,
                    });
                    offer.price = Some(offer.price.map_or(*price, |known| known.min(*price)));
                }
            }
            if found.is_empty() {
                return None;
            }
            if !closed.is_empty() {
                found.retain(|domain, offer| {
                    let mut pins = share.pins.clone();
                    pins.push(Pin { key: Arc::clone(key), value: Some(Arc::clone(domain)) });
                    let here = (share.group, group.given_up, pins);
                    if let Some(most) = closed.get(&here) {
                        offer.most = most.saturating_sub(placed.get(&here).copied().unwrap_or(0));
                    }
                    offer.most > 0
                });
            }
            Some(found.into_values().collect())
        };
        let deal = deal::deal(census, &self.groups, &waiting, &measures.ways, offers);
        let mut dealt = self.in_turns(&deal.shares);
        let mut parts = Vec::with_capacity(deal.shares.len());
        for (share, pods) in deal.shares.iter().zip(std::mem::take(&mut dealt.of_shares)) {
            let Some(group) = self.groups.get(share.group) else { continue };
            parts.push(group.part(pods, measures.ways.pinned(&group.alternatives, &share.pins)));
        }
        let undealt = deal.undealt.into_iter().map(|one| {
            let pods = dealt.take(one.group, one.pods);
            (one, pods)
        });
        let undealt = undealt.collect();
        let mut deferred = deal.deferred;
        for (part, share) in parts.iter().zip(&deal.shares).filter(|(part, _)| part.needs_neighbours()) {
            if parts.iter().any(|others| part.follows(others)) {
                deferred.insert(share.group);
            }
        }
        Dealt { parts, shares: deal.shares, undealt, deferred }
    }

    /// The pods of shares: a group's pods go to its shares in turns, by age, and the largest share begins. kube-scheduler
    /// tries pods in that order, so that a spread allows each when its turn comes.
    fn in_turns(&self, shares: &[Share]) -> DealtPods<'a> {
        let rest = self.groups.iter().map(|group| group.pods.clone().into_iter()).collect();
        let mut dealt = DealtPods { of_shares: vec![Vec::new(); shares.len()], rest };
        let mut of_group: Vec<Vec<usize>> = vec![Vec::new(); self.groups.len()];
        for (index, share) in shares.iter().enumerate() {
            of_group.iter_mut().skip(share.group).take(1).for_each(|of| of.push(index));
        }
        let pods_of = |index: &usize| shares.get(*index).map_or(0, |share| share.pods);
        for (group, mut of) in of_group.into_iter().enumerate() {
            of.sort_by_key(|index| Reverse(pods_of(index)));
            if let [only] = of[..] {
                dealt.give(group, only, pods_of(&only));
                continue;
            }
            for level in (1..=of.first().map_or(0, pods_of)).rev() {
                for index in of.iter().take_while(|index| pods_of(index) >= level) {
                    dealt.give(group, *index, 1);
                }
            }
        }
        dealt
    }

    /// Whether any pod has a rule about other pods, or a preference for one.
    pub(crate) fn has_rules(&self) -> bool {
        self.groups.iter().any(|group| group.keys().next().is_some())
    }

    /// Opens all domains again for the pods that nothing helped. Returns whether there are any.
    pub(crate) fn reopen(&mut self) -> bool {
        self.closed.clear();
        self.done = self
            .groups
            .iter()
            .enumerate()
            .filter(|(_, group)| group.pods.is_empty())
            .map(|(i, _)| i)
            .collect();
        self.done.len() < self.groups.len()
    }

    /// Remembers what was in the way before the last resort was tried.
    pub(crate) fn keep_reasons(&mut self, before: &Self) {
        self.undealt.clone_from(&before.undealt);
    }

    /// The domains without more room.
    pub(crate) fn closed(&self) -> ClosedDomains {
        self.closed.clone()
    }

    /// The same pods, with no more of them in these domains than had room there.
    pub(crate) fn without(self, closed: ClosedDomains) -> Self {
        Self { closed, ..self }
    }

    /// Keeps what has no place.
    pub(crate) fn settle(
        &mut self,
        state: &mut PlanState<'a>,
        dealt: Dealt<'a>,
        waiting: &[u32],
        ways: &WaysTable,
    ) -> Settled {
        let mut begin = false;
        let mut left: BTreeMap<usize, Vec<&'a Pod>> = BTreeMap::new();
        let mut again: BTreeSet<usize> = BTreeSet::new();
        for ((share, part), waits) in dealt.shares.iter().zip(&dealt.parts).zip(waiting) {
            let found_room = count(part.pods.len()).saturating_sub(*waits);
            let Some(group) = self.groups.get(share.group).filter(|_| found_room > 0) else { continue };
            for last in 1..=share.pins.len() {
                let pins = share.pins.iter().take(last).cloned().collect();
                *self.placed.entry((share.group, group.given_up, pins)).or_default() += found_room;
            }
        }
        for ((share, part), waits) in dealt.shares.into_iter().zip(&dealt.parts).zip(waiting) {
            let asked_for = usize::try_from(*waits).unwrap_or(usize::MAX);
            let placed = part.pods.len().saturating_sub(asked_for);
            left.entry(share.group).or_default().extend(part.pods.iter().skip(placed).copied());
            if *waits == 0 {
                continue;
            }
            let Some(group) = self.groups.get(share.group) else { continue };
            let matters = take_back(state, group, &share.pins, *waits, ways);
            let here = (share.group, group.given_up, share.pins);
            if !here.2.is_empty() && self.close(here) {
                again.insert(share.group);
                begin |= matters;
            }
        }
        for (Undealt { group: index, pins, pods: count, key }, pods) in dealt.undealt {
            left.entry(index).or_default().extend(pods);
            self.undealt.insert(index, key);
            let Some(group) = self.groups.get(index) else { continue };
            begin |= take_back(state, group, &pins, count, ways);
            let here = (index, group.given_up, pins);
            if !here.2.is_empty() && self.close(here) {
                again.insert(index);
            }
        }
        let mut more = Settled::Nothing;
        for (index, group) in self.groups.iter_mut().enumerate() {
            if self.done.contains(&index) || self.from.is_some_and(|from| group.priority < from) {
                continue;
            }
            group.pods = left.remove(&index).unwrap_or_default();
            group.pods.sort_by(|a, b| (a.created_at, &a.uid, &a.name).cmp(&(b.created_at, &b.uid, &b.name)));
            if group.pods.is_empty() {
                self.done.insert(index);
            } else if again.contains(&index) {
                self.undealt.remove(&index);
                more = Settled::More;
            } else if dealt.deferred.contains(&index) {
                more = Settled::More;
            } else if group.has_wishes() {
                group.give_up(ways);
                self.undealt.remove(&index);
                more = Settled::More;
            } else {
                self.done.insert(index);
            }
        }
        if !begin && more == Settled::Nothing && self.goes_on() {
            more = Settled::More;
        }
        if begin { Settled::Begin } else { more }
    }

    /// No more pods in a domain than have a place there. Returns whether that is new.
    fn close(&mut self, here: GroupInDomain) -> bool {
        let most = self.placed.get(&here).copied().unwrap_or(0);
        self.closed.insert(here, most) != Some(most)
    }

    /// Goes on to the next lower priority. Returns whether there is one.
    fn goes_on(&mut self) -> bool {
        let held = self.groups.iter().filter(|group| self.is_held(group));
        let next = held.map(|group| group.priority).max();
        if next.is_some() {
            self.from = next;
        }
        next.is_some()
    }

    /// The groups without a place, and for a group that no domain is right for, the label.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&PodGroup<'a>, Option<&str>)> {
        let some = self.groups.iter().enumerate().filter(|(_, group)| !group.pods.is_empty());
        some.map(|(index, group)| (group, self.undealt.get(&index).map(|key| &**key)))
    }
}

/// Takes pods that found no place out of the census. Returns whether a spread counts what they were dealt to.
fn take_back(
    state: &mut PlanState<'_>,
    group: &PodGroup<'_>,
    pins: &[Pin],
    pods: u32,
    ways: &WaysTable,
) -> bool {
    for last in 1..=pins.len() {
        let pins = pins.get(..last).unwrap_or_default();
        state.census.take_back(group, pins, &ways.pinned(&group.alternatives, pins), pods);
    }
    pins.iter().any(|pin| pin.value.is_some() && state.census.counts_for_a_spread(&pin.key, group))
}
