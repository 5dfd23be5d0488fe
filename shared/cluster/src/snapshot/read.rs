//! Reading a snapshot back into the domain's types.
//!
//! Decides what is read anew: only chunks that the reader's cache doesn't hold. An object that can't be read is listed
//! and never hides another; a chunk that is missing makes the whole reading fail, since nobody knows what was in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tenon_domain::api::pod::{Pod, PodPhase, PodShape, Readiness, SchedulingVerdict};
use tenon_domain::id::{ClusterName, NamespacedName, NodeName, Uid};
use tenon_domain::manifest::{self, ManifestErrors, Object as Read};
use tenon_domain::snapshot::{ActionProgress, ActionReport, Snapshot, Unreadable};
use tenon_table::{Consistency, Item, Key, Table, TableError, limits};

use super::index::index_key;
use super::{
    Chunk, ChunkError, ChunkKind, ChunkRef, Heartbeat, Index, Manifest, ManifestError, chunk_key,
    heartbeat_key, manifest_key,
};
use crate::object::{self, text};

/// The answer of one batch holds 16 MB; names and keys count too.
const BATCH_BYTES: usize = 12 * 1024 * 1024;

/// Why a snapshot couldn't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The table didn't answer: ask again at the next wake.
    #[error("the table didn't answer")]
    Table(#[source] TableError),
    /// A chunk that the manifest names isn't there: the agent has written since. Read again.
    #[error("chunk `{chunk}` of generation {generation} is missing: read again")]
    Torn {
        /// Which.
        chunk: String,
        /// Whose.
        generation: u64,
    },
    /// The manifest can't be read.
    #[error("the manifest can't be read")]
    Manifest(#[source] ManifestError),
    /// A chunk can't be read.
    #[error("chunk `{chunk}` can't be read")]
    Chunk {
        /// Which.
        chunk: String,
        /// What is wrong with it.
        #[source]
        source: ChunkError,
    },
}

/// What a function read before: it reads only what changed since. One for each cluster.
#[derive(Debug, Default)]
pub struct ChunkCache {
    manifest: Option<Manifest>,
    chunks: BTreeMap<Name, Arc<Content>>,
}

type Name = (ChunkKind, String);
/// A shape, or why it can't be read.
type ReadShape = Result<Arc<PodShape>, Vec<String>>;

impl ChunkCache {
    /// The manifest that was read last: among others, whether the table was restored.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }
}

/// A chunk's content, read.
#[derive(Debug)]
enum Content {
    Rows(Vec<(String, Vec<Value>)>),
    Shapes(Vec<(String, ReadShape)>),
    Objects(Vec<Result<Read, Unreadable>>),
    Reports(Vec<ActionReport>),
}

/// Reads the manifest alone; nothing where the agent never reported.
///
/// # Errors
/// [`ReadError`] says what the caller does next.
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
                // It was written before its manifest, which only a consistent read is sure to see.
                let found = table.get(&key, Consistency::Strong).await.map_err(ReadError::Table)?;
                let read = Index::from_item(digest.clone(), &found.ok_or_else(torn)?);
                Some(read.map_err(|source| ReadError::Chunk { chunk: chunk.clone(), source })?)
            }
        },
    };
    Ok(named.whole(index))
}

