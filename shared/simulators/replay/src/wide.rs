//! Worlds of up to 200 pods with every constraint at once, drawn from a number.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::draw::Draw;
use crate::small::*;
use tenon_domain::api::Pod;
use tenon_domain::api::meta::{ObjectMeta, OwnerReference, OwnerRole};
use tenon_domain::api::pod::{
    HostPort, LabelSelector, NodeInclusionPolicy, NodeSelectorTerm, PodAffinityTerm, PodShape, PodVolume,
    TopologySpreadConstraint, WhenUnsatisfiable,
};
use tenon_domain::api::storage::{
    ClaimUsers, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeBinding,
};
use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_domain::taint::{Taint, TaintEffect, Toleration};
use tenon_planning::provision::{ExistingNode, NodeKind, PoolInput, ProvisionInput, Storage};

/// The most pods of a world.
const PODS: usize = 200;
const APPS: [&str; 4] = ["a", "b", "c", "d"];
const RACK: &str = "example.com/rack";
const TEAM: &str = "example.com/team";
const DEDICATED: &str = "dedicated";
/// What no pod on a node can be without: nothing waits before it.
const CRITICAL: i32 = 2_000_001_000;

/// The world of a number.
#[must_use]
pub fn wide_world(number: u64) -> ProvisionInput {
    let mut draw = Draw::new(number ^ 0x51de);
    let mut storage = Storage::default();
    let mut all: Vec<Pod> = Vec::new();
    for index in 0..1 + draw.below(10) {
        let left = PODS - all.len();
        all.extend(group(&mut draw, index, &mut storage).into_iter().take(left));
    }
    let pools = (0..1 + draw.below(3)).map(|index| drawn_pool(&mut draw, index)).collect();
    let mut world = input(all, pools);
    world.storage = storage;
    if draw.one_in(2) {
        world.nodes = (0..1 + draw.below(5)).map(|index| existing(&mut draw, index)).collect();
    }
    world.daemon_sets = (0..draw.below(3)).map(|index| daemon(&mut draw, index)).collect();
    let team = |name: &str| (name.to_owned(), BTreeMap::from([(TEAM.to_owned(), "blue".to_owned())]));
    world.namespaces = BTreeMap::from([team("shop"), ("default".to_owned(), BTreeMap::new())]);
    limit_volumes(&mut Draw::new(number ^ 0x7013), &mut world);
    world
}

/// Limits on volumes, more volumes a pod, and volumes that pods share.
fn limit_volumes(draw: &mut Draw, world: &mut ProvisionInput) {
    for pool in &mut world.pools {
        for option in Arc::make_mut(&mut pool.types) {
            option.ebs_volumes = draw.of(&[Some(2), Some(3), Some(5), None]);
        }
    }
    for node in &world.nodes {
        if !draw.one_in(3) {
            world.storage.nodes.push(csi_node(&node.name, draw.of(&[1, 2, 4])));
        }
    }
    let unbound: Vec<PersistentVolumeClaim> =
        world.storage.claims.iter().filter(|claim| claim.volume.is_none()).cloned().collect();
    for claim in &unbound {
        if draw.one_in(2) {
            continue;
        }
        let name = claim.meta.name.clone();
        let group = name.trim_start_matches("data-").split('-').next().unwrap_or_default().to_owned();
        let more = if draw.one_in(2) { format!("more-{name}") } else { format!("shared-{group}") };
        let users = |pod: &&mut Pod| pod.shape.volumes.contains(&PodVolume::Claim(name.clone()));
        for pod in world.pods.iter_mut().filter(users) {
            let mut shape = PodShape::clone(&pod.shape);
            shape.volumes.push(PodVolume::Claim(more.clone()));
            pod.shape = Arc::new(shape);
        }
        if !world.storage.claims.iter().any(|one| one.meta.name == more) {
            let mut other = claim.clone();
            other.meta.name = more;
            world.storage.claims.push(other);
        }
    }
}

fn group(draw: &mut Draw, index: u64, storage: &mut Storage) -> Vec<Pod> {
    let own = draw.of(&APPS);
    let mut one = app(own, draw.of(&["50m", "100m", "250m", "500m", "900m", "1", "2", "3500m"]));
    one.requests.add(&list(&[("memory", draw.of(&["64Mi", "200Mi", "500Mi", "1Gi", "3Gi"]))]));
    one.priority = draw.of(&[0, 0, 0, 10]);
    for _ in 0..draw.of(&[0, 1, 1, 1, 2]) {
        rule(draw, &mut one, own);
    }
    place(draw, &mut one);
    if draw.one_in(2) {
        let (kind, name, role) = ("ReplicaSet".to_owned(), format!("set-{index}"), OwnerRole::Controller);
        one.owner = Some(OwnerReference { kind, name, uid: String::new(), role });
        one.labels.insert("pod-template-hash".to_owned(), format!("hash-{index}"));
    }
    if draw.one_in(10) {
        one.host_ports.insert(HostPort {
            ip: "0.0.0.0".to_owned(),
            port: draw.of(&[80, 443]),
            protocol: "TCP".to_owned(),
        });
    }
    let count = if draw.one_in(4) { 10 + draw.below(40) } else { 1 + draw.below(10) };
    let prefix = format!("g{index}");
    if draw.one_in(8) {
        return with_volumes(draw, &prefix, &one, storage);
    }
    pods(&prefix, usize::try_from(count).unwrap(), one)
}

