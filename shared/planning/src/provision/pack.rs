//! How many pods of which groups share one claim, and how many such claims there are.
//!
//! The rule: a pod's worth is its cost in its own best packing, the least, over its usable types, of the type's price
//! divided by the number of such pods that fit. The next claim is the cheapest relative to the worth of its pods, and
//! holds a pod of the first pending group. It repeats while enough such pods are pending. The pool is packed several
//! times, with three ways to fill a type and with worths corrected by the last result; the cheapest result wins. Then
//! claims are merged where one costs no more than two (module `merge`). It doesn't decide which pods fill a type (`fill`),
//! nor does it look at single groups: those that are the same to a claim are one (`lanes`).
//!
//! So every machine pays for itself by its pods, and the last few pods get a small one.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenon_domain::registry::MinValuesPolicy;

use super::dense::{times_fit, within};
use super::draft::{Draft, Member, sum};
use super::fill::{Fill, Filling, PackPattern, Scratch};
use super::lanes::{Buckets, Lanes};
use super::merge::merge;
use super::pool::Pool;
use super::steps::Steps;
use super::topology::selectors::SelectorId;

/// With more lanes than this a claim isn't filled by balance: looking at each lane in each round takes too long.
const BALANCED_LANES: usize = 48;
/// The number of packings with corrected worths.
const ROUNDS: usize = 3;

/// A pattern with its rank: pods that must be together and aren't in it, price for its worth, price, type.
struct RankedPattern {
    rank: (u32, f64, u64, usize),
    pattern: PackPattern,
}

impl RankedPattern {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let (a, b) = (&self.rank, &other.rank);
        a.0.cmp(&b.0).then_with(|| a.1.total_cmp(&b.1)).then_with(|| (a.2, a.3).cmp(&(b.2, b.3)))
    }
}

/// What choosing a claim works with.
struct Trying<'t> {
    scratch: &'t mut Scratch,
    steps: &'t mut Steps,
    /// Whether few pods are left.
    few: bool,
}

struct Attempt {
    drafts: Vec<Draft>,
    waiting: Vec<u32>,
    limits: Vec<i128>,
}

/// The least price per pod over the types of a class; `None` if none holds one.
pub(crate) fn worth(pool: &Pool<'_>, class: usize, need: &[i64]) -> Option<f64> {
    let class = pool.class(class)?;
    let cost = |index: &usize| {
        let count = times_fit(need, &pool.types.get(*index)?.room);
        // A pod that needs nothing is bounded by nothing; it is worth almost nothing.
        (count > 0).then_some(as_float(class.prices.get(*index).copied().flatten()?) / f64::from(count))
    };
    class.front.iter().filter_map(cost).min_by(f64::total_cmp)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "prices only rank patterns here; sums that are shown are exact"
)]
fn as_float(price: u64) -> f64 {
    // A free type must not make every pattern equal.
    price.max(1) as f64
}

/// Packs the members' pods, and charges the pool's limits. A pod without a place is in no draft.
pub(crate) fn pack(pool: &mut Pool<'_>, members: &[Member<'_>], steps: &mut Steps) -> Vec<Draft> {
    let lanes = Lanes::of(members);
    let lanes_of_all = &lanes.all;
    let mut best = attempt(pool, lanes_of_all, Filling::InOrder, steps);
    if has_choosy(pool, lanes_of_all) {
        let other = attempt(pool, lanes_of_all, Filling::LikeFirst, steps);
        if rank(&other, lanes_of_all) < rank(&best, lanes_of_all) {
            best = other;
        }
    }
    if lanes_of_all.len() <= BALANCED_LANES {
        let mut revalued: Vec<Member<'_>> = lanes_of_all.clone();
        for round in 0..ROUNDS {
            let mut tries = vec![attempt(pool, &revalued, Filling::Balanced, steps)];
            if round > 0 {
                tries.push(attempt(pool, &revalued, Filling::InOrder, steps));
            }
            for found in tries {
                revalue(&mut revalued, &found.drafts);
                if rank(&found, lanes_of_all) < rank(&best, lanes_of_all) {
                    best = found;
                }
            }
        }
    }
    for ((_, left), now) in pool.limits.iter_mut().zip(&best.limits) {
        *left = *now;
    }
    let drafts =
        if pool.has_min_values() { best.drafts } else { merge(pool, lanes_of_all, best.drafts, steps) };
    lanes.members_of(members, drafts)
}

