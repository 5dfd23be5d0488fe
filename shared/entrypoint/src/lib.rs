//! What every function shares between its queue and its planner.
//!
//! Decides how a batch of messages becomes wakes, how wakes of one cluster become one, and which messages go back to
//! the queue. It doesn't know what any function does.

pub mod batch;
pub mod error;
pub mod events;
pub mod handler;
pub mod ports;

pub use error::HandlerError;
pub use handler::{Handler, Scope};
pub use ports::{BusEvent, Installation, Ports, Signals};
