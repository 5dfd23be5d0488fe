//! The manifest, which names the chunks of a generation, and the heartbeat, which confirms it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenon_table::{Item, ItemError, from_item, to_item};

use super::index::{Differences, Index};
use super::{ChunkKind, ChunkRef, VERSION};

/// The content of a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The revision, on which the next write is conditional.
    pub revision: u64,
    /// The count of changes.
    pub generation: u64,
    /// The time of the agent's look.
    pub taken_at: Timestamp,
    /// When the agent found an older generation in the table than it had written: the table was restored. It stays
    /// until the next restoration.
    pub restored_at: Option<Timestamp>,
    /// The API server's version, such as `1.35`; `None` from an agent that doesn't report it.
    pub kubernetes_version: Option<String>,
    /// The number of pending pods.
    pub pending_pods: u32,
    /// How many buckets a kind has.
    pub buckets: BTreeMap<ChunkKind, u32>,
    /// The chunks, by kind and bucket.
    pub chunks: Vec<ChunkRef>,
    /// The index of the chunks, if there are many.
    pub index: Option<Index>,
}

/// A manifest without the content of its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnindexedManifest {
    manifest: Manifest,
    gone: Vec<(ChunkKind, u32)>,
    /// The digest of its index.
    pub(super) index: Option<String>,
}

impl UnindexedManifest {
    /// The manifest with the chunks of its index.
    pub(super) fn whole(self, index: Option<Index>) -> Manifest {
        let Self { mut manifest, gone, .. } = self;
        if let Some(index) = &index {
            manifest.chunks = index.with(Differences { changed: manifest.chunks, gone });
        }
        manifest.index = index;
        manifest
    }

    /// Its generation.
    pub(super) const fn generation(&self) -> u64 {
        self.manifest.generation
    }
}

/// The agent's last confirmation of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Which generation.
    pub generation: u64,
    /// When.
    pub seen_at: Timestamp,
}

/// A manifest or heartbeat that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotManifestError {
    /// The item isn't of the form.
    #[error("the agent's item isn't of the form `v: {VERSION}`")]
    Form(#[source] ItemError),
    /// A version that this reader doesn't know.
    #[error("the agent's item has version `{found}`: expected up to {}, update the functions", VERSION + 1)]
    Version {
        /// The version found.
        found: u32,
    },
    /// A field with a value that it can't have.
    #[error("`{field}` of the agent's item can't be `{value}`")]
    Field {
        /// Which.
        field: &'static str,
        /// Its value.
        value: String,
    },
}

#[derive(Serialize, Deserialize)]
struct ManifestForm {
    v: u32,
    revision: u64,
    generation: u64,
    taken_at: String,
    #[serde(default)]
    restored: bool,
    restored_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kubernetes_version: Option<String>,
    #[serde(default)]
    pending_pods: u32,
    buckets: BTreeMap<String, u32>,
    chunks: Vec<String>,
    index: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct HeartbeatForm {
    v: u32,
    generation: u64,
    seen_at: String,
}

impl Manifest {
    /// The manifest as an item.
    ///
    /// # Errors
    /// [`SnapshotManifestError::Form`], where the table can't hold it.
    pub fn to_item(&self) -> Result<Item, SnapshotManifestError> {
        let differences = match &self.index {
            Some(index) => index.differences(&self.chunks),
            None => Differences { changed: self.chunks.clone(), gone: Vec::new() },
        };
        let form = ManifestForm {
            v: VERSION,
            revision: self.revision,
            generation: self.generation,
            taken_at: self.taken_at.to_string(),
            restored: self.restored_at.is_some(),
            restored_at: self.restored_at.map(|at| at.to_string()),
            kubernetes_version: self.kubernetes_version.clone(),
            pending_pods: self.pending_pods,
            buckets: self.buckets.iter().map(|(kind, count)| (kind.to_string(), *count)).collect(),
            chunks: differences.changed.iter().map(ToString::to_string).collect(),
            index: self.index.as_ref().map(|index| index.digest.clone()),
            gone: differences.gone.iter().map(|(kind, bucket)| format!("{kind}/{bucket}")).collect(),
        };
        to_item(&form).map_err(SnapshotManifestError::Form)
    }

