//! The agent's action for a claim's Node.
//!
//! Decides the kind of action for each state of a claim, and which labels, annotations and taints stay. It doesn't
//! decide the first ones: they follow from the NodePool at registration.
//!
//! Invariant: an action has the labels, annotations and taints of the action before it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenon_domain::claim::{Claim, ClaimState, LaunchedInstance};
use tenon_domain::id::ProviderId;
use tenon_domain::taint::Taint;
use tenon_snapshot::{ActionKind, NodeAction, ReplacementOrder};

/// The labels, annotations and taints of a Node at registration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registration {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Taints that others take away.
    pub startup_taints: Vec<Taint>,
}

/// The action for the claim's state, if the state has one: with the values of the action `before`, or with `first` if
/// there is none.
#[must_use]
pub fn asked(
    claim: &Claim,
    before: Option<&NodeAction>,
    first: impl FnOnce(&LaunchedInstance) -> Registration,
) -> Option<NodeAction> {
    let (kind, deadline) = kind(&claim.state)?;
    let replacement = match claim.state.holds_pods_until() {
        Some(_) => ReplacementOrder::First,
        None => ReplacementOrder::Anytime,
    };
    let instance = claim.state.instance()?;
    let given = match before {
        Some(NodeAction { labels, annotations, taints, startup_taints, .. }) => Registration {
            labels: labels.clone(),
            annotations: annotations.clone(),
            taints: taints.clone(),
            startup_taints: startup_taints.clone(),
        },
        None => first(instance),
    };
    let Registration { labels, annotations, taints, startup_taints } = given;
    Some(NodeAction {
        claim: claim.name.clone(),
        number: claim.revision,
        kind,
        provider_id: Some(provider_id(instance).to_string()),
        node: claim.state.node().map(ToString::to_string),
        labels,
        annotations,
        taints,
        startup_taints,
        deadline,
        replacement,
    })
}

/// The `spec.providerID` of an instance's Node.
#[must_use]
pub fn provider_id(instance: &LaunchedInstance) -> ProviderId {
    ProviderId { zone: instance.zone.clone(), instance: instance.id.clone() }
}

/// The kind of a state's action, and when it has to be over.
fn kind(state: &ClaimState) -> Option<(ActionKind, Option<Timestamp>)> {
    match state {
        ClaimState::Launched { .. } => Some((ActionKind::Register, None)),
        ClaimState::Initialized { .. } => Some((ActionKind::Initialize, None)),
        ClaimState::Disrupting { .. } => Some((ActionKind::Disrupt, None)),
        ClaimState::Draining { deadline, .. } => Some((ActionKind::Drain, *deadline)),
        ClaimState::Terminated { .. } => Some((ActionKind::Finalize, None)),
        ClaimState::Planned
        | ClaimState::LaunchFailed { .. }
        | ClaimState::Registered { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. } => None,
    }
}
