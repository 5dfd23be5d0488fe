//! Reads what planners of nodes plan from: a cluster's view and its agent's snapshot.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tenon_cluster::snapshot::{ChunkCache, ReadError, read};
use tenon_domain::evidence::{Ready, Waiting, require_snapshot};
use tenon_domain::id::ClusterName;
use tenon_domain::snapshot::Snapshot;
use tenon_entrypoint::observe::{ClusterView, Wants};
use tenon_entrypoint::{HandlerError, Ports};
use tenon_table::Consistency;
use tenon_table::items::CatalogCache;

/// What is kept between wakes: immutable content under its digest, and the view of a look that committed nothing.
#[derive(Debug, Default)]
pub struct Caches {
    catalog: CatalogCache,
    chunks: Mutex<BTreeMap<ClusterName, ChunkCache>>,
    views: Mutex<BTreeMap<ClusterName, ClusterView>>,
}

/// An observation.
#[derive(Debug)]
pub struct Observed {
    /// What the table holds.
    pub view: ClusterView,
    /// What the agent reported, if that is fresh.
    pub snapshot: Result<Ready<Snapshot>, Waiting>,
}

/// Observes a cluster.
///
/// # Errors
/// [`HandlerError::Read`] and [`HandlerError::Item`].
pub async fn observe<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    wants: Wants<'_>,
    caches: &Caches,
) -> Result<Observed, HandlerError> {
    let kept = caches.views.lock().unwrap_or_else(PoisonError::into_inner).remove(cluster);
    let view = ClusterView::observe_since(ports, cluster, wants, &caches.catalog, kept).await?;
    let mut cache = caches.take(cluster);
    let snapshot = read(ports.table(), cluster, Consistency::Strong, &mut cache).await;
    caches.put(cluster, cache);
    let snapshot = snapshot.map_err(read_error)?.map(|snapshot| {
        let seen_at = snapshot.seen_at;
        (snapshot, seen_at)
    });
    let snapshot = require_snapshot(snapshot, view.now);
    Ok(Observed { view, snapshot })
}

impl Caches {
    /// Keeps the view of a look that committed nothing, for the next one. A look that does commit keeps none: what it
    /// wrote, or lost, is read anew.
    pub fn keep(&self, cluster: &ClusterName, view: ClusterView) {
        self.views.lock().unwrap_or_else(PoisonError::into_inner).insert(cluster.clone(), view);
    }

    /// Taken out while it is used: two wakes of one cluster at once read anew rather than wait.
    fn take(&self, cluster: &ClusterName) -> ChunkCache {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).remove(cluster).unwrap_or_default()
    }

    fn put(&self, cluster: &ClusterName, cache: ChunkCache) {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).insert(cluster.clone(), cache);
    }
}

fn read_error(error: ReadError) -> HandlerError {
    match error {
        ReadError::Table(error) => HandlerError::Read(error),
        other @ (ReadError::Torn { .. } | ReadError::Manifest(_) | ReadError::Chunk { .. }) => {
            HandlerError::Item { key: "MANIFEST".to_owned(), source: Box::new(other) }
        }
    }
}
