//! The twin's records for checks of invariants; reading them costs no call.

use std::collections::BTreeMap;

use tenon_domain::Timestamp;
use tenon_domain::id::{ClientToken, ClusterName, FleetId, ImageId, InstanceId, InstanceType, Zone};
use tenon_domain::placement::LaunchPlacement;

use super::images::ImageDefect;
use tenon_ec2::port::{
    BlockDeviceMapping, ImageState, Instance, InstanceProfileSpec, ScheduledEvent, StatusCheck, Tags,
    TargetCapacityType,
};

/// The count of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallCount {
    /// All calls, with throttled, denied and failed ones.
    pub made: u64,
    /// Throttled calls.
    pub throttled: u64,
}

/// A launched instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchRecord {
    /// When.
    pub at: Timestamp,
    /// The instance.
    pub instance: InstanceId,
    /// The fleet.
    pub fleet: FleetId,
    /// The request's client token.
    pub client_token: ClientToken,
    /// The type.
    pub instance_type: InstanceType,
    /// The zone's name.
    pub zone: Zone,
    /// How it is paid.
    pub capacity_type: TargetCapacityType,
    /// The image.
    pub image: ImageId,
    /// The image's state at that moment.
    pub image_state: ImageState,
    /// The tags that the request gave it.
    pub tags: Tags,
}

/// The answer to a fleet request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestOutcome {
    /// It was executed: these instances were launched.
    New(Vec<InstanceId>),
    /// Its token was known: the earlier answer was repeated.
    Replayed,
    /// It was refused as a whole, with this code.
    Refused(String),
}

/// A fleet request that reached EC2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// When.
    pub at: Timestamp,
    /// The cluster whose launch role asked; `None` where the caller asked by its own rights.
    pub by: Option<ClusterName>,
    /// Its client token.
    pub client_token: ClientToken,
    /// The number of requested instances.
    pub target_capacity: u32,
    /// The tags that it gives instances.
    pub tags: Tags,
    /// Every image that it names, itself or by its templates, with its state at that moment (`None`: never known).
    pub images: Vec<(ImageId, Option<ImageState>)>,
    /// The answer.
    pub outcome: RequestOutcome,
    /// How many overrides the answer has an error for.
    pub item_errors: usize,
}

/// The actual state of an instance, whatever EC2 answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRecord {
    /// The instance with its true tags and state.
    pub instance: Instance,
    /// The image's state at the launch.
    pub image_state_at_launch: ImageState,
    /// The image's defect at the launch.
    pub defect: Option<ImageDefect>,
    /// The user data of its launch template.
    pub user_data: Option<String>,
    /// The block devices of its launch template.
    pub block_devices: Vec<BlockDeviceMapping>,
    /// The instance profile of its launch template.
    pub instance_profile: Option<InstanceProfileSpec>,
    /// The placement group of its launch template.
    pub placement: Option<LaunchPlacement>,
    /// Since when DescribeInstances answers for it.
    pub visible_at: Timestamp,
    /// Its termination time.
    pub terminated_at: Option<Timestamp>,
    /// The status checks that it fails, with the time since when.
    pub impaired: BTreeMap<StatusCheck, Timestamp>,
    /// What EC2 scheduled for it.
    pub events: Vec<ScheduledEvent>,
}
