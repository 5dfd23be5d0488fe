//! The requirement algebra: sets of label values, their intersection and compatibility.
//!
//! Decides the values of a label, and whether a node side and a pod side agree. It doesn't decide resources, taints
//! or topology. [`Requirement`] is one key, [`Requirements`] a set of keys, [`compatibility`] compares a node side
//! with a pod side, [`hints`] has suggestions, [`aliases`] other names of labels.
//!
//! Invariant: keys are normalised when a requirement is made.

pub mod aliases;
pub mod compatibility;
pub mod hints;
mod operator;
#[expect(clippy::module_inception, reason = "one requirement is this module's first noun")]
mod requirement;
mod requirements;

pub use compatibility::{Conflict, Incompatible, UndefinedKeys};
pub use operator::{NodeSelectorRequirement, Operator, WrittenRequirement};
pub use requirement::{Requirement, RequirementError};
pub use requirements::Requirements;
