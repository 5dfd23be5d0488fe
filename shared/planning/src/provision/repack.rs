//! Claims of a pool packed again, a few at a time: packing claim by claim leaves the last ones pods that don't go well
//! together.
//!
//! Decides which claims are taken apart, and keeps what their pods make instead if it costs less, or the same with fewer
//! nodes. It ends with its steps, or once nothing has helped for a while. Pods that need others beside them stay where
//! they are.
//!
//! Source: ruin and recreate (Schrimpf and others, Journal of Computational Physics 159, 2000).

use std::collections::BTreeMap;

use super::draft::{Draft, Member};
use super::fill::Filling;
use super::merge::stays_flexible;
use super::pack::{ClaimSize, Effort, Packing, attempt, revalue};
use super::pool::Pool;
use super::steps::Steps;

/// At most so many claims are taken apart at once: more hold too many pods for one packing to find what goes together.
const MOST_CLAIMS: usize = 4;
/// Of so many claims the one that is dearest for its pods comes first.
const LOOKED_AT: usize = 4;
/// What a further kind of claim must save of the price of the claims that are taken apart, in thousandths: each kind is a
/// request to EC2, which takes only so many at once.
const SAVED_BY_A_KIND: u64 = 10;
/// How often claims are packed again, each time with the worths of the last.
const PACKINGS: usize = 2;

/// Takes claims apart and packs their pods again while that helps and steps are left.
pub(crate) fn repack(
    pool: &mut Pool<'_>,
    members: &[Member<'_>],
    drafts: Vec<Draft>,
    (effort, steps): (Effort, &mut Steps),
) -> Vec<Draft> {
    let together = |draft: &Draft| {
        let mut of = draft.counts.iter().filter_map(|(index, _)| members.get(*index));
        of.any(|member| member.rules.keeps_together())
    };
    let (mut kept, free): (Vec<Draft>, Vec<Draft>) = drafts.into_iter().partition(together);
    let mut again = Repacking { members, drafts: free, order: FixedOrder(1) };
    let mut idle = 0;
    while idle < effort.idle_tries * again.drafts.len() && steps.take(1) {
        let chosen = again.choose(pool);
        idle = if again.improve(pool, &chosen, steps) { 0 } else { idle + 1 };
    }
    kept.extend(again.drafts);
    kept
}

/// Numbers in an order that is the same in every plan.
struct FixedOrder(u64);

impl FixedOrder {
    /// A number below another; 0 below 0.
    fn below(&mut self, most: usize) -> usize {
        // Knuth's constants; the high bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let most = u64::try_from(most).unwrap_or(u64::MAX).max(1);
        usize::try_from((self.0 >> 33) % most).unwrap_or(0)
    }
}

/// The drafts while they change.
struct Repacking<'m, 'a> {
    members: &'m [Member<'a>],
    drafts: Vec<Draft>,
    order: FixedOrder,
}

impl Repacking<'_, '_> {
    /// Some drafts whose pods may share a node, each with how many of its claims.
    fn choose(&mut self, pool: &mut Pool<'_>) -> Vec<(usize, u32)> {
        let all = self.drafts.len();
        let looked_at: Vec<usize> = (0..LOOKED_AT).map(|_| self.order.below(all)).collect();
        let dearest = looked_at.into_iter().max_by(|a, b| self.dearness(*a).total_cmp(&self.dearness(*b)));
        let Some(first) = dearest else { return Vec::new() };
        let mut chosen = vec![(first, 1)];
        let wanted = 2 + self.order.below(MOST_CLAIMS - 1);
        let mut claims = 1;
        for _ in 0..8 * wanted {
            if claims == wanted {
                break;
            }
            let other = self.order.below(all);
            let class = |index: usize| self.drafts.get(index).map(|draft| draft.class);
            let times = self.drafts.get(other).map_or(0, |draft| draft.times);
            if class(first).zip(class(other)).is_none_or(|(a, b)| pool.join(a, b).is_none()) {
                continue;
            }
            match chosen.iter_mut().find(|(index, _)| *index == other) {
                Some((_, count)) if *count < times => *count += 1,
                Some(_) => continue,
                None => chosen.push((other, 1)),
            }
            claims += 1;
        }
        chosen
    }

