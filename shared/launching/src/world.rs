//! The input of provisioning from a cluster's view and its agent's snapshot.
//!
//! Decides which classes launches can be made from, which pods are counted on a claim already, and what room nodes and
//! claims in flight have. It plans nothing.
//!
//! Invariants: a pod is counted on a claim only while it exists unbound under the same UID and the claim offers room; a
//! claim on its way out offers none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_cloud::port::CreateFleetRequest;
use tenon_domain::Timestamp;
use tenon_domain::api::node::Schedulable;
use tenon_domain::api::pod::{PodOrigin, SchedulingVerdict};
use tenon_domain::api::{Ec2NodeClass, Node, NodePool, Pod};
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::catalog::settings::PartsPerMillion;
use tenon_domain::catalog::{
    AmiFamily, CapacityType, Catalog, Exhaustion, InstanceTypeOption, PartData, Places,
};
use tenon_domain::claim::{Claim, ClaimPhase, PodsCounted};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::digest::Digest;
use tenon_domain::evidence::{CatalogPart, Waiting, require};
use tenon_domain::id::{
    ClaimName, ClusterName, InstanceId, NodeClassName, NodeName, NodePoolName, Region, Uid,
};
use tenon_domain::labels;
use tenon_domain::quantity::Quantity;
use tenon_domain::registry::Registry;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::snapshot::Snapshot;
use tenon_domain::taint::Taint;
use tenon_domain::unavailable::UnavailableKey;
use tenon_entrypoint::observe::ClusterView;
use tenon_scheduling::provision::{
    ExistingNode, Input, NodeKind, PoolInput, PoolReadiness, Purpose, StepBudget, Storage,
};

use crate::build::ReadyClass;
use crate::fleet;

/// The kind of owner whose pods make no nodes.
const DAEMON_SET: &str = "DaemonSet";

/// Letters and digits of a request's digest.
const DIGEST_DIGITS: usize = 24;

/// A cluster as it was observed, indexed.
#[derive(Debug)]
pub struct World<'a> {
    view: &'a ClusterView,
    snapshot: &'a Snapshot,
    registry: &'a Registry,
    cluster: &'a ClusterName,
    /// Classes that launches can be made from.
    pub classes: BTreeMap<NodeClassName, ReadyClass>,
    /// Types of each dynamic pool, by name; none where the class or the catalogue isn't there.
    pub types: BTreeMap<NodePoolName, Arc<Vec<InstanceTypeOption>>>,
    readiness: BTreeMap<NodePoolName, PoolReadiness>,
    counted: BTreeMap<&'a Uid, &'a ClaimName>,
    unbound: BTreeMap<&'a Uid, &'a Pod>,
    bound: BTreeMap<&'a NodeName, Vec<&'a Pod>>,
    by_instance: BTreeMap<&'a InstanceId, &'a Claim>,
    recount_at: Option<Timestamp>,
}

impl<'a> World<'a> {
    /// Indexes what was observed.
    #[must_use]
    pub fn new(
        cluster: &'a ClusterName,
        registry: &'a Registry,
        view: &'a ClusterView,
        snapshot: &'a Snapshot,
    ) -> Self {
        let unbound: BTreeMap<&Uid, &Pod> =
            snapshot.pods.iter().filter(|pod| pod.is_unbound()).map(|pod| (&pod.uid, pod)).collect();
        let mut bound: BTreeMap<&NodeName, Vec<&Pod>> = BTreeMap::new();
        for pod in snapshot.pods.iter().filter(|pod| !pod.is_finished()) {
            if let Some(node) = &pod.node {
                bound.entry(node).or_default().push(pod);
            }
        }
        let mut world = Self {
            view,
            snapshot,
            registry,
            cluster,
            classes: BTreeMap::new(),
            types: BTreeMap::new(),
            readiness: BTreeMap::new(),
            counted: BTreeMap::new(),
            unbound,
            bound,
            by_instance: view
                .claims
                .values()
                .filter_map(|claim| claim.state.instance().map(|instance| (&instance.id, claim)))
                .collect(),
            recount_at: None,
        };
        world.count();
        world
    }

    fn count(&mut self) {
        for launch in self.view.launches.values() {
            for claim in &launch.claims {
                let counts = self
                    .view
                    .claims
                    .get(&claim.name)
                    .map_or(PodsCounted::No, |c| c.counts_pods(self.view.now));
                if counts == PodsCounted::No {
                    continue;
                }
                let here = claim.pods.iter().filter(|pod| self.unbound.contains_key(&pod.uid));
                let before = self.counted.len();
                self.counted.extend(here.map(|pod| (&pod.uid, &claim.name)));
                if let (PodsCounted::Until(end), true) = (counts, self.counted.len() > before) {
                    self.recount_at = Some(self.recount_at.map_or(end, |at: Timestamp| at.min(end)));
                }
            }
        }
    }

