//! Which claims are candidates, how many at once, and where their pods go.

use super::consolidation::{after, machine, used};
use super::*;
use tenon_domain::claim::Consolidatable;

#[test]
fn c104_c113_budgets_bound_how_many_go_at_once() {
    for (budget, expected) in
        [(BudgetNodes::Percent(30), 3), (BudgetNodes::Percent(100), 10), (BudgetNodes::Percent(0), 0)]
    {
        for pods_of in [|_| Vec::new(), busy as fn(usize) -> Vec<Pod>] {
            let claims = (0..10).map(|index| drifted(index, -10, pods_of(index))).collect();
            let (plan, report) = plan(&cluster(claims, budget));
            assert_eq!(plan.commands.len(), expected, "{report:?}");
            let left = 10 - expected;
            assert_eq!(refusals(&report).get("BudgetExhausted").copied().unwrap_or(0), left);
        }
    }
}

#[test]
fn what_goes_already_or_is_not_ready_uses_up_the_budget() {
    let mut claims: Vec<ClaimView> = (0..10).map(|index| drifted(index, -10, busy(index))).collect();
    let ClaimState::Initialized { instance, node, .. } = claims[0].claim.state.clone() else {
        unreachable!()
    };
    claims[0].claim.state = ClaimState::Draining {
        instance,
        node: Some(node),
        reason: RemovalReason::SpotInterrupted,
        at: at(-5),
        deadline: None,
    };
    claims[1].node.as_mut().unwrap().readiness = Readiness::NotReady;
    let (plan, report) = plan(&cluster(claims, BudgetNodes::Count(3)));
    // The one that isn't ready is counted already, so it and one other go.
    assert_eq!(plan.commands.len(), 2);
    let exhausted = RefusalReason::BudgetExhausted {
        pool: NodePoolName::parse("default").unwrap(),
        allowed: 3,
        going: 3,
        of: Some(DisruptionReason::Drifted),
        closed: None,
    };
    assert!(report.refusals.iter().any(|refusal| refusal.reason == exhausted), "{report:?}");
}

#[test]
fn c113_empty_nodes_go_first_then_the_oldest_drift() {
    let claims = vec![drifted(0, -10, busy(0)), drifted(1, -30, busy(1)), drifted(2, -5, Vec::new())];
    let (plan, _) = plan(&cluster(claims, BudgetNodes::Percent(100)));
    assert_eq!(candidates(&plan), ["default-00002", "default-00001", "default-00000"]);
    assert!(plan.commands[0].drains_at_once());
    assert_eq!(plan.commands[1].replacement.claims.len(), 1);
}

#[test]
fn c113_pods_without_a_place_keep_their_node_and_the_next_one_goes() {
    let claims = vec![drifted(0, -30, pods("huge", 1, shape(&[("cpu", "64")]))), drifted(1, -10, busy(1))];
    let (plan, report) = plan(&cluster(claims, BudgetNodes::Percent(100)));
    assert_eq!(candidates(&plan), ["default-00001"]);
    assert_eq!(refusals(&report), BTreeMap::from([("Unschedulable", 1)]));
}

#[test]
fn room_elsewhere_is_used_and_not_given_away_twice() {
    let small = |index: usize| pods(&format!("web-{index}"), 1, shape(&[("cpu", "1500m")]));
    let claims = vec![
        drifted(0, -30, small(0)),
        drifted(1, -20, small(1)),
        drifted(2, -10, small(2)),
        settled(3, NEW, small(3)),
    ];
    let (plan, _) = plan(&cluster(claims, BudgetNodes::Percent(100)));
    assert_eq!(plan.commands.len(), 3);
    let placed: usize = plan.commands.iter().map(|command| command.replacement.placements.len()).sum();
    let new: usize = plan.commands.iter().map(|command| command.replacement.claims.len()).sum();
    // One fits beside the settled node's pod; nodes that drifted themselves are no place to move to.
    assert_eq!((placed, new), (1, 2), "{plan:#?}");
}

#[test]
fn a_settled_world_gives_an_empty_plan() {
    let (plan, report) =
        plan(&cluster((0..5).map(|i| settled(i, NEW, busy(i))).collect(), BudgetNodes::Percent(100)));
    assert!(plan.is_empty() && plan.wake_at.is_none() && report.refusals.is_empty());
}

