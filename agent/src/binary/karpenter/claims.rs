//! Counters of claims, from the table.
//!
//! Decides which steps of claims are counted, and their labels. A claim's state has all steps before it, so a step
//! between two looks is counted too. Claims of the first look are the state to begin with: the leader before counted
//! them.
//!
//! Invariant: no step of a claim is counted twice, though the claims are read again.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::claim::{Claim, ClaimState, CommandRole, MinValuesState, RemovalReason};
use tenon_domain::id::CommandId;
use tenon_snapshot::object::{self, Object, text};

use super::labels::{CreatedLabels, DisruptedLabels, TerminatedLabels, ZoneLabels, snake_case};

/// The API server's default of a NodePool's `consolidationPolicy`.
const DEFAULT_POLICY: &str = "WhenEmptyOrUnderutilized";

/// A counted step of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClaimEvent {
    /// It was made.
    Created(CreatedLabels),
    /// Its Node joined.
    Joined(ZoneLabels),
    /// It begins to go, or got no instance.
    Disrupted(DisruptedLabels),
    /// It is gone.
    Terminated(TerminatedLabels),
}

/// The counted steps of the claims in the table.
#[derive(Debug, Default)]
pub(super) struct ClaimLedger {
    /// By claim; `None` before the first look.
    known: Option<BTreeMap<String, ClaimSteps>>,
}

/// Which steps a claim has behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ClaimSteps {
    joined: bool,
    leaves: bool,
    ended: bool,
}

impl ClaimSteps {
    fn of(claim: &Claim) -> Self {
        let failed = matches!(claim.state, ClaimState::LaunchFailed { .. });
        Self {
            joined: claim.state.node().is_some(),
            leaves: failed || claim.state.removal().is_some(),
            ended: claim.phase().is_final(),
        }
    }
}

impl ClaimLedger {
    /// The commands of replacements that are new.
    pub(super) fn unknown_commands(&self, claims: &BTreeMap<String, Claim>) -> BTreeSet<CommandId> {
        let Some(known) = &self.known else { return BTreeSet::new() };
        let new = claims.iter().filter(|(name, _)| !known.contains_key(*name));
        new.filter_map(|(_, claim)| match &claim.role {
            CommandRole::None => None,
            CommandRole::Replacement(command) => Some(command.clone()),
        })
        .collect()
    }

    /// The steps since the last look. A replacement whose command's reason isn't given is left for the next look.
    pub(super) fn observe(
        &mut self,
        claims: &BTreeMap<String, Claim>,
        reasons: &BTreeMap<CommandId, RemovalReason>,
        pools: &[Object],
    ) -> Vec<ClaimEvent> {
        let Some(before) = self.known.take() else {
            self.known =
                Some(claims.iter().map(|(name, claim)| (name.clone(), ClaimSteps::of(claim))).collect());
            return Vec::new();
        };
        let mut found = Vec::new();
        let mut known = BTreeMap::new();
        for (name, claim) in claims {
            let was = before.get(name).copied();
            if was.is_none() {
                let Some(reason) = created_for(claim, reasons) else { continue };
                found.push(ClaimEvent::Created(created(claim, reason)));
            }
            let (was, is) = (was.unwrap_or_default(), ClaimSteps::of(claim));
            found.extend((is.joined && !was.joined).then(|| ClaimEvent::Joined(joined(claim))));
            if is.leaves && !was.leaves {
                found.extend(disrupted(claim, pools).map(ClaimEvent::Disrupted));
            }
            found.extend((is.ended && !was.ended).then(|| ClaimEvent::Terminated(terminated(claim))));
            known.insert(name.clone(), is);
        }
        self.known = Some(known);
        found
    }
}

/// Why a claim was made, as `reason` says it; `None` while its command isn't known.
fn created_for(claim: &Claim, reasons: &BTreeMap<CommandId, RemovalReason>) -> Option<String> {
    match &claim.role {
        CommandRole::None => Some("provisioned".to_owned()),
        CommandRole::Replacement(command) => reasons.get(command).map(|reason| reason_label(*reason)),
    }
}

