//! The state table: one port, its in-memory adapter, and the behaviours that every adapter shares.
//!
//! [`port`] says what a table does, [`commit`] how a decision is written, [`slices`] how one that is larger than a
//! transaction is cut. [`memory`] enforces DynamoDB's rules, so that what runs here runs there. [`conformance`] holds
//! the behaviours, to be run unchanged by every adapter.
//!
//! Retries aren't decided here: errors say what the caller does next.

pub mod action;
pub mod block_on;
pub mod commit;
pub mod conformance;
pub mod items;
pub mod key;
pub mod learned;
pub mod limits;
pub mod marks;
pub mod memory;
pub mod meter;
pub mod number;
pub mod port;
pub mod slices;
pub mod value;

pub use block_on::block_on;
pub use commit::{Commit, CommitError, CommitToken, Condition, Expect, Write};
pub use key::Key;
pub use memory::{Backup, MemoryConfig, MemoryTable, Stored, Throughput};
pub use meter::{Meter, Operation, Usage};
pub use number::Number;
pub use port::{Consistency, Order, Page, Query, SkRange, Table, TableError, query_all};
pub use slices::{Group, SliceError, Slices};
pub use value::{Item, ItemError, Value, from_item, to_item};
