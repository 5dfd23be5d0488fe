//! The requests of tasks to the world, with their arguments.
//!
//! Decides nothing: hooks receive them, and tests compare them with the stacks' policies. A request whose arguments
//! affect no right has only its name.

use tenon_domain::id::InstanceId;
use tenon_ec2::port::{CreateFleetRequest, CreateLaunchTemplate, LaunchRole, RunInstancesProbe, Tags};
use tenon_table::{Commit, Key, Query};

use crate::ports::TaskSignal;

/// A call of a port, before its gate.
#[derive(Debug, Clone, Copy)]
pub enum AskedCall<'a> {
    /// One item of the table.
    Get(&'a Key),
    /// Several items of the table.
    BatchGet(&'a [Key]),
    /// A partition of the table.
    Query(&'a Query),
    /// Writes and conditions.
    Commit(&'a Commit),
    /// A fleet.
    CreateFleet(&'a CreateFleetRequest),
    /// A fleet that isn't launched.
    DryRunFleet(&'a CreateFleetRequest),
    /// An instance that isn't launched.
    DryRunInstances(&'a RunInstancesProbe),
    /// A cluster's launch role.
    AssumeRole(&'a LaunchRole),
    /// A launch template.
    CreateLaunchTemplate(&'a CreateLaunchTemplate),
    /// The end of instances.
    TerminateInstances(&'a [InstanceId]),
    /// Tags for instances.
    CreateTags(&'a [InstanceId], &'a Tags),
    /// Parameters, by name or ARN.
    GetParameters(&'a [String]),
    /// An instance profile, by name.
    GetInstanceProfile(&'a str),
    /// Any other call of EC2, of its price list, of ARC or of STS, by its name there.
    Other(&'static str),
    /// A doorbell.
    Ring(&'a TaskSignal),
}