#[test]
fn while_halted_nothing_is_taken_away() {
    let mut world = cluster(vec![drifted(0, -30, Vec::new())], BudgetNodes::Percent(100));
    world.halt = HaltState::Halted;
    let (plan, report) = plan(&world);
    assert!(plan.is_empty());
    assert_eq!(report.waiting[0].into_str(), "TableRestored");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn budgets_hold_and_order_means_nothing(
        nodes in prop::collection::vec((0_u8..4, -60_i64..0, 0_usize..3, any::<bool>()), 0..14),
        budget in 0_u32..8,
    ) {
        let claims: Vec<ClaimView> = nodes
            .iter()
            .enumerate()
            .map(|(index, (kind, since, count, ready))| {
                let own = pods(&format!("p{index}"), *count, shape(&[("cpu", "1")]));
                let mut view = if *kind == 0 { settled(index, NEW, own) } else { drifted(index, *since, own) };
                if !ready {
                    view.node.as_mut().unwrap().readiness = Readiness::NotReady;
                }
                view
            })
            .collect();
        let world = cluster(claims, BudgetNodes::Count(budget));
        let (planned, report) = plan(&world);
        let unready = nodes.iter().filter(|(_, _, _, ready)| !ready).count();
        let taken_ready = planned
            .commands
            .iter()
            .filter(|c| world.claims.iter().any(|v| v.claim.name == c.candidates[0]
                && v.node.as_ref().unwrap().readiness == Readiness::Ready))
            .count();
        prop_assert!(planned.commands.is_empty() || taken_ready + unready <= usize::try_from(budget).unwrap() );
        let drifted = nodes.iter().filter(|(kind, ..)| *kind != 0).count();
        prop_assert_eq!(planned.commands.len() + report.refusals.len(), drifted);
        let mut turned = world.clone();
        turned.claims.reverse();
        turned.world.nodes.reverse();
        prop_assert_eq!(plan(&turned), (planned, report));
    }
}

/// A second pool, with a claim of its own that is as ready as any.
fn beside_another_pool(mut world: DisruptionInput) -> DisruptionInput {
    let mut other = settled(90, NEW, Vec::new());
    other.claim.pool = NodePoolName::parse("other").unwrap();
    world.claims.push(other);
    let mut pool = world.world.pools[0].clone();
    pool.pool.name = NodePoolName::parse("other").unwrap();
    world.pools.push(pool.pool.clone());
    world.world.pools.push(pool);
    world
}

#[test]
fn another_pools_nodes_neither_raise_a_budget_nor_use_it_up() {
    let of_two = cluster(vec![drifted(0, -10, busy(0)), drifted(1, -10, busy(1))], BudgetNodes::Percent(50));
    let mut world = beside_another_pool(of_two);
    assert_eq!(plan(&world).0.commands.len(), 1);
    let other = &mut world.claims[2];
    other.node.as_mut().unwrap().readiness = Readiness::NotReady;
    assert_eq!(plan(&world).0.commands.len(), 1);
}

#[test]
fn replacements_of_one_look_stay_together_within_their_own_pools_limits() {
    let of_three = (0..3).map(|index| drifted(index, -10, busy(index))).collect();
    let mut world = beside_another_pool(cluster(of_three, BudgetNodes::Percent(100)));
    // Nothing of the other pool is large enough for these pods.
    world.world.pools[1].types = Arc::new(vec![FakeType::new("a.tiny", 1, 1, 5).option()]);
    let limits = list(&[("nodes", "5")]);
    world.world.pools[0].pool.limits = limits.clone();
    world.world.pools[0].usage = list(&[("nodes", "3")]);
    world.world.pools[1].pool.limits = limits;
    let (plan, report) = plan(&world);
    assert_eq!(plan.commands.len(), 2, "{plan:#?}");
    let RefusalReason::Unschedulable { pods } = &report.refusals[0].reason else { panic!("{report:?}") };
    assert!(pods[0].message().contains("the `nodes` limit"), "{}", pods[0].message());
}

#[test]
fn a_pool_at_its_limit_replaces_its_nodes() {
    let check = |leaving: &str, expected: usize| {
        let of_two = (0..2).map(|index| drifted(index, -10, busy(index))).collect();
        let mut world = cluster(of_two, BudgetNodes::Percent(100));
        let pool = &mut world.world.pools[0];
        pool.pool.limits = list(&[("nodes", "2")]);
        (pool.usage, pool.leaving) = (list(&[("nodes", "2")]), list(&[("nodes", leaving)]));
        pool.charges = (0..2).map(|index| (node_name(index).to_string(), list(&[("nodes", "1")]))).collect();
        let (plan, report) = plan(&world);
        assert_eq!(plan.commands.len(), expected, "{report:?}");
        let refused = report.refusals.iter().all(|refusal| refusal.reason.into_str() == "Unschedulable");
        assert!(refused, "{report:?}");
    };
    check("0", 2);
    // Twice the limit is the most, so that nodes that can't drain don't pile up.
    check("1", 1);
    check("2", 0);
}

#[test]
fn a_replacement_that_takes_too_many_steps_is_not_tried_again_at_once() {
    let mut world = cluster(vec![drifted(0, -30, busy(0))], BudgetNodes::Percent(100));
    world.world.steps = StepBudget { max: 0 };
    let (plan, report) = plan(&world);
    assert_eq!((plan.commands.len(), plan.wake_at), (0, None));
    assert_eq!(refusals(&report), BTreeMap::from([("Unschedulable", 1)]));
}

