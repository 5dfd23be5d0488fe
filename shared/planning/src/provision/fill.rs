//! The pods of one claim of a type.
//!
//! Decides which pods join the seed's: those with the same price on their own first, in order or by how well they match
//! the free room. No pod makes a claim dearer than the claim was without it; a pod that needs on-demand capacity, for
//! instance, doesn't join pods that accept spot.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use tenon_domain::api::pod::HostPort;

use super::attachments::SharedHere;
use super::dense::{DenseAmounts, take_times, times_fit};
use super::draft::Member;
use super::lanes::{Buckets, is_full};
use super::needs::ports_conflict;
use super::pool::Pool;
use super::topology::neighbours::{FirstOfItsKind, NodeNeighbours};
use super::topology::selectors::SelectorId;

/// How a type is filled after its first pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filling {
    /// As many of each lane as fit, in order.
    InOrder,
    /// The same, but those that ask for the same as the seed first: others may have cheaper places.
    LikeFirst,
    /// In order, and the types that are best then by worth, too: the better of both.
    OrderOrWorth,
    /// One after the other, the pod that is worth most for the share of the free room that it takes.
    ByWorth,
}

/// Of lanes that are the same but for their rules, so many are looked at for each pod that joins by worth. The others join
/// in order.
const LOOKED_AT: usize = 8;
/// A claim has pods of about so many lanes at most.
const USUAL_LANES: usize = 16;

/// Which pods may join a claim: those that ask for the same; those with the same price on their own, so that cheaper
/// pods (spot, beside pods that need on-demand capacity) don't take the room; then all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guests {
    Like,
    Equals,
    All,
}

/// A pattern: the pods of one claim of a type.
pub(crate) struct PackPattern {
    pub(crate) class: usize,
    pub(crate) counts: Vec<(usize, u32)>,
    pub(crate) worth: f64,
}

/// The state of filling a type.
#[derive(Clone, Copy)]
pub(crate) struct Fill<'f> {
    pub(crate) members: &'f [Member<'f>],
    pub(crate) waiting: &'f [u32],
    pub(crate) buckets: &'f Buckets<'f>,
    /// Selectors of pods that must be together and have a claim by now.
    pub(crate) begun: &'f BTreeSet<SelectorId>,
    /// Whether any member needs others beside it.
    pub(crate) followers: &'f [usize],
    pub(crate) filling: Filling,
}

/// Notes about one claim after the other. They hold for the turn that they were made in.
#[derive(Default)]
pub(crate) struct Scratch {
    turn: u32,
    /// By lane: pods in the pattern.
    inside: Vec<(u32, u32)>,
    /// By rules: whether the pattern refuses such pods from now on.
    refused: Vec<u32>,
    /// By lane: whether the pattern has no place for its pods, whatever else joins.
    passed: Vec<u32>,
    /// How many needs the last pattern was checked against.
    pub(crate) looks: usize,
    /// The turn of the pattern's class.
    class_turn: u32,
    /// By class: the class of the pattern with such pods, if they may join.
    joined: Vec<(u32, Option<usize>)>,
    /// What a pattern is filled with, kept for the next: most patterns are made only to be compared.
    left: DenseAmounts,
    neighbours: NodeNeighbours,
}

impl Scratch {
    fn begin(&mut self, lanes: usize) {
        self.turn += 1;
        self.class_turn += 1;
        self.inside.resize(lanes, (0, 0));
        self.refused.resize(lanes, 0);
        self.passed.resize(lanes, 0);
    }

    fn inside(&self, lane: usize) -> u32 {
        self.inside.get(lane).filter(|(turn, _)| *turn == self.turn).map_or(0, |(_, count)| *count)
    }

    fn refuses(&self, rules: usize) -> bool {
        self.refused.get(rules) == Some(&self.turn)
    }

    fn passes(&self, lane: usize) -> bool {
        self.passed.get(lane) == Some(&self.turn)
    }
}

