//! What a claim's Node should be, and whether it is.
//!
//! Decides the action of each state, and what counts as registered and initialised. It doesn't decide when a claim
//! steps: that is [`crate::step`]'s. Source: KARPENTER.md 3.6, 4 and 6.

use std::collections::BTreeMap;

use tenon_domain::api::Node;
use tenon_domain::api::pod::Readiness;
use tenon_domain::claim::{Claim, ClaimState, LaunchedInstance};
use tenon_domain::labels;
use tenon_domain::reservation::LaunchedInto;
use tenon_domain::taint::{Taint, UNREGISTERED};
use tenon_snapshot::{Action, ActionKind};

use crate::input::{Input, provider_id};

/// Whether the agent has registered the Node: it carries the label and the taint of its boot is gone.
#[must_use]
pub fn is_registered(node: &Node) -> bool {
    node.meta.labels.get(labels::REGISTERED).is_some_and(|value| value == "true")
        && !node.taints.iter().any(|taint| taint.key == UNREGISTERED)
}

/// What the Node of a registered claim still lacks to be initialised; nothing where it lacks nothing.
#[must_use]
pub fn not_initialized(claim: &Claim, node: &Node, input: &Input) -> Option<String> {
    if node.readiness != Readiness::Ready {
        return Some(format!("Node {} isn't Ready", node.name));
    }
    let startup = startup_taints(claim, input);
    if let Some(taint) =
        node.taints.iter().find(|taint| taint.is_ephemeral() || startup.iter().any(|s| s.matches(taint)))
    {
        return Some(format!("Node {} still has the taint `{taint}`", node.name));
    }
    let missing =
        claim.requests.iter().find(|(name, asked)| !asked.is_zero() && node.allocatable.get(name).is_zero());
    missing.map(|(name, _)| format!("Node {} doesn't offer `{name}` yet", node.name))
}

/// Taints that others take away: as the Node got them, or else as the pool has them.
fn startup_taints<'a>(claim: &Claim, input: &'a Input) -> &'a [Taint] {
    match (input.actions.get(&claim.name), input.pool_of(claim)) {
        (Some(action), _) => &action.startup_taints,
        (None, Some(pool)) => &pool.template.startup_taints,
        (None, None) => &[],
    }
}

/// The action for a claim that has come to its state, where the state asks for one.
#[must_use]
pub fn action_of(claim: &Claim, input: &Input) -> Option<Action> {
    match &claim.state {
        ClaimState::Initialized { instance, .. } => {
            Some(action(claim, ActionKind::Initialize, Some(instance), input))
        }
        ClaimState::Draining { instance, deadline, .. } => {
            Some(Action { deadline: *deadline, ..action(claim, ActionKind::Drain, Some(instance), input) })
        }
        ClaimState::Terminated { instance: Some(instance), .. } => {
            Some(action(claim, ActionKind::Finalize, Some(instance), input))
        }
        ClaimState::Planned
        | ClaimState::LaunchFailed { .. }
        | ClaimState::Launched { .. }
        | ClaimState::Registered { .. }
        | ClaimState::Disrupting { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. }
        | ClaimState::Terminated { instance: None, .. } => None,
    }
}

/// What registers the Node of a launched claim, as its pool is now; nothing while the pool can't be seen, and nothing
/// where the claim already has its action.
#[must_use]
pub fn registration(claim: &Claim, input: &Input) -> Option<Action> {
    let ClaimState::Launched { instance, .. } = &claim.state else { return None };
    if input.actions.contains_key(&claim.name) {
        return None;
    }
    input.pool_of(claim)?;
    Some(action(claim, ActionKind::Register, Some(instance), input))
}

/// An action: what the claim's Node was given before, or what its pool says where it was given nothing yet.
fn action(claim: &Claim, kind: ActionKind, instance: Option<&LaunchedInstance>, input: &Input) -> Action {
    let node = claim.state.node().map(ToString::to_string);
    let provider_id = instance.map(|instance| provider_id(instance).to_string());
    let number = claim.revision;
    if let Some(before) = input.actions.get(&claim.name) {
        return Action { number, kind, provider_id, node, deadline: None, ..before.clone() };
    }
    let template = input.pool_of(claim).map(|pool| &pool.template);
    Action {
        claim: claim.name.clone(),
        number,
        kind,
        provider_id,
        node,
        labels: instance.map(|instance| node_labels(claim, instance, input)).unwrap_or_default(),
        annotations: template.map(|template| template.annotations.clone()).unwrap_or_default(),
        taints: template.map(|template| template.taints.clone()).unwrap_or_default(),
        startup_taints: template.map(|template| template.startup_taints.clone()).unwrap_or_default(),
        deadline: None,
    }
}

/// The Node's labels: those of its instance, over them the pool's requirements with one value, over them the pool's
/// own labels; those that say what the instance is can't be overruled.
fn node_labels(claim: &Claim, instance: &LaunchedInstance, input: &Input) -> BTreeMap<String, String> {
    let mut found =
        input.types.get(&instance.instance_type).map(|record| record.labels.clone()).unwrap_or_default();
    if let Some(pool) = input.pool_of(claim) {
        let fixed = pool.template.requirements.iter();
        found.extend(fixed.filter_map(|requirement| {
            requirement.single_value().map(|value| (requirement.key().to_owned(), value.to_owned()))
        }));
        found.extend(pool.template.labels.clone());
    }
    let own = [
        (labels::INSTANCE_TYPE, instance.instance_type.to_string()),
        (labels::ZONE, instance.zone.to_string()),
        (labels::REGION, input.region.to_string()),
        (labels::CAPACITY_TYPE, instance.capacity_type.as_str().to_owned()),
        (labels::NODEPOOL, claim.pool.to_string()),
        (labels::EC2NODECLASS, claim.class.to_string()),
    ];
    found.extend(own.into_iter().map(|(key, value)| (key.to_owned(), value)));
    let reserved = instance.reservation.iter().flat_map(LaunchedInto::labels);
    found.extend(reserved.map(|(key, value)| (key.to_owned(), value.to_owned())));
    if let Some(zone_id) = input.zone_id(claim, instance) {
        found.insert(labels::ZONE_ID.to_owned(), zone_id.to_string());
    }
    found
}
