//! The filters NodeVolumeLimits and VolumeRestrictions: how many volumes of a CSI driver a node attaches, and which claims
//! one pod at a time may use.
//!
//! Decides by the limits of the node's CSINode. A volume counts once a node: those of its pods and those of its
//! VolumeAttachments, and of the pod's those that no pod there uses. So a volume that is attached still, but used by no
//! pod, counts twice for the pod that comes back to it: kube-scheduler refuses it until the volume is detached. A driver
//! without a limit there attaches any number, and so does a node without a CSINode.
//!
//! Source: `CSILimits.Filter` in kubernetes/kubernetes `pkg/scheduler/framework/plugins/nodevolumelimits/csi.go`, 1.35.4,
//! read 2026-11.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenon_snapshot::object::{self, Kind, ObjectKey, list, text};

use super::super::store::ObjectStore;
use super::filter::Infeasible;
use super::info::NodeInfo;
use super::shape::SchedulingNeeds;

/// The CSI driver of EBS, which also serves the volumes of the plugin within Kubernetes.
const EBS: &str = "ebs.csi.aws.com";
const EBS_PLUGIN: &str = "kubernetes.io/aws-ebs";

/// A volume as a pod names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NamedVolume {
    /// The name of a claim in the pod's namespace.
    Claim(String),
    /// One of its own, by the name of its StorageClass.
    Ephemeral(String),
}

/// The volumes of a pod.
pub(super) fn named_volumes(pod: &Value) -> Vec<NamedVolume> {
    let class = "/ephemeral/volumeClaimTemplate/spec/storageClassName";
    let of = |volume: &Value| match text(volume, "/persistentVolumeClaim/claimName") {
        Some(name) => Some(NamedVolume::Claim(name.to_owned())),
        None => text(volume, class).map(|class| NamedVolume::Ephemeral(class.to_owned())),
    };
    list(pod, "/spec/volumes").iter().filter_map(of).collect()
}

/// Volumes by driver: those with a name, and how many others.
#[derive(Debug, Default)]
struct VolumesByDriver {
    named: BTreeMap<String, BTreeSet<String>>,
    others: BTreeMap<String, usize>,
}

impl VolumesByDriver {
    fn add(&mut self, store: &ObjectStore, shape: &SchedulingNeeds, pods: usize) {
        for volume in &shape.volumes {
            match volume {
                NamedVolume::Claim(name) => {
                    if let Some((driver, name)) = claimed(store, &shape.namespace, name) {
                        self.named.entry(driver).or_default().insert(name);
                    }
                }
                NamedVolume::Ephemeral(class) => {
                    if let Some(driver) = driver_of(store, class) {
                        *self.others.entry(driver).or_default() += pods;
                    }
                }
            }
        }
    }
}

/// Whether the node attaches the pod's volumes, beside those of nominated pods.
pub(super) fn check(
    store: &ObjectStore,
    shape: &SchedulingNeeds,
    node: &NodeInfo,
    beside: &[&SchedulingNeeds],
) -> Result<(), Infeasible> {
    let limits = match store.get(&ObjectKey::new(Kind::CsiNode, "", node.name.as_str())) {
        Some(limits) if !shape.volumes.is_empty() => limits,
        Some(_) | None => return Ok(()),
    };
    let mut asked = VolumesByDriver::default();
    asked.add(store, shape, 1);
    let mut here = VolumesByDriver::default();
    for equal in node.pods.values() {
        here.add(store, &equal.shape, usize::try_from(equal.all).unwrap_or(0));
    }
    for other in beside {
        here.add(store, other, 1);
    }
    let attached = attached_to(store, node);
    let nothing = BTreeSet::new();
    for driver in list(limits, "/spec/drivers") {
        let name = text(driver, "/name").unwrap_or_default();
        let Some(most) = object::at(driver, "/allocatable/count").and_then(Value::as_u64) else { continue };
        let [wanted, known, attached] =
            [&asked.named, &here.named, &attached].map(|all| all.get(name).unwrap_or(&nothing));
        let new = wanted.difference(known).count() + asked.others.get(name).copied().unwrap_or(0);
        let used = known.union(attached).count() + here.others.get(name).copied().unwrap_or(0);
        if new > 0 && u64::try_from(used + new).unwrap_or(u64::MAX) > most {
            return Err(Infeasible::VolumeLimit);
        }
    }
    Ok(())
}

