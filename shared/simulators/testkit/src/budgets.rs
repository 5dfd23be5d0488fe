//! The invariant of the pools' disruption budgets.
//!
//! Decides from the manifests how many nodes may be disrupted at once, and from the claims how many are.

use serde_json::Value;
use tenon_domain::claim::{Claim, ClaimPhase, RemovalReason};

use crate::history::{ClusterMoment, History};
use crate::invariants::Invariant;

/// The budgets of a NodePool, as its manifest has them: `1`, or `50%`. Those of the worlds have neither a schedule nor
/// reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolBudgets {
    /// The pool.
    pub pool: String,
    /// `nodes` of each.
    pub nodes: Vec<String>,
}

impl PoolBudgets {
    /// The budgets of an object, if it is a NodePool.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        if object.get("kind").and_then(Value::as_str) != Some("NodePool") {
            return None;
        }
        let budgets = object.pointer("/spec/disruption/budgets").and_then(Value::as_array);
        let nodes = budgets.into_iter().flatten().filter_map(|budget| text(budget.get("nodes"))).collect();
        Some(Self { pool: text(object.pointer("/metadata/name"))?, nodes })
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
}

/// Tenon disrupts at most as many nodes of a pool as its budgets allow.
///
/// # Errors The invariant, and the finding.
pub fn invariant_budgets_hold(
    moment: &ClusterMoment,
    pools: &[PoolBudgets],
    history: &mut History,
) -> Result<(), (Invariant, String)> {
    for budgets in pools {
        let PoolBudgets { pool, nodes: told } = budgets;
        let of_pool = || moment.claims.iter().filter(|claim| claim.pool.as_str() == pool);
        let nodes =
            of_pool().filter(|claim| claim.state.node().is_some() && !claim.phase().is_final()).count();
        let most = history.pool_sizes.entry(pool.clone()).or_default();
        *most = nodes.max(*most);
        let going = of_pool().filter(|claim| is_disrupted(claim)).count();
        let allowed = budgets.allowed(*most);
        if going > allowed {
            let text = format!(
                "{going} nodes of pool {pool} are disrupted, {allowed} of {nodes} may ({})",
                told.join(", ")
            );
            return Err((Invariant::BudgetsHold, text));
        }
    }
    Ok(())
}

fn is_disrupted(claim: &Claim) -> bool {
    let voluntary = claim.state.removal().is_none_or(|reason| {
        [RemovalReason::Drifted, RemovalReason::Empty, RemovalReason::Underutilized].contains(&reason)
    });
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
