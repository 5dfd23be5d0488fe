//! What EC2 tells of running instances beside their state: failing status checks and scheduled events.
//!
//! Source: EC2's API reference, DescribeInstanceStatus; read in November 2026.

use std::collections::BTreeMap;

use tenon_domain::Timestamp;
use tenon_domain::id::InstanceId;

tenon_domain::words! {
    /// A status check. The check of EBS volumes isn't read, as by the peer.
    pub enum StatusCheck {
        /// The instance's own software and network.
        Instance = "instance",
        /// The hardware and network of EC2 below it.
        System = "system",
    }
}

tenon_domain::words! {
    /// A kind of scheduled event. Its words are EC2's.
    pub enum ScheduledEventCode {
        /// EC2 reboots the instance.
        InstanceReboot = "instance-reboot",
        /// EC2 reboots the host.
        SystemReboot = "system-reboot",
        /// EC2 maintains network or power of the host.
        SystemMaintenance = "system-maintenance",
        /// EC2 stops the instance, or terminates it.
        InstanceRetirement = "instance-retirement",
        /// EC2 stops the instance.
        InstanceStop = "instance-stop",
    }
}

/// Which instances a call asks for. EC2 has no filter for the owner's tags here, and ANDs filters of different names, so
/// that each is a call of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceStatusFilter {
    /// Those that fail a check.
    Impaired(StatusCheck),
    /// Those with an event of any kind.
    ScheduledEvents,
}

/// An event that EC2 scheduled and that isn't over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScheduledEvent {
    /// Its kind.
    pub code: ScheduledEventCode,
    /// Its earliest start, if EC2 tells it.
    pub starts_at: Option<Timestamp>,
}

/// A running instance that fails a check or has an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceStatus {
    /// The instance.
    pub id: InstanceId,
    /// The failing checks, each with the time since when, if EC2 tells it. An instance that never passed fails since its
    /// launch.
    pub impaired: BTreeMap<StatusCheck, Option<Timestamp>>,
    /// The events.
    pub events: Vec<ScheduledEvent>,
}
