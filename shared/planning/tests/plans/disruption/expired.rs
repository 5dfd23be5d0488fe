//! Expired nodes: replaced within budgets, before `lifecycle` drains them whatever these say.

use super::*;
use tenon_domain::budget::BudgetWindow;
use tenon_domain::claim::{AnnouncementKind, InstanceAnnouncement};

/// Claims that were made 1,000 s ago and expire after so many seconds.
fn expiring(after: i64, count: usize, budget: BudgetNodes) -> DisruptionInput {
    let claims = (0..count).map(|index| {
        let mut view = settled(index, NEW, busy(index));
        let expire_after = Some(SignedDuration::from_secs(after));
        view.claim.terms =
            Some(Terms { expire_after, termination_grace_period: None, load_balancer_deregistration: None });
        view
    });
    let mut world = cluster(claims.collect(), budget);
    world.pools[0].disruption.consolidate_after = None;
    world
}

fn annotated(mut world: DisruptionInput, wait: &str) -> DisruptionInput {
    let annotations = &mut world.pools[0].meta.annotations;
    annotations.insert("tenon.dev/expire-within-budgets".to_owned(), wait.to_owned());
    world
}

#[test]
fn expired_nodes_are_replaced_within_the_budgets() {
    for (budget, expected) in
        [(BudgetNodes::Count(2), 2), (BudgetNodes::Percent(100), 4), (BudgetNodes::Percent(0), 0)]
    {
        let (plan, report) = plan(&expiring(1000, 4, budget));
        assert_eq!(plan.commands.len(), expected);
        for command in &plan.commands {
            assert_eq!((command.reason, command.replacement.claims.len()), (RemovalReason::Expired, 1));
        }
        assert_eq!(refusals(&report).get("BudgetExhausted").copied().unwrap_or(0), 4 - expected);
    }
}

/// Four nodes about which EC2 announced this; the pool says so about rebalance recommendations.
fn announced(kind: AnnouncementKind, order: Option<&str>) -> DisruptionInput {
    let mut world = expiring(100_000, 4, BudgetNodes::Count(2));
    for view in &mut world.claims {
        view.claim.announced = Some(InstanceAnnouncement { kind, at: at(0), starts_at: None });
    }
    if let Some(order) = order {
        let annotations = &mut world.pools[0].meta.annotations;
        annotations.insert("tenon.dev/rebalance-recommendation".to_owned(), order.to_owned());
    }
    world
}

#[test]
fn what_ec2_announced_is_replaced_within_the_budgets_if_the_pool_wants_it() {
    let commands = |kind, order| {
        let (plan, report) = plan(&announced(kind, order));
        let reasons: BTreeSet<RemovalReason> = plan.commands.iter().map(|command| command.reason).collect();
        (plan.commands.len(), reasons.into_iter().next(), report.ignored.len())
    };
    let (change, rebalance) = (AnnouncementKind::ScheduledChange, AnnouncementKind::RebalanceRecommendation);
    assert_eq!(commands(change, None), (2, Some(RemovalReason::ScheduledChange), 0));
    assert_eq!(commands(rebalance, None), (0, None, 0));
    assert_eq!(commands(rebalance, Some("Drain")), (0, None, 0));
    let replaced = (2, Some(RemovalReason::RebalanceRecommended), 0);
    assert_eq!(commands(rebalance, Some("ReplaceFirst")), replaced);
    assert_eq!(commands(rebalance, Some("Yes")), (0, None, 1));
}

