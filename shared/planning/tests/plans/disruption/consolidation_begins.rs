//! Consolidation: what pools allow, when its commands are undone, and what a node doesn't hold back.

use super::consolidation::{Given, change, looked_twice, machine, three, used};
use super::*;
use CapacityType::OnDemand;
use tenon_domain::api::node_pool::ConsolidationPolicy;
use tenon_domain::claim::Consolidatable;
use tenon_planning::disruption::UndoCause;

#[test]
fn the_budget_bounds_what_goes_at_once_and_what_is_merged() {
    let nodes: Vec<Given<'_>> = vec![("x.large", OnDemand, &[1000]); 10];
    let with = |budget: BudgetNodes| {
        let mut world = used(three(), &[OnDemand], &nodes);
        change(&mut world, |pool| pool.disruption.budgets = vec![Budget::always(budget)]);
        let (plan, report) = looked_twice(&world);
        (candidates(&plan).len(), refusals(&report).contains_key("BudgetExhausted"))
    };
    assert_eq!(with(BudgetNodes::Count(0)), (0, true));
    assert_eq!(with(BudgetNodes::Count(1)), (1, true));
    assert_eq!(with(BudgetNodes::Percent(30)), (3, true));
    assert!(!with(BudgetNodes::Percent(100)).1);
}

#[test]
fn a_pool_that_only_removes_empty_nodes_keeps_used_ones() {
    let mut world = used(three(), &[OnDemand], &[("x.large", OnDemand, &[500])]);
    change(&mut world, |pool| pool.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty);
    assert!(looked_twice(&world).0.is_empty());
}

#[test]
fn balanced_pools_weigh_the_saving_against_the_disruption() {
    // One node in ten has a fiftieth of the pool's cost, and more pods than the others together.
    let types = || vec![machine("x.large", 16, 1000), machine("x.small", 4, 20), machine("x.tiny", 2, 10)];
    let mut nodes: Vec<Given<'_>> = vec![("x.large", OnDemand, &[15_000]); 9];
    let many = [100; 15];
    nodes.push(("x.small", OnDemand, &many));
    let with = |policy: ConsolidationPolicy, uninitialized: usize| {
        let mut world = used(types(), &[OnDemand], &nodes);
        change(&mut world, |pool| pool.disruption.consolidation_policy = policy);
        for view in world.claims.iter_mut().take(uninitialized) {
            if let ClaimState::Initialized { instance, node, at } = view.claim.state.clone() {
                view.claim.state = ClaimState::Registered { instance, node, at };
            }
        }
        let (plan, report) = looked_twice(&world);
        let told = report.refusals.iter().map(|refused| refused.reason.to_string());
        let told: Vec<String> = told.filter(|told| told.contains("`Balanced`")).collect();
        for told in &told {
            assert!(
                told.starts_with("moving its pods would save 0.")
                    && told
                        .contains(" % of the price of NodePool `default`, and policy `Balanced` asks for "),
                "{told}"
            );
        }
        (candidates(&plan).len(), (!told.is_empty()).then_some(told.len()))
    };
    // The pool's cost is that of all its nodes, also of those that can't go now.
    for uninitialized in [0, 9] {
        assert_eq!(with(ConsolidationPolicy::WhenEmptyOrUnderutilized, uninitialized), (1, None));
        assert_eq!(with(ConsolidationPolicy::Balanced, uninitialized), (0, Some(1)));
    }
}

/// A consolidation that waits for its replacement.
fn consolidating(replacement: ClaimState) -> DisruptionInput {
    let mut world = commanded(replacement, 0, 0);
    world.commands[0].reason = RemovalReason::Underutilized;
    world.claims[0].claim.drift = None;
    world
}

