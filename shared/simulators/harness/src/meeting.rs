//! A world with another transaction between a handler's observation and its commit.
//!
//! Decides when: once, just before the first commit that the test's predicate matches.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tenon_memory_table::MemoryTable;
use tenon_table::{Commit, CommitError, Consistency, Item, Key, Query, QueryPage, Table, TableError};

use super::over::Over;
use super::{FunctionWorld, held};

/// Whether another commit must come before this one.
type Meets = Box<dyn Fn(&Commit) -> bool + Send>;

/// A world's ports, with another's commit on its way.
pub type Meeting = Over<MeetingTable>;

impl Meeting {
    /// The world, with `other` committed just before the first commit that `meets` matches.
    #[must_use]
    pub fn new(
        world: &FunctionWorld,
        other: Commit,
        meets: impl Fn(&Commit) -> bool + Send + 'static,
    ) -> Self {
        let other: (Commit, Meets) = (other, Box::new(meets));
        let table = MeetingTable { table: world.table.clone(), other: Mutex::new(Some(other)) };
        Self::of(world, table)
    }

    /// Whether the other's commit went through.
    #[must_use]
    pub fn met(&self) -> bool {
        held(&self.table.other).is_none()
    }
}

/// The table of a [`Meeting`].
pub struct MeetingTable {
    table: MemoryTable,
    other: Mutex<Option<(Commit, Meets)>>,
}

impl Table for MeetingTable {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, TableError> {
        self.table.get(key, consistency).await
    }

    async fn batch_get(
        &self,
        keys: &[Key],
        consistency: Consistency,
    ) -> Result<BTreeMap<Key, Item>, TableError> {
        self.table.batch_get(keys, consistency).await
    }

    async fn query(&self, query: &Query) -> Result<QueryPage, TableError> {
        self.table.query(query).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let other = held(&self.other).take_if(|(_, meets)| meets(commit));
        if let Some((other, _)) = other {
            self.table.commit(&other).await?;
        }
        self.table.commit(commit).await
    }
}
