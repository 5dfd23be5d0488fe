//! The commands, one module each.

pub(crate) mod clear;
pub(crate) mod doctor;
pub(crate) mod event;
pub(crate) mod get;
pub(crate) mod local;
pub(crate) mod scenario;
pub(crate) mod simulate;
pub(crate) mod types;
pub(crate) mod why;
