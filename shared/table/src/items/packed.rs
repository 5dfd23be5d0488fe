//! `PACKED#`: parts of the catalogue, in the planners' form.
//!
//! Decides how a refresh is written and read. Content is postcard, deflated, and cut into pieces named by the
//! content's digest; a pointer names the digest. The pieces are written first, one by one, because a transaction
//! costs twice; then the pointer, under its revision. So a refresh is visible wholly or not at all, and two refreshes
//! never write one generation. A crash in between leaves pieces without a pointer, which expire. Pieces are written
//! with their expiry, and again only if the same content lives for half of that time.
//!
//! Invariants: a warm function reads only the pointer; a pointer's pieces live for as long as its part may be used;
//! content has the digest that the pointer names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tenon_domain::catalog::PartData;
use tenon_domain::digest::Digest;
use tenon_domain::evidence::{CatalogPart, PartOrigin, RefreshFailure};
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
    Commit, Consistency, Expect, Item, Key, Table, TableError, Value, Write, WriteCondition, content_commit,
};

/// The most bytes of one packed item: well under DynamoDB's 400 KB.
pub const PACKED_BYTES: usize = 350 * 1024;

/// How long pieces live at least: readers of an older pointer, or of a restored table, still find them.
pub const PACKED_LIFE_LEAST: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How many pieces one call reads: as many of the largest as its answer may have bytes (16 MB), with room for their keys.
const PIECES_AT_ONCE: usize = 45;

/// The most unpacked bytes of a part, as protection against a forged item.
const UNPACKED_BYTES: u64 = 64 * 1024 * 1024;

const DATA: &str = "data";

/// The requested parts that were ever refreshed.
pub type RefreshedParts = BTreeMap<CatalogPart, RefreshedPart>;

/// A part as of its last refresh.
#[derive(Debug, Clone)]
pub struct RefreshedPart {
    /// Its content.
    pub data: Arc<PartData>,
    /// Its generation.
    pub generation: u64,
    /// When EC2 last confirmed it.
    pub refreshed_at: Timestamp,
}

/// Why the catalogue couldn't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The table couldn't be read.
    #[error("can't read the catalogue")]
    Read(#[from] TableError),
    /// An item doesn't have its form.
    #[error("invalid item in the catalogue")]
    Form(#[from] FormError),
    /// A packed item that the pointer names isn't there.
    #[error("item `{key}` is missing, but the catalogue refers to it: refresh the part")]
    Missing {
        /// The item.
        key: Key,
    },
    /// Packed content that can't be unpacked.
    #[error("can't unpack catalogue part `{part}`: {message}")]
    Corrupt {
        /// The part.
        part: CatalogPart,
        /// The problem.
        message: String,
    },
    /// Content that can't be packed.
    #[error("can't pack catalogue part `{part}`: {message}")]
    Pack {
        /// The part.
        part: CatalogPart,
        /// The problem.
        message: String,
    },
}

/// A function's cache: content never changes under its digest.
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
    /// The pieces of the content, one commit each, in any order before the pointer. Empty if the existing ones will
    /// do.
    pub pieces: Vec<Commit>,
    /// The pointer, under its revision.
    pub pointer: Commit,
    /// The part as the pointer then has it.
    pub after: PartMeta,
}

impl Refresh {
    /// All commits, in order; a lost race ends the refresh.
    pub fn commits(&self) -> impl Iterator<Item = &Commit> {
        self.pieces.iter().chain([&self.pointer])
    }
}

/// The life of a part's pieces. They are written again after half of it, so half of it must cover the time for which
/// a part without refresh is used.
fn life(part: CatalogPart) -> SignedDuration {
    part.stale_after().saturating_mul(2).max(PACKED_LIFE_LEAST)
}

/// The writes of a refresh: pieces and the pointer, or only the pointer's time for unchanged content.
///
/// # Errors [`CatalogError::Pack`] if the content can't be packed.
pub fn refresh(
    region: &Region,
    meta: &CatalogMeta,
    data: &PartData,
    now: Timestamp,
) -> Result<Refresh, CatalogError> {
    let before = meta.parts.get(&data.part()).cloned().unwrap_or_default();
    let answered = PartMeta {
        origin: PartOrigin::Answered,
        last_error: None,
        last_error_kind: None,
        failing_since: None,
        ..before
    };
    written(region, meta, data, answered, now)
}

/// Content that stands in for what AWS didn't answer.
#[derive(Debug, Clone)]
pub struct Substitute<'a> {
    /// The content.
    pub data: &'a PartData,
    /// Where it is from.
    pub origin: PartOrigin,
}