    /// When pods that wait, and are counted on a claim, are nobody's again: to be planned anew then.
    #[must_use]
    pub const fn recount_at(&self) -> Option<Timestamp> {
        self.recount_at
    }

    /// Finds out which pools are ready and what their nodes can be. Before this no pool is known.
    pub fn resolve(&mut self, region: &Region) {
        let mut by_class: BTreeMap<&NodeClassName, Arc<Vec<InstanceTypeOption>>> = BTreeMap::new();
        for pool in self.snapshot.node_pools.iter().filter(|pool| plans(pool)) {
            let name = &pool.template.node_class.name;
            let class = self.class(pool);
            if let Some(class) = class {
                let types = by_class.entry(name).or_insert_with(|| Arc::new(self.options(class, region)));
                self.types.insert(pool.name.clone(), Arc::clone(types));
            }
            let readiness = self.judge(pool, class);
            if let (PoolReadiness::Ready, Some(class), Some(status)) =
                (&readiness, class, self.view.classes.get(name))
            {
                let ready = ReadyClass { class: self.with_settings(class), status: status.clone() };
                self.classes.insert(name.clone(), ready);
            }
            self.readiness.insert(pool.name.clone(), readiness);
        }
    }

    fn class(&self, pool: &NodePool) -> Option<&'a Ec2NodeClass> {
        let wanted = &pool.template.node_class;
        let ours = wanted.group == labels::PROVIDER_DOMAIN && wanted.kind == "EC2NodeClass";
        self.snapshot.node_classes.iter().find(|class| ours && class.name == wanted.name)
    }

    /// The class with the cluster's settings.
    fn with_settings(&self, class: &Ec2NodeClass) -> Ec2NodeClass {
        let mut class = class.clone();
        class.settings.reserved_enis = self.registry.settings.reserved_enis;
        class.settings.vm_memory_overhead = PartsPerMillion(self.registry.settings.vm_memory_overhead_ppm);
        class
    }

    fn judge(&self, pool: &NodePool, class: Option<&Ec2NodeClass>) -> PoolReadiness {
        let name = &pool.template.node_class.name;
        let Some(class) = class else { return PoolReadiness::NodeClassNotFound(name.clone()) };
        let not_ready = |reason: &str| {
            PoolReadiness::NotReady(Waiting::NodeClassNotReady {
                class: name.to_string(),
                reason: reason.to_owned(),
            })
        };
        match class.settings.ami_family {
            AmiFamily::Al2023 | AmiFamily::Custom => {}
            AmiFamily::Al2
            | AmiFamily::Bottlerocket
            | AmiFamily::Windows2019
            | AmiFamily::Windows2022
            | AmiFamily::Windows2025 => return not_ready("UnsupportedAmiFamily"),
        }
        let Some(status) = self.view.classes.get(name) else { return not_ready("AwaitingReconciliation") };
        if class.meta.deleted_at.is_some() {
            return not_ready("Terminating");
        }
        if status.generation != class.meta.generation {
            return not_ready("AwaitingReconciliation");
        }
        if !status.ready() {
            return not_ready(status.obstacle().map_or("Unknown", |obstacle| obstacle.reason_text()));
        }
        let key = refused_request(self.cluster, &pool.name, status);
        if let Some(mark) = self.view.marks.of(&key, self.view.now) {
            return not_ready(&mark.code);
        }
        match self.missing_part(pool) {
            Some(waiting) => PoolReadiness::NotReady(waiting),
            None => PoolReadiness::Ready,
        }
    }

    /// The first part of the catalogue that the pool needs and that isn't there or is too old.
    fn missing_part(&self, pool: &NodePool) -> Option<Waiting> {
        let allows = |capacity_type: CapacityType| {
            pool.template.requirements.allows(labels::CAPACITY_TYPE, capacity_type.as_str())
        };
        let needed = CatalogPart::ALL.into_iter().filter(|part| match part {
            CatalogPart::InstanceTypes | CatalogPart::Offerings => true,
            CatalogPart::OnDemandPrices => allows(CapacityType::OnDemand),
            CatalogPart::SpotPrices => allows(CapacityType::Spot),
        });
        needed
            .filter_map(|part| {
                let found = self.view.parts.get(&part).map(|found| ((), found.refreshed_at));
                require(part, found, self.view.now).err()
            })
            .next()
    }

    /// All types as nodes of the class would be, by name; those without an image among the class's are left out.
    fn options(&self, class: &Ec2NodeClass, region: &Region) -> Vec<InstanceTypeOption> {
        let fresh = |part: CatalogPart| {
            let found = self.view.parts.get(&part).map(|found| (&found.data, found.refreshed_at));
            require(part, found, self.view.now).ok().map(|ready| Arc::clone(*ready))
        };
        let (types, offerings) = (fresh(CatalogPart::InstanceTypes), fresh(CatalogPart::Offerings));
        let (Some(PartData::InstanceTypes(types)), Some(PartData::Offerings(offerings))) =
            (types.as_deref(), offerings.as_deref())
        else {
            return Vec::new();
        };
        let Some(status) = self.view.classes.get(&class.name) else { return Vec::new() };
        let (on_demand, spot) = (fresh(CatalogPart::OnDemandPrices), fresh(CatalogPart::SpotPrices));
        let (no_on_demand, no_spot) = (BTreeMap::new(), BTreeMap::new());
        let catalog = Catalog {
            region,
            types,
            offerings,
            on_demand: match on_demand.as_deref() {
                Some(PartData::OnDemandPrices(prices)) => prices,
                _ => &no_on_demand,
            },
            spot: match spot.as_deref() {
                Some(PartData::SpotPrices(prices)) => prices,
                _ => &no_spot,
            },
        };
        let settings = self.with_settings(class).settings;
        let exhaustion = Exhaustion { marks: &self.view.marks, now: self.view.now };
        let mut options = catalog.options(&settings, Places::Subnets(&status.subnets), exhaustion);
        options.retain(|option| fleet::image_of(&option.facts, status).is_some());
        options
    }

    /// Pods that want a node and that no claim counts.
    #[must_use]
    pub fn pending(&self) -> Vec<Pod> {
        self.unbound.values().filter(|pod| self.wants_node(pod)).map(|pod| (*pod).clone()).collect()
    }

    /// The pods that claims with room count.
    #[must_use]
    pub fn counted(&self) -> BTreeSet<Uid> {
        self.counted.keys().map(|uid| (*uid).clone()).collect()
    }

    /// The pods that are bound to a Node and haven't ended.
    #[must_use]
    pub fn bound_to(&self, node: &NodeName) -> Vec<Pod> {
        self.bound.get(node).into_iter().flatten().map(|pod| (*pod).clone()).collect()
    }

    /// The architecture of a claim's instance.
    #[must_use]
    pub fn architecture(&self, claim: &Claim) -> Option<Architecture> {
        self.option(claim)?.facts.architectures.first().cloned()
    }

    fn wants_node(&self, pod: &Pod) -> bool {
        let nominated = match pod.scheduling {
            SchedulingVerdict::Nominated => true,
            SchedulingVerdict::None | SchedulingVerdict::Unschedulable | SchedulingVerdict::Gated => false,
        };
        !nominated
            && !is_daemon(pod)
            && pod.shape.origin == PodOrigin::Api
            && !self.counted.contains_key(&pod.uid)
    }

    /// The input of provisioning for these pods. Nodes of `leaving` claims have no room.
    #[must_use]
    pub fn input(&self, pods: Vec<Pod>, purpose: Purpose, leaving: &BTreeSet<ClaimName>) -> Input {
        let snapshot = self.snapshot;
        Input {
            now: self.view.now,
            cluster: self.cluster.clone(),
            pods,
            nodes: self.nodes(leaving),
            pools: self.pools(),
            daemon_sets: snapshot.daemon_sets.clone(),
            storage: Storage {
                volumes: snapshot.persistent_volumes.clone(),
                claims: snapshot.persistent_volume_claims.clone(),
                classes: snapshot.storage_classes.clone(),
            },
            namespaces: snapshot.namespaces.clone(),
            taken_names: self.view.claims.keys().cloned().collect(),
            steps: StepBudget::default(),
            purpose,
        }
    }

    fn pools(&self) -> Vec<PoolInput> {
        let live = self.view.claims.values().filter(|claim| holds_node(claim)).count();
        let nodes_left = self
            .registry
            .allowed
            .max_nodes
            .map(|most| most.saturating_sub(u32::try_from(live).unwrap_or(u32::MAX)));
        let dynamic = self.snapshot.node_pools.iter().filter(|pool| plans(pool));
        dynamic
            .filter_map(|pool| {
                Some(PoolInput {
                    pool: pool.clone(),
                    types: self.types.get(&pool.name).cloned().unwrap_or_default(),
                    usage: self.usage(pool),
                    readiness: self.readiness.get(&pool.name)?.clone(),
                    nodes_left,
                    capacity_back_at: self.view.marks.next_end(self.view.now),
                })
            })
            .collect()
    }

    /// Capacity of the pool's nodes and claims. A claim whose type isn't known yet counts as the largest that it may be.
    fn usage(&self, pool: &NodePool) -> ResourceList {
        let mut usage = ResourceList::new();
        let mut nodes = 0_i64;
        let mut known: BTreeSet<&NodeName> = BTreeSet::new();
        for claim in self.view.claims.values().filter(|claim| claim.pool == pool.name && holds_node(claim)) {
            nodes += 1;
            let node = self.node_of(claim);
            known.extend(node.map(|node| &node.name));
            match node.filter(|node| !node.capacity.is_empty()) {
                Some(node) => usage.add(&node.capacity),
                None => usage.add(&self.capacity(claim)),
            }
        }
        let own = |node: &&Node| {
            node.meta.labels.get(labels::NODEPOOL).map(String::as_str) == Some(pool.name.as_str())
        };
        for node in self.snapshot.nodes.iter().filter(own).filter(|node| !known.contains(&node.name)) {
            nodes += 1;
            usage.add(&node.capacity);
        }
        usage.with(ResourceName::NODES, Quantity::from_integer(nodes))
    }

    fn capacity(&self, claim: &Claim) -> ResourceList {
        let types = self.types.get(&claim.pool).map_or(&[][..], |types| types.as_slice());
        if let Some(instance) = claim.state.instance() {
            return fleet::option(types, &instance.instance_type)
                .map(|o| o.capacity.clone())
                .unwrap_or_default();
        }
        let request = self
            .view
            .launches
            .get(&claim.launch)
            .and_then(|l| CreateFleetRequest::from_stored(&l.request).ok());
        let overrides =
            request.iter().flat_map(|request| &request.launch_templates).flat_map(|t| &t.overrides);
        let mut most = ResourceList::new();
        for option in overrides.filter_map(|from| fleet::option(types, &from.instance_type)) {
            most.raise(&option.capacity);
        }
        most
    }

    /// The claim's Node, where it joined.
    #[must_use]
    pub fn node_of(&self, claim: &Claim) -> Option<&'a Node> {
        let instance = &claim.state.instance()?.id;
        self.snapshot
            .nodes
            .iter()
            .find(|node| node.provider_id.as_ref().is_some_and(|id| id.instance == *instance))
    }

    fn nodes(&self, leaving: &BTreeSet<ClaimName>) -> Vec<ExistingNode> {
        let mut nodes = Vec::new();
        let mut joined: BTreeSet<&ClaimName> = BTreeSet::new();
        for node in &self.snapshot.nodes {
            let instance = node.provider_id.as_ref().map(|id| &id.instance);
            let claim = instance.and_then(|instance| self.by_instance.get(instance).copied());
            joined.extend(claim.map(|claim| &claim.name));
            let stays =
                claim.is_none_or(|claim| claim.phase().offers_room() && !leaving.contains(&claim.name));
            if stays && node.meta.deleted_at.is_none() && node.schedulable == Schedulable::Yes {
                nodes.push(self.joined(node, claim));
            }
        }
        let in_flight = |claim: &&Claim| {
            claim.phase() == ClaimPhase::Launched
                && !joined.contains(&claim.name)
                && !leaving.contains(&claim.name)
        };
        nodes.extend(self.view.claims.values().filter(in_flight).filter_map(|claim| self.in_flight(claim)));
        nodes
    }

    fn joined(&self, node: &Node, claim: Option<&Claim>) -> ExistingNode {
        let kind = match claim.map(Claim::phase) {
            None | Some(ClaimPhase::Initialized) => NodeKind::Initialized,
            Some(_) => NodeKind::Starting,
        };
        let startup =
            claim.and_then(|claim| self.pool(claim)).map_or(&[][..], |pool| &pool.template.startup_taints);
        let goes_away = |taint: &Taint| {
            kind == NodeKind::Starting
                && (taint.is_ephemeral() || startup.iter().any(|own| own.matches(taint)))
        };
        let mut allocatable = node.allocatable.clone();
        if let (NodeKind::Starting, Some(option)) = (kind, claim.and_then(|claim| self.option(claim))) {
            // What a starting kubelet hasn't reported yet.
            for (name, quantity) in option.allocatable.iter() {
                if allocatable.get(name).is_zero() {
                    allocatable.insert(name.clone(), quantity);
                }
            }
        }
        let here = self.bound.get(&node.name).map_or(&[][..], Vec::as_slice);
        let mut existing = ExistingNode {
            name: node.name.to_string(),
            kind,
            labels: node.meta.labels.clone(),
            taints: node.taints.iter().filter(|taint| !goes_away(taint)).cloned().collect(),
            allocatable,
            used: ResourceList::new(),
            daemon_used: ResourceList::new(),
            host_ports: BTreeSet::new(),
            pool: node.meta.labels.get(labels::NODEPOOL).and_then(|name| NodePoolName::parse(name).ok()),
        };
        existing.take(here.iter().copied());
        if let Some(claim) = claim {
            existing.take(self.counted_on(&claim.name));
        }
        existing
    }

    fn in_flight(&self, claim: &Claim) -> Option<ExistingNode> {
        let (pool, option, instance) = (self.pool(claim)?, self.option(claim)?, claim.state.instance()?);
        let mut node_labels = option.labels.labels();
        node_labels.extend(pool.template.labels.clone());
        let offering = option.offerings.iter().find(|offering| offering.zone == instance.zone);
        node_labels.extend(
            [
                (labels::NODEPOOL, claim.pool.as_str()),
                (labels::EC2NODECLASS, claim.class.as_str()),
                (labels::CAPACITY_TYPE, instance.capacity_type.as_str()),
                (labels::ZONE, instance.zone.as_str()),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        node_labels.extend(offering.map(|found| (labels::ZONE_ID.to_owned(), found.zone_id.to_string())));
        let mut existing = ExistingNode {
            name: claim.name.to_string(),
            kind: NodeKind::InFlight,
            labels: node_labels,
            taints: pool.template.taints.clone(),
            allocatable: option.allocatable.clone(),
            used: ResourceList::new(),
            daemon_used: ResourceList::new(),
            host_ports: BTreeSet::new(),
            pool: Some(claim.pool.clone()),
        };
        existing.take(self.counted_on(&claim.name));
        Some(existing)
    }

    fn counted_on<'s>(&'s self, claim: &'s ClaimName) -> impl Iterator<Item = &'a Pod> + 's {
        let here = self.counted.iter().filter(move |(_, name)| **name == claim);
        here.filter_map(|(uid, _)| self.unbound.get(*uid).copied())
    }

    fn pool(&self, claim: &Claim) -> Option<&'a NodePool> {
        self.snapshot.node_pools.iter().find(|pool| pool.name == claim.pool)
    }

    fn option(&self, claim: &Claim) -> Option<&InstanceTypeOption> {
        fleet::option(self.types.get(&claim.pool)?, &claim.state.instance()?.instance_type)
    }
}

