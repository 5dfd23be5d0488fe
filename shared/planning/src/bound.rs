//! The least cost of the pods on a plan's new claims: a linear programme over groups of equal pods.
//!
//! Decides nothing; it measures plans. Every pod must be on a machine of a type that it may use, machines may be
//! bought in fractions, pods may be split over them, and no type exceeds its resources. Each group is limited to its
//! own offerings in the pools that the plan used for it. No valid plan for these claims' pods is cheaper, except one
//! that moves pods to existing nodes.
//!
//! This module makes the programme; the feature-gated module `solve` solves it, because a solver brings a log and a
//! clock, which this crate must not have.
//!
//! Source: the assignment relaxation of vector bin packing with bins of several sizes.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::id::{NodePoolName, Uid};

use crate::provision::{
    Dimensions, PodGroup, Pool, ProvisionInput, ProvisionPlan, Scope, Ways, census, groups, in_order,
    measures,
};

/// A programme with more variables than this is not solved: it would take longer than the plan is worth.
const MAX_VARIABLES: usize = 12_000;

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
    let scale = scale(&measures.dimensions, &kinds);
    let mut columns = Vec::new();
    for pool in in_order(input) {
        let mut pool = Pool::new(pool, &measures);
        columns.extend(columns_of(&mut pool, &kinds, &scale));
    }
    let columns = undominated(columns);
    let variables: usize = columns.iter().map(|column| column.users.len() + 1).sum();
    if variables > MAX_VARIABLES {
        return None;
    }
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

fn columns_of(pool: &mut Pool<'_>, kinds: &[PodKind<'_>], scale: &[f64]) -> Vec<Column> {
    let name = &pool.input.pool.name;
    let mut least: BTreeMap<(usize, u64), BTreeSet<usize>> = BTreeMap::new();
    for (index, kind) in kinds.iter().enumerate().filter(|(_, kind)| kind.pools.contains(name)) {
        for asked in &kind.ways.for_new_nodes {
            for (type_index, price) in pool.least_prices(asked, kind.need) {
                least.entry((type_index, price)).or_default().insert(index);
            }
        }
    }
    let mut columns = Vec::new();
    let mut users: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    // Prices ascend within a type: a group with a lower price may also pay the higher one.
    for ((type_index, price), kinds) in least {
        let all = users.entry(type_index).or_default();
        all.extend(kinds);
        let Some(one) = pool.types.get(type_index) else { continue };
        let room = scaled(&one.room, scale).into_iter().map(|room| room.clamp(0.0, MOST_ROOM)).collect();
        columns.push(Column { room, price: usd(price), users: all.clone() });
    }
    columns
}

#[expect(clippy::cast_precision_loss, reason = "prices are far below 2^53 nano-dollars")]
fn usd(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Leaves out columns that another serves the same groups as with at least the room for at most the price.
fn undominated(mut columns: Vec<Column>) -> Vec<Column> {
    columns.sort_by(|a, b| a.price.total_cmp(&b.price).then_with(|| b.users.len().cmp(&a.users.len())));
    let mut kept: Vec<Column> = Vec::new();
    for column in columns {
        let better = |other: &Column| {
            column.users.is_subset(&other.users) && column.room.iter().zip(&other.room).all(|(a, b)| a <= b)
        };
        if !kept.iter().any(better) {
            kept.push(column);
        }
    }
    kept
}
