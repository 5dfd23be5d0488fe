//! `PACKED#`: parts of the catalogue as planners read them.
//!
//! Decides how a refresh is written and read: content in postcard, deflated, cut into pieces that are found by the
//! content's digest, and a pointer. The pieces are put first, one by one, since a transaction costs twice; then the
//! pointer, under its revision. So a refresh is visible wholly or not at all, and two of them never write one
//! generation. A crash between both leaves pieces that nothing points to, and they expire. Pieces are put with the
//! end of their life and never written again, but for content that stays the same for half of it.
//!
//! Invariants: a function that is warm reads the pointer and nothing else; the pieces of a pointer live for as long
//! as its part may still be used; what is read has the digest that the pointer names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tenon_domain::catalog::PartData;
use tenon_domain::digest::Digest;
use tenon_domain::evidence::{CatalogPart, Origin, RefreshFailure};
use tenon_domain::id::Region;
use tenon_domain::money::Currency;
use tenon_domain::{SignedDuration, Timestamp};

use super::catalog::{CatalogMeta, PartMeta};
use super::deflated::{deflate, inflate};
use super::form::{self, Fields, FormError, from_item, seconds};
use super::keys;
use super::packed_forms::PartForm;
use crate::key::{EXPIRES_AT, VERSION};
use crate::{
    Commit, CommitToken, Condition, Consistency, Expect, Item, Key, Table, TableError, Value, Write,
};

/// The most bytes of one packed item: well under DynamoDB's 400 KB.
pub const PACKED_BYTES: usize = 350 * 1024;

/// How long pieces live at least: readers of an older pointer, or of a restored table, still find them.
pub const PACKED_LIFE_LEAST: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How many pieces one call reads: as many of the largest as its answer may have bytes (16 MB), with room for their keys.
const PIECES_AT_ONCE: usize = 45;

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

/// The writes of a refresh.
#[derive(Debug, Clone)]
pub struct Refresh {
    /// The pieces of the content, one commit each, to be put before the pointer and in any order. Empty where those
    /// that are there will do.
    pub pieces: Vec<Commit>,
    /// The pointer, under its revision.
    pub pointer: Commit,
    /// The part as the pointer then has it.
    pub after: PartMeta,
}

impl Refresh {
    /// All commits, in the order in which they must go through; whoever loses one stops there.
    pub fn commits(&self) -> impl Iterator<Item = &Commit> {
        self.pieces.iter().chain([&self.pointer])
    }
}

/// How long pieces of a part live. They are put anew when half of that is over, so half of it must do for as long as
/// a part that can't be refreshed any more is used.
fn life(part: CatalogPart) -> SignedDuration {
    part.stale_after().saturating_mul(2).max(PACKED_LIFE_LEAST)
}

/// The writes of a refresh: pieces and the pointer, or only the pointer's time where the content is as before.
///
/// # Errors
/// [`CatalogError::Pack`] when the content can't be packed.
pub fn refresh(
    region: &Region,
    meta: &CatalogMeta,
    (data, origin): (&PartData, Origin),
    now: Timestamp,
) -> Result<Refresh, CatalogError> {
    let before = meta.parts.get(&data.part()).cloned().unwrap_or_default();
    let answered =
        PartMeta { origin, last_error: None, last_error_kind: None, failing_since: None, ..before };
    written(region, meta, (data, answered), now)
}

/// The same for content that stands in for what AWS didn't answer: the failure is said beside it.
///
/// # Errors
/// [`CatalogError::Pack`] when the content can't be packed.
pub fn refresh_without_answer(
    region: &Region,
    meta: &CatalogMeta,
    (data, origin): (&PartData, Origin),
    failure: &RefreshFailure,
    now: Timestamp,
) -> Result<Refresh, CatalogError> {
    let before = meta.parts.get(&data.part()).cloned().unwrap_or_default();
    let failing = PartMeta { origin, ..failing(before, failure, now) };
    written(region, meta, (data, failing), now)
}

