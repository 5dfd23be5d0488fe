//! `PACKED#`: parts of the catalogue as planners read them.
//!
//! Decides how a refresh is written and read: content in postcard, deflated, cut into items, and a pointer. A refresh
//! is one transaction under the pointer's revision, so it is visible wholly or not at all and two of them never write
//! one generation. One that found nothing new writes the pointer's time only.
//!
//! Invariant: a function that is warm reads the pointer and nothing else.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use tenon_domain::catalog::PartData;
use tenon_domain::digest::Digest;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::Region;
use tenon_domain::{SignedDuration, Timestamp};

use super::catalog::{CatalogMeta, PartMeta};
use super::form::{self, Fields, FormError, from_item, seconds};
use super::keys;
use super::packed_forms::PartForm;
use crate::key::{EXPIRES_AT, VERSION};
use crate::{
    Commit, CommitToken, Condition, Consistency, Expect, Item, Key, Table, TableError, Value, Write,
};

/// The most bytes of one packed item: well under DynamoDB's 400 KB.
pub const PACKED_BYTES: usize = 350 * 1024;

/// How long the items of a generation stay after the next one came: a reader that has just read the pointer still
/// finds them.
pub const OLD_GENERATION_KEPT: SignedDuration = SignedDuration::from_hours(1);

/// The most bytes that a part may unfold to; guards against an item that was tampered with.
const UNPACKED_BYTES: u64 = 64 * 1024 * 1024;

const DATA: &str = "data";

/// Parts that a caller asked for and that ever arrived.
pub type Parts = BTreeMap<CatalogPart, Part>;

/// A part as it was last refreshed.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its content.
    pub data: Arc<PartData>,
    /// Its generation.
    pub generation: u64,
    /// When EC2 last said that this is how it is.
    pub refreshed_at: Timestamp,
}

/// Why the catalogue couldn't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The table couldn't be read.
    #[error("reading the catalogue")]
    Read(#[from] TableError),
    /// An item doesn't have its form.
    #[error("the catalogue doesn't have its form")]
    Form(#[from] FormError),
    /// A packed item that the pointer names isn't there.
    #[error("`{key}` isn't there, though the catalogue points to it: refresh the part")]
    Missing {
        /// The item.
        key: Key,
    },
    /// Packed content that can't be unpacked.
    #[error("the packed `{part}` can't be unpacked: {message}")]
    Corrupt {
        /// The part.
        part: CatalogPart,
        /// What is wrong.
        message: String,
    },
    /// Content that can't be packed.
    #[error("`{part}` can't be packed: {message}")]
    Pack {
        /// The part.
        part: CatalogPart,
        /// What is wrong.
        message: String,
    },
}

/// What a function keeps between wakes: content that never changes under its digest.
#[derive(Debug, Default)]
pub struct CatalogCache(Mutex<BTreeMap<CatalogPart, (String, Arc<PartData>)>>);

impl CatalogCache {
    /// Nothing kept yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn get(&self, part: CatalogPart, digest: &str) -> Option<Arc<PartData>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(&part).filter(|(found, _)| found == digest).map(|(_, data)| Arc::clone(data))
    }

    fn keep(&self, part: CatalogPart, digest: String, data: Arc<PartData>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(part, (digest, data));
    }
}

/// The commit of a refresh: packed items and the pointer, or only the pointer's time where the content is as before.
///
/// # Errors
/// [`CatalogError::Pack`] when the content can't be packed. A refresh that no transaction holds is refused by the
/// table.
pub fn refresh_commit(
    region: &Region,
    meta: &CatalogMeta,
    data: &PartData,
    now: Timestamp,
) -> Result<Commit, CatalogError> {
    let part = data.part();
    let bytes = pack(data)?;
    let digest = Digest::of([bytes.as_slice()]).hex();
    let before = meta.parts.get(&part).cloned().unwrap_or_default();
    let mut writes = Vec::new();
    let mut after =
        PartMeta { refreshed_at: Some(now), last_error: None, failing_since: None, ..before.clone() };
    if before.digest != digest {
        let old = (0..before.items).map(|n| expire(keys::packed(region, part, before.generation, n), now));
        writes.extend(old);
        after.generation = before.generation.saturating_add(1);
        let items: Vec<Write> = (0_u32..)
            .zip(bytes.chunks(PACKED_BYTES))
            .map(|(n, chunk)| put_chunk(keys::packed(region, part, after.generation, n), chunk))
            .collect();
        after.items = u32::try_from(items.len()).unwrap_or(u32::MAX);
        after.count = data.count() as u64;
        after.digest.clone_from(&digest);
        writes.extend(items);
    }
    Ok(pointer_commit(region, meta, (part, after), writes, now))
}

