//! Worlds of a given number of pods, drawn from a seed: the peer's benchmark, and Deployments on the catalogue of
//! us-east-1.
//!
//! The peer's: `pkg/controllers/provisioning/scheduling/scheduling_benchmark_test.go` of kubernetes-sigs/karpenter.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalogue::catalogue;
use crate::drawn::Draw;
use crate::support::*;
use tenon_domain::api::Pod;
use tenon_domain::api::pod::{
    LabelSelector, NodeInclusionPolicy, NodeSelectorTerm, PodAffinityTerm, PodShape,
    TopologySpreadConstraint, WhenUnsatisfiable,
};
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_planning::provision::ProvisionInput;

const LABELS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
const PEERS_CPU: [u64; 5] = [100, 250, 500, 1000, 1500];
const PEERS_MEMORY: [u64; 6] = [100, 256, 512, 1024, 2048, 4096];
/// The instance types of the peer's benchmark.
const PEERS_TYPES: i64 = 400;
const MOST_PODS_OF_A_DEPLOYMENT: u64 = 50;

fn selects(key: &str, value: &str) -> LabelSelector {
    LabelSelector { requirements: vec![Requirement::one_of(key, [value])] }
}

fn term(topology: &str, key: &str, value: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        selector: Some(selects(key, value)),
        topology_key: topology.to_owned(),
        ..PodAffinityTerm::default()
    }
}

fn spread(topology: &str, key: &str, value: &str, when: WhenUnsatisfiable) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: topology.to_owned(),
        when_unsatisfiable: when,
        selector: Some(selects(key, value)),
        min_domains: None,
        node_affinity_policy: NodeInclusionPolicy::Honor,
        node_taints_policy: NodeInclusionPolicy::Ignore,
        match_label_keys: Vec::new(),
    }
}

fn sized(cpu: u64, memory: u64) -> PodShape {
    shape(&[("cpu", &format!("{cpu}m")), ("memory", &format!("{memory}Mi"))])
}

fn labelled(mut one: PodShape, key: &str, value: &str) -> PodShape {
    one.labels.insert(key.to_owned(), value.to_owned());
    one
}

/// Pods of a benchmark, by index. Equal ones share their shape, as in a snapshot.
fn shaped(shapes: impl Iterator<Item = PodShape>) -> Vec<Pod> {
    let mut known: BTreeMap<PodShape, Arc<PodShape>> = BTreeMap::new();
    let mut shared = |one: PodShape| Arc::clone(known.entry(one.clone()).or_insert_with(|| Arc::new(one)));
    shapes.enumerate().map(|(index, one)| pod(&format!("pod-{index:06}"), &shared(one))).collect()
}

fn peers_pool() -> tenon_planning::provision::PoolInput {
    let types = (0..PEERS_TYPES).map(|index| {
        let name: &'static str = Box::leak(format!("fake-it.{index}").into_boxed_str());
        FakeType::new(name, index + 1, 2 * (index + 1), 10 * (index + 1)).option()
    });
    let mut one = pool("default", types.collect());
    one.pool.limits = list(&[("cpu", "10000000"), ("memory", "10000000Gi")]);
    one
}

/// The peer's pods, in fifths: plain ones, spread over zones, spread over nodes, together in a zone, apart on nodes.
/// What a spread counts is drawn apart from the pod's own label.
pub(crate) fn peers(count: u64, seed: u64) -> ProvisionInput {
    let mut draw = Draw::new(seed);
    let hard = WhenUnsatisfiable::DoNotSchedule;
    let all = (0..count).map(|index| {
        let mut one = sized(draw.of(&PEERS_CPU), draw.of(&PEERS_MEMORY));
        let (own, other) = (draw.of(&LABELS), draw.of(&LABELS));
        one = match index * 5 / count {
            3 => labelled(one, "my-affinity", own),
            4 => labelled(one, "app", "nginx"),
            _ => labelled(one, "my-label", own),
        };
        match index * 5 / count {
            1 => one.topology_spread = vec![spread(labels::ZONE, "my-label", other, hard)],
            2 => one.topology_spread = vec![spread(labels::HOSTNAME, "my-label", other, hard)],
            3 => one.required_pod_affinity = vec![term(labels::ZONE, "my-affinity", own)],
            4 => one.required_pod_anti_affinity = vec![term(labels::HOSTNAME, "app", "nginx")],
            _ => {}
        }
        one
    });
    input(shaped(all), vec![peers_pool()])
}