/// A pattern that is being made.
struct Filled<'s, 't> {
    pattern: PackPattern,
    left: DenseAmounts,
    shared: SharedHere,
    type_ports: &'t BTreeSet<HostPort>,
    host_ports: BTreeSet<HostPort>,
    neighbours: NodeNeighbours,
    type_index: usize,
    price: Option<u64>,
    scratch: &'s mut Scratch,
}

impl Fill<'_> {
    /// The pods of a claim of a type with the seed's among them; `None` if it holds none of these.
    pub(crate) fn pattern(
        &self,
        pool: &mut Pool<'_>,
        seed: usize,
        type_index: usize,
        scratch: &mut Scratch,
    ) -> Option<PackPattern> {
        let member = self.members.get(seed)?;
        let room = pool.class(member.class)?.room(type_index)?;
        let ports = std::sync::Arc::clone(&room.host_ports);
        scratch.begin(self.members.len());
        scratch.looks = self.buckets.len();
        let (mut left, mut neighbours) = (take(&mut scratch.left), take(&mut scratch.neighbours));
        left.clone_from(&room.amounts);
        neighbours.clear();
        let mut filling = Filled {
            pattern: PackPattern { class: member.class, counts: Vec::with_capacity(USUAL_LANES), worth: 0.0 },
            left,
            shared: SharedHere::default(),
            type_ports: &ports,
            host_ports: BTreeSet::new(),
            neighbours,
            type_index,
            price: pool.price(member.class, type_index),
            scratch,
        };
        let holds = self.fill(pool, seed, &mut filling);
        let Filled { pattern, left, neighbours, scratch, .. } = filling;
        (scratch.left, scratch.neighbours) = (left, neighbours);
        holds.then_some(pattern)
    }

    /// Adds pods, the seed's first. Returns whether these have a place.
    fn fill(&self, pool: &mut Pool<'_>, seed: usize, filling: &mut Filled<'_, '_>) -> bool {
        let Some(member) = self.members.get(seed) else { return false };
        let first = match self.filling {
            Filling::ByWorth if !member.rules.keeps_together() => 1,
            Filling::InOrder | Filling::LikeFirst | Filling::OrderOrWorth | Filling::ByWorth => u32::MAX,
        };
        if !filling.add(pool, self, seed, first) {
            return false;
        }
        // Those that need pods of this claim beside them can come nowhere else.
        for index in self.followers.iter().filter(|index| **index != seed) {
            filling.add(pool, self, *index, u32::MAX);
        }
        if self.filling == Filling::LikeFirst {
            self.in_order(pool, filling, Guests::Like);
        }
        let mut more = true;
        for guests in [Guests::Equals, Guests::All] {
            match self.filling {
                Filling::InOrder | Filling::LikeFirst | Filling::OrderOrWorth => {}
                Filling::ByWorth => while self.add_worthiest(pool, filling, guests) {},
            }
            if more {
                more = self.in_order(pool, filling, guests);
            }
        }
        true
    }

    /// Adds as many pods of each lane as fit. Returns whether the same for all guests may add more: where all were welcome
    /// and the claim's class stayed, whatever kept pods out still does, as room only shrinks and neighbours only become
    /// more. Only pods that look for neighbours may find some now.
    fn in_order(&self, pool: &mut Pool<'_>, filling: &mut Filled<'_, '_>, guests: Guests) -> bool {
        let class_turn = filling.scratch.class_turn;
        let mut all_welcome = true;
        for (bucket, smallest) in self.buckets.fitting() {
            if is_full(smallest, &filling.left) {
                break;
            }
            if times_fit(bucket.need, &filling.left) == 0 {
                continue;
            }
            for (class, lanes) in &bucket.by_class {
                if lanes.is_empty() {
                    continue;
                }
                if !welcome(pool, filling, *class, guests) {
                    all_welcome = false;
                    continue;
                }
                if filling.join(pool, *class).is_none() {
                    continue;
                }
                for lane in lanes {
                    let rules = self.buckets.rules.get(*lane).copied().unwrap_or(0);
                    if filling.scratch.refuses(rules) {
                        continue;
                    }
                    filling.add(pool, self, *lane, u32::MAX);
                    if times_fit(bucket.need, &filling.left) == 0 {
                        break;
                    }
                }
            }
        }
        !all_welcome || filling.scratch.class_turn != class_turn || !self.followers.is_empty()
    }

    /// Adds pods of the lane that is worth most for the share of the free room that it takes. Returns whether any lane
    /// was left.
    fn add_worthiest(&self, pool: &mut Pool<'_>, filling: &mut Filled<'_, '_>, guests: Guests) -> bool {
        let mut best: Option<(f64, usize, u32)> = None;
        filling.scratch.looks += self.buckets.len();
        for (bucket, smallest) in self.buckets.fitting() {
            if is_full(smallest, &filling.left) {
                break;
            }
            let fitting = times_fit(bucket.need, &filling.left);
            if fitting == 0 {
                continue;
            }
            let share = share(bucket.need, &filling.left);
            for (class, lanes) in &bucket.by_class {
                if lanes.is_empty()
                    || !welcome(pool, filling, *class, guests)
                    || filling.join(pool, *class).is_none()
                {
                    continue;
                }
                // Those that ask for the same of nodes are worth about the same.
                let mut first = lanes.iter().copied().take(LOOKED_AT);
                let Some(lane) = first.find(|lane| self.may_add(filling, *lane)) else { continue };
                let worth = self.members.get(lane).map_or(0.0, |member| member.worth) / share;
                if best.is_none_or(|(most, _, _)| worth > most) {
                    best = Some((worth, lane, fitting.min(self.left(filling, lane))));
                }
            }
        }
        let Some((_, lane, count)) = best else { return false };
        if !filling.add(pool, self, lane, count.div_ceil(4)) {
            let turn = filling.scratch.turn;
            filling.scratch.passed.iter_mut().skip(lane).take(1).for_each(|passed| *passed = turn);
        }
        true
    }

    /// Whether a lane has pods left that nothing is known to keep out.
    fn may_add(&self, filling: &Filled<'_, '_>, lane: usize) -> bool {
        let rules = self.buckets.rules.get(lane).copied().unwrap_or(0);
        !filling.scratch.refuses(rules) && !filling.scratch.passes(lane) && self.left(filling, lane) > 0
    }

    /// More than any claim can be worth: of pods that keep those of their own kind away there is one at most.
    pub(crate) fn most_worth(&self) -> f64 {
        let mut alone: BTreeMap<usize, f64> = BTreeMap::new();
        let mut sum = 0.0;
        let lanes = self.members.iter().zip(self.waiting).zip(&self.buckets.rules);
        for ((member, waiting), rules) in lanes.filter(|((_, waiting), _)| **waiting > 0) {
            if member.rules.apart.iter().any(|selector| member.rules.is.contains(selector)) {
                let most = alone.entry(*rules).or_default();
                *most = most.max(member.worth);
            } else {
                sum += member.worth * f64::from(*waiting);
            }
        }
        alone.values().fold(sum, |sum, worth| sum + worth)
    }

    /// How many pods that must be on the seed's node aren't in the pattern.
    pub(crate) fn left_behind(&self, seed: usize, pattern: &PackPattern) -> u32 {
        let Some(seed) = self.members.get(seed).filter(|seed| seed.rules.keeps_together()) else { return 0 };
        let like = |member: &Member<'_>| member.rules.with == seed.rules.with;
        let all = self.members.iter().zip(self.waiting).filter(|(member, _)| like(member));
        let inside = pattern.counts.iter().filter(|(index, _)| self.members.get(*index).is_some_and(like));
        let sum = |counts: &mut dyn Iterator<Item = u32>| counts.fold(0, u32::saturating_add);
        sum(&mut all.map(|(_, waiting)| *waiting)).saturating_sub(sum(&mut inside.map(|(_, count)| *count)))
    }

    /// Pods of a member that wait and aren't in the pattern.
    fn left(&self, filling: &Filled<'_, '_>, index: usize) -> u32 {
        self.waiting.get(index).copied().unwrap_or(0).saturating_sub(filling.scratch.inside(index))
    }
}

