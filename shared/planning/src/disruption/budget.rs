//! How many nodes of a pool may still be disrupted while a plan is made.
//!
//! Decides the allowance for a reason; a paused pool has none. Nodes that leave, and those that aren't ready, use up the budgets of every reason.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/disruption/helpers.go`.

use std::collections::BTreeMap;

use tenon_domain::api::NodePool;
use tenon_domain::api::pod::Readiness;
use tenon_domain::budget::{DisruptionReason, allowed_disruptions};
use tenon_domain::claim::ClaimPhase;
use tenon_domain::id::NodePoolName;

use super::input::{ClaimView, DisruptionInput};
use super::moving::is_going;
use super::output::{NotDisrupted, RefusalReason};

/// The number of a pool's nodes that may be disrupted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// The number that the budgets allow.
    pub allowed: u32,
    /// Nodes under disruption or not ready.
    pub going: u32,
}

impl Allowance {
    /// A pool's allowance for a reason, of its initialised nodes that aren't terminating.
    #[must_use]
    pub fn of(input: &DisruptionInput, pool: &NodePool, reason: DisruptionReason) -> Self {
        let counts = |view: &&ClaimView| {
            let phase = view.claim.phase();
            view.claim.pool == pool.name && (phase == ClaimPhase::Initialized || is_going(phase))
        };
        let unready =
            |view: &ClaimView| view.node.as_ref().is_none_or(|node| node.readiness == Readiness::NotReady);
        let nodes: Vec<&ClaimView> = input.claims.iter().filter(counts).collect();
        let going = nodes.iter().filter(|view| is_going(view.claim.phase()) || unready(view)).count();
        let total = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        Self {
            allowed: allowed_disruptions(&pool.disruption.budgets, reason, total, input.now),
            going: u32::try_from(going).unwrap_or(u32::MAX),
        }
    }

    /// How many more may be disrupted.
    #[must_use]
    pub const fn left(self) -> u32 {
        self.allowed.saturating_sub(self.going)
    }
}

/// The budgets, with what a plan has taken of them.
pub(crate) struct BudgetLedger<'a> {
    input: &'a DisruptionInput,
    taken: BTreeMap<&'a NodePoolName, u32>,
}

impl<'a> BudgetLedger<'a> {
    pub(crate) fn new(input: &'a DisruptionInput) -> Self {
        Self { input, taken: BTreeMap::new() }
    }

    /// Why no more nodes of the pool may go for the reason now.
    pub(crate) fn check(&self, pool: &NodePool, reason: DisruptionReason) -> Result<(), NotDisrupted> {
        self.check_several(pool, reason, 1)
    }

    /// Why these nodes may not all go together as underutilised.
    pub(crate) fn check_all<'n>(
        &self,
        nodes: impl Iterator<Item = (&'n NodePool, &'n ClaimView)>,
    ) -> Result<(), NotDisrupted> {
        let mut of_pool: BTreeMap<&NodePoolName, (&NodePool, u32)> = BTreeMap::new();
        for (pool, view) in nodes {
            let count = &mut of_pool.entry(&pool.name).or_insert((pool, 0)).1;
            *count = count.saturating_add(u32::from(is_new(view)));
        }
        of_pool.into_values().try_for_each(|(pool, count)| {
            self.check_several(pool, DisruptionReason::Underutilized, count.max(1))
        })
    }

    fn check_several(
        &self,
        pool: &NodePool,
        reason: DisruptionReason,
        count: u32,
    ) -> Result<(), NotDisrupted> {
        if self.input.paused.contains(&pool.name) {
            let reason = RefusalReason::Paused { pool: pool.name.clone() };
            return Err(NotDisrupted { reason, again: None });
        }
        let mut allowance = Allowance::of(self.input, pool, reason);
        let taken = self.taken.get(&pool.name).copied().unwrap_or(0);
        allowance.going = allowance.going.saturating_add(taken);
        if allowance.left() >= count {
            return Ok(());
        }
        let Allowance { allowed, going } = allowance;
        let now = self.input.now;
        let again = pool.disruption.budgets.iter().filter_map(|budget| budget.next_change(now)).min();
        let reason = RefusalReason::BudgetExhausted { pool: pool.name.clone(), allowed, going };
        Err(NotDisrupted { reason, again })
    }

    /// Counts a node that goes. One that isn't ready is counted already.
    pub(crate) fn take(&mut self, view: &'a ClaimView) {
        if is_new(view) {
            let taken = self.taken.entry(&view.claim.pool).or_default();
            *taken = taken.saturating_add(1);
        }
    }
}

/// Whether the budgets don't count the node already, as one that isn't ready.
fn is_new(view: &ClaimView) -> bool {
    view.node.as_ref().is_some_and(|node| node.readiness == Readiness::Ready)
}
