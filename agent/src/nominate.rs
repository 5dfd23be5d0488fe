//! Nominations: tells kube-scheduler for which pods a Node was launched, when the Node begins to take pods.
//!
//! Decides which pods: pending pods of the claim's launch. kube-scheduler tries a pod's nominated Node first and
//! keeps its room, so that pods run where they were planned; otherwise it spreads them as it likes, and an exact plan
//! leaves some without room. kube-scheduler drops a nomination if the pod doesn't fit, as while the Node isn't Ready.
//! Nominations are optional: other pods are scheduled anyway, or planned again.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::claim::Claim;
use tenon_domain::id::{ClaimName, ClusterName};
use tenon_domain::launch::Launch;
use tenon_snapshot::{Kube, KubeError, ObjectKey};
use tenon_table::items::keys;
use tenon_table::{Key, Table, TableError};

use crate::decided::read_items;

/// The pods that wait for their claims' Nodes, by Node.
pub(crate) type WaitingByNode = BTreeMap<String, Vec<(ObjectKey, String)>>;

/// The pending pods of claims, given with the names of their Nodes.
///
/// # Errors [`TableError`] if the launches can't be read; a refusal of the API server is the inner error.
pub(crate) async fn waiting_pods<K: Kube, T: Table>(
    kube: &K,
    table: &T,
    cluster: &ClusterName,
    opening: &BTreeMap<ClaimName, String>,
) -> Result<Result<WaitingByNode, KubeError>, TableError> {
    if opening.is_empty() {
        return Ok(Ok(WaitingByNode::new()));
    }
    let claims: Vec<Key> = opening.keys().map(|claim| keys::claim(cluster, claim)).collect();
    let claims: Vec<Claim> = read_items(table, &claims).await?;
    let launches: BTreeSet<Key> = claims.iter().map(|claim| keys::launch(cluster, &claim.launch)).collect();
    let launches: Vec<Launch> = read_items(table, &launches.into_iter().collect::<Vec<_>>()).await?;
    let pods = match kube.pods().await {
        Ok(pods) => pods,
        Err(error) => return Ok(Err(error)),
    };
    let waiting = pods.iter().filter(|pod| pod.node.is_none() && pod.deleted_at.is_none());
    let waiting: BTreeMap<&str, &ObjectKey> = waiting.map(|pod| (pod.uid.as_str(), &pod.key)).collect();
    let mut by_node = WaitingByNode::new();
    for planned in launches.iter().flat_map(|launch| &launch.claims) {
        let Some(node) = opening.get(&planned.name) else { continue };
        let pods = planned.pods.iter().filter_map(|uid| {
            let (uid, key) = waiting.get_key_value(uid.as_str())?;
            Some(((*key).clone(), (*uid).to_owned()))
        });
        by_node.entry(node.clone()).or_default().extend(pods);
    }
    by_node.retain(|_, pods| !pods.is_empty());
    Ok(Ok(by_node))
}
