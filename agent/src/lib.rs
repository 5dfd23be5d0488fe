//! The agent's core: what it sees goes up into the table, what the table asks of nodes comes down.
//!
//! Decides what is reported, and how the Nodes of a cluster become what their actions ask for. It decides nothing
//! about claims: functions do. Generic over the API server, the table and the bell; the binary drives it with
//! kube-rs, a simulated region with its own.
//!
//! Invariants: every step is idempotent; told once, twice or restarted in the middle, it ends in the same place; a
//! generation that was written once is never written again with other content.

pub mod agent;
pub mod bell;
#[cfg(feature = "binary")]
pub mod binary;
pub mod converge;
pub mod decided;
pub mod deleted;
pub mod drain;
pub mod faces;
pub mod generation;
mod nominate;
pub mod pace;
pub mod plan;
pub mod window;

#[cfg(test)]
mod tests;

pub use agent::{Agent, AgentError, Burst, Converged, Reported};
pub use bell::{Bell, BellError, Ring};
