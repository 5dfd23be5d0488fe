//! Consolidation against the best of all sets of nodes, on drawn worlds of up to eight nodes.

use super::consolidation::{after, change, machine, used};
use super::*;
use crate::catalogue::catalogue;
use crate::drawn::Draw;
use tenon_domain::labels;
use tenon_domain::money::UsdPerHour;
use tenon_planning::provision::{PlanTrials, Purpose};

const WORLDS: u64 = 1_000;

/// A look's time to see what the last one did.
const ROUNDS: usize = 80;

const TYPES: [(&str, i64, u64); 7] = [
    ("a.large", 2, 10),
    ("a.xlarge", 4, 19),
    ("a.xxlarge", 8, 38),
    ("b.large", 3, 13),
    ("b.xlarge", 6, 25),
    ("c.xlarge", 16, 70),
    ("d.large", 4, 24),
];

fn drawn(seed: u64) -> DisruptionInput {
    let mut draw = Draw::new(seed);
    let types = || TYPES.map(|(name, cpu, cents)| machine(name, cpu, cents)).into();
    let mut pods: Vec<(usize, Vec<u32>)> = Vec::new();
    for _ in 0..2 + draw.below(7) {
        let one = usize::try_from(draw.below(TYPES.len() as u64)).unwrap();
        let mut room = u32::try_from(TYPES[one].1).unwrap() * 1000 - 100;
        let mut own = Vec::new();
        for _ in 0..1 + draw.below(5) {
            let cpu = draw.of(&[100, 250, 500, 900, 1500, 2900]);
            if cpu <= room {
                own.push(cpu);
                room -= cpu;
            }
        }
        pods.push((one, if own.is_empty() { vec![100] } else { own }));
    }
    let nodes: Vec<_> =
        pods.iter().map(|(one, own)| (TYPES[*one].0, CapacityType::OnDemand, own.as_slice())).collect();
    let mut world = used(types(), &[CapacityType::OnDemand], &nodes);
    change(&mut world, |pool| {
        pool.meta.annotations.insert(labels::MINIMUM_SAVINGS.to_owned(), "1%".to_owned());
    });
    world
}

fn price_of(world: &DisruptionInput, view: &ClaimView) -> u64 {
    let instance = view.claim.state.instance().unwrap();
    let types = &world.world.pools[0].types;
    let option = types.iter().find(|one| one.facts.name == instance.instance_type).unwrap();
    option.offerings[0].price.map_or(0, UsdPerHour::nanos)
}

fn total(world: &DisruptionInput) -> u64 {
    world.claims.iter().map(|view| price_of(world, view)).sum()
}

/// The most that any set of nodes saves.
fn best_of_all(world: &DisruptionInput) -> u64 {
    let all: Vec<Pod> = world
        .claims
        .iter()
        .filter_map(|view| view.node.as_ref())
        .flat_map(|node| node.pods.clone())
        .collect();
    let mut trials = PlanTrials::new(&world.world, |_| true, &all);
    let purpose = Purpose::Replacement(CommandId::parse("command-1").unwrap());
    let mut best = 0;
    for set in 1..1_u32 << world.claims.len() {
        let of: Vec<&ClaimView> = world
            .claims
            .iter()
            .enumerate()
            .filter(|(n, _)| set >> n & 1 == 1)
            .map(|(_, view)| view)
            .collect();
        let going = of.iter().filter_map(|view| view.node.as_ref()).map(|node| node.name.as_str()).collect();
        let unbound = |pod: &Pod| Pod { node: None, ..pod.clone() };
        let pods: Vec<Pod> = of
            .iter()
            .filter_map(|view| view.node.as_ref())
            .flat_map(|node| node.pods.iter().map(unbound))
            .collect();
        let (plan, report) = trials.plan(&purpose, &going, &pods);
        let now: u64 = of.iter().map(|view| price_of(world, view)).sum();
        if report.unschedulable.is_empty() {
            best = best.max(now.saturating_sub(plan.price().nanos()));
        }
    }
    best
}

/// The world after the plan: nodes are gone, and each new one is of its claim's cheapest type.
fn carried_out(world: &mut DisruptionInput, plan: &DisruptionPlan, next: &mut usize) {
    for command in &plan.commands {
        let gone: Vec<ClaimView> =
            world.claims.extract_if(.., |view| command.candidates.contains(&view.claim.name)).collect();
        let moving: Vec<Pod> =
            gone.iter().filter_map(|view| view.node.as_ref()).flat_map(|node| node.pods.clone()).collect();
        let names: BTreeSet<&str> =
            gone.iter().filter_map(|view| view.node.as_ref()).map(|node| node.name.as_str()).collect();
        world.world.nodes.retain(|node| !names.contains(node.name.as_str()));
        let pod = |uid: &tenon_domain::id::Uid| moving.iter().find(|pod| pod.uid == *uid).cloned().unwrap();
        for placement in &command.replacement.placements {
            let moved = pod(&placement.pod.uid);
            let node = world.world.nodes.iter_mut().find(|node| node.name == placement.node).unwrap();
            node.occupancy.extend([&moved]);
            let view = world
                .claims
                .iter_mut()
                .find(|view| view.node.as_ref().is_some_and(|node| node.name == placement.node));
            view.unwrap().node.as_mut().unwrap().pods.push(moved);
        }
        for claim in &command.replacement.claims {
            let pods = claim.pods.iter().map(|one| pod(&one.uid)).collect();
            let mut view = settled(*next, NEW, pods);
            *next += 1;
            if let ClaimState::Initialized { instance, .. } = &mut view.claim.state {
                instance.instance_type = claim.instance_types[0].clone();
            }
            let types = &world.world.pools[0].types;
            let option = types.iter().find(|one| one.facts.name == claim.instance_types[0]).unwrap();
            let found = view.node.as_ref().unwrap();
            let mut node = node(&found.name, NodeKind::Initialized, &[]);
            node.allocatable = option.allocatable.clone();
            node.labels.extend(option.labels.labels());
            node.labels.insert(labels::NODEPOOL.to_owned(), "default".to_owned());
            node.labels.insert(labels::CAPACITY_TYPE.to_owned(), "on-demand".to_owned());
            node.occupancy = Occupancy::of(&found.pods);
            world.world.nodes.push(node);
            world.claims.push(view);
        }
    }
}

