//! Reading a snapshot into the domain's types.
//!
//! Decides what is read again: only chunks outside the reader's cache. An unreadable object is listed, and never
//! hides another. A missing chunk fails the whole read, because its content is unknown. So does a snapshot that is
//! too large, of which nothing is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::Value;
use tenon_domain::api::pod::{Pod, PodPhase, PodShape, Readiness, SchedulingVerdict};
use tenon_domain::id::{ClusterName, NamespacedName, NodeName, ParseIdError, Uid};
use tenon_domain::manifest::{self, ManifestObject};
use tenon_domain::snapshot::{ActionProgress, ActionReport, Snapshot, Unreadable};
use tenon_table::{Consistency, Item, Key, Table, TableError, limits};

use super::index::index_key;
use super::size::{
    CHUNKS_MOST, CLASSES_SIZE_MOST, KEPT_SIZE_MOST, SNAPSHOT_SIZE_MOST, SizeBudget, SnapshotTooLarge, first,
    kept, size_of,
};
use super::{
    Chunk, ChunkError, ChunkKind, ChunkRef, Heartbeat, Index, Manifest, SnapshotManifestError, chunk_key,
    heartbeat_key, manifest_key,
};
use crate::object::{self, text};

/// The answer of one batch holds 16 MB; names and keys count too.
const BATCH_BYTES: usize = 12 * 1024 * 1024;

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

/// The content of a function's last read of a cluster, so that the next one reads only changes.
#[derive(Debug, Default)]
pub struct ChunkCache {
    manifest: Option<Manifest>,
    chunks: BTreeMap<Name, Arc<ChunkContent>>,
}

type Name = (ChunkKind, String);
/// A shape, or why it can't be read.
type ReadShape = Result<Arc<PodShape>, UnreadableShape>;

/// A shape that can't be read.
#[derive(Debug, Clone)]
struct UnreadableShape {
    /// The namespace of its pods.
    namespace: String,
    errors: Vec<String>,
}

impl ChunkCache {
    /// The last manifest, which also tells whether the table was restored.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    fn size(&self) -> u64 {
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

/// A chunk's content, read.
#[derive(Debug)]
struct ChunkContent {
    size: u64,
    of: Objects,
}

/// The content of a chunk.
#[derive(Debug)]
enum Objects {
    Rows(Vec<(String, Vec<Value>)>),
    /// With the size of each.
    Shapes(Vec<(String, ReadShape, u64)>),
    Plain(Vec<Result<ManifestObject, Unreadable>>),
    Reports(Vec<ActionReport>),
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
    read_part(table, cluster, consistency, cache, SnapshotPart::Whole).await
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
    read_part(table, cluster, consistency, cache, SnapshotPart::Classes).await
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

async fn read_part<T: Table>(
    table: &T,
    cluster: &ClusterName,
    consistency: Consistency,
    cache: &mut ChunkCache,
    part: SnapshotPart,
) -> Result<Option<Snapshot>, ReadError> {
    let keys = [manifest_key(cluster), heartbeat_key(cluster)];
    let found = table.batch_get(&keys, consistency).await.map_err(ReadError::Table)?;
    let Some(item) = found.get(&manifest_key(cluster)) else { return Ok(None) };
    let known = cache.manifest.as_ref().and_then(|manifest| manifest.index.as_ref());
    let manifest = whole(table, cluster, item, known).await?;
    // Without a readable heartbeat, the manifest's own time counts.
    let heartbeat = found.get(&heartbeat_key(cluster)).and_then(|item| Heartbeat::from_item(item).ok());
    let chunks = part.of(&manifest.chunks);
    let named: BTreeSet<Name> = chunks.iter().map(|chunk| (chunk.kind, chunk.digest.clone())).collect();
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
                return Err(ReadError::Torn { chunk: chunk.to_string(), generation: manifest.generation });
            }
        }
        assemble(&chunks, cache, SizeBudget::new(most)).map_err(ReadError::TooLarge)
    });
    if matches!(assembled, Err(ReadError::TooLarge(_))) {
        cache.chunks.clear();
    }
    let mut snapshot = assembled?;
    snapshot.generation = manifest.generation;
    snapshot.seen_at = match heartbeat {
        Some(beat) if beat.generation == manifest.generation => beat.seen_at.max(manifest.taken_at),
        Some(_) | None => manifest.taken_at,
    };
    cache.manifest = Some(manifest);
    Ok(Some(snapshot))
}

/// The chunks that a snapshot is read from.
struct ChunkFetch<'a, T> {
    table: &'a T,
    cluster: &'a ClusterName,
    chunks: &'a [&'a ChunkRef],
    /// The largest size that is read, in bytes.
    most: u64,
}

