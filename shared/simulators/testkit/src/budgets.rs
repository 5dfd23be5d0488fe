//! The invariants of the disruption budgets: the pools', and the cluster's.
//!
//! Decides from the manifests and the cluster's form how many nodes may be disrupted at once, and from the claims how many
//! are.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tenon_domain::claim::{Claim, ClaimPhase, RemovalReason};
use tenon_region::scenario::ClusterForm;

use crate::expiry::ExpiryWaits;
use crate::history::{ClusterMoment, History};
use crate::invariants::Invariant;

/// Budgets of a NodePool or of a whole cluster, as they are written: `1`, or `50%`. Those of the worlds have neither a
/// schedule nor reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenBudgets {
    /// The pool; all of them where absent.
    pub pool: Option<String>,
    /// `nodes` of each.
    pub nodes: Vec<String>,
}

impl WrittenBudgets {
    /// The budgets of an object, if it is a NodePool.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        if object.get("kind").and_then(Value::as_str) != Some("NodePool") {
            return None;
        }
        let budgets = object.pointer("/spec/disruption/budgets").and_then(Value::as_array);
        let nodes = budgets.into_iter().flatten().filter_map(|budget| text(budget.get("nodes"))).collect();
        Some(Self { pool: Some(text(object.pointer("/metadata/name"))?), nodes })
    }

    /// The budget of a cluster's stack; without one there is no bound.
    #[must_use]
    pub fn of_cluster(form: &ClusterForm) -> Self {
        Self { pool: None, nodes: form.disruption_budget.clone().into_iter().collect() }
    }

    /// How many of so many nodes may be disrupted at once; a percentage is rounded up.
    fn allowed(&self, total: usize) -> usize {
        let allowed = |nodes: &String| match nodes.strip_suffix('%') {
            Some(share) => share.parse::<usize>().map(|share| total.saturating_mul(share).div_ceil(100)),
            None => nodes.parse(),
        };
        // A malformed budget allows nothing, so that the invariant finds a world with one.
        self.nodes.iter().map(|nodes| allowed(nodes).unwrap_or(0)).min().unwrap_or(usize::MAX)
    }

    /// What is wrong if more nodes are disrupted than they allow.
    fn exceeded(&self, (moment, waits): Expiring<'_>, sizes: &mut PoolSizes) -> Option<String> {
        let counts = |claim: &&Arc<Claim>| {
            self.pool.as_ref().is_none_or(|pool| claim.pool.as_str() == pool) && !claim.phase().is_final()
        };
        let of_pool = || moment.claims.iter().filter(counts);
        let nodes = of_pool().filter(|claim| claim.state.node().is_some()).count();
        let most = sizes.entry(self.pool.clone()).or_default();
        *most = nodes.max(*most);
        let going = of_pool().filter(|claim| is_disrupted(claim, waits)).count();
        let allowed = self.allowed(*most);
        let of = self.pool.as_ref().map_or_else(|| "all pools".to_owned(), |pool| format!("pool {pool}"));
        let told = self.nodes.join(", ");
        (going > allowed)
            .then(|| format!("{going} nodes of {of} are disrupted, {allowed} of {nodes} may ({told})"))
    }
}

/// A cluster, and how long its expired nodes wait.
pub(crate) type Expiring<'a> = (&'a ClusterMoment, &'a ExpiryWaits);

/// The most nodes of each pool, and of all, so far: the base of percentages.
pub type PoolSizes = BTreeMap<Option<String>, usize>;

/// Tenon disrupts at most as many nodes of a pool as its budgets allow.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_budgets_hold(
    moment: Expiring<'_>,
    pools: &[WrittenBudgets],
    history: &mut History,
) -> Result<(), (Invariant, String)> {
    let found = pools.iter().find_map(|budgets| budgets.exceeded(moment, &mut history.pool_sizes));
    found.map_or(Ok(()), |text| Err((Invariant::BudgetsHold, text)))
}

/// Tenon disrupts at most as many nodes of all pools together as the cluster's budget allows.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_cluster_budget_holds(
    moment: Expiring<'_>,
    budget: &WrittenBudgets,
    history: &mut History,
) -> Result<(), (Invariant, String)> {
    let found = budget.exceeded(moment, &mut history.pool_sizes);
    found.map_or(Ok(()), |text| Err((Invariant::ClusterBudgetHolds, text)))
}

/// Whether budgets count the claim.
fn is_disrupted(claim: &Claim, waits: &ExpiryWaits) -> bool {
    let voluntary = claim.state.removal().is_none_or(is_voluntary) || waits.is_within_budgets(claim);
    match claim.phase() {
        ClaimPhase::Disrupting => true,
        ClaimPhase::Draining | ClaimPhase::Drained => voluntary,
        ClaimPhase::Planned
        | ClaimPhase::LaunchFailed
        | ClaimPhase::Launched
        | ClaimPhase::Registered
        | ClaimPhase::Initialized
        // Budgets don't count terminating instances: kubernetes-sigs/karpenter `pkg/controllers/disruption/helpers.go`.
        | ClaimPhase::Terminating
        | ClaimPhase::Terminated => false,
    }
}

/// Whether nothing but our own will takes a node away; for expiry that depends on the time.
pub(crate) const fn is_voluntary(reason: RemovalReason) -> bool {
    match reason {
        RemovalReason::Drifted | RemovalReason::Empty | RemovalReason::Underutilized => true,
        RemovalReason::SpotInterrupted
        | RemovalReason::CapacityReservationInterrupted
        | RemovalReason::InstanceStopped
        | RemovalReason::InstanceTerminated
        | RemovalReason::Unhealthy
        | RemovalReason::ScheduledChange
        | RemovalReason::RebalanceRecommended
        | RemovalReason::Deleted
        | RemovalReason::Expired
        | RemovalReason::RegistrationTimeout
        | RemovalReason::InitializationTimeout => false,
    }
}
