//! The requirement algebra: sets of label values, their intersection, and whether two sides go together.
//!
//! Decides what a label may be and whether an offer and a demand agree. It doesn't decide resources, taints or
//! topology. [`Requirement`] is one key, [`Requirements`] a set of keys, [`compatibility`] what a node side and a
//! pod side have to say to each other, [`hints`] what somebody probably meant, [`aliases`] other names of labels.
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
pub use operator::{NodeSelectorRequirement, Operator};
pub use requirement::{Requirement, RequirementError};
pub use requirements::Requirements;
