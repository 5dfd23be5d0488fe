//! Everything that a snapshot holds, from the API server.
//!
//! Decides nothing: what is sent of the objects, the encoder decides.

use tenon_snapshot::snapshot::ClusterObjects;
use tenon_snapshot::{Kind, Kube, KubeError};

use crate::faces::list;

/// Lists everything that a snapshot holds.
pub(super) async fn observe_objects<K: Kube>(kube: &K) -> Result<ClusterObjects, KubeError> {
    let mut objects = ClusterObjects { pods: kube.pods().await?, ..ClusterObjects::default() };
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Pod) {
        if let Some(of_kind) = kind.chunks().and_then(|chunks| objects.plain(chunks)) {
            of_kind.extend(list(kube, kind).await?);
        }
    }
    Ok(objects)
}
