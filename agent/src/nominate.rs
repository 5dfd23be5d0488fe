//! Nominations: tells kube-scheduler for which pods a Node was launched, when the Node begins to take pods.
//!
//! Decides which pods: pending pods of the claim's launch, among them those that joined it on its way. kube-scheduler tries
//! a pod's nominated Node first and keeps its room, so that pods run where they were planned; otherwise it spreads them as
//! it likes, and an exact plan leaves some without room. kube-scheduler drops a nomination if the pod doesn't fit, as while
//! the Node isn't Ready. Nominations are optional: other pods are scheduled anyway, or planned again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::claim::Claim;
use tenon_domain::id::{ClaimName, ClusterName};
use tenon_domain::launch::Launch;
use tenon_snapshot::pod::{PlacementOrder, PodRef};
use tenon_snapshot::{Kube, KubeError, NodeAction, Note, NoteKind, ObjectKey};
use tenon_table::items::keys;
use tenon_table::{Consistency, Key, Table, TableError};

use crate::decided::read_items;
use crate::plan::View;
use crate::wave::may_wait;

/// The Events `Nominated` of one step at most, as the peer's burst: each is a write to the API server.
const TOLD_AT_ONCE: usize = 10;

/// Pods that were nominated, with their UIDs, by Node.
pub(crate) type NominatedPods = BTreeMap<String, Vec<(ObjectKey, String)>>;

/// Nominates a Node for pods, and notes it or the error.
pub(crate) async fn nominate<K: Kube>(
    kube: &K,
    (node, pods): (String, Vec<(ObjectKey, String)>),
    nominated: &mut NominatedPods,
    unwritten: &mut Vec<KubeError>,
) {
    match kube.nominate(&pods, &node).await {
        Ok(()) => {
            nominated.insert(node, pods);
        }
        Err(error) => unwritten.push(error),
    }
}

/// The Events of nominated pods, in the peer's words, given the claims of Nodes that opened. Source: kubernetes-sigs/karpenter
/// `pkg/controllers/provisioning/scheduling/events.go`.
pub(crate) fn notes_of_nominations(
    nominated: &NominatedPods,
    opened: &BTreeMap<String, ClaimName>,
) -> Vec<Note> {
    let pods = nominated.iter().flat_map(|(node, pods)| pods.iter().map(move |pod| (node, pod)));
    let note = |(node, (pod, uid)): (&String, &(ObjectKey, String))| {
        let claim = opened.get(node).map(|claim| format!("nodeclaim/{claim}, ")).unwrap_or_default();
        Note {
            about: pod.clone(),
            uid: uid.clone(),
            kind: NoteKind::Normal,
            reason: "Nominated".to_owned(),
            message: format!("Pod should schedule on: {claim}node/{node}"),
        }
    };
    pods.take(TOLD_AT_ONCE).map(note).collect()
}

/// The pods that wait for their claims' Nodes, by Node.
type WaitingByNode = BTreeMap<String, Vec<PodRef>>;

/// Where the pods that nodes were planned for are found.
pub(crate) struct PlannedPods<'a, K, T> {
    pub(crate) kube: &'a K,
    pub(crate) table: &'a T,
    pub(crate) cluster: &'a ClusterName,
}

/// What is remembered of Nodes that begin to take pods.
#[derive(Debug, Default)]
pub(crate) struct OpeningNodes {
    /// The claims whose pods were nominated.
    nominated: BTreeSet<ClaimName>,
    /// Whether claims' pods depend on others.
    orders: BTreeMap<ClaimName, PlacementOrder>,
}

impl OpeningNodes {
    /// The claims whose Nodes wait for others of their wave, and until when. Without the launch in the table none does.
    pub(crate) async fn kept_closed<K: Kube, T: Table>(
        &mut self,
        planned: &PlannedPods<'_, K, T>,
        view: &View,
        actions: &[NodeAction],
        now: Timestamp,
    ) -> BTreeMap<ClaimName, Timestamp> {
        let mut waits = may_wait(view, actions, now);
        self.orders.retain(|claim, _| waits.contains_key(claim));
        let unknown = waits.iter().filter(|(claim, _)| !self.orders.contains_key(*claim));
        let unknown = unknown.map(|(claim, one)| (claim.clone(), one.node.clone())).collect();
        let Ok(Ok(waiting)) = planned.waiting(&unknown).await else { return BTreeMap::new() };
        for (claim, node) in unknown {
            let mut orders = waiting.get(&node).into_iter().flatten().map(|pod| pod.shape().order());
            let after = orders.any(|order| order == PlacementOrder::AfterOthers);
            self.orders.insert(claim, if after { PlacementOrder::AfterOthers } else { PlacementOrder::Any });
        }
        waits.retain(|claim, _| self.orders.get(claim) == Some(&PlacementOrder::AfterOthers));
        waits.into_iter().map(|(claim, one)| (claim, one.until)).collect()
    }

