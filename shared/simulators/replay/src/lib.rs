//! What kube-scheduler makes of a plan: drawn worlds, their objects, the replay of a plan, and the judgement of another
//! scheduler's placements. For tests only.
//!
//! Decides nothing about Tenon. It shares no code with the planner, which it judges, but the types of a plan. Its
//! kube-scheduler is the simulated cluster's; a test against a real one calibrates that.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests fail as tests do")]

pub mod draw;
pub mod follower;
pub mod objects;
pub mod replay;
pub mod small;
pub mod wide;
