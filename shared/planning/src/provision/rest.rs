//! The pods that a plan hasn't placed yet, from round to round.
//!
//! Decides what the next round tries: pods without a place in their domain are dealt to another one, then they give up
//! a preference. A group that can do neither is refused. A plan by priority tries the pods of the next lower priority
//! only then.
//!
//! A group whose rules ask about pods of others rests where it could be refused: once these have their places, or left room,
//! it is tried again, as often as that places a pod. In the end claims may come to larger types for pods that must be beside
//! others.
//!
//! A limit closes no single domain while nothing else has room: fewer pods of the group are dealt. Where only some
//! domains end by it, pods are taken away from these evenly.
//!
//! Invariant: each round closes a domain, gives up a preference, lets in one of a few more pods, goes on to a lower
//! priority or is the last.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::api::Pod;

use super::domains::offers_of;
use super::ends::{ClosedDomain, DomainEnd, RefusedGroup, RoundEnd, end_of, lower};
use super::input::ProvisionInput;
use super::needs::PodGroup;
use super::pool::Pool;
use super::resting::Resting;
use super::topology::census::is_of_nodes;
use super::topology::deal::{self, DomainOffer, Pin, Share, Undealt, WaitingPods};
use super::topology::rules::{Force, PodRule, RuleKind, SpreadTerms};
use super::turns::in_turns;
use super::ways::WaysTable;
use super::{InputMeasures, PlanState, compiled, count};

/// So many more pods than a limit let in at first are tried, one a round: a plan ends, and the next one goes on.
const LIFTS: u32 = 64;

/// A group in a domain, with the preferences that it had given up by then.
type GroupInDomain = (usize, usize, Vec<Pin>);

/// Where groups found no more room, with the pods that did find some there. A group without a domain is the whole of it.
type ClosedDomains = BTreeMap<GroupInDomain, ClosedDomain>;

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
    pub(super) groups: Vec<PodGroup<'a>>,
    pub(super) closed: ClosedDomains,
    /// By group, how many more pods than a limit let in at first were tried.
    lifts: BTreeMap<usize, u32>,
    /// The pods that have a place, by domain, and of groups as a whole.
    placed: BTreeMap<GroupInDomain, u32>,
    /// By group, the label without a domain that was the last to fail, and where its other labels had put the pods.
    undealt: BTreeMap<usize, (Arc<str>, Vec<Pin>)>,
    /// Groups that no further round can help.
    pub(super) done: BTreeSet<usize>,
    /// Groups that only a change of the others' places can help.
    pub(super) resting: Resting,
    /// The lowest priority whose pods are tried by now, in a plan by priority.
    pub(super) from: Option<i32>,
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
    /// By group, pods that aren't dealt.
    withheld: Vec<Vec<&'a Pod>>,
}

impl<'a> Rest<'a> {
    /// All pods.
    pub(crate) const fn of(groups: Vec<PodGroup<'a>>) -> Self {
        Self {
            groups,
            closed: BTreeMap::new(),
            lifts: BTreeMap::new(),
            placed: BTreeMap::new(),
            undealt: BTreeMap::new(),
            done: BTreeSet::new(),
            resting: Resting::new(),
            from: None,
        }
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
        let pin = Pin::at(Arc::clone(&spread.rule.key), domain.into());
        let closed = self.closed.get(&(spread.index, spread.group.given_up, vec![pin]));
        closed.is_some_and(|closed| closed.by == DomainEnd::Room)
    }

    /// How many pods of each group are to be dealt, now and at all.
    fn waiting(&self) -> WaitingPods {
        let waiting = |index: usize, group: &PodGroup<'a>| {
            if self.done.contains(&index) { 0 } else { count(group.pods.len()) }
        };
        let ever: Vec<u32> =
            self.groups.iter().enumerate().map(|(index, group)| waiting(index, group)).collect();
        let held = self.groups.iter().zip(&ever).enumerate();
        let now = |(index, (group, pods)): (usize, (&PodGroup<'a>, &u32))| {
            if self.is_held(group) || self.resting.holds(index) {
                0
            } else {
                self.let_in(index, group).min(*pods)
            }
        };
        WaitingPods { now: held.map(now).collect(), ever }
    }

