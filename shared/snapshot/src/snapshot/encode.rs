//! From a cluster's objects to chunks and a manifest.
//!
//! Decides the chunks, and which of them are new. It doesn't write.
//!
//! Invariant: equal objects give equal chunks, in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenon_domain::drain_block::DrainBlock;
use tenon_domain::snapshot::{ActionProgress, ActionReport};

use super::bucket::{MOST_BUCKETS, bucket_count, bucket_of};
use super::chunk::content_digest;
use super::index::index_for;
use super::parts::{Groups, parts};
use super::project::sent;
use super::{CHUNK_BYTES, Chunk, ChunkKind, ChunkRef, Manifest, VERSION};
use crate::object::{self, Object, text};
use crate::pod::{PodLife, PodNeeds, PodRef, SeenPod};

/// The objects and results that the agent reports.
#[derive(Debug, Clone, Default)]
pub struct ClusterObjects {
    /// Pods; finished ones are left out of the snapshot.
    pub pods: Vec<PodRef>,
    /// Nodes.
    pub nodes: Vec<Object>,
    /// DaemonSets.
    pub daemon_sets: Vec<Object>,
    /// PodDisruptionBudgets.
    pub pdbs: Vec<Object>,
    /// PersistentVolumes, PersistentVolumeClaims and StorageClasses.
    pub volumes: Vec<Object>,
    /// CSINodes and VolumeAttachments.
    pub attachments: Vec<Object>,
    /// Services.
    pub services: Vec<Object>,
    /// NodePools.
    pub node_pools: Vec<Object>,
    /// EC2NodeClasses.
    pub node_classes: Vec<Object>,
    /// NodeClaims.
    pub node_claims: Vec<Object>,
    /// Namespaces.
    pub namespaces: Vec<Object>,
    /// The API server's version, such as `1.35`.
    pub kubernetes_version: Option<String>,
    /// How far the agent's actions are.
    pub reports: Vec<ActionReport>,
}

impl ClusterObjects {
    /// The objects of such chunks, if these hold plain objects.
    pub const fn plain(&mut self, chunks: ChunkKind) -> Option<&mut Vec<Object>> {
        match chunks {
            ChunkKind::Nodes => Some(&mut self.nodes),
            ChunkKind::DaemonSets => Some(&mut self.daemon_sets),
            ChunkKind::Pdbs => Some(&mut self.pdbs),
            ChunkKind::Volumes => Some(&mut self.volumes),
            ChunkKind::Attachments => Some(&mut self.attachments),
            ChunkKind::Services => Some(&mut self.services),
            ChunkKind::NodePools => Some(&mut self.node_pools),
            ChunkKind::NodeClasses => Some(&mut self.node_classes),
            ChunkKind::NodeClaims => Some(&mut self.node_claims),
            ChunkKind::Namespaces => Some(&mut self.namespaces),
            ChunkKind::Pods | ChunkKind::Shapes | ChunkKind::Reports => None,
        }
    }
}

/// A snapshot, ready to be written.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// Names all chunks. Its revision and generation are the previous one's: the writer raises them.
    pub manifest: Manifest,
    /// The chunks that the previous manifest doesn't name.
    pub new: Vec<Chunk>,
    /// The chunks that only the previous manifest names.
    pub dropped: Vec<ChunkRef>,
    /// Kinds with a change; empty if the manifest is equal to the previous one.
    pub changed: BTreeSet<ChunkKind>,
}

/// Encodes snapshots, and remembers the last one, so that only changed objects are read and written again. A shared
/// object is known by its pointer. It remembers text, because a tree of JSON is many times as large.
#[derive(Debug, Default)]
pub struct Encoder {
    seen: Vec<PodRef>,
    rows: Vec<PodRef>,
    shapes: BTreeMap<String, Arc<PodNeeds>>,
    pending: usize,
    plain: BTreeMap<ChunkKind, PlainObjects>,
    digests: BTreeMap<ChunkKind, Digests>,
}

/// One object on its way into a chunk: the name that decides its bucket, and its content as JSON.
type Entry = (String, Box<str>);

/// The objects of a kind, and the parts that are sent.
#[derive(Debug, Default)]
struct PlainObjects {
    seen: Vec<Object>,
    entries: BTreeMap<String, (Object, Box<str>)>,
}