/// Takes room on a node.
trait Take {
    fn take<'p>(&mut self, pods: impl Iterator<Item = &'p Pod>);
}

impl Take for ExistingNode {
    fn take<'p>(&mut self, pods: impl Iterator<Item = &'p Pod>) {
        for pod in pods {
            self.used.add(&pod.shape.requests);
            if is_daemon(pod) {
                self.daemon_used.add(&pod.shape.requests);
            }
            self.host_ports.extend(pod.shape.host_ports.iter().cloned());
        }
    }
}

/// Whether a DaemonSet made the pod: it comes with its node, and makes none.
#[must_use]
pub fn is_daemon(pod: &Pod) -> bool {
    pod.shape.owner.as_ref().is_some_and(|owner| owner.kind == DAEMON_SET)
}

/// Whether claims are planned for a pool: a dynamic one that isn't being deleted.
fn plans(pool: &NodePool) -> bool {
    pool.replicas.is_none() && pool.meta.deleted_at.is_none()
}

/// Whether there is, or will be, a node for the claim.
const fn holds_node(claim: &Claim) -> bool {
    !claim.phase().is_final()
}

/// What is marked where EC2 refuses the launches of a pool for what they are: another spec or other images of the class
/// are another request.
#[must_use]
pub fn refused_request(cluster: &ClusterName, pool: &NodePoolName, status: &ClassStatus) -> UnavailableKey {
    let images: Vec<&str> = status.images.iter().map(|image| image.id.as_str()).collect();
    let images = images.join(" ");
    let class = [status.name.as_str(), status.spec_digest.as_str(), images.as_str()];
    let texts = [cluster.as_str(), pool.as_str()].into_iter().chain(class);
    UnavailableKey::Request(Digest::of_texts(texts).base36(DIGEST_DIGITS))
}
