//! The table in memory, with DynamoDB's rules: sizes, transactions, tokens, pages, throughput of one key, late
//! deletion by `expires_at`, and eventually consistent reads that see the past.
//!
//! Deterministic: the same calls at the same times with the same seed give the same answers. Its time is the given
//! clock. It never returns [`CommitError::Conflict`] or [`TableError::Unavailable`] by itself, because it serves
//! calls one after the other; a decorator injects such faults.

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

/// The table's clock.
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
    /// How long an item may exist after `expires_at`; DynamoDB says a few days at most, typically.
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

/// The state behind the handles.
struct TableState {
    store: ItemStore,
    buckets: ThroughputBuckets,
    tokens: Tokens,
    meter: Meter,
    /// Write units by partition key.
    written: BTreeMap<String, u64>,
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
            written: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    /// The usage since the table's creation or the last reset, and the current storage.
    #[must_use]
    pub fn meter(&self) -> Meter {
        let (state, _) = self.at_now();
        Meter { operations: state.meter.operations.clone(), storage_bytes: state.store.storage_bytes() }
    }

    /// The write units of each partition key since the table's creation or the last reset. DynamoDB takes
    /// [`tenon_table::limits::WRITE_UNITS_A_SECOND`] of each.
    #[must_use]
    pub fn written_by_key(&self) -> BTreeMap<String, u64> {
        self.at_now().0.written.clone()
    }

    /// Resets the usage.
    pub fn reset_meter(&self) {
        let (mut state, _) = self.at_now();
        state.meter = Meter::default();
        state.written.clear();
    }

    /// The table's content at this moment. Cheap: items and partitions are shared until they change.
    #[must_use]
    pub fn backup(&self) -> Backup {
        self.at_now().0.store.backup()
    }

    /// Restores a backup, like a restore to a point in time: tokens, throughput, and the past of eventually
    /// consistent reads are those of a new table. The meter continues.
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

    /// Counts writes: a cheap way to see that there were none.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.at_now().0.store.version()
    }

    /// The current items of a partition with this prefix, unmetered and shared, for inspection.
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

    /// The state with all due changes, and the time.
    fn at_now(&self) -> (MutexGuard<'_, TableState>, Timestamp) {
        // The clock may take its own locks, so it is read before ours is held.
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
