//! The least cost of the pods on a plan's new claims: a linear programme over groups of equal pods.
//!
//! Decides nothing; it measures plans. Every pod must be on a machine of a type that it may use, machines may be
//! bought in fractions, pods may be split over them, and no type exceeds its resources. A type of which the limits allow
//! not even one node is left out. Each group is limited to its own offerings in the pools that the plan used for it. No valid plan for these claims' pods is cheaper, except one
//! that moves pods to existing nodes.
//!
//! This module makes the programme, and gives up one that is too large as soon as that is sure. The feature-gated
//! module `solve` solves it, because a solver brings a log and a clock, which this crate must not have.
//!
//! Source: the assignment relaxation of vector bin packing with bins of several sizes.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::id::{NodePoolName, Uid};

use crate::provision::{
    Dimensions, PodGroup, Pool, ProvisionInput, ProvisionPlan, Scope, Ways, census, groups, in_order,
    measures, within,
};

/// A programme with more variables than this is not solved: it would take longer than the plan is worth.
const MAX_VARIABLES: usize = 12_000;

/// A programme of more kinds of pods isn't made. Each kind is a row, and has a variable for every machine that may hold
/// it: with 600 instance types, far fewer kinds exceed [`MAX_VARIABLES`].
const MAX_KINDS: usize = 2_000;

/// With more columns, the search for dominated ones would take longer than the plan: 60 NodePools of 800 types.
const MAX_DRAFTS: usize = 50_000;

/// A linear programme whose least price is a lower bound for every valid plan of the claims' pods.
///
/// It minimises the price of machines bought in fractions. Every group's pods have their shares of machines, and no
/// type's machines exceed their resources. Amounts are scaled to about one.
#[derive(Debug, Clone, PartialEq)]
pub struct Programme {
    /// How many pods of each kind are on claims.
    pub counts: Vec<f64>,
    /// The needs of a pod of each kind, by dimension.
    pub needs: Vec<Vec<f64>>,
    /// The machines that may be bought.
    pub columns: Vec<Column>,
}

/// A machine that may be bought: its room and price, and the kinds of pods that may use it at that price.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Room by dimension.
    pub room: Vec<f64>,
    /// USD an hour.
    pub price: f64,
    /// Indexes of kinds.
    pub users: BTreeSet<usize>,
}

/// Indexes of kinds, a bit each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct KindSet(Vec<u64>);

impl KindSet {
    const BITS: usize = 64;

    fn insert(&mut self, kind: usize) {
        let word = kind / Self::BITS;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= 1 << (kind % Self::BITS);
        }
    }

    fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
    }

    fn is_subset(&self, other: &Self) -> bool {
        let others = other.0.iter().chain(std::iter::repeat(&0));
        self.0.iter().zip(others).all(|(own, other)| own & !other == 0)
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let bits = (0..Self::BITS).filter(move |bit| (word >> bit) & 1 == 1);
            bits.map(move |bit| index * Self::BITS + bit)
        })
    }
}

/// A column that another may dominate.
struct DraftColumn {
    room: Vec<f64>,
    price: f64,
    users: KindSet,
    user_count: usize,
}

/// Pods that the programme can't tell apart: rules about other pods and preferences don't bind it.
struct PodKind<'g> {
    need: &'g [i64],
    ways: &'g Ways,
    pools: BTreeSet<&'g NodePoolName>,
    count: u32,
}

/// The programme for the pods on the plan's claims; `None` if it is too large.
#[must_use]
pub fn programme(input: &ProvisionInput, plan: &ProvisionPlan) -> Option<Programme> {
    let (scope, measures) = (Scope::of(input), measures(input, &input.pods));
    let selectors = census::selectors(input, &scope);
    let (groups, _) = groups(input, &scope, &measures, (&selectors, &[]));
    let kinds = kinds(&groups, plan);
    if kinds.len() > MAX_KINDS {
        return None;
    }
    let scale = scale(&measures.dimensions, &kinds);
    let mut drafts = Vec::new();
    for pool in in_order(input) {
        let pool = Pool::new(pool, &measures);
        drafts.extend(drafts_of(&pool, &kinds, &scale));
        if drafts.len() > MAX_DRAFTS {
            return None;
        }
    }
    let columns = undominated(drafts)?;
    let needs = kinds.iter().map(|kind| scaled(kind.need, &scale)).collect();
    Some(Programme { counts: kinds.iter().map(|kind| f64::from(kind.count)).collect(), needs, columns })
}

