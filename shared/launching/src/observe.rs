//! Reads what planners of nodes plan from: a cluster's view, its agent's snapshot, and what was learned of nodes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tenon_cluster::snapshot::{ChunkCache, ReadError, read};
use tenon_domain::evidence::{CatalogPart, Ready, Waiting, require_snapshot};
use tenon_domain::id::ClusterName;
use tenon_domain::snapshot::Snapshot;
use tenon_entrypoint::observe::{ClusterView, Wants};
use tenon_entrypoint::{HandlerError, Ports};
use tenon_table::Consistency;
use tenon_table::items::CatalogCache;

use crate::learned::{LearnedCache, with_own_nodes};

/// What is kept between wakes: immutable content under its digest, and the view of a look that committed nothing.
#[derive(Debug, Default)]
pub struct Caches {
    catalog: CatalogCache,
    chunks: Mutex<BTreeMap<ClusterName, ChunkCache>>,
    views: Mutex<BTreeMap<ClusterName, ClusterView>>,
    learned: LearnedCache,
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
    let mut view = ClusterView::observe_since(ports, cluster, wants, &caches.catalog, kept).await?;
    let mut cache = caches.take(cluster);
    let snapshot = read(ports.table(), cluster, Consistency::Strong, &mut cache).await;
    caches.put(cluster, cache);
    let snapshot = snapshot.map_err(read_error)?.map(|snapshot| {
        let seen_at = snapshot.seen_at;
        (snapshot, seen_at)
    });
    let snapshot = require_snapshot(snapshot, view.now);
    let known = caches.learned.read(ports, cluster, &view).await?;
    view.learned = match &snapshot {
        Ok(snapshot) => with_own_nodes(known, &view, snapshot),
        Err(_) => known,
    };
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

/// The generations that a plan is made from, as records name them.
#[must_use]
pub fn evidence(view: &ClusterView, snapshot: u64) -> BTreeMap<String, u64> {
    let mut evidence: BTreeMap<String, u64> = CatalogPart::ALL
        .into_iter()
        .filter_map(|part| Some((part.to_string(), view.parts.get(&part)?.generation)))
        .collect();
    evidence.insert("snapshot".to_owned(), snapshot);
    evidence.insert("revision".to_owned(), view.generations.revision);
    evidence
}
