//! The items, their recent past, and their deletion.
//!
//! Decides a read's view of the past, and when an expired item is deleted. Partitions are shared with backups and
//! copied on change, items are always shared, so a backup costs one step a partition.
//!
//! Invariants: a record's versions are sorted by time, and the last is current; one version at or before the
//! staleness horizon is kept, earlier ones are dropped; a record without an item and without a past is dropped.

use super::MemoryConfig;
use jiff::{SignedDuration, Timestamp};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tenon_table::key::{self, Key};
use tenon_table::limits;
use tenon_table::value::{self, Item};

/// An item with its size by DynamoDB's rules. It never changes: a write replaces it, so a shared pointer means equal
/// content.
#[derive(Debug)]
pub struct StoredItem {
    pub(super) item: Item,
    pub(super) size: u64,
}

impl StoredItem {
    /// The item.
    #[must_use]
    pub const fn item(&self) -> &Item {
        &self.item
    }

    pub(super) fn new(key: &Key, item: Item) -> Self {
        let size = value::item_size(key, &item);
        Self { item, size }
    }
}

#[derive(Debug, Clone)]
struct ItemVersion {
    /// Since when it holds; nothing: since ever.
    at: Option<Timestamp>,
    stored: Option<Arc<StoredItem>>,
}

#[derive(Debug, Clone, Default)]
struct Record {
    versions: Vec<ItemVersion>,
    /// When its item is deleted because it expired.
    deleted_at: Option<Timestamp>,
}

impl Record {
    fn current(&self) -> Option<&Arc<StoredItem>> {
        self.versions.last()?.stored.as_ref()
    }

    fn at(&self, moment: Timestamp) -> Option<&Arc<StoredItem>> {
        let version = self.versions.iter().rev().find(|v| v.at.is_none_or(|at| at <= moment))?;
        version.stored.as_ref()
    }

    fn forget(&mut self, horizon: Timestamp) {
        let past = self.versions.iter().skip(1).take_while(|v| v.at.is_none_or(|at| at <= horizon)).count();
        self.versions.drain(..past);
    }
}

type Partition = BTreeMap<Arc<str>, Record>;

/// The content of a table at one moment.
#[derive(Debug, Clone)]
pub struct Backup {
    partitions: BTreeMap<Arc<str>, Arc<Partition>>,
}

impl Backup {
    /// The items of all partitions with writes since an earlier backup of the same table, by key; unchanged items of
    /// those partitions are included.
    pub fn changed_since<'a>(
        &'a self,
        earlier: Option<&'a Self>,
        pk_prefix: &'a str,
    ) -> impl Iterator<Item = (Key, &'a Item)> {
        let from: (std::ops::Bound<&str>, std::ops::Bound<&str>) =
            (std::ops::Bound::Included(pk_prefix), std::ops::Bound::Unbounded);
        let partitions = self.partitions.range::<str, _>(from);
        partitions
            .take_while(move |(pk, _)| pk.starts_with(pk_prefix))
            .filter(move |(pk, partition)| {
                let before = earlier.and_then(|earlier| earlier.partitions.get(&**pk));
                before.is_none_or(|before| !Arc::ptr_eq(before, partition))
            })
            .flat_map(|(pk, partition)| {
                partition
                    .iter()
                    .filter_map(|(sk, record)| Some((Key::new(&**pk, &**sk), &record.current()?.item)))
            })
    }

    /// The items, in the order of their keys.
    pub fn into_items(self) -> impl Iterator<Item = (Key, Item)> {
        self.partitions.into_iter().flat_map(|(pk, partition)| {
            let items: Vec<(Key, Item)> = partition
                .iter()
                .filter_map(|(sk, record)| Some((Key::new(&*pk, &**sk), record.current()?.item.clone())))
                .collect();
            items
        })
    }
}

/// The moment that a read sees.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReadMoment {
    /// The present, all writes included.
    Now,
    /// The state of a moment ago.
    Past(Timestamp),
}

