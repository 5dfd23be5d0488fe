//! Tenon's planners: pure functions from observations to plans.
//!
//! A planner is `plan`, such as from a `ProvisionInput` to a `ProvisionPlan` and a `ProvisionReport`: total,
//! deterministic, without clock, randomness, environment, IO or logging. Its input holds `now`; its budget is in steps.

pub mod bound;
pub mod disruption;
pub mod provision;
#[cfg(feature = "bound")]
pub mod solve;
