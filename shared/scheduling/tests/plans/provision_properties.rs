//! Properties of provisioning plans over random worlds.

use std::collections::BTreeMap;

use crate::support::*;
use proptest::prelude::*;
use tenon_bound as bound;
use tenon_domain::api::pod::Pod;
use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_scheduling::provision::{Input, PoolInput, plan};

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

prop_compose! {
    fn world()(
        groups in prop::collection::vec((1_u32..9_000, 1_u32..20_000, 1_usize..12, 0_u8..6), 1..7),
        overhead in 0_u32..400,
        amd_only in any::<bool>(),
    ) -> Input {
        let mut all: Vec<Pod> = Vec::new();
        for (index, (cpu, memory, count, asks)) in groups.into_iter().enumerate() {
            let mut one = shape(&[("cpu", &format!("{cpu}m")), ("memory", &format!("{memory}Mi"))]);
            let asked = match asks {
                0 => Some((labels::ZONE, "test-zone-2")),
                1 => Some((labels::ARCH, "arm64")),
                2 => Some((labels::CAPACITY_TYPE, "on-demand")),
                3 => Some((labels::ZONE, "test-zone-9")),
                _ => None,
            };
            one.node_selector.extend(asked.map(|(key, value)| (key.to_owned(), value.to_owned())));
            all.extend(pods(&format!("g{index}"), count, one));
        }
        let mut first: PoolInput = pool("first", types());
        first.pool.weight = 10;
        if amd_only {
            first.pool.template.requirements = [Requirement::one_of(labels::ARCH, ["amd64"])].into_iter().collect();
        }
        let mut world = input(all, vec![first, pool("second", types())]);
        world.daemon_sets = vec![daemon_set("agent", shape(&[("cpu", &format!("{overhead}m"))]))];
        world
    }
}

/// Whether a pod alone fits some type that can be had; by brute force, for worlds of these tests.
fn fits_somewhere(world: &Input, pod: &Pod) -> bool {
    let overhead = &world.daemon_sets[0].template.requests;
    world.pools.iter().any(|pool| {
        pool.types.iter().any(|one| {
            let wanted = pod.shape.requests.clone().plus(overhead);
            let selected = pod.shape.node_selector.iter().all(|(key, value)| one.labels.allows(key, value));
            let arch = one.labels.get(labels::ARCH).and_then(Requirement::single_value).unwrap();
            wanted.fits(&one.allocatable)
                && selected
                && pool.pool.template.requirements.allows(labels::ARCH, arch)
        })
    })
}

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
    fn no_claims_pods_exceed_any_of_its_types(world in world()) {
        let by_uid: BTreeMap<_, _> = world.pods.iter().map(|pod| (&pod.uid, pod)).collect();
        let (plan, _) = plan(&world);
        for claim in &plan.claims {
            let pods = ResourceList::sum(claim.pods.iter().map(|pod| &by_uid[&pod.uid].shape.requests));
            let all = pods.plus(&world.daemon_sets[0].template.requests);
            prop_assert_eq!(&all, &claim.requests);
            prop_assert!(!claim.instance_types.is_empty());
            for name in &claim.instance_types {
                let one = world.pools[0].types.iter().find(|one| one.facts.name == *name).unwrap();
                prop_assert!(all.fits(&one.allocatable), "{} on {}", all, name);
            }
            let cheapest = claim.offerings.iter().filter_map(|offering| offering.price).min();
            prop_assert!(cheapest <= claim.price);
        }
    }

    #[test]
    fn the_order_of_the_input_changes_nothing(world in world(), seed in any::<u64>()) {
        let mut shuffled = world.clone();
        let mut state = seed | 1;
        shuffled.pods.sort_by_cached_key(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        });
        shuffled.pools.reverse();
        prop_assert_eq!(plan(&world), plan(&shuffled));
    }

    #[test]
    fn a_plan_is_near_its_bound_and_never_below(world in world()) {
        let (plan, _) = plan(&world);
        if let Some(bound) = bound::linear(&world, &plan) {
            prop_assert!(bound.nanos() <= plan.price().nanos() + 1_000, "{} {}", bound, plan.price());
        }
        let most = plan.claims.iter().map(|claim| claim.requests.get(&ResourceName::PODS)).max();
        prop_assert!(most.is_none_or(|most| most.value_ceil() <= 110));
    }
}