/// The commit of a refresh that failed: the part stays as it is, and says why.
#[must_use]
pub fn failure_commit(
    region: &Region,
    meta: &CatalogMeta,
    part: CatalogPart,
    error: &str,
    now: Timestamp,
) -> Commit {
    let before = meta.parts.get(&part).cloned().unwrap_or_default();
    let failing_since = before.failing_since.or(Some(now));
    let after = PartMeta { last_error: Some(error.to_owned()), failing_since, ..before };
    pointer_commit(region, meta, (part, after), Vec::new(), now)
}

/// The pointer; nothing of the catalogue ever arrived where there is none.
///
/// # Errors
/// [`CatalogError::Read`] and [`CatalogError::Form`].
pub async fn read_meta<T: Table>(
    table: &T,
    region: &Region,
    consistency: Consistency,
) -> Result<CatalogMeta, CatalogError> {
    let key = keys::catalog(region);
    Ok(match table.get(&key, consistency).await? {
        Some(item) => from_item(&key, &item)?,
        None => CatalogMeta::default(),
    })
}

/// The parts that are wanted and ever arrived. Reads the pointer, and packed items only where the cache doesn't have
/// their content.
///
/// # Errors
/// [`CatalogError`]; what never arrived is no error, it isn't among the parts.
pub async fn read_parts<T: Table>(
    table: &T,
    region: &Region,
    wanted: &[CatalogPart],
    cache: &CatalogCache,
) -> Result<Parts, CatalogError> {
    let meta = read_meta(table, region, Consistency::Eventual).await?;
    parts_of(table, region, (&meta, wanted), cache).await
}

/// The same, for a caller that has read the pointer already.
///
/// # Errors
/// As [`read_parts`].
pub async fn parts_of<T: Table>(
    table: &T,
    region: &Region,
    (meta, wanted): (&CatalogMeta, &[CatalogPart]),
    cache: &CatalogCache,
) -> Result<Parts, CatalogError> {
    let mut parts = Parts::new();
    for part in wanted.iter().copied() {
        let Some(found) = meta.parts.get(&part) else { continue };
        let (Some(refreshed_at), true) = (found.refreshed_at, found.generation > 0) else { continue };
        let data = match cache.get(part, &found.digest) {
            Some(data) => data,
            None => {
                let data = Arc::new(read_packed(table, region, part, found).await?);
                cache.keep(part, found.digest.clone(), Arc::clone(&data));
                data
            }
        };
        parts.insert(part, Part { data, generation: found.generation, refreshed_at });
    }
    Ok(parts)
}

async fn read_packed<T: Table>(
    table: &T,
    region: &Region,
    part: CatalogPart,
    meta: &PartMeta,
) -> Result<PartData, CatalogError> {
    let keys: Vec<Key> = (0..meta.items).map(|n| keys::packed(region, part, meta.generation, n)).collect();
    // Consistently: the pointer may be newer than an eventual view of what it points to.
    let items = table.batch_get(&keys, Consistency::Strong).await?;
    let mut bytes = Vec::new();
    for key in keys {
        let item = items.get(&key).ok_or_else(|| CatalogError::Missing { key: key.clone() })?;
        let chunk = Fields::of(item).bytes(DATA).map_err(|field| FormError { key, field })?;
        bytes.extend_from_slice(chunk);
    }
    if Digest::of([bytes.as_slice()]).hex() != meta.digest {
        return Err(CatalogError::Corrupt { part, message: "its digest isn't the pointer's".to_owned() });
    }
    unpack(part, &bytes)
}

