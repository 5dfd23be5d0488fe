//! Reading a snapshot into the domain's types.
//!
//! Decides which part is read, with which consistency, and what a failure means. `fetch` decides what is read again,
//! `cache` what stays in memory, `content` how a chunk is read, `assemble` what its objects are together, `row` how a
//! pod is read.
//!
//! Invariants: an unreadable object is listed, and never hides another. A missing chunk fails the whole read, because
//! its content is unknown. So does a snapshot that is too large, of which nothing is kept.

mod assemble;
mod cache;
mod content;
mod fetch;
mod row;

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::id::ClusterName;
use tenon_domain::snapshot::Snapshot;
use tenon_table::{Consistency, Item, Key, Table, TableError};

use super::index::index_key;
use super::size::{CHUNKS_MOST, CLASSES_SIZE_MOST, SNAPSHOT_SIZE_MOST, SizeBudget, SnapshotTooLarge};
use super::{
    ChunkError, ChunkKind, ChunkRef, Heartbeat, Index, Manifest, SnapshotManifestError, heartbeat_key,
    manifest_key,
};
use assemble::assemble;
use cache::ChunkName;
use fetch::ChunkFetch;

pub use cache::{ChunkCache, ChunkCaches};

/// Why a snapshot couldn't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The table didn't answer: ask again at the next wake.
    #[error("can't read the table")]
    Table(#[source] TableError),
    /// A chunk that the manifest names isn't there: the agent has written since. Read again.
    #[error("chunk `{chunk}` of generation {generation} is missing: read again")]
    Torn {
        /// Which.
        chunk: String,
        /// The generation.
        generation: u64,
    },
    /// The manifest can't be read.
    #[error("invalid manifest")]
    Manifest(#[source] SnapshotManifestError),
    /// It is more than a function reads: the cluster waits until its agent reports less.
    #[error(transparent)]
    TooLarge(SnapshotTooLarge),
    /// A chunk can't be read.
    #[error("invalid chunk `{chunk}`")]
    Chunk {
        /// Which.
        chunk: String,
        /// The problem.
        #[source]
        source: ChunkError,
    },
}

/// Reads the manifest alone; `None` if the agent never reported.
///
/// # Errors [`ReadError`] tells the caller what to do next.
pub async fn read_manifest<T: Table>(
    table: &T,
    cluster: &ClusterName,
    consistency: Consistency,
) -> Result<Option<Manifest>, ReadError> {
    let item = table.get(&manifest_key(cluster), consistency).await.map_err(ReadError::Table)?;
    match item {
        Some(item) => Ok(Some(whole(table, cluster, &item, None).await?)),
        None => Ok(None),
    }
}

/// The manifest of an item with its index, which is read where it isn't the known one.
async fn whole<T: Table>(
    table: &T,
    cluster: &ClusterName,
    item: &Item,
    known: Option<&Index>,
) -> Result<Manifest, ReadError> {
    let named = Manifest::from_item(item).map_err(ReadError::Manifest)?;
    let index = match &named.index {
        None => None,
        Some(digest) => match known.filter(|known| known.digest == *digest) {
            Some(known) => Some(known.clone()),
            None => {
                let key = index_key(cluster, digest);
                let chunk = format!("index/{digest}");
                let torn = || ReadError::Torn { chunk: chunk.clone(), generation: named.generation() };
                // It was written before its manifest, and only a consistent read is sure to see it.
                let found = table.get(&key, Consistency::Strong).await.map_err(ReadError::Table)?;
                let read = Index::from_item(digest.clone(), &found.ok_or_else(torn)?);
                Some(read.map_err(|source| chunk_error(chunk.clone(), source))?)
            }
        },
    };
    let manifest = named.whole(index);
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let (size, most) = (count(manifest.chunks.len()), count(CHUNKS_MOST));
    if size > most {
        return Err(ReadError::TooLarge(SnapshotTooLarge { size, most, unit: "chunks" }));
    }
    Ok(manifest)
}

fn chunk_error(chunk: String, error: ChunkError) -> ReadError {
    match error {
        ChunkError::TooLarge(too_large) => ReadError::TooLarge(too_large),
        source @ (ChunkError::NoData | ChunkError::Packing(_) | ChunkError::Json(_)) => {
            ReadError::Chunk { chunk, source }
        }
    }
}

/// Reads the cluster's snapshot; `None` if the agent never reported.
///
/// # Errors [`ReadError`] tells the caller what to do next.
pub async fn read<T: Table>(
    table: &T,
    cluster: &ClusterName,
    consistency: Consistency,
    cache: &mut ChunkCache,
) -> Result<Option<Snapshot>, ReadError> {
    PartRead { table, cluster, consistency, part: SnapshotPart::Whole }.all(cache).await
}

/// Reads only the EC2NodeClasses of the cluster's snapshot; `None` if the agent never reported.
///
/// # Errors [`ReadError`] tells the caller what to do next.
pub async fn read_classes<T: Table>(
    table: &T,
    cluster: &ClusterName,
    consistency: Consistency,
    cache: &mut ChunkCache,
) -> Result<Option<Snapshot>, ReadError> {
    PartRead { table, cluster, consistency, part: SnapshotPart::Classes }.all(cache).await
}

/// The same, with the items of the manifest and the heartbeat among those that the caller has read consistently.
///
/// # Errors [`ReadError`] tells the caller what to do next.
pub async fn read_classes_of<T: Table>(
    table: &T,
    cluster: &ClusterName,
    found: &BTreeMap<Key, Item>,
    cache: &mut ChunkCache,
) -> Result<Option<Snapshot>, ReadError> {
    let part = SnapshotPart::Classes;
    PartRead { table, cluster, consistency: Consistency::Strong, part }.of(found, cache).await
}

/// The part of a snapshot to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SnapshotPart {
    Whole,
    Classes,
}

