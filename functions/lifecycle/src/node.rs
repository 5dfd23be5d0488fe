//! What a claim's Node should be, and whether it is.
//!
//! Decides what a Node is given first, and what counts as registered and initialised. It doesn't decide when a claim
//! steps: that is [`crate::step`]'s.
//! Source: kubernetes-sigs/karpenter `pkg/controllers/nodeclaim/lifecycle/registration.go`, `initialization.go`.

use std::collections::BTreeMap;

use tenon_domain::api::Node;
use tenon_domain::api::pod::Readiness;
use tenon_domain::claim::{Claim, ClaimState, LaunchedInstance};
use tenon_domain::labels;
use tenon_domain::reservation::LaunchedInto;
use tenon_domain::taint::{Taint, UNREGISTERED};
use tenon_snapshot::Action;
use tenon_state::action::{Registration, asked};

use crate::input::Input;

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

/// What registers the Node of a launched claim, as its pool is now; nothing while the pool can't be seen, and nothing
/// where the claim already has its action.
#[must_use]
pub fn registration(claim: &Claim, input: &Input) -> Option<Action> {
    if !matches!(claim.state, ClaimState::Launched { .. }) || input.actions.contains_key(&claim.name) {
        return None;
    }
    input.pool_of(claim)?;
    action_of(claim, input)
}

/// The action for a claim that has come to its state, where the state asks for one.
#[must_use]
pub fn action_of(claim: &Claim, input: &Input) -> Option<Action> {
    asked(claim, input.actions.get(&claim.name), |instance| first(claim, instance, input))
}

/// What a Node is given that was given nothing yet: its labels, and what its pool says.
fn first(claim: &Claim, instance: &LaunchedInstance, input: &Input) -> Registration {
    let labels = node_labels(claim, instance, input);
    match input.pool_of(claim).map(|pool| &pool.template) {
        Some(template) => Registration {
            labels,
            annotations: template.annotations.clone(),
            taints: template.taints.clone(),
            startup_taints: template.startup_taints.clone(),
        },
        None => Registration { labels, ..Registration::default() },
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