fn pointer_commit(
    region: &Region,
    meta: &CatalogMeta,
    (part, after): (CatalogPart, PartMeta),
    mut writes: Vec<Write>,
    now: Timestamp,
) -> Commit {
    let key = keys::catalog(region);
    let expect = if meta.revision == 0 { Expect::Absent } else { Expect::Revision(meta.revision) };
    // What differs between two commits of one part and one moment: the content and the error.
    let content = format!("{after:?}");
    let mut next = CatalogMeta { revision: meta.revision.saturating_add(1), parts: meta.parts.clone() };
    next.parts.insert(part, after);
    writes.push(form::set(key.clone(), &next));
    let texts = [part.to_string(), content, next.revision.to_string(), now.to_string()];
    let token = CommitToken::of_texts(texts.iter().map(String::as_str));
    Commit { token, conditions: vec![Condition::Item { key, expect }], writes }
}

fn put_chunk(key: Key, chunk: &[u8]) -> Write {
    let mut item = Item::new();
    item.insert(VERSION.to_owned(), Value::number(form::VERSION_WRITTEN));
    item.insert(DATA.to_owned(), Value::B(chunk.to_vec()));
    Write::Put { key, item }
}

fn expire(key: Key, now: Timestamp) -> Write {
    let at = now.saturating_add(OLD_GENERATION_KEPT).unwrap_or(now);
    Write::Set { key, set: Item::from([(EXPIRES_AT.to_owned(), seconds(at))]), remove: Vec::new() }
}

fn pack(data: &PartData) -> Result<Vec<u8>, CatalogError> {
    let part = data.part();
    let wrong = |message: String| CatalogError::Pack { part, message };
    let plain = postcard::to_allocvec(&PartForm::of(data)).map_err(|error| wrong(error.to_string()))?;
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&plain).and_then(|()| encoder.finish()).map_err(|error| wrong(error.to_string()))
}