#[test]
fn a_consolidation_is_undone_where_its_replacement_fails_or_its_pods_have_no_room() {
    let failure = tenon_domain::claim::LaunchFailure { reason: "None".to_owned(), message: String::new() };
    let (plan, _) =
        tenon_planning::disruption::plan(&consolidating(ClaimState::LaunchFailed { at: at(0), failure }));
    let undone = |cause| CommandStep::Undo { candidates: vec![claim_name(0)], cause };
    assert_eq!(plan.advances[0].step, undone(UndoCause::ReplacementFailed));

    let ready = || ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(0) };
    let mut world = consolidating(ready());
    let (plan, _) = tenon_planning::disruption::plan(&world);
    assert_eq!(plan.advances[0].step, CommandStep::Drain { candidates: vec![claim_name(0)] });
    // Other pods wait, and take the replacement's room.
    world.world.pods = busy(7);
    let (plan, _) = tenon_planning::disruption::plan(&world);
    assert_eq!(plan.advances[0].step, undone(UndoCause::NoRoom));
}

#[test]
fn a_consolidation_is_undone_where_something_keeps_its_node_since() {
    let coming = ClaimState::Planned;
    let ready = ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(0) };
    for replacement in [coming, ready] {
        let mut world = consolidating(replacement);
        world.claims[0].node.as_mut().unwrap().do_not_disrupt = DoNotDisrupt::Always;
        let (plan, _) = tenon_planning::disruption::plan(&world);
        let by = Box::new(RefusalReason::DoNotDisrupt { pod: None, until: None });
        let step = CommandStep::Undo { candidates: vec![claim_name(0)], cause: UndoCause::Held { by } };
        assert_eq!(plan.advances[0].step, step);
    }
}

#[test]
fn a_budget_that_never_allows_an_eviction_undoes_a_consolidation_and_one_that_is_used_up_doesnt() {
    let check = |most: u32, undone: bool| {
        let ready = ClaimState::Initialized { instance: instance(1, NEW), node: node_name(1), at: at(0) };
        let mut world = consolidating(ready);
        let meta =
            ObjectMeta { name: "guard".to_owned(), namespace: "default".to_owned(), ..ObjectMeta::default() };
        world.pdbs.push(PodDisruptionBudget {
            meta,
            selector: Some(LabelSelector::default()),
            bound: PdbBound::MaxUnavailable(IntOrPercent::Int(most)),
            unhealthy_pods: UnhealthyPodEviction::IfHealthyBudget,
            disruptions_allowed: 0,
        });
        let (plan, _) = tenon_planning::disruption::plan(&world);
        assert_eq!(matches!(plan.advances[0].step, CommandStep::Undo { .. }), undone, "{most}");
    };
    check(0, true);
    check(1, false);
}

/// A pool of its own for the first of the nodes, from the cluster's.
fn first_in_pool_of_its_own(world: &mut DisruptionInput, change: impl FnOnce(&mut NodePool)) {
    let mut own = world.pools[0].clone();
    own.name = NodePoolName::parse("own").unwrap();
    change(&mut own);
    let mut of_world = world.world.pools[0].clone();
    of_world.pool = own.clone();
    world.pools.push(own);
    world.world.pools.push(of_world);
    world.claims[0].claim.pool = NodePoolName::parse("own").unwrap();
}

