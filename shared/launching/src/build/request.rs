//! The CreateFleet request of a launch, with the templates that it names.
//!
//! Decides the request's tags, templates and target, and the labels that its nodes register with. It doesn't choose
//! the overrides: the fleet has them.
//!
//! Invariants: the same claim, fleet and launch give the same request; no request names a template that is being
//! deleted.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::MinValuesState;
use tenon_domain::id::{ClientToken, ImageId, LaunchId};
use tenon_domain::labels;
use tenon_domain::placement::LaunchPlacement;
use tenon_domain::reservation::LaunchedInto;
use tenon_domain::tags;
use tenon_domain::taint::merge_taints;
use tenon_ec2::port::{
    CreateFleetRequest, CreateLaunchTemplate, FleetLaunchTemplate, FleetTags, OnDemandAllocation,
    SpotAllocation, TargetCapacityType,
};
use tenon_planning::provision::PlannedClaim;

use super::{BuildError, LaunchInput};
use crate::fleet::Fleet;
use crate::template::{LaunchSite, shared_tags, template};
use crate::user_data::NodeSetup;

/// The input of a launch's request.
#[derive(Clone, Copy)]
pub(super) struct RequestParts<'a> {
    /// One of its claims, which are equal.
    pub(super) claim: &'a PlannedClaim,
    /// How many claims it has.
    pub(super) count: usize,
    pub(super) fleet: &'a Fleet,
    pub(super) launch: &'a LaunchId,
    pub(super) token: &'a ClientToken,
}

pub(super) fn request(
    input: &LaunchInput<'_>,
    parts: RequestParts<'_>,
) -> Result<(CreateFleetRequest, Vec<(ImageId, CreateLaunchTemplate)>), BuildError> {
    let RequestParts { claim, count, fleet, launch, token } = parts;
    let ready = input.classes.get(&claim.class).ok_or_else(|| BuildError::Class(claim.class.clone()))?;
    let labels = node_labels(claim, fleet);
    let taints = merge_taints(&claim.taints, &claim.startup_taints);
    let setup = NodeSetup {
        registry: input.registry,
        class: &ready.class,
        labels: &labels,
        taints: &taints,
        max_pods: None,
    };
    let mut templates = Vec::new();
    let mut launch_templates = Vec::new();
    for (key, overrides) in &fleet.overrides {
        let setup = NodeSetup { max_pods: key.max_pods, ..setup };
        let template = template(&setup, &ready.status, &key.image, LaunchSite::of(fleet, key))?;
        let template = CreateLaunchTemplate { name: free_name(template.name, input.leaving), ..template };
        launch_templates.push(FleetLaunchTemplate {
            name: template.name.clone(),
            version: "$Latest".to_owned(),
            overrides: overrides.clone(),
        });
        templates.push((key.image.clone(), template));
    }
    let mut tagged = shared_tags(&setup);
    tagged.insert(labels::NODEPOOL.to_owned(), claim.pool.to_string());
    tagged.insert(tags::LAUNCH.to_owned(), launch.to_string());
    let request = CreateFleetRequest {
        client_token: token.clone(),
        // At most CLAIMS_PER_LAUNCH.
        target_capacity: u32::try_from(count).unwrap_or(u32::MAX),
        capacity_type: TargetCapacityType::from(fleet.capacity_type),
        on_demand_allocation: match fleet.capacity_type {
            // Its priorities are its prices, and turns of zones where these are equal.
            CapacityType::OnDemand => OnDemandAllocation::Prioritized,
            CapacityType::Spot | CapacityType::Reserved => OnDemandAllocation::LowestPrice,
        },
        spot_allocation: SpotAllocation::PriceCapacityOptimized,
        launch_templates,
        tags: FleetTags { instance: tagged.clone(), volume: tagged.clone(), fleet: tagged },
        // As the peer, which leaves it out where `minValues` were lowered.
        context: match claim.min_values {
            MinValuesState::AsWritten => ready.class.context.clone(),
            MinValuesState::Relaxed => None,
        },
    };
    Ok((request, templates))
}

/// The name, or with the first number from 2 on under which no template is being deleted. A deletion is committed
/// before its call, so EC2 may still have the template now and not when the launch is sent.
fn free_name(name: String, leaving: &BTreeSet<String>) -> String {
    if !leaving.contains(&name) {
        return name;
    }
    // Of so many names, one isn't among those that leave.
    let mut names = (2..=leaving.len().saturating_add(2)).map(|n| format!("{name}-{n}"));
    names.find(|free| !leaving.contains(free)).unwrap_or(name)
}

/// Labels that the kubelet registers with.
fn node_labels(claim: &PlannedClaim, fleet: &Fleet) -> BTreeMap<String, String> {
    let mut labels = claim.labels.clone();
    labels.extend(
        [
            (labels::NODEPOOL, claim.pool.as_str()),
            (labels::EC2NODECLASS, claim.class.as_str()),
            (labels::CAPACITY_TYPE, fleet.capacity_type.as_str()),
        ]
        .into_iter()
        .chain(fleet.reservation.iter().flat_map(LaunchedInto::labels))
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let placed = fleet.placement.iter().flat_map(LaunchPlacement::labels);
    labels.extend(placed.map(|(key, value)| (key.to_owned(), value)));
    labels
}