/// The writes of content that is as of now.
fn written(
    region: &Region,
    meta: &CatalogMeta,
    (data, before): (&PartData, PartMeta),
    now: Timestamp,
) -> Result<Refresh, CatalogError> {
    let part = data.part();
    let bytes = pack(data)?;
    let digest = Digest::of([bytes.as_slice()]).hex();
    let life = life(part);
    let known = before.digest == digest;
    let lasting = before.packed_until.is_some_and(|until| until.duration_since(now) * 2 >= life);
    let generation = before.generation;
    let mut after = PartMeta { refreshed_at: Some(now), currency: currency(region, part), ..before };
    let mut pieces = Vec::new();
    if !(known && lasting) {
        let until = now.saturating_add(life).unwrap_or(now);
        pieces = (0_u32..)
            .zip(bytes.chunks(PACKED_BYTES))
            .map(|(n, chunk)| put_piece(keys::packed(region, part, &digest, n), chunk, until))
            .collect();
        after.packed_until = Some(until);
    }
    if !known {
        after.generation = generation.saturating_add(1);
        after.items = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        after.count = data.count() as u64;
        after.digest = digest;
    }
    Ok(Refresh { pieces, pointer: pointer_commit(region, meta, (part, after.clone()), now), after })
}

fn currency(region: &Region, part: CatalogPart) -> Option<Currency> {
    match part {
        CatalogPart::OnDemandPrices | CatalogPart::SpotPrices => Some(Currency::of_region(region)),
        CatalogPart::InstanceTypes | CatalogPart::Offerings => None,
    }
}

fn failing(before: PartMeta, failure: &RefreshFailure, now: Timestamp) -> PartMeta {
    PartMeta {
        last_error: Some(failure.message.clone()),
        last_error_kind: Some(failure.kind),
        failing_since: before.failing_since.or(Some(now)),
        ..before
    }
}

/// The write of a refresh that failed: the part stays as it is, and says why.
#[must_use]
pub fn failed(
    region: &Region,
    meta: &CatalogMeta,
    part: CatalogPart,
    failure: &RefreshFailure,
    now: Timestamp,
) -> Refresh {
    let before = meta.parts.get(&part).cloned().unwrap_or_default();
    let after = failing(before, failure, now);
    let pointer = pointer_commit(region, meta, (part, after.clone()), now);
    Refresh { pieces: Vec::new(), pointer, after }
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
    each_part(table, region, (meta, wanted), cache)
        .await?
        .into_iter()
        .map(|(part, found)| found.map(|found| (part, found)))
        .collect()
}

/// The same, for a caller that can do without a part that can't be read. All pieces that the cache doesn't have are read
/// by one call, as far as they fit its answer.
///
/// # Errors
/// [`TableError`]; an answer that the table gave only in part is one.
pub async fn each_part<T: Table>(
    table: &T,
    region: &Region,
    (meta, wanted): (&CatalogMeta, &[CatalogPart]),
    cache: &CatalogCache,
) -> Result<BTreeMap<CatalogPart, Result<Part, CatalogError>>, TableError> {
    let arrived = |part: &CatalogPart| {
        let found = meta.parts.get(part).filter(|found| found.generation > 0)?;
        Some((*part, (found, found.refreshed_at?)))
    };
    let arrived: BTreeMap<CatalogPart, (&PartMeta, Timestamp)> = wanted.iter().filter_map(arrived).collect();
    let kept: BTreeMap<CatalogPart, Arc<PartData>> = arrived
        .iter()
        .filter_map(|(part, (found, _))| Some((*part, cache.get(*part, &found.digest)?)))
        .collect();
    let lacking = arrived.iter().filter(|(part, _)| !kept.contains_key(*part));
    let keys: Vec<Key> = lacking.flat_map(|(part, (found, _))| piece_keys(region, *part, found)).collect();
    let mut pieces = BTreeMap::new();
    for keys in keys.chunks(PIECES_AT_ONCE) {
        // Consistently: the pointer may be newer than an eventual view of what it points to.
        pieces.extend(table.batch_get(keys, Consistency::Strong).await?);
    }
    let whole = |part: CatalogPart, found: &PartMeta| -> Result<Arc<PartData>, CatalogError> {
        if let Some(data) = kept.get(&part) {
            return Ok(Arc::clone(data));
        }
        let data = Arc::new(joined(&pieces, region, part, found)?);
        cache.keep(part, found.digest.clone(), Arc::clone(&data));
        Ok(data)
    };
    let part = |(part, (found, refreshed_at)): (CatalogPart, (&PartMeta, Timestamp))| {
        let read = whole(part, found);
        (part, read.map(|data| Part { data, generation: found.generation, refreshed_at }))
    };
    Ok(arrived.into_iter().map(part).collect())
}

fn piece_keys(region: &Region, part: CatalogPart, meta: &PartMeta) -> impl Iterator<Item = Key> {
    (0..meta.items).map(move |n| keys::packed(region, part, &meta.digest, n))
}

