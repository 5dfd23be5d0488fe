//! What it takes to launch while some capacity is exhausted: the project's marks beside the peer's rule.
//!
//! Decides the world, what is exhausted in it and what is counted. Everything else is the region's own code, for both
//! rules: the peer's differs in what is known of a refusal alone (module `peer`).

mod case;
mod measure;
mod peer;
mod play;
mod report;

pub use case::Case;
pub use measure::Row;
pub use play::{BenchError, Size};
pub use report::{both, table};
