//! The index of a manifest: a chunk with the names of most chunks of a large snapshot.
//!
//! Decides when a manifest has an index, and when it gets a new one. A manifest with the names of all chunks of
//! 20,000 pods has 12 KB, and is written with every change. With an index it names only the differences.
//!
//! Invariant: an index never changes under its digest; like any chunk, it outlives its last manifest for a while.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use tenon_domain::id::ClusterName;
use tenon_table::{Item, Key, Value};

use super::chunk::content_digest;
use super::size::SizeBudget;
use super::{CHUNK_PREFIX, ChunkError, ChunkKind, ChunkRef, VERSION, partition};

/// A manifest names so many chunks itself: some 2 KB, as much as an index would save.
pub(super) const INLINE_MOST: usize = 64;
/// The most differences of a manifest before it gets a new index. It keeps manifests at 1 KB, and the cost of a new
/// index, some 6 KB at 20,000 pods, rare.
pub(super) const DIFFERENCES_MOST: usize = 24;
/// The most bytes of an unpacked index.
const UNPACKED_BYTES: u64 = 4 * 1024 * 1024;

/// An index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The digest of its content.
    pub digest: String,
    /// The chunks that it names, by kind and bucket.
    pub chunks: Arc<BTreeMap<(ChunkKind, u32), ChunkRef>>,
}

/// The differences between chunks and an index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Differences {
    /// The chunks that it doesn't name.
    pub(super) changed: Vec<ChunkRef>,
    /// Chunks of the index that don't exist any longer.
    pub(super) gone: Vec<(ChunkKind, u32)>,
}

impl Index {
    /// The index of these chunks.
    pub(super) fn of(chunks: &[ChunkRef]) -> Self {
        let digest = content_digest(&content(chunks.iter()));
        Self { digest, chunks: Arc::new(by_place(chunks.iter().cloned())) }
    }

    /// The item that holds it.
    pub(super) fn to_item(&self) -> Item {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        // Writing into memory can't fail; an empty one would be refused by its reader.
        let written =
            encoder.write_all(content(self.chunks.values()).as_bytes()).and_then(|()| encoder.finish());
        Item::from([
            ("v".to_owned(), Value::number(VERSION)),
            ("data".to_owned(), Value::B(written.unwrap_or_default())),
        ])
    }

    /// Reads an item. Chunks of kinds that aren't known are left out.
    pub(super) fn from_item(digest: String, item: &Item) -> Result<Self, ChunkError> {
        let data = item.get("data").and_then(Value::as_bytes).ok_or(ChunkError::NoData)?;
        let text = SizeBudget::new(UNPACKED_BYTES).unpack(data)??;
        let text = String::from_utf8_lossy(&text);
        Ok(Self { digest, chunks: Arc::new(by_place(text.lines().filter_map(ChunkRef::parse))) })
    }

    /// The differences between these chunks and the index.
    pub(super) fn differences(&self, chunks: &[ChunkRef]) -> Differences {
        let now: BTreeMap<(ChunkKind, u32), &ChunkRef> =
            chunks.iter().map(|chunk| ((chunk.kind, chunk.bucket), chunk)).collect();
        let changed =
            chunks.iter().filter(|chunk| self.chunks.get(&(chunk.kind, chunk.bucket)) != Some(chunk));
        let gone = self.chunks.keys().filter(|place| !now.contains_key(*place));
        Differences { changed: changed.cloned().collect(), gone: gone.copied().collect() }
    }

    /// The chunks that it and the differences name together.
    pub(super) fn with(&self, differences: Differences) -> Vec<ChunkRef> {
        let mut chunks = BTreeMap::clone(&self.chunks);
        for place in differences.gone {
            chunks.remove(&place);
        }
        chunks.extend(by_place(differences.changed.into_iter()));
        chunks.into_values().collect()
    }
}

impl Differences {
    fn len(&self) -> usize {
        self.changed.len() + self.gone.len()
    }
}

/// The index that a manifest of these chunks has, given the one before.
pub(super) fn index_for(chunks: &[ChunkRef], before: Option<&Index>) -> Option<Index> {
    if chunks.len() <= INLINE_MOST {
        return None;
    }
    match before {
        Some(before) if before.differences(chunks).len() <= DIFFERENCES_MOST => Some(before.clone()),
        Some(_) | None => Some(Index::of(chunks)),
    }
}

/// The key of an index.
pub(super) fn index_key(cluster: &ClusterName, digest: &str) -> Key {
    Key::new(partition(cluster), format!("{CHUNK_PREFIX}index#{digest}"))
}

fn content<'a>(chunks: impl Iterator<Item = &'a ChunkRef>) -> String {
    chunks.map(|chunk| format!("{chunk}\n")).collect()
}

fn by_place(chunks: impl Iterator<Item = ChunkRef>) -> BTreeMap<(ChunkKind, u32), ChunkRef> {
    chunks.map(|chunk| ((chunk.kind, chunk.bucket), chunk)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(count: u32, changed: &[u32]) -> Vec<ChunkRef> {
        let chunk = |bucket| {
            let version = u32::from(changed.contains(&bucket));
            ChunkRef {
                kind: ChunkKind::Pods,
                bucket,
                digest: format!("{bucket:08x}{version:08x}"),
                bytes: 5_000,
            }
        };
        (0..count).map(chunk).collect()
    }

    #[test]
    fn small_snapshots_have_none_and_large_ones_keep_theirs_for_a_while() {
        assert_eq!(index_for(&chunks(64, &[]), None), None);
        let first = index_for(&chunks(65, &[]), None).unwrap();
        let some: Vec<u32> = (0..24).collect();
        assert_eq!(index_for(&chunks(65, &some), Some(&first)), Some(first.clone()));
        let more: Vec<u32> = (0..25).collect();
        assert_ne!(index_for(&chunks(65, &more), Some(&first)), Some(first.clone()));
        assert_eq!(index_for(&chunks(10, &[]), Some(&first)), None);
    }

    #[test]
    fn index_and_differences_name_what_there_is() {
        let first = Index::of(&chunks(70, &[]));
        let read = Index::from_item(first.digest.clone(), &first.to_item()).unwrap();
        assert_eq!(read, first);
        for now in [chunks(70, &[3, 69]), chunks(66, &[3]), chunks(72, &[])] {
            assert_eq!(read.with(read.differences(&now)), now);
        }
    }
}