impl<T: Table> ChunkFetch<'_, T> {
    /// Reads the chunks that the cache lacks.
    async fn missing(&self, cache: &mut ChunkCache, consistency: Consistency) -> Result<(), ReadError> {
        let mut budget = SizeBudget::new(self.most);
        budget.take(cache.size()).map_err(ReadError::TooLarge)?;
        let missing: BTreeMap<Name, &ChunkRef> = self
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

fn read_content(kind: ChunkKind, item: &Item, budget: SizeBudget) -> Result<ChunkContent, ChunkError> {
    let (content, size) = Chunk::unpack(item, budget)?;
    let of = match kind {
        ChunkKind::Pods => {
            let groups = content.get("groups").and_then(Value::as_object).into_iter().flatten();
            let rows = |rows: &Value| rows.as_array().cloned().unwrap_or_default();
            Objects::Rows(groups.map(|(shape, group)| (shape.clone(), rows(group))).collect())
        }
        ChunkKind::Shapes => {
            let shapes = content.get("shapes").and_then(Value::as_object).into_iter().flatten();
            let read = |shape: &Value| {
                manifest::pod_from_value(shape).map(|pod| pod.shape).map_err(|errors| UnreadableShape {
                    namespace: object::namespace(shape).to_owned(),
                    errors: kept(&errors.0),
                })
            };
            let size = |shape: &Value| size_of(shape.to_string().as_bytes());
            Objects::Shapes(
                shapes.map(|(digest, shape)| (digest.clone(), read(shape), size(shape))).collect(),
            )
        }
        ChunkKind::Reports => {
            Objects::Reports(object::list(&content, "/items").iter().filter_map(report).collect())
        }
        ChunkKind::Nodes
        | ChunkKind::DaemonSets
        | ChunkKind::Pdbs
        | ChunkKind::Volumes
        | ChunkKind::NodePools
        | ChunkKind::NodeClasses
        | ChunkKind::NodeClaims
        | ChunkKind::Namespaces => {
            Objects::Plain(object::list(&content, "/items").iter().map(read_object).collect())
        }
    };
    Ok(ChunkContent { size, of })
}

/// A name with its namespace, where it has one.
fn whole_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

fn read_object(value: &Value) -> Result<ManifestObject, Unreadable> {
    let kind = text(value, "/kind").unwrap_or_default();
    let name = whole_name(object::namespace(value), object::name(value));
    manifest::read_stored(value, kind).map_err(|errors| Unreadable {
        kind: kind.to_owned(),
        name,
        errors: kept(&errors.0),
    })
}

fn report(value: &Value) -> Option<ActionReport> {
    let progress = match text(value, "/progress")? {
        "Done" => ActionProgress::Done,
        _ => {
            let left = value.get("pods_left").and_then(Value::as_u64).unwrap_or(0);
            ActionProgress::Working { pods_left: u32::try_from(left).unwrap_or(u32::MAX) }
        }
    };
    let number = value.get("number").and_then(Value::as_u64)?;
    Some(ActionReport { claim: text(value, "/claim")?.to_owned(), number, progress })
}

/// The snapshot of these chunks; a chunk counts each time it is named.
fn assemble(
    chunks: &[&ChunkRef],
    cache: &ChunkCache,
    mut budget: SizeBudget,
) -> Result<Snapshot, SnapshotTooLarge> {
    let mut snapshot = Snapshot::default();
    let mut shapes: BTreeMap<&str, (&ReadShape, u64)> = BTreeMap::new();
    let mut groups: Vec<(&str, &[Value])> = Vec::new();
    let contents = chunks.iter().filter_map(|chunk| cache.chunks.get(&(chunk.kind, chunk.digest.clone())));
    for content in contents {
        budget.take(content.size)?;
        match &content.of {
            Objects::Rows(found) => {
                groups.extend(found.iter().map(|(shape, rows)| (shape.as_str(), rows.as_slice())))
            }
            Objects::Shapes(found) => {
                shapes.extend(found.iter().map(|(digest, shape, size)| (digest.as_str(), (shape, *size))))
            }
            Objects::Reports(reports) => snapshot.reports.extend(reports.iter().cloned()),
            Objects::Plain(objects) => objects.iter().for_each(|object| add_object(&mut snapshot, object)),
        }
    }
    for (digest, rows) in groups {
        let (shape, size) = match shapes.get(digest) {
            Some((Ok(shape), size)) => (Ok(Arc::clone(shape)), *size),
            Some((Err(found), _)) => {
                (Err(UnreadableShape { errors: first(&found.errors), ..found.clone() }), 0)
            }
            None => {
                let errors = first(&[format!("shape `{digest}` is missing")]);
                (Err(UnreadableShape { namespace: String::new(), errors }), 0)
            }
        };
        for row in rows {
            if own_labels(row).is_some() {
                // The pod gets a shape of its own.
                budget.take(size)?;
            }
            match read_row(row, &shape) {
                Ok(pod) => snapshot.pods.push(pod),
                Err(unreadable) => snapshot.unreadable.push(unreadable),
            }
        }
    }
    sort(&mut snapshot);
    Ok(snapshot)
}

fn own_labels(row: &Value) -> Option<&serde_json::Map<String, Value>> {
    row.get(8).and_then(Value::as_object)
}

fn add_object(snapshot: &mut Snapshot, object: &Result<ManifestObject, Unreadable>) {
    match object {
        Err(unreadable) => snapshot.unreadable.push(unreadable.clone()),
        Ok(ManifestObject::Node(node)) => snapshot.nodes.push(Clone::clone(node)),
        Ok(ManifestObject::DaemonSet(set)) => snapshot.daemon_sets.push(Clone::clone(set)),
        Ok(ManifestObject::PodDisruptionBudget(pdb)) => snapshot.pdbs.push(Clone::clone(pdb)),
        Ok(ManifestObject::PersistentVolume(volume)) => {
            snapshot.persistent_volumes.push(Clone::clone(volume))
        }
        Ok(ManifestObject::PersistentVolumeClaim(claim)) => {
            snapshot.persistent_volume_claims.push(Clone::clone(claim))
        }
        Ok(ManifestObject::StorageClass(class)) => snapshot.storage_classes.push(Clone::clone(class)),
        Ok(ManifestObject::NodePool(pool)) => snapshot.node_pools.push(Clone::clone(pool)),
        Ok(ManifestObject::NodeClass(class)) => snapshot.node_classes.push(Clone::clone(class)),
        Ok(ManifestObject::NodeClaim(claim)) => snapshot.node_claims.push(Clone::clone(claim)),
        Ok(ManifestObject::Namespace(meta)) => {
            snapshot.namespaces.insert(meta.name.clone(), meta.labels.clone());
        }
        // Kinds that no chunk of objects holds.
        Ok(
            ManifestObject::Pod(_)
            | ManifestObject::Workload(_)
            | ManifestObject::PriorityClass(_)
            | ManifestObject::Skipped(_),
        ) => {}
    }
}

/// Lists are sorted by name, independent of buckets.
fn sort(snapshot: &mut Snapshot) {
    snapshot.pods.sort_by(|one, other| (&one.name, &one.uid).cmp(&(&other.name, &other.uid)));
    snapshot.nodes.sort_by(|one, other| one.name.cmp(&other.name));
    let key = |meta: &tenon_domain::api::ObjectMeta| (meta.namespace.clone(), meta.name.clone());
    snapshot.daemon_sets.sort_by_cached_key(|set| key(&set.meta));
    snapshot.pdbs.sort_by_cached_key(|pdb| key(&pdb.meta));
    snapshot.persistent_volumes.sort_by_cached_key(|volume| key(&volume.meta));
    snapshot.persistent_volume_claims.sort_by_cached_key(|claim| key(&claim.meta));
    snapshot.storage_classes.sort_by_cached_key(|class| key(&class.meta));
    snapshot.node_pools.sort_by(|one, other| one.name.cmp(&other.name));
    snapshot.node_classes.sort_by(|one, other| one.name.cmp(&other.name));
    snapshot.node_claims.sort_by(|one, other| one.name.cmp(&other.name));
    snapshot.reports.sort();
    snapshot.unreadable.sort();
}

/// A pod from its row; see `project::pod_row`.
fn read_row(row: &Value, shape: &ReadShape) -> Result<Pod, Unreadable> {
    let field = |index: usize| row.get(index).and_then(Value::as_str).unwrap_or_default();
    let seconds = |index: usize| Timestamp::from_second(row.get(index)?.as_i64()?).ok();
    let name = field(0).to_owned();
    let unreadable = |UnreadableShape { namespace, errors }| {
        let name = whole_name(&namespace, &name);
        Unreadable { kind: "Pod".to_owned(), name, errors }
    };
    let mut shape = shape.clone().map_err(unreadable)?;
    let namespace = shape.namespace.clone();
    let malformed = |error: ParseIdError| {
        unreadable(UnreadableShape { namespace: namespace.clone(), errors: vec![error.to_string()] })
    };
    if let Some(own) = own_labels(row) {
        let own = own.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        Arc::make_mut(&mut shape).labels.extend(own);
    }
    let node = match field(3) {
        "" => None,
        node => Some(NodeName::parse(node).map_err(malformed)?),
    };
    let flags = field(5);
    let scheduling = if flags.contains('g') {
        SchedulingVerdict::Gated
    } else if flags.contains('n') && node.is_none() {
        SchedulingVerdict::Nominated
    } else if flags.contains('u') {
        SchedulingVerdict::Unschedulable
    } else {
        SchedulingVerdict::None
    };
    // A pod that is bound has its name in the place of its UID, and names are only their namespace's own.
    let own_uid = Some(field(1)).filter(|uid| node.is_none() || *uid != name).map(Uid::parse);
    let uid = own_uid.unwrap_or_else(|| manifest::pod_uid(&shape.namespace, &name));
    Ok(Pod {
        uid: uid.map_err(malformed)?,
        name: NamespacedName { namespace: shape.namespace.clone(), name },
        created_at: seconds(2),
        started_at: seconds(6),
        node,
        phase: PodPhase::parse(field(4)).unwrap_or_default(),
        readiness: if flags.contains('r') { Readiness::Ready } else { Readiness::NotReady },
        scheduling,
        deleted_at: seconds(7),
        shape,
    })
}
