//! Plans of large worlds keep every rule, place every pod, and cost little more than the linear bound.

use crate::catalogue::catalogue;
use crate::checker::{faults, lasting_faults};
use crate::drawn::Draw;
use crate::sized_worlds::{deployments, mixed, peers, preferring};
use crate::support::*;
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_planning::provision::{PlanCompletion, ProvisionInput, ProvisionPlan, plan};
use tenon_planning::solve as bound;

fn all_placed(world: &ProvisionInput) -> ProvisionPlan {
    let (made, report) = plan(world);
    assert_eq!(report.unschedulable, []);
    made
}

/// The plan's price in thousandths of the bound.
fn thousandths(world: &ProvisionInput) -> u64 {
    let made = all_placed(world);
    let bound = bound::linear(world, &made).unwrap();
    assert!(bound <= made.price(), "{bound} {}", made.price());
    made.price().nanos() * 1000 / bound.nanos()
}

#[test]
fn large_plans_keep_every_rule() {
    for seed in [1, 2] {
        for world in [peers(1_000, seed), deployments(1_000, seed)] {
            assert_eq!(lasting_faults(&world, &all_placed(&world)), Vec::<String>::new(), "seed {seed}");
        }
        // Whether there is an order in which all pods may come takes longer to find out.
        for world in [peers(120, seed), deployments(120, seed)] {
            assert_eq!(faults(&world, &all_placed(&world)), Vec::<String>::new(), "seed {seed}");
        }
    }
}

#[test]
fn large_worlds_are_placed_whole() {
    for seed in [1, 2] {
        all_placed(&peers(5_000, seed));
        all_placed(&preferring(4_000, seed));
        all_placed(&deployments(5_000, seed));
    }
}

/// Equal pods on the types of us-east-1 at their real prices, those on demand.
fn equal(count: usize, cpu: u64, memory: u64) -> ProvisionInput {
    let one = shape(&[("cpu", &format!("{cpu}m")), ("memory", &format!("{memory}Mi"))]);
    let mut default = pool("default", Vec::new());
    default.types = catalogue();
    default.pool.template.requirements.add(Requirement::one_of(labels::CAPACITY_TYPE, ["on-demand"]));
    input(pods("web", count, one), vec![default])
}

#[test]
fn equal_pods_cost_little_more_than_the_bound() {
    let mut draw = Draw::new(1);
    for _ in 0..12 {
        let cpu = 100 * (1 + draw.below(40));
        let memory = cpu * draw.of(&[1, 2, 4, 6, 8]);
        let found = thousandths(&equal(2_000, cpu, memory));
        assert!(found <= 1_010, "{cpu}m {memory}Mi: {found} thousandths of the bound");
    }
}

#[test]
fn one_node_is_taken_for_what_several_cost() {
    let mut world = equal(5, 1_000, 512);
    let family = Requirement::one_of(labels::INSTANCE_FAMILY, ["c6a"]);
    world.pools[0].pool.template.requirements.add(family);
    let check = |world: &ProvisionInput, nodes: usize| {
        let made = all_placed(world);
        assert_eq!((made.claims.len(), made.price().to_string()), (nodes, "0.306".to_owned()));
    };
    check(&world, 1);
    // Nearly every pool has limits. Three of these nodes have 8 CPU, as the one does.
    let mut limited = |limits: &[(&str, &str)]| {
        world.pools[0].pool.limits = list(limits);
        world.clone()
    };
    check(&limited(&[("cpu", "1000"), ("nodes", "3")]), 1);
    check(&limited(&[("cpu", "8")]), 1);
}

#[test]
fn mixed_pods_cost_little_more_than_the_bound() {
    for (count, most) in [(500, 1_105), (2_000, 1_060), (5_000, 1_060)] {
        for seed in [1, 2] {
            let found = thousandths(&mixed(count, seed));
            assert!(found <= most, "{count} pods, seed {seed}: {found} thousandths of the bound");
        }
    }
}

#[test]
fn few_steps_are_enough_for_a_plan() {
    for (max, outcome) in [(200_000, PlanCompletion::BudgetExhausted), (1_000_000, PlanCompletion::Complete)]
    {
        let mut world = mixed(500, 1);
        world.steps.max = max;
        let report = plan(&world).1;
        assert_eq!((report.unschedulable, report.outcome), (Vec::new(), outcome), "{max} steps");
    }
}
