//! The state table: its port, the keys and forms of its items, and its commits.
//!
//! [`port`] defines a table's calls, [`commit`] the writing of a decision, [`slices`] the cutting of one that is
//! larger than a transaction.
//!
//! It never retries: errors tell the caller what to do next.

pub mod action;
pub mod commit;
pub mod conflict;
pub mod items;
pub mod key;
pub mod learned;
pub mod limits;
pub mod marks;
pub mod number;
pub mod port;
pub mod slices;
pub mod token;
pub mod value;

pub use commit::{Commit, CommitError, CommitToken, Expect, Write, WriteCondition};
pub use conflict::commit_through_conflicts;
pub use key::Key;
pub use number::Number;
pub use port::{Consistency, Query, QueryOrder, QueryPage, SkRange, Table, TableError, query_all};
pub use slices::{SliceError, Slices, WriteGroup};
pub use token::{content_commit, form_digest, plan_token};
pub use value::{Item, ItemError, Value, from_item, to_item};
