//! `registry`: writes a cluster's entry for the cluster's own stack, as CloudFormation's custom resource.
//!
//! Decides who owns an entry: the stack that created it, until that stack deletes it. It checks all values at once;
//! their readers decide their meaning. IAM decides who may ask.
//!
//! Deletion leaves no tombstone: functions find clusters by their entries, so the next sweep ignores the cluster, and
//! readers have one case less. The cluster's own partition stays, and is used again if the cluster is registered
//! again.
//!
//! Invariants: an entry changes only under its revision and its stack's id; a repeated request changes nothing;
//! CloudFormation always gets an answer, because a stack without one hangs for an hour, and nobody else gets one.

mod origins;
mod properties;
mod registrar;
mod request;
#[cfg(feature = "lambda")]
pub mod respond;

pub use origins::AnswerOrigins;
pub use registrar::answer;
pub use request::{CustomResourceRequest, CustomResourceResponse, RequestKind, ResponseStatus};
