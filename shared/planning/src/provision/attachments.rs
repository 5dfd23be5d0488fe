//! How many volumes a node may attach: NodeVolumeLimits of kube-scheduler.
//!
//! Decides what a pod's volumes count, and how many more a node takes, by CSI driver. A volume counts once a node,
//! however many of its pods use it. A Node's CSINode has the limits; a driver that it doesn't name has none. Before a
//! CSINode is there, the least limit on nodes of the type counts, and for EBS what EC2 tells of the type.
//!
//! Volumes of one pod are a dimension of its needs, as resources are. Volumes that several pods use, or that a node has
//! already, are known by name.
//!
//! Source: kubernetes/kubernetes `pkg/scheduler/framework/plugins/nodevolumelimits/csi.go`, read 2026-11.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::api::storage::{CsiNode, EBS_DRIVER};
use tenon_domain::api::{Pod, PodShape};
use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::labels;

use super::dense::{DenseAmounts, times_fit};
use super::input::{ExistingNode, NodeKind, ProvisionInput};
use super::needs::PodGroup;
use super::volumes::{CountedVolume, Volumes};

/// Room for the volumes of a driver without a limit; the largest need doesn't fill it.
const UNLIMITED: i64 = i64::MAX / 2;

/// A volume that isn't one pod's alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SharedVolume {
    /// Its driver's dimension.
    dimension: usize,
    /// Its number.
    id: usize,
}

/// What a pod's volumes count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct VolumeNeed {
    /// By driver, those that no other pod uses.
    pub(crate) own: Vec<i64>,
    /// The others, each once.
    pub(crate) shared: Vec<SharedVolume>,
}

/// More volumes than a node attaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumesExceeded {
    /// Their driver.
    pub(crate) driver: Arc<str>,
    /// How many a pod has.
    pub(crate) volumes: u32,
    /// How many the node attaches.
    pub(crate) most: u32,
}

/// The first driver, of those of the last dimensions, of which a pod has more volumes than there is room for.
pub(crate) fn exceeded(drivers: &[Arc<str>], group: &PodGroup<'_>, room: &[i64]) -> Option<VolumesExceeded> {
    let first = room.len().saturating_sub(drivers.len());
    let count = |number: i64| u32::try_from(number.max(0)).unwrap_or(u32::MAX);
    let limits = group.need.iter().zip(room).enumerate().skip(first);
    drivers.iter().zip(limits).find_map(|(driver, (dimension, (own, most)))| {
        let shared = group.volumes.iter().filter(|volume| volume.dimension == dimension).count();
        let volumes = count(*own).saturating_add(u32::try_from(shared).unwrap_or(u32::MAX));
        (i64::from(volumes) > *most).then(|| VolumesExceeded {
            driver: Arc::clone(driver),
            volumes,
            most: count(*most),
        })
    })
}

/// The volumes that pods share on one node, each of which takes one attachment.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedHere(BTreeSet<SharedVolume>);

impl SharedHere {
    /// How often a pod fits, once its shared volumes that aren't here are attached, too.
    pub(crate) fn times_fit(&self, need: &[i64], shared: &[SharedVolume], left: &[i64]) -> u32 {
        if shared.iter().all(|volume| self.0.contains(volume)) {
            return times_fit(need, left);
        }
        let mut left = left.to_vec();
        for volume in shared.iter().filter(|volume| !self.0.contains(volume)) {
            left.iter_mut().skip(volume.dimension).take(1).for_each(|left| *left -= 1);
        }
        times_fit(need, &left)
    }

    /// Attaches volumes; those that weren't here yet are added to the amounts, `each` a volume.
    pub(crate) fn add(&mut self, shared: &[SharedVolume], amounts: &mut [i64], each: i64) {
        for volume in shared {
            if self.0.insert(*volume) {
                amounts.iter_mut().skip(volume.dimension).take(1).for_each(|amount| *amount += each);
            }
        }
    }
}

/// The limits on volumes, and what pods' volumes count against them.
#[derive(Debug)]
pub(crate) struct VolumeLimits<'a> {
    input: &'a ProvisionInput,
    volumes: Volumes<'a>,
    /// The dimension of the first driver.
    first: usize,
    /// The drivers of pending pods' volumes that have a limit on some node.
    drivers: Vec<Arc<str>>,
    /// Numbers of volumes that aren't one pod's alone.
    shared: BTreeMap<CountedVolume, usize>,
    csi_nodes: BTreeMap<&'a str, &'a CsiNode>,
    /// By instance type, the least limit of each driver.
    learned: BTreeMap<&'a str, BTreeMap<&'a str, u32>>,
    on_nodes: BTreeMap<&'a str, NodeVolumes>,
}

/// The volumes of a node of the input.
#[derive(Debug)]
struct NodeVolumes {
    /// Those that the API server says are attached.
    attached: Vec<CountedVolume>,
    /// How many pods it has.
    pods: usize,
    /// With the volumes of these pods.
    all: AttachedVolumes,
}