/// The digests of a kind's buckets, as long as their content is unchanged.
#[derive(Debug)]
struct Digests {
    buckets: u32,
    of: BTreeMap<u32, String>,
}

impl Encoder {
    /// Encodes a report against the manifest in the table.
    pub fn encode(
        &mut self,
        objects: &ClusterObjects,
        previous: Option<&Manifest>,
        taken_at: Timestamp,
    ) -> Encoded {
        self.read_pods(&objects.pods);
        for (kind, of_kind) in plain_kinds(objects) {
            self.read_plain(kind, of_kind);
        }
        let mut build = Build::new(previous);
        let Self { rows, shapes, plain, digests, .. } = self;
        build.add(ChunkKind::Pods, rows.len(), digests, |buckets| pod_chunks(rows, buckets));
        build.add(ChunkKind::Shapes, shapes.len(), digests, |buckets| shape_chunks(shapes, buckets));
        for (kind, PlainObjects { entries, .. }) in plain {
            let texts = || entries.iter().map(|(name, (_, text))| (name.as_str(), &**text));
            build.add(*kind, entries.len(), digests, |buckets| item_chunks(texts(), buckets));
        }
        let reports = report_entries(objects);
        digests.remove(&ChunkKind::Reports);
        let texts = || reports.iter().map(|(claim, text)| (claim.as_str(), &**text));
        build.add(ChunkKind::Reports, reports.len(), digests, |buckets| item_chunks(texts(), buckets));
        let pending_pods = u32::try_from(self.pending).unwrap_or(u32::MAX);
        let mut encoded = build.finish(previous, taken_at, pending_pods);
        encoded.manifest.kubernetes_version.clone_from(&objects.kubernetes_version);
        // Aliases of EC2NodeClasses name other images after an upgrade.
        if previous.is_some_and(|previous| previous.kubernetes_version != objects.kubernetes_version) {
            encoded.changed.insert(ChunkKind::NodeClasses);
        }
        encoded
    }

    /// Takes the pods that aren't finished, by namespace, name and UID.
    fn read_pods(&mut self, pods: &[PodRef]) {
        if are_same(&self.seen, pods) {
            return;
        }
        let mut rows: Vec<PodRef> = pods.iter().filter(|pod| pod.life == PodLife::Active).cloned().collect();
        rows.sort_by(|one, other| (&one.key, &one.uid).cmp(&(&other.key, &other.uid)));
        let shapes: BTreeMap<String, Arc<PodNeeds>> =
            rows.iter().map(|pod| (pod.shape().digest().to_owned(), Arc::clone(pod.shape()))).collect();
        if !shapes.keys().eq(self.shapes.keys()) {
            self.digests.remove(&ChunkKind::Shapes);
        }
        self.digests.remove(&ChunkKind::Pods);
        self.pending = pods.iter().filter(|pod| pod.is_pending()).count();
        self.shapes = shapes;
        self.rows = rows;
        self.seen = pods.to_vec();
    }

    /// Reads the objects of a kind that are another than before.
    fn read_plain(&mut self, kind: ChunkKind, objects: &[Object]) {
        let plain = self.plain.entry(kind).or_default();
        if are_same(&plain.seen, objects) {
            return;
        }
        let mut before = std::mem::take(&mut plain.entries);
        let had = before.len();
        let mut changed = false;
        for object in objects {
            let of = text(object, "/kind").unwrap_or_default();
            let name = format!("{of}/{}/{}", object::namespace(object), object::name(object));
            let known = before.remove(&name);
            let content = match &known {
                Some((seen, content)) if Arc::ptr_eq(seen, object) => content.clone(),
                Some(_) | None => sent(object).to_string().into_boxed_str(),
            };
            changed |= known.is_none_or(|(_, known)| known != content);
            plain.entries.insert(name, (Arc::clone(object), content));
        }
        if changed || had != plain.entries.len() {
            self.digests.remove(&kind);
        }
        plain.seen = objects.to_vec();
    }
}

/// Whether these are the same shared objects, which never change.
fn are_same<T>(seen: &[Arc<T>], objects: &[Arc<T>]) -> bool {
    seen.len() == objects.len() && seen.iter().zip(objects).all(|(one, other)| Arc::ptr_eq(one, other))
}

