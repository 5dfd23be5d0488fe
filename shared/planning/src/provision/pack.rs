//! How many pods of which groups share one claim, and how many such claims there are.
//!
//! The rule: a pod's worth is its cost in its own best packing, the least, over its usable types, of the type's price
//! divided by the number of such pods that fit. The next claim is the cheapest relative to the worth of its pods, and
//! holds a pod of the first pending group. It repeats while enough such pods are pending. While steps for it are left, the
//! pool is packed again with worths corrected by the last result, and the cheapest result wins; then a few claims at a
//! time are packed again (module `repack`), and claims are merged where one costs no more than two (module `merge`). It
//! doesn't decide which pods fill a type (`fill`), nor does it look at single groups: those that are the same to a claim
//! are one (`lanes`).
//!
//! So every machine pays for itself by its pods, and the last few pods get a small one. Where a limit on the number of nodes
//! leaves pods without a place, claims that hold the most pods are tried, too.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::dense::times_fit;
use super::draft::{Draft, Member, sum};
use super::fill::{Fill, Filling, PackPattern, Scratch};
use super::lanes::{Buckets, Lanes};
use super::merge::merge;
use super::picky::picky_draft;
use super::pool::Pool;
use super::repack::repack;
use super::steps::Steps;
use super::topology::selectors::SelectorId;

/// The number of packings with corrected worths.
const ROUNDS: usize = 4;
/// The steps for making a packing better: so many at least, some milliseconds.
const STEPS: u64 = 100_000;
/// A large plan takes so many steps for each pod, if that is more than [`Effort::steps`].
const STEPS_OF_A_POD: u64 = 220;

/// How long better packings are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effort {
    /// A plan takes about so many steps at most: what packing needs at once is taken from it.
    steps: u64,
    /// More than [`STEPS`] for each pod, times the square of how many pods a lane has: what is found for one claim holds
    /// for those that are equal to it, and where all pods differ a look at them takes longer than it is worth.
    for_alike: u64,
    /// It ends when so many tries for each draft, one after the other, didn't help.
    pub(crate) idle_tries: usize,
}

/// About a tenth of a second.
const USUAL: Effort = Effort { steps: 1_600_000, for_alike: 5, idle_tries: 4 };
/// For more than [`FEW_ENOUGH`] pods: of so many that all differ, a look at each takes longer than it saves.
const LARGE: Effort = Effort { for_alike: 2, ..USUAL };
/// A quarter of a second, for [`FEW_ENOUGH`] pods of [`MANY_LANES`] lanes: it takes longer until claims that go together
/// meet, and the plan costs a percent less.
const THOROUGH: Effort = Effort { steps: 5_000_000, for_alike: 20, idle_tries: 8 };
/// At most so many pods: of more, each step takes longer.
const FEW_ENOUGH: u64 = 2_500;
/// At least so many lanes.
const MANY_LANES: usize = 150;
/// How many types, those that are best when filled in order, are filled by worth, too.
const BY_WORTH: usize = 3;
/// They are at most so much dearer for their pods than the best of them.
const NEARLY_BEST: f64 = 1.05;

/// A pattern with its rank: pods that must be together and aren't in it, price for its worth, price, type.
pub(crate) struct RankedPattern {
    pub(crate) rank: (u32, f64, u64, usize),
    pub(crate) pattern: PackPattern,
}

impl RankedPattern {
    pub(crate) fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let (a, b) = (&self.rank, &other.rank);
        a.0.cmp(&b.0).then_with(|| a.1.total_cmp(&b.1)).then_with(|| (a.2, a.3).cmp(&(b.2, b.3)))
    }

    /// A claim with these pods.
    pub(crate) fn into_draft(self) -> Draft {
        let Self { rank: (_, _, price, type_index), pattern: PackPattern { class, counts, .. } } = self;
        Draft { class, type_index, price, counts, times: 1, reservation: None }
    }
}

/// What choosing a claim works with.
struct Trying<'t> {
    scratch: &'t mut Scratch,
    steps: &'t mut Steps,
    /// Whether few pods are left.
    few: bool,
    /// The most that it may cost.
    most: u64,
    size: ClaimSize,
}

