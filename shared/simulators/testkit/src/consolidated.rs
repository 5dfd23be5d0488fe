//! The invariants of consolidation.
//!
//! Decides from EC2's own prices and from the claims what a command saves, and from the commands whether a claim is held
//! for nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{Claim, ClaimState, RemovalReason};
use tenon_domain::command::Command;
use tenon_domain::id::{ClaimName, ClusterName, CommandId};
use tenon_domain::money::UsdPerHour;
use tenon_ec2::port::TargetCapacityType;
use tenon_region::engine::SimulatedRegion;

use crate::history::ClusterMoment;
use crate::invariants::Invariant;

/// Commands whose replacements have been compared with their candidates.
#[derive(Debug, Default)]
pub(crate) struct Consolidations(BTreeSet<CommandId>);

/// The replacements of a consolidation cost less than what they replace, once EC2 gave them.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_consolidation_saves(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    moment: &ClusterMoment,
    seen: &mut Consolidations,
) -> Result<(), (Invariant, String)> {
    for command in region.commands(cluster) {
        if command.reason != RemovalReason::Underutilized || seen.0.contains(&command.id) {
            continue;
        }
        let Some((before, after)) = prices(region, moment, &command) else { continue };
        if after >= before {
            let text = format!("{} replaces nodes for {before} by nodes for {after}", command.id);
            return Err((Invariant::ConsolidationSaves, text));
        }
        seen.0.insert(command.id.clone());
    }
    Ok(())
}

/// What candidates and replacements cost now; `None` while one has no instance or no price.
fn prices(
    region: &SimulatedRegion,
    moment: &ClusterMoment,
    command: &Command,
) -> Option<(UsdPerHour, UsdPerHour)> {
    let price = |name: &ClaimName| {
        let claim = moment.claims.iter().find(|claim| claim.name == *name)?;
        let instance = claim.state.instance()?;
        let capacity_type = match instance.capacity_type {
            CapacityType::Spot => TargetCapacityType::Spot,
            CapacityType::OnDemand => TargetCapacityType::OnDemand,
            CapacityType::Reserved => return None,
        };
        region.twin().price(capacity_type, &instance.instance_type, &instance.zone)
    };
    let sum = |names: &[ClaimName]| names.iter().map(price).sum::<Option<UsdPerHour>>();
    Some((sum(&command.candidates)?, sum(&command.replacements)?))
}

/// A claim that is being disrupted belongs to a command that isn't done.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_disrupting_is_held(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    claims: &[Arc<Claim>],
) -> Result<(), (Invariant, String)> {
    let commands = region.commands(cluster);
    for claim in claims {
        let ClaimState::Disrupting { command, .. } = &claim.state else { continue };
        if !commands.iter().any(|one| one.id == *command && one.is_active()) {
            let text = format!("claim {} is disrupted by {command}, which is done", claim.name);
            return Err((Invariant::DisruptingIsHeld, text));
        }
    }
    Ok(())
}