/// The pods that the plan launches claims for.
fn kinds<'g>(groups: &'g [PodGroup<'_>], plan: &'g ProvisionPlan) -> Vec<PodKind<'g>> {
    let placed = placed(plan);
    let mut kinds: BTreeMap<(usize, usize, BTreeSet<&NodePoolName>), PodKind<'_>> = BTreeMap::new();
    for group in groups {
        let on_claims = group.pods.iter().filter_map(|pod| placed.get(&pod.uid).copied());
        let count = u32::try_from(on_claims.clone().count()).unwrap_or(u32::MAX);
        let pools: BTreeSet<&NodePoolName> = on_claims.collect();
        let ways: &Ways = &group.required;
        let key = (ways.id, group.need_id, pools.clone());
        let kind = kinds.entry(key).or_insert(PodKind { need: &group.need, ways, pools, count: 0 });
        kind.count = kind.count.saturating_add(count);
    }
    kinds.into_values().filter(|kind| kind.count > 0).collect()
}

/// By pod, the pool that the plan launches for it.
fn placed(plan: &ProvisionPlan) -> BTreeMap<&Uid, &NodePoolName> {
    plan.claims.iter().flat_map(|claim| claim.pods.iter().map(|pod| (&pod.uid, &claim.pool))).collect()
}