    /// The price of a draft for its pods' worth.
    #[expect(
        clippy::cast_precision_loss,
        reason = "it only ranks drafts: rounding confuses none but nearly equal ones"
    )]
    fn dearness(&self, index: usize) -> f64 {
        let Some(draft) = self.drafts.get(index) else { return 0.0 };
        let worth = |(index, count): &(usize, u32)| {
            self.members.get(*index).map_or(0.0, |member| member.worth * f64::from(*count))
        };
        draft.price as f64 / draft.counts.iter().map(worth).sum::<f64>().max(f64::MIN_POSITIVE)
    }

    /// Packs the pods of the chosen claims again. Returns whether that was better.
    fn improve(&mut self, pool: &mut Pool<'_>, chosen: &[(usize, u32)], steps: &mut Steps) -> bool {
        let of = |(index, count): &(usize, u32)| Some((self.drafts.get(*index)?, *count));
        let taken: Vec<(&Draft, u32)> = chosen.iter().filter_map(of).collect();
        let claims: u32 = taken.iter().map(|(_, count)| count).sum();
        if claims < 2 {
            return false;
        }
        let before = rank(taken.iter().map(|(draft, count)| (draft.price, *count)));
        let (lanes, mut members) = self.pods_of(&taken);
        let sets = taken.iter().map(|(draft, count)| draft.times / count).min().unwrap_or(0);
        let limits: Vec<i128> = pool.limits.iter().map(|(_, left)| *left).collect();
        taken.iter().for_each(|(draft, count)| pool.refund(draft.type_index, count * sets));
        let (mut better, mut same) = (None, false);
        for _ in 0..PACKINGS {
            let packing =
                Packing { filling: Filling::OrderOrWorth, most: before.0, size: ClaimSize::Cheapest };
            let found = attempt(pool, &members, packing, steps);
            let after = rank(found.drafts.iter().map(|draft| (draft.price, draft.times)));
            if found.waiting.iter().all(|left| *left == 0) && after <= before {
                same = after == before;
                better = Some(found.drafts);
                break;
            }
            // Worths of a part say nothing about the rest.
            if found.waiting.iter().any(|left| *left > 0) {
                break;
            }
            revalue(&mut members, &found.drafts);
        }
        let better = better.map(|drafts| as_before(drafts, &lanes, sets));
        let gone = taken.iter().filter(|(draft, count)| draft.times == count * sets).count();
        let better = better.filter(|drafts| {
            let kinds = u64::try_from(drafts.len().saturating_sub(gone)).unwrap_or(u64::MAX);
            let after = rank(drafts.iter().map(|draft| (draft.price, draft.times / sets.max(1))));
            let saved = before.0.saturating_sub(after.0).saturating_mul(1000);
            saved >= before.0.saturating_mul(SAVED_BY_A_KIND).saturating_mul(kinds)
        });
        let flexible = |draft: &Draft| stays_flexible(pool, self.members, draft);
        let better = better
            .filter(|drafts| drafts.iter().all(flexible) || !taken.iter().all(|(draft, _)| flexible(draft)));
        let charged = better.filter(|drafts| charge(pool, drafts, &limits));
        let Some(drafts) = charged else {
            pool.limits.iter_mut().zip(limits).for_each(|((_, left), before)| *left = before);
            return false;
        };
        for (index, count) in chosen {
            self.drafts.iter_mut().skip(*index).take(1).for_each(|draft| draft.times -= count * sets);
        }
        self.drafts.retain(|draft| draft.times > 0);
        self.drafts.extend(drafts);
        !same
    }

    /// The lanes of drafts' pods, each as a member with these alone.
    fn pods_of(&self, taken: &[(&Draft, u32)]) -> (Vec<usize>, Vec<Member<'_>>) {
        let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
        for (draft, times) in taken {
            for (lane, count) in &draft.counts {
                *counts.entry(*lane).or_default() += count * times;
            }
        }
        let of = |(lane, waiting): (usize, u32)| Some((lane, Member { waiting, ..*self.members.get(lane)? }));
        counts.into_iter().filter_map(of).unzip()
    }
}

/// The price of claims, then how many there are.
fn rank(claims: impl Iterator<Item = (u64, u32)>) -> (u64, u32) {
    claims.fold((0, 0), |(price, sum), (each, count)| {
        (price.saturating_add(each.saturating_mul(u64::from(count))), sum.saturating_add(count))
    })
}

/// Drafts of some lanes as drafts of all, so many times.
fn as_before(mut drafts: Vec<Draft>, lanes: &[usize], times: u32) -> Vec<Draft> {
    for draft in &mut drafts {
        draft.times = draft.times.saturating_mul(times);
        for (lane, _) in &mut draft.counts {
            *lane = lanes.get(*lane).copied().unwrap_or(*lane);
        }
    }
    drafts
}

/// Charges the pool's limits. Returns whether they allow it.
fn charge(pool: &mut Pool<'_>, drafts: &[Draft], before: &[i128]) -> bool {
    for draft in drafts {
        let charges = pool.types.get(draft.type_index).map_or(&[][..], |one| &one.charges);
        for ((_, left), charge) in pool.limits.iter_mut().zip(charges) {
            *left = left.saturating_sub(charge.saturating_mul(i128::from(draft.times)));
        }
    }
    pool.limits.iter().zip(before).all(|((_, left), before)| *left >= 0 || left >= before)
}