/// The volumes that a node has, and how many of its pods have one of their own.
#[derive(Debug, Clone, Default)]
struct AttachedVolumes {
    named: BTreeSet<CountedVolume>,
    ephemeral: BTreeMap<Arc<str>, u32>,
}

impl AttachedVolumes {
    fn of(node: &ExistingNode, volumes: &Volumes<'_>, attached: &[CountedVolume]) -> Self {
        let mut all = Self::default();
        for shape in node.occupancy.shapes().iter().filter(|shape| !shape.volumes.is_empty()) {
            let counted = volumes.counted(shape);
            all.named.extend(counted.named);
            for (driver, count) in counted.ephemeral {
                *all.ephemeral.entry(driver).or_default() += count;
            }
        }
        // An attached volume without a claim of a pod is an ephemeral one of a pod, or is being detached.
        let mut others: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        let unknown: Vec<&CountedVolume> = attached.iter().filter(|one| !all.named.contains(*one)).collect();
        for volume in &unknown {
            *others.entry(Arc::clone(&volume.driver)).or_default() += 1;
        }
        for (driver, count) in others {
            let explained = all.ephemeral.remove(&driver).unwrap_or_default();
            all.ephemeral.insert(driver, explained.saturating_sub(count));
        }
        all.named.extend(unknown.into_iter().cloned());
        all
    }

    fn count(&self, driver: &str) -> u32 {
        let named = self.named.iter().filter(|volume| &*volume.driver == driver).count();
        let ephemeral = self.ephemeral.get(driver).copied().unwrap_or_default();
        ephemeral.saturating_add(u32::try_from(named).unwrap_or(u32::MAX))
    }
}

impl<'a> VolumeLimits<'a> {
    /// The limits of an input whose resources have so many dimensions, for pods that may be placed.
    pub(crate) fn of(input: &'a ProvisionInput, pods: &[&Pod], first: usize) -> Self {
        let mut limits = Self {
            input,
            volumes: Volumes::of(&input.storage),
            first,
            drivers: Vec::new(),
            shared: BTreeMap::new(),
            csi_nodes: BTreeMap::new(),
            learned: BTreeMap::new(),
            on_nodes: BTreeMap::new(),
        };
        if pods.iter().any(|pod| !pod.shape.volumes.is_empty()) {
            limits.read(pods);
        }
        limits
    }

