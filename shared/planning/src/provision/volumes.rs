//! The nodes that a pod's volumes can be on.
//!
//! Decides the alternatives of a pod's volumes: the node affinity of bound PersistentVolumes, and the allowed
//! topologies of StorageClasses that bind when the pod is placed. A claim that can't become bound is refused by name, and
//! so is one whose places the pod's other volumes exclude.
//! Volumes on one node's own disk (`local`, `hostPath`) ask for that node's name only, which a new node hasn't, so
//! host names are left out of PersistentVolumes without a driver. A driver's volume is only on its host, which nobody can
//! launch again. It also says which volumes count against limits, and by which CSI driver
//! (`attachments`), which claims one pod at a time may use (`exclusive`), and which keep their pods together, by rules as
//! those of affinity (`topology::rules`).
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/provisioning/scheduling/volumetopology.go`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::api::PodShape;
use tenon_domain::api::pod::{NodeSelectorTerm, PodVolume};
use tenon_domain::api::storage::{
    AUTO_MODE_DRIVER, ClaimUsers, EBS_DRIVER, EBS_PLUGIN, PersistentVolume, PersistentVolumeClaim,
    StorageClass, VolumeBinding,
};
use tenon_domain::id::NamespacedName;
use tenon_domain::labels;
use tenon_domain::requirement::{Requirement, Requirements};

use super::Scope;
use super::input::{ProvisionInput, Storage};
use super::occupancy::claims_of;
use super::report::{Reason, UnusableVolume};
use super::topology::selectors::ClaimNames;

/// The annotations of the StorageClass that claims get which name none.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// A volume that counts against a limit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CountedVolume {
    /// Its CSI driver.
    pub(crate) driver: Arc<str>,
    /// The PersistentVolume's name, or of a claim that isn't bound its namespace and name.
    pub(crate) name: String,
}

/// The volumes of a pod that count.
#[derive(Debug, Default)]
pub(crate) struct CountedVolumes {
    /// Those of claims.
    pub(crate) named: BTreeSet<CountedVolume>,
    /// By driver, those that are made for the pod alone.
    pub(crate) ephemeral: BTreeMap<Arc<str>, u32>,
}

/// Storage objects by name.
#[derive(Debug)]
pub(crate) struct Volumes<'a> {
    claims: BTreeMap<(&'a str, &'a str), &'a PersistentVolumeClaim>,
    volumes: BTreeMap<&'a str, &'a PersistentVolume>,
    classes: BTreeMap<&'a str, &'a StorageClass>,
    /// The claims for one pod at a time.
    exclusive: BTreeSet<(&'a str, &'a str)>,
    /// The name of the default class: of several the newest, as with the API server, then the first by name.
    default_class: Option<&'a str>,
}

impl<'a> Volumes<'a> {
    /// The objects of an input.
    pub(crate) fn of(storage: &'a Storage) -> Self {
        Self {
            claims: storage
                .claims
                .iter()
                .map(|claim| ((claim.meta.namespace.as_str(), claim.meta.name.as_str()), claim))
                .collect(),
            exclusive: storage
                .claims
                .iter()
                .filter(|claim| claim.users == ClaimUsers::OnePod)
                .map(|claim| (claim.meta.namespace.as_str(), claim.meta.name.as_str()))
                .collect(),
            volumes: storage.volumes.iter().map(|volume| (volume.meta.name.as_str(), volume)).collect(),
            classes: storage.classes.iter().map(|class| (class.meta.name.as_str(), class)).collect(),
            default_class: storage
                .classes
                .iter()
                .filter(|class| {
                    let is_true = |key| class.meta.annotations.get(key).is_some_and(|is| is == "true");
                    DEFAULT_CLASS.into_iter().any(is_true)
                })
                .map(|class| (class.meta.created_at, Reverse(class.meta.name.as_str())))
                .max()
                .map(|(_, Reverse(name))| name),
        }
    }

    /// The claims of a pod that no other pod may use at the same time.
    pub(crate) fn exclusive(&self, shape: &PodShape) -> Vec<NamespacedName> {
        if self.exclusive.is_empty() {
            return Vec::new();
        }
        let is_exclusive = |claim: &NamespacedName| {
            self.exclusive.contains(&(claim.namespace.as_str(), claim.name.as_str()))
        };
        claims_of(shape).filter(is_exclusive).collect()
    }

    /// The volumes of a pod that count against limits. A volume of an unknown driver counts nowhere.
    pub(crate) fn counted(&self, shape: &PodShape) -> CountedVolumes {
        let mut counted = CountedVolumes::default();
        for volume in &shape.volumes {
            match volume {
                PodVolume::Claim(name) => counted.named.extend(self.counted_claim(&shape.namespace, name)),
                PodVolume::Ephemeral { storage_class, .. } => {
                    if let Some(driver) = self.driver_of(storage_class.as_deref()) {
                        *counted.ephemeral.entry(driver).or_default() += 1;
                    }
                }
            }
        }
        counted
    }

    fn counted_claim(&self, namespace: &str, name: &str) -> Option<CountedVolume> {
        let claim = self.claims.get(&(namespace, name))?;
        let volume = claim.volume.as_deref();
        let bound = volume.and_then(|name| self.volumes.get(name)).map(|volume| volume.driver.as_deref());
        let driver = match bound {
            Some(driver) => driver?.into(),
            None => self.driver_of(claim.storage_class.as_deref())?,
        };
        let name = volume.map_or_else(|| format!("{namespace}/{name}"), str::to_owned);
        Some(CountedVolume { driver, name })
    }

    fn driver_of(&self, class: Option<&str>) -> Option<Arc<str>> {
        let provisioner = self.classes.get(class.or(self.default_class)?)?.provisioner.as_str();
        Some(if provisioner == EBS_PLUGIN { EBS_DRIVER } else { provisioner }.into())
    }

    /// Where a pod's volumes can be: ORed requirements for all of them together; empty where they bind it to no place.
    pub(crate) fn alternatives(&self, shape: &PodShape) -> Result<Vec<Requirements>, Reason> {
        let mut all: Vec<Requirements> = Vec::new();
        let mut before: Vec<(&PodVolume, Vec<Requirements>)> = Vec::new();
        for volume in &shape.volumes {
            let of_one = match volume {
                PodVolume::Claim(name) => self.of_claim(&shape.namespace, name)?,
                PodVolume::Ephemeral { storage_class, .. } => {
                    self.of_class(storage_class.as_deref(), &named(volume))?
                }
            };
            if of_one.is_empty() {
                continue;
            }
            all = if all.is_empty() { of_one.clone() } else { together(&all, &of_one) };
            if all.is_empty() {
                let other = before.iter().find(|(_, of_other)| together(of_other, &of_one).is_empty());
                let why = apart(&of_one, other.map(|(other, of_other)| (named(other), of_other.as_slice())));
                return Err(Reason::VolumeUnusable { volume: named(volume), why });
            }
            before.push((volume, of_one));
        }
        all.sort();
        all.dedup();
        Ok(all)
    }

    fn of_claim(&self, namespace: &str, name: &str) -> Result<Vec<Requirements>, Reason> {
        let Some(claim) = self.claims.get(&(namespace, name)) else {
            return Err(Reason::VolumeClaimNotFound { claim: name.to_owned() });
        };
        let volume = UnusableVolume::Claim(name.to_owned());
        let unusable =
            |why: &str| Err(Reason::VolumeUnusable { volume: volume.clone(), why: why.to_owned() });
        if claim.phase == "Lost" {
            return unusable("its PersistentVolume is lost; restore it, or delete the claim");
        }
        if claim.meta.deleted_at.is_some() {
            return unusable("it is being deleted; create it again once it is gone");
        }
        match claim.volume.as_deref() {
            None => self.of_class(claim.storage_class.as_deref(), &volume),
            Some(volume) => match self.volumes.get(volume) {
                None => unusable("its PersistentVolume doesn't exist; restore it, or delete the claim"),
                Some(volume) if volume.meta.deleted_at.is_some() => {
                    unusable("its PersistentVolume is being deleted; delete the claim, and create it again")
                }
                Some(volume) if volume.driver.as_deref() == Some(AUTO_MODE_DRIVER) => unusable(
                    "only nodes of EKS Auto Mode attach its PersistentVolume; move the data to a volume of the EBS \
                         CSI driver",
                ),
                Some(volume) => Ok(places(&volume.node_affinity, HostNames::of(volume))),
            },
        }
    }

    fn of_class(&self, class: Option<&str>, volume: &UnusableVolume) -> Result<Vec<Requirements>, Reason> {
        let unusable = |why: String| Err(Reason::VolumeUnusable { volume: volume.clone(), why });
        let Some(name) = class.or(self.default_class) else {
            return unusable("it isn't bound and names no StorageClass; name one".to_owned());
        };
        if name.is_empty() {
            return unusable(
                "it isn't bound, and its empty `storageClassName` rules out a new PersistentVolume; bind an existing one \
                 to it, or name a StorageClass"
                    .to_owned(),
            );
        }
        match self.classes.get(name) {
            None => unusable(format!("its StorageClass `{name}` doesn't exist; create it")),
            Some(class) if class.provisioner == AUTO_MODE_DRIVER => unusable(format!(
                "StorageClass `{name}` makes volumes for nodes of EKS Auto Mode only; use one with the provisioner \
                 `{EBS_DRIVER}`"
            )),
            Some(class) => match class.binding {
                VolumeBinding::WaitForFirstConsumer => Ok(places(&class.allowed_topologies, HostNames::Kept)),
                VolumeBinding::Immediate => unusable(format!(
                    "it isn't bound yet, and StorageClass `{name}` binds at once (`volumeBindingMode: Immediate`); see the \
                     claim's events"
                )),
            },
        }
    }
}

/// The claims of several pods whose volumes will each be in one zone: EBS makes one where the first of the pods comes.
pub(crate) fn shared_claims(input: &ProvisionInput, scope: &Scope<'_>) -> ClaimNames {
    let mut used: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let zonal = scope.nodes.iter().filter(|node| node.labels.contains_key(labels::ZONE));
    let residents = zonal.flat_map(|node| node.occupancy.shapes());
    for shape in scope.pods.iter().map(|pod| &pod.shape).chain(residents) {
        for volume in &shape.volumes {
            if let PodVolume::Claim(name) = volume {
                *used.entry((shape.namespace.as_str(), name.as_str())).or_default() += 1;
            }
        }
    }
    used.retain(|_, pods| *pods > 1);
    if used.is_empty() {
        return ClaimNames::new();
    }
    let is_shared = |claim: &&PersistentVolumeClaim| {
        claim.volume.is_none()
            && claim.users == ClaimUsers::Many
            && used.contains_key(&(claim.meta.namespace.as_str(), claim.meta.name.as_str()))
    };
    let unbound: Vec<&PersistentVolumeClaim> = input.storage.claims.iter().filter(is_shared).collect();
    if unbound.is_empty() {
        return ClaimNames::new();
    }
    let volumes = Volumes::of(&input.storage);
    let is_zonal = |claim: &&PersistentVolumeClaim| {
        volumes.driver_of(claim.storage_class.as_deref()).is_some_and(|driver| *driver == *EBS_DRIVER)
    };
    let name = |claim: &PersistentVolumeClaim| (claim.meta.namespace.clone(), claim.meta.name.clone());
    unbound.into_iter().filter(is_zonal).map(name).collect()
}

fn named(volume: &PodVolume) -> UnusableVolume {
    match volume {
        PodVolume::Claim(name) => UnusableVolume::Claim(name.clone()),
        PodVolume::Ephemeral { volume, .. } => UnusableVolume::Template(volume.clone()),
    }
}

/// The places that are among both.
fn together(all: &[Requirements], others: &[Requirements]) -> Vec<Requirements> {
    let with = |one: &Requirements, other: &Requirements| {
        one.intersects(other).is_ok().then(|| one.clone().and(other))
    };
    all.iter().flat_map(|one| others.iter().filter_map(move |other| with(one, other))).collect()
}

/// Why a volume and the pod's other volumes, or one of them, can't be on one node.
fn apart(of_one: &[Requirements], other: Option<(UnusableVolume, &[Requirements])>) -> String {
    let places =
        |of: &[Requirements]| of.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(" or ");
    let of_one = places(of_one);
    match other {
        Some((other, of_other)) => format!(
            "it asks for {of_one}, {other} for {}, and no node has both; use volumes of one zone",
            places(of_other)
        ),
        None => {
            format!("it asks for {of_one}, which the pod's other volumes exclude; use volumes of one zone")
        }
    }
}

/// What becomes of the names of hosts in a volume's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostNames {
    /// The volume is on no other host.
    Kept,
    /// A pod gets its volume on another host, too, as with the peer.
    Dropped,
}

impl HostNames {
    /// Of a PersistentVolume.
    const fn of(volume: &PersistentVolume) -> Self {
        if volume.driver.is_some() { Self::Kept } else { Self::Dropped }
    }

    fn keep(self, requirement: &Requirement) -> bool {
        match self {
            Self::Kept => true,
            Self::Dropped => requirement.key() != labels::HOSTNAME,
        }
    }
}

/// The places of a volume's terms; none where it can be everywhere.
fn places(terms: &[NodeSelectorTerm], hosts: HostNames) -> Vec<Requirements> {
    let of = |term: &NodeSelectorTerm| {
        let mut asked = Requirements::new();
        for requirement in term.match_expressions.iter().filter(|one| hosts.keep(one)) {
            asked.add(requirement.clone());
        }
        asked
    };
    let all: Vec<Requirements> = terms.iter().map(of).collect();
    // A term that asks for nothing else allows every place.
    if all.iter().any(Requirements::is_empty) { Vec::new() } else { all }
}