fn created(claim: &Claim, reason: String) -> CreatedLabels {
    let relaxed = match claim.min_values {
        MinValuesState::AsWritten => "false",
        MinValuesState::Relaxed => "true",
    };
    CreatedLabels { reason, nodepool: claim.pool.to_string(), min_values_relaxed: relaxed.to_owned() }
}

fn joined(claim: &Claim) -> ZoneLabels {
    let zone = claim.state.instance().map(|instance| instance.zone.to_string());
    ZoneLabels { nodepool: claim.pool.to_string(), zone: zone.unwrap_or_default() }
}

fn terminated(claim: &Claim) -> TerminatedLabels {
    let instance = claim.state.instance();
    TerminatedLabels {
        nodepool: claim.pool.to_string(),
        capacity_type: instance.map(|one| one.capacity_type.as_str().to_owned()).unwrap_or_default(),
        zone: instance.map(|one| one.zone.to_string()).unwrap_or_default(),
    }
}

/// The labels of a disruption. A user's deletion is none, as with the peer.
fn disrupted(claim: &Claim, pools: &[Object]) -> Option<DisruptedLabels> {
    let removal = claim.state.removal();
    if removal == Some(RemovalReason::Deleted) {
        return None;
    }
    let reason = match (removal, &claim.state) {
        (Some(reason), _) => reason_label(reason),
        (None, ClaimState::LaunchFailed { failure, .. }) => failure_label(&failure.reason),
        (None, _) => return None,
    };
    let capacity_type = claim.state.instance().map(|one| one.capacity_type.as_str().to_owned());
    Some(DisruptedLabels {
        reason,
        nodepool: claim.pool.to_string(),
        capacity_type: capacity_type.unwrap_or_default(),
        consolidation_policy: removal.map(|reason| policy_label(reason, claim, pools)).unwrap_or_default(),
        termination_mode: termination_mode(claim, removal).to_owned(),
    })
}

/// The policy under which a claim was consolidated; empty for other reasons.
fn policy_label(reason: RemovalReason, claim: &Claim, pools: &[Object]) -> String {
    match reason {
        RemovalReason::Empty | RemovalReason::Underutilized => {
            let pool = pools.iter().find(|pool| object::name(pool) == claim.pool.as_str());
            let policy = pool.and_then(|pool| text(pool, "/spec/disruption/consolidationPolicy"));
            snake_case(policy.unwrap_or(DEFAULT_POLICY))
        }
        RemovalReason::Drifted
        | RemovalReason::SpotInterrupted
        | RemovalReason::CapacityReservationInterrupted
        | RemovalReason::ScheduledChange
        | RemovalReason::InstanceStopped
        | RemovalReason::InstanceTerminated
        | RemovalReason::Deleted
        | RemovalReason::Expired
        | RemovalReason::RegistrationTimeout
        | RemovalReason::InitializationTimeout
        | RemovalReason::Unhealthy
        | RemovalReason::RebalanceRecommended => String::new(),
    }
}

/// How a claim goes: by `terminationGracePeriod`, and an unhealthy one at once.
fn termination_mode(claim: &Claim, removal: Option<RemovalReason>) -> &'static str {
    if removal == Some(RemovalReason::Unhealthy) {
        return "forceful";
    }
    match claim.terms.and_then(|terms| terms.termination_grace_period) {
        None => "graceful",
        Some(grace) if grace.is_zero() => "forceful",
        Some(_) => "eventual",
    }
}

/// A reason in the peer's words, where it has one.
pub(super) fn reason_label(reason: RemovalReason) -> String {
    if reason == RemovalReason::RebalanceRecommended {
        return "rebalance_recommendation".to_owned();
    }
    snake_case(reason.as_str())
}

/// The reason of a failed launch: `insufficient_capacity`, or EC2's code.
fn failure_label(reason: &str) -> String {
    match reason {
        "InsufficientCapacityError" => "insufficient_capacity".to_owned(),
        other => snake_case(other),
    }
}