/// Reads the cluster's snapshot; nothing where the agent never reported.
///
/// # Errors
/// [`ReadError`] says what the caller does next.
pub async fn read<T: Table>(
    table: &T,
    cluster: &ClusterName,
    consistency: Consistency,
    cache: &mut ChunkCache,
) -> Result<Option<Snapshot>, ReadError> {
    let keys = [manifest_key(cluster), heartbeat_key(cluster)];
    let found = table.batch_get(&keys, consistency).await.map_err(ReadError::Table)?;
    let Some(item) = found.get(&manifest_key(cluster)) else { return Ok(None) };
    let known = cache.manifest.as_ref().and_then(|manifest| manifest.index.as_ref());
    let manifest = whole(table, cluster, item, known).await?;
    // A heartbeat that can't be read says nothing: the manifest's own time counts.
    let heartbeat = found.get(&heartbeat_key(cluster)).and_then(|item| Heartbeat::from_item(item).ok());
    let named: BTreeSet<Name> =
        manifest.chunks.iter().map(|chunk| (chunk.kind, chunk.digest.clone())).collect();
    cache.chunks.retain(|name, _| named.contains(name));
    fetch(table, cluster, (&manifest, consistency), cache).await?;
    // Eventually consistent reads may not see a chunk yet that was written before its manifest.
    fetch(table, cluster, (&manifest, Consistency::Strong), cache).await?;
    for chunk in &manifest.chunks {
        if !cache.chunks.contains_key(&(chunk.kind, chunk.digest.clone())) {
            return Err(ReadError::Torn { chunk: chunk.to_string(), generation: manifest.generation });
        }
    }
    let mut snapshot = assemble(&manifest, cache);
    snapshot.generation = manifest.generation;
    snapshot.seen_at = match heartbeat {
        Some(beat) if beat.generation == manifest.generation => beat.seen_at.max(manifest.taken_at),
        Some(_) | None => manifest.taken_at,
    };
    cache.manifest = Some(manifest);
    Ok(Some(snapshot))
}

