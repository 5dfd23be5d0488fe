//! Offerings that EC2 has just warned about.
//!
//! Decides which of them a replacement leaves out: a node that goes for a rebalance recommendation is replaced by another
//! spot offering of its pool, if there is one, because EC2 may soon take back the same one again. It marks nothing: EC2 has
//! refused nothing, so other plans use these offerings.
//!
//! Invariant: a claim keeps a way to be had, and its pool's `minValues`.

use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{AnnouncementKind, LaunchedInstance, RemovalReason};
use tenon_domain::registry::MinValuesPolicy;

use super::input::DisruptionInput;
use crate::provision::{AskReason, PlannedClaim, ProvisionPlan, UsableOffering};

/// The plan of replacements for nodes that go for this reason.
pub(crate) fn avoid(input: &DisruptionInput, why: RemovalReason, plan: ProvisionPlan) -> ProvisionPlan {
    if why != RemovalReason::RebalanceRecommended {
        return plan;
    }
    let warned: Vec<&LaunchedInstance> = input
        .claims
        .iter()
        .filter_map(|view| {
            let announced = view.claim.announced?;
            let is_warned = announced.kind == AnnouncementKind::RebalanceRecommendation;
            view.claim.state.instance().filter(|_| is_warned)
        })
        .collect();
    let ProvisionPlan { claims, placements, wake_at } = plan;
    let claims = claims.into_iter().map(|claim| others(input, &claim, &warned).unwrap_or(claim)).collect();
    ProvisionPlan { claims, placements, wake_at }
}

/// The claim without these instances' offerings; `None` if no other spot offering is left.
fn others(
    input: &DisruptionInput,
    claim: &PlannedClaim,
    warned: &[&LaunchedInstance],
) -> Option<PlannedClaim> {
    let is_warned = |one: &UsableOffering| {
        warned.iter().any(|instance| {
            (&one.instance_type, &one.zone, one.capacity_type)
                == (&instance.instance_type, &instance.zone, instance.capacity_type)
        })
    };
    let is_other = |one: &UsableOffering| {
        one.capacity_type == CapacityType::Spot && one.asked == AskReason::Available && !is_warned(one)
    };
    // On demand, consolidation would move the pods back to what EC2 warned about.
    if !claim.offerings.iter().any(is_other) {
        return None;
    }
    let others = claim.restricted(|one| !is_warned(one))?;
    match input.world.policies.min_values {
        MinValuesPolicy::Strict => {
            let pool = input.world.pools.iter().find(|pool| pool.pool.name == claim.pool)?;
            others.has_min_values(pool).then_some(others)
        }
        MinValuesPolicy::BestEffort => Some(others),
    }
}