/// Collects chunks of all kinds.
struct Build<'a> {
    known: BTreeMap<(ChunkKind, u32), &'a ChunkRef>,
    before: BTreeMap<ChunkKind, u32>,
    buckets: BTreeMap<ChunkKind, u32>,
    chunks: Vec<ChunkRef>,
    new: Vec<Chunk>,
}

impl<'a> Build<'a> {
    fn new(previous: Option<&'a Manifest>) -> Self {
        let chunks = previous.into_iter().flat_map(|manifest| &manifest.chunks);
        Self {
            known: chunks.map(|chunk| ((chunk.kind, chunk.bucket), chunk)).collect(),
            before: previous.map(|manifest| manifest.buckets.clone()).unwrap_or_default(),
            buckets: BTreeMap::new(),
            chunks: Vec::new(),
            new: Vec::new(),
        }
    }

    /// Adds a kind; `contents` gives the JSON of each non-empty bucket, for a number of buckets. It isn't called if
    /// the digests of the same content are remembered, and the previous manifest names them all.
    fn add(
        &mut self,
        kind: ChunkKind,
        objects: usize,
        digests: &mut BTreeMap<ChunkKind, Digests>,
        contents: impl Fn(u32) -> BTreeMap<u32, String>,
    ) {
        let mut buckets = bucket_count(kind, objects, self.before.get(&kind).copied().unwrap_or(1));
        loop {
            let packed = match self.named_already(kind, buckets, digests.get(&kind)) {
                Some(names) => names.into_iter().map(|name| (name, None)).collect(),
                None => {
                    let packed = self.pack(kind, contents(buckets));
                    let of = packed.iter().map(|(name, _)| (name.bucket, name.digest.clone())).collect();
                    digests.insert(kind, Digests { buckets, of });
                    packed
                }
            };
            let largest = packed.iter().map(|(name, _)| name.bytes).max().unwrap_or(0);
            if largest <= CHUNK_BYTES || buckets >= MOST_BUCKETS {
                if objects > 0 {
                    self.buckets.insert(kind, buckets);
                }
                for (name, chunk) in packed {
                    self.chunks.push(name);
                    self.new.extend(chunk);
                }
                return;
            }
            buckets *= 2;
        }
    }

    /// The chunks' names, if the previous manifest names all of them.
    fn named_already(
        &self,
        kind: ChunkKind,
        buckets: u32,
        digests: Option<&Digests>,
    ) -> Option<Vec<ChunkRef>> {
        let digests = digests.filter(|digests| digests.buckets == buckets)?;
        let named = |(bucket, digest): (&u32, &String)| {
            let known = self.known.get(&(kind, *bucket)).filter(|known| known.digest == *digest)?;
            Some((*known).clone())
        };
        digests.of.iter().map(named).collect()
    }

    /// The chunks' names, and those chunks that aren't known.
    fn pack(&self, kind: ChunkKind, contents: BTreeMap<u32, String>) -> Vec<(ChunkRef, Option<Chunk>)> {
        let pack = |(bucket, content): (u32, String)| {
            let digest = content_digest(&content);
            match self.known.get(&(kind, bucket)) {
                Some(known) if known.digest == digest => ((*known).clone(), None),
                Some(_) | None => {
                    let chunk = Chunk::pack(kind, bucket, &content);
                    (chunk.name.clone(), Some(chunk))
                }
            }
        };
        contents.into_iter().map(pack).collect()
    }

    fn finish(self, previous: Option<&Manifest>, taken_at: Timestamp, pending_pods: u32) -> Encoded {
        let names: BTreeSet<(ChunkKind, &str)> =
            self.chunks.iter().map(|c| (c.kind, c.digest.as_str())).collect();
        let dropped: Vec<ChunkRef> = self
            .known
            .values()
            .filter(|chunk| !names.contains(&(chunk.kind, chunk.digest.as_str())))
            .map(|chunk| (*chunk).clone())
            .collect();
        let mut changed: BTreeSet<ChunkKind> = self.new.iter().map(|chunk| chunk.name.kind).collect();
        changed.extend(dropped.iter().map(|chunk| chunk.kind));
        let manifest = Manifest {
            revision: previous.map_or(0, |manifest| manifest.revision),
            generation: previous.map_or(0, |manifest| manifest.generation),
            taken_at,
            restored_at: previous.and_then(|manifest| manifest.restored_at),
            kubernetes_version: None,
            pending_pods,
            buckets: self.buckets,
            index: index_for(&self.chunks, previous.and_then(|manifest| manifest.index.as_ref())),
            chunks: self.chunks,
        };
        Encoded { manifest, new: self.new, dropped, changed }
    }
}