/// A rule about neighbours.
fn rule(draw: &mut Draw, one: &mut PodShape, own: &str) {
    let key = draw.of(&[labels::ZONE, labels::ZONE, labels::HOSTNAME, labels::CAPACITY_TYPE, RACK]);
    let of = if draw.one_in(4) { draw.of(&APPS) } else { own };
    match draw.below(8) {
        0..3 => one.topology_spread.push(drawn_spread(draw, key, of)),
        3 => {
            let soft = WhenUnsatisfiable::ScheduleAnyway;
            one.topology_spread
                .push(TopologySpreadConstraint { when_unsatisfiable: soft, ..spread(key, of, 1) });
        }
        4 => one.required_pod_anti_affinity.push(drawn_term(draw, key, of)),
        5 => one.required_pod_affinity.push(term(key, of)),
        6 => one.preferred_pod_anti_affinity.push((5, term(key, of))),
        _ => one.preferred_pod_affinity.push((5, term(key, of))),
    }
}

fn drawn_spread(draw: &mut Draw, key: &str, of: &str) -> TopologySpreadConstraint {
    let mut rule = spread(key, of, draw.of(&[1, 1, 2, 3]));
    if draw.one_in(8) && key == labels::ZONE {
        rule.min_domains = Some(draw.of(&[2, 3]));
    }
    if draw.one_in(8) {
        rule.node_affinity_policy = NodeInclusionPolicy::Ignore;
    }
    if draw.one_in(8) {
        rule.node_taints_policy = NodeInclusionPolicy::Honor;
    }
    if draw.one_in(8) {
        rule.match_label_keys = vec!["pod-template-hash".to_owned()];
    }
    rule
}

fn drawn_term(draw: &mut Draw, key: &str, of: &str) -> PodAffinityTerm {
    let mut one = term(key, of);
    match draw.below(10) {
        0 => one.namespace_selector = Some(LabelSelector::default()),
        1 => one.namespaces = vec!["default".to_owned(), "shop".to_owned()],
        2 => one.match_label_keys = vec!["pod-template-hash".to_owned()],
        _ => {}
    }
    one
}

