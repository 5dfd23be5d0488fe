//! The invariants of disruption commands: what a consolidation saves, and how long a command holds its nodes.
//!
//! Decides from EC2's own prices and from the claims what a command saves, from the commands whether a claim is held for
//! nothing, and from the claims and the Nodes' taints whether a Node is closed for longer than its command may wait. It
//! counts the time from the step at which it saw the Node first, whatever the command's item says. It doesn't judge a
//! command all replacements of which are ready: it drains.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, RemovalReason};
use tenon_domain::command::Command;
use tenon_domain::id::{ClaimName, ClusterName, CommandId};
use tenon_domain::money::UsdPerHour;
use tenon_ec2::port::TargetCapacityType;
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::Kind;
use tenon_snapshot::object::{deleted_at, list, name, text};
use tenon_table::Key;
use tenon_table::items::keys;

use crate::history::ClusterMoment;
use crate::invariants::{Found, Invariant};
use crate::pace::HistoryPace;

/// For how long a command plans replacements: docs/budgets.md, "Without a replacement".
const REPLACES_FOR: SignedDuration = SignedDuration::from_mins(10);
/// From the age of a report at which nothing is disrupted: ARCHITECTURE.md, "Evidence".
const REPORT_STALE_AFTER: SignedDuration = SignedDuration::from_secs(90);
/// The taint of a Node that is being disrupted.
const CLOSED: &str = "karpenter.sh/disrupted";

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

/// Commands that hold Nodes, and Nodes that no command holds and that are closed.
#[derive(Debug, Default)]
pub(crate) struct HeldNodes {
    commands: BTreeMap<CommandId, HeldSince>,
    /// Since when they are seen like that, by claim.
    given_back: BTreeMap<ClaimName, Timestamp>,
}

/// The times of a command that holds a Node.
#[derive(Debug, Clone, Copy)]
struct HeldSince {
    /// When it was first seen.
    begun: Timestamp,
    /// When something last excused it.
    excused_at: Timestamp,
}

impl HeldNodes {
    /// Samples the claims, the commands and the Nodes.
    fn look(&mut self, region: &SimulatedRegion, cluster: &ClusterName, moment: &ClusterMoment) {
        let held: BTreeSet<&CommandId> = moment.claims.iter().filter_map(|claim| held_by(claim)).collect();
        self.commands.retain(|id, _| held.contains(id));
        for id in held {
            let new = HeldSince { begun: moment.at, excused_at: moment.at };
            let known = self.commands.entry(id.clone()).or_insert(new);
            let command = moment.commands.iter().find(|command| command.id == *id);
            if command.is_none_or(|command| is_replaced(command, *known, moment)) {
                known.excused_at = moment.at;
            }
        }
        let closed = closed_and_kept(region, cluster, moment);
        self.given_back.retain(|claim, _| closed.contains(claim));
        for claim in closed {
            self.given_back.entry(claim).or_insert(moment.at);
        }
        if decides_nothing(region, cluster) {
            self.commands.values_mut().for_each(|known| known.excused_at = moment.at);
            self.given_back.values_mut().for_each(|since| *since = moment.at);
        }
    }
}

/// A Node is closed for a command only while its replacements start: one that gets none gives its Nodes back after ten
/// minutes, a consolidation at once, and the agent opens a Node that is given back. While the cluster is halted or its
/// agent silent nothing is decided.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_unreplaced_given_back(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    (moment, pace): (&ClusterMoment, HistoryPace),
    seen: &mut HeldNodes,
) -> Found {
    seen.look(region, cluster, moment);
    let late = |since: Timestamp| moment.at.duration_since(since) > pace.repaired_within();
    for command in &moment.commands {
        let Some(known) = seen.commands.get(&command.id) else { continue };
        if late(ends_at(command, *known).max(known.excused_at)) {
            let HeldSince { begun, excused_at } = known;
            let text = format!(
                "{} ({:?}) holds {:?} since {begun}, and none of its replacements {:?} starts since {excused_at}",
                command.id, command.reason, command.candidates, command.replacements
            );
            return Err((Invariant::UnreplacedGivenBack, text));
        }
    }
    match seen.given_back.iter().find(|(_, since)| late(**since)) {
        Some((claim, since)) => {
            let text = format!("the Node of claim {claim} is closed since {since}, and no command holds it");
            Err((Invariant::UnreplacedGivenBack, text))
        }
        None => Ok(()),
    }
}

