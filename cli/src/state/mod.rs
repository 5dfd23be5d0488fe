//! The state table for people: lists by kind, the journal by subject, and an operator's clearing of marks and learned
//! memory.
//!
//! Decides the results of `get` and `why`. All reads use the table's port, so a table in memory and one of an account
//! answer alike. Attributes are shown as stored; only marks and learned memory are ever changed.

mod clear;
mod json;
mod kind;
mod list;
mod node_disruption;
mod nodes;
mod story;

pub(crate) use clear::{clear, unlearn};
pub(crate) use kind::{BelongsTo, GetKind, StoryOf};
pub(crate) use list::{ListError, ListScope, clusters, list};
pub(crate) use story::{Story, story};
