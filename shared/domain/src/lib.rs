//! Tenon's domain: the words of Kubernetes, EC2 and Karpenter as types, and the arithmetic over them.
//!
//! Pure: no clock, randomness, environment, IO or logging. What a planner needs to know of the world is in the
//! types of this crate; what crosses a process is a versioned form in the adapters.

pub mod api;
pub mod budget;
pub mod catalog;
pub mod claim;
pub mod class_status;
pub mod command;
pub mod digest;
pub mod evidence;
pub mod id;
pub mod image;
pub mod journal;
pub mod labels;
pub mod launch;
pub mod manifest;
pub mod money;
pub mod pool_status;
pub mod quantity;
pub mod registry;
pub mod report;
pub mod requirement;
pub mod reservation;
pub mod resources;
pub mod snapshot;
pub mod tags;
pub mod taint;
pub mod unavailable;
pub mod wake;
pub mod zonal_shift;

pub use jiff::{SignedDuration, Timestamp};
