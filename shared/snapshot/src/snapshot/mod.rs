//! The form of a cluster's snapshot in the table, version 1: `AGENT#<cluster>` with `CHUNK#<kind>#<digest>`,
//! `MANIFEST` and `HEARTBEAT`.
//!
//! Decides the form, the projection of objects, their chunks, and the order of writes: chunks, their index if there
//! are many, then the manifest. So a reader of any manifest finds its chunks. Chunks are content-addressed: only
//! changes are written.
//!
//! Invariants: a chunk's name is the digest of its content; chunks that a manifest dropped stay for
//! [`RETIRED_CHUNKS_STAY`], for readers of that manifest; one unreadable object never hides another.
//!
//! Rows keep their fields, so older readers can read them, with placeholders for a bound pod.
//!
//! Objects are deflated JSON in a binary attribute. For 20,000 pods plain text is four times as large, and the items
//! for people are those that functions write.

mod bucket;
mod chunk;
mod encode;
mod index;
mod manifest;
mod parts;
mod project;
mod read;
mod size;
mod write;

#[cfg(test)]
mod large_tests;
#[cfg(test)]
mod tests;

use jiff::SignedDuration;
use tenon_domain::id::ClusterName;
use tenon_table::Key;

pub use chunk::{Chunk, ChunkError, ChunkRef};
pub use encode::{ClusterObjects, Encoded, Encoder};
pub use index::Index;
pub use manifest::{Heartbeat, Manifest, SnapshotManifestError};
pub use project::keep;
pub use read::{ChunkCache, ChunkCaches, ReadError, read, read_classes, read_classes_of, read_manifest};
pub use size::{CHUNKS_MOST, CLASSES_SIZE_MOST, KEPT_SIZE_MOST, SNAPSHOT_SIZE_MOST, SnapshotTooLarge};
pub use write::{WriteError, beat, retire_orphans, write};

pub(crate) use chunk::content_digest as shape_digest;
pub(crate) use project::{pod_row, pod_shape};

/// The version of the forms that are written.
pub const VERSION: u32 = 1;
/// How long chunks without a manifest stay readable.
pub const RETIRED_CHUNKS_STAY: SignedDuration = SignedDuration::from_hours(1);
/// No chunk is larger than this: an item holds 400 KB.
pub const CHUNK_BYTES: usize = 300 * 1024;

tenon_domain::words! {
    /// The content of a chunk. Keys and manifests have its word.
    pub enum ChunkKind {
        /// Pods: rows by shape.
        Pods = "pods",
        /// Pods' needs: each shape once.
        Shapes = "shapes",
        /// Nodes.
        Nodes = "nodes",
        /// DaemonSets.
        DaemonSets = "daemonsets",
        /// PodDisruptionBudgets.
        Pdbs = "pdbs",
        /// PersistentVolumes, their claims, StorageClasses.
        Volumes = "volumes",
        /// CSINodes and VolumeAttachments: what Nodes may attach, and have.
        Attachments = "attachments",
        /// Services' selectors.
        Services = "services",
        /// NodePools.
        NodePools = "nodepools",
        /// EC2NodeClasses.
        NodeClasses = "nodeclasses",
        /// NodeClaims.
        NodeClaims = "nodeclaims",
        /// Namespaces' labels.
        Namespaces = "namespaces",
        /// The agent's results of its actions.
        Reports = "reports",
    }
}

/// The partition that the cluster's agent writes.
#[must_use]
pub fn partition(cluster: &ClusterName) -> String {
    format!("AGENT#{cluster}")
}

/// The key of the manifest.
#[must_use]
pub fn manifest_key(cluster: &ClusterName) -> Key {
    Key::new(partition(cluster), "MANIFEST")
}

/// The key of the heartbeat.
#[must_use]
pub fn heartbeat_key(cluster: &ClusterName) -> Key {
    Key::new(partition(cluster), "HEARTBEAT")
}

/// The key of a chunk.
#[must_use]
pub fn chunk_key(cluster: &ClusterName, chunk: &ChunkRef) -> Key {
    Key::new(partition(cluster), format!("{CHUNK_PREFIX}{}#{}", chunk.kind, chunk.digest))
}

/// The prefix of chunks' sort keys.
pub const CHUNK_PREFIX: &str = "CHUNK#";
