//! The volumes of a drained Node that are still attached.
//!
//! Decides which of them a drain waits for, and since when. A pod that starts elsewhere with a volume of this Node can't
//! until it is detached; an instance that ends first leaves the volume attached for minutes.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/node/termination/controller.go`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;
use tenon_snapshot::object::{self, Object, text};
use tenon_snapshot::pod::{PodLife, SeenPod};
use tenon_snapshot::{Kind, Kube, KubeError, PodRef};

use crate::drain::is_waited_for;

/// Attached volumes by Node, and the claims of pods to volumes.
#[derive(Debug, Clone, Default)]
pub struct Attachments {
    by_node: BTreeMap<String, BTreeSet<String>>,
    claimed: BTreeMap<(String, String), String>,
}

impl Attachments {
    /// Reads them.
    ///
    /// # Errors [`KubeError`]: try again at the next step.
    pub(crate) async fn observe<K: Kube>(kube: &K) -> Result<Self, KubeError> {
        let attachments = kube.list(Kind::VolumeAttachment).await?;
        if attachments.is_empty() {
            return Ok(Self::default());
        }
        Ok(Self::of(&attachments, &kube.list(Kind::PersistentVolumeClaim).await?))
    }

    /// The attachments and claims of these objects. A volume that a pod names inline is its pod's alone, and has no
    /// name here.
    pub(crate) fn of(attachments: &[Object], claims: &[Object]) -> Self {
        let mut by_node: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for attachment in attachments {
            let volume = text(attachment, "/spec/source/persistentVolumeName");
            if let (Some(node), Some(volume)) = (text(attachment, "/spec/nodeName"), volume) {
                by_node.entry(node.to_owned()).or_default().insert(volume.to_owned());
            }
        }
        let claimed = claims.iter().filter_map(|claim| {
            let volume = text(claim, "/spec/volumeName")?.to_owned();
            Some(((object::namespace(claim).to_owned(), object::name(claim).to_owned()), volume))
        });
        Self { by_node, claimed: claimed.collect() }
    }

    /// The Node's volumes, without those of pods that stay there.
    #[must_use]
    pub fn of_drain(&self, node: &str, pods: &[PodRef], now: Timestamp) -> Vec<String> {
        let Some(attached) = self.by_node.get(node) else { return Vec::new() };
        let stays = |pod: &&PodRef| pod.life == PodLife::Active && !is_waited_for(pod, now);
        let kept: BTreeSet<&String> = pods
            .iter()
            .filter(stays)
            .flat_map(|pod| claims(pod).into_iter().map(|name| (pod.key.namespace.clone(), name)))
            .filter_map(|claim| self.claimed.get(&claim))
            .collect();
        attached.difference(&kept.into_iter().cloned().collect()).cloned().collect()
    }
}

/// Since when drained Nodes wait for nothing but their volumes, by the Node's name. A new agent begins to count again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Detaching(BTreeMap<String, Timestamp>);

impl Detaching {
    /// Since when a Node waits; it begins now if it didn't.
    pub(crate) fn observe(&mut self, waiting: BTreeSet<String>, now: Timestamp) {
        self.0.retain(|node, _| waiting.contains(node));
        for node in waiting {
            self.0.entry(node).or_insert(now);
        }
    }

    /// Since when the Node waits.
    #[must_use]
    pub fn since(&self, node: &str) -> Option<Timestamp> {
        self.0.get(node).copied()
    }
}

/// The names of the pod's PersistentVolumeClaims.
pub(crate) fn claims(pod: &SeenPod) -> Vec<String> {
    let shape: Value = serde_json::from_str(pod.shape().text()).unwrap_or_default();
    let claim = |volume: &Value| {
        let named = text(volume, "/persistentVolumeClaim/claimName").map(str::to_owned);
        let own = || volume.get("ephemeral").and_then(|_| text(volume, "/name"));
        named.or_else(|| own().map(|name| format!("{}-{name}", pod.key.name)))
    };
    object::list(&shape, "/spec/volumes").iter().filter_map(claim).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_drain_waits_for_volumes_except_those_of_pods_that_stay() {
        let attachment = |volume: Value, node: &str| {
            Arc::new(json!({"kind": "VolumeAttachment", "metadata": {"name": "csi-1"},
                "spec": {"attacher": "ebs.csi.aws.com", "nodeName": node, "source": volume}}))
        };
        let volume = |name: &str| json!({"persistentVolumeName": name});
        let attachments = [
            attachment(volume("pv-1"), "n"),
            attachment(volume("pv-2"), "n"),
            attachment(volume("pv-3"), "other"),
            attachment(json!({"inlineVolumeSpec": {}}), "n"),
        ];
        let claim = json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "a"},
            "spec": {"volumeName": "pv-1"}});
        let known = Attachments::of(&attachments, &[Arc::new(claim)]);
        let pod = |tolerations: Value| {
            let pod = json!({"kind": "Pod", "metadata": {"name": "db-0", "namespace": "a", "uid": "u"},
                "spec": {"nodeName": "n", "tolerations": tolerations,
                    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
                "status": {"phase": "Running"}});
            Arc::new(SeenPod::read(&pod).unwrap())
        };
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(known.of_drain("n", &[], now), ["pv-1", "pv-2"]);
        assert_eq!(known.of_drain("n", &[pod(json!([]))], now), ["pv-1", "pv-2"]);
        assert_eq!(known.of_drain("n", &[pod(json!([{"operator": "Exists"}]))], now), ["pv-2"]);
        assert_eq!(known.of_drain("none", &[], now), Vec::<String>::new());
    }
}