#[test]
fn a_replacement_avoids_the_offering_that_ec2_warned_about_if_there_is_another() {
    use super::consolidation::{change, machine, used};
    let types_for = |kind: AnnouncementKind, types: &[(&'static str, i64)]| {
        let types = types.iter().map(|(name, cpu)| machine(name, *cpu, 20));
        let mut world = used(types.collect(), &[CapacityType::Spot], &[("x.a", CapacityType::Spot, &[1000])]);
        change(&mut world, |pool| {
            pool.disruption.consolidate_after = None;
            let order = ("tenon.dev/rebalance-recommendation".to_owned(), "ReplaceFirst".to_owned());
            pool.meta.annotations.extend([order]);
        });
        world.claims[0].claim.announced = Some(InstanceAnnouncement { kind, at: at(0), starts_at: None });
        let (plan, _) = plan(&world);
        let claim = &plan.commands[0].replacement.claims[0];
        claim.instance_types.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (change, rebalance) = (AnnouncementKind::ScheduledChange, AnnouncementKind::RebalanceRecommendation);
    let both = [("x.a", 4), ("x.b", 4)];
    assert_eq!(types_for(rebalance, &both), ["x.b"]);
    assert_eq!(types_for(change, &both), ["x.a", "x.b"]);
    assert_eq!(types_for(rebalance, &both[..1]), ["x.a"]);
}

#[test]
fn a_node_is_looked_at_when_it_expires() {
    let (plan, _) = plan(&expiring(1060, 1, BudgetNodes::Count(1)));
    assert_eq!((plan.commands.len(), plan.next_expiry), (0, Some(at(60))));
}

#[test]
fn only_budgets_that_name_no_reason_are_about_expiry() {
    let mut world = expiring(1000, 4, BudgetNodes::Count(4));
    let drifted =
        Budget { reasons: [DisruptionReason::Drifted].into(), ..Budget::always(BudgetNodes::Count(0)) };
    world.pools[0].disruption.budgets = vec![drifted];
    assert_eq!(plan(&world).0.commands.len(), 4);
    let freeze = BudgetWindow::parse("0 0 * * *", "24h").unwrap();
    let freeze = Budget { window: Some(freeze), ..Budget::always(BudgetNodes::Count(0)) };
    world.pools[0].disruption.budgets.push(freeze);
    assert_eq!(plan(&world).0.commands.len(), 0);
}

#[test]
fn a_pool_without_a_wait_leaves_expiry_alone() {
    let (plan, _) = plan(&annotated(expiring(1000, 2, BudgetNodes::Count(2)), "0s"));
    assert_eq!((plan.commands.len(), plan.next_expiry), (0, None));
}

#[test]
fn a_wait_that_cant_be_read_is_told_and_is_a_day() {
    let world = annotated(expiring(1000, 2, BudgetNodes::Count(2)), "a while");
    let (plan, report) = plan(&world);
    assert_eq!(plan.commands.len(), 2);
    assert_eq!(
        report.ignored[0].1.to_string(),
        "annotation `tenon.dev/expire-within-budgets` is `a while`; write hours, minutes and seconds such as `24h`, or \
         `0s` to drain at once"
    );
}

#[test]
fn an_expired_node_takes_no_pods_of_others() {
    let mut world = expiring(1000, 2, BudgetNodes::Count(1));
    // The first is nearly empty, and has room for the second's pod.
    world.claims[0].node.as_mut().unwrap().pods.clear();
    world.world.nodes[0].occupancy = Occupancy::of(&[]);
    world.claims[0].claim.terms = world.claims[1].claim.terms;
    let (plan, _) = plan(&world);
    // The empty one goes first, as it moves no pod.
    assert_eq!(candidates(&plan), ["default-00000"]);
    world.pools[0].disruption.budgets = vec![Budget::always(BudgetNodes::Count(2))];
    let (both, _) = tenon_planning::disruption::plan(&world);
    assert_eq!(both.commands.iter().map(|command| command.replacement.claims.len()).sum::<usize>(), 1);
}

#[test]
fn the_clusters_budget_bounds_all_pools_together() {
    let mut world = expiring(1000, 4, BudgetNodes::Percent(100));
    world.cluster_budget = Some(BudgetNodes::Percent(50));
    let (half, report) = plan(&world);
    assert_eq!(half.commands.len(), 2);
    let told = report.refusals[0].reason.to_string();
    assert_eq!(
        told,
        "the cluster allows 2 nodes of all NodePools at a time, by the parameter `DisruptionBudget` of its stack, and 2 \
         are already being replaced or not ready"
    );
    // Two pools, and a node of the other one leaves already.
    let other = pool("other", vec![FakeType::new("default.instance-type", 4, 4, 5).option()]);
    world.pools.push(other.pool);
    world.claims[3].claim.pool = NodePoolName::parse("other").unwrap();
    let ClaimState::Initialized { instance, node, .. } = world.claims[3].claim.state.clone() else {
        unreachable!()
    };
    let command = CommandId::parse("command-1").unwrap();
    world.claims[3].claim.state = ClaimState::Disrupting { instance, node, command, at: at(0) };
    assert_eq!(plan(&world).0.commands.len(), 1);
}

#[test]
fn an_expired_node_that_something_keeps_is_told_when_it_drains_all_the_same() {
    let (_, report) = plan(&expiring(1000, 1, BudgetNodes::Count(0)));
    let told = told_findings(|to| report.tell(to));
    assert_eq!(
        told[0],
        "not disrupting NodeClaim `default-00000` now: the budget of 0 nodes of NodePool `default` allows no disruption: \
         edit `spec.disruption.budgets`; 24h after its expiry it drains all the same, as `tenon.dev/expire-within-budgets` of \
         its NodePool says"
    );
}
