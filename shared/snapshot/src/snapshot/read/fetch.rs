//! Fetching the chunks of a snapshot.
//!
//! Decides what is read from the table: only chunks outside the reader's cache, in batches that one answer holds. It
//! doesn't decide whether a chunk that isn't found fails the read.
//!
//! Invariant: no more is read than the limit allows.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenon_domain::id::ClusterName;
use tenon_table::{Consistency, Key, Table, limits};

use super::cache::{ChunkCache, ChunkName};
use super::content::read_content;
use super::{ReadError, chunk_error};
use crate::snapshot::size::SizeBudget;
use crate::snapshot::{ChunkRef, chunk_key};

/// The answer of one batch holds 16 MB; names and keys count too.
const BATCH_BYTES: usize = 12 * 1024 * 1024;

/// The chunks that a snapshot is read from.
pub(super) struct ChunkFetch<'a, T> {
    pub(super) table: &'a T,
    pub(super) cluster: &'a ClusterName,
    pub(super) chunks: &'a [&'a ChunkRef],
    /// The largest size that is read, in bytes.
    pub(super) most: u64,
}

impl<T: Table> ChunkFetch<'_, T> {
    /// Reads the chunks that the cache lacks.
    pub(super) async fn missing(
        &self,
        cache: &mut ChunkCache,
        consistency: Consistency,
    ) -> Result<(), ReadError> {
        let mut budget = SizeBudget::new(self.most);
        budget.take(cache.size()).map_err(ReadError::TooLarge)?;
        let missing: BTreeMap<ChunkName, &ChunkRef> = self
            .chunks
            .iter()
            .map(|chunk| ((chunk.kind, chunk.digest.clone()), *chunk))
            .filter(|(name, _)| !cache.chunks.contains_key(name))
            .collect();
        for batch in batches(missing.into_values()) {
            let keys: Vec<Key> = batch.iter().map(|chunk| chunk_key(self.cluster, chunk)).collect();
            let items = self.table.batch_get(&keys, consistency).await.map_err(ReadError::Table)?;
            for chunk in batch {
                if let Some(item) = items.get(&chunk_key(self.cluster, chunk)) {
                    let wrong = |error| chunk_error(chunk.to_string(), error);
                    let content = read_content(chunk.kind, item, budget).map_err(wrong)?;
                    budget.take(content.size).map_err(ReadError::TooLarge)?;
                    cache.chunks.insert((chunk.kind, chunk.digest.clone()), Arc::new(content));
                }
            }
        }
        Ok(())
    }
}

/// Batches that one answer holds.
fn batches<'a>(chunks: impl Iterator<Item = &'a ChunkRef>) -> Vec<Vec<&'a ChunkRef>> {
    let mut batches: Vec<Vec<&ChunkRef>> = Vec::new();
    let mut bytes = 0;
    for chunk in chunks {
        match batches.last_mut() {
            Some(batch) if batch.len() < limits::BATCH_KEYS && bytes + chunk.bytes <= BATCH_BYTES => {
                bytes += chunk.bytes;
                batch.push(chunk);
            }
            Some(_) | None => {
                bytes = chunk.bytes;
                batches.push(vec![chunk]);
            }
        }
    }
    batches
}
