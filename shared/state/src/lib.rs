//! The state of a cluster in the table: how a function observes it, changes it and reports on it.
//!
//! Decides the order of reads ([`heads`], [`view`], [`observe`]), the planners' input ([`cluster`]), the transactions of steps and
//! plans ([`step`], [`commit`]), the agent's actions ([`action`]), and the start and end of a pass ([`pass`]). It
//! doesn't know any function's decisions.

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
