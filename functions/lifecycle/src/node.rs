//! The target state of a claim's Node, and whether the Node has reached it.
//!
//! Decides a Node's first labels, annotations and taints, and when it counts as registered and initialised.
//! [`crate::step`] decides when a claim steps. Source: kubernetes-sigs/karpenter
//! `pkg/controllers/nodeclaim/lifecycle/registration.go`, `initialization.go`.

use std::collections::BTreeMap;

use tenon_domain::api::Node;
use tenon_domain::api::pod::Readiness;
use tenon_domain::catalog::node_labels::labels_of_family;
use tenon_domain::claim::{Claim, ClaimState, LaunchedInstance, MinValuesState};
use tenon_domain::class_hash::{ClassHash, PoolHash};
use tenon_domain::labels;
use tenon_domain::placement::LaunchPlacement;
use tenon_domain::reservation::LaunchedInto;
use tenon_domain::taint::{Taint, UNREGISTERED};
use tenon_snapshot::NodeAction;
use tenon_state::action::{Registration, asked};

use crate::input::LifecycleInput;

/// Whether the agent has registered the Node: the label is there, the boot taint is removed.
#[must_use]
pub fn is_registered(node: &Node) -> bool {
    node.meta.labels.get(labels::REGISTERED).is_some_and(|value| value == "true")
        && !node.taints.iter().any(|taint| taint.key == UNREGISTERED)
}

/// What the Node of a registered claim lacks for initialisation; `None` if it lacks nothing.
#[must_use]
pub fn not_initialized(claim: &Claim, node: &Node, input: &LifecycleInput) -> Option<String> {
    if node.readiness != Readiness::Ready {
        return Some(format!("Node `{}` isn't Ready", node.name));
    }
    let startup = startup_taints(claim, input);
    if let Some(taint) =
        node.taints.iter().find(|taint| taint.is_ephemeral() || startup.iter().any(|s| s.matches(taint)))
    {
        return Some(format!("Node `{}` still has the taint `{taint}`", node.name));
    }
    let missing =
        claim.requests.iter().find(|(name, asked)| !asked.is_zero() && node.allocatable.get(name).is_zero());
    missing.map(|(name, _)| format!("Node `{}` doesn't register `{name}` yet", node.name))
}

/// Taints that others remove: the Node's own, or else its pool's.
fn startup_taints<'a>(claim: &Claim, input: &'a LifecycleInput) -> &'a [Taint] {
    match (input.actions.get(&claim.name), input.pool_of(claim)) {
        (Some(action), _) => &action.startup_taints,
        (None, Some(pool)) => &pool.template.startup_taints,
        (None, None) => &[],
    }
}

/// The action that registers the Node of a launched claim, from its pool's current template; `None` if the pool is
/// unknown, or the claim has its action already.
#[must_use]
pub fn registration(claim: &Claim, input: &LifecycleInput) -> Option<NodeAction> {
    if !matches!(claim.state, ClaimState::Launched { .. }) || input.actions.contains_key(&claim.name) {
        return None;
    }
    input.pool_of(claim)?;
    if claim.state.instance().is_some_and(|instance| input.awaits_partition(claim, instance)) {
        return None;
    }
    action_of(claim, input)
}

/// The action for a claim's new state, if the state has one.
#[must_use]
pub fn action_of(claim: &Claim, input: &LifecycleInput) -> Option<NodeAction> {
    asked(claim, input.actions.get(&claim.name), |instance| first(claim, instance, input))
}

/// A Node's first labels, annotations and taints: its own labels, its pool's template, and the hash of its class.
fn first(claim: &Claim, instance: &LaunchedInstance, input: &LifecycleInput) -> Registration {
    let labels = node_labels(claim, instance, input);
    let mut registration = match input.pool_of(claim).map(|pool| &pool.template) {
        Some(template) => Registration {
            labels,
            annotations: template.annotations.clone(),
            taints: template.taints.clone(),
            startup_taints: template.startup_taints.clone(),
        },
        None => Registration { labels, ..Registration::default() },
    };
    if claim.min_values == MinValuesState::Relaxed {
        registration.annotations.insert(labels::MIN_VALUES_RELAXED.to_owned(), "true".to_owned());
    }
    let hashes = claim.class_hash.into_iter().flat_map(ClassHash::annotations);
    let hashes = hashes.chain(claim.pool_hash.into_iter().flat_map(PoolHash::annotations));
    registration.annotations.extend(hashes.map(|(key, value)| (key.to_owned(), value)));
    registration
}

/// The Node's labels: those of its instance, overridden by the pool's requirements with one value, overridden by the
/// pool's labels, overridden by the claim's. Labels with facts about the instance can't be overridden.
fn node_labels(
    claim: &Claim,
    instance: &LaunchedInstance,
    input: &LifecycleInput,
) -> BTreeMap<String, String> {
    let mut found =
        input.types.get(&instance.instance_type).map(|record| record.labels.clone()).unwrap_or_default();
    // The record's labels are those of the default family.
    let family = input.class_of(claim).map(|class| labels_of_family(class.settings.ami_family));
    let by_family = family.into_iter().flatten();
    found.extend(by_family.map(|(key, value)| (key.to_owned(), value.to_owned())));
    if let Some(pool) = input.pool_of(claim) {
        let fixed = pool.template.requirements.iter();
        found.extend(fixed.filter_map(|requirement| {
            requirement.single_value().map(|value| (requirement.key().to_owned(), value.to_owned()))
        }));
        found.extend(pool.template.labels.clone());
    }
    // Those of its launch, as with the peer: an edited pool has other nodes, and this one drifts.
    found.extend(claim.labels.clone());
    let own = [
        (labels::INSTANCE_TYPE, instance.instance_type.to_string()),
        (labels::ZONE, instance.zone.to_string()),
        (labels::REGION, input.region.to_string()),
        (labels::CAPACITY_TYPE, instance.capacity_type.as_str().to_owned()),
        (labels::INSTANCE_TENANCY, claim.tenancy.as_str().to_owned()),
        (labels::NODEPOOL, claim.pool.to_string()),
        (labels::EC2NODECLASS, claim.class.to_string()),
    ];
    found.extend(own.into_iter().map(|(key, value)| (key.to_owned(), value)));
    let reserved = instance.reservation.iter().flat_map(LaunchedInto::labels);
    found.extend(reserved.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let placed = instance.placement.iter().flat_map(|place| {
        let partition = place.partition.or_else(|| input.partition_of(instance));
        LaunchPlacement { group: place.group.clone(), partition }.labels()
    });
    found.extend(placed.map(|(key, value)| (key.to_owned(), value)));
    if let Some(zone_id) = input.zone_id(claim, instance) {
        found.insert(labels::ZONE_ID.to_owned(), zone_id.to_string());
    }
    found
}