    /// Reads an item. Chunks of unknown kinds are skipped: a newer agent may report more.
    ///
    /// # Errors [`SnapshotManifestError`] names the problem.
    pub(super) fn from_item(item: &Item) -> Result<UnindexedManifest, SnapshotManifestError> {
        let form: ManifestForm = from_item(item).map_err(SnapshotManifestError::Form)?;
        check_version(form.v)?;
        let buckets = form.buckets.iter().filter_map(|(kind, count)| Some((ChunkKind::parse(kind)?, *count)));
        let restored_at = match &form.restored_at {
            None => None,
            Some(text) => Some(read_time("restored_at", text)?),
        };
        let place = |text: &String| {
            let (kind, bucket) = text.split_once('/')?;
            Some((ChunkKind::parse(kind)?, bucket.parse().ok()?))
        };
        let manifest = Self {
            revision: form.revision,
            generation: form.generation,
            taken_at: read_time("taken_at", &form.taken_at)?,
            restored_at,
            kubernetes_version: form.kubernetes_version,
            pending_pods: form.pending_pods,
            buckets: buckets.collect(),
            chunks: form.chunks.iter().filter_map(|chunk| ChunkRef::parse(chunk)).collect(),
            index: None,
        };
        Ok(UnindexedManifest {
            manifest,
            gone: form.gone.iter().filter_map(place).collect(),
            index: form.index,
        })
    }
}

impl Heartbeat {
    /// The heartbeat as an item.
    ///
    /// # Errors
    /// [`SnapshotManifestError::Form`], where the table can't hold it.
    pub fn to_item(&self) -> Result<Item, SnapshotManifestError> {
        let form =
            HeartbeatForm { v: VERSION, generation: self.generation, seen_at: self.seen_at.to_string() };
        to_item(&form).map_err(SnapshotManifestError::Form)
    }

    /// Reads an item.
    ///
    /// # Errors [`SnapshotManifestError`] names the problem.
    pub fn from_item(item: &Item) -> Result<Self, SnapshotManifestError> {
        let form: HeartbeatForm = from_item(item).map_err(SnapshotManifestError::Form)?;
        check_version(form.v)?;
        Ok(Self { generation: form.generation, seen_at: read_time("seen_at", &form.seen_at)? })
    }
}

fn check_version(found: u32) -> Result<(), SnapshotManifestError> {
    if found > VERSION + 1 { Err(SnapshotManifestError::Version { found }) } else { Ok(()) }
}

fn read_time(field: &'static str, text: &str) -> Result<Timestamp, SnapshotManifestError> {
    text.parse().map_err(|_| SnapshotManifestError::Field { field, value: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            revision: 4,
            generation: 7,
            taken_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            restored_at: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            kubernetes_version: Some("1.35".to_owned()),
            pending_pods: 2,
            buckets: BTreeMap::from([(ChunkKind::Pods, 2)]),
            chunks: vec![ChunkRef {
                kind: ChunkKind::Pods,
                bucket: 1,
                digest: "4f3c8a2b9d1e0f56".into(),
                bytes: 51,
            }],
            index: None,
        }
    }

    #[test]
    fn the_forms_are_stable() {
        let heartbeat = Heartbeat { generation: 7, seen_at: manifest().taken_at };
        insta::assert_snapshot!(format!(
            "{:#?}\n{:#?}",
            manifest().to_item().unwrap(),
            heartbeat.to_item().unwrap()
        ));
        assert_eq!(Heartbeat::from_item(&heartbeat.to_item().unwrap()).unwrap(), heartbeat);
    }

    #[test]
    fn a_manifest_comes_back_and_unknown_kinds_are_left_out() {
        let mut item = manifest().to_item().unwrap();
        assert_eq!(Manifest::from_item(&item).unwrap().whole(None), manifest());
        item.insert("chunks".into(), tenon_table::Value::L(vec![tenon_table::Value::text("leases/0/aa/1")]));
        assert!(Manifest::from_item(&item).unwrap().whole(None).chunks.is_empty());
        item.insert("taken_at".into(), tenon_table::Value::text("then"));
        assert_eq!(
            Manifest::from_item(&item).unwrap_err().to_string(),
            "`taken_at` of the agent's item can't be `then`"
        );
    }
}
