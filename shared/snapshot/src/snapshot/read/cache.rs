//! The chunks that a function keeps between its reads.
//!
//! Decides how much is kept, and whose chunks go first. It doesn't decide which chunks are read.
//!
//! Invariant: a function's caches hold no more than their limit, unless one cluster's alone does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenon_domain::id::ClusterName;

use super::content::ChunkContent;
use crate::snapshot::size::{CLASSES_SIZE_MOST, KEPT_SIZE_MOST};
use crate::snapshot::{ChunkKind, Manifest};

/// A chunk's kind and digest, which name its content.
pub(super) type ChunkName = (ChunkKind, String);

/// The content of a function's last read of a cluster, so that the next one reads only changes.
#[derive(Debug, Default)]
pub struct ChunkCache {
    pub(super) manifest: Option<Manifest>,
    pub(super) chunks: BTreeMap<ChunkName, Arc<ChunkContent>>,
}

impl ChunkCache {
    /// The last manifest, which also tells whether the table was restored.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    pub(super) fn size(&self) -> u64 {
        self.chunks.values().fold(0, |sum, content| sum.saturating_add(content.size))
    }
}

/// The caches of several clusters, bounded together, because they share a function's memory.
#[derive(Debug)]
pub struct ChunkCaches {
    kept: Mutex<BTreeMap<ClusterName, ChunkCache>>,
    most: u64,
}

/// Of whole snapshots.
impl Default for ChunkCaches {
    fn default() -> Self {
        Self { kept: Mutex::default(), most: KEPT_SIZE_MOST }
    }
}

impl ChunkCaches {
    /// Of EC2NodeClasses alone.
    #[must_use]
    pub fn of_classes() -> Self {
        Self { kept: Mutex::default(), most: CLASSES_SIZE_MOST }
    }

    /// Takes a cluster's out while it is used: another run of the cluster begins with an empty one.
    pub fn take(&self, cluster: &ClusterName) -> ChunkCache {
        self.lock().remove(cluster).unwrap_or_default()
    }

    /// Stores a cache. If the total is too large, the largest others are dropped, and read again later.
    pub fn put(&self, cluster: &ClusterName, cache: ChunkCache) {
        let mut kept = self.lock();
        kept.insert(cluster.clone(), cache);
        while kept.values().map(ChunkCache::size).sum::<u64>() > self.most {
            let others = kept.iter().filter(|(name, _)| *name != cluster);
            let Some(largest) = others.max_by_key(|(_, cache)| cache.size()).map(|(name, _)| name.clone())
            else {
                break;
            };
            kept.remove(&largest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClusterName, ChunkCache>> {
        // A panic elsewhere can't break a cache: it is stored only after a complete read.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
