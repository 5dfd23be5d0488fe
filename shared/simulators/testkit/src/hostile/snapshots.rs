//! Snapshots that no agent writes: bombs, rubbish, and those in another cluster's name.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenon_domain::id::ClusterName;
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::snapshot::{
    CHUNK_PREFIX, Chunk, ChunkKind, ChunkRef, Heartbeat, Manifest, chunk_key, heartbeat_key, manifest_key,
    partition,
};
use tenon_snapshot::{Kind, Object};
use tenon_table::{Item, Key, Value, Write};

use crate::random::Dice;

/// More text than functions read of a snapshot, which is 64 MiB.
const BOMB_BYTES: usize = 65 * 1024 * 1024;
/// More values than they read: each counts 96 bytes.
const BOMB_VALUES: usize = 1_000_000;
/// More chunks than they read, which is 22,528.
const BOMB_CHUNKS: u32 = 30_000;

tenon_domain::words! {
    /// What the third writes instead of its snapshot.
    pub(super) enum SnapshotForgery {
        /// A chunk that unpacks to more than a function reads.
        TextBomb,
        /// A chunk of few bytes with many values.
        ValueBomb,
        /// An index that names more chunks than a function reads.
        ManyChunks,
        /// A chunk that isn't deflated.
        Garbage,
        /// A chunk without content.
        NoContent,
        /// A manifest with texts for numbers.
        NoManifest,
        /// The manifest of another cluster.
        OthersManifest,
        /// Another cluster's Nodes, NodeClaims and NodePools.
        OthersObjects,
        /// The highest revision and generation.
        FarAhead,
        /// The lowest.
        Backwards,
        /// Times that don't come.
        FutureTimes,
        /// No object at all.
        Empty,
    }
}

/// The cluster that writes, and the one in whose name.
pub(super) struct ForgedSnapshot<'a> {
    pub(super) region: &'a SimulatedRegion,
    pub(super) third: &'a ClusterName,
    pub(super) other: &'a ClusterName,
}