#[derive(Debug)]
pub(super) struct ItemStore {
    partitions: BTreeMap<Arc<str>, Arc<Partition>>,
    /// Records that have a past to forget, by the time of the change that made it one.
    changed: VecDeque<(Timestamp, Key)>,
    expiring: BTreeSet<(Timestamp, Key)>,
    storage_bytes: u64,
    /// The count of writes.
    version: u64,
    staleness_max: SignedDuration,
    ttl_delay_max: SignedDuration,
    seed: u64,
    rng: ChaCha8Rng,
}

impl ItemStore {
    pub(super) fn new(config: &MemoryConfig) -> Self {
        Self {
            partitions: BTreeMap::new(),
            changed: VecDeque::new(),
            expiring: BTreeSet::new(),
            storage_bytes: 0,
            version: 0,
            staleness_max: config.staleness_max.max(SignedDuration::ZERO),
            ttl_delay_max: config.ttl_delay_max.max(SignedDuration::ZERO),
            seed: config.seed,
            rng: ChaCha8Rng::seed_from_u64(config.seed),
        }
    }

    pub(super) fn storage_bytes(&self) -> u64 {
        self.storage_bytes
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn current(&self, key: &Key) -> Option<&Arc<StoredItem>> {
        self.partitions.get(key.pk.as_str())?.get(key.sk.as_str())?.current()
    }

    pub(super) fn at(&self, key: &Key, moment: ReadMoment) -> Option<&Arc<StoredItem>> {
        let record = self.partitions.get(key.pk.as_str())?.get(key.sk.as_str())?;
        match moment {
            ReadMoment::Now => record.current(),
            ReadMoment::Past(moment) => record.at(moment),
        }
    }

    /// The partition's items between the bounds, lowest first.
    pub(super) fn range<'a>(
        &'a self,
        pk: &str,
        bounds: (std::ops::Bound<&str>, std::ops::Bound<&str>),
        moment: ReadMoment,
    ) -> impl DoubleEndedIterator<Item = (&'a Arc<str>, &'a Arc<StoredItem>)> + use<'a> {
        let records = self.partitions.get(pk).map(|partition| partition.range::<str, _>(bounds));
        records.into_iter().flatten().filter_map(move |(sk, record)| {
            let stored = match moment {
                ReadMoment::Now => record.current(),
                ReadMoment::Past(moment) => record.at(moment),
            };
            Some((sk, stored?))
        })
    }

    /// The moment that an eventually consistent read sees.
    pub(super) fn stale_moment(&mut self, now: Timestamp) -> ReadMoment {
        let most = u64::try_from(self.staleness_max.as_micros()).unwrap_or(u64::MAX);
        if most == 0 {
            return ReadMoment::Now;
        }
        match self.rng.next_u64() % most.saturating_add(1) {
            0 => ReadMoment::Now,
            micros => ReadMoment::Past(before(now, micros_duration(micros))),
        }
    }

    /// Makes this the item, or deletes it.
    pub(super) fn write(&mut self, key: &Key, stored: Option<Arc<StoredItem>>, now: Timestamp) {
        let due = stored.as_ref().and_then(|stored| self.deleted_at(key, &stored.item, now));
        let billed = |stored: &Arc<StoredItem>| stored.size + limits::STORAGE_OVERHEAD_BYTES;
        let added = stored.as_ref().map_or(0, billed);
        self.version += 1;
        let record = self.record(key);
        let removed = record.current().map_or(0, billed);
        let was_due = std::mem::replace(&mut record.deleted_at, due);
        match record.versions.last_mut() {
            // Of two changes at one time only the later can be seen.
            Some(last) if last.at == Some(now) => last.stored = stored,
            Some(_) | None => record.versions.push(ItemVersion { at: Some(now), stored }),
        }
        self.storage_bytes = (self.storage_bytes + added).saturating_sub(removed);
        if let Some(at) = was_due {
            self.expiring.remove(&(at, key.clone()));
        }
        if let Some(at) = due {
            self.expiring.insert((at, key.clone()));
        }
        if self.staleness_max.is_zero() {
            self.forget(key, now);
        } else {
            self.changed.push_back((now, key.clone()));
        }
    }

    /// Executes due changes: deletes expired items, drops a past that no read can see.
    pub(super) fn advance(&mut self, now: Timestamp) {
        while self.expiring.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((at, key)) = self.expiring.pop_first() {
                self.write(&key, None, at);
            }
        }
        let horizon = before(now, self.staleness_max);
        while self.changed.front().is_some_and(|(at, _)| *at < horizon) {
            if let Some((_, key)) = self.changed.pop_front() {
                self.forget(&key, horizon);
            }
        }
    }

    pub(super) fn backup(&self) -> Backup {
        Backup { partitions: self.partitions.clone() }
    }

    pub(super) fn restore(&mut self, backup: &Backup) {
        self.partitions = BTreeMap::new();
        self.changed.clear();
        self.expiring.clear();
        self.storage_bytes = 0;
        self.version += 1;
        for (pk, partition) in &backup.partitions {
            let mut restored = Partition::new();
            for (sk, record) in partition.iter() {
                let Some(stored) = record.current() else { continue };
                self.storage_bytes += stored.size + limits::STORAGE_OVERHEAD_BYTES;
                if let Some(at) = record.deleted_at {
                    self.expiring.insert((at, Key::new(&**pk, &**sk)));
                }
                let versions = vec![ItemVersion { at: None, stored: Some(Arc::clone(stored)) }];
                restored.insert(Arc::clone(sk), Record { versions, deleted_at: record.deleted_at });
            }
            if !restored.is_empty() {
                self.partitions.insert(Arc::clone(pk), Arc::new(restored));
            }
        }
    }

    fn record(&mut self, key: &Key) -> &mut Record {
        // Looked up before it is entered: entering allocates the key.
        if !self.partitions.contains_key(key.pk.as_str()) {
            self.partitions.insert(Arc::from(key.pk.as_str()), Arc::default());
        }
        let partition = Arc::make_mut(self.partitions.entry(Arc::from(key.pk.as_str())).or_default());
        partition.entry(Arc::from(key.sk.as_str())).or_default()
    }

    fn forget(&mut self, key: &Key, horizon: Timestamp) {
        let Some(partition) = self.partitions.get_mut(key.pk.as_str()) else { return };
        let partition = Arc::make_mut(partition);
        let Some(record) = partition.get_mut(key.sk.as_str()) else { return };
        record.forget(horizon);
        if let [ItemVersion { stored: None, at }] = record.versions.as_slice()
            && at.is_none_or(|at| at <= horizon)
        {
            partition.remove(key.sk.as_str());
        }
        if partition.is_empty() {
            self.partitions.remove(key.pk.as_str());
        }
    }

    /// When an item with `expires_at` is deleted: up to the longest delay later. It follows from the seed, the key
    /// and the expiry alone, so that it doesn't depend on other items.
    fn deleted_at(&self, key: &Key, item: &Item, now: Timestamp) -> Option<Timestamp> {
        let seconds = item.get(key::EXPIRES_AT)?.as_number()?.to_i64()?;
        let expires_at = Timestamp::from_second(seconds).ok()?;
        if now.duration_since(expires_at) > limits::TTL_OLDEST {
            return None;
        }
        let most = u64::try_from(self.ttl_delay_max.as_secs()).unwrap_or(0);
        let text = key.pk.bytes().chain([0]).chain(key.sk.bytes()).chain(seconds.to_be_bytes());
        let delay = ChaCha8Rng::seed_from_u64(self.seed ^ fnv1a(text)).next_u64() % most.saturating_add(1);
        let delay = SignedDuration::from_secs(i64::try_from(delay).unwrap_or(0));
        expires_at.checked_add(delay).ok().map(|at| at.max(now))
    }
}

/// Saturating: the clock may stand at the beginning of time.
fn before(moment: Timestamp, by: SignedDuration) -> Timestamp {
    moment.checked_sub(by).unwrap_or(Timestamp::MIN)
}

fn micros_duration(micros: u64) -> SignedDuration {
    SignedDuration::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// The hash FNV-1a, 64 bits: stable across machines and releases, which the standard library's isn't.
fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