    fn read(&mut self, pods: &[&Pod]) {
        let input = self.input;
        let nodes = &input.storage.nodes;
        self.csi_nodes = nodes.iter().map(|node| (node.meta.name.as_str(), node)).collect();
        for node in &input.nodes {
            let known = self.csi_nodes.get(node.name.as_str()).map(|csi| &csi.drivers);
            let Some(kind) = node.labels.get(labels::INSTANCE_TYPE) else { continue };
            let learned = self.learned.entry(kind).or_default();
            for (driver, count) in
                known.into_iter().flatten().filter_map(|(name, most)| Some((name, (*most)?)))
            {
                let least = learned.entry(driver).or_insert(count);
                *least = (*least).min(count);
            }
        }
        let mut users: BTreeMap<CountedVolume, u32> = BTreeMap::new();
        let mut asked: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut by_shape: BTreeMap<*const PodShape, (&PodShape, u32)> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !pod.shape.volumes.is_empty()) {
            by_shape.entry(Arc::as_ptr(&pod.shape)).or_insert((&pod.shape, 0)).1 += 1;
        }
        for (shape, pods) in by_shape.into_values() {
            let counted = self.volumes.counted(shape);
            asked.extend(counted.ephemeral.into_keys());
            for volume in counted.named {
                asked.insert(Arc::clone(&volume.driver));
                *users.entry(volume).or_default() += pods;
            }
        }
        self.drivers = asked.into_iter().filter(|driver| self.has_limit(driver)).collect();
        if self.drivers.is_empty() {
            return;
        }
        let mut attached: BTreeMap<&str, Vec<CountedVolume>> = BTreeMap::new();
        for one in &input.storage.attachments {
            let Some(name) = one.volume.clone() else { continue };
            let volume = CountedVolume { driver: one.driver.as_str().into(), name };
            attached.entry(&one.node).or_default().push(volume);
        }
        for node in &input.nodes {
            let attached = attached.remove(node.name.as_str()).unwrap_or_default();
            let all = AttachedVolumes::of(node, &self.volumes, &attached);
            let pods = node.occupancy.shapes().len();
            self.on_nodes.insert(&node.name, NodeVolumes { attached, pods, all });
        }
        let on_nodes = self.on_nodes.values().flat_map(|of| of.all.named.iter().cloned());
        let several = users.into_iter().filter(|(_, pods)| *pods > 1).map(|(volume, _)| volume);
        let shared: BTreeSet<CountedVolume> = on_nodes.chain(several).collect();
        self.shared = shared.into_iter().enumerate().map(|(id, volume)| (volume, id)).collect();
    }

    /// Whether any node has a limit on a driver's volumes, or a new one will.
    fn has_limit(&self, driver: &str) -> bool {
        let known = |node: &CsiNode| node.drivers.get(driver).copied().flatten().is_some();
        let mut options = self.input.pools.iter().flat_map(|pool| pool.types.iter());
        self.csi_nodes.values().any(|node| known(node))
            || (driver == EBS_DRIVER && options.any(|option| option.ebs_volumes.is_some()))
    }

    /// Pods' volumes, which are places, too.
    pub(crate) const fn volumes(&self) -> &Volumes<'a> {
        &self.volumes
    }

    /// The drivers with a limit, in the order of their dimensions.
    pub(crate) fn drivers(&self) -> &[Arc<str>] {
        &self.drivers
    }

    fn dimension(&self, driver: &str) -> Option<usize> {
        self.drivers.iter().position(|one| &**one == driver)
    }

    /// What the volumes of a pod count.
    pub(crate) fn need(&self, shape: &PodShape) -> VolumeNeed {
        let mut need = VolumeNeed { own: vec![0; self.drivers.len()], shared: Vec::new() };
        if self.drivers.is_empty() || shape.volumes.is_empty() {
            return need;
        }
        let counted = self.volumes.counted(shape);
        let mut own = |driver: &str, count: u32| {
            let place = self.dimension(driver);
            let places = need.own.iter_mut();
            places.skip(place.unwrap_or(usize::MAX)).take(1).for_each(|one| *one += i64::from(count));
        };
        for (driver, count) in &counted.ephemeral {
            own(driver, *count);
        }
        for volume in &counted.named {
            match (self.shared.get(volume), self.dimension(&volume.driver)) {
                (None, _) => own(&volume.driver, 1),
                (Some(id), Some(place)) => {
                    need.shared.push(SharedVolume { dimension: self.first + place, id: *id });
                }
                (Some(_), None) => {}
            }
        }
        need.shared.sort_unstable();
        need
    }

    /// How many volumes of each driver a new node of a type takes.
    pub(crate) fn of_type(&self, option: &InstanceTypeOption) -> DenseAmounts {
        self.drivers.iter().map(|driver| as_room(self.estimate(option, driver))).collect()
    }

    /// The limit of nodes of a type: the least that such nodes report, or what EC2 tells.
    fn estimate(&self, option: &InstanceTypeOption, driver: &str) -> Option<u32> {
        let learned = self.learned.get(option.facts.name.as_str()).and_then(|of| of.get(driver).copied());
        learned.or_else(|| option.ebs_volumes.filter(|_| driver == EBS_DRIVER))
    }

    /// How many more volumes of each driver a node takes, and the shared ones that it has.
    pub(crate) fn of_node(&self, node: &ExistingNode) -> (DenseAmounts, SharedHere) {
        let mut here = SharedHere::default();
        let Some(known) = self.on_nodes.get(node.name.as_str()) else {
            return (self.drivers.iter().map(|_| UNLIMITED).collect(), here);
        };
        // A trial may have taken room for more pods.
        let attached = if node.occupancy.shapes().len() == known.pods {
            Cow::Borrowed(&known.all)
        } else {
            Cow::Owned(AttachedVolumes::of(node, &self.volumes, &known.attached))
        };
        let room = self.drivers.iter().map(|driver| {
            as_room(self.limit(node, driver)).saturating_sub(i64::from(attached.count(driver)))
        });
        // A node with more than its limit takes no volume, but any other pod.
        let room: DenseAmounts = room.map(|left| left.max(0)).collect();
        for volume in &attached.named {
            if let (Some(place), Some(id)) = (self.dimension(&volume.driver), self.shared.get(volume)) {
                here.0.insert(SharedVolume { dimension: self.first + place, id: *id });
            }
        }
        (room, here)
    }

    /// A node's limit. A starting node's drivers report theirs later.
    fn limit(&self, node: &ExistingNode, driver: &str) -> Option<u32> {
        let reported = self.csi_nodes.get(node.name.as_str()).and_then(|csi| csi.drivers.get(driver));
        match (reported, node.kind) {
            (Some(most), _) => *most,
            (None, NodeKind::Initialized) => None,
            (None, NodeKind::Starting | NodeKind::InFlight) => {
                let kind = node.labels.get(labels::INSTANCE_TYPE)?;
                let pool =
                    self.input.pools.iter().find(|pool| Some(&pool.pool.name) == node.pool.as_ref())?;
                let option = pool.types.iter().find(|option| option.facts.name.as_str() == kind)?;
                self.estimate(option, driver)
            }
        }
    }
}

fn as_room(limit: Option<u32>) -> i64 {
    limit.map_or(UNLIMITED, i64::from)
}
