//! The state table, read for people: lists by kind, and the journal by subject.
//!
//! Decides what `get` and `why` find. Everything is read through the table's port, so a table in memory and one of an
//! account answer alike. Attributes come as they lie in the table; nothing is changed.

mod json;
mod kind;
mod list;
mod story;

pub(crate) use kind::{BelongsTo, Kind, StoryOf};
pub(crate) use list::{ListError, Scope, clusters, list};
pub(crate) use story::{Story, story};
