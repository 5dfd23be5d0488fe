//! The attach-detach controller: VolumeAttachments of PersistentVolumes that pods use.
//!
//! Decides that a bound volume is attached to a Node from the binding of a pod that uses it until some time after the last
//! such pod has left or finished, and until much later if its kubelet can't unmount it. Attaching takes no time. A volume
//! of one node at a time is attached elsewhere only after that. Volumes that pods name inline aren't attached.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::pods;
use super::scheduler::attached_volumes;
use super::state::{ClusterState, Timer};
use super::store::StoredName;
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};

/// From a pod's end to the end of its volumes' attachments without a kubelet: kube-controller-manager's
/// `maxWaitForUnmountDuration`.
const FORCED_AFTER: SignedDuration = SignedDuration::from_mins(6);

impl ClusterState {
    /// Attaches the volumes of a pod that is bound now, except those that are still attached elsewhere. Whether there
    /// are none such.
    pub(super) fn attach_volumes(&mut self, key: &ObjectKey, pod: &Object) -> bool {
        let Some(node) = text(pod, "/spec/nodeName") else { return true };
        let volumes = attached_volumes(&self.store, pod);
        if volumes.is_empty() || pods::is_finished(pod) {
            return true;
        }
        self.with_volumes.insert((key.namespace.clone(), key.name.clone()), node.to_owned());
        let mut all = true;
        for volume in volumes {
            let known = || self.store.all(Kind::VolumeAttachment).filter(|known| is_of(known, &volume.name));
            if known().any(|known| text(known, "/spec/nodeName") == Some(node)) {
                continue;
            }
            if !volume.shared && known().next().is_some() {
                all = false;
                continue;
            }
            let attachment = json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
                "metadata": {"name": format!("csi-{node}-{}", volume.name)},
                "spec": {"attacher": volume.driver, "nodeName": node,
                    "source": {"persistentVolumeName": volume.name}},
            });
            let _created = self.store.create(attachment, self.now);
        }
        all
    }

    /// Notes that a pod has left its Node or finished there: its volumes are detached after a while.
    pub(super) fn release_volumes(&mut self, name: &StoredName) {
        if let Some(node) = self.with_volumes.remove(name) {
            let takes = if self.is_served(&node) { self.config.detaches_after } else { FORCED_AFTER };
            self.after(takes, Timer::Detach(node));
        }
    }

    /// Detaches the Node's volumes that no pod there uses any longer.
    pub(super) fn detach_volumes(&mut self, node: &str) {
        let active = self.store.pods_on(node).filter(|pod| !pods::is_finished(pod));
        let used: BTreeSet<String> =
            active.flat_map(|pod| attached_volumes(&self.store, pod)).map(|volume| volume.name).collect();
        let unused: Vec<ObjectKey> = self
            .store
            .all(Kind::VolumeAttachment)
            .filter(|attachment| text(attachment, "/spec/nodeName") == Some(node))
            .filter(|attachment| {
                text(attachment, "/spec/source/persistentVolumeName")
                    .is_some_and(|volume| !used.contains(volume))
            })
            .map(|attachment| ObjectKey::new(Kind::VolumeAttachment, "", object::name(attachment)))
            .collect();
        for key in unused {
            let _deleted = self.store.delete(&key, None, self.now);
            self.detached.push((node.to_owned(), self.now));
        }
    }
}

fn is_of(attachment: &Value, volume: &str) -> bool {
    text(attachment, "/spec/source/persistentVolumeName") == Some(volume)
}
