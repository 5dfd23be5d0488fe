//! DaemonSets: what their pods take of a pool's nodes.
//!
//! Decides which DaemonSets run on a claim: those that tolerate its pool's taints, and whose node affinity its requirements
//! and its type allow. A claim that may come to several zones has the DaemonSets of each. It doesn't decide where a claim
//! goes.
//!
//! Invariant: narrower requirements never have more DaemonSets, so a claim's room never shrinks by the requirements of a
//! pod that joins it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::api::meta::ObjectMeta;
use tenon_domain::api::pod::HostPort;
use tenon_domain::api::workload::DaemonSet;
use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::labels;
use tenon_domain::quantity::Quantity;
use tenon_domain::requirement::{Requirement, Requirements, UndefinedKeys};
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::taint::{Taint, Toleration, tolerates_forbidding};

use super::dense::{DenseAmounts, Dimensions};
use super::needs::{Alternative, alternatives};
use super::offers::{OverheadRank, overhead_rank};
use super::pool::Type;

/// A pod that has no room beside a pool's DaemonSets tries so many claims with fewer of them, each a class of the pool's
/// types: some DaemonSets of three zones and two capacity types.
const MOST_LEFT_OUT: usize = 16;

/// A DaemonSet, and its pod's share of each node.
#[derive(Debug)]
pub(crate) struct Daemon<'a> {
    /// Its metadata.
    pub(crate) meta: &'a ObjectMeta,
    /// The requests of its pod.
    pub(crate) requests: &'a ResourceList,
    /// Ways to satisfy its affinity, host names left out: a template names none, its pods are each given one.
    pub(crate) alternatives: Vec<Requirements>,
    /// Its tolerations.
    pub(crate) tolerations: &'a [Toleration],
    /// Its host ports.
    pub(crate) host_ports: &'a BTreeSet<HostPort>,
}

/// The DaemonSets, by namespace and name.
pub(crate) fn daemons(daemon_sets: &[DaemonSet]) -> Vec<Daemon<'_>> {
    let mut sorted: Vec<&DaemonSet> = daemon_sets.iter().collect();
    sorted.sort_by(|a, b| (&a.meta.namespace, &a.meta.name).cmp(&(&b.meta.namespace, &b.meta.name)));
    let without_host = |alternative: Alternative| {
        let mut asked = alternative.asked;
        asked.remove(labels::HOSTNAME);
        asked
    };
    let daemon = |set: &'_ DaemonSet| -> Vec<Requirements> {
        alternatives(&set.template).into_iter().map(without_host).collect()
    };
    sorted
        .into_iter()
        .map(|set| Daemon {
            meta: &set.meta,
            requests: &set.template.requests,
            alternatives: daemon(set),
            tolerations: &set.template.tolerations,
            host_ports: &set.template.host_ports,
        })
        .collect()
}

/// What DaemonSets leave of the nodes of an instance type.
#[derive(Debug)]
pub(crate) struct TypeRoom {
    /// The room for pods.
    pub(crate) amounts: DenseAmounts,
    /// The resources of DaemonSets.
    pub(crate) overhead: ResourceList,
    /// The order of overheads.
    pub(crate) overhead_rank: OverheadRank,
    /// Host ports of the DaemonSets.
    pub(crate) host_ports: Arc<BTreeSet<HostPort>>,
}

/// The room of each of a pool's types.
pub(crate) type TypeRooms = Arc<[TypeRoom]>;

/// A DaemonSet that runs on nodes of a pool.
#[derive(Debug, Clone, Copy)]
struct PoolDaemon<'a> {
    meta: &'a ObjectMeta,
    requests: &'a ResourceList,
    host_ports: &'a BTreeSet<HostPort>,
}

/// A way to satisfy a DaemonSet's affinity on nodes of a pool.
#[derive(Debug)]
struct DaemonWay {
    /// The place of its DaemonSet among those of the pool.
    daemon: usize,
    /// What it asks of a node's labels.
    asked: Requirements,
    /// The part of it that a claim's requirements decide. Pool and type decide the rest: it is empty for nearly all.
    by_claim: Requirements,
}

/// The DaemonSets of a pool's nodes.
#[derive(Debug)]
pub(crate) struct PoolDaemons<'a> {
    running: Vec<PoolDaemon<'a>>,
    ways: Vec<DaemonWay>,
    dimensions: Dimensions,
    /// By the ways that claims allow, the room of their types.
    known: RefCell<BTreeMap<Vec<bool>, TypeRooms>>,
}