    /// How many more pods of a group limits let in.
    fn let_in(&self, index: usize, group: &PodGroup<'_>) -> u32 {
        let whole = (index, group.given_up, Vec::new());
        let Some(closed) = self.closed.get(&whole) else { return u32::MAX };
        closed.most.saturating_sub(self.placed(&whole))
    }

    fn placed(&self, of: &GroupInDomain) -> u32 {
        self.placed.get(of).copied().unwrap_or(0)
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
            let mut found = offers_of(rooms, pools, &pinned, key);
            if found.is_empty() {
                return None;
            }
            if !closed.is_empty() {
                found.retain(|domain, offer| {
                    let mut pins = share.pins.clone();
                    pins.push(Pin::at(Arc::clone(key), Arc::clone(domain)));
                    let here = (share.group, group.given_up, pins);
                    let Some(end) = closed.get(&here) else { return true };
                    offer.most = end.most.saturating_sub(placed.get(&here).copied().unwrap_or(0));
                    // What a limit ended is still a domain that spreads compare.
                    offer.most > 0 || (end.by == DomainEnd::Limit && group.spread_keys().any(|of| of == key))
                });
            }
            Some(found.into_values().collect())
        };
        let deal = deal::deal(census, &self.groups, &waiting, &measures.ways, offers);
        let mut dealt = in_turns(&self.groups, &deal.shares);
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
        let withheld = dealt.left();
        let mut deferred = deal.deferred;
        for (part, share) in parts.iter().zip(&deal.shares).filter(|(part, _)| part.needs_neighbours()) {
            if parts.iter().any(|others| part.follows(others)) {
                deferred.insert(share.group);
            }
        }
        Dealt { parts, shares: deal.shares, undealt, deferred, withheld }
    }

    /// Whether any pod has a rule about other pods, or a preference for one.
    pub(crate) fn has_rules(&self) -> bool {
        self.groups.iter().any(|group| group.keys().next().is_some())
    }

    /// Opens all domains again for the pods that nothing helped. Returns whether there are any.
    pub(crate) fn reopen(&mut self) -> bool {
        self.closed.clear();
        self.resting = Resting::new();
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
        self.closed.clone_from(&before.closed);
    }

    /// The domains without more room.
    pub(crate) fn closed(&self) -> ClosedDomains {
        self.closed.clone()
    }

    /// The same pods, with no more of them in these domains than had room there.
    pub(crate) fn without(self, closed: ClosedDomains) -> Self {
        Self { closed, ..self }
    }

    /// How a round ended, whose pods have their places by now.
    pub(crate) fn ended(
        &self,
        dealt: &Dealt<'a>,
        waiting: Vec<u32>,
        state: &PlanState<'_>,
        pools: &mut [Pool<'_>],
    ) -> RoundEnd {
        let mut ended = RoundEnd { waiting, limited: BTreeSet::new(), spent: BTreeSet::new() };
        let waits = dealt.shares.iter().zip(&ended.waiting).filter(|(_, left)| **left > 0);
        let short: BTreeSet<usize> = waits.map(|(share, _)| share.group).collect();
        if short.is_empty() {
            return ended;
        }
        pools.iter_mut().for_each(|pool| pool.cap(state.of_cluster));
        for (index, (share, part)) in dealt.shares.iter().zip(&dealt.parts).enumerate() {
            if short.contains(&share.group) && end_of(pools, part) == DomainEnd::Limit {
                ended.limited.insert(index);
            }
        }
        for index in short {
            let Some(group) = self.groups.get(index) else { continue };
            if end_of(pools, group) == DomainEnd::Limit && !state.rooms.hold(group) {
                ended.spent.insert(index);
            }
        }
        ended
    }

    /// Keeps what has no place.
    pub(crate) fn settle(
        &mut self,
        state: &mut PlanState<'a>,
        dealt: Dealt<'a>,
        ended: &RoundEnd,
        ways: &WaysTable,
    ) -> Settled {
        let Dealt { parts, shares, undealt, deferred, withheld } = dealt;
        self.count_placed(&shares, &parts, &ended.waiting);
        let mut begin = false;
        let mut left: BTreeMap<usize, Vec<&'a Pod>> = withheld.into_iter().enumerate().collect();
        let (mut again, mut spread, mut stuck) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let waiting = shares.iter().zip(&parts).zip(&ended.waiting).enumerate();
        for (index, ((share, part), waits)) in waiting {
            let asked_for = usize::try_from(*waits).unwrap_or(usize::MAX);
            let placed = part.pods.len().saturating_sub(asked_for);
            left.entry(share.group).or_default().extend(part.pods.iter().skip(placed).copied());
            if *waits == 0 {
                continue;
            }
            stuck.insert(share.group);
            let Some(group) = self.groups.get(share.group) else { continue };
            let matters = state.take_back(group, &share.pins, *waits, ways);
            if matters {
                spread.insert(share.group);
            }
            let here = (share.group, group.given_up, deal::certain(share.pins.clone()));
            if !here.2.is_empty() && !ended.limited.contains(&index) && self.close(here) {
                self.resting.something_changed();
                again.insert(share.group);
                begin |= matters && !self.lifts.contains_key(&share.group);
            }
        }
        for (index, limited) in ended.of_groups(&shares) {
            for (here, most) in self.shared(index, &limited, ended, &spread) {
                let is_whole = here.2.is_empty();
                if self.limit(here, most) {
                    self.resting.something_changed();
                    begin |= spread.contains(&index) && !self.lifts.contains_key(&index);
                    again.extend((!is_whole).then_some(index));
                }
            }
        }
        for (Undealt { group: index, pins, pods: count, key }, pods) in undealt {
            left.entry(index).or_default().extend(pods);
            self.undealt.insert(index, (key, pins.clone()));
            stuck.insert(index);
            let Some(group) = self.groups.get(index) else { continue };
            begin |= state.take_back(group, &pins, count, ways) && !self.lifts.contains_key(&index);
            let here = (index, group.given_up, deal::certain(pins));
            if !here.2.is_empty() && self.close(here) {
                self.resting.something_changed();
                again.insert(index);
            }
        }
        again.extend(self.lift(&shares, &stuck, &left));
        let mut more = self.keep(left, &again, &deferred, ways);
        if !begin && more == Settled::Nothing && (self.resting.wake() || self.grows(state) || self.goes_on())
        {
            more = Settled::More;
        }
        if begin { Settled::Begin } else { more }
    }

    /// Counts the pods of shares that found a place.
    fn count_placed(&mut self, shares: &[Share], parts: &[PodGroup<'a>], waiting: &[u32]) {
        for ((share, part), waits) in shares.iter().zip(parts).zip(waiting) {
            let found_room = count(part.pods.len()).saturating_sub(*waits);
            let Some(group) = self.groups.get(share.group).filter(|_| found_room > 0) else { continue };
            self.resting.something_changed();
            for last in 0..=share.pins.len() {
                let pins = share.pins.iter().take(last).cloned().collect();
                *self.placed.entry((share.group, group.given_up, pins)).or_default() += found_room;
            }
        }
    }

    /// How many pods limits let in: of the group as a whole if they end it everywhere, else of each of these domains.
    fn shared(
        &self,
        index: usize,
        limited: &[(&Share, u32)],
        ended: &RoundEnd,
        spread: &BTreeSet<usize>,
    ) -> Vec<(GroupInDomain, u32)> {
        let Some(group) = self.groups.get(index) else { return Vec::new() };
        let here = |pins: Vec<Pin>| (index, group.given_up, pins);
        if ended.spent.contains(&index) {
            let whole = here(Vec::new());
            let most = self.placed(&whole);
            return vec![(whole, most)];
        }
        let certain = limited.iter().map(|(share, waits)| (deal::certain(share.pins.clone()), *waits));
        let certain = certain.filter(|(pins, _)| !pins.is_empty());
        let (domains, waiting): (Vec<GroupInDomain>, Vec<u32>) =
            certain.map(|(pins, waits)| (here(pins), waits)).unzip();
        let mut most: Vec<u32> = domains.iter().map(|domain| self.placed(domain)).collect();
        if spread.contains(&index) {
            let sum = most.iter().copied().fold(0, u32::saturating_add);
            most.iter_mut().zip(waiting).for_each(|(most, waits)| *most = most.saturating_add(waits));
            lower(&mut most, sum);
        }
        domains.into_iter().zip(most).collect()
    }

    /// Lets in one more pod of each group whose pods all found a place: their claims, or the rest of a limit, may have room
    /// for it. Returns these groups.
    fn lift(
        &mut self,
        shares: &[Share],
        stuck: &BTreeSet<usize>,
        left: &BTreeMap<usize, Vec<&'a Pod>>,
    ) -> BTreeSet<usize> {
        let withheld = |index: &usize| left.get(index).is_some_and(|pods| !pods.is_empty());
        let dealt = shares.iter().map(|share| share.group);
        let all: BTreeSet<usize> = dealt.filter(|index| !stuck.contains(index) && withheld(index)).collect();
        let mut lifted = BTreeSet::new();
        for index in all {
            let Some(group) = self.groups.get(index) else { continue };
            let whole = (index, group.given_up, Vec::new());
            let Some(closed) = self.closed.get_mut(&whole) else { continue };
            let lifts = self.lifts.entry(index).or_default();
            if *lifts < LIFTS {
                *lifts += 1;
                closed.most = closed.most.saturating_add(1);
                lifted.insert(index);
            }
        }
        lifted
    }

    /// Keeps the pods that are left for the next round.
    fn keep(
        &mut self,
        mut left: BTreeMap<usize, Vec<&'a Pod>>,
        again: &BTreeSet<usize>,
        deferred: &BTreeSet<usize>,
        ways: &WaysTable,
    ) -> Settled {
        let mut more = Settled::Nothing;
        let mut failed = Vec::new();
        for (index, group) in self.groups.iter_mut().enumerate() {
            if self.done.contains(&index)
                || self.resting.holds(index)
                || self.from.is_some_and(|from| group.priority < from)
            {
                continue;
            }
            group.pods = left.remove(&index).unwrap_or_default();
            group.pods.sort_by(|a, b| (a.created_at, &a.uid, &a.name).cmp(&(b.created_at, &b.uid, &b.name)));
            if group.pods.is_empty() {
                self.done.insert(index);
            } else if again.contains(&index) {
                self.undealt.remove(&index);
                more = Settled::More;
            } else if deferred.contains(&index) {
                more = Settled::More;
            } else if group.has_wishes() {
                group.give_up(ways);
                self.undealt.remove(&index);
                more = Settled::More;
            } else {
                failed.push(index);
            }
        }
        self.give_up_on(&failed);
        more
    }

    /// No more pods in a domain than have a place there. Returns whether that is new.
    fn close(&mut self, here: GroupInDomain) -> bool {
        let most = self.placed(&here);
        let before = self.closed.insert(here, ClosedDomain { most, by: DomainEnd::Room });
        before.map(|before| before.most) != Some(most)
    }

    /// No more pods than a limit lets in, nor more than before. Returns whether that is new.
    fn limit(&mut self, here: GroupInDomain, most: u32) -> bool {
        let most = self.closed.get(&here).map_or(most, |known| known.most.min(most));
        let closed = ClosedDomain { most, by: DomainEnd::Limit };
        self.closed.insert(here, closed).map(|before| before.most) != Some(most)
    }

    /// The groups without a place.
    pub(crate) fn refused(&self) -> impl Iterator<Item = RefusedGroup<'_, 'a>> {
        let limited = self.closed.iter().filter(|(_, closed)| closed.by == DomainEnd::Limit);
        let limited: BTreeSet<(usize, usize)> =
            limited.map(|((index, given_up, _), _)| (*index, *given_up)).collect();
        let some = self.groups.iter().enumerate().filter(|(_, group)| !group.pods.is_empty());
        some.map(move |(index, group)| RefusedGroup {
            group,
            key: self.undealt.get(&index).map(|(key, _)| key),
            pins: self.undealt.get(&index).map_or(&[], |(_, pins)| pins),
            end: match limited.contains(&(index, group.given_up)) {
                true => DomainEnd::Limit,
                false => DomainEnd::Room,
            },
        })
    }
}
