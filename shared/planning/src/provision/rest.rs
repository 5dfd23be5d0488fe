//! The pods that a plan hasn't placed yet, from round to round.
//!
//! Decides what the next round tries: pods without a place in their domain are dealt to another one, then they give up
//! a preference. A group that can do neither is refused.
//!
//! Invariant: each round closes a domain, gives up a preference or is the last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::api::Pod;

use super::input::ProvisionInput;
use super::needs::PodGroup;
use super::pool::Pool;
use super::topology::deal::{self, DomainOffer, Pin, Share, Undealt};
use super::ways::WaysTable;
use super::{InputMeasures, PlanState, compiled, count};

/// A group's domains where it found no room, with the preferences that it had given up by then.
type ClosedDomains = BTreeSet<(usize, usize, Vec<Pin>)>;

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
    /// By group, the label without a domain that was the last to fail.
    undealt: BTreeMap<usize, Arc<str>>,
    /// Groups that no further round can help.
    done: BTreeSet<usize>,
}

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

impl<'a> Rest<'a> {
    /// All pods.
    pub(crate) const fn of(groups: Vec<PodGroup<'a>>) -> Self {
        Self { groups, closed: BTreeSet::new(), undealt: BTreeMap::new(), done: BTreeSet::new() }
    }

    /// Deals the pods to domains.
    pub(crate) fn deal(
        &mut self,
        state: &mut PlanState<'a>,
        pools: &mut Vec<Pool<'a>>,
        input: &'a ProvisionInput,
        measures: &InputMeasures<'a>,
    ) -> Dealt<'a> {
        let waiting: Vec<u32> = self
            .groups
            .iter()
            .enumerate()
            .map(|(index, group)| if self.done.contains(&index) { 0 } else { count(group.pods.len()) })
            .collect();
        let PlanState { rooms, census, .. } = state;
        let closed = &self.closed;
        let offers = |group: &PodGroup<'a>, share: &Share, key: &Arc<str>| -> Vec<DomainOffer> {
            if pools.is_empty() {
                *pools = compiled(input, measures);
            }
            let pinned = group.part(Vec::new(), measures.ways.pinned(&group.alternatives, &share.pins));
            let mut found: BTreeMap<Arc<str>, DomainOffer> = BTreeMap::new();
            for (domain, room) in rooms.room_by(key, &pinned).into_iter().filter(|(_, room)| *room > 0) {
                let domain: Arc<str> = domain.into();
                found.insert(Arc::clone(&domain), DomainOffer { domain, price: None, room });
            }
            for pool in pools.iter_mut().filter(|pool| pool.is_ready()) {
                for (domain, price) in pool.domains(&pinned, key).iter() {
                    let offer = found.entry(Arc::clone(domain)).or_insert_with(|| DomainOffer {
                        domain: Arc::clone(domain),
                        price: None,
                        room: 0,
                    });
                    offer.price = Some(offer.price.map_or(*price, |known| known.min(*price)));
                }
            }
            if !closed.is_empty() {
                found.retain(|domain, _| {
                    let mut pins = share.pins.clone();
                    pins.push(Pin { key: Arc::clone(key), value: Arc::clone(domain) });
                    !closed.contains(&(share.group, group.given_up, pins))
                });
            }
            found.into_values().collect()
        };
        let deal = deal::deal(census, &self.groups, &waiting, &measures.ways, offers);
        let mut pods: Vec<std::vec::IntoIter<&'a Pod>> =
            self.groups.iter().map(|group| group.pods.clone().into_iter()).collect();
        let mut take = |group: usize, pods_of: u32| -> Vec<&'a Pod> {
            let some = usize::try_from(pods_of).unwrap_or(usize::MAX);
            pods.get_mut(group).map(|pods| pods.take(some).collect()).unwrap_or_default()
        };
        let mut parts = Vec::with_capacity(deal.shares.len());
        for share in &deal.shares {
            let some = take(share.group, share.pods);
            let Some(group) = self.groups.get(share.group) else { continue };
            parts.push(group.part(some, measures.ways.pinned(&group.alternatives, &share.pins)));
        }
        let undealt = deal.undealt.into_iter().map(|one| {
            let some = take(one.group, one.pods);
            (one, some)
        });
        let undealt = undealt.collect();
        Dealt { parts, shares: deal.shares, undealt, deferred: deal.deferred }
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

    /// The domains without room.
    pub(crate) fn closed(&self) -> ClosedDomains {
        self.closed.clone()
    }

    /// The same pods, with these domains closed.
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
        for ((share, part), waits) in dealt.shares.into_iter().zip(&dealt.parts).zip(waiting) {
            let asked_for = usize::try_from(*waits).unwrap_or(usize::MAX);
            let placed = part.pods.len().saturating_sub(asked_for);
            left.entry(share.group).or_default().extend(part.pods.iter().skip(placed).copied());
            if *waits == 0 {
                continue;
            }
            let Some(group) = self.groups.get(share.group) else { continue };
            let matters = take_back(state, group, &share.pins, *waits, ways);
            if !share.pins.is_empty() && self.closed.insert((share.group, group.given_up, share.pins)) {
                again.insert(share.group);
                begin |= matters;
            }
        }
        for (Undealt { group: index, pins, pods: count, key }, pods) in dealt.undealt {
            left.entry(index).or_default().extend(pods);
            self.undealt.insert(index, key);
            let Some(group) = self.groups.get(index) else { continue };
            begin |= take_back(state, group, &pins, count, ways);
            if !pins.is_empty() && self.closed.insert((index, group.given_up, pins)) {
                again.insert(index);
            }
        }
        let mut more = Settled::Nothing;
        for (index, group) in self.groups.iter_mut().enumerate() {
            if self.done.contains(&index) {
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
        if begin { Settled::Begin } else { more }
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
    pins.iter().any(|pin| state.census.counts_for_a_spread(&pin.key, group))
}