/// What a pod asks of its node.
fn place(draw: &mut Draw, one: &mut PodShape) {
    let selected = match draw.below(14) {
        0 | 1 => Some((labels::ZONE, draw.of(&ZONES))),
        2 => Some((labels::ARCH, "arm64")),
        3 => Some((labels::CAPACITY_TYPE, "on-demand")),
        4 => Some((TEAM, "blue")),
        _ => None,
    };
    one.node_selector.extend(selected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let node_term =
        |asked: Requirement| NodeSelectorTerm { match_expressions: vec![asked], match_fields: Vec::new() };
    if draw.one_in(8) {
        one.required_node_affinity = (0..1 + draw.below(2))
            .map(|_| {
                node_term(match draw.below(3) {
                    0 => Requirement::one_of(labels::ZONE, [ZONES[0], ZONES[2]]),
                    1 => Requirement::one_of(labels::CAPACITY_TYPE, ["spot"]),
                    _ => Requirement::none_of(labels::INSTANCE_TYPE, ["a.large", "c.large"]),
                })
            })
            .collect();
    }
    if draw.one_in(8) {
        let zone = node_term(Requirement::one_of(labels::ZONE, [draw.of(&ZONES)]));
        one.preferred_node_affinity = vec![(10, zone)];
    }
    if draw.one_in(2) {
        one.tolerations.push(Toleration::exists(DEDICATED));
    }
}

/// Pods with a volume each: bound ones, or such that are made in the zone of the pod.
fn with_volumes(draw: &mut Draw, prefix: &str, one: &PodShape, storage: &mut Storage) -> Vec<Pod> {
    let meta = |name: String, namespace: &str| ObjectMeta {
        name,
        namespace: namespace.to_owned(),
        ..ObjectMeta::default()
    };
    let zonal = |zone: &str| NodeSelectorTerm {
        match_expressions: vec![Requirement::one_of(labels::ZONE, [zone])],
        match_fields: Vec::new(),
    };
    let class = format!("class-{prefix}");
    let allowed = if draw.one_in(2) { vec![zonal(draw.of(&ZONES))] } else { Vec::new() };
    storage.classes.push(StorageClass {
        meta: meta(class.clone(), ""),
        provisioner: "ebs.csi.aws.com".to_owned(),
        binding: VolumeBinding::WaitForFirstConsumer,
        allowed_topologies: allowed,
    });
    let bound = draw.one_in(2);
    let pods = (0..1 + draw.below(6)).map(|index| {
        let claim = format!("data-{prefix}-{index}");
        let volume = format!("pv-{prefix}-{index}");
        storage.claims.push(PersistentVolumeClaim {
            meta: meta(claim.clone(), "default"),
            storage_class: Some(class.clone()),
            volume: bound.then(|| volume.clone()),
            phase: if bound { "Bound" } else { "Pending" }.to_owned(),
            users: ClaimUsers::Many,
        });
        if bound {
            storage.volumes.push(PersistentVolume {
                meta: meta(volume, ""),
                node_affinity: vec![zonal(draw.of(&ZONES))],
                driver: Some("ebs.csi.aws.com".to_owned()),
            });
        }
        let shape = PodShape { volumes: vec![PodVolume::Claim(claim)], ..one.clone() };
        pod(&format!("{prefix}-{index:04}"), &Arc::new(shape))
    });
    pods.collect()
}

fn types(draw: &mut Draw) -> Vec<InstanceTypeOption> {
    let mut all = Vec::new();
    for (family, memory_per_cpu, arch) in [("a", 4, "amd64"), ("c", 2, "amd64"), ("g", 4, "arm64")] {
        for (size, cpu) in [("large", 2), ("xlarge", 4), ("2xlarge", 8)] {
            let name: &'static str = Box::leak(format!("{family}.{size}").into_boxed_str());
            let mut fake = FakeType::new(name, cpu, cpu * memory_per_cpu, 6 + 6 * cpu);
            fake.arch = arch;
            if !draw.one_in(6) {
                all.push(fake.option());
            }
        }
    }
    all.push(FakeType::new("b.4xlarge", 16, 64, 60).option());
    all
}

fn drawn_pool(draw: &mut Draw, index: u64) -> PoolInput {
    let mut one = pool(["first", "second", "third"][usize::try_from(index).unwrap()], types(draw));
    one.pool.weight = draw.of(&[0, 0, 10]);
    let template = &mut one.pool.template;
    match draw.below(6) {
        0 => template.taints = vec![Taint::new(DEDICATED, TaintEffect::NoSchedule)],
        1 => template.taints = vec![Taint::new("rather-not", TaintEffect::PreferNoSchedule)],
        _ => {}
    }
    if draw.one_in(3) {
        template.labels.insert(TEAM.to_owned(), draw.of(&["blue", "red"]).to_owned());
    }
    match draw.below(8) {
        0 => template.requirements.add(Requirement::one_of(labels::ARCH, ["amd64"])),
        1 => template.requirements.add(Requirement::one_of(labels::CAPACITY_TYPE, ["on-demand"])),
        2 => template.requirements.add(Requirement::one_of(labels::ZONE, [ZONES[0], ZONES[1]])),
        _ => {}
    }
    if draw.one_in(2) {
        template.requirements.add(Requirement::one_of(RACK, ["r1", "r2"]));
    }
    if draw.one_in(6) {
        one.pool.limits = list(&[("cpu", &(16 + draw.below(60)).to_string())]);
    }
    one
}

fn existing(draw: &mut Draw, index: u64) -> ExistingNode {
    let kind = draw.of(&[NodeKind::Initialized, NodeKind::Initialized, NodeKind::InFlight]);
    let cpu = format!("{}m", 1000 + 250 * draw.below(16));
    let memory = format!("{}Mi", 2000 + 500 * draw.below(16));
    let mut found =
        node(&format!("node-{index}"), kind, &[("cpu", &cpu), ("memory", &memory), ("pods", "12")]);
    let more = [(labels::ZONE, draw.of(&ZONES)), (labels::CAPACITY_TYPE, draw.of(&["on-demand", "spot"]))];
    found.labels.extend(more.map(|(key, value)| (key.to_owned(), value.to_owned())));
    if draw.one_in(2) {
        found.labels.insert(RACK.to_owned(), draw.of(&["r1", "r2"]).to_owned());
    }
    if draw.one_in(4) {
        found.taints = vec![Taint::new(DEDICATED, TaintEffect::NoSchedule)];
    }
    for _ in 0..draw.below(4) {
        let mut other = app(draw.of(&APPS), draw.of(&["50m", "100m", "200m"]));
        if draw.one_in(4) {
            let key = draw.of(&[labels::ZONE, labels::HOSTNAME]);
            other.required_pod_anti_affinity = vec![term(key, draw.of(&APPS))];
        }
        found.occupancy.add(&Arc::new(other));
    }
    found
}

fn daemon(draw: &mut Draw, index: u64) -> tenon_domain::api::workload::DaemonSet {
    let cpu = draw.of(&["30m", "70m"]);
    let mut one = shape(&[("cpu", cpu), ("memory", "90Mi")]);
    one.priority = CRITICAL;
    if draw.one_in(2) {
        one.tolerations.push(Toleration::exists(DEDICATED));
    }
    if draw.one_in(4) {
        one.node_selector.insert(labels::ARCH.to_owned(), "arm64".to_owned());
    }
    daemon_set(&format!("agent-{index}"), one)
}