impl SnapshotPart {
    const fn size_most(self) -> u64 {
        match self {
            Self::Whole => SNAPSHOT_SIZE_MOST,
            Self::Classes => CLASSES_SIZE_MOST,
        }
    }

    /// The chunks of it.
    fn of(self, chunks: &[ChunkRef]) -> Vec<&ChunkRef> {
        let is_of = |kind: ChunkKind| match self {
            Self::Whole => true,
            Self::Classes => kind == ChunkKind::NodeClasses,
        };
        chunks.iter().filter(|chunk| is_of(chunk.kind)).collect()
    }
}

/// A read of a part of a cluster's snapshot.
struct PartRead<'a, T> {
    table: &'a T,
    cluster: &'a ClusterName,
    consistency: Consistency,
    part: SnapshotPart,
}

impl<T: Table> PartRead<'_, T> {
    async fn all(self, cache: &mut ChunkCache) -> Result<Option<Snapshot>, ReadError> {
        let keys = [manifest_key(self.cluster), heartbeat_key(self.cluster)];
        let found = self.table.batch_get(&keys, self.consistency).await.map_err(ReadError::Table)?;
        self.of(&found, cache).await
    }

    /// With the manifest's item and the heartbeat's among these.
    async fn of(
        self,
        found: &BTreeMap<Key, Item>,
        cache: &mut ChunkCache,
    ) -> Result<Option<Snapshot>, ReadError> {
        let Self { table, cluster, consistency, part } = self;
        let Some(item) = found.get(&manifest_key(cluster)) else { return Ok(None) };
        let known = cache.manifest.as_ref().and_then(|manifest| manifest.index.as_ref());
        let manifest = whole(table, cluster, item, known).await?;
        // Without a readable heartbeat, the manifest's own time counts.
        let heartbeat = found.get(&heartbeat_key(cluster)).and_then(|item| Heartbeat::from_item(item).ok());
        let chunks = part.of(&manifest.chunks);
        let named: BTreeSet<ChunkName> =
            chunks.iter().map(|chunk| (chunk.kind, chunk.digest.clone())).collect();
        cache.chunks.retain(|name, _| named.contains(name));
        let most = part.size_most();
        let fetched = async {
            let fetch = ChunkFetch { table, cluster, chunks: &chunks, most };
            fetch.missing(cache, consistency).await?;
            // An eventually consistent read may miss a chunk that was written before its manifest.
            fetch.missing(cache, Consistency::Strong).await
        };
        let assembled = fetched.await.and_then(|()| {
            for chunk in &chunks {
                if !cache.chunks.contains_key(&(chunk.kind, chunk.digest.clone())) {
                    return Err(ReadError::Torn {
                        chunk: chunk.to_string(),
                        generation: manifest.generation,
                    });
                }
            }
            assemble(&chunks, cache, SizeBudget::new(most)).map_err(ReadError::TooLarge)
        });
        if matches!(assembled, Err(ReadError::TooLarge(_))) {
            cache.chunks.clear();
        }
        let mut snapshot = assembled?;
        snapshot.generation = manifest.generation;
        snapshot.kubernetes_version.clone_from(&manifest.kubernetes_version);
        snapshot.seen_at = match heartbeat {
            Some(beat) if beat.generation == manifest.generation => beat.seen_at.max(manifest.taken_at),
            Some(_) | None => manifest.taken_at,
        };
        cache.manifest = Some(manifest);
        Ok(Some(snapshot))
    }
}