/// Reads those chunks of the manifest that the cache doesn't hold.
async fn fetch<T: Table>(
    table: &T,
    cluster: &ClusterName,
    (manifest, consistency): (&Manifest, Consistency),
    cache: &mut ChunkCache,
) -> Result<(), ReadError> {
    let missing: BTreeMap<Name, &ChunkRef> = manifest
        .chunks
        .iter()
        .map(|chunk| ((chunk.kind, chunk.digest.clone()), chunk))
        .filter(|(name, _)| !cache.chunks.contains_key(name))
        .collect();
    for batch in batches(missing.into_values()) {
        let keys: Vec<Key> = batch.iter().map(|chunk| chunk_key(cluster, chunk)).collect();
        let items = table.batch_get(&keys, consistency).await.map_err(ReadError::Table)?;
        for chunk in batch {
            if let Some(item) = items.get(&chunk_key(cluster, chunk)) {
                let wrong = |source| ReadError::Chunk { chunk: chunk.to_string(), source };
                let content = read_content(chunk.kind, item).map_err(wrong)?;
                cache.chunks.insert((chunk.kind, chunk.digest.clone()), Arc::new(content));
            }
        }
    }
    Ok(())
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

fn read_content(kind: ChunkKind, item: &Item) -> Result<Content, ChunkError> {
    let content = Chunk::unpack(item)?;
    Ok(match kind {
        ChunkKind::Pods => {
            let groups = content.get("groups").and_then(Value::as_object).into_iter().flatten();
            let rows = |rows: &Value| rows.as_array().cloned().unwrap_or_default();
            Content::Rows(groups.map(|(shape, group)| (shape.clone(), rows(group))).collect())
        }
        ChunkKind::Shapes => {
            let shapes = content.get("shapes").and_then(Value::as_object).into_iter().flatten();
            let read = |shape: &Value| {
                manifest::pod_from_value(shape).map(|pod| pod.shape).map_err(|e| sentences(&e))
            };
            Content::Shapes(shapes.map(|(digest, shape)| (digest.clone(), read(shape))).collect())
        }
        ChunkKind::Reports => {
            Content::Reports(object::list(&content, "/items").iter().filter_map(report).collect())
        }
        ChunkKind::Nodes
        | ChunkKind::DaemonSets
        | ChunkKind::Pdbs
        | ChunkKind::Volumes
        | ChunkKind::NodePools
        | ChunkKind::NodeClasses
        | ChunkKind::NodeClaims
        | ChunkKind::Namespaces => {
            Content::Objects(object::list(&content, "/items").iter().map(read_object).collect())
        }
    })
}

fn read_object(value: &Value) -> Result<Read, Unreadable> {
    let kind = text(value, "/kind").unwrap_or_default();
    let name = match object::namespace(value) {
        "" => object::name(value).to_owned(),
        namespace => format!("{namespace}/{}", object::name(value)),
    };
    manifest::read_value(value, kind).map_err(|errors| Unreadable {
        kind: kind.to_owned(),
        name,
        errors: sentences(&errors),
    })
}

fn sentences(errors: &ManifestErrors) -> Vec<String> {
    errors.0.iter().map(ToString::to_string).collect()
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

fn assemble(manifest: &Manifest, cache: &ChunkCache) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut shapes: BTreeMap<&str, &ReadShape> = BTreeMap::new();
    let mut groups: Vec<(&str, &[Value])> = Vec::new();
    let contents =
        manifest.chunks.iter().filter_map(|chunk| cache.chunks.get(&(chunk.kind, chunk.digest.clone())));
    for content in contents {
        match content.as_ref() {
            Content::Rows(found) => {
                groups.extend(found.iter().map(|(shape, rows)| (shape.as_str(), rows.as_slice())))
            }
            Content::Shapes(found) => {
                shapes.extend(found.iter().map(|(digest, shape)| (digest.as_str(), shape)))
            }
            Content::Reports(reports) => snapshot.reports.extend(reports.iter().cloned()),
            Content::Objects(objects) => objects.iter().for_each(|object| add_object(&mut snapshot, object)),
        }
    }
    for (digest, rows) in groups {
        let missing = || Err(vec![format!("shape `{digest}` is missing")]);
        let shape = shapes.get(digest).map_or_else(missing, |shape| (*shape).clone());
        for row in rows {
            match read_row(row, &shape) {
                Ok(pod) => snapshot.pods.push(pod),
                Err(unreadable) => snapshot.unreadable.push(unreadable),
            }
        }
    }
    sort(&mut snapshot);
    snapshot
}

fn add_object(snapshot: &mut Snapshot, object: &Result<Read, Unreadable>) {
    match object {
        Err(unreadable) => snapshot.unreadable.push(unreadable.clone()),
        Ok(Read::Node(node)) => snapshot.nodes.push(Clone::clone(node)),
        Ok(Read::DaemonSet(set)) => snapshot.daemon_sets.push(Clone::clone(set)),
        Ok(Read::PodDisruptionBudget(pdb)) => snapshot.pdbs.push(Clone::clone(pdb)),
        Ok(Read::PersistentVolume(volume)) => snapshot.persistent_volumes.push(Clone::clone(volume)),
        Ok(Read::PersistentVolumeClaim(claim)) => snapshot.persistent_volume_claims.push(Clone::clone(claim)),
        Ok(Read::StorageClass(class)) => snapshot.storage_classes.push(Clone::clone(class)),
        Ok(Read::NodePool(pool)) => snapshot.node_pools.push(Clone::clone(pool)),
        Ok(Read::NodeClass(class)) => snapshot.node_classes.push(Clone::clone(class)),
        Ok(Read::NodeClaim(claim)) => snapshot.node_claims.push(Clone::clone(claim)),
        Ok(Read::Namespace(meta)) => {
            snapshot.namespaces.insert(meta.name.clone(), meta.labels.clone());
        }
        // Kinds that no chunk of objects holds.
        Ok(Read::Pod(_) | Read::Workload(_) | Read::PriorityClass(_) | Read::Skipped(_)) => {}
    }
}

/// Lists are in the order of names, whatever buckets they came from.
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
    let unreadable = |errors: Vec<String>| Unreadable { kind: "Pod".to_owned(), name: name.clone(), errors };
    let mut shape = shape.clone().map_err(unreadable)?;
    if let Some(own) = row.get(8).and_then(Value::as_object) {
        let own = own.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        Arc::make_mut(&mut shape).labels.extend(own);
    }
    let node = match field(3) {
        "" => None,
        node => Some(NodeName::parse(node).map_err(|error| unreadable(vec![error.to_string()]))?),
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
        uid: uid.map_err(|error| unreadable(vec![error.to_string()]))?,
        name: NamespacedName { namespace: shape.namespace.clone(), name },
        created_at: seconds(2),
        started_at: seconds(6),
        node,
        phase: phase(field(4)),
        readiness: if flags.contains('r') { Readiness::Ready } else { Readiness::NotReady },
        scheduling,
        deleted_at: seconds(7),
        shape,
    })
}

fn phase(text: &str) -> PodPhase {
    match text {
        "Running" => PodPhase::Running,
        "Succeeded" => PodPhase::Succeeded,
        "Failed" => PodPhase::Failed,
        "Unknown" => PodPhase::Unknown,
        _ => PodPhase::Pending,
    }
}