#[test]
fn a_node_that_no_budget_lets_go_holds_back_no_other() {
    // One of them has room for both pods.
    let nodes: [Given<'_>; 2] = [("x.large", OnDemand, &[500]); 2];
    let check = |change: &dyn Fn(&mut NodePool), paused: bool, goes: &[&str]| {
        let mut world = used(vec![machine("x.large", 4, 100)], &[OnDemand], &nodes);
        first_in_pool_of_its_own(&mut world, |own| change(own));
        if paused {
            world.paused.insert(NodePoolName::parse("own").unwrap(), DisruptionPause::Annotation);
        }
        let (plan, report) = looked_twice(&world);
        assert_eq!(candidates(&plan), goes);
        report.refusals.iter().map(|refused| refused.claim.to_string()).collect::<Vec<_>>()
    };
    let never = |own: &mut NodePool| own.disruption.budgets = vec![Budget::always(BudgetNodes::Count(0))];
    check(&|_| {}, false, &["default-00000"]);
    assert_eq!(check(&never, false, &["default-00001"]), ["default-00000"], "it is told");
    assert_eq!(check(&|_| {}, true, &["default-00001"]), ["default-00000"]);
}

#[test]
fn a_node_to_which_pods_come_all_the_time_holds_back_no_other() {
    let node: Given<'_> = ("x.large", OnDemand, &[900]);
    let check = |marked: i64, goes: usize| {
        let mut world = used(vec![machine("x.large", 2, 100)], &[OnDemand], &[node; 3]);
        change(&mut world, |pool| pool.disruption.consolidate_after = Some(SignedDuration::from_secs(60)));
        world.claims[0].node.as_mut().unwrap().pods[0].bound_at = Some(at(-10));
        let (first, _) = plan(&world);
        for mark in first.consolidatable {
            let view = world.claims.iter_mut().find(|view| view.claim.name == mark.claim).unwrap();
            view.claim.consolidatable = mark.mark.map(|mark| Consolidatable { since: at(-marked), ..mark });
        }
        assert_eq!(candidates(&plan(&world).0), ["default-00001"][..goes]);
    };
    // Their time has come. Perhaps the first node's comes soon: one is waited for as long again.
    check(60, 0);
    check(119, 0);
    check(120, 1);
}

fn of_replica_set(view: &mut ClaimView) {
    for pod in &mut view.node.as_mut().unwrap().pods {
        let owner = OwnerReference {
            kind: "ReplicaSet".to_owned(),
            name: "web".to_owned(),
            uid: "uid-web".to_owned(),
            role: OwnerRole::Controller,
        };
        pod.shape = Arc::new(PodShape { owner: Some(owner), ..(*pod.shape).clone() });
    }
}

#[test]
fn the_room_of_an_evicted_pods_successor_is_taken_before_it_is_seen() {
    let check = |bound: Option<i64>, could_go: usize| {
        let node: Given<'_> = ("x.large", OnDemand, &[1500]);
        let mut world = used(vec![machine("x.large", 4, 100)], &[OnDemand], &[node; 3]);
        world.claims.iter_mut().for_each(of_replica_set);
        let leaving = &mut world.claims[0];
        leaving.claim.state = ClaimState::Draining {
            instance: leaving.claim.state.instance().unwrap().clone(),
            node: Some(node_name(0)),
            reason: RemovalReason::Underutilized,
            at: at(-5),
            deadline: None,
        };
        leaving.node.as_mut().unwrap().pods[0].deleted_at = Some(at(-3));
        world.claims[1].node.as_mut().unwrap().pods[0].bound_at = bound.map(at);
        assert_eq!(plan(&world).0.consolidatable.len(), could_go, "{bound:?}");
    };
    // Two nodes with three pods: no pod has a place elsewhere.
    check(None, 0);
    check(Some(-4), 0);
    // One of the two pods is the successor.
    check(Some(-3), 2);
}

/// Overprovisioning pods cost nothing to evict: their node goes only where they have room, and not if the pool keeps used
/// nodes.
#[test]
fn a_node_whose_pods_cost_nothing_goes_where_they_have_room() {
    let check = |nodes: &[Given<'_>], policy: ConsolidationPolicy, goes: usize| {
        let mut world = used(vec![machine("x.large", 4, 100)], &[OnDemand], nodes);
        change(&mut world, |pool| pool.disruption.consolidation_policy = policy);
        for pod in &mut world.claims[0].node.as_mut().unwrap().pods {
            pod.shape = Arc::new(PodShape { priority: -1_000_000_000, ..(*pod.shape).clone() });
        }
        assert_eq!(looked_twice(&world).0.commands.len(), goes);
    };
    let (low, full): (Given<'_>, Given<'_>) = (("x.large", OnDemand, &[600]), ("x.large", OnDemand, &[3500]));
    check(&[low], ConsolidationPolicy::WhenEmptyOrUnderutilized, 0);
    check(&[low, full], ConsolidationPolicy::WhenEmptyOrUnderutilized, 0);
    check(&[low, low], ConsolidationPolicy::WhenEmptyOrUnderutilized, 1);
    check(&[low, low], ConsolidationPolicy::WhenEmpty, 0);
}
