//! The state table for people: lists by kind, the journal by subject, and marks and learned memory that an operator
//! clears.
//!
//! Decides what `get` and `why` find. Everything goes through the table's port, so a table in memory and one of an account
//! answer alike. Attributes come as they lie in the table; nothing but
//! marks and what was learned is changed.

mod clear;
mod json;
mod kind;
mod list;
mod story;

pub(crate) use clear::{clear, unlearn};
pub(crate) use kind::{BelongsTo, GetKind, StoryOf};
pub(crate) use list::{ListError, ListScope, clusters, list};
pub(crate) use story::{Story, story};