/// The same for a stand-in for AWS's answer, with the failure beside it.
///
/// # Errors [`CatalogError::Pack`] if the content can't be packed.
pub fn refresh_without_answer(
    region: &Region,
    meta: &CatalogMeta,
    content: Substitute<'_>,
    failure: &RefreshFailure,
    now: Timestamp,
) -> Result<Refresh, CatalogError> {
    let Substitute { data, origin } = content;
    let before = meta.parts.get(&data.part()).cloned().unwrap_or_default();
    let failing = PartMeta { origin, ..failing(before, failure, now) };
    written(region, meta, data, failing, now)
}

/// The writes of content that is as of now.
fn written(
    region: &Region,
    meta: &CatalogMeta,
    data: &PartData,
    before: PartMeta,
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
    Ok(Refresh { pieces, pointer: pointer_commit(region, meta, part, after.clone()), after })
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

/// The write of a failed refresh: the part stays, with the error.
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
    let pointer = pointer_commit(region, meta, part, after.clone());
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

/// The requested parts that were ever refreshed. Reads the pointer, and only those pieces that the cache lacks.
///
/// # Errors [`CatalogError`]. A part that was never refreshed is no error: it is absent.
pub async fn read_parts<T: Table>(
    table: &T,
    region: &Region,
    wanted: &[CatalogPart],
    cache: &CatalogCache,
) -> Result<RefreshedParts, CatalogError> {
    let meta = read_meta(table, region, Consistency::Eventual).await?;
    parts_of(table, region, &meta, wanted, cache).await
}

/// The same, for a caller that has read the pointer already.
///
/// # Errors
/// As [`read_parts`].
pub async fn parts_of<T: Table>(
    table: &T,
    region: &Region,
    meta: &CatalogMeta,
    wanted: &[CatalogPart],
    cache: &CatalogCache,
) -> Result<RefreshedParts, CatalogError> {
    each_part(table, region, meta, wanted, cache)
        .await?
        .into_iter()
        .map(|(part, found)| found.map(|found| (part, found)))
        .collect()
}

/// The same, for a caller that tolerates an unreadable part. One call reads all pieces that the cache lacks, as far
/// as they fit its answer.
///
/// # Errors [`TableError`], also for an incomplete answer.
pub async fn each_part<T: Table>(
    table: &T,
    region: &Region,
    meta: &CatalogMeta,
    wanted: &[CatalogPart],
    cache: &CatalogCache,
) -> Result<BTreeMap<CatalogPart, Result<RefreshedPart, CatalogError>>, TableError> {
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
        // Consistently: an eventual read may be older than the pointer.
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
        (part, read.map(|data| RefreshedPart { data, generation: found.generation, refreshed_at }))
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
        return Err(CatalogError::Corrupt { part, message: "its digest doesn't match".to_owned() });
    }
    unpack(part, &bytes)
}

fn pointer_commit(region: &Region, meta: &CatalogMeta, part: CatalogPart, after: PartMeta) -> Commit {
    let key = keys::catalog(region);
    let expect = if meta.revision == 0 { Expect::Absent } else { Expect::Revision(meta.revision) };
    let mut next = CatalogMeta { revision: meta.revision.saturating_add(1), parts: meta.parts.clone() };
    next.parts.insert(part, after);
    content_commit(vec![WriteCondition::Item { key: key.clone(), expect }], vec![form::set(key, &next)])
}

fn put_piece(key: Key, chunk: &[u8], until: Timestamp) -> Commit {
    let mut item = Item::new();
    item.insert(VERSION.to_owned(), Value::number(form::VERSION_WRITTEN));
    item.insert(DATA.to_owned(), Value::B(chunk.to_vec()));
    item.insert(EXPIRES_AT.to_owned(), seconds(until));
    content_commit(Vec::new(), vec![Write::Put { key, item }])
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

    #[test]
    fn an_answer_holds_as_many_pieces_as_are_asked_for() {
        const { assert!((PIECES_AT_ONCE * (PACKED_BYTES + 1024)) as u64 <= crate::limits::BATCH_BYTES) };
        const { assert!(PIECES_AT_ONCE <= crate::limits::BATCH_KEYS) };
    }

    #[test]
    fn a_piece_lives_longer_than_it_is_used() {
        for part in CatalogPart::ALL {
            assert!(life(part) >= part.stale_after() * 2, "{part}: a piece ends before its use");
        }
    }
}