/// The peer's pods with preferences: a zone, apart over zones (which can't be for all), apart on nodes.
pub(crate) fn preferring(count: u64, seed: u64) -> ProvisionInput {
    let mut draw = Draw::new(seed);
    let all = (0..count).map(|_| {
        let mut one = labelled(sized(draw.of(&PEERS_CPU), draw.of(&PEERS_MEMORY)), "app", "nginx");
        let zone = Requirement::one_of(labels::ZONE, ["test-zone-1"]);
        let wished = NodeSelectorTerm { match_expressions: vec![zone], match_fields: Vec::new() };
        one.preferred_node_affinity = vec![(1, wished)];
        one.preferred_pod_anti_affinity =
            vec![(10, term(labels::ZONE, "app", "nginx")), (1, term(labels::HOSTNAME, "app", "nginx"))];
        one
    });
    input(shaped(all), vec![peers_pool()])
}

/// Deployments with the constraints of real clusters, on all types of us-east-1.
pub(crate) fn deployments(count: u64, seed: u64) -> ProvisionInput {
    let mut default = pool("default", Vec::new());
    default.types = catalogue();
    input(deployed(count, seed), vec![default])
}

/// Deployments of few kinds at real prices, those on demand: spread over zones, apart on nodes, bound to a zone or an
/// instance family.
pub(crate) fn mixed(count: u64, seed: u64) -> ProvisionInput {
    let mut draw = Draw::new(seed);
    let mut default = pool("default", Vec::new());
    default.types = catalogue();
    default.pool.template.requirements.add(Requirement::one_of(labels::CAPACITY_TYPE, ["on-demand"]));
    let mut all: Vec<Pod> = Vec::new();
    while (all.len() as u64) < count {
        let name = format!("web-{}", all.len());
        let replicas = (1 + draw.below(20)).min(count - all.len() as u64);
        let mut one = labelled(sized_by_size(&mut draw), "app", &name);
        match draw.below(10) {
            0 | 1 => {
                let hard = WhenUnsatisfiable::DoNotSchedule;
                one.topology_spread = vec![spread(labels::ZONE, "app", &name, hard)];
            }
            2 => one.required_pod_anti_affinity = vec![term(labels::HOSTNAME, "app", &name)],
            3 => select(&mut one, labels::ZONE, draw.of(&["us-east-1a", "us-east-1b"])),
            4 => select(&mut one, labels::INSTANCE_FAMILY, draw.of(&["m7g", "c7g"])),
            _ => {}
        }
        all.extend(pods(&name, usize::try_from(replicas).unwrap(), one));
    }
    input(all, vec![default])
}

fn sized_by_size(draw: &mut Draw) -> PodShape {
    let cpu = draw.of(&[100, 250, 500, 500, 1000, 1000, 2000, 4000]);
    sized(cpu, cpu * draw.of(&[1, 2, 2, 4, 8]))
}

fn select(one: &mut PodShape, key: &str, value: &str) {
    one.node_selector.insert(key.to_owned(), value.to_owned());
}

fn deployed(count: u64, seed: u64) -> Vec<Pod> {
    let mut draw = Draw::new(seed);
    let mut all: Vec<Pod> = Vec::new();
    let mut left = count;
    let mut number = 0_u64;
    while left > 0 {
        let replicas = (1 + draw.below(MOST_PODS_OF_A_DEPLOYMENT)).min(left);
        let name = format!("web-{number}");
        all.extend(pods(&name, usize::try_from(replicas).unwrap(), deployment(&mut draw, &name)));
        left -= replicas;
        number += 1;
    }
    all
}

/// A pod of a Deployment: of twenty, seven have no constraint.
fn deployment(draw: &mut Draw, name: &str) -> PodShape {
    let mut one = labelled(sized_by_size(draw), "app", name);
    let (hard, soft) = (WhenUnsatisfiable::DoNotSchedule, WhenUnsatisfiable::ScheduleAnyway);
    match draw.below(20) {
        0..3 => one.topology_spread = vec![spread(labels::ZONE, "app", name, hard)],
        3 => {
            one.topology_spread =
                vec![spread(labels::ZONE, "app", name, hard), spread(labels::HOSTNAME, "app", name, hard)];
        }
        4 => one.topology_spread = vec![spread(labels::ZONE, "app", name, soft)],
        5 => one.topology_spread = vec![spread(labels::HOSTNAME, "app", name, hard)],
        6 | 7 => one.required_pod_anti_affinity = vec![term(labels::HOSTNAME, "app", name)],
        8 => one.preferred_pod_anti_affinity = vec![(1, term(labels::HOSTNAME, "app", name))],
        9 => one.required_pod_affinity = vec![term(labels::ZONE, "app", name)],
        10 => select(&mut one, labels::ZONE, draw.of(&["us-east-1a", "us-east-1b", "us-east-1c"])),
        11 => select(&mut one, labels::INSTANCE_FAMILY, draw.of(&["m5", "c6i", "r6g", "m7g"])),
        12 => select(&mut one, labels::CAPACITY_TYPE, "on-demand"),
        13 => select(&mut one, labels::ARCH, draw.of(&["amd64", "arm64"])),
        _ => {}
    }
    one
}