impl ForgedSnapshot<'_> {
    /// Its writes, chunks first.
    pub(super) fn writes(&self, forgery: SnapshotForgery, dice: &mut Dice) -> Vec<Write> {
        let pack = |kind, content: &str| Chunk::pack(kind, 0, content);
        let byte = |dice: &mut Dice| u8::try_from(dice.below(256)).unwrap_or(0);
        match forgery {
            // node-classes reads classes alone, the other functions all.
            SnapshotForgery::TextBomb => {
                self.of_chunks(&[pack(ChunkKind::NodeClasses, &" ".repeat(BOMB_BYTES))])
            }
            SnapshotForgery::ValueBomb => {
                let values = format!("{{\"items\":[{}0],\"v\":1}}", "0,".repeat(BOMB_VALUES));
                self.of_chunks(&[pack(ChunkKind::NodeClasses, &values)])
            }
            SnapshotForgery::ManyChunks => self.of_many_chunks(),
            SnapshotForgery::Garbage => {
                let data = Value::B((0..1000).map(|_| byte(dice)).collect());
                self.of_content(Item::from([
                    ("v".to_owned(), Value::number(1_u64)),
                    ("data".to_owned(), data),
                ]))
            }
            SnapshotForgery::NoContent => {
                self.of_content(Item::from([("data".to_owned(), Value::text("{}"))]))
            }
            SnapshotForgery::NoManifest => {
                let fields = ["v", "revision", "generation", "taken_at", "buckets", "chunks"];
                let item = fields.map(|name| (name.to_owned(), Value::text(self.other.as_str())));
                vec![self.put_manifest(Item::from(item))]
            }
            SnapshotForgery::OthersManifest => {
                let known = self.region.table().peek(&manifest_key(self.other));
                vec![self.put_manifest(known.unwrap_or_default())]
            }
            SnapshotForgery::OthersObjects => self.of_chunks(&self.others_objects()),
            SnapshotForgery::FarAhead => {
                let numbers =
                    Manifest { revision: u64::MAX, generation: u64::MAX, ..self.manifest(Vec::new()) };
                self.of_manifest(&numbers)
            }
            SnapshotForgery::Backwards => {
                self.of_manifest(&Manifest { revision: 0, generation: 0, ..self.manifest(Vec::new()) })
            }
            SnapshotForgery::FutureTimes => self.of_the_future(),
            SnapshotForgery::Empty => self.of_manifest(&self.manifest(Vec::new())),
        }
    }

    fn manifest(&self, chunks: Vec<ChunkRef>) -> Manifest {
        Manifest {
            revision: 1,
            generation: 1,
            taken_at: self.region.now(),
            restored_at: None,
            kubernetes_version: Some("1.35".to_owned()),
            pending_pods: u32::MAX,
            buckets: chunks.iter().map(|chunk| (chunk.kind, 1)).collect::<BTreeMap<_, _>>(),
            chunks,
            index: None,
        }
    }

    /// The write of a manifest, in the other cluster's name.
    fn put_manifest(&self, mut item: Item) -> Write {
        item.insert("cluster".to_owned(), Value::text(self.other.as_str()));
        Write::Put { key: manifest_key(self.third), item }
    }

    fn of_manifest(&self, manifest: &Manifest) -> Vec<Write> {
        manifest.to_item().map(|item| self.put_manifest(item)).into_iter().collect()
    }

    fn of_chunks(&self, chunks: &[Chunk]) -> Vec<Write> {
        let put =
            |chunk: &Chunk| Write::Put { key: chunk_key(self.third, &chunk.name), item: chunk.to_item() };
        let mut writes: Vec<Write> = chunks.iter().map(put).collect();
        let names = chunks.iter().map(|chunk| chunk.name.clone()).collect();
        writes.extend(self.of_manifest(&self.manifest(names)));
        writes
    }

    /// A chunk of the kind that all functions read, with this item.
    fn of_content(&self, item: Item) -> Vec<Write> {
        let name = Chunk::pack(ChunkKind::NodeClasses, 0, "{}").name;
        let mut writes = vec![Write::Put { key: chunk_key(self.third, &name), item }];
        writes.extend(self.of_manifest(&self.manifest(vec![name])));
        writes
    }

    fn of_many_chunks(&self) -> Vec<Write> {
        let name = |bucket: u32| {
            ChunkRef { kind: ChunkKind::Pods, bucket, digest: format!("{bucket:016x}"), bytes: 1 }.to_string()
        };
        let names: Vec<String> = (0..BOMB_CHUNKS).map(name).collect();
        // An index is deflated text, as chunks are.
        let index = Chunk::pack(ChunkKind::Pods, 0, &names.join("\n"));
        let key = Key::new(partition(self.third), format!("{CHUNK_PREFIX}index#{}", index.name.digest));
        let mut writes = vec![Write::Put { key, item: index.to_item() }];
        if let Ok(mut item) = self.manifest(Vec::new()).to_item() {
            item.insert("index".to_owned(), Value::text(index.name.digest.as_str()));
            writes.push(self.put_manifest(item));
        }
        writes
    }

    fn others_objects(&self) -> Vec<Chunk> {
        let kinds = [
            (ChunkKind::Nodes, Kind::Node),
            (ChunkKind::NodeClaims, Kind::NodeClaim),
            (ChunkKind::NodePools, Kind::NodePool),
            (ChunkKind::NodeClasses, Kind::Ec2NodeClass),
        ];
        let pack = |(chunks, kind): (ChunkKind, Kind)| {
            let objects = self.region.site(self.other).map(|site| site.cluster().objects(kind));
            let texts: Vec<String> =
                objects.iter().flatten().map(|object: &Object| object.to_string()).collect();
            Chunk::pack(chunks, 0, &format!("{{\"items\":[{}],\"v\":1}}", texts.join(",")))
        };
        kinds.into_iter().map(pack).collect()
    }

    fn of_the_future(&self) -> Vec<Write> {
        let restored_at = Some(Timestamp::MAX);
        let manifest = Manifest { taken_at: Timestamp::MAX, restored_at, ..self.manifest(Vec::new()) };
        let mut writes = self.of_manifest(&manifest);
        let heartbeat = Heartbeat { generation: manifest.generation, seen_at: Timestamp::MAX };
        let item = heartbeat.to_item();
        writes.extend(item.map(|item| Write::Put { key: heartbeat_key(self.third), item }));
        writes
    }
}