/// Whether pods of a class may come in now.
fn welcome(pool: &Pool<'_>, filling: &Filled<'_, '_>, class: usize, guests: Guests) -> bool {
    match guests {
        Guests::All => true,
        Guests::Like => class == filling.pattern.class,
        Guests::Equals => pool.price(class, filling.type_index) == filling.price,
    }
}

/// The share of the free room that a need takes, over all resources.
#[expect(clippy::cast_precision_loss, reason = "only the better of two shares is looked for")]
fn share(need: &[i64], left: &[i64]) -> f64 {
    let asked = need.iter().zip(left).filter(|(need, _)| **need > 0);
    asked.map(|(need, left)| *need as f64 / *left as f64).sum::<f64>().max(f64::MIN_POSITIVE)
}

impl Filled<'_, '_> {
    /// The class of the claim with pods of another; `None` if they can't join, or would make the claim dearer.
    fn join(&mut self, pool: &mut Pool<'_>, class: usize) -> Option<usize> {
        if class == self.pattern.class {
            return Some(class);
        }
        if self.scratch.joined.len() <= class {
            self.scratch.joined.resize(class + 1, (0, None));
        }
        let known = self.scratch.joined.get(class).filter(|(turn, _)| *turn == self.scratch.class_turn);
        if let Some((_, joined)) = known {
            return *joined;
        }
        let joined = pool.join(self.pattern.class, class);
        // A pod that would make the whole claim dearer gets its own claim.
        let dearer = |joined: &usize| {
            let price = pool.price(*joined, self.type_index);
            price.is_none_or(|price| self.price.is_some_and(|before| price > before))
        };
        let joined = joined.filter(|joined| !dearer(joined));
        let turn = self.scratch.class_turn;
        self.scratch.joined.iter_mut().skip(class).take(1).for_each(|known| *known = (turn, joined));
        joined
    }

