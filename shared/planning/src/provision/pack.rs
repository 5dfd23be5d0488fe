//! How many pods of which groups share one claim, and how many such claims there are.
//!
//! The rule: a pod's worth is its cost in its own best packing, the least, over its usable types, of the type's price
//! divided by the number of such pods that fit. The next claim is the cheapest relative to the worth of its pods, and
//! holds a pod of the first pending group. It repeats while enough such pods are pending. The pool is packed several
//! times, with two ways to fill a type and with worths corrected by the last result; the cheapest result wins. Then
//! claims are merged where one is cheaper than two. No pod makes a claim dearer than the claim was without it; a pod
//! that needs on-demand capacity, for instance, doesn't join pods that accept spot.
//!
//! So every machine pays for itself by its pods, and the last few pods get a small one.

use std::collections::BTreeSet;

use tenon_domain::api::pod::HostPort;
use tenon_domain::id::ReservationId;

use super::dense::{DenseAmounts, add_times, take_times, times_fit, within};
use super::needs::ports_conflict;
use super::pool::Pool;
use super::steps::Steps;
use super::topology::neighbours::{FirstOfItsKind, NodeNeighbours, NodeRules};
use super::topology::selectors::SelectorId;

/// With more groups than this a claim isn't filled by balance: looking at each group in each round takes too long.
const BALANCED_GROUPS: usize = 48;
/// The number of packings with corrected worths.
const ROUNDS: usize = 3;
/// Claims with different contents that are tried in pairs.
const MERGED_DRAFTS: usize = 96;

/// A group as one pool sees it.
#[derive(Debug, Clone)]
pub(crate) struct Member<'a> {
    /// Its index in the plan's groups.
    pub(crate) group: usize,
    /// The pool's class for it.
    pub(crate) class: usize,
    /// The needs of one pod.
    pub(crate) need: &'a DenseAmounts,
    /// Its host ports.
    pub(crate) host_ports: &'a BTreeSet<HostPort>,
    /// Its rules about the other pods of a claim.
    pub(crate) rules: &'a NodeRules,
    /// Whether the pods that it needs beside it are nowhere, so that its own may come first.
    pub(crate) first: FirstOfItsKind,
    /// The worth of one pod; see the module.
    pub(crate) worth: f64,
    /// How many pods wait.
    pub(crate) waiting: u32,
}

/// Equal claims.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    /// The class of the requirements of their pods and the pool.
    pub(crate) class: usize,
    /// The type that the pods were packed for.
    pub(crate) type_index: usize,
    /// Its price.
    pub(crate) price: u64,
    /// Pods by member.
    pub(crate) counts: Vec<(usize, u32)>,
    /// How many such claims.
    pub(crate) times: u32,
    /// The capacity reservation that they use; set after packing.
    pub(crate) reservation: Option<ReservationId>,
}

/// How a type is filled after its first pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filling {
    /// As many of each group as fit, in order.
    InOrder,
    /// The groups that best match the shape of the free room.
    Balanced,
}

/// Which pods may join a claim: first those with the same price on their own, so that cheaper pods (spot, beside pods
/// that need on-demand capacity) don't take the room; then all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guests {
    Equals,
    All,
}

