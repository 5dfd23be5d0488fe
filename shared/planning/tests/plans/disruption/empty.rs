//! Empty nodes: when they are marked, and when they go.

use super::consolidation::{machine, used};
use super::*;
use tenon_domain::claim::Consolidatable;

/// A cluster whose pool removes nodes that were empty for so many seconds.
fn removing(after: i64, claims: Vec<ClaimView>, budget: BudgetNodes) -> DisruptionInput {
    let mut world = cluster(claims, budget);
    world.pools[0].disruption.consolidate_after = Some(SignedDuration::from_secs(after));
    world
}

/// A claim whose Node has been seen empty so many seconds ago.
fn emptied(index: usize, ago: i64, pods: Vec<Pod>) -> ClaimView {
    let mut view = settled(index, NEW, pods);
    view.claim.consolidatable = Some(Consolidatable { since: at(-ago), pods: None });
    view
}

fn marks(plan: &DisruptionPlan) -> Vec<(String, Option<i64>)> {
    let shown = |mark: &ConsolidatableMark| {
        let since = mark.mark.as_ref().map(|mark| mark.since.as_second() - at(0).as_second());
        (mark.claim.to_string(), since)
    };
    plan.consolidatable.iter().map(shown).collect()
}

#[test]
fn c104_budgets_bound_how_many_empty_nodes_go() {
    for (budget, expected) in
        [(BudgetNodes::Percent(30), 3), (BudgetNodes::Percent(100), 10), (BudgetNodes::Percent(0), 0)]
    {
        let claims = (0..10).map(|index| emptied(index, 60, Vec::new())).collect();
        let (plan, report) = plan(&removing(30, claims, budget));
        assert_eq!(plan.commands.len(), expected);
        assert!(plan.commands.iter().all(|command| command.drains_at_once()));
        assert!(plan.commands.iter().all(|command| command.reason == RemovalReason::Empty));
        assert_eq!(refusals(&report).get("BudgetExhausted").copied().unwrap_or(0), 10 - expected);
    }
}

#[test]
fn c106_a_node_goes_once_it_was_empty_for_consolidate_after_and_is_looked_at_twice() {
    let check = |after: i64, ago: Option<i64>, goes: bool, wake: Option<i64>| {
        let view = ago.map_or_else(|| settled(0, NEW, Vec::new()), |ago| emptied(0, ago, Vec::new()));
        let (plan, _) = plan(&removing(after, vec![view], BudgetNodes::Count(1)));
        assert_eq!(plan.commands.len(), usize::from(goes), "{after} {ago:?}");
        assert_eq!(plan.wake_at, wake.map(at), "{after} {ago:?}");
        assert_eq!(marks(&plan).len(), usize::from(ago.is_none()), "{after} {ago:?}");
    };
    check(300, None, false, Some(300));
    check(300, Some(299), false, Some(1));
    check(300, Some(300), true, None);
    // Even without a time to wait, one look isn't enough.
    check(0, None, false, Some(15));
    check(0, Some(14), false, Some(1));
    check(0, Some(15), true, None);
}

#[test]
fn c106_pods_that_need_no_other_place_dont_keep_a_node() {
    let check = |change: &dyn Fn(&mut Pod), empty: bool| {
        let mut pod = busy(0).remove(0);
        change(&mut pod);
        let (plan, _) = plan(&removing(0, vec![settled(0, NEW, vec![pod])], BudgetNodes::Count(1)));
        assert_eq!(marks(&plan).len(), usize::from(empty));
    };
    let owned = |pod: &mut Pod, kind: &str| {
        let owner = OwnerReference {
            kind: kind.to_owned(),
            name: "web".to_owned(),
            uid: "uid-web".to_owned(),
            role: OwnerRole::Controller,
        };
        pod.shape = Arc::new(PodShape { owner: Some(owner), ..(*pod.shape).clone() });
    };
    check(&|_| {}, false);
    check(&|pod| owned(pod, "DaemonSet"), true);
    let terminating = |pod: &mut Pod, kind: &str| {
        owned(pod, kind);
        pod.deleted_at = Some(at(30));
    };
    check(&|pod| terminating(pod, "ReplicaSet"), true);
    check(&|pod| terminating(pod, "StatefulSet"), false);
}

