//! Pods of interrupted Nodes that stay for the claims that count them.

use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{ClaimState, LaunchedInstance};
use tenon_table::items::from_item;
use tenon_table::{Key, Slices, WriteGroup};

use super::*;
use crate::decided::Decided;
use crate::hold::{CountingLaunches, InterruptedNode, ReplacementStage, leave_at_once};

#[test]
fn a_pod_that_joins_a_claim_on_its_way_stays_for_its_node() {
    let world = AgentFixture::new();
    world.plan("b", "first");
    let mut counting = CountingLaunches::default();
    let mut counted = || -> Vec<String> {
        let decided = block_on(Decided::default().read(&world.table, &name())).unwrap();
        let stages = block_on(counting.stages(&world.table, &name(), &decided, at(0))).unwrap();
        assert!(stages.values().all(|stage| *stage == ReplacementStage::Planned), "{stages:?}");
        stages.keys().map(ToString::to_string).collect()
    };
    assert_eq!(counted(), ["first"]);
    let key = keys::launch(&name(), &LaunchId::parse("launch-1").unwrap());
    let before: Launch = from_item(&key, &world.table.peek(&key).unwrap()).unwrap();
    let late = Uid::parse("late").unwrap();
    let joined = before.joined_by([(&before.claims[0].name, &late)]).unwrap();
    let group = WriteGroup { conditions: Vec::new(), writes: vec![put(key, &joined)] };
    let slices = Slices::cut(&CommitToken::parse("join").unwrap(), &name(), 0, vec![group]).unwrap();
    for slice in slices.commits() {
        block_on(world.table.commit(slice)).unwrap();
    }
    assert_eq!(counted(), ["first", "late"]);
}

#[test]
fn a_pod_whose_room_was_taken_stays_for_the_claim_that_it_was_planned_on_again() {
    let world = AgentFixture::new();
    world.plan("b", "first");
    let (before, after) = (LaunchId::parse("launch-1").unwrap(), LaunchId::parse("launch-2").unwrap());
    let read = |key: &Key| world.table.peek(key).unwrap();
    let claim_key = keys::claim(&name(), &ClaimName::parse("b").unwrap());
    let claim: Claim = from_item(&claim_key, &read(&claim_key)).unwrap();
    let launch_key = keys::launch(&name(), &before);
    let launch: Launch = from_item(&launch_key, &read(&launch_key)).unwrap();
    let instance = LaunchedInstance {
        id: "i-00000000000000001".parse().unwrap(),
        instance_type: "m5.large".parse().unwrap(),
        zone: "us-east-1a".parse().unwrap(),
        subnet: None,
        capacity_type: CapacityType::Spot,
        reservation: None,
        placement: None,
        image: "ami-00000000000000001".parse().unwrap(),
    };
    let ready = ClaimState::Initialized { instance, node: "b".parse().unwrap(), at: at(20) };
    world.commit(put(claim_key, &Claim { state: ready, ..claim.clone() }));
    let stage = || {
        let decided = block_on(Decided::default().read(&world.table, &name())).unwrap();
        let mut counting = CountingLaunches::default();
        let stages = block_on(counting.stages(&world.table, &name(), &decided, at(0))).unwrap();
        stages.get(&Uid::parse("first").unwrap()).copied()
    };
    assert_eq!(stage(), Some(ReplacementStage::Ready));

    let again = Claim { name: ClaimName::parse("c").unwrap(), launch: after.clone(), ..claim };
    let counted = LaunchClaim { name: again.name.clone(), ..launch.claims[0].clone() };
    let second = Launch { id: after, claims: vec![counted], created_at: at(10), ..launch };
    world.commit(put(keys::launch(&name(), &second.id), &second));
    world.commit(put(keys::claim(&name(), &again.name), &again));
    assert_eq!(stage(), Some(ReplacementStage::Planned));
}

#[test]
fn a_budget_that_lets_fewer_pods_go_than_all_interrupted_nodes_have_holds_none_of_them() {
    let check = |allowed: u32, expected: usize| {
        let world = AgentFixture::with_pods(2, json!({"maxUnavailable": allowed}), Value::Null);
        let (a, b) = (world.node("a").unwrap(), world.node("b").unwrap());
        let pods = block_on(Kube::pods(&world.kube)).unwrap();
        let (one, other) = pods.split_at(1);
        let nodes = [InterruptedNode { node: &a, pods: one }, InterruptedNode { node: &b, pods: other }];
        assert_eq!(block_on(leave_at_once(&world.kube, &nodes, None)).unwrap().len(), expected, "{allowed}");
    };
    check(1, 2);
    check(2, 0);
}
