//! How many nodes of a pool may still be disrupted while a plan is made.
//!
//! Decides the allowance for a reason; a paused pool has none, and the cluster may have one for all pools together. Nodes that leave, and those that aren't ready, use up the
//! budgets of every reason.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/disruption/helpers.go`.

use std::collections::BTreeMap;
use std::fmt;

use tenon_domain::api::NodePool;
use tenon_domain::api::pod::Readiness;
use tenon_domain::budget::{DisruptionReason, UNBOUNDED, allowed_disruptions, closed_budget};
use tenon_domain::id::NodePoolName;
use tenon_domain::report::counted;

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
    pub fn of(input: &DisruptionInput, pool: &NodePool, reason: Option<DisruptionReason>) -> Self {
        let budgets = &pool.disruption.budgets;
        Self::count(input, Some(&pool.name), |total| allowed_disruptions(budgets, reason, total, input.now))
    }

    /// The allowance of all pools together, if the cluster has one.
    #[must_use]
    pub fn of_cluster(input: &DisruptionInput) -> Option<Self> {
        let budget = input.cluster_budget?;
        Some(Self::count(input, None, |total| budget.of(total)))
    }

    /// An allowance of the nodes of a pool, or of all.
    fn count(input: &DisruptionInput, pool: Option<&NodePoolName>, allowed: impl FnOnce(u32) -> u32) -> Self {
        let counts = |view: &&ClaimView| {
            let of_pool = pool.is_none_or(|name| view.claim.pool == *name);
            of_pool && view.claim.phase().counts_in_budgets()
        };
        let unready =
            |view: &ClaimView| view.node.as_ref().is_none_or(|node| node.readiness == Readiness::NotReady);
        let nodes: Vec<&ClaimView> = input.claims.iter().filter(counts).collect();
        let going = nodes.iter().filter(|view| is_going(view.claim.phase()) || unready(view)).count();
        let total = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        Self { allowed: allowed(total), going: u32::try_from(going).unwrap_or(u32::MAX) }
    }

    /// How many more may be disrupted.
    #[must_use]
    pub const fn left(self) -> u32 {
        self.allowed.saturating_sub(self.going)
    }
}

impl fmt::Display for Allowance {
    /// What a record says of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.allowed {
            UNBOUNDED => f.write_str("no budget bounds it"),
            allowed => {
                let nodes = counted(allowed, "node", "nodes");
                write!(
                    f,
                    "allows {nodes} at a time; before it, {} were being disrupted or not ready",
                    self.going
                )
            }
        }
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

    /// What allows a node of the pool to go for the reason now, or why none may; without a reason, for what budgets can't
    /// name.
    pub(crate) fn check(
        &self,
        pool: &NodePool,
        reason: Option<DisruptionReason>,
    ) -> Result<Allowance, NotDisrupted> {
        let allowance = self.check_several(pool, reason, 1)?;
        self.check_cluster(1)?;
        Ok(allowance)
    }

    /// What allows these nodes to go together as underutilised, or why they may not.
    pub(crate) fn check_all<'n>(
        &self,
        nodes: impl Iterator<Item = (&'n NodePool, &'n ClaimView)>,
    ) -> Result<Allowance, NotDisrupted> {
        let mut of_pool: BTreeMap<&NodePoolName, (&NodePool, u32)> = BTreeMap::new();
        for (pool, view) in nodes {
            let count = &mut of_pool.entry(&pool.name).or_insert((pool, 0)).1;
            *count = count.saturating_add(u32::from(is_new(view)));
        }
        let all = of_pool.values().map(|(_, count)| *count).fold(0, u32::saturating_add);
        let reason = Some(DisruptionReason::Underutilized);
        let mut tightest = Allowance { allowed: UNBOUNDED, going: 0 };
        for (pool, count) in of_pool.into_values() {
            let allowance = self.check_several(pool, reason, count.max(1))?;
            if allowance.left() < tightest.left() {
                tightest = allowance;
            }
        }
        self.check_cluster(all.max(1))?;
        Ok(tightest)
    }

    fn check_several(
        &self,
        pool: &NodePool,
        reason: Option<DisruptionReason>,
        count: u32,
    ) -> Result<Allowance, NotDisrupted> {
        if let Some(by) = self.input.paused.get(&pool.name) {
            let reason = RefusalReason::Paused { pool: pool.name.clone(), by: *by };
            return Err(NotDisrupted { reason, again: None });
        }
        let mut allowance = Allowance::of(self.input, pool, reason);
        let taken = self.taken.get(&pool.name).copied().unwrap_or(0);
        allowance.going = allowance.going.saturating_add(taken);
        if allowance.left() >= count {
            return Ok(allowance);
        }
        let Allowance { allowed, going } = allowance;
        let now = self.input.now;
        let again = pool.disruption.budgets.iter().filter_map(|budget| budget.next_change(now)).min();
        let closed = closed_budget(&pool.disruption.budgets, reason, now).cloned().map(Box::new);
        let pool = pool.name.clone();
        let reason = RefusalReason::BudgetExhausted { pool, allowed, going, of: reason, closed };
        Err(NotDisrupted { reason, again })
    }

    /// Why no more nodes of the cluster may go.
    fn check_cluster(&self, count: u32) -> Result<(), NotDisrupted> {
        let Some(mut allowance) = Allowance::of_cluster(self.input) else { return Ok(()) };
        let taken = self.taken.values().copied().fold(0, u32::saturating_add);
        allowance.going = allowance.going.saturating_add(taken);
        if allowance.left() >= count {
            return Ok(());
        }
        let Allowance { allowed, going } = allowance;
        Err(NotDisrupted { reason: RefusalReason::ClusterBudgetExhausted { allowed, going }, again: None })
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