/// A pattern: the pods of one claim of a type.
struct PackPattern {
    class: usize,
    counts: Vec<(usize, u32)>,
    worth: f64,
}

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
    let mut best = attempt(pool, members, Filling::InOrder, steps);
    if members.len() <= BALANCED_GROUPS {
        let mut revalued: Vec<Member<'_>> = members.to_vec();
        for round in 0..ROUNDS {
            let mut tries = vec![attempt(pool, &revalued, Filling::Balanced, steps)];
            if round > 0 {
                tries.push(attempt(pool, &revalued, Filling::InOrder, steps));
            }
            for found in tries {
                revalue(&mut revalued, &found.drafts);
                if rank(&found, members) < rank(&best, members) {
                    best = found;
                }
            }
        }
    }
    for ((_, left), now) in pool.limits.iter_mut().zip(&best.limits) {
        *left = *now;
    }
    if pool.limits.is_empty() && !pool.has_min_values() {
        merge(pool, members, best.drafts, steps)
    } else {
        best.drafts
    }
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
    let smallest = smallest_from(members);
    let mut refused = vec![false; members.len()];
    let mut drafts = Vec::new();
    let mut begun: BTreeSet<SelectorId> = BTreeSet::new();
    loop {
        let open = waiting.iter().zip(&refused).position(|(left, refused)| *left > 0 && !refused);
        let Some(seed) = open else { break };
        let fill = Fill { members, waiting: &waiting, smallest: &smallest, begun: &begun, filling };
        let Some(mut draft) = best_draft(pool, &fill, seed, &limits, steps) else {
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
                *left = left.saturating_sub(count.saturating_mul(draft.times));
            }
        }
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

/// For each member the least that it or any later one needs of each resource: where even that doesn't fit, a claim is
/// full.
fn smallest_from(members: &[Member<'_>]) -> Vec<DenseAmounts> {
    let mut smallest: Vec<DenseAmounts> = Vec::with_capacity(members.len());
    for member in members.iter().rev() {
        let least = match smallest.last() {
            Some(later) => member.need.iter().zip(later).map(|(a, b)| *a.min(b)).collect(),
            None => member.need.clone(),
        };
        smallest.push(least);
    }
    smallest.reverse();
    smallest
}

/// The state of filling a type.
struct Fill<'a> {
    members: &'a [Member<'a>],
    waiting: &'a [u32],
    smallest: &'a [DenseAmounts],
    /// Selectors of pods that must be together and have a claim by now.
    begun: &'a BTreeSet<SelectorId>,
    filling: Filling,
}