/// Which claims come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimSize {
    /// Those that are cheapest for their pods.
    Cheapest,
    /// Those whose pods are worth most: there may be only a few.
    Largest,
}

/// How pods are packed.
#[derive(Clone, Copy)]
pub(crate) struct Packing {
    pub(crate) filling: Filling,
    /// The most that all may cost: packing stops once it can't be kept.
    pub(crate) most: u64,
    pub(crate) size: ClaimSize,
}

impl Packing {
    /// At any price.
    const fn of(filling: Filling) -> Self {
        Self { filling, most: u64::MAX, size: ClaimSize::Cheapest }
    }
}

/// Drafts for members' pods.
pub(crate) struct Attempt {
    pub(crate) drafts: Vec<Draft>,
    /// The pods that have none.
    pub(crate) waiting: Vec<u32>,
    /// What is left of the pool's limits.
    pub(crate) limits: Vec<i128>,
    /// The steps that it took.
    steps: u64,
}

/// The least price per pod over the types of a class; `None` if none holds one.
pub(crate) fn worth(pool: &Pool<'_>, class: usize, need: &[i64]) -> Option<f64> {
    let class = pool.class(class)?;
    let cost = |index: &usize| {
        let count = times_fit(need, &class.room(*index)?.amounts);
        // A pod that needs nothing is bounded by nothing; it is worth almost nothing.
        (count > 0).then_some(as_float(class.prices.get(*index).copied().flatten()?) / f64::from(count))
    };
    class.front.iter().filter_map(cost).min_by(f64::total_cmp)
}

#[expect(clippy::cast_precision_loss, reason = "it only ranks patterns: sums that are shown are integers")]
pub(crate) fn as_float(price: u64) -> f64 {
    // A free type must not make every pattern equal.
    price.max(1) as f64
}

/// Packs the members' pods, and charges the pool's limits. A pod without a place is in no draft.
pub(crate) fn pack(pool: &mut Pool<'_>, members: &[Member<'_>], steps: &mut Steps) -> Vec<Draft> {
    let lanes = Lanes::of(members);
    let lanes_of_all = &lanes.all;
    let choosy = has_choosy(pool, lanes_of_all);
    let first = if choosy { Filling::OrderOrWorth } else { Filling::InOrder };
    let mut best = attempt(pool, lanes_of_all, Packing::of(first), steps);
    let mut others = Vec::new();
    if choosy {
        others.push(attempt(pool, lanes_of_all, Packing::of(Filling::LikeFirst), steps));
    }
    if best.waiting.iter().any(|left| *left > 0) {
        // Filled pod by pod, claims leave room for pods that follow others; and of pods that are worth the same, limits
        // let in the most.
        let equals: Vec<Member<'_>> =
            lanes_of_all.iter().map(|lane| Member { worth: 1.0, ..*lane }).collect();
        for lanes in [lanes_of_all, &equals] {
            others.push(attempt(pool, lanes, Packing::of(Filling::ByWorth), steps));
        }
        if pool.limits.iter().any(|(limit, _)| limit.counts_nodes()) && !pool.has_min_values() {
            let packing = Packing { size: ClaimSize::Largest, ..Packing::of(Filling::InOrder) };
            others.push(attempt(pool, lanes_of_all, packing, steps));
        }
    }
    for other in others {
        if rank(&other, lanes_of_all) < rank(&best, lanes_of_all) {
            best = other;
        }
    }
    let pods = lanes_of_all.iter().fold(0, |sum: u64, lane| sum.saturating_add(u64::from(lane.waiting)));
    let effort = Effort::of(lanes_of_all, pods);
    let mut part = steps.part(effort.left(lanes_of_all, pods, steps.used()));
    let (best, revalued) = packed_again(pool, lanes_of_all, best, &mut part);
    for ((_, left), now) in pool.limits.iter_mut().zip(&best.limits) {
        *left = *now;
    }
    let mut drafts = best.drafts;
    if !pool.has_min_values() {
        drafts = repack(pool, &revalued, drafts, (effort, &mut part));
        drafts = merge(pool, lanes_of_all, drafts, steps);
    }
    steps.take_part(&part);
    lanes.members_of(members, drafts)
}

