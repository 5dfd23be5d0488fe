//! The state of a cluster in the table: how a function observes it, changes it and tells of it.
//!
//! Decides what is read in which order ([`heads`], [`view`],
//! [`observe`]), what planners plan from ([`cluster`]), how a claim's step
//! and a plan become transactions ([`step`], [`commit`]), what the agent is asked ([`action`]), and what a pass begins and ends with ([`pass`]). It doesn't
//! decide what any function does.

pub mod action;
pub mod cluster;
pub mod commit;
pub mod heads;
pub mod image_query;
mod learned;
pub mod observe;
pub mod pass;
pub mod step;
mod tell;
pub mod view;
