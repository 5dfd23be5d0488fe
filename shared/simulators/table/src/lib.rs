//! The table in memory, with DynamoDB's rules enforced: sizes, transactions, tokens, pages, throughput of one key, late
//! deletion by `expires_at`, and reads that see the past unless asked otherwise.
//!
//! Deterministic: the same calls at the same times with the same seed give the same answers. Time is the clock that
//! it is given. It never reports [`CommitError::Conflict`] or [`TableError::Unavailable`] by itself: calls are served
//! one after the other; a decorator injects such faults.

pub mod block_on;
pub mod conformance;
pub mod meter;

mod buckets;
mod read;
mod store;
mod transact;

use buckets::ThroughputBuckets;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::ItemStore;
use tenon_table::commit::{Commit, CommitError};
use tenon_table::key::Key;
use tenon_table::port::{Consistency, Query, QueryPage, Table, TableError};
use tenon_table::value::Item;
use transact::Tokens;

pub use block_on::block_on;
pub use meter::{Meter, Operation, OperationUsage};
pub use store::{Backup, StoredItem};

/// Tells the table what time it is.
pub type TableClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Whether the throughput of a partition key is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Throughput {
    /// 1,000 write units and 3,000 read units a second.
    Enforced,
    /// It isn't.
    Off,
}

/// How the table behaves where DynamoDB leaves it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Every choice is made from this.
    pub seed: u64,
    /// How far back an eventually consistent read may see; zero: never.
    pub staleness_max: SignedDuration,
    /// How long after `expires_at` an item may still be there; DynamoDB says a few days at most, typically.
    pub ttl_delay_max: SignedDuration,
    /// Whether throughput is bounded.
    pub throughput: Throughput,
}

impl MemoryConfig {
    /// As unkind as DynamoDB may be: a second of staleness, 48 hours of late deletion, bounded throughput.
    #[must_use]
    pub fn strict(seed: u64) -> Self {
        Self {
            seed,
            staleness_max: SignedDuration::from_secs(1),
            ttl_delay_max: SignedDuration::from_hours(48),
            throughput: Throughput::Enforced,
        }
    }
}

/// A handle to a table in memory; clones are the same table.
#[derive(Clone)]
pub struct MemoryTable {
    state: Arc<Mutex<TableState>>,
    clock: TableClock,
}

/// What is behind the handles.
struct TableState {
    store: ItemStore,
    buckets: ThroughputBuckets,
    tokens: Tokens,
    meter: Meter,
}

impl MemoryTable {
    /// An empty table.
    #[must_use]
    pub fn new(config: MemoryConfig, clock: TableClock) -> Self {
        let state = TableState {
            store: ItemStore::new(&config),
            buckets: ThroughputBuckets::new(config.throughput),
            tokens: Tokens::default(),
            meter: Meter::default(),
        };
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    /// What was used since the table was made or the meter reset, and what is stored now.
    #[must_use]
    pub fn meter(&self) -> Meter {
        let (state, _) = self.at_now();
        Meter { operations: state.meter.operations.clone(), storage_bytes: state.store.storage_bytes() }
    }

    /// Sets all that was used back to nothing.
    pub fn reset_meter(&self) {
        self.at_now().0.meter = Meter::default();
    }

    /// The table's content at this moment. Cheap: items and partitions are shared until they change.
    #[must_use]
    pub fn backup(&self) -> Backup {
        self.at_now().0.store.backup()
    }

    /// Puts back the content of a backup, as a restore to a point in time would: tokens, throughput and the past that
    /// eventually consistent reads see are those of a new table. The meter goes on.
    pub fn restore(&self, backup: &Backup) {
        let (mut state, _) = self.at_now();
        state.store.restore(backup);
        state.buckets.clear();
        state.tokens = Tokens::default();
    }

    /// Every item as it is now, in the order of the keys, unmetered: for invariants and inspection, not for functions.
    pub fn dump(&self) -> impl Iterator<Item = (Key, Item)> + use<> {
        self.backup().into_items()
    }

    /// One item as it is now, unmetered: for invariants and inspection.
    #[must_use]
    pub fn peek(&self, key: &Key) -> Option<Item> {
        self.at_now().0.store.current(key).map(|stored| stored.item.clone())
    }

    /// Counts up with every write: a cheap way to see that nothing changed.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.at_now().0.store.version()
    }

    /// The items of a partition whose sort keys begin so, as they are now, unmetered and shared: for inspection.
    #[must_use]
    pub fn peek_prefix(&self, pk: &str, prefix: &str) -> Vec<(Arc<str>, Arc<StoredItem>)> {
        let (state, _) = self.at_now();
        let from = (std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded);
        let items = state.store.range(pk, from, store::ReadMoment::Now);
        items
            .take_while(|(sk, _)| sk.starts_with(prefix))
            .map(|(sk, stored)| (Arc::clone(sk), Arc::clone(stored)))
            .collect()
    }

    /// The state, with what is due by now done, and the time.
    fn at_now(&self) -> (MutexGuard<'_, TableState>, Timestamp) {
        // The clock may take locks of its own: it is asked before ours is held.
        let now = (self.clock)();
        // A panic elsewhere can't leave a commit half applied: it is applied after everything that may fail.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.store.advance(now);
        (state, now)
    }
}

impl fmt::Debug for MemoryTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTable").finish_non_exhaustive()
    }
}

impl Table for MemoryTable {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, TableError> {
        let (mut state, now) = self.at_now();
        state.get(key, consistency, now)
    }

    async fn batch_get(
        &self,
        keys: &[Key],
        consistency: Consistency,
    ) -> Result<BTreeMap<Key, Item>, TableError> {
        let (mut state, now) = self.at_now();
        state.batch_get(keys, consistency, now)
    }

    async fn query(&self, query: &Query) -> Result<QueryPage, TableError> {
        let (mut state, now) = self.at_now();
        state.query(query, now)
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let (mut state, now) = self.at_now();
        state.commit(commit, now)
    }
}