    /// Adds at most so many pods of a member. Returns whether it added any.
    fn add(&mut self, pool: &mut Pool<'_>, fill: &Fill<'_>, index: usize, at_most: u32) -> bool {
        let Some(member) = fill.members.get(index) else { return false };
        let fitting = self.shared.times_fit(member.need, member.volumes, &self.left);
        let mut count = fitting.min(fill.left(self, index)).min(at_most);
        if !member.host_ports.is_empty() {
            let conflict = ports_conflict(member.host_ports, self.type_ports)
                || ports_conflict(member.host_ports, &self.host_ports);
            count = if conflict { 0 } else { count.min(1) };
        }
        if count == 0 {
            return false;
        }
        if !member.rules.is_free() {
            let begun = member.rules.with.iter().any(|selector| fill.begun.contains(selector));
            let first = if begun { FirstOfItsKind::No } else { member.first };
            count = count.min(self.neighbours.admits(member.rules, first));
            if count == 0 {
                // Neighbours only become more, so what they refuse they refuse for good, except who looks for them.
                let rules = fill.buckets.rules.get(index).filter(|_| !member.rules.keeps_together());
                let refused = rules.and_then(|rules| self.scratch.refused.get_mut(*rules));
                refused.into_iter().for_each(|refused| *refused = self.scratch.turn);
                return false;
            }
        }
        let Some(class) = self.join(pool, member.class) else { return false };
        take_times(&mut self.left, member.need, count);
        self.shared.add(member.volumes, &mut self.left, -1);
        self.host_ports.extend(member.host_ports.iter().cloned());
        self.neighbours.add(member.rules, count);
        if class != self.pattern.class {
            self.pattern.class = class;
            self.price = pool.price(class, self.type_index);
            self.scratch.class_turn += 1;
        }
        self.pattern.worth += member.worth * f64::from(count);
        let before = self.scratch.inside(index);
        if before == 0 {
            self.pattern.counts.push((index, count));
        } else if let Some((_, inside)) = self.pattern.counts.iter_mut().find(|(i, _)| *i == index) {
            *inside += count;
        }
        let turn = self.scratch.turn;
        self.scratch.inside.iter_mut().skip(index).take(1).for_each(|of| *of = (turn, before + count));
        true
    }
}
