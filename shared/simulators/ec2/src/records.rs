//! What the twin remembers for those who check invariants: reading it costs no call.

use tenon_domain::Timestamp;
use tenon_domain::id::{ClientToken, FleetId, ImageId, InstanceId, InstanceType, Zone};

use tenon_ec2::port::{ImageState, Instance, Tags, TargetCapacityType};

/// How often a call was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallCount {
    /// All of them, those that were throttled, denied or failed among them.
    pub made: u64,
    /// Those that were throttled.
    pub throttled: u64,
}

/// An instance that was launched.
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

/// How a fleet request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestOutcome {
    /// It was carried out: these were launched.
    New(Vec<InstanceId>),
    /// Its token was known: the earlier answer was given again.
    Replayed,
    /// It was refused as a whole, with this code.
    Refused(String),
}

/// A fleet request that reached EC2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// When.
    pub at: Timestamp,
    /// Its client token.
    pub client_token: ClientToken,
    /// How many it asked for.
    pub target_capacity: u32,
    /// Every image that it names, itself or by its templates, with its state at that moment (`None`: never known).
    pub images: Vec<(ImageId, Option<ImageState>)>,
    /// How it was answered.
    pub outcome: RequestOutcome,
    /// How many overrides the answer has an error for.
    pub item_errors: usize,
}

/// An instance as it really is, whatever EC2 answers about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRecord {
    /// The instance with its true tags and state.
    pub instance: Instance,
    /// The image's state when it was launched.
    pub image_state_at_launch: ImageState,
    /// What it was told at boot, from its launch template.
    pub user_data: Option<String>,
    /// Since when DescribeInstances answers for it.
    pub visible_at: Timestamp,
    /// When it was terminated.
    pub terminated_at: Option<Timestamp>,
}