/// Karpenter takes such a node for empty. Its pod would get another one, which were as empty.
#[test]
fn a_pod_whose_eviction_costs_nothing_keeps_its_node_from_being_empty() {
    let check = |deletion_cost: i32, priority: i32| {
        let mut pod = busy(0).remove(0);
        pod.shape = Arc::new(PodShape { deletion_cost, priority, ..(*pod.shape).clone() });
        let (plan, _) = plan(&removing(0, vec![settled(0, NEW, vec![pod])], BudgetNodes::Count(1)));
        assert!(plan.is_empty(), "{plan:?}");
    };
    check(0, 0);
    check(i32::MIN, 0);
    check(0, -1_000_000_000);
}

#[test]
fn an_empty_node_stays_for_the_least_age_of_its_pool() {
    // It was made 1000 s ago.
    let check = |lifetime: &str, goes: bool, told: &[(&'static str, usize)], wake: Option<i64>| {
        let mut world = removing(30, vec![emptied(0, 600, Vec::new())], BudgetNodes::Count(1));
        world.pools[0]
            .meta
            .annotations
            .insert(tenon_domain::labels::MINIMUM_NODE_LIFETIME.to_owned(), lifetime.to_owned());
        let (plan, report) = plan(&world);
        assert_eq!(plan.commands.len(), usize::from(goes), "{lifetime}");
        assert_eq!(refusals(&report), BTreeMap::from_iter(told.iter().copied()), "{lifetime}");
        assert_eq!(plan.wake_at, wake.map(at), "{lifetime}");
        assert!(plan.consolidatable.is_empty(), "it stays marked");
    };
    check("1000s", true, &[], None);
    check("1001s", false, &[("TooYoung", 1)], Some(1));
    check("much", true, &[], None);
}

#[test]
fn a_pod_that_comes_takes_the_mark_away() {
    let (plan, _) = plan(&removing(30, vec![emptied(0, 600, busy(0))], BudgetNodes::Count(1)));
    assert_eq!((marks(&plan), plan.commands.len()), (vec![("default-00000".to_owned(), None)], 0));
}

#[test]
fn a_node_that_pending_pods_go_to_isnt_empty() {
    let mut world = removing(30, vec![emptied(0, 600, Vec::new())], BudgetNodes::Count(1));
    world.world.pods = busy(1);
    let (of_pending, _) = plan(&world);
    assert_eq!((marks(&of_pending).len(), of_pending.commands.len()), (1, 0));

    world.world.pods = Vec::new();
    world.counted.insert(busy(1)[0].uid.clone(), claim_name(0));
    let (of_counted, _) = plan(&world);
    assert_eq!((marks(&of_counted).len(), of_counted.commands.len()), (1, 0));
}

#[test]
fn pods_that_wait_for_their_replacement_go_to_no_empty_node() {
    let registered = ClaimState::Registered { instance: instance(1, NEW), node: node_name(1), at: at(-10) };
    let mut world = commanded(registered, 1, 0);
    world.pools[0].disruption.consolidate_after = Some(SignedDuration::from_secs(30));
    world.world.nodes[1].kind = NodeKind::Starting;
    let ready = [("cpu", "3900m"), ("memory", "4086Mi"), ("pods", "5")];
    world.world.nodes.push(node(node_name(2).as_str(), NodeKind::Initialized, &ready));
    world.claims.push(emptied(2, 600, Vec::new()));
    let (plan, _) = plan(&world);
    assert_eq!(candidates(&plan), ["default-00002"]);
}

#[test]
fn a_pool_that_never_consolidates_keeps_its_empty_nodes() {
    let world = cluster(vec![emptied(0, 600, Vec::new())], BudgetNodes::Percent(100));
    let mut never = world.clone();
    never.pools[0].disruption.consolidate_after = None;
    let (plan, _) = plan(&never);
    assert_eq!((marks(&plan), plan.commands.len()), (vec![("default-00000".to_owned(), None)], 0));
}

#[test]
fn c106_what_must_stay_isnt_removed_though_it_is_empty() {
    let mut held = emptied(0, 60, Vec::new());
    held.node.as_mut().unwrap().do_not_disrupt = DoNotDisrupt::Always;
    let (plan, report) = plan(&removing(30, vec![held], BudgetNodes::Percent(100)));
    assert_eq!((plan.commands.len(), refusals(&report)), (0, BTreeMap::from([("DoNotDisrupt", 1)])));
}

#[test]
fn the_room_of_a_node_that_goes_is_promised_to_nobody() {
    // Both would be a place for the drifted node's pod; the one that is empty goes.
    let mut leaving = drifted(0, -30, busy(0));
    leaving.claim.consolidatable = None;
    let world = removing(30, vec![leaving, emptied(1, 60, Vec::new())], BudgetNodes::Count(2));
    let (plan, _) = plan(&world);
    assert_eq!(candidates(&plan), ["default-00001", "default-00000"]);
    assert_eq!(plan.commands[1].replacement.placements.len(), 0);
    assert_eq!(plan.commands[1].replacement.claims.len(), 1);
}

#[test]
fn a_drifted_node_that_is_empty_goes_by_either_reason() {
    let mut fresh = drifted(0, -30, Vec::new());
    fresh.claim.consolidatable = None;
    let (first, _) = plan(&removing(30, vec![fresh.clone()], BudgetNodes::Count(1)));
    assert_eq!((marks(&first).len(), first.commands[0].reason), (0, RemovalReason::Drifted));

    // Its drift may have to wait.
    fresh.claim.consolidatable = Some(Consolidatable { since: at(-60), pods: None });
    let mut world = removing(30, vec![fresh], BudgetNodes::Count(1));
    let budgets = &mut world.pools[0].disruption.budgets;
    budgets[0].nodes = BudgetNodes::Count(0);
    budgets[0].reasons = [DisruptionReason::Drifted].into();
    let (third, _) = plan(&world);
    assert_eq!(third.commands[0].reason, RemovalReason::Empty);
}

#[test]
fn of_empty_nodes_within_a_budget_the_dearest_go_first() {
    let types = vec![machine("cheap.large", 4, 10), machine("dear.large", 4, 30)];
    let nodes =
        ["cheap.large", "dear.large", "cheap.large"].map(|name| (name, CapacityType::OnDemand, &[][..]));
    let mut world = used(types, &[CapacityType::OnDemand], &nodes);
    world.pools[0].disruption.budgets = vec![Budget::always(BudgetNodes::Count(2))];
    // The first is empty for longest, then the last.
    for (view, ago) in world.claims.iter_mut().zip([90, 60, 80]) {
        view.claim.consolidatable = Some(Consolidatable { since: at(-ago), pods: None });
    }
    assert_eq!(candidates(&plan(&world).0), ["default-00001", "default-00000"]);
}

#[test]
fn a_pod_that_came_and_went_between_two_looks_begins_the_wait_anew() {
    let check = |left: Option<i64>, goes: bool, wake: Option<i64>, since: Option<i64>| {
        let mut view = emptied(0, 600, Vec::new());
        if let Some(node) = &mut view.node {
            node.pod_left_at = left.map(at);
        }
        let (plan, _) = plan(&removing(300, vec![view], BudgetNodes::Count(1)));
        assert_eq!((plan.commands.len(), plan.wake_at), (usize::from(goes), wake.map(at)), "{left:?}");
        let expected: Vec<(String, Option<i64>)> =
            since.map(|since| ("default-00000".to_owned(), Some(since))).into_iter().collect();
        assert_eq!(marks(&plan), expected, "{left:?}");
    };
    check(None, true, None, None);
    check(Some(-700), true, None, None);
    check(Some(-299), false, Some(1), Some(-299));
    check(Some(-300), true, None, None);
    // The agent's clock is ahead.
    check(Some(5), false, Some(300), Some(0));
}

#[test]
fn an_empty_replacement_to_which_a_drifted_nodes_pods_go_now_stays() {
    let check = |budget: BudgetNodes, drifted_pods: Vec<Pod>, expected: &[&str]| {
        // A pause ended its command.
        let mut replacement = emptied(2, 600, Vec::new());
        replacement.claim.role = CommandRole::Replacement(CommandId::parse("command-9").unwrap());
        let claims = vec![drifted(0, -30, drifted_pods), emptied(1, 600, Vec::new()), replacement];
        let (plan, _) = plan(&removing(30, claims, budget));
        assert_eq!(candidates(&plan), expected, "{budget:?}");
        assert!(plan.commands.iter().all(NewCommand::drains_at_once), "{:?}", plan.commands);
    };
    check(BudgetNodes::Count(3), busy(0), &["default-00001", "default-00000"]);
    // Where its turn isn't now, nothing is kept for it.
    check(BudgetNodes::Count(0), busy(0), &[]);
    let mut held = busy(0);
    for pod in &mut held {
        pod.shape = Arc::new(PodShape { do_not_disrupt: DoNotDisrupt::Always, ..(*pod.shape).clone() });
    }
    check(BudgetNodes::Count(3), held, &["default-00001", "default-00002"]);
}
