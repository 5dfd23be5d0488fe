//! Nodes of ours that became empty: `disruption` is rung for them, because changes of bound pods alone wake nobody.
//!
//! Decides a hint only. The function judges by the snapshot, and its sweep finds what a lost ring or a restart missed.

use std::collections::BTreeSet;

use tenon_domain::labels;
use tenon_snapshot::object;
use tenon_snapshot::pod::{PodLife, PodRunner};
use tenon_snapshot::snapshot::ClusterObjects;

/// The nodes that were empty at the last report; none before the first one.
#[derive(Debug, Clone, Default)]
pub(crate) struct EmptyNodes(Option<BTreeSet<String>>);

impl EmptyNodes {
    /// How many nodes are empty that weren't at the last report.
    pub(crate) fn observe(&mut self, objects: &ClusterObjects) -> u32 {
        let stays = |pod: &&std::sync::Arc<tenon_snapshot::SeenPod>| {
            pod.life == PodLife::Active && pod.runner == PodRunner::Other && pod.deleted_at.is_none()
        };
        let used: BTreeSet<&str> =
            objects.pods.iter().filter(stays).filter_map(|pod| pod.node.as_deref()).collect();
        let initialized = |node: &&object::Object| {
            object::texts(node, "/metadata/labels").any(|(key, _)| key == labels::INITIALIZED)
        };
        let names = objects.nodes.iter().filter(initialized).map(|node| object::name(node));
        let empty: BTreeSet<String> = names.filter(|name| !used.contains(name)).map(str::to_owned).collect();
        let new = self.0.as_ref().map_or(0, |known| empty.difference(known).count());
        self.0 = Some(empty);
        u32::try_from(new).unwrap_or(u32::MAX)
    }
}