#[test]
fn all_of_a_looks_pods_move_to_a_node_that_has_room_for_them() {
    let small = |index: usize| pods(&format!("web-{index}"), 1, shape(&[("cpu", "500m")]));
    let claims = vec![drifted(0, -30, small(0)), drifted(1, -20, small(1)), settled(2, NEW, small(2))];
    let (plan, _) = plan(&cluster(claims, BudgetNodes::Percent(100)));
    let launched: usize = plan.commands.iter().map(|command| command.replacement.claims.len()).sum();
    assert_eq!((plan.commands.len(), launched), (2, 0), "{plan:#?}");
    assert!(!plan.is_empty());
}

#[test]
fn only_what_comes_back_elsewhere_needs_a_place_first() {
    let waits_for_a_place = |change: fn(&mut Pod, &mut PodShape)| {
        let mut world = cluster(vec![drifted(0, -30, busy(0))], BudgetNodes::Percent(100));
        let pod = &mut world.claims[0].node.as_mut().unwrap().pods[0];
        let mut shape: PodShape = (*pod.shape).clone();
        change(pod, &mut shape);
        pod.shape = Arc::new(shape);
        !plan(&world).0.commands[0].drains_at_once()
    };
    fn owned(shape: &mut PodShape, kind: &str) {
        shape.owner = Some(OwnerReference {
            kind: kind.to_owned(),
            name: "web".to_owned(),
            uid: String::new(),
            role: OwnerRole::Controller,
        });
    }
    assert!(waits_for_a_place(|_, _| {}));
    assert!(waits_for_a_place(|_, shape| owned(shape, "StatefulSet")));
    assert!(waits_for_a_place(|pod, shape| {
        owned(shape, "StatefulSet");
        pod.deleted_at = Some(at(-5));
    }));
    assert!(!waits_for_a_place(|pod, shape| {
        owned(shape, "ReplicaSet");
        pod.deleted_at = Some(at(-5));
    }));
    assert!(!waits_for_a_place(|pod, shape| {
        owned(shape, "StatefulSet");
        pod.phase = PodPhase::Succeeded;
    }));
    assert!(!waits_for_a_place(|_, shape| owned(shape, "DaemonSet")));
    assert!(!waits_for_a_place(|_, shape| shape.origin = PodOrigin::Static));
}

/// A begun command gives its node back. Karpenter, which has the same NodePools, keeps new commands only.
#[test]
fn a_paused_pool_begins_nothing_and_drains_nothing() {
    let ready = ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(0) };
    let mut world = commanded(ready, 0, 0);
    let mut empty = settled(2, NEW, Vec::new());
    empty.claim.consolidatable = Some(Consolidatable { since: at(-600), pods: None });
    let others = cluster(vec![empty, drifted(3, -30, busy(3))], BudgetNodes::Percent(100));
    world.claims.extend(others.claims);
    world.world.nodes.extend(others.world.nodes);
    world.pools[0].disruption.consolidate_after = Some(SignedDuration::ZERO);
    let (running, _) = plan(&world);
    assert_eq!((running.advances.len(), running.commands.len()), (1, 2));
    let check = |by: DisruptionPause, drains: bool| {
        let mut world = world.clone();
        world.paused.insert(world.pools[0].name.clone(), by);
        let (paused, report) = plan(&world);
        assert_eq!((paused.advances.len(), paused.commands.len()), (1, 0), "{by:?}");
        let drained = matches!(paused.advances[0].step, CommandStep::Drain { .. });
        assert_eq!(drained, drains, "{by:?}");
        assert_eq!(refusals(&report), BTreeMap::from([("Paused", 2)]), "{by:?}");
    };
    check(DisruptionPause::Annotation, false);
    check(DisruptionPause::Setting, false);
    check(DisruptionPause::Karpenter, true);
}

#[test]
fn the_pause_of_one_pool_ends_a_command_of_several() {
    let ready = ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(0) };
    let mut world = commanded(ready, 0, 0);
    let other = NodePoolName::parse("other").unwrap();
    world.claims[0].claim.pool = other.clone();
    assert!(matches!(plan(&world).0.advances[0].step, CommandStep::Drain { .. }));
    world.paused.insert(other, DisruptionPause::Annotation);
    assert!(matches!(plan(&world).0.advances[0].step, CommandStep::Undo { .. }));
}

/// One transaction holds 100 writes, and a command is committed in one.
#[test]
fn a_command_is_no_larger_than_a_transaction() {
    let types = vec![machine("c.11xlarge", 44, 40), machine("c.16xlarge", 64, 640)];
    let nodes = [("c.16xlarge", CapacityType::OnDemand, &[1000][..]); 40];
    let (plan, _) = after(&used(types, &[CapacityType::OnDemand], &nodes), 15);
    let sizes: Vec<(usize, usize)> = plan
        .commands
        .iter()
        .map(|command| (command.candidates.len(), command.replacement.claims.len()))
        .collect();
    assert!(!sizes.is_empty());
    // For each candidate its claim, its action and a record in two places.
    assert!(sizes.iter().all(|(candidates, claims)| 4 * candidates + 8 * claims <= 97), "{sizes:?}");
}