/// Whether some pods pay more for a node than others, or have fewer types.
fn has_choosy(pool: &Pool<'_>, lanes: &[Member<'_>]) -> bool {
    let classes: BTreeSet<usize> = lanes.iter().map(|lane| lane.class).collect();
    let mut prices = classes.iter().filter_map(|class| pool.class(*class)).map(|class| &class.prices);
    let first = prices.next();
    prices.any(|other| Some(other) != first)
}

/// Moves a pod's worth towards the price in a result: half of the old worth, and half of its share, by worth, of the
/// prices of its claims. A pod that is hard to pack gains worth, so the next packing places it earlier.
fn revalue(members: &mut [Member<'_>], drafts: &[Draft]) {
    let mut paid: Vec<(f64, f64)> = vec![(0.0, 0.0); members.len()];
    for draft in drafts {
        let worth_of = |(index, count): &(usize, u32)| {
            members.get(*index).map_or(0.0, |member| member.worth * f64::from(*count))
        };
        let whole: f64 = draft.counts.iter().map(worth_of).sum();
        let rate = as_float(draft.price) / whole.max(f64::MIN_POSITIVE);
        for (index, count) in &draft.counts {
            if let (Some((sum, pods)), Some(member)) = (paid.get_mut(*index), members.get(*index)) {
                let pods_here = f64::from(*count) * f64::from(draft.times);
                *sum += rate * member.worth * pods_here;
                *pods += pods_here;
            }
        }
    }
    for (member, (sum, pods)) in members.iter_mut().zip(paid).filter(|(_, (_, pods))| *pods > 0.0) {
        member.worth = f64::midpoint(member.worth, sum / pods);
    }
}

/// Most pods placed first, then the lowest price, then the fewest claims.
fn rank(attempt: &Attempt, members: &[Member<'_>]) -> (u64, u64, u64) {
    let unplaced = attempt.waiting.iter().zip(members).map(|(left, _)| u64::from(*left)).sum();
    let of = |f: fn(&Draft) -> u64| attempt.drafts.iter().map(f).fold(0, u64::saturating_add);
    (unplaced, of(|d| d.price.saturating_mul(u64::from(d.times))), of(|d| u64::from(d.times)))
}

fn attempt(pool: &mut Pool<'_>, members: &[Member<'_>], filling: Filling, steps: &mut Steps) -> Attempt {
    let mut waiting: Vec<u32> = members.iter().map(|member| member.waiting).collect();
    let mut limits: Vec<i128> = pool.limits.iter().map(|(_, left)| *left).collect();
    let mut buckets = Buckets::of(members);
    let mut scratch = Scratch::default();
    let mut pods: u64 = waiting.iter().map(|left| u64::from(*left)).sum();
    let needs_others = |(_, member): &(usize, &Member<'_>)| member.rules.keeps_together();
    let followers: Vec<usize> =
        members.iter().enumerate().filter(needs_others).map(|(index, _)| index).collect();
    let mut refused = vec![false; members.len()];
    let mut drafts = Vec::new();
    let mut begun: BTreeSet<SelectorId> = BTreeSet::new();
    while let Some(seed) = buckets.first(&waiting, &refused) {
        let fill = Fill {
            members,
            waiting: &waiting,
            buckets: &buckets,
            begun: &begun,
            followers: &followers,
            filling,
        };
        let few = pods <= FEW_PODS;
        let mut trying = Trying { scratch: &mut scratch, steps, few };
        let Some(mut draft) = best_draft(pool, &fill, seed, &limits, &mut trying) else {
            refused.iter_mut().skip(seed).take(1).for_each(|refused| *refused = true);
            continue;
        };
        let charges: &[i128] = pool.types.get(draft.type_index).map_or(&[], |one| &one.charges);
        let together =
            |(index, _): &(usize, u32)| members.get(*index).filter(|member| member.rules.keeps_together());
        let with: Vec<SelectorId> =
            draft.counts.iter().filter_map(together).flat_map(|member| &member.rules.with).copied().collect();
        draft.times = if with.is_empty() { repeats(&draft, &waiting, &limits, charges) } else { 1 };
        begun.extend(with);
        for (limit, charge) in limits.iter_mut().zip(charges) {
            *limit = limit.saturating_sub(charge.saturating_mul(i128::from(draft.times)));
        }
        for (index, count) in &draft.counts {
            if let Some(left) = waiting.get_mut(*index) {
                let taken = count.saturating_mul(draft.times);
                *left = left.saturating_sub(taken);
                pods = pods.saturating_sub(u64::from(taken));
            }
        }
        buckets.forget(&draft.counts, &waiting);
        drafts.push(draft);
    }
    Attempt { drafts, waiting, limits }
}

/// How many equal claims can be made; at least one.
fn repeats(draft: &Draft, waiting: &[u32], limits: &[i128], charges: &[i128]) -> u32 {
    let by_pods = draft.counts.iter().map(|(index, count)| {
        waiting.get(*index).copied().unwrap_or(0).checked_div(*count).unwrap_or(u32::MAX)
    });
    let by_limits = limits
        .iter()
        .zip(charges)
        .filter(|(_, charge)| **charge > 0)
        .map(|(limit, charge)| u32::try_from(limit / charge).unwrap_or(u32::MAX));
    by_pods.chain(by_limits).min().unwrap_or(1).max(1)
}

/// With at most so many pods left, every size of a type is tried for them.
const FEW_PODS: u64 = 128;

/// The claim with the least cost for its content, among those with a pod of the seed.
fn best_draft(
    pool: &mut Pool<'_>,
    fill: &Fill<'_>,
    seed: usize,
    limits: &[i128],
    trying: &mut Trying<'_>,
) -> Option<Draft> {
    let member = fill.members.get(seed)?;
    let picky = pool.has_min_values();
    let class = pool.class(member.class)?;
    let front = if picky || trying.few { &class.front } else { &class.tried };
    let front = Arc::clone(front);
    let mut ranked: Vec<RankedPattern> = Vec::new();
    let holds = |type_index: &usize| {
        pool.types.get(*type_index).is_some_and(|one| {
            within(member.need, &one.room)
                && one.charges.iter().zip(limits).all(|(charge, left)| charge <= left)
        })
    };
    let holders: Vec<usize> = front.iter().copied().filter(holds).collect();
    for type_index in holders {
        if !trying.steps.take(fill.buckets.len()) {
            break;
        }
        let Some(pattern) = fill.pattern(pool, seed, type_index, trying.scratch) else { continue };
        let price = pool.price(pattern.class, type_index)?;
        let ratio = as_float(price) / pattern.worth;
        let rank = (fill.left_behind(seed, &pattern), ratio, price, type_index);
        let found = RankedPattern { rank, pattern };
        // Without `minValues` the best so far is all that matters.
        if picky || ranked.first().is_none_or(|best| found.cmp(best).is_lt()) {
            if !picky {
                ranked.clear();
            }
            ranked.push(found);
        }
    }
    ranked.sort_by(RankedPattern::cmp);
    let valid = |found: &RankedPattern| {
        let need = sum(fill.members, &found.pattern.counts);
        pool.satisfies_min_values(found.pattern.class, found.rank.3, &need)
    };
    let chosen = match (picky.then(|| ranked.iter().position(valid)), pool.min_values) {
        (None, _) | (Some(None), MinValuesPolicy::BestEffort) => 0,
        (Some(Some(first)), _) => first,
        (Some(None), MinValuesPolicy::Strict) => return None,
    };
    let RankedPattern { rank: (_, _, price, type_index), pattern } = ranked.into_iter().nth(chosen)?;
    Some(Draft {
        class: pattern.class,
        type_index,
        price,
        counts: pattern.counts,
        times: 1,
        reservation: None,
    })
}
