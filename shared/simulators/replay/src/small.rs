//! Small worlds for planners: the peer's fake instance types, and pods, pools and nodes in few words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::api::meta::ObjectMeta;
use tenon_domain::api::node_pool::{
    ConsolidationPolicy, DisruptionPolicy, NodeClaimTemplate, NodeClassRef, NodePool,
};
use tenon_domain::api::pod::{
    LabelSelector, NodeInclusionPolicy, Pod, PodAffinityTerm, PodPhase, PodShape, Readiness,
    SchedulingVerdict, TopologySpreadConstraint, WhenUnsatisfiable,
};
use tenon_domain::api::storage::{CsiNode, EBS_DRIVER};
use tenon_domain::api::workload::DaemonSet;
use tenon_domain::budget::{Budget, BudgetNodes};
use tenon_domain::catalog::facts::{
    Architecture, BootModes, Ebs, InstanceTypeFacts, Network, Processor, Support, UsageClass,
};
use tenon_domain::catalog::{Availability, CapacityType, InstanceTypeOption, Offering};
use tenon_domain::id::{
    ClusterName, InstanceType, NamespacedName, NodeClassName, NodePoolName, Uid, Zone, ZoneId,
};
use tenon_domain::labels;
use tenon_domain::money::UsdPerHour;
use tenon_domain::quantity::Quantity;
use tenon_domain::registry::PlanPolicies;
use tenon_domain::requirement::{Requirement, Requirements};
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_planning::provision::{
    DefaultSpread, ExistingNode, NodeKind, Occupancy, PoolInput, PoolReadiness, PoolStanding, ProvisionInput,
    Purpose, StepBudget, Storage,
};

/// A time, in seconds after the worlds' own.
#[must_use]
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).unwrap()
}

/// Amounts of resources.
#[must_use]
pub fn list(items: &[(&str, &str)]) -> ResourceList {
    items.iter().map(|(n, q)| (ResourceName::parse(*n).unwrap(), Quantity::parse(q).unwrap())).collect()
}

/// One of the peer's fake types: overhead of 100m CPU and 10Mi, spot in two zones, on demand in three, priced by size.
#[derive(Clone)]
pub struct FakeType {
    /// Its name.
    pub name: &'static str,
    /// Its vCPUs.
    pub cpu: i64,
    /// Its memory.
    pub memory_gib: i64,
    /// How many pods its kubelet takes.
    pub pods: i64,
    /// Its architecture, in Kubernetes' words.
    pub arch: &'static str,
    /// More resources.
    pub extra: Vec<(&'static str, &'static str)>,
}

/// The zones.
pub const ZONES: [&str; 3] = ["test-zone-1", "test-zone-2", "test-zone-3"];

impl FakeType {
    /// A type of amd64.
    #[must_use]
    pub fn new(name: &'static str, cpu: i64, memory_gib: i64, pods: i64) -> Self {
        Self { name, cpu, memory_gib, pods, arch: "amd64", extra: Vec::new() }
    }

    /// Its price: it grows with its size.
    #[must_use]
    pub fn price(&self) -> UsdPerHour {
        let bytes = u64::try_from(self.memory_gib).unwrap() << 30;
        UsdPerHour::from_nanos(100_000_000 * u64::try_from(self.cpu).unwrap() + bytes / 10)
    }