    /// The pods to nominate for Nodes that begin to take pods. Each claim's are nominated once, directly before its own
    /// Node opens: kube-scheduler forgets a nomination when an attempt to place the pod fails, and each Node that opens
    /// makes it try. Without the launch in the table no pod is nominated, and the Node opens anyway.
    pub(crate) async fn nominations<K: Kube, T: Table>(
        &mut self,
        planned: &PlannedPods<'_, K, T>,
        opening: BTreeMap<ClaimName, String>,
        unwritten: &mut Vec<KubeError>,
    ) -> BTreeMap<String, Vec<(ObjectKey, String)>> {
        let open: BTreeSet<ClaimName> = opening.keys().cloned().collect();
        let new = opening.into_iter().filter(|(claim, _)| !self.nominated.contains(claim)).collect();
        let waiting = match planned.waiting(&new).await {
            Ok(Ok(waiting)) => waiting,
            Ok(Err(error)) => {
                unwritten.push(error);
                WaitingByNode::new()
            }
            Err(_) => return BTreeMap::new(),
        };
        self.nominated = open;
        let named = |pods: Vec<PodRef>| pods.iter().map(|pod| (pod.key.clone(), pod.uid.clone())).collect();
        waiting.into_iter().map(|(node, pods)| (node, named(pods))).collect()
    }
}

impl<K: Kube, T: Table> PlannedPods<'_, K, T> {
    /// The pending pods of claims, given with the names of their Nodes.
    ///
    /// # Errors [`TableError`] if the launches can't be read; a refusal of the API server is the inner error.
    async fn waiting(
        &self,
        of: &BTreeMap<ClaimName, String>,
    ) -> Result<Result<WaitingByNode, KubeError>, TableError> {
        if of.is_empty() {
            return Ok(Ok(WaitingByNode::new()));
        }
        let Self { table, cluster, .. } = *self;
        let claims: Vec<Key> = of.keys().map(|claim| keys::claim(cluster, claim)).collect();
        let claims: Vec<Claim> = read_items(table, &claims, Consistency::Eventual).await?;
        let launches: BTreeSet<Key> =
            claims.iter().map(|claim| keys::launch(cluster, &claim.launch)).collect();
        let launches: Vec<Key> = launches.into_iter().collect();
        let launches: Vec<Launch> = read_items(table, &launches, Consistency::Eventual).await?;
        let pods = match self.kube.pods().await {
            Ok(pods) => pods,
            Err(error) => return Ok(Err(error)),
        };
        let waiting = pods.iter().filter(|pod| pod.node.is_none() && pod.deleted_at.is_none());
        let waiting: BTreeMap<&str, &PodRef> = waiting.map(|pod| (pod.uid.as_str(), pod)).collect();
        let mut by_node = WaitingByNode::new();
        for planned in launches.iter().flat_map(|launch| &launch.claims) {
            let Some(node) = of.get(&planned.name) else { continue };
            let pods = planned.pods.iter().filter_map(|uid| waiting.get(uid.as_str()).copied());
            by_node.entry(node.clone()).or_default().extend(pods.map(Arc::clone));
        }
        by_node.retain(|_, pods| !pods.is_empty());
        Ok(Ok(by_node))
    }
}

#[cfg(test)]
mod tests {
    use tenon_snapshot::Kind;

    use super::*;

    #[test]
    fn nominated_pods_are_told_of_their_node_and_not_all_of_a_burst() {
        let opened = BTreeMap::from([("n".to_owned(), ClaimName::parse("default-abcde").unwrap())]);
        let pods = |count: usize| {
            let pod =
                |index| (ObjectKey::new(Kind::Pod, "shop", format!("web-{index}")), format!("uid-{index}"));
            NominatedPods::from([("n".to_owned(), (0..count).map(pod).collect())])
        };
        let told = notes_of_nominations(&pods(1), &opened);
        assert_eq!(told[0].about, ObjectKey::new(Kind::Pod, "shop", "web-0"));
        assert_eq!(
            (told[0].reason.as_str(), told[0].message.as_str()),
            ("Nominated", "Pod should schedule on: nodeclaim/default-abcde, node/n")
        );
        let unknown = notes_of_nominations(&pods(30), &BTreeMap::new());
        assert_eq!((unknown.len(), unknown[0].message.as_str()), (10, "Pod should schedule on: node/n"));
    }
}