/// The content of a part from its pieces.
fn joined(
    pieces: &BTreeMap<Key, Item>,
    region: &Region,
    part: CatalogPart,
    meta: &PartMeta,
) -> Result<PartData, CatalogError> {
    let mut bytes = Vec::new();
    for key in piece_keys(region, part, meta) {
        let item = pieces.get(&key).ok_or_else(|| CatalogError::Missing { key: key.clone() })?;
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
    now: Timestamp,
) -> Commit {
    let key = keys::catalog(region);
    let expect = if meta.revision == 0 { Expect::Absent } else { Expect::Revision(meta.revision) };
    // What differs between two commits of one part and one moment: the content and the error.
    let content = format!("{after:?}");
    let mut next = CatalogMeta { revision: meta.revision.saturating_add(1), parts: meta.parts.clone() };
    next.parts.insert(part, after);
    let writes = vec![form::set(key.clone(), &next)];
    let texts = [part.to_string(), content, next.revision.to_string(), now.to_string()];
    let token = CommitToken::of_texts(texts.iter().map(String::as_str));
    Commit { token, conditions: vec![Condition::Item { key, expect }], writes }
}

fn put_piece(key: Key, chunk: &[u8], until: Timestamp) -> Commit {
    let mut item = Item::new();
    item.insert(VERSION.to_owned(), Value::number(form::VERSION_WRITTEN));
    item.insert(DATA.to_owned(), Value::B(chunk.to_vec()));
    item.insert(EXPIRES_AT.to_owned(), seconds(until));
    let token = CommitToken::of_texts([key.to_string().as_str(), until.to_string().as_str()]);
    Commit { token, conditions: Vec::new(), writes: vec![Write::Put { key, item }] }
}

fn pack(data: &PartData) -> Result<Vec<u8>, CatalogError> {
    let part = data.part();
    let wrong = |message: String| CatalogError::Pack { part, message };
    let plain = postcard::to_allocvec(&PartForm::of(data)).map_err(|error| wrong(error.to_string()))?;
    deflate(&plain).map_err(|error| wrong(error.to_string()))
}

fn unpack(part: CatalogPart, bytes: &[u8]) -> Result<PartData, CatalogError> {
    let wrong = |message: String| CatalogError::Corrupt { part, message };
    let plain = inflate(bytes, UNPACKED_BYTES).map_err(|error| wrong(error.to_string()))?;
    let form: PartForm<'_> = postcard::from_bytes(&plain).map_err(|error| wrong(error.to_string()))?;
    let data = form.data().map_err(|error| wrong(error.to_string()))?;
    if data.part() == part { Ok(data) } else { Err(wrong(format!("it holds `{}`", data.part()))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryConfig, MemoryTable, Operation, block_on};
    use tenon_domain::evidence::ErrorKind;
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

    fn refreshed(table: &MemoryTable, data: &PartData, now: i64) -> Refresh {
        let meta = block_on(read_meta(table, &region(), Consistency::Strong)).unwrap();
        refresh(&region(), &meta, (data, Origin::Answered), at(now)).unwrap()
    }

    /// Refreshes, and says how many pieces were put.
    fn put(table: &MemoryTable, data: &PartData, now: i64) -> usize {
        let refresh = refreshed(table, data, now);
        for commit in refresh.commits() {
            block_on(table.commit(commit)).unwrap();
        }
        refresh.pieces.len()
    }

    fn meta_of(table: &MemoryTable, part: CatalogPart) -> PartMeta {
        let mut meta = block_on(read_meta(table, &region(), Consistency::Strong)).unwrap();
        meta.parts.remove(&part).unwrap()
    }

    fn read(table: &MemoryTable, part: CatalogPart, cache: &CatalogCache) -> Option<Part> {
        block_on(read_parts(table, &region(), &[part], cache)).unwrap().remove(&part)
    }

    #[test]
    fn a_refresh_is_read_back_and_a_warm_reader_reads_the_pointer_only() {
        let (table, cache) = (table(), CatalogCache::new());
        assert!(read(&table, CatalogPart::SpotPrices, &cache).is_none());
        put(&table, &prices(5), 100);
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
        assert_eq!(put(&table, &prices(5), 100), 1);
        assert_eq!(put(&table, &prices(5), 200), 0);
        let part = read(&table, CatalogPart::SpotPrices, &cache).unwrap();
        assert_eq!((part.generation, part.refreshed_at), (1, at(200)));
        let old = meta_of(&table, CatalogPart::SpotPrices);
        assert_eq!(put(&table, &prices(6), 300), 1);
        let part = read(&table, CatalogPart::SpotPrices, &cache).unwrap();
        assert_eq!((&*part.data, part.generation), (&prices(6), 2));
        // Who has just read the old pointer still finds what it points to.
        let old = table.peek(&keys::packed(&region(), CatalogPart::SpotPrices, &old.digest, 0)).unwrap();
        assert_eq!(old[EXPIRES_AT], Value::number(100_u64 + 7 * 24 * 3_600));
    }

    #[test]
    fn pieces_are_put_anew_when_half_of_their_life_is_over() {
        let (table, week) = (table(), 7 * 24 * 3_600);
        put(&table, &prices(5), 100);
        assert_eq!(put(&table, &prices(5), 100 + week / 2), 0);
        assert_eq!(put(&table, &prices(5), 101 + week / 2), 1);
        let part = meta_of(&table, CatalogPart::SpotPrices);
        assert_eq!((part.generation, part.packed_until), (1, Some(at(101 + week / 2 + week))));
        for part in CatalogPart::ALL {
            assert!(life(part) >= part.stale_after() * 2, "{part}: a piece ends before its use");
        }
    }

    #[test]
    fn a_crash_before_the_pointer_changes_nothing() {
        let table = table();
        put(&table, &prices(5), 100);
        for commit in refreshed(&table, &prices(6), 200).pieces {
            block_on(table.commit(&commit)).unwrap();
        }
        assert_eq!(*read(&table, CatalogPart::SpotPrices, &CatalogCache::new()).unwrap().data, prices(5));
        assert_eq!(put(&table, &prices(6), 300), 1);
        assert_eq!(*read(&table, CatalogPart::SpotPrices, &CatalogCache::new()).unwrap().data, prices(6));
    }

    #[test]
    fn spot_prices_of_a_large_region_fit_a_few_write_units() {
        let price = |name: u64, zone: u64| {
            let digest = Digest::of_texts([name.to_string().as_str(), zone.to_string().as_str()]);
            let drawn = u64::from_le_bytes(digest.bytes()[..8].try_into().unwrap());
            // Up to 10 USD in ten-thousandths.
            UsdPerHour::from_nanos((drawn % 100_000) * 100_000)
        };
        let zones = |name| {
            let zone = |(n, letter)| (Zone::parse(format!("us-east-1{letter}")).unwrap(), price(name, n));
            (0..).zip(["a", "b", "c", "d", "e", "f"]).map(zone).collect()
        };
        let name = |n: u64| InstanceType::parse(format!("m{}g.{}xlarge", n / 20, n % 20)).unwrap();
        let all = PartData::SpotPrices((0..1_395).map(|n| (name(n), zones(n))).collect());
        let refresh = refreshed(&table(), &all, 100);
        let [piece] = refresh.pieces.as_slice() else { panic!("{}", refresh.pieces.len()) };
        let [Write::Put { item, .. }] = piece.writes.as_slice() else { panic!() };
        assert!(item[DATA].as_bytes().unwrap().len() <= 30 * 1024);
    }

    #[test]
    fn a_large_part_is_cut_and_put_together() {
        let (table, cache) = (table(), CatalogCache::new());
        put(&table, &many_prices(), 100);
        assert!(meta_of(&table, CatalogPart::OnDemandPrices).items >= 2);
        assert_eq!(*read(&table, CatalogPart::OnDemandPrices, &cache).unwrap().data, many_prices());
    }

    #[test]
    fn parts_are_read_by_one_call_and_one_that_is_broken_leaves_the_others() {
        const BROKEN: CatalogPart = CatalogPart::OnDemandPrices;
        let table = table();
        put(&table, &prices(5), 100);
        put(&table, &many_prices(), 100);
        table.reset_meter();
        let all = [BROKEN, CatalogPart::SpotPrices, CatalogPart::SpotPrices];
        assert_eq!(block_on(read_parts(&table, &region(), &all, &CatalogCache::new())).unwrap().len(), 2);
        assert_eq!(table.meter().operations[&Operation::BatchGetItem].calls, 1);
        let digest = meta_of(&table, BROKEN).digest;
        let piece = keys::packed(&region(), BROKEN, &digest, 1);
        block_on(table.commit(&put_piece(piece, &[1], at(200)))).unwrap();
        let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
        let cache = CatalogCache::new();
        let each = block_on(each_part(&table, &region(), (&meta, &all), &cache)).unwrap();
        assert!(matches!(each[&BROKEN], Err(CatalogError::Corrupt { .. })), "{:?}", each[&BROKEN]);
        assert_eq!(*each[&CatalogPart::SpotPrices].as_ref().unwrap().data, prices(5));
    }

    #[test]
    fn an_answer_holds_as_many_pieces_as_are_asked_for() {
        const { assert!((PIECES_AT_ONCE * (PACKED_BYTES + 1024)) as u64 <= crate::limits::BATCH_BYTES) };
        const { assert!(PIECES_AT_ONCE <= crate::limits::BATCH_KEYS) };
    }

    #[test]
    fn what_stands_in_for_an_answer_is_as_of_now_and_says_what_failed() {
        let table = table();
        let failure = RefreshFailure { kind: ErrorKind::Denied, message: "denied".to_owned() };
        let origin = Origin::Shipped { as_of: "2026-11-01".parse().unwrap(), region: region() };
        for now in [100, 200] {
            let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
            let given = (&prices(5), origin.clone());
            let refresh = refresh_without_answer(&region(), &meta, given, &failure, at(now)).unwrap();
            for commit in refresh.commits() {
                block_on(table.commit(commit)).unwrap();
            }
            assert_eq!(refresh.after, meta_of(&table, CatalogPart::SpotPrices));
        }
        let part = meta_of(&table, CatalogPart::SpotPrices);
        assert_eq!(
            (part.generation, part.refreshed_at, part.failing_since),
            (1, Some(at(200)), Some(at(100)))
        );
        assert_eq!((part.origin, part.last_error_kind), (origin, Some(ErrorKind::Denied)));
        put(&table, &prices(6), 300);
        let part = meta_of(&table, CatalogPart::SpotPrices);
        assert_eq!((part.generation, part.origin, part.failing_since), (2, Origin::Answered, None));
    }

    #[test]
    fn of_two_refreshes_one_loses() {
        let table = table();
        let (first, second) = (refreshed(&table, &prices(5), 100), refreshed(&table, &prices(6), 100));
        for commit in first.pieces.iter().chain(&second.pieces).chain([&first.pointer]) {
            block_on(table.commit(commit)).unwrap();
        }
        let lost = block_on(table.commit(&second.pointer)).unwrap_err();
        assert!(matches!(lost, crate::CommitError::LostRace { .. }), "{lost}");
        assert_eq!(*read(&table, CatalogPart::SpotPrices, &CatalogCache::new()).unwrap().data, prices(5));
    }

    #[test]
    fn a_failed_refresh_keeps_the_content_and_says_since_when() {
        let table = table();
        put(&table, &prices(5), 100);
        for now in [200, 300] {
            let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
            let failure = RefreshFailure { kind: ErrorKind::Throttled, message: "throttled".to_owned() };
            let refresh = failed(&region(), &meta, CatalogPart::SpotPrices, &failure, at(now));
            block_on(table.commit(&refresh.pointer)).unwrap();
        }
        let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
        let part = &meta.parts[&CatalogPart::SpotPrices];
        assert_eq!((part.refreshed_at, part.failing_since), (Some(at(100)), Some(at(200))));
        assert_eq!(part.last_error.as_deref(), Some("throttled"));
        assert_eq!(part.last_error_kind, Some(ErrorKind::Throttled));
        put(&table, &prices(5), 400);
        let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
        let part = &meta.parts[&CatalogPart::SpotPrices];
        assert_eq!((&part.last_error, part.last_error_kind), (&None, None));
    }

    #[test]
    fn what_isnt_what_the_pointer_says_is_an_error() {
        let table = table();
        put(&table, &prices(5), 100);
        let digest = meta_of(&table, CatalogPart::SpotPrices).digest;
        let key = keys::packed(&region(), CatalogPart::SpotPrices, &digest, 0);
        block_on(table.commit(&put_piece(key.clone(), &[1, 2, 3], at(200)))).unwrap();
        let read = block_on(read_parts(&table, &region(), &[CatalogPart::SpotPrices], &CatalogCache::new()));
        assert!(matches!(read, Err(CatalogError::Corrupt { .. })), "{read:?}");
        let writes = vec![Write::Delete { key }];
        let gone = Commit { token: CommitToken::of_texts(["gone"]), conditions: vec![], writes };
        block_on(table.commit(&gone)).unwrap();
        let read = block_on(read_parts(&table, &region(), &[CatalogPart::SpotPrices], &CatalogCache::new()));
        assert!(matches!(read, Err(CatalogError::Missing { .. })), "{read:?}");
    }
}
