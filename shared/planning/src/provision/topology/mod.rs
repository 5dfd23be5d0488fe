//! Pods' rules about other pods: topology spread, pod affinity and anti-affinity.
//!
//! A rule about zones, capacity types or any other label is kept by dealing pods to domains before they are packed
//! (`deal`); a rule about single nodes is kept while nodes are filled (`neighbours`).

pub(crate) mod census;
mod clusters;
pub(crate) mod deal;
mod defaults;
mod keys;
pub(crate) mod neighbours;
mod repelling;
pub(crate) mod rules;
pub(crate) mod selectors;
mod table;
