//! The external provisioner: volumes that are made for the first pod that uses them.
//!
//! Decides that a claim of EBS whose StorageClass waits for its first consumer gets a PersistentVolume in the zone of
//! the pod's Node at the moment in which the pod is bound. In a cluster it takes seconds, and kube-scheduler sends other
//! pods with the claim to that very Node meanwhile. Claims of other provisioners, ephemeral volumes and Nodes without a
//! zone get none.

use serde_json::{Value, json};
use tenon_domain::api::storage::{EBS_DRIVER, EBS_PLUGIN};
use tenon_domain::labels;

use super::state::ClusterState;
use super::store::child;
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, list, text};

impl ClusterState {
    /// Makes the volumes of a pod that is bound now.
    pub(super) fn make_volumes(&mut self, pod: &Value) {
        let zone = text(pod, "/spec/nodeName").and_then(|node| self.zone_of(node));
        let Some(zone) = zone else { return };
        for volume in list(pod, "/spec/volumes") {
            let Some(name) = text(volume, "/persistentVolumeClaim/claimName") else { continue };
            let key = ObjectKey::new(Kind::PersistentVolumeClaim, object::namespace(pod), name);
            if let Some(claim) = self.store.get(&key).filter(|claim| self.is_to_be_made(claim)).cloned() {
                self.make_volume(&key, &claim, &zone);
            }
        }
    }

    fn zone_of(&self, node: &str) -> Option<String> {
        let node = self.store.get(&ObjectKey::node(node))?;
        object::texts(node, "/metadata/labels")
            .find(|(key, _)| *key == labels::ZONE)
            .map(|(_, zone)| zone.to_owned())
    }

    fn is_to_be_made(&self, claim: &Object) -> bool {
        let class = text(claim, "/spec/storageClassName").unwrap_or_default();
        let class = self.store.get(&ObjectKey::new(Kind::StorageClass, "", class));
        text(claim, "/spec/volumeName").is_none()
            && object::deleted_at(claim).is_none()
            && class.is_some_and(|class| {
                text(class, "/volumeBindingMode") == Some("WaitForFirstConsumer")
                    && matches!(text(class, "/provisioner"), Some(EBS_DRIVER | EBS_PLUGIN))
            })
    }

    fn make_volume(&mut self, key: &ObjectKey, claim: &Object, zone: &str) {
        let name = format!("pvc-{}", object::uid(claim));
        let terms =
            json!([{"matchExpressions": [{"key": labels::ZONE, "operator": "In", "values": [zone]}]}]);
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {
                "storageClassName": text(claim, "/spec/storageClassName"),
                "csi": {"driver": EBS_DRIVER, "volumeHandle": name},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        });
        let _created = self.store.create(volume, self.now);
        self.store.change(key, |claim| {
            child(claim, "spec").insert("volumeName".to_owned(), json!(name));
            child(claim, "status").insert("phase".to_owned(), json!("Bound"));
        });
    }
}
