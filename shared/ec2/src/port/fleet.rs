//! CreateFleet of type `instant`: one request, one answer; the fleet doesn't live on.
//!
//! A request is plain data, committed before it is sent and replayed unchanged: see
//! [`CreateFleetRequest::to_stored`].

use tenon_domain::catalog::offering::CapacityType;
use tenon_domain::id::{
    ClientToken, FleetId, ImageId, InstanceId, InstanceType, SecurityGroupId, SubnetId, Zone,
};

use super::{InstanceMetadataOptions, NetworkInterfaceSpec, Tags};
use crate::classify::{ErrorClass, classify};

tenon_domain::words! {
    /// How a fleet pays: `DefaultTargetCapacityType`. Its words are EC2's, also the values of Karpenter's label.
    pub enum TargetCapacityType {
        /// On-demand, capacity reservations among it.
        OnDemand = "on-demand",
        /// Spot.
        Spot = "spot",
    }
}

impl From<TargetCapacityType> for CapacityType {
    fn from(target: TargetCapacityType) -> Self {
        match target {
            TargetCapacityType::OnDemand => Self::OnDemand,
            TargetCapacityType::Spot => Self::Spot,
        }
    }
}

impl From<CapacityType> for TargetCapacityType {
    /// EC2 launches into a reservation as on-demand; the template names the reservation.
    fn from(capacity_type: CapacityType) -> Self {
        match capacity_type {
            CapacityType::OnDemand | CapacityType::Reserved => Self::OnDemand,
            CapacityType::Spot => Self::Spot,
        }
    }
}

/// Which override an on-demand fleet takes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnDemandAllocation {
    /// The cheapest.
    LowestPrice,
    /// The one with the lowest priority number.
    Prioritized,
}

/// Which override a spot fleet takes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpotAllocation {
    /// The cheapest.
    LowestPrice,
    /// The cheapest of those with capacity to spare.
    PriceCapacityOptimized,
    /// The one with the lowest priority number of those with capacity to spare.
    CapacityOptimizedPrioritized,
}

/// One way to launch; absent fields come from the template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FleetOverride {
    /// The type.
    pub instance_type: InstanceType,
    /// The subnet.
    pub subnet: Option<SubnetId>,
    /// The zone's name.
    pub zone: Option<Zone>,
    /// The image.
    pub image: Option<ImageId>,
    /// Its priority: the lowest number is first, no number is last.
    pub priority: Option<u32>,
}

/// A launch template with the ways to launch from it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FleetLaunchTemplate {
    /// The template's name.
    pub name: String,
    /// Its version: a number, `$Latest` or `$Default`.
    pub version: String,
    /// The ways to launch.
    pub overrides: Vec<FleetOverride>,
}

/// Tags of instances, volumes and the fleet at creation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct FleetTags {
    /// The instances' tags.
    pub instance: Tags,
    /// The volumes' tags.
    pub volume: Tags,
    /// The fleet's tags.
    pub fleet: Tags,
}

/// A request for an instant fleet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CreateFleetRequest {
    /// The same token with the same request is the same fleet, while the token lives.
    pub client_token: ClientToken,
    /// How many instances.
    pub target_capacity: u32,
    /// How they are paid.
    pub capacity_type: TargetCapacityType,
    /// The order of overrides for on-demand.
    pub on_demand_allocation: OnDemandAllocation,
    /// The order of overrides for spot.
    pub spot_allocation: SpotAllocation,
    /// Templates with their overrides.
    pub launch_templates: Vec<FleetLaunchTemplate>,
    /// Tags at creation.
    pub tags: FleetTags,
    /// EC2's `Context`.
    pub context: Option<String>,
}

/// Instances of one override.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FleetInstances {
    /// The instances, in the order of their ids.
    pub ids: Vec<InstanceId>,
    /// Their type.
    pub instance_type: InstanceType,
    /// How they are paid.
    pub capacity_type: TargetCapacityType,
    /// The override of these instances, as in the request.
    pub from: FleetOverride,
    /// The name of the template that they came from.
    pub launch_template: String,
}

/// An error about an override that gave no instance, or too few.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FleetItemError {
    /// EC2's code.
    pub code: String,
    /// EC2's words.
    pub message: String,
    /// The override, as in the request; `None` if EC2 names none.
    pub from: Option<FleetOverride>,
    /// How it would have been paid.
    pub capacity_type: TargetCapacityType,
}

impl FleetItemError {
    /// The meaning of the error.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        classify(&self.code, &self.message)
    }
}

/// The answer of an instant fleet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FleetResult {
    /// The fleet.
    pub fleet_id: FleetId,
    /// The launched instances.
    pub instances: Vec<FleetInstances>,
    /// The errors; a complete launch may have some too.
    pub errors: Vec<FleetItemError>,
}

impl FleetResult {
    /// All instances, in the order of their ids: the order in which they are dealt to claims.
    #[must_use]
    pub fn instance_ids(&self) -> Vec<InstanceId> {
        let mut ids: Vec<_> = self.instances.iter().flat_map(|i| i.ids.iter().cloned()).collect();
        ids.sort();
        ids
    }
}

/// The parameters of a dry run of RunInstances.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunInstancesProbe {
    /// The template's name.
    pub launch_template: String,
    /// Its version.
    pub version: String,
    /// The override to try.
    pub with: FleetOverride,
    /// How the instance would be paid for: a template with tags for spot requests is for spot alone.
    pub capacity_type: TargetCapacityType,
    /// The instances' and volumes' tags.
    pub tags: FleetTags,
    /// The template's tags of network interfaces. Condition keys such as `aws:RequestTag` look at the request, and AWS
    /// doesn't say whether its tags stand beside the template's or take their place, so it repeats them.
    pub network_interface_tags: Tags,
    /// The template's tags of the spot request; none on demand.
    pub spot_request_tags: Tags,
    /// The template's metadata options. Condition keys such as `ec2:MetadataHttpTokens` look at the request.
    pub metadata_options: Option<InstanceMetadataOptions>,
    /// The template's network interfaces: EC2 takes no subnet beside them.
    pub network_interfaces: Vec<NetworkInterfaceSpec>,
    /// The security groups of these interfaces.
    pub security_groups: Vec<SecurityGroupId>,
}

/// A dry run's outcome. EC2 gives both as errors (412 `DryRunOperation`, 403 `UnauthorizedOperation`); they aren't.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DryRunOutcome {
    /// The caller may do this.
    WouldSucceed,
    /// The caller may not.
    Unauthorized {
        /// The call.
        action: String,
        /// The decoded message, where the caller may decode it.
        decoded: Option<String>,
        /// EC2's words.
        message: String,
    },
}