impl<'a> PoolDaemons<'a> {
    /// Those that tolerate the pool's taints and are compatible with what it offers, on nodes of these types.
    pub(crate) fn of(
        daemons: &[Daemon<'a>],
        offered: &Requirements,
        taints: &[Taint],
        types: &[Type<'_>],
        dimensions: &Dimensions,
    ) -> Self {
        let (mut running, mut ways) = (Vec::new(), Vec::new());
        for daemon in daemons.iter().filter(|one| tolerates_forbidding(taints, one.tolerations).is_ok()) {
            let goes = |asked: &&Requirements| offered.is_compatible(asked, UndefinedKeys::WellKnownAreOpen);
            ways.extend(daemon.alternatives.iter().filter(goes).map(|asked| DaemonWay {
                daemon: running.len(),
                asked: asked.clone(),
                by_claim: asked.iter().filter(|one| is_by_claim(one, offered, types)).cloned().collect(),
            }));
            let Daemon { meta, requests, host_ports, .. } = *daemon;
            running.push(PoolDaemon { meta, requests, host_ports });
        }
        Self { running, ways, dimensions: dimensions.clone(), known: RefCell::default() }
    }

    /// The room of the pool's types on claims with these requirements.
    pub(crate) fn rooms(&self, types: &[Type<'_>], merged: &Requirements) -> TypeRooms {
        self.rooms_by(types, self.allowed(merged))
    }

    /// The most room of the pool's types: on claims that no DaemonSet with a choice of its own runs on.
    pub(crate) fn largest_rooms(&self, types: &[Type<'_>]) -> TypeRooms {
        self.rooms_by(types, self.ways.iter().map(|way| way.by_claim.is_empty()).collect())
    }

    /// The names of DaemonSets that request a resource on a claim of a type, those that request most first.
    pub(crate) fn requesting(
        &self,
        one: &Type<'_>,
        merged: &Requirements,
        resource: &ResourceName,
    ) -> Vec<String> {
        let allowed = self.allowed(merged);
        let here = self.on(one.option, &allowed);
        let mut found: Vec<(Quantity, &ObjectMeta)> =
            here.map(|daemon| (daemon.requests.get(resource), daemon.meta)).collect();
        found.retain(|(amount, _)| !amount.is_zero());
        found.sort_by(|(a, _), (b, _)| b.cmp(a));
        found.into_iter().map(|(_, meta)| format!("{}/{}", meta.namespace, meta.name)).collect()
    }

    /// What a claim can ask for so that fewer DaemonSets run on it, of those that run only on some of the pool's nodes: all
    /// or each of them left out, or one of their values alone.
    pub(crate) fn left_out(&self) -> Vec<Requirements> {
        let asked = self.ways.iter().flat_map(|way| way.by_claim.iter());
        let asked: BTreeSet<&Requirement> = asked
            .filter(|one| !(one.is_bounded() || one.is_complement() && one.values().is_empty()))
            .collect();
        let values = |one: &&Requirement| one.values().iter().cloned().collect::<Vec<_>>();
        let outs = asked.iter().map(|one| match one.is_complement() {
            true => Requirement::one_of(one.key(), values(one)),
            false => Requirement::none_of(one.key(), values(one)),
        });
        let outs: Vec<Requirement> = outs.collect();
        let mut all = Requirements::new();
        outs.iter().cloned().for_each(|one| all.add(one));
        let alone = asked.iter().flat_map(|one| {
            one.values().iter().map(move |value| Requirement::one_of(one.key(), [value.as_str()]))
        });
        let mut found = vec![all];
        let single = |one: Requirement| std::iter::once(one).collect::<Requirements>();
        found.extend(outs.into_iter().chain(alone).take(MOST_LEFT_OUT).map(single));
        if asked.is_empty() { Vec::new() } else { found }
    }

    /// By way, whether requirements allow it.
    fn allowed(&self, merged: &Requirements) -> Vec<bool> {
        let goes = |way: &DaemonWay| merged.is_compatible(&way.by_claim, UndefinedKeys::WellKnownAreOpen);
        self.ways.iter().map(goes).collect()
    }

    fn rooms_by(&self, types: &[Type<'_>], allowed: Vec<bool>) -> TypeRooms {
        if let Some(rooms) = self.known.borrow().get(&allowed) {
            return Arc::clone(rooms);
        }
        let rooms = self.made(types, &allowed);
        self.known.borrow_mut().insert(allowed, Arc::clone(&rooms));
        rooms
    }

    fn made(&self, types: &[Type<'_>], allowed: &[bool]) -> TypeRooms {
        let mut shared_ports: Option<Arc<BTreeSet<HostPort>>> = None;
        let room = |one: &Type<'_>| {
            let (mut overhead, mut host_ports) = (ResourceList::new(), BTreeSet::new());
            for daemon in self.on(one.option, allowed) {
                overhead.add(daemon.requests);
                host_ports.extend(daemon.host_ports.iter().cloned());
            }
            let mut amounts = self.dimensions.room(&taken_from(&one.option.allocatable, &overhead));
            amounts.extend(&one.volumes);
            let host_ports = match &shared_ports {
                Some(known) if **known == host_ports => Arc::clone(known),
                Some(_) | None => Arc::clone(shared_ports.insert(Arc::new(host_ports))),
            };
            TypeRoom { amounts, overhead_rank: overhead_rank(&overhead), overhead, host_ports }
        };
        types.iter().map(room).collect()
    }

    /// Those that run on nodes of a type.
    fn on(&self, option: &InstanceTypeOption, allowed: &[bool]) -> impl Iterator<Item = &PoolDaemon<'a>> {
        let runs = move |index: usize| {
            let mut ways =
                self.ways.iter().zip(allowed).filter(|(way, allowed)| **allowed && way.daemon == index);
            ways.any(|(way, _)| option.labels.intersects(&way.asked).is_ok())
        };
        self.running.iter().enumerate().filter(move |(index, _)| runs(*index)).map(|(_, daemon)| daemon)
    }
}

/// Whether claims of a pool differ in a label that a DaemonSet asks about: not where the pool or each type alone decides
/// its value, nor where no pod can ask for it.
fn is_by_claim(asked: &Requirement, offered: &Requirements, types: &[Type<'_>]) -> bool {
    let decided = |label: Option<&Requirement>| {
        label.is_some_and(|label| !label.is_complement() && label.values().len() <= 1)
    };
    let key = asked.key();
    (offered.contains(key) || labels::is_well_known(key))
        && !decided(offered.get(key))
        && !types.iter().all(|one| decided(one.option.labels.get(key)))
}

/// The rest; resources that only the overhead names are overdrawn.
pub(crate) fn taken_from(allocatable: &ResourceList, overhead: &ResourceList) -> ResourceList {
    let mut left = allocatable.clone();
    for (name, _) in overhead.iter().filter(|(name, _)| !allocatable.contains(name)) {
        left.insert(name.clone(), Quantity::ZERO);
    }
    left.subtract(overhead);
    left
}