/// The best of some packings with corrected worths, and the last worths. They take about half of the steps.
fn packed_again<'m>(
    pool: &mut Pool<'_>,
    lanes: &[Member<'m>],
    mut best: Attempt,
    steps: &mut Steps,
) -> (Attempt, Vec<Member<'m>>) {
    let mut revalued: Vec<Member<'_>> = lanes.to_vec();
    revalue(&mut revalued, &best.drafts);
    for _ in 0..ROUNDS {
        // Filling by worth takes about as long again as filling in order. A part of a packing is of no use.
        if steps.used().saturating_add(best.steps / 2 * 3) > steps.max() / 2 {
            break;
        }
        let found = attempt(pool, &revalued, Packing::of(Filling::OrderOrWorth), steps);
        revalue(&mut revalued, &found.drafts);
        if rank(&found, lanes) < rank(&best, lanes) {
            best = found;
        }
    }
    (best, revalued)
}

impl Effort {
    /// Of lanes with so many pods.
    const fn of(lanes: &[Member<'_>], pods: u64) -> Self {
        match (pods <= FEW_ENOUGH, lanes.len() >= MANY_LANES) {
            (true, true) => THOROUGH,
            (true, false) => USUAL,
            (false, _) => LARGE,
        }
    }

    /// The steps for making a packing better, where so many are used.
    fn left(self, lanes: &[Member<'_>], pods: u64, used: u64) -> u64 {
        let lanes = u64::try_from(lanes.len()).unwrap_or(u64::MAX).max(1);
        let alike = (pods.saturating_mul(pods) / lanes).saturating_mul(pods) / lanes;
        let left = self.steps.max(pods.saturating_mul(STEPS_OF_A_POD)).saturating_sub(used);
        left.min(STEPS.saturating_add(alike.saturating_mul(self.for_alike)))
    }
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
pub(crate) fn revalue(members: &mut [Member<'_>], drafts: &[Draft]) {
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

/// Packs all pods, claim by claim.
pub(crate) fn attempt(
    pool: &mut Pool<'_>,
    members: &[Member<'_>],
    packing: Packing,
    steps: &mut Steps,
) -> Attempt {
    let begun_at = steps.used();
    let mut waiting: Vec<u32> = members.iter().map(|member| member.waiting).collect();
    let mut limits: Vec<i128> = pool.limits.iter().map(|(_, left)| *left).collect();
    let mut buckets = Buckets::of(members);
    let mut scratch = Scratch::default();
    let mut pods: u64 = waiting.iter().map(|left| u64::from(*left)).sum();
    let needs_others = |(_, member): &(usize, &Member<'_>)| member.rules.keeps_together();
    let followers: Vec<usize> =
        members.iter().enumerate().filter(needs_others).map(|(index, _)| index).collect();
    let mut refused = vec![false; members.len()];
    let (mut drafts, mut spent) = (Vec::new(), 0_u64);
    let mut begun: BTreeSet<SelectorId> = BTreeSet::new();
    while let Some(seed) = buckets.first(&waiting, &refused) {
        let fill = Fill {
            members,
            waiting: &waiting,
            buckets: &buckets,
            begun: &begun,
            followers: &followers,
            filling: packing.filling,
        };
        let few = pods <= FEW_PODS && packing.most == u64::MAX;
        let most = packing.most - spent;
        let mut trying = Trying { scratch: &mut scratch, steps, few, most, size: packing.size };
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
        spent = spent.saturating_add(draft.price.saturating_mul(u64::from(draft.times)));
        drafts.push(draft);
        if is_hopeless(members, &waiting, packing, spent) {
            break;
        }
    }
    Attempt { drafts, waiting, limits, steps: steps.used() - begun_at }
}

/// Whether the rest will cost more than it may. Worths are about what pods cost in a whole plan, some cost less.
fn is_hopeless(members: &[Member<'_>], waiting: &[u32], packing: Packing, spent: u64) -> bool {
    if packing.most == u64::MAX {
        return false;
    }
    let rest: f64 = members.iter().zip(waiting).map(|(member, left)| member.worth * f64::from(*left)).sum();
    spent > packing.most || as_float(spent) + rest > as_float(packing.most)
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
    let largest = trying.size == ClaimSize::Largest;
    let class = pool.class(member.class)?;
    let front = if picky || largest || trying.few { &class.front } else { &class.tried };
    let front = Arc::clone(front);
    let mut ranked: Vec<RankedPattern> = Vec::new();
    let most_worth = if trying.few || trying.most < u64::MAX { fill.most_worth() } else { f64::INFINITY };
    let holds = |type_index: &usize| {
        let within_limits = pool
            .types
            .get(*type_index)
            .is_some_and(|one| one.charges.iter().zip(limits).all(|(charge, left)| charge <= left));
        within_limits && class.holds(*type_index, member.need)
    };
    let holders: Vec<usize> = front.iter().copied().filter(holds).collect();
    for type_index in holders {
        // Types become dearer, and no claim is worth more than all pods.
        let price = pool.price(member.class, type_index)?;
        let least = as_float(price) / most_worth;
        if price > trying.most
            || ranked
                .first()
                .is_some_and(|best| !picky && !largest && best.rank.0 == 0 && best.rank.1 <= least)
            || !trying.steps.take(fill.buckets.len())
        {
            break;
        }
        let Some(mut found) = ranked_pattern(pool, fill, seed, type_index, trying.scratch) else { continue };
        if largest {
            found.rank.1 = -found.pattern.worth;
        }
        let at = ranked.partition_point(|other| other.cmp(&found).is_lt());
        // Without `minValues` a few of the best are all that matters.
        if picky || at < BY_WORTH {
            ranked.insert(at, found);
            ranked.truncate(if picky { usize::MAX } else { BY_WORTH });
        }
    }
    if fill.filling == Filling::OrderOrWorth {
        let by_worth = Fill { filling: Filling::ByWorth, ..*fill };
        let most = ranked.first().map_or(0.0, |best| best.rank.1 * NEARLY_BEST);
        let near = ranked.iter().take(BY_WORTH).filter(|found| found.rank.1 <= most);
        let best: Vec<usize> = near.map(|found| found.rank.3).collect();
        for type_index in best {
            ranked.extend(ranked_pattern(pool, &by_worth, seed, type_index, trying.scratch));
            trying.steps.take(trying.scratch.looks);
        }
    }
    ranked.sort_by(RankedPattern::cmp);
    if picky {
        return picky_draft(pool, fill, limits, ranked, trying.steps);
    }
    let draft = ranked.into_iter().next()?.into_draft();
    Some(on_cheapest(pool, fill.members, limits, draft))
}

/// A draft on the cheapest type that holds its pods: not every type was tried.
fn on_cheapest(pool: &Pool<'_>, members: &[Member<'_>], limits: &[i128], draft: Draft) -> Draft {
    let needs_ports =
        |(index, _): &(usize, u32)| members.get(*index).is_some_and(|member| !member.host_ports.is_empty());
    let Some(class) = pool.class(draft.class).filter(|_| !draft.counts.iter().any(needs_ports)) else {
        return draft;
    };
    let need = sum(members, &draft.counts);
    let holds = |index: &&usize| {
        let within_limits = pool
            .types
            .get(**index)
            .is_some_and(|one| one.charges.iter().zip(limits).all(|(charge, left)| charge <= left));
        within_limits && class.holds(**index, &need)
    };
    // The front is sorted by price.
    let cheapest = class.front.iter().find(holds);
    match cheapest.and_then(|index| Some((*index, pool.price(draft.class, *index)?))) {
        Some((type_index, price)) if price < draft.price => Draft { type_index, price, ..draft },
        Some(_) | None => draft,
    }
}

/// The pods of a claim of a type, with their rank.
fn ranked_pattern(
    pool: &mut Pool<'_>,
    fill: &Fill<'_>,
    seed: usize,
    type_index: usize,
    scratch: &mut Scratch,
) -> Option<RankedPattern> {
    let pattern = fill.pattern(pool, seed, type_index, scratch)?;
    let price = pool.price(pattern.class, type_index)?;
    let ratio = as_float(price) / pattern.worth;
    Some(RankedPattern { rank: (fill.left_behind(seed, &pattern), ratio, price, type_index), pattern })
}