/// Whether the pod has a claim for one pod at a time that a pod on a node uses: the filter VolumeRestrictions, which asks
/// all nodes alike.
pub(super) fn is_claim_in_use<'n>(
    store: &ObjectStore,
    shape: &SchedulingNeeds,
    nodes: impl Iterator<Item = &'n NodeInfo>,
) -> bool {
    let is_exclusive = |volume: &&NamedVolume| match volume {
        NamedVolume::Claim(name) => {
            let key = ObjectKey::new(Kind::PersistentVolumeClaim, shape.namespace.as_str(), name.as_str());
            store.get(&key).is_some_and(|claim| {
                let mut modes = list(claim, "/spec/accessModes").iter();
                modes.any(|mode| mode.as_str() == Some("ReadWriteOncePod"))
            })
        }
        NamedVolume::Ephemeral(_) => false,
    };
    let exclusive: Vec<&NamedVolume> = shape.volumes.iter().filter(is_exclusive).collect();
    if exclusive.is_empty() {
        return false;
    }
    let mut running = nodes.flat_map(|node| node.pods.values()).map(|equal| &equal.shape);
    running.any(|other| {
        other.namespace == shape.namespace && other.volumes.iter().any(|volume| exclusive.contains(&volume))
    })
}

/// The volumes of a node's VolumeAttachments, by driver.
fn attached_to(store: &ObjectStore, node: &NodeInfo) -> BTreeMap<String, BTreeSet<String>> {
    let mut attached: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for attachment in store.all(Kind::VolumeAttachment) {
        let on = text(attachment, "/spec/nodeName") == Some(node.name.as_str());
        let of =
            text(attachment, "/spec/attacher").zip(text(attachment, "/spec/source/persistentVolumeName"));
        if let (true, Some((driver, volume))) = (on, of) {
            attached.entry(driver.to_owned()).or_default().insert(volume.to_owned());
        }
    }
    attached
}

/// A PersistentVolume that a pod uses.
pub(crate) struct BoundVolume {
    pub(crate) driver: String,
    pub(crate) name: String,
    /// Whether several nodes can have it at once.
    pub(crate) shared: bool,
}

/// The bound volumes of a pod.
pub(crate) fn bound_volumes(store: &ObjectStore, pod: &Value) -> Vec<BoundVolume> {
    let namespace = object::namespace(pod);
    let bound = |name: String| {
        let claim = store.get(&ObjectKey::new(Kind::PersistentVolumeClaim, namespace, name.as_str()))?;
        text(claim, "/spec/volumeName")?;
        let mut modes = list(claim, "/spec/accessModes").iter().filter_map(Value::as_str);
        let shared = modes.any(|mode| matches!(mode, "ReadWriteMany" | "ReadOnlyMany"));
        let (driver, name) = claimed(store, namespace, &name)?;
        Some(BoundVolume { driver, name, shared })
    };
    let claims = named_volumes(pod).into_iter().filter_map(|volume| match volume {
        NamedVolume::Claim(name) => Some(name),
        NamedVolume::Ephemeral(_) => None,
    });
    claims.filter_map(bound).collect()
}

/// The driver of a claim, and the name that its volume is known by.
fn claimed(store: &ObjectStore, namespace: &str, name: &str) -> Option<(String, String)> {
    let claim = store.get(&ObjectKey::new(Kind::PersistentVolumeClaim, namespace, name))?;
    let class = text(claim, "/spec/storageClassName").unwrap_or_default();
    match text(claim, "/spec/volumeName") {
        None => Some((driver_of(store, class)?, format!("{namespace}/{name}"))),
        Some(volume) => {
            let bound = store.get(&ObjectKey::new(Kind::PersistentVolume, "", volume))?;
            let in_tree = object::at(bound, "/spec/awsElasticBlockStore").map(|_| EBS.to_owned());
            let driver = text(bound, "/spec/csi/driver").map(str::to_owned).or(in_tree)?;
            Some((driver, volume.to_owned()))
        }
    }
}

fn driver_of(store: &ObjectStore, class: &str) -> Option<String> {
    let class = store.get(&ObjectKey::new(Kind::StorageClass, "", class))?;
    let provisioner = text(class, "/provisioner")?;
    Some(if provisioner == EBS_PLUGIN { EBS } else { provisioner }.to_owned())
}
