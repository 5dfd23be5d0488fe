//! A world whose every call is one suspension point.

use std::collections::BTreeMap;
use std::task::Poll;

use tenon_harness::Over;
use tenon_memory_table::MemoryTable;
use tenon_table::{Commit, CommitError, Consistency, Item, Key, Query, QueryPage, TableError};

use super::*;

pub(super) fn stepping(world: &FunctionWorld) -> Over<SteppingTable> {
    Over::of(world, SteppingTable(world.table.clone()))
}

async fn step() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

pub(super) struct SteppingTable(MemoryTable);

impl Table for SteppingTable {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, TableError> {
        step().await;
        self.0.get(key, consistency).await
    }
    async fn batch_get(
        &self,
        keys: &[Key],
        consistency: Consistency,
    ) -> Result<BTreeMap<Key, Item>, TableError> {
        step().await;
        self.0.batch_get(keys, consistency).await
    }
    async fn query(&self, query: &Query) -> Result<QueryPage, TableError> {
        step().await;
        self.0.query(query).await
    }
    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        step().await;
        let outcome = self.0.commit(commit).await;
        step().await;
        outcome
    }
}
