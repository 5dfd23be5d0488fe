//! A function's invocation: messages, ports and errors.
//!
//! Decides how a batch of messages becomes wakes, how wakes of one cluster become one, and which messages go back to
//! the queue. It doesn't know any function.

pub mod batch;
pub mod error;
pub mod events;
pub mod handler;
pub mod patient;
pub mod ports;

pub use error::HandlerError;
pub use handler::{Handler, WakeScope};
pub use patient::Patient;
pub use ports::{BusEvent, Installation, Ports, Signals};