/// The claim with the least cost for its content, among those with a pod of the seed.
fn best_draft(
    pool: &mut Pool<'_>,
    fill: &Fill<'_>,
    seed: usize,
    limits: &[i128],
    steps: &mut Steps,
) -> Option<Draft> {
    let class = fill.members.get(seed)?.class;
    let front = pool.class(class)?.front.clone();
    let mut ranked: Vec<RankedPattern> = Vec::new();
    let picky = pool.has_min_values();
    for type_index in front {
        if !steps.take(fill.members.len()) {
            break;
        }
        let affordable = pool
            .types
            .get(type_index)
            .is_some_and(|one| one.charges.iter().zip(limits).all(|(charge, left)| charge <= left));
        let Some(pattern) = affordable.then(|| fill.pattern(pool, seed, type_index)).flatten() else {
            continue;
        };
        let price = pool.price(pattern.class, type_index)?;
        let rank = (fill.left_behind(seed, &pattern), as_float(price) / pattern.worth, price, type_index);
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
    let RankedPattern { rank: (_, _, price, type_index), pattern } =
        ranked.into_iter().find(|found| !picky || valid(found))?;
    Some(Draft {
        class: pattern.class,
        type_index,
        price,
        counts: pattern.counts,
        times: 1,
        reservation: None,
    })
}

fn sum(members: &[Member<'_>], counts: &[(usize, u32)]) -> DenseAmounts {
    let dimensions = members.first().map_or(0, |member| member.need.len());
    let mut need = vec![0; dimensions];
    for (index, count) in counts {
        if let Some(member) = members.get(*index) {
            add_times(&mut need, member.need, *count);
        }
    }
    need
}

impl Fill<'_> {
    fn pattern(&self, pool: &mut Pool<'_>, seed: usize, type_index: usize) -> Option<PackPattern> {
        let member = self.members.get(seed)?;
        let one = pool.types.get(type_index)?;
        let mut filling = Filled {
            pattern: PackPattern { class: member.class, counts: Vec::new(), worth: 0.0 },
            left: one.room.clone(),
            host_ports: one.host_ports.clone(),
            neighbours: NodeNeighbours::default(),
            type_index,
        };
        let first = match self.filling {
            Filling::Balanced if !member.rules.keeps_together() => 1,
            Filling::InOrder | Filling::Balanced => u32::MAX,
        };
        if !filling.add(pool, self, seed, first) {
            return None;
        }
        // Those that need pods of this claim beside them can come nowhere else.
        let followers = self.members.iter().enumerate().filter(|(_, member)| member.rules.keeps_together());
        for (index, _) in followers.filter(|(index, _)| *index != seed) {
            filling.add(pool, self, index, u32::MAX);
        }
        for guests in [Guests::Equals, Guests::All] {
            match self.filling {
                Filling::InOrder => self.in_order(pool, &mut filling, guests),
                Filling::Balanced => self.balance(pool, &mut filling, guests),
            }
        }
        Some(filling.pattern)
    }

    fn in_order(&self, pool: &mut Pool<'_>, filling: &mut Filled, guests: Guests) {
        for (index, smallest) in self.smallest.iter().enumerate() {
            if !within(smallest, &filling.left) {
                break;
            }
            if self.welcome(pool, filling, index, guests) {
                filling.add(pool, self, index, u32::MAX);
            }
        }
    }

    /// Whether a member's pods may come in now.
    fn welcome(&self, pool: &Pool<'_>, filling: &Filled, index: usize, guests: Guests) -> bool {
        match guests {
            Guests::All => true,
            Guests::Equals => self.members.get(index).is_some_and(|member| {
                pool.price(member.class, filling.type_index)
                    == pool.price(filling.pattern.class, filling.type_index)
            }),
        }
    }

    /// Repeatedly adds pods of the group whose needs point most in the direction of the free room.
    fn balance(&self, pool: &mut Pool<'_>, filling: &mut Filled, guests: Guests) {
        let Some(whole) = pool.types.get(filling.type_index).map(|one| one.room.clone()) else { return };
        let mut out: Vec<bool> =
            (0..self.members.len()).map(|index| !self.welcome(pool, filling, index, guests)).collect();
        loop {
            let mut best: Option<(f64, usize, u32)> = None;
            for (index, (member, out)) in self.members.iter().zip(&out).enumerate() {
                let left = self.left(filling, index);
                let count =
                    if *out || left == 0 { 0 } else { times_fit(member.need, &filling.left).min(left) };
                if count > 0 {
                    let aligned = alignment(member.need, &filling.left, &whole);
                    if best.is_none_or(|(most, _, _)| aligned > most) {
                        best = Some((aligned, index, count));
                    }
                }
            }
            let Some((_, index, count)) = best else { break };
            if !filling.add(pool, self, index, count.div_ceil(4)) {
                out.iter_mut().skip(index).take(1).for_each(|out| *out = true);
            }
        }
    }

    /// How many pods that must be on the seed's node aren't in the pattern.
    fn left_behind(&self, seed: usize, pattern: &PackPattern) -> u32 {
        let Some(seed) = self.members.get(seed).filter(|seed| seed.rules.keeps_together()) else { return 0 };
        let like = |member: &Member<'_>| member.rules.with == seed.rules.with;
        let all = self.members.iter().zip(self.waiting).filter(|(member, _)| like(member));
        let inside = pattern.counts.iter().filter(|(index, _)| self.members.get(*index).is_some_and(like));
        let sum = |counts: &mut dyn Iterator<Item = u32>| counts.fold(0, u32::saturating_add);
        sum(&mut all.map(|(_, waiting)| *waiting)).saturating_sub(sum(&mut inside.map(|(_, count)| *count)))
    }

    /// Pods of a member that wait and aren't in the pattern.
    fn left(&self, filling: &Filled, index: usize) -> u32 {
        let inside = filling.pattern.counts.iter().find(|(i, _)| *i == index).map_or(0, |(_, count)| *count);
        self.waiting.get(index).copied().unwrap_or(0).saturating_sub(inside)
    }
}

/// The cosine between a need and the room that is left, both as shares of the whole room.
#[expect(clippy::cast_precision_loss, reason = "only the better of two directions is looked for")]
fn alignment(need: &[i64], left: &[i64], whole: &[i64]) -> f64 {
    let (mut dot, mut size) = (0.0, 0.0);
    for ((need, left), whole) in need.iter().zip(left).zip(whole) {
        let whole = (*whole).max(1) as f64;
        let (need, left) = (*need as f64 / whole, *left as f64 / whole);
        dot += need * left;
        size += need * need;
    }
    dot / size.sqrt().max(f64::MIN_POSITIVE)
}

/// A pattern that is being made.
struct Filled {
    pattern: PackPattern,
    left: DenseAmounts,
    host_ports: BTreeSet<HostPort>,
    neighbours: NodeNeighbours,
    type_index: usize,
}

impl Filled {
    /// Adds at most so many pods of a member. Returns whether it added any.
    fn add(&mut self, pool: &mut Pool<'_>, fill: &Fill<'_>, index: usize, at_most: u32) -> bool {
        let Some(member) = fill.members.get(index) else { return false };
        let mut count = times_fit(member.need, &self.left).min(fill.left(self, index)).min(at_most);
        if !member.host_ports.is_empty() {
            count = if ports_conflict(member.host_ports, &self.host_ports) { 0 } else { count.min(1) };
        }
        let begun = member.rules.with.iter().any(|selector| fill.begun.contains(selector));
        let first = if begun { FirstOfItsKind::No } else { member.first };
        count = count.min(self.neighbours.admits(member.rules, first));
        if count == 0 {
            return false;
        }
        let Some(class) = pool.join(self.pattern.class, member.class) else { return false };
        let before = pool.price(self.pattern.class, self.type_index);
        // A pod that would make the whole claim dearer gets its own claim.
        if pool.price(class, self.type_index).is_none_or(|price| before.is_some_and(|before| price > before))
        {
            return false;
        }
        take_times(&mut self.left, member.need, count);
        self.host_ports.extend(member.host_ports.iter().cloned());
        self.neighbours.add(member.rules, count);
        self.pattern.class = class;
        self.pattern.worth += member.worth * f64::from(count);
        match self.pattern.counts.iter_mut().find(|(i, _)| *i == index) {
            Some((_, inside)) => *inside += count,
            None => self.pattern.counts.push((index, count)),
        }
        true
    }
}

/// Makes one of two claims wherever one type holds the pods of both and costs less than both, or no more.
fn merge(
    pool: &mut Pool<'_>,
    members: &[Member<'_>],
    mut drafts: Vec<Draft>,
    steps: &mut Steps,
) -> Vec<Draft> {
    let mut merged = drafts.len() <= MERGED_DRAFTS;
    while merged {
        merged = false;
        let mut best: Option<(u64, usize, usize, Draft)> = None;
        for (i, a) in drafts.iter().enumerate() {
            for (j, b) in drafts.iter().enumerate().skip(i) {
                if (i == j && a.times < 2) || !steps.take(members.len()) {
                    continue;
                }
                let Some(union) = union(pool, members, a, b) else { continue };
                let saved = a.price.saturating_add(b.price).checked_sub(union.price);
                if let Some(saved) = saved.filter(|saved| *saved > 0)
                    && best.as_ref().is_none_or(|(most, ..)| saved > *most)
                {
                    best = Some((saved, i, j, union));
                }
            }
        }
        if let Some((_, i, j, union)) = best {
            for index in [i, j] {
                drafts.iter_mut().skip(index).take(1).for_each(|draft| draft.times -= 1);
            }
            drafts.push(union);
            drafts.retain(|draft| draft.times > 0);
            merged = drafts.len() <= MERGED_DRAFTS;
        }
    }
    drafts
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
    let holds = |index: &&usize| pool.types.get(**index).is_some_and(|one| within(&need, &one.room));
    let type_index = *joined.front.iter().find(holds)?;
    let price = pool.price(class, type_index)?;
    Some(Draft { class, type_index, price, counts, times: 1, reservation: None })
}
