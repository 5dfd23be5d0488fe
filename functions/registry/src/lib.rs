//! `registry`: writes a cluster's entry for the cluster's own stack, as CloudFormation's custom resource.
//!
//! Decides whose an entry is: the stack's that made it, until that stack deletes it. What is registered is what the
//! stack says; it is checked here, all of it at once, and what it means is decided by its readers.
//!
//! A deleted entry is gone, without a tombstone: functions find clusters by their entries, so a cluster without one is
//! nobody's from the next sweep on, and readers have one case less. What was decided for it stays in its own
//! partition, and goes on where the cluster is registered again.
//!
//! Invariants: an entry changes under its revision and its stack's id alone; what was asked twice is done once;
//! CloudFormation is answered in any case, since a stack without an answer hangs for an hour.

mod properties;
mod registrar;
mod request;
#[cfg(feature = "lambda")]
pub mod respond;

pub use registrar::answer;
pub use request::{CustomResourceRequest, CustomResourceResponse, RequestKind, ResponseStatus};
