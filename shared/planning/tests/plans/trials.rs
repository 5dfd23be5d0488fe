//! Trials on drawn worlds: each is what a plan of the changed world is, whatever was tried before.

use std::collections::BTreeSet;

use tenon_domain::api::Pod;
use tenon_domain::id::CommandId;
use tenon_planning::provision::{PlanTrials, ProvisionInput, Purpose, plan};
use tenon_replay::wide::wide_world;

const WORLDS: u64 = 40;

fn moving(number: u64) -> Purpose {
    Purpose::Replacement(CommandId::parse(format!("command-{number}")).unwrap())
}

/// Halves of the world's pods, as if they were the pods of two nodes.
fn halves(world: &ProvisionInput) -> [Vec<Pod>; 2] {
    let (one, other): (Vec<_>, Vec<_>) =
        world.pods.iter().cloned().enumerate().partition(|(n, _)| n % 2 == 0);
    [one, other].map(|half| half.into_iter().map(|(_, pod)| pod).collect())
}

#[test]
fn a_trial_changes_nothing_that_another_sees() {
    for number in 0..WORLDS {
        let world = wide_world(number);
        let [one, other] = halves(&world);
        let mut trials = PlanTrials::new(&world, |_| true, &world.pods);
        let without: BTreeSet<&str> = world.nodes.iter().take(1).map(|node| node.name.as_str()).collect();
        let first = trials.plan(&moving(1), &without, &one).0;
        trials.plan(&moving(2), &BTreeSet::new(), &other);
        let again = trials.plan(&moving(1), &without, &one).0;
        assert_eq!(first, again, "world {number}");
    }
}

#[test]
fn a_trial_is_the_plan_of_the_changed_world() {
    for number in 0..WORLDS {
        let world = wide_world(number);
        let mut trials = PlanTrials::new(&world, |_| true, &world.pods);
        for gone in world.nodes.iter().take(3) {
            let without = BTreeSet::from([gone.name.as_str()]);
            let mut changed = ProvisionInput { purpose: moving(1), ..world.clone() };
            changed.nodes.retain(|node| node.name != gone.name);
            let tried = trials.plan(&moving(1), &without, &world.pods).0;
            assert_eq!(tried, plan(&changed).0, "world {number} without {}", gone.name);
        }
    }
}

#[test]
fn what_is_taken_takes_room_limits_and_names() {
    let mut taken = 0;
    for number in 0..WORLDS {
        let world = wide_world(number);
        let [one, other] = halves(&world);
        let mut trials = PlanTrials::new(&world, |_| true, &world.pods);
        let first = trials.plan(&moving(1), &BTreeSet::new(), &one).0;
        trials.take(&BTreeSet::new(), &first, &one);
        let second = trials.plan(&moving(2), &BTreeSet::new(), &other).0;
        let names: BTreeSet<_> = first.claims.iter().chain(&second.claims).map(|claim| &claim.name).collect();
        assert_eq!(names.len(), first.claims.len() + second.claims.len(), "world {number}");
        for pool in &world.pools {
            let of_pool = |claims: usize| u32::try_from(claims).unwrap();
            let all = of_pool(first.claims.len() + second.claims.len());
            assert!(pool.nodes_left.is_none_or(|left| all <= left), "world {number}: {all} claims");
        }
        for node in &world.nodes {
            let of = |half: &[Pod], placed: &tenon_planning::provision::ProvisionPlan| {
                let here = placed.placements.iter().filter(|one| one.node == node.name);
                here.filter_map(|one| half.iter().find(|pod| pod.uid == one.pod.uid).cloned()).collect()
            };
            let mut occupancy = node.occupancy.clone();
            let (a, b): (Vec<Pod>, Vec<Pod>) = (of(&one, &first), of(&other, &second));
            occupancy.extend(a.iter().chain(&b));
            taken += a.len() + b.len();
            if a.len() + b.len() > 0 {
                let over = occupancy.used().shortage(&node.allocatable);
                assert_eq!(over, None, "world {number}: {}", node.name);
            }
        }
    }
    assert!(taken > 0);
}