    /// The type as the catalogue has it.
    #[must_use]
    pub fn option(&self) -> InstanceTypeOption {
        let mut capacity = list(&[
            ("cpu", &self.cpu.to_string()),
            ("memory", &format!("{}Gi", self.memory_gib)),
            ("pods", &self.pods.to_string()),
            ("ephemeral-storage", "20Gi"),
        ]);
        capacity.add(&list(&self.extra));
        let overhead = list(&[("cpu", "100m"), ("memory", "10Mi")]);
        let mut offerings = Vec::new();
        for (index, zone) in ZONES.iter().enumerate() {
            let mut add = |capacity_type| {
                offerings.push(Offering {
                    zone: Zone::parse(*zone).unwrap(),
                    zone_id: ZoneId::parse(format!("tstz{}", index + 1)).unwrap(),
                    capacity_type,
                    reservation: None,
                    price: Some(self.price()),
                    availability: Availability::Available,
                });
            };
            if index < 2 {
                add(CapacityType::Spot);
            }
            add(CapacityType::OnDemand);
        }
        let large = self.cpu > 4 && self.memory_gib > 8;
        let labels: Requirements = [
            Requirement::one_of(labels::INSTANCE_TYPE, [self.name]),
            Requirement::one_of(labels::ARCH, [self.arch]),
            Requirement::one_of(labels::OS, ["linux"]),
            Requirement::one_of(labels::ZONE, ZONES),
            Requirement::one_of(labels::ZONE_ID, ["tstz1", "tstz2", "tstz3"]),
            Requirement::one_of(labels::REGION, ["test-region-1"]),
            Requirement::one_of(labels::CAPACITY_TYPE, ["spot", "on-demand"]),
            Requirement::one_of(labels::INSTANCE_CPU, [self.cpu.to_string()]),
            Requirement::one_of(labels::INSTANCE_SIZE, [if large { "large" } else { "small" }]),
            Requirement::does_not_exist(labels::INSTANCE_GPU_NAME),
        ]
        .into_iter()
        .collect();
        InstanceTypeOption {
            facts: Arc::new(facts(self.name, self.cpu, self.memory_gib)),
            labels,
            allocatable: capacity.clone().minus(&overhead),
            capacity,
            promised_storage: None,
            ebs_volumes: None,
            offerings,
        }
    }
}

/// EC2's facts of an invented type.
#[must_use]
pub fn facts(name: &str, cpu: i64, memory_gib: i64) -> InstanceTypeFacts {
    InstanceTypeFacts {
        name: InstanceType::parse(name).unwrap(),
        vcpus: u32::try_from(cpu).unwrap(),
        memory_mib: u64::try_from(memory_gib).unwrap() * 1024,
        architectures: vec![Architecture::X86_64],
        processor: Processor::default(),
        gpus: Vec::new(),
        neuron_devices: Vec::new(),
        inference_accelerators: Vec::new(),
        instance_store: None,
        ebs: Ebs::default(),
        network: Network {
            ena: Support::Always,
            default_card_interfaces: 4,
            cards: Vec::new(),
            ipv4_per_interface: 10,
            max_efa_interfaces: 0,
            encryption_in_transit: false,
            bandwidth_mbps: None,
            branch_interfaces: 0,
        },
        hypervisor: None,
        bare_metal: false,
        nitro_enclaves: false,
        burstable: false,
        current_generation: true,
        usage_classes: vec![UsageClass::OnDemand, UsageClass::Spot],
        placement_strategies: Vec::new(),
        boot_modes: BootModes::Both,
    }
}

/// A NodePool without demands.
#[must_use]
pub fn node_pool(name: &str) -> NodePool {
    NodePool {
        meta: ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() },
        name: NodePoolName::parse(name).unwrap(),
        template: NodeClaimTemplate {
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            node_class: NodeClassRef {
                group: "karpenter.k8s.aws".to_owned(),
                kind: "EC2NodeClass".to_owned(),
                name: NodeClassName::parse("default").unwrap(),
            },
            requirements: Requirements::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            expire_after: None,
            termination_grace_period: None,
        },
        disruption: DisruptionPolicy {
            consolidate_after: None,
            consolidation_policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
            budgets: vec![Budget::always(BudgetNodes::Percent(10))],
        },
        limits: ResourceList::new(),
        weight: 0,
        replicas: None,
        unknown: Vec::new(),
        warnings: Vec::new(),
    }
}

/// A NodePool that is ready, with its types.
#[must_use]
pub fn pool(name: &str, types: Vec<InstanceTypeOption>) -> PoolInput {
    PoolInput {
        pool: node_pool(name),
        types: Arc::new(types),
        usage: ResourceList::new(),
        leaving: ResourceList::new(),
        charges: BTreeMap::new(),
        readiness: PoolReadiness::Ready,
        nodes_left: None,
        vcpus_left: None,
        vcpus_guessed: None,
        standing: PoolStanding::Trusted,
        without: None,
    }
}

/// A pod that requests so much.
#[must_use]
pub fn shape(requests: &[(&str, &str)]) -> PodShape {
    PodShape {
        namespace: "default".to_owned(),
        requests: list(requests).with(ResourceName::PODS, Quantity::from_integer(1)),
        scheduler_name: "default-scheduler".to_owned(),
        ..PodShape::default()
    }
}

