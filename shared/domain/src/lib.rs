//! Tenon's domain: the words of Kubernetes, EC2 and Karpenter as types, with their arithmetic.
//!
//! Pure: no clock, randomness, environment, IO or logging. Planners see the world through these types; adapters have
//! versioned forms of everything that crosses a process.

pub mod api;
pub mod boot;
pub mod budget;
pub mod catalog;
pub mod claim;
pub mod class_allowance;
pub mod class_hash;
pub mod class_status;
pub mod command;
pub mod default_spread;
pub mod digest;
pub mod drain_block;
pub mod evidence;
pub mod id;
pub mod image;
pub mod image_policy;
pub mod instance_family;
pub mod journal;
pub mod karpenter;
pub mod labels;
pub mod launch;
pub mod launch_verdict;
pub mod manifest;
pub mod money;
pub mod partition;
pub mod placement;
pub mod pool_annotations;
pub mod pool_class;
pub mod pool_status;
pub mod quantity;
pub mod registry;
pub mod report;
pub mod requirement;
pub mod reservation;
pub mod resources;
pub mod savings;
pub mod snapshot;
pub mod tags;
pub mod taint;
pub mod unavailable;
pub mod wait;
pub mod wake;
mod words;
pub mod zonal_shift;

pub use jiff::{SignedDuration, Timestamp};
