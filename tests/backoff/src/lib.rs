//! Launching while some capacity is exhausted: Tenon's marks beside the peer's rule.
//!
//! Decides the world, its exhausted capacity and the counts. Everything else is the region's own code for both rules:
//! the peer's differs only in its memory of refusals (module `peer`).

mod case;
mod measure;
mod peer;
mod play;
mod report;

pub use case::Case;
pub use measure::Row;
pub use play::{BenchError, Size};
pub use report::{both, table};