/// The command that holds a claim.
pub(crate) const fn held_by(claim: &Claim) -> Option<&CommandId> {
    match &claim.state {
        ClaimState::Disrupting { command, .. } => Some(command),
        ClaimState::Planned
        | ClaimState::LaunchFailed { .. }
        | ClaimState::Launched { .. }
        | ClaimState::Registered { .. }
        | ClaimState::Initialized { .. }
        | ClaimState::Draining { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. }
        | ClaimState::Terminated { .. } => None,
    }
}

/// When a command plans no replacement any longer.
fn ends_at(command: &Command, known: HeldSince) -> Timestamp {
    // The first failure ends a consolidation.
    let lasts =
        if command.reason == RemovalReason::Underutilized { SignedDuration::ZERO } else { REPLACES_FOR };
    known.begun.saturating_add(lasts).unwrap_or(Timestamp::MAX)
}

/// Whether a command's replacements are ready, or one starts that was planned in time.
fn is_replaced(command: &Command, known: HeldSince, moment: &ClusterMoment) -> bool {
    let ends_at = ends_at(command, known);
    let replacement = |name: &ClaimName| moment.claims.iter().find(|claim| claim.name == *name);
    let replacements = || command.replacements.iter().map(replacement);
    let is_ready =
        |claim: Option<&Arc<Claim>>| claim.is_some_and(|claim| claim.phase() == ClaimPhase::Initialized);
    let starts = |claim: &Arc<Claim>| {
        use ClaimPhase::{Launched, Planned, Registered};
        matches!(claim.phase(), Planned | Launched | Registered) && claim.created_at <= ends_at
    };
    replacements().all(is_ready) || replacements().flatten().any(starts)
}

/// The claims whose Node is closed for a disruption although no command holds them and nobody deletes them.
pub(crate) fn closed_and_kept(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    moment: &ClusterMoment,
) -> BTreeSet<ClaimName> {
    let Some(site) = region.site(cluster) else { return BTreeSet::new() };
    let nodes = site.cluster().objects(Kind::Node);
    let is_closed = |node: &serde_json::Value| {
        let mut keys = list(node, "/spec/taints").iter().filter_map(|taint| text(taint, "/key"));
        deleted_at(node).is_none() && keys.any(|key| key == CLOSED)
    };
    let closed: BTreeSet<&str> = nodes.iter().filter(|node| is_closed(node)).map(|node| name(node)).collect();
    let shown = site.cluster().objects(Kind::NodeClaim);
    let faces: BTreeSet<&str> =
        shown.iter().filter(|face| deleted_at(face).is_none()).map(|face| name(face)).collect();
    let kept = moment.claims.iter().filter(|claim| {
        claim.phase() == ClaimPhase::Initialized
            && claim.state.node().is_some_and(|node| closed.contains(node.as_str()))
            && faces.contains(claim.name.as_str())
    });
    kept.map(|claim| claim.name.clone()).collect()
}

/// Whether no voluntary disruption is decided: the cluster is halted, or its agent hasn't reported lately.
pub(crate) fn decides_nothing(region: &SimulatedRegion, cluster: &ClusterName) -> bool {
    let time = |key: &Key, name: &str| -> Option<Timestamp> {
        region.table().peek(key)?.get(name)?.as_text()?.parse().ok()
    };
    let spoken = [
        time(&tenon_snapshot::snapshot::manifest_key(cluster), "taken_at"),
        time(&tenon_snapshot::snapshot::heartbeat_key(cluster), "seen_at"),
    ];
    let fresh = |at: Timestamp| region.now().duration_since(at) < REPORT_STALE_AFTER;
    let speaks = spoken.into_iter().flatten().max().is_some_and(fresh);
    !speaks || region.table().peek(&keys::halt(cluster)).is_some()
}
