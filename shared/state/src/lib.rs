//! The state of a cluster in the table: how a function observes it, changes it and reports on it.
//!
//! Decides the order of reads ([`view`], [`observe`]), the planners' input ([`world`]), the transactions of steps and
//! plans ([`step`], [`commit`]), the agent's actions ([`action`]), and the start and end of a pass ([`pass`]). It
//! doesn't know any function's decisions.

pub mod action;
pub mod commit;
pub mod image_query;
mod learned;
pub mod observe;
pub mod pass;
pub mod step;
mod tell;
pub mod view;
pub mod world;
