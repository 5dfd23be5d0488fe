//! Instances as EC2 returns them.

use tenon_domain::Timestamp;
use tenon_domain::id::{
    ClientToken, FleetId, ImageId, InstanceId, InstanceType, NodeName, ParseIdError, ProviderId,
    ReservationId, SecurityGroupId, SubnetId, Zone, ZoneId,
};

use super::{ImageArchitecture, TagFilter, Tags, TargetCapacityType};

tenon_domain::words! {
    /// An instance's state. Its words are EC2's.
    pub enum InstanceState {
        /// Starting.
        Pending = "pending",
        /// Running.
        Running = "running",
        /// Stopping.
        Stopping = "stopping",
        /// Stopped; it can be started again.
        Stopped = "stopped",
        /// Terminating.
        ShuttingDown = "shutting-down",
        /// Gone; visible for about an hour.
        Terminated = "terminated",
    }
}

impl InstanceState {
    /// Whether termination has begun or ended: it doesn't come back.
    #[must_use]
    pub const fn is_going(self) -> bool {
        matches!(self, Self::ShuttingDown | Self::Terminated)
    }
}

/// Why an instance is in its state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateReason {
    /// EC2's code, such as `Server.SpotInstanceTermination`.
    pub code: String,
    /// EC2's words.
    pub message: String,
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// Its id.
    pub id: InstanceId,
    /// Its type.
    pub instance_type: InstanceType,
    /// Its image.
    pub image: ImageId,
    /// Its architecture.
    pub architecture: ImageArchitecture,
    /// Spot or on-demand.
    pub capacity_type: TargetCapacityType,
    /// The capacity reservation that it runs in.
    pub reservation: Option<ReservationId>,
    /// The zone's name.
    pub zone: Zone,
    /// The zone's id, if EC2 returns it.
    pub zone_id: Option<ZoneId>,
    /// Its partition; only in a placement group with partitions.
    pub partition: Option<u32>,
    /// Its subnet; a terminated instance has none.
    pub subnet: Option<SubnetId>,
    /// Its security groups.
    pub security_groups: Vec<SecurityGroupId>,
    /// Its state at the moment of the answer.
    pub state: InstanceState,
    /// The reason of its state, if EC2 gives one.
    pub state_reason: Option<StateReason>,
    /// Its launch time.
    pub launched_at: Timestamp,
    /// Its first private IPv4 address; empty after termination.
    pub private_ip: String,
    /// Its private DNS name, under which the kubelet registers; empty after termination.
    pub private_dns_name: String,
    /// The client token of the request that launched it.
    pub client_token: Option<ClientToken>,
    /// The fleet that launched it.
    pub fleet: Option<FleetId>,
    /// Its tags.
    pub tags: Tags,
}

impl Instance {
    /// The `spec.providerID` of its node.
    #[must_use]
    pub fn provider_id(&self) -> ProviderId {
        ProviderId { zone: self.zone.clone(), instance: self.id.clone() }
    }

    /// The name under which its node registers.
    ///
    /// # Errors
    /// [`ParseIdError`] when its private DNS name isn't a node's name.
    pub fn node_name(&self) -> Result<NodeName, ParseIdError> {
        NodeName::parse(self.private_dns_name.clone())
    }
}

/// Instances by id, tag and state. Criteria are ANDed; empty ones don't restrict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct InstanceFilter {
    /// Any of these ids; one that doesn't exist, or isn't visible yet, is `NotFound`.
    pub ids: Vec<InstanceId>,
    /// All of these.
    pub tags: Vec<TagFilter>,
    /// Any of these states.
    pub states: Vec<InstanceState>,
}

/// The state of an instance before and after TerminateInstances.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceStateChange {
    /// The instance.
    pub id: InstanceId,
    /// Its state before.
    pub previous: InstanceState,
    /// Its state now.
    pub current: InstanceState,
}
