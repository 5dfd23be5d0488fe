//! The policy `Balanced`: a move's share of its pool's cost against its share of the pool's disruption.
//!
//! Decides whether the saving is worth it: if its share is at least half of the disruption's.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/disruption/balanced.go`, `designs/balanced-consolidation.md`.

use std::collections::BTreeMap;

use tenon_domain::api::node_pool::ConsolidationPolicy;
use tenon_domain::money::UsdPerHour;

use super::candidate::{UsedNode, price};
use crate::disruption::blocked::reschedulable;
use crate::disruption::cost;
use crate::disruption::input::{ClaimView, DisruptionInput};
use crate::disruption::output::RefusalReason;

/// The least ratio of both shares is one to this.
const WORTH: u128 = 2;
/// A whole in hundredths of a percent.
const WHOLE: u128 = 10_000;

/// Cost and disruption of each pool with the policy `Balanced`.
#[derive(Debug, Default)]
pub(crate) struct PoolTotals<'a>(BTreeMap<&'a str, PoolTotal>);

#[derive(Debug, Default)]
struct PoolTotal {
    price: u64,
    disruption: u64,
}

impl<'a> PoolTotals<'a> {
    /// The disruption and the price of all nodes of a pool, of those too that can't go now.
    pub(crate) fn of(input: &'a DisruptionInput) -> Self {
        let balanced = |pool: &str| {
            input.pools.iter().any(|one| {
                let policy = one.disruption.consolidation_policy;
                one.name.as_str() == pool && policy == ConsolidationPolicy::Balanced
            })
        };
        let counts =
            |view: &&ClaimView| view.claim.phase().has_instance() && balanced(view.claim.pool.as_str());
        let mut totals: BTreeMap<&str, PoolTotal> = BTreeMap::new();
        for view in input.claims.iter().filter(counts) {
            let pods = view.node.as_ref().map(reschedulable).unwrap_or_default();
            let of_pool = input.world.pools.iter().find(|one| one.pool.name == view.claim.pool);
            let paid = of_pool.and_then(|of_pool| price(view, of_pool)).unwrap_or_default();
            let total = totals.entry(view.claim.pool.as_str()).or_default();
            total.disruption = total.disruption.saturating_add(cost::disruption(&pods));
            total.price = total.price.saturating_add(paid.nanos());
        }
        Self(totals)
    }

    /// Why one of the nodes' pools with this policy refuses, if one does. Of a move over several pools, each pool has the
    /// share of the saving that it has of the price.
    pub(crate) fn approve<'n>(
        &self,
        nodes: impl Iterator<Item = &'n UsedNode<'a>> + Clone,
        saves: UsdPerHour,
        price: UsdPerHour,
    ) -> Result<(), RefusalReason>
    where
        'a: 'n,
    {
        let refused = self.0.iter().find_map(|(pool, total)| {
            let own = || nodes.clone().filter(|used| used.pool.name.as_str() == *pool);
            let moved: u128 = own().map(|used| u128::from(used.disruption)).sum();
            let first = own().next().filter(|_| moved > 0)?;
            let paid: u128 = own().map(|used| u128::from(used.price.nanos())).sum();
            let saved = u128::from(saves.nanos()).saturating_mul(paid);
            let saved = saved.checked_div(price.nanos().into()).unwrap_or(0);
            let shares = saved.saturating_mul(total.disruption.into()).saturating_mul(WORTH);
            let is_worth_it = saved > 0 && shares >= moved.saturating_mul(total.price.into());
            (!is_worth_it).then(|| RefusalReason::Unbalanced {
                pool: first.pool.name.clone(),
                saved: saved.saturating_mul(WHOLE).checked_div(total.price.into()).map_or(0, hundredths),
                asked: hundredths(
                    moved
                        .saturating_mul(WHOLE)
                        .div_ceil(u128::from(total.disruption).saturating_mul(WORTH).max(1)),
                ),
            })
        });
        refused.map_or(Ok(()), Err)
    }
}

fn hundredths(share: u128) -> u64 {
    u64::try_from(share).unwrap_or(u64::MAX)
}
