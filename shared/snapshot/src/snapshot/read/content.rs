//! The content of one chunk.
//!
//! Decides how the objects, shapes and reports of a chunk are read. It doesn't read rows of pods, which need the
//! shapes of other chunks.
//!
//! Invariant: an object that can't be read is kept with its errors.

use std::sync::Arc;

use serde_json::Value;
use tenon_domain::api::pod::PodShape;
use tenon_domain::drain_block::{DrainBlock, DrainObstacle};
use tenon_domain::manifest::{self, ManifestObject};
use tenon_domain::snapshot::{ActionProgress, ActionReport, Unreadable};
use tenon_table::Item;

use crate::object::{self, text};
use crate::snapshot::size::{SizeBudget, kept, size_of};
use crate::snapshot::{Chunk, ChunkError, ChunkKind};

/// A chunk's content, read.
#[derive(Debug)]
pub(super) struct ChunkContent {
    pub(super) size: u64,
    pub(super) of: Objects,
}

/// The content of a chunk.
#[derive(Debug)]
pub(super) enum Objects {
    Rows(Vec<(String, Vec<Value>)>),
    /// With the size of each.
    Shapes(Vec<(String, ReadShape, u64)>),
    Plain(Vec<Result<ManifestObject, Unreadable>>),
    Reports(Vec<ActionReport>),
}

/// A shape, or why it can't be read.
pub(super) type ReadShape = Result<Arc<PodShape>, UnreadableShape>;

/// A shape that can't be read.
#[derive(Debug, Clone)]
pub(super) struct UnreadableShape {
    /// The namespace of its pods.
    pub(super) namespace: String,
    pub(super) errors: Vec<String>,
}

pub(super) fn read_content(
    kind: ChunkKind,
    item: &Item,
    budget: SizeBudget,
) -> Result<ChunkContent, ChunkError> {
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
        | ChunkKind::Attachments
        | ChunkKind::Services
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
pub(super) fn whole_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

fn read_object(value: &Value) -> Result<ManifestObject, Unreadable> {
    let kind = text(value, "/kind").unwrap_or_default();
    let name = whole_name(object::namespace(value), object::name(value));
    manifest::read_stored(value).map_err(|errors| Unreadable {
        kind: kind.to_owned(),
        name,
        errors: kept(&errors.0),
    })
}

fn report(value: &Value) -> Option<ActionReport> {
    let progress = match text(value, "/progress")? {
        "Done" => {
            let volumes = object::list(value, "/volumes").iter().filter_map(Value::as_str);
            let volumes: Vec<String> = volumes.map(str::to_owned).collect();
            if volumes.is_empty() { ActionProgress::Done } else { ActionProgress::Left { volumes } }
        }
        _ => {
            let blocks = object::list(value, "/blocks").iter().filter_map(block).collect();
            ActionProgress::Working { pods_left: number(value, "pods_left"), blocks }
        }
    };
    let revision = value.get("number").and_then(Value::as_u64)?;
    Some(ActionReport { claim: text(value, "/claim")?.to_owned(), number: revision, progress })
}

/// An obstacle; `None` for a kind of a newer agent.
fn block(value: &Value) -> Option<DrainBlock> {
    let names = object::list(value, "/names").iter().filter_map(Value::as_str);
    Some(DrainBlock {
        by: DrainObstacle::parse(text(value, "/by")?)?,
        names: names.map(str::to_owned).collect(),
        first: text(value, "/first")?.to_owned(),
        count: number(value, "count"),
    })
}

fn number(value: &Value, field: &str) -> u32 {
    u32::try_from(value.get(field).and_then(Value::as_u64).unwrap_or(0)).unwrap_or(u32::MAX)
}
