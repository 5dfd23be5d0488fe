//! Properties of provisioning plans over random worlds.

use std::collections::BTreeMap;

use crate::support::*;
use proptest::prelude::*;
use tenon_domain::api::pod::{Pod, PodShape};
use tenon_domain::api::workload::DaemonSet;
use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::taint::{Taint, TaintEffect, Toleration};
use tenon_planning::provision::{
    ExistingNode, NodeKind, PlannedClaim, PoolInput, ProvisionInput, explain, plan,
};
use tenon_planning::solve as bound;

fn types() -> Vec<InstanceTypeOption> {
    let mut arm = FakeType::new("arm.xlarge", 8, 32, 30);
    arm.arch = "arm64";
    vec![
        FakeType::new("a.small", 1, 2, 8).option(),
        FakeType::new("a.large", 2, 8, 20).option(),
        FakeType::new("c.xlarge", 8, 8, 30).option(),
        FakeType::new("r.xlarge", 4, 32, 30).option(),
        FakeType::new("a.metal", 32, 128, 110).option(),
        arm.option(),
    ]
}

/// A group's requirements besides room.
fn asking(mut one: PodShape, asks: u8) -> PodShape {
    let selected = match asks {
        0 => Some((labels::ZONE, "test-zone-2")),
        1 => Some((labels::ARCH, "arm64")),
        2 => Some((labels::CAPACITY_TYPE, "on-demand")),
        3 => Some((labels::ZONE, "test-zone-9")),
        _ => None,
    };
    one.node_selector.extend(selected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    if asks.is_multiple_of(2) {
        one.tolerations = vec![Toleration::exists(DEDICATED)];
    }
    one
}

const DEDICATED: &str = "dedicated";

fn tainted(is_tainted: bool) -> Vec<Taint> {
    if is_tainted { vec![Taint::new(DEDICATED, TaintEffect::NoSchedule)] } else { Vec::new() }
}

/// A Node, or a claim on its way to one, of any architecture and zone, on which something runs already.
fn existing(index: usize, (cpu, memory, kind, is_tainted): (u32, u32, u8, bool)) -> ExistingNode {
    let kind = match kind {
        0 => NodeKind::Initialized,
        1 => NodeKind::Starting,
        _ => NodeKind::InFlight,
    };
    let (cpu, memory) = (format!("{cpu}m"), format!("{memory}Mi"));
    let mut found =
        node(&format!("node-{index}"), kind, &[("cpu", &cpu), ("memory", &memory), ("pods", "9")]);
    let zone = ZONES[index % 3];
    let offered = [(labels::ZONE, zone), (labels::CAPACITY_TYPE, "on-demand")];
    found.labels.extend(offered.map(|(key, value)| (key.to_owned(), value.to_owned())));
    found.taints = tainted(is_tainted);
    found.occupancy.add(&running(&[("cpu", "100m"), ("pods", "1")]));
    found
}

prop_compose! {
    /// A world without nodes and limits: plans depend on pods and pools alone.
    fn world()(
        groups in prop::collection::vec((1_u32..9_000, 1_u32..20_000, 1_usize..12, 0_u8..6), 1..7),
        overhead in 0_u32..400,
        amd_only in any::<bool>(),
        taints in any::<(bool, bool)>(),
    ) -> ProvisionInput {
        let mut all: Vec<Pod> = Vec::new();
        for (index, (cpu, memory, count, asks)) in groups.into_iter().enumerate() {
            let one = shape(&[("cpu", &format!("{cpu}m")), ("memory", &format!("{memory}Mi"))]);
            all.extend(pods(&format!("g{index}"), count, asking(one, asks)));
        }
        let mut first: PoolInput = pool("first", types());
        first.pool.weight = 10;
        first.pool.template.taints = tainted(taints.0);
        if amd_only {
            first.pool.template.requirements = [Requirement::one_of(labels::ARCH, ["amd64"])].into_iter().collect();
        }
        let second = pool("second", types());
        let mut world = input(all, vec![first, second]);
        world.pools[1].pool.template.taints = tainted(taints.1);
        // One runs everywhere, the other only where nothing is tainted.
        let mut agent = shape(&[("cpu", &format!("{overhead}m"))]);
        agent.tolerations = vec![Toleration::exists(DEDICATED)];
        world.daemon_sets = vec![daemon_set("agent", agent), daemon_set("logs", shape(&[("cpu", "70m")]))];
        world
    }
}

prop_compose! {
    /// The same with nodes that are there or on their way, and limits of the first pool.
    fn lived_in()(
        mut world in world(),
        nodes in prop::collection::vec((200_u32..9_000, 256_u32..20_000, 0_u8..3, any::<bool>()), 0..6),
        limits in prop::option::of((0_u32..40, 0_u32..8)),
    ) -> ProvisionInput {
        world.nodes = nodes.into_iter().enumerate().map(|(index, one)| existing(index, one)).collect();
        if let Some((cpu, nodes)) = limits {
            world.pools[0].pool.limits = list(&[("cpu", &cpu.to_string()), ("nodes", &nodes.to_string())]);
        }
        world
    }
}

/// Resources of DaemonSets on a node with these taints; by brute force, for the worlds of these tests.
fn daemons_on(world: &ProvisionInput, taints: &[Taint]) -> ResourceList {
    let runs = |set: &&DaemonSet| tolerates(&set.template.tolerations, taints);
    ResourceList::sum(world.daemon_sets.iter().filter(runs).map(|set| &set.template.requests))
}

fn tolerates(tolerations: &[Toleration], taints: &[Taint]) -> bool {
    taints.iter().all(|taint| tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

/// Whether a pod alone fits some available type; by brute force, for the worlds of these tests.
fn fits_somewhere(world: &ProvisionInput, pod: &Pod) -> bool {
    world.pools.iter().any(|pool| {
        let taints = &pool.pool.template.taints;
        let wanted = pod.shape.requests.clone().plus(&daemons_on(world, taints));
        tolerates(&pod.shape.tolerations, taints)
            && pool.types.iter().any(|one| {
                let selected =
                    pod.shape.node_selector.iter().all(|(key, value)| one.labels.allows(key, value));
                let arch = one.labels.get(labels::ARCH).and_then(Requirement::single_value).unwrap();
                wanted.fits(&one.allocatable)
                    && selected
                    && pool.pool.template.requirements.allows(labels::ARCH, arch)
            })
    })
}

/// In tenths: the largest ratio of a plan's price, less one machine of the dearest type, to its bound. The bound buys
/// parts of machines, such as a quarter of the largest for four pods that are cheapest on one small machine each, and
/// packs the pods of all pools together.
const NEAR_TENTHS: u64 = 25;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_pod_is_placed_if_and_only_if_it_fits_something(world in world()) {
        let (plan, report) = plan(&world);
        let placed: usize = plan.claims.iter().map(|claim| claim.pods.len()).sum();
        prop_assert_eq!(placed + report.unschedulable.len(), world.pods.len());
        for pod in &world.pods {
            let refused = report.unschedulable.iter().any(|one| one.pod.uid == pod.uid);
            prop_assert_eq!(!refused, fits_somewhere(&world, pod), "{:?}", report.unschedulable);
        }
    }

    #[test]
    fn an_explanation_covers_every_type_and_agrees_with_the_plan(world in world()) {
        let (_, report) = plan(&world);
        for pod in &world.pods {
            let explained = explain(&world, pod);
            let refused = report.unschedulable.iter().any(|one| one.pod.uid == pod.uid);
            let fits = explained.pools.iter().any(|pool| pool.refused.is_none() && !pool.fits.is_empty());
            prop_assert_eq!(fits, !refused, "{:?}", explained);
            for (pool, of) in explained.pools.iter().filter(|pool| pool.refused.is_none()).zip(&world.pools) {
                let excluded: usize = pool.excluded.iter().map(|one| one.types.len()).sum();
                prop_assert_eq!(excluded + pool.fits.len(), of.types.len());
                let first: Vec<_> = pool.fits.iter().map(|one| one.offerings[0].price).collect();
                prop_assert!(first.is_sorted(), "{:?}", first);
            }
        }
    }

    #[test]
    fn every_pod_has_one_place_or_a_refusal(world in lived_in()) {
        let (plan, report) = plan(&world);
        let claimed = plan.claims.iter().flat_map(|claim| &claim.pods).map(|pod| &pod.uid);
        let placed = plan.placements.iter().map(|placement| &placement.pod.uid);
        let refused = report.unschedulable.iter().map(|one| &one.pod.uid);
        let mut all: Vec<_> = claimed.chain(placed).chain(refused).collect();
        all.sort();
        let mut wanted: Vec<_> = world.pods.iter().map(|pod| &pod.uid).collect();
        wanted.sort();
        prop_assert_eq!(all, wanted);
    }

    #[test]
    fn what_is_placed_on_a_node_fits_beside_what_is_there_and_tolerates_it(world in lived_in()) {
        let by_uid: BTreeMap<_, _> = world.pods.iter().map(|pod| (&pod.uid, pod)).collect();
        let (plan, _) = plan(&world);
        for node in &world.nodes {
            let placed: Vec<&Pod> = plan
                .placements
                .iter()
                .filter(|placement| placement.node == node.name)
                .map(|placement| by_uid[&placement.pod.uid])
                .collect();
            if placed.is_empty() {
                continue;
            }
            let pods = ResourceList::sum(placed.iter().map(|pod| &pod.shape.requests));
            let all = pods.plus(node.occupancy.used()).plus(&daemons_on(&world, &node.taints));
            prop_assert!(all.fits(&node.allocatable), "{} on {}", all, node.name);
            for pod in placed {
                prop_assert!(tolerates(&pod.shape.tolerations, &node.taints), "{:?} on {}", pod, node.name);
                let goes = |(key, value): (&String, &String)| node.labels.get(key) == Some(value);
                prop_assert!(pod.shape.node_selector.iter().all(goes), "{:?} on {}", pod, node.name);
            }
        }
    }

    #[test]
    fn nothing_is_launched_for_what_fits_on_a_node(world in lived_in()) {
        let (plan, _) = plan(&world);
        // The free resources of each node after the plan.
        let by_uid: BTreeMap<_, _> = world.pods.iter().map(|pod| (&pod.uid, pod)).collect();
        for node in &world.nodes {
            let here = plan.placements.iter().filter(|placement| placement.node == node.name);
            let taken = ResourceList::sum(here.map(|placement| &by_uid[&placement.pod.uid].shape.requests));
            let taken = taken.plus(node.occupancy.used()).plus(&daemons_on(&world, &node.taints));
            for pod in plan.claims.iter().flat_map(|claim| &claim.pods).map(|pod| by_uid[&pod.uid]) {
                let selected = pod.shape.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
                let tolerated = tolerates(&pod.shape.tolerations, &node.taints);
                let fits = taken.clone().plus(&pod.shape.requests).fits(&node.allocatable);
                prop_assert!(!(selected && tolerated && fits), "{} has room on {}", pod.name, node.name);
            }
        }
    }

    #[test]
    fn a_pool_launches_within_its_limits(world in lived_in()) {
        let (plan, _) = plan(&world);
        let of_first: Vec<_> = plan.claims.iter().filter(|claim| claim.pool.as_str() == "first").collect();
        let limits = &world.pools[0].pool.limits;
        let largest = |claim: &PlannedClaim| {
            let types = world.pools[0].types.iter();
            let of_claim = types.filter(|one| claim.instance_types.contains(&one.facts.name));
            of_claim.map(|one| one.capacity.get(&ResourceName::CPU)).max().unwrap()
        };
        if limits.contains(&ResourceName::CPU) {
            let cpu: i64 = of_first.iter().map(|claim| largest(claim).value_ceil()).sum();
            prop_assert!(i128::from(cpu) <= limits.get(&ResourceName::CPU).value_ceil().into());
            let nodes = i128::try_from(of_first.len()).unwrap();
            prop_assert!(nodes <= limits.get(&ResourceName::NODES).value_ceil().into());
        }
    }

    #[test]
    fn no_claims_pods_exceed_any_of_its_types(world in lived_in()) {
        let by_uid: BTreeMap<_, _> = world.pods.iter().map(|pod| (&pod.uid, pod)).collect();
        let (plan, _) = plan(&world);
        for claim in &plan.claims {
            let pods = ResourceList::sum(claim.pods.iter().map(|pod| &by_uid[&pod.uid].shape.requests));
            let all = pods.plus(&daemons_on(&world, &claim.taints));
            prop_assert_eq!(&all, &claim.requests);
            prop_assert!(!claim.instance_types.is_empty());
            for name in claim.instance_types.iter() {
                let one = world.pools[0].types.iter().find(|one| one.facts.name == *name).unwrap();
                prop_assert!(all.fits(&one.allocatable), "{} on {}", all, name);
            }
            let cheapest = claim.offerings.iter().filter_map(|offering| offering.price).min();
            prop_assert!(cheapest <= claim.price);
        }
    }

    #[test]
    fn the_order_of_the_input_changes_nothing(world in lived_in(), seed in any::<u64>()) {
        let mut shuffled = world.clone();
        let mut state = seed | 1;
        shuffled.pods.sort_by_cached_key(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        });
        shuffled.pools.reverse();
        shuffled.nodes.reverse();
        shuffled.daemon_sets.reverse();
        prop_assert_eq!(plan(&world), plan(&shuffled));
    }

    #[test]
    fn a_plan_is_near_its_bound_and_never_below(world in world()) {
        let (plan, _) = plan(&world);
        if let Some(bound) = bound::linear(&world, &plan) {
            prop_assert!(bound.nanos() <= plan.price().nanos() + 1_000, "{} {}", bound, plan.price());
            let offerings = world.pools.iter().flat_map(|pool| pool.types.iter()).flat_map(|one| &one.offerings);
            let dearest = offerings.filter_map(|offering| offering.price).max().map_or(0, |price| price.nanos());
            prop_assert!(
                plan.price().nanos() <= bound.nanos() / 10 * NEAR_TENTHS + dearest,
                "{} for {} claims, and the bound is {}",
                plan.price(),
                plan.claims.len(),
                bound
            );
        }
        let most = plan.claims.iter().map(|claim| claim.requests.get(&ResourceName::PODS)).max();
        prop_assert!(most.is_none_or(|most| most.value_ceil() <= 110));
    }
}
