//! A small world for planners: the peer's fake instance types, and pods, pools and nodes in few words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::api::meta::{ObjectMeta, OwnerReference, OwnerRole};
use tenon_domain::api::node_pool::{
    ConsolidationPolicy, DisruptionPolicy, NodeClaimTemplate, NodeClassRef, NodePool,
};
use tenon_domain::api::pod::{Pod, PodPhase, PodShape, Readiness, SchedulingVerdict};
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
    ProvisionPlan, ProvisionReport, Purpose, StepBudget, Storage, plan,
};

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).unwrap()
}

pub(crate) fn list(items: &[(&str, &str)]) -> ResourceList {
    items.iter().map(|(n, q)| (ResourceName::parse(*n).unwrap(), Quantity::parse(q).unwrap())).collect()
}

/// One of the peer's fake types: overhead of 100m CPU and 10Mi, spot in two zones, on demand in three, priced by size.
#[derive(Clone)]
pub(crate) struct FakeType {
    pub(crate) name: &'static str,
    pub(crate) cpu: i64,
    pub(crate) memory_gib: i64,
    pub(crate) pods: i64,
    pub(crate) arch: &'static str,
    pub(crate) extra: Vec<(&'static str, &'static str)>,
}

pub(crate) const ZONES: [&str; 3] = ["test-zone-1", "test-zone-2", "test-zone-3"];

impl FakeType {
    pub(crate) fn new(name: &'static str, cpu: i64, memory_gib: i64, pods: i64) -> Self {
        Self { name, cpu, memory_gib, pods, arch: "amd64", extra: Vec::new() }
    }

    pub(crate) fn price(&self) -> UsdPerHour {
        let bytes = u64::try_from(self.memory_gib).unwrap() << 30;
        UsdPerHour::from_nanos(100_000_000 * u64::try_from(self.cpu).unwrap() + bytes / 10)
    }

    pub(crate) fn option(&self) -> InstanceTypeOption {
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
            ebs_volumes: None,
            offerings,
        }
    }
}

pub(crate) fn facts(name: &str, cpu: i64, memory_gib: i64) -> InstanceTypeFacts {
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

/// The peer's set of six.
pub(crate) fn six() -> Vec<InstanceTypeOption> {
    let mut arm = FakeType::new("arm.instance-type", 16, 128, 5);
    arm.arch = "arm64";
    let mut vendor_a = FakeType::new("gpu-vendor.instance-type", 4, 4, 5);
    vendor_a.extra = vec![("fake.com/vendor-a", "2")];
    let mut vendor_b = FakeType::new("gpu-vendor-b.instance-type", 4, 4, 5);
    vendor_b.extra = vec![("fake.com/vendor-b", "2")];
    [
        FakeType::new("default.instance-type", 4, 4, 5),
        FakeType::new("small.instance-type", 2, 2, 5),
        FakeType::new("single-pod.instance-type", 4, 4, 1),
        vendor_a,
        vendor_b,
        arm,
    ]
    .iter()
    .map(FakeType::option)
    .collect()
}

pub(crate) fn node_pool(name: &str) -> NodePool {
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
    }
}

pub(crate) fn pool(name: &str, types: Vec<InstanceTypeOption>) -> PoolInput {
    PoolInput {
        pool: node_pool(name),
        types: Arc::new(types),
        usage: ResourceList::new(),
        readiness: PoolReadiness::Ready,
        nodes_left: None,
        standing: PoolStanding::Trusted,
        without: None,
    }
}

pub(crate) fn shape(requests: &[(&str, &str)]) -> PodShape {
    PodShape {
        namespace: "default".to_owned(),
        requests: list(requests).with(ResourceName::PODS, Quantity::from_integer(1)),
        scheduler_name: "default-scheduler".to_owned(),
        ..PodShape::default()
    }
}

pub(crate) fn pod(name: &str, shape: &Arc<PodShape>) -> Pod {
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

pub(crate) fn pods(prefix: &str, count: usize, shape: PodShape) -> Vec<Pod> {
    let shape = Arc::new(shape);
    (0..count).map(|index| pod(&format!("{prefix}-{index:04}"), &shape)).collect()
}

pub(crate) fn input(pods: Vec<Pod>, pools: Vec<PoolInput>) -> ProvisionInput {
    ProvisionInput {
        now: at(0),
        cluster: ClusterName::parse("test").unwrap(),
        pods,
        nodes: Vec::new(),
        pools,
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

pub(crate) fn node(name: &str, kind: NodeKind, allocatable: &[(&str, &str)]) -> ExistingNode {
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

/// A pod that runs somewhere.
pub(crate) fn running(requests: &[(&str, &str)]) -> Arc<PodShape> {
    Arc::new(PodShape { requests: list(requests), ..PodShape::default() })
}

/// The same, made by a DaemonSet.
pub(crate) fn of_daemon_set(shape: &PodShape) -> Arc<PodShape> {
    let owner = OwnerReference {
        kind: "DaemonSet".to_owned(),
        name: "agent".to_owned(),
        uid: String::new(),
        role: OwnerRole::Controller,
    };
    Arc::new(PodShape { owner: Some(owner), ..shape.clone() })
}

pub(crate) fn daemon_set(name: &str, shape: PodShape) -> DaemonSet {
    DaemonSet {
        meta: ObjectMeta { name: name.to_owned(), namespace: "default".to_owned(), ..ObjectMeta::default() },
        template: Arc::new(shape),
    }
}

pub(crate) fn default_pool() -> PoolInput {
    pool("default", six())
}

pub(crate) fn claims(input: &ProvisionInput, expected: usize) -> (ProvisionPlan, ProvisionReport) {
    let (plan, report) = plan(input);
    assert_eq!(plan.claims.len(), expected, "{report:#?}");
    (plan, report)
}

pub(crate) fn check_reason(input: &ProvisionInput, expected: &str) -> ProvisionReport {
    let (plan, report) = plan(input);
    assert!(plan.claims.is_empty(), "{plan:#?}");
    let reasons: BTreeSet<&str> = report.unschedulable.iter().map(|one| one.reason().into_str()).collect();
    assert_eq!(reasons, BTreeSet::from([expected]), "{:?}", report.unschedulable);
    report
}

pub(crate) fn selecting(mut shape: PodShape, key: &str, value: &str) -> PodShape {
    shape.node_selector.insert(key.to_owned(), value.to_owned());
    shape
}