fn unpack(part: CatalogPart, bytes: &[u8]) -> Result<PartData, CatalogError> {
    let wrong = |message: String| CatalogError::Corrupt { part, message };
    let mut plain = Vec::new();
    let mut decoder = DeflateDecoder::new(bytes).take(UNPACKED_BYTES);
    decoder.read_to_end(&mut plain).map_err(|error| wrong(error.to_string()))?;
    let form: PartForm = postcard::from_bytes(&plain).map_err(|error| wrong(error.to_string()))?;
    let data = form.data().map_err(|error| wrong(error.to_string()))?;
    if data.part() == part { Ok(data) } else { Err(wrong(format!("it holds `{}`", data.part()))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryConfig, MemoryTable, Operation, block_on};
    use tenon_domain::id::{InstanceType, Zone};
    use tenon_domain::money::UsdPerHour;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn region() -> Region {
        Region::parse("us-east-1").unwrap()
    }

    fn table() -> MemoryTable {
        let config = MemoryConfig { staleness_max: SignedDuration::ZERO, ..MemoryConfig::strict(1) };
        MemoryTable::new(config, Arc::new(|| at(1_000)))
    }

    fn prices(nanos: u64) -> PartData {
        let name = InstanceType::parse("m5.large").unwrap();
        let zone = Zone::parse("us-east-1a").unwrap();
        let prices = BTreeMap::from([(zone, UsdPerHour::from_nanos(nanos))]);
        PartData::SpotPrices(BTreeMap::from([(name, prices)]))
    }

    /// Prices that don't compress: several items.
    fn many_prices() -> PartData {
        let price = |n: u64| {
            let nanos = Digest::of_texts([n.to_string().as_str()]).bytes()[..8].try_into().unwrap();
            let name = InstanceType::parse(format!("m{n}.large")).unwrap();
            (name, UsdPerHour::from_nanos(u64::from_le_bytes(nanos)))
        };
        PartData::OnDemandPrices((0..60_000).map(price).collect())
    }

    fn refresh(table: &MemoryTable, data: &PartData, now: i64) -> Commit {
        let meta = block_on(read_meta(table, &region(), Consistency::Strong)).unwrap();
        let commit = refresh_commit(&region(), &meta, data, at(now)).unwrap();
        block_on(table.commit(&commit)).unwrap();
        commit
    }

    fn read(table: &MemoryTable, part: CatalogPart, cache: &CatalogCache) -> Option<Part> {
        block_on(read_parts(table, &region(), &[part], cache)).unwrap().remove(&part)
    }

    #[test]
    fn a_refresh_is_read_back_and_a_warm_reader_reads_the_pointer_only() {
        let (table, cache) = (table(), CatalogCache::new());
        assert!(read(&table, CatalogPart::SpotPrices, &cache).is_none());
        refresh(&table, &prices(5), 100);
        let part = read(&table, CatalogPart::SpotPrices, &cache).unwrap();
        assert_eq!((&*part.data, part.generation, part.refreshed_at), (&prices(5), 1, at(100)));
        table.reset_meter();
        assert_eq!(read(&table, CatalogPart::SpotPrices, &cache).unwrap().generation, 1);
        let used: Vec<Operation> = table.meter().operations.keys().copied().collect();
        assert_eq!(used, [Operation::GetItem]);
    }

    #[test]
    fn an_unchanged_refresh_writes_the_time_only() {
        let (table, cache) = (table(), CatalogCache::new());
        refresh(&table, &prices(5), 100);
        assert_eq!(refresh(&table, &prices(5), 200).writes.len(), 1);
        let part = read(&table, CatalogPart::SpotPrices, &cache).unwrap();
        assert_eq!((part.generation, part.refreshed_at), (1, at(200)));
        // The new generation's item, the old one's expiry, the pointer.
        assert_eq!(refresh(&table, &prices(6), 300).writes.len(), 3);
        let part = read(&table, CatalogPart::SpotPrices, &cache).unwrap();
        assert_eq!((&*part.data, part.generation), (&prices(6), 2));
        let old = table.peek(&keys::packed(&region(), CatalogPart::SpotPrices, 1, 0)).unwrap();
        assert_eq!(old[EXPIRES_AT], Value::number(300_u64 + 3_600));
    }

    #[test]
    fn a_large_part_is_cut_and_put_together() {
        let (table, cache) = (table(), CatalogCache::new());
        refresh(&table, &many_prices(), 100);
        let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
        assert!(meta.parts[&CatalogPart::OnDemandPrices].items >= 2, "{meta:?}");
        assert_eq!(*read(&table, CatalogPart::OnDemandPrices, &cache).unwrap().data, many_prices());
    }

    #[test]
    fn of_two_refreshes_one_loses() {
        let table = table();
        let meta = CatalogMeta::default();
        let first = refresh_commit(&region(), &meta, &prices(5), at(100)).unwrap();
        let second = refresh_commit(&region(), &meta, &prices(6), at(100)).unwrap();
        block_on(table.commit(&first)).unwrap();
        let lost = block_on(table.commit(&second)).unwrap_err();
        assert!(matches!(lost, crate::CommitError::LostRace { .. }), "{lost}");
        assert_eq!(*read(&table, CatalogPart::SpotPrices, &CatalogCache::new()).unwrap().data, prices(5));
    }

    #[test]
    fn a_failed_refresh_keeps_the_content_and_says_since_when() {
        let table = table();
        refresh(&table, &prices(5), 100);
        for now in [200, 300] {
            let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
            let commit = failure_commit(&region(), &meta, CatalogPart::SpotPrices, "throttled", at(now));
            block_on(table.commit(&commit)).unwrap();
        }
        let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
        let part = &meta.parts[&CatalogPart::SpotPrices];
        assert_eq!((part.refreshed_at, part.failing_since), (Some(at(100)), Some(at(200))));
        assert_eq!(part.last_error.as_deref(), Some("throttled"));
        refresh(&table, &prices(5), 400);
        let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
        assert_eq!(meta.parts[&CatalogPart::SpotPrices].last_error, None);
    }

    #[test]
    fn what_isnt_what_the_pointer_says_is_an_error() {
        let table = table();
        refresh(&table, &prices(5), 100);
        let key = keys::packed(&region(), CatalogPart::SpotPrices, 1, 0);
        let writes = vec![put_chunk(key, &[1, 2, 3])];
        let commit = Commit { token: CommitToken::of_texts(["x"]), conditions: vec![], writes };
        block_on(table.commit(&commit)).unwrap();
        let read = block_on(read_parts(&table, &region(), &[CatalogPart::SpotPrices], &CatalogCache::new()));
        assert!(matches!(read, Err(CatalogError::Corrupt { .. })), "{read:?}");
    }
}
