//! Tests against a real Kubernetes control plane, and of the CustomResourceDefinitions installed there.
//!
//! `tests/servers/control-plane` starts the control plane; `tests/cluster.rs` needs it and is ignored without. This
//! crate is their harness: a client, manifests, waiting with a deadline. It decides nothing about Tenon.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a harness of tests fails as tests do"
)]

mod binary;
mod cases;
mod cluster;
mod definitions;
mod live;
mod local;
mod scheduler_log;
mod volumes;

pub use binary::{agent_binary, tenon_binary};
pub use cases::{Case, Table, Verdict, accepted, rejected};
pub use cluster::{Cluster, DEADLINE};
pub use definitions::{Definition, definitions};
pub use live::{CLASS, Live, Moment, alone, clear};
pub use local::Local;
pub use scheduler_log::{SchedulerEvent, SchedulerLog};