/// Looks, and carries out what they decide, until one decides nothing. Returns how many did.
fn settled_after(world: &mut DisruptionInput) -> usize {
    let mut next = 1000;
    let rounds = (0..ROUNDS).find(|_| {
        let (plan, _) = after(world, 15);
        carried_out(world, &plan, &mut next);
        plan.commands.is_empty()
    });
    rounds.unwrap()
}

/// A hundred nodes of which a fifth is used: what they cost at the end against the price of their pods' CPU.
#[test]
fn a_hundred_nodes_that_are_nearly_idle_become_few() {
    let own = [1500, 900, 500, 250];
    let nodes: Vec<_> = (0..100).map(|_| ("c.xlarge", CapacityType::OnDemand, &own[..])).collect();
    let types = TYPES.map(|(name, cpu, cents)| machine(name, cpu, cents)).into();
    let mut world = used(types, &[CapacityType::OnDemand], &nodes);
    let mut few_at_once = world.clone();
    change(&mut few_at_once, |pool| pool.disruption.budgets = vec![Budget::always(BudgetNodes::Percent(10))]);
    let rounds = settled_after(&mut world);
    // The cheapest CPU is of `b.xlarge`: 25 cents for 5.9.
    let bound = 100 * 3_150 * 250_000_000 / 5_900;
    assert!(total(&world) * 100 <= bound * 110, "{} of {bound}", total(&world));
    assert!(rounds <= 3, "{rounds} rounds");
    let rounds = settled_after(&mut few_at_once);
    assert!(total(&few_at_once) * 100 <= bound * 115, "{} of {bound}", total(&few_at_once));
    assert!(rounds <= 20, "{rounds} rounds");
}

/// The same of real types, of which hundreds could replace them.
#[test]
fn a_hundred_nodes_of_real_types_become_few_in_one_look() {
    let own = [1500, 900, 500, 250];
    let nodes: Vec<_> = (0..100).map(|_| ("m5.2xlarge", CapacityType::OnDemand, &own[..])).collect();
    let mut world = used(catalogue().to_vec(), &[CapacityType::OnDemand], &nodes);
    let zone = Zone::parse("us-east-1a").unwrap();
    for (view, node) in world.claims.iter_mut().zip(&mut world.world.nodes) {
        if let ClaimState::Initialized { instance, .. } = &mut view.claim.state {
            instance.zone = zone.clone();
        }
        node.labels.insert(labels::ZONE.to_owned(), zone.to_string());
    }
    let (plan, _) = after(&world, 15);
    let saved: u64 = plan.commands.iter().filter_map(|command| command.saves).map(UsdPerHour::nanos).sum();
    // A fifth of the price of 100 m5.2xlarge is more than their pods' CPU costs anywhere.
    assert!(saved > 100 * 384_000_000 / 2, "{saved}");
}

/// More nodes than one look tries have their turns.
#[test]
fn a_large_cluster_is_looked_at_by_turns() {
    let own = [1500, 900, 500, 250];
    let nodes: Vec<_> = (0..300).map(|_| ("c.xlarge", CapacityType::OnDemand, &own[..])).collect();
    let types = TYPES.map(|(name, cpu, cents)| machine(name, cpu, cents)).into();
    let mut world = used(types, &[CapacityType::OnDemand], &nodes);
    let (before, mut next) = (total(&world), 1000);
    for turn in 0..10 {
        world.now = at(turn * 300);
        world.world.now = world.now;
        let (plan, _) = after(&world, turn * 300 + 15);
        carried_out(&mut world, &plan, &mut next);
    }
    assert!(total(&world) * 3 < before, "{} of {before}", total(&world));
}

#[test]
fn consolidation_saves_nearly_what_the_best_set_would() {
    let (mut saved, mut best) = (0, 0);
    for seed in 0..WORLDS {
        let mut world = drawn(seed);
        let (before, most) = (total(&world), best_of_all(&world));
        settled_after(&mut world);
        let now = total(&world);
        assert!(now <= before, "world {seed} costs more than before");
        saved += before - now;
        best += most;
    }
    assert!(saved * 100 >= best * 95, "{saved} of {best}");
}
