//! A snapshot from the contents of its chunks.
//!
//! Decides which list an object belongs to, and which shape a pod has. It reads nothing from the table.
//!
//! Invariants: lists are sorted by name, whatever the order of the chunks; a snapshot that is too large isn't
//! assembled.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tenon_domain::manifest::ManifestObject;
use tenon_domain::snapshot::{Snapshot, Unreadable};

use super::cache::ChunkCache;
use super::content::{Objects, ReadShape, UnreadableShape};
use super::row::{own_labels, read_row};
use crate::snapshot::ChunkRef;
use crate::snapshot::size::{SizeBudget, SnapshotTooLarge, first};

/// The snapshot of these chunks; a chunk counts each time it is named.
pub(super) fn assemble(
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
        Ok(ManifestObject::CsiNode(node)) => snapshot.csi_nodes.push(Clone::clone(node)),
        Ok(ManifestObject::VolumeAttachment(one)) => snapshot.volume_attachments.push(Clone::clone(one)),
        Ok(ManifestObject::Service(service)) => snapshot.services.push(Clone::clone(service)),
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
    snapshot.csi_nodes.sort_by_cached_key(|node| key(&node.meta));
    snapshot.volume_attachments.sort_by(|one, other| {
        (&one.node, &one.driver, &one.volume).cmp(&(&other.node, &other.driver, &other.volume))
    });
    snapshot.services.sort_by_cached_key(|service| key(&service.meta));
    snapshot.node_pools.sort_by(|one, other| one.name.cmp(&other.name));
    snapshot.node_classes.sort_by(|one, other| one.name.cmp(&other.name));
    snapshot.node_claims.sort_by(|one, other| one.name.cmp(&other.name));
    snapshot.reports.sort();
    snapshot.unreadable.sort();
}