/// A pending pod of a shape.
#[must_use]
pub fn pod(name: &str, shape: &Arc<PodShape>) -> Pod {
    Pod {
        name: NamespacedName { namespace: "default".to_owned(), name: name.to_owned() },
        uid: Uid::parse(format!("uid-{name}")).unwrap(),
        created_at: None,
        started_at: None,
        bound_at: None,
        node: None,
        phase: PodPhase::Pending,
        readiness: Readiness::NotReady,
        scheduling: SchedulingVerdict::None,
        deleted_at: None,
        shape: Arc::clone(shape),
    }
}

/// So many equal pods.
#[must_use]
pub fn pods(prefix: &str, count: usize, shape: PodShape) -> Vec<Pod> {
    let shape = Arc::new(shape);
    (0..count).map(|index| pod(&format!("{prefix}-{index:04}"), &shape)).collect()
}

/// A world of pods and pools.
#[must_use]
pub fn input(pods: Vec<Pod>, pools: Vec<PoolInput>) -> ProvisionInput {
    ProvisionInput {
        now: at(0),
        cluster: ClusterName::parse("test").unwrap(),
        pods,
        nodes: Vec::new(),
        pools,
        static_pools: BTreeSet::new(),
        leaving_pools: BTreeSet::new(),
        daemon_sets: Vec::new(),
        storage: Storage::default(),
        namespaces: BTreeMap::new(),
        default_spread: DefaultSpread::default(),
        taken_names: BTreeSet::new(),
        policies: PlanPolicies::default(),
        steps: StepBudget::default(),
        purpose: Purpose::PendingPods,
    }
}

/// A node of a pool, with its room.
#[must_use]
pub fn node(name: &str, kind: NodeKind, allocatable: &[(&str, &str)]) -> ExistingNode {
    let labels = [(labels::HOSTNAME, name), (labels::ARCH, "amd64"), (labels::OS, "linux")];
    ExistingNode {
        name: name.to_owned(),
        kind,
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        taints: Vec::new(),
        allocatable: list(allocatable),
        occupancy: Occupancy::default(),
        pool: Some(NodePoolName::parse("default").unwrap()),
    }
}

/// A DaemonSet of a template.
#[must_use]
pub fn daemon_set(name: &str, shape: PodShape) -> DaemonSet {
    DaemonSet {
        meta: ObjectMeta { name: name.to_owned(), namespace: "default".to_owned(), ..ObjectMeta::default() },
        template: Arc::new(shape),
    }
}

/// Pods of an app.
#[must_use]
pub fn app(name: &str, cpu: &str) -> PodShape {
    let mut one = shape(&[("cpu", cpu)]);
    one.labels.insert("app".to_owned(), name.to_owned());
    one
}

/// Selects the pods of an app.
#[must_use]
pub fn selects(app: &str) -> LabelSelector {
    LabelSelector { requirements: vec![Requirement::one_of("app", [app])] }
}

/// A term about the pods of an app.
#[must_use]
pub fn term(key: &str, app: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        selector: Some(selects(app)),
        topology_key: key.to_owned(),
        ..PodAffinityTerm::default()
    }
}

/// Spreads the pods of an app.
#[must_use]
pub fn spread(key: &str, app: &str, skew: u32) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: skew,
        topology_key: key.to_owned(),
        when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
        selector: Some(selects(app)),
        min_domains: None,
        node_affinity_policy: NodeInclusionPolicy::Honor,
        node_taints_policy: NodeInclusionPolicy::Ignore,
        match_label_keys: Vec::new(),
    }
}

/// The metadata of an object.
#[must_use]
pub fn meta(name: &str, namespace: &str) -> ObjectMeta {
    ObjectMeta { name: name.to_owned(), namespace: namespace.to_owned(), ..ObjectMeta::default() }
}

/// What a node's CSINode says of EBS.
#[must_use]
pub fn csi_node(node: &str, most: u32) -> CsiNode {
    CsiNode { meta: meta(node, ""), drivers: BTreeMap::from([(EBS_DRIVER.to_owned(), Some(most))]) }
}

/// What the CSINode of a claim's node will say: as many as its type attaches.
#[must_use]
pub fn csi_node_of(input: &ProvisionInput, node: &ExistingNode) -> Option<CsiNode> {
    let pool = input.pools.iter().find(|pool| Some(&pool.pool.name) == node.pool.as_ref())?;
    let kind = node.labels.get(labels::INSTANCE_TYPE)?;
    let option = pool.types.iter().find(|option| option.facts.name.as_str() == kind)?;
    option.ebs_volumes.map(|most| csi_node(&node.name, most))
}
