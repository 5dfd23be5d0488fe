//! The agent's core: reports the cluster to the table, and applies the table's actions to Nodes.
//!
//! Decides the reports, and how Nodes reach the state of their actions. Functions decide everything about claims. It
//! is generic over the API server, the table and the bell; the binary drives it with kube-rs, a simulated region with
//! its own.
//!
//! Invariants: every step is idempotent, so repeated or interrupted steps end in the same state; a written generation
//! is never written again with other content.

pub mod agent;
pub mod awaited;
pub mod bell;
#[cfg(feature = "binary")]
pub mod binary;
pub mod converge;
pub mod decided;
pub mod deleted;
pub mod drain;
pub mod faces;
mod freed;
pub mod generation;
pub mod hold;
mod nominate;
mod obstacles;
pub mod pace;
pub mod plan;
mod pod_events;
pub mod volumes;
mod wave;
pub mod window;

#[cfg(test)]
mod tests;

pub use agent::{Agent, AgentError, Burst, Converged, Reported};
pub use bell::{Bell, BellError, Ring};
