//! Two claims of a pool as one, where that costs no more: fewer nodes.
//!
//! Decides which drafts share a node after packing. Pods with host ports, and pods that need others beside them, stay
//! where they are.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use tenon_domain::catalog::CapacityType;

use super::dense::within;
use super::draft::{Draft, Member, sum};
use super::pool::Pool;
use super::steps::Steps;
use super::topology::neighbours::{FirstOfItsKind, NodeNeighbours};

/// Claims with different contents that are tried in pairs.
const MERGED_DRAFTS: usize = 96;
/// With more drafts than this, merged ones among them, nothing new is tried.
const MOST_MERGES: usize = 4 * MERGED_DRAFTS;
/// The instance types that EC2 should be able to choose from for a claim on spot: with as many, Karpenter moves pods
/// from one spot node to another.
const FLEXIBLE_TYPES: usize = 15;

/// Two drafts that can be one, ranked by what it saves; of equal ones the first.
struct Pair {
    rank: (u64, Reverse<usize>, Reverse<usize>),
    union: Draft,
}

impl Pair {
    const fn drafts(&self) -> (usize, usize) {
        let (_, Reverse(i), Reverse(j)) = self.rank;
        (i, j)
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Pair {}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

/// Makes one of two claims wherever one type holds the pods of both, costs no more than both, and keeps the pool's
/// limits. What saves most comes first.
pub(crate) fn merge(
    pool: &mut Pool<'_>,
    members: &[Member<'_>],
    mut drafts: Vec<Draft>,
    steps: &mut Steps,
) -> Vec<Draft> {
    if drafts.len() > MERGED_DRAFTS {
        return drafts;
    }
    let mut pairs: BinaryHeap<Pair> = BinaryHeap::new();
    for last in 0..drafts.len() {
        pairs.extend(pairs_with(pool, members, &drafts, last, steps));
    }
    while let Some(pair) = pairs.pop() {
        let (i, j) = pair.drafts();
        let times = |index: usize| drafts.get(index).map_or(0, |draft: &Draft| draft.times);
        let both = if i == j { times(i) / 2 } else { times(i).min(times(j)) };
        let parts = [i, j].map(|index| drafts.get(index).map(|draft: &Draft| draft.type_index));
        let both = charge_unions(pool, parts, pair.union.type_index, both);
        if both == 0 {
            continue;
        }
        for index in [i, j] {
            drafts.iter_mut().skip(index).take(1).for_each(|draft| draft.times -= both);
        }
        drafts.push(Draft { times: both, ..pair.union });
        if drafts.len() <= MOST_MERGES {
            pairs.extend(pairs_with(pool, members, &drafts, drafts.len() - 1, steps));
        }
    }
    drafts.retain(|draft| draft.times > 0);
    drafts
}

/// Charges the pool's limits for so many unions in place of their parts. Returns how many the limits allow.
fn charge_unions(pool: &mut Pool<'_>, parts: [Option<usize>; 2], union: usize, most: u32) -> u32 {
    let charges = |index: usize| pool.types.get(index).map_or(&[][..], |one| &one.charges);
    let of = |charges: &[i128], limit: usize| charges.get(limit).copied().unwrap_or_default();
    let more: Vec<i128> = (0..pool.limits.len())
        .map(|limit| {
            let before = parts.iter().flatten().map(|part| of(charges(*part), limit));
            before.fold(of(charges(union), limit), i128::saturating_sub)
        })
        .collect();
    let allowed =
        pool.limits.iter().zip(&more).filter(|(_, more)| **more > 0).map(|((_, left), more)| left / more);
    let allowed = allowed.min().map_or(most, |least| most.min(u32::try_from(least.max(0)).unwrap_or(most)));
    for ((_, left), more) in pool.limits.iter_mut().zip(more) {
        *left = left.saturating_sub(more.saturating_mul(i128::from(allowed)));
    }
    allowed
}

/// The last draft with itself and with those before it.
fn pairs_with(
    pool: &mut Pool<'_>,
    members: &[Member<'_>],
    drafts: &[Draft],
    last: usize,
    steps: &mut Steps,
) -> Vec<Pair> {
    let mut found = Vec::new();
    let Some(b) = drafts.get(last) else { return found };
    for (index, a) in drafts.iter().enumerate().take(last + 1) {
        let least = if index == last { 2 } else { 1 };
        if a.times < least || !steps.take(members.len()) {
            continue;
        }
        let Some(union) = union(pool, members, a, b) else { continue };
        let Some(saved) = a.price.saturating_add(b.price).checked_sub(union.price) else { continue };
        if saved > 0 || stays_flexible(pool, members, &union) {
            found.push(Pair { rank: (saved, Reverse(index), Reverse(last)), union });
        }
    }
    found
}

/// Whether a claim on spot can still be of many types: one node less isn't worth an interruption more.
pub(crate) fn stays_flexible(pool: &Pool<'_>, members: &[Member<'_>], draft: &Draft) -> bool {
    let Some(class) = pool.class(draft.class) else { return false };
    if class.capacity_types.get(draft.type_index) != Some(&Some(CapacityType::Spot)) {
        return true;
    }
    let need = sum(members, &draft.counts);
    let available = class.rooms.iter().zip(&class.prices).filter(|(_, price)| price.is_some());
    available.filter(|(room, _)| within(&need, &room.amounts)).take(FLEXIBLE_TYPES).count() == FLEXIBLE_TYPES
}

/// Whether the pods' rules allow them on one node. Pods that need others beside them have them already.
fn fit_together(members: &[Member<'_>], counts: &[(usize, u32)]) -> bool {
    let mut neighbours = NodeNeighbours::default();
    counts.iter().filter_map(|(index, count)| Some((members.get(*index)?, *count))).all(|(member, count)| {
        let fits =
            !member.rules.keeps_together() && neighbours.admits(member.rules, FirstOfItsKind::No) >= count;
        neighbours.add(member.rules, count);
        fits
    })
}

/// The claim that holds the pods of both, on its cheapest type.
fn union(pool: &mut Pool<'_>, members: &[Member<'_>], a: &Draft, b: &Draft) -> Option<Draft> {
    let has_ports = |draft: &Draft| {
        draft.counts.iter().any(|(i, _)| members.get(*i).is_some_and(|m| !m.host_ports.is_empty()))
    };
    if has_ports(a) || has_ports(b) {
        return None;
    }
    let class = pool.join(a.class, b.class)?;
    let mut counts = a.counts.clone();
    for (index, count) in &b.counts {
        match counts.iter_mut().find(|(i, _)| i == index) {
            Some((_, sum)) => *sum += count,
            None => counts.push((*index, *count)),
        }
    }
    if !fit_together(members, &counts) {
        return None;
    }
    let need = sum(members, &counts);
    let joined = pool.class(class)?;
    // The front is sorted by price.
    let holds = |index: &&usize| joined.holds(**index, &need);
    let type_index = *joined.front.iter().find(holds)?;
    let price = pool.price(class, type_index)?;
    Some(Draft { class, type_index, price, counts, times: 1, reservation: None })
}
