//! Provisioning: which nodes to launch for pods, and which pods have room already.
//!
//! Decides nodes, types, prices and placements. It doesn't decide how EC2 is asked, nor when to look: those are the
//! provisioner's.

pub mod input;
pub mod output;
pub mod report;

pub use input::{ExistingNode, Input, NodeKind, PoolInput, PoolReadiness, Purpose, StepBudget, Storage};
pub use output::{Placement, Plan, PlannedClaim, UsableOffering};
pub use report::{Cause, Outcome, Reason, Report, Unschedulable};
