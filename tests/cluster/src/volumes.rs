//! The external provisioner of a StorageClass that waits for its first consumer, as a CSI driver brings it.
//!
//! kube-scheduler writes the Node of a claim's first pod into an annotation, and binds the pod when the claim is bound. The
//! provisioner makes the volume in that Node's zone. It knows no driver and no size; what it makes is only an object.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tenon_domain::labels;

use crate::cluster::Cluster;

/// Where kube-scheduler writes the Node that it chose.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// What a bound claim has: kube-scheduler takes it for unbound without.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The driver of EBS.
const DRIVER: &str = "ebs.csi.aws.com";

impl Cluster {
    /// Makes a volume for each claim for which kube-scheduler has chosen a Node, and binds the claim to it.
    pub async fn make_volumes(&self) {
        let claims: Api<PersistentVolumeClaim> = Api::all(self.client());
        let all = claims.list(&ListParams::default()).await.expect("claims can be listed");
        for claim in all.items {
            let annotations = claim.metadata.annotations.as_ref();
            let node = annotations.and_then(|all| all.get(SELECTED_NODE)).cloned();
            let bound = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
            if let (Some(node), false) = (node, bound) {
                self.make_volume(&claim, &node).await;
            }
        }
    }

    async fn make_volume(&self, claim: &PersistentVolumeClaim, node: &str) {
        let nodes: Api<Node> = Api::all(self.client());
        let node = nodes.get_opt(node).await.expect("a Node can be read");
        // Where the Node is gone, kube-scheduler chooses another.
        let zone = node.and_then(|node| node.metadata.labels?.get(labels::ZONE).cloned());
        let Some(zone) = zone else { return };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (name, namespace) = (text(&claim.metadata.name), text(&claim.metadata.namespace));
        let volume = format!("pvc-{}", text(&claim.metadata.uid));
        let terms =
            json!([{"matchExpressions": [{"key": labels::ZONE, "operator": "In", "values": [zone]}]}]);
        let manifest = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()),
                "csi": {"driver": DRIVER, "volumeHandle": volume},
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
                    "uid": claim.metadata.uid},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        });
        let manifest = serde_json::from_value(manifest).expect("a PersistentVolume is written");
        let volumes: Api<PersistentVolume> = Api::all(self.client());
        volumes.create(&PostParams::default(), &manifest).await.expect("a PersistentVolume can be created");
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client(), &namespace);
        let (how, to) = (PatchParams::default(), json!({"status": {"phase": "Bound"}}));
        let change =
            json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": volume}});
        claims.patch(&name, &how, &Patch::Merge(&change)).await.expect("a claim can be bound");
        claims.patch_status(&name, &how, &Patch::Merge(&to)).await.expect("a claim's phase can be written");
        volumes
            .patch_status(&volume, &how, &Patch::Merge(&to))
            .await
            .expect("a volume's phase can be written");
    }
}
