//! A look at the cluster: the objects that metrics are about.
//!
//! Decides how often the agent looks for metrics: after changes, at most every [`LOOK_EVERY`].

use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use tenon_snapshot::object::{Kind, Object};
use tenon_snapshot::pod::PodRef;
use tenon_snapshot::{Kube, KubeError, Versions};
use tokio::sync::watch;

use super::KarpenterMetrics;
use crate::faces::list;

/// A look at 20,000 pods takes a millisecond. The peer looks every 5 s at Nodes and every 10 s at NodePools.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Without changes: a broken watch changes nothing, but is told.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The objects at one moment.
#[derive(Debug, Clone, Default)]
pub(in crate::binary) struct ClusterLook {
    pub(super) nodes: Vec<Object>,
    pub(super) claims: Vec<Object>,
    pub(super) pools: Vec<Object>,
    pub(super) classes: Vec<Object>,
    /// Pods that aren't finished, by namespace and name.
    pub(super) pods: Vec<PodRef>,
}

/// Looks for ever.
pub(in crate::binary) async fn follow<K: Kube>(
    kube: &K,
    mut changes: watch::Receiver<Versions>,
    metrics: &KarpenterMetrics,
) -> Infallible {
    loop {
        changes.mark_unchanged();
        match observe_look(kube).await {
            Ok(look) => metrics.observe_look(look, Timestamp::now()),
            Err(_) => metrics.observe_blindness(Timestamp::now()),
        }
        tokio::time::sleep(LOOK_EVERY).await;
        // The watches are there for as long as the agent; without them, looks go on.
        let _changed = tokio::time::timeout(LOOK_AGAIN, changes.changed()).await;
    }
}

async fn observe_look<K: Kube>(kube: &K) -> Result<ClusterLook, KubeError> {
    Ok(ClusterLook {
        nodes: list(kube, Kind::Node).await?,
        claims: list(kube, Kind::NodeClaim).await?,
        pools: list(kube, Kind::NodePool).await?,
        classes: list(kube, Kind::Ec2NodeClass).await?,
        pods: kube.pods().await?,
    })
}
