//! What every function shares between its queue and its planner.
//!
//! Decides how a batch of messages becomes wakes, how wakes of one cluster become one, and which messages go back to
//! the queue. It doesn't know what any function does.

pub mod batch;
pub mod conflict;
pub mod error;
pub mod events;
pub mod handler;
pub mod image_query;
pub mod observe;
pub mod patient;
pub mod ports;
pub mod step;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod token;

pub use conflict::commit_through_conflicts;
pub use error::HandlerError;
pub use handler::{Handler, Scope};
pub use patient::Patient;
pub use ports::{BusEvent, Installation, Ports, Signals};
pub use token::content_commit;
