//! Reads the input of the planners of nodes: a cluster's view, its agent's snapshot, and learned memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::CompiledClasses;
use crate::heads::Heads;
use crate::view::{ClusterView, ReadAlready, Wants};
use tenon_domain::evidence::{CatalogPart, Ready, Waiting, require_snapshot};
use tenon_domain::id::ClusterName;
use tenon_domain::snapshot::Snapshot;
use tenon_runtime::{HandlerError, Ports};
use tenon_snapshot::snapshot::{ChunkCache, ChunkCaches, ReadError, SnapshotTooLarge, read};
use tenon_table::Consistency;
use tenon_table::items::CatalogCache;

use crate::learned::{LearnedCache, with_own_nodes};

/// Caches between wakes: content by digest, options by what they are made from, and the view of a look that committed
/// nothing. Within a wake, they hold the heads of the glance until the first look takes them.
#[derive(Debug, Default)]
pub struct Caches {
    catalog: CatalogCache,
    chunks: ChunkCaches,
    views: Mutex<BTreeMap<ClusterName, ClusterView>>,
    heads: Mutex<BTreeMap<ClusterName, Heads>>,
    learned: LearnedCache,
    compiled: Arc<CompiledClasses>,
}

/// An observed cluster.
#[derive(Debug)]
pub struct ClusterObservation {
    /// The table's view.
    pub view: ClusterView,
    /// The agent's snapshot, if it is fresh.
    pub snapshot: Result<Ready<Snapshot>, Waiting>,
    /// Options that earlier wakes compiled. They save time and change no plan.
    pub compiled: Arc<CompiledClasses>,
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
) -> Result<ClusterObservation, HandlerError> {
    let heads = locked(&caches.heads).remove(cluster);
    let kept = locked(&caches.views).remove(cluster);
    let mut view =
        ClusterView::observe_since(ports, cluster, wants, &caches.catalog, ReadAlready { heads, kept })
            .await?;
    let mut cache = caches.chunks.take(cluster);
    let read = reported(ports, cluster, &mut cache).await;
    caches.chunks.put(cluster, cache);
    let snapshot = read.map_err(read_error)?;
    let known = caches.learned.read(ports, cluster, &view).await?;
    view.learned = match &snapshot {
        Ok(snapshot) => with_own_nodes(known, &view, snapshot),
        Err(_) => known,
    };
    Ok(ClusterObservation { view, snapshot, compiled: Arc::clone(&caches.compiled) })
}

/// The agent's snapshot, if it is fresh and not too large. It is judged by the time after the reads: the agent may
/// report while they last.
///
/// # Errors
/// [`ReadError`], except for a snapshot that is too large, which is a [`Waiting`].
pub async fn reported<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    cache: &mut ChunkCache,
) -> Result<Result<Ready<Snapshot>, Waiting>, ReadError> {
    match read(ports.table(), cluster, Consistency::Strong, cache).await {
        Ok(found) => {
            let dated = found.map(|snapshot| {
                let seen_at = snapshot.seen_at;
                (snapshot, seen_at)
            });
            Ok(require_snapshot(dated, ports.now()))
        }
        Err(ReadError::TooLarge(SnapshotTooLarge { size, most, unit })) => {
            Ok(Err(Waiting::SnapshotTooLarge { size, most, unit }))
        }
        Err(error) => Err(error),
    }
}

impl Caches {
    /// Keeps the view of a look that committed nothing, for the next look. After a commit or a lost race, the next look
    /// must read the table again.
    pub fn keep(&self, cluster: &ClusterName, view: ClusterView) {
        locked(&self.views).insert(cluster.clone(), view);
    }

    /// Keeps the glance's heads for the wake's first look, and drops those of an earlier wake.
    pub(crate) fn glanced(&self, cluster: &ClusterName, heads: Option<Heads>) {
        let mut kept = locked(&self.heads);
        kept.remove(cluster);
        kept.extend(heads.map(|heads| (cluster.clone(), heads)));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handler's error for a snapshot's.
#[must_use]
pub fn read_error(error: ReadError) -> HandlerError {
    match error {
        ReadError::Table(error) => HandlerError::Read(error),
        other @ (ReadError::Torn { .. }
        | ReadError::Manifest(_)
        | ReadError::Chunk { .. }
        | ReadError::TooLarge(_)) => {
            HandlerError::Item { key: "MANIFEST".to_owned(), source: Box::new(other) }
        }
    }
}

/// The generations that a plan uses, under their names in the journal.
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

#[cfg(test)]
mod tests {
    use crate::heads::Watch;
    use tenon_domain::wake::FunctionName;
    use tenon_harness::{FunctionWorld, WorldConfig};
    use tenon_memory_table::block_on;
    use tenon_snapshot::snapshot::{Chunk, ChunkKind, Manifest, chunk_key, manifest_key, read_manifest};
    use tenon_table::Write;

    use super::*;
    use tenon_harness::cluster::Cluster;

    #[test]
    fn a_snapshot_that_functions_have_no_memory_for_is_waited_for() {
        let mut cluster =
            Cluster::new(FunctionWorld::new(&WorldConfig::default()).unwrap(), &["m5.large"]).unwrap();
        cluster.report().unwrap();
        let reported = read_manifest(&cluster.world.table, &cluster.name, Consistency::Strong);
        let bomb = Chunk::pack(ChunkKind::Nodes, 0, &" ".repeat(65 << 20));
        let manifest =
            Manifest { chunks: vec![bomb.name.clone()], index: None, ..block_on(reported).unwrap().unwrap() };
        let chunk = Write::Put { key: chunk_key(&cluster.name, &bomb.name), item: bomb.to_item() };
        cluster.put(chunk).unwrap();
        let manifest = Write::Put { key: manifest_key(&cluster.name), item: manifest.to_item().unwrap() };
        cluster.put(manifest).unwrap();
        let wants =
            Wants { function: FunctionName::Provisioner, parts: &[], sets: &[], watch: Watch::Everything };
        let seen = block_on(observe(&cluster.world, &cluster.name, wants, &Caches::default())).unwrap();
        let waiting = seen.snapshot.unwrap_err();
        assert_eq!(waiting.into_str(), "SnapshotTooLarge");
        assert_eq!(
            waiting.to_string(),
            "the agent's snapshot has at least 67108865 bytes, values counted, the limit is 67108864: delete what the \
             cluster has too many of, such as finished pods"
        );
    }
}