/// For each dimension the largest need, so that the programme's numbers are near one.
fn scale(dimensions: &Dimensions, kinds: &[PodKind<'_>]) -> Vec<f64> {
    let mut largest = vec![1_i64; dimensions.names().count()];
    for kind in kinds {
        for (largest, need) in largest.iter_mut().zip(kind.need) {
            *largest = (*largest).max(*need);
        }
    }
    scaled(&largest, &vec![1.0; largest.len()])
}

#[expect(clippy::cast_precision_loss, reason = "a bound is as exact as the solver's floating point")]
fn scaled(amounts: &[i64], scale: &[f64]) -> Vec<f64> {
    amounts.iter().zip(scale).map(|(amount, scale)| *amount as f64 / scale).collect()
}

/// The most pods of a kind that a machine is taken to hold: larger numbers only cost precision.
const MOST_ROOM: f64 = 100_000.0;

/// The columns of a pool. What kinds with equal ways require is looked up once for all of them.
fn drafts_of(pool: &Pool<'_>, kinds: &[PodKind<'_>], scale: &[f64]) -> Vec<DraftColumn> {
    let name = &pool.input.pool.name;
    let mut by_ways: BTreeMap<usize, Vec<(usize, &PodKind<'_>)>> = BTreeMap::new();
    for (index, kind) in kinds.iter().enumerate().filter(|(_, kind)| kind.pools.contains(name)) {
        by_ways.entry(kind.ways.id).or_default().push((index, kind));
    }
    // Whatever claims they share: no claim has more room.
    let rooms = pool.daemons.largest_rooms(&pool.types);
    let mut least: BTreeMap<(usize, u64), KindSet> = BTreeMap::new();
    for alike in by_ways.values() {
        let asked = alike.first().map(|(_, kind)| &kind.ways.for_new_nodes);
        for (type_index, price) in asked.into_iter().flatten().flat_map(|asked| pool.least_prices(asked)) {
            let Some(room) = rooms.get(type_index).filter(|_| pool.allows_one(type_index)) else { continue };
            let users = least.entry((type_index, price)).or_default();
            let fitting = alike.iter().filter(|(_, kind)| within(kind.need, &room.amounts));
            fitting.for_each(|(index, _)| users.insert(*index));
        }
    }
    let mut drafts = Vec::new();
    let mut users: BTreeMap<usize, KindSet> = BTreeMap::new();
    // Prices ascend within a type: a group with a lower price may also pay the higher one.
    for ((type_index, price), kinds) in least {
        let all = users.entry(type_index).or_default();
        // For the same kinds the lower price is enough.
        if kinds.is_subset(all) {
            continue;
        }
        all.add(&kinds);
        let Some(room) = rooms.get(type_index) else { continue };
        let room = scaled(&room.amounts, scale).into_iter().map(|room| room.clamp(0.0, MOST_ROOM)).collect();
        let user_count = all.iter().count();
        drafts.push(DraftColumn { room, price: usd(price), users: all.clone(), user_count });
    }
    drafts
}

#[expect(clippy::cast_precision_loss, reason = "prices are far below 2^53 nano-dollars")]
fn usd(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Leaves out columns that another serves the same groups as with at least the room for at most the price. `None` as soon
/// as the rest has too many variables: a column that stays is never dropped later.
fn undominated(mut drafts: Vec<DraftColumn>) -> Option<Vec<Column>> {
    drafts.sort_by(|a, b| a.price.total_cmp(&b.price).then_with(|| b.user_count.cmp(&a.user_count)));
    let mut variables = 0;
    let mut kept: Vec<DraftColumn> = Vec::new();
    for draft in drafts {
        let better = |other: &DraftColumn| {
            draft.room.iter().zip(&other.room).all(|(a, b)| a <= b) && draft.users.is_subset(&other.users)
        };
        if kept.iter().any(better) {
            continue;
        }
        variables += draft.user_count + 1;
        if variables > MAX_VARIABLES {
            return None;
        }
        kept.push(draft);
    }
    let column = |DraftColumn { room, price, users, .. }: DraftColumn| Column {
        room,
        price,
        users: users.iter().collect(),
    };
    Some(kept.into_iter().map(column).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(kinds: &[usize]) -> KindSet {
        let mut set = KindSet::default();
        kinds.iter().for_each(|kind| set.insert(*kind));
        set
    }

    #[test]
    fn sets_of_different_lengths_compare_by_what_is_in_them() {
        let check = |a: &[usize], b: &[usize], subset: bool| {
            assert_eq!(set(a).is_subset(&set(b)), subset, "{a:?} {b:?}");
            let mut both = set(a);
            both.add(&set(b));
            let expected: BTreeSet<usize> = a.iter().chain(b).copied().collect();
            assert_eq!(both.iter().collect::<BTreeSet<usize>>(), expected);
        };
        check(&[], &[], true);
        check(&[], &[200], true);
        check(&[63], &[63, 64], true);
        check(&[63, 64], &[63], false);
        check(&[0, 200], &[0, 1, 200], true);
        check(&[1], &[0, 200], false);
    }

    fn check(columns: &[(f64, f64, &[usize])], kept: Option<&[f64]>) {
        let draft = |(room, price, users): &(f64, f64, &[usize])| DraftColumn {
            room: vec![*room],
            price: *price,
            users: set(users),
            user_count: users.len(),
        };
        let found = undominated(columns.iter().map(draft).collect());
        let prices = |columns: Vec<Column>| columns.iter().map(|column| column.price).collect::<Vec<f64>>();
        assert_eq!(found.map(prices).as_deref(), kept);
    }

    #[test]
    fn a_column_stays_if_it_has_more_room_or_more_users_than_each_cheaper_one() {
        check(&[(1.0, 2.0, &[0]), (1.0, 1.0, &[0, 1])], Some(&[1.0]));
        check(&[(2.0, 2.0, &[0]), (1.0, 1.0, &[0, 1])], Some(&[1.0, 2.0]));
        check(&[(1.0, 1.0, &[0]), (1.0, 2.0, &[0, 1])], Some(&[1.0, 2.0]));
    }

    #[test]
    fn too_many_variables_end_the_search_and_dominated_columns_do_not_count() {
        let users: Vec<usize> = (0..MAX_VARIABLES - 1).collect();
        check(&[(1.0, 1.0, &users), (1.0, 2.0, &users)], Some(&[1.0]));
        check(&[(1.0, 1.0, &users), (2.0, 2.0, &users)], None);
    }
}