/// `{"groups": {<digest of the shape>: [<row>, ...]}, "v": 1}` by bucket.
fn pod_chunks(pods: &[PodRef], buckets: u32) -> BTreeMap<u32, String> {
    let content = |groups: Groups<'_>| {
        let group = |(digest, pods): (&&str, &Vec<&SeenPod>)| {
            let rows: Vec<&str> = pods.iter().map(|pod| pod.row()).collect();
            format!("\"{digest}\":[{}]", rows.join(","))
        };
        let groups: Vec<String> = groups.iter().map(group).collect();
        versioned(&format!("\"groups\":{{{}}}", groups.join(",")))
    };
    parts(pods, buckets).into_iter().map(|(bucket, groups)| (bucket, content(groups))).collect()
}

/// `{"shapes": {<digest>: <shape>}, "v": 1}` by bucket.
fn shape_chunks(shapes: &BTreeMap<String, Arc<PodNeeds>>, buckets: u32) -> BTreeMap<u32, String> {
    let mut contents: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (digest, shape) in shapes {
        let named = format!("\"{digest}\":{}", shape.text());
        contents.entry(bucket_of(digest, buckets)).or_default().push(named);
    }
    contents
        .into_iter()
        .map(|(bucket, shapes)| (bucket, versioned(&format!("\"shapes\":{{{}}}", shapes.join(",")))))
        .collect()
}

/// `{"items": [<item>, ...], "v": 1}` by bucket.
fn item_chunks<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>, buckets: u32) -> BTreeMap<u32, String> {
    let mut contents: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (name, item) in entries {
        contents.entry(bucket_of(name, buckets)).or_default().push(item);
    }
    contents
        .into_iter()
        .map(|(bucket, items)| (bucket, versioned(&format!("\"items\":[{}]", items.join(",")))))
        .collect()
}

/// A chunk's JSON around its one member, with the form's version. Digests are hexadecimal: nothing is escaped.
fn versioned(member: &str) -> String {
    format!("{{{member},\"v\":{VERSION}}}")
}

/// The kinds stored one object after the other.
fn plain_kinds(objects: &ClusterObjects) -> [(ChunkKind, &[Object]); 10] {
    [
        (ChunkKind::Nodes, &objects.nodes),
        (ChunkKind::DaemonSets, &objects.daemon_sets),
        (ChunkKind::Pdbs, &objects.pdbs),
        (ChunkKind::Volumes, &objects.volumes),
        (ChunkKind::Attachments, &objects.attachments),
        (ChunkKind::Services, &objects.services),
        (ChunkKind::NodePools, &objects.node_pools),
        (ChunkKind::NodeClasses, &objects.node_classes),
        (ChunkKind::NodeClaims, &objects.node_claims),
        (ChunkKind::Namespaces, &objects.namespaces),
    ]
}

/// The agent's reports, each in the order of names.
fn report_entries(objects: &ClusterObjects) -> Vec<Entry> {
    let mut reports: Vec<&ActionReport> = objects.reports.iter().collect();
    reports.sort();
    reports.into_iter().map(|of| (of.claim.clone(), report(of).to_string().into_boxed_str())).collect()
}

fn report(report: &ActionReport) -> Value {
    let mut form = json!({"claim": report.claim, "number": report.number});
    let mut set = |field: &str, value: Value| {
        form.as_object_mut().map(|fields| fields.insert(field.to_owned(), value));
    };
    match &report.progress {
        ActionProgress::Working { pods_left, blocks } => {
            set("progress", json!("Working"));
            set("pods_left", json!(pods_left));
            if !blocks.is_empty() {
                set("blocks", blocks.iter().map(block).collect());
            }
        }
        ActionProgress::Done => set("progress", json!("Done")),
        // Functions of an earlier release read that it is done.
        ActionProgress::Left { volumes } => {
            set("progress", json!("Done"));
            set("volumes", json!(volumes));
        }
    }
    form
}

fn block(block: &DrainBlock) -> Value {
    json!({"by": block.by.as_str(), "names": block.names, "first": block.first, "count": block.count})
}
