//! Blocked nodes: their annotation, their pods' annotations, PodDisruptionBudgets.

use super::*;

fn guarded(pods: Vec<Pod>) -> Vec<Pod> {
    pods.into_iter()
        .map(|pod| {
            let mut shape: PodShape = (*pod.shape).clone();
            shape.labels.insert("app".to_owned(), "web".to_owned());
            Pod { shape: Arc::new(shape), ..pod }
        })
        .collect()
}

fn pdb(allowed: u32) -> PodDisruptionBudget {
    PodDisruptionBudget {
        meta: ObjectMeta { name: "web".to_owned(), namespace: "default".to_owned(), ..ObjectMeta::default() },
        selector: Some(LabelSelector { requirements: vec![Requirement::one_of("app", ["web"])] }),
        bound: PdbBound::MinAvailable(IntOrPercent::Int(1)),
        disruptions_allowed: allowed,
        unhealthy_pods: UnhealthyPodEviction::IfHealthyBudget,
    }
}

fn with_grace(mut world: DisruptionInput) -> DisruptionInput {
    let pool: &mut NodePool = &mut world.pools[0];
    pool.template.termination_grace_period = Some(SignedDuration::from_mins(5));
    // The claims were made since.
    let hash = PoolHash::of(&pool.template);
    world.claims.iter_mut().for_each(|view| view.claim.pool_hash = Some(hash));
    world
}

#[test]
fn c113_pdbs_block_and_a_grace_period_unblocks() {
    let world = |allowed| {
        let mut world = cluster(vec![drifted(0, -30, guarded(busy(0)))], BudgetNodes::Percent(100));
        world.pdbs = vec![pdb(allowed)];
        world
    };
    let (waiting, report) = plan(&world(0));
    assert_eq!(refusals(&report), BTreeMap::from([("BlockedByPdb", 1)]));
    // It is looked at again soon: no event tells when a budget allows an eviction again.
    assert!(waiting.wake_at.is_some_and(|at| at <= world(0).now + SignedDuration::from_secs(60)));
    assert_eq!(plan(&world(1)).0.commands.len(), 1);
    assert_eq!(plan(&with_grace(world(0))).0.commands.len(), 1);
}

#[test]
fn the_grace_period_that_unblocks_is_the_claims_own() {
    let world = |own: Option<SignedDuration>| {
        let mut world = cluster(vec![drifted(0, -30, guarded(busy(0)))], BudgetNodes::Percent(100));
        world.pdbs = vec![pdb(0)];
        world.claims[0].claim.terms = Some(Terms {
            expire_after: None,
            termination_grace_period: own,
            load_balancer_deregistration: None,
        });
        world
    };
    let own = Some(SignedDuration::from_mins(5));
    assert_eq!(plan(&world(own)).0.commands.len(), 1);
    assert_eq!(plan(&with_grace(world(None))).0.commands.len(), 0);
}

#[test]
fn c113_do_not_disrupt_blocks_while_it_lasts_and_a_grace_period_unblocks_pods() {
    let world = |word: DoNotDisrupt| {
        let mut world = cluster(vec![drifted(0, -30, busy(0))], BudgetNodes::Percent(100));
        let pod = &mut world.claims[0].node.as_mut().unwrap().pods[0];
        pod.started_at = Some(at(-60));
        pod.shape = Arc::new(PodShape { do_not_disrupt: word, ..(*pod.shape).clone() });
        world
    };
    let (blocked, report) = plan(&world(DoNotDisrupt::Always));
    assert_eq!((blocked.commands.len(), refusals(&report)), (0, BTreeMap::from([("DoNotDisrupt", 1)])));
    let (waits, _) = plan(&world(DoNotDisrupt::For(SignedDuration::from_secs(90))));
    assert_eq!((waits.commands.len(), waits.wake_at), (0, Some(at(30))));
    assert_eq!(plan(&world(DoNotDisrupt::For(SignedDuration::from_secs(60)))).0.commands.len(), 1);
    let (ignored, report) = plan(&world(DoNotDisrupt::Invalid("yes".to_owned())));
    assert_eq!((ignored.commands.len(), report.invalid.len()), (1, 1));
    assert_eq!(plan(&with_grace(world(DoNotDisrupt::Always))).0.commands.len(), 1);
    let mut node_says = with_grace(world(DoNotDisrupt::No));
    node_says.claims[0].node.as_mut().unwrap().do_not_disrupt = DoNotDisrupt::Always;
    assert!(plan(&node_says).0.commands.is_empty());
}

#[test]
fn pods_that_stay_until_the_deadline_need_no_room_before_their_node_drains() {
    let closed = |bound| PodDisruptionBudget { bound, ..pdb(0) };
    let none = PdbBound::MaxUnavailable(IntOrPercent::Int(0));
    // The node has a pod that no type has room for, and one that moves.
    let world = |pdbs: Vec<PodDisruptionBudget>, word: DoNotDisrupt| {
        let huge = PodShape { do_not_disrupt: word, ..shape(&[("cpu", "64")]) };
        let huge = guarded(pods("huge", 1, huge));
        let all = huge.into_iter().chain(busy(0)).collect();
        let mut world = cluster(vec![drifted(0, -30, all)], BudgetNodes::Percent(100));
        world.pdbs = pdbs;
        with_grace(world)
    };
    let check = |pdbs: Vec<PodDisruptionBudget>, word: DoNotDisrupt, expected: Option<usize>| {
        let (plan, report) = plan(&world(pdbs, word));
        let replacements = plan.commands.first().map(|command| command.replacement.claims.len());
        assert_eq!(replacements, expected, "{report:#?}");
        assert_eq!(refusals(&report).contains_key("Unschedulable"), expected.is_none());
    };
    check(vec![closed(none)], DoNotDisrupt::No, Some(1));
    check(vec![closed(PdbBound::MinAvailable(IntOrPercent::Percent(100)))], DoNotDisrupt::No, Some(1));
    check(vec![pdb(1), pdb(1)], DoNotDisrupt::No, Some(1));
    check(Vec::new(), DoNotDisrupt::Always, Some(1));
    check(Vec::new(), DoNotDisrupt::For(SignedDuration::from_hours(1_000)), Some(1));
    // It goes while the node drains.
    check(Vec::new(), DoNotDisrupt::For(SignedDuration::from_secs(10)), None);
    // A PodDisruptionBudget that is used up only now may let the pod go later.
    check(vec![pdb(0)], DoNotDisrupt::No, None);
    check(Vec::new(), DoNotDisrupt::No, None);
}

#[test]
fn pods_of_daemon_sets_need_no_replacement() {
    let mut agent: PodShape = shape(&[("cpu", "100m")]);
    agent.owner = Some(OwnerReference {
        kind: "DaemonSet".to_owned(),
        name: "agent".to_owned(),
        uid: String::new(),
        role: OwnerRole::Controller,
    });
    let (plan, _) = plan(&cluster(vec![drifted(0, -30, pods("agent", 1, agent))], BudgetNodes::Percent(100)));
    assert!(plan.commands[0].drains_at_once());
}

#[test]
fn a_budget_guards_only_pods_of_its_namespace_that_it_selects_and_that_still_run() {
    fn labelled(pod: &mut Pod, value: &str) {
        let mut shape: PodShape = (*pod.shape).clone();
        shape.labels.insert("app".to_owned(), value.to_owned());
        pod.shape = Arc::new(shape);
    }
    let went = |change: fn(&mut Pod)| {
        let mut world = cluster(vec![drifted(0, -30, guarded(busy(0)))], BudgetNodes::Percent(100));
        world.pdbs = vec![pdb(0)];
        change(&mut world.claims[0].node.as_mut().unwrap().pods[0]);
        plan(&world).0.commands.len()
    };
    assert_eq!(went(|_| {}), 0);
    assert_eq!(went(|pod| pod.name.namespace = "other".to_owned()), 1);
    assert_eq!(went(|pod| labelled(pod, "database")), 1);
    assert_eq!(went(|pod| pod.phase = PodPhase::Succeeded), 1);
    assert_eq!(went(|pod| pod.deleted_at = Some(at(-5))), 1);
}

#[test]
fn a_do_not_disrupt_that_is_no_word_is_told_with_the_pod() {
    let mut world =
        cluster(vec![drifted(0, -30, busy(0)), settled(1, NEW, busy(1))], BudgetNodes::Percent(100));
    assert!(plan(&world).1.invalid.is_empty());
    let pod = &mut world.claims[0].node.as_mut().unwrap().pods[0];
    let word = DoNotDisrupt::Invalid("yes".to_owned());
    pod.shape = Arc::new(PodShape { do_not_disrupt: word, ..(*pod.shape).clone() });
    let told = plan(&world).1.invalid;
    let told: Vec<_> = told.iter().map(|found| (found.pod.to_string(), found.value.as_str())).collect();
    assert_eq!(told, [("default/web-0-0000".to_owned(), "yes")]);
}

#[test]
fn a_budget_does_not_guard_what_a_drain_leaves_where_it_is() {
    let commands = |change: fn(&mut PodShape)| {
        let mut world = cluster(vec![drifted(0, -30, guarded(busy(0)))], BudgetNodes::Percent(100));
        world.pdbs = vec![pdb(0)];
        let pod = &mut world.claims[0].node.as_mut().unwrap().pods[0];
        let mut shape: PodShape = (*pod.shape).clone();
        change(&mut shape);
        pod.shape = Arc::new(shape);
        plan(&world).0.commands.len()
    };
    assert_eq!(commands(|_| {}), 0);
    assert_eq!(commands(|shape| shape.origin = PodOrigin::Static), 1);
    assert_eq!(commands(|shape| shape.tolerations = vec![Toleration::exists("karpenter.sh/disrupted")]), 1);
}

#[test]
fn a_refusal_names_the_budget_that_allows_nothing_and_what_opens_it() {
    let check = |nodes: &str, window: Option<(&str, &str)>, reasons: &[DisruptionReason], expected: &str| {
        let mut budget = Budget::parse(nodes, window.map(|of| of.0), window.map(|of| of.1)).unwrap();
        budget.reasons = reasons.iter().copied().collect();
        let mut world = cluster(vec![drifted(0, -30, busy(0))], BudgetNodes::Count(5));
        world.pools[0].disruption.budgets.push(budget);
        let refused = plan(&world).1.refusals.remove(0);
        assert_eq!(refused.reason.to_string(), expected);
    };
    let edit = "edit `spec.disruption.budgets`";
    check(
        "0",
        None,
        &[],
        &format!("the budget of 0 nodes of NodePool `default` allows no disruption: {edit}"),
    );
    check(
        "0%",
        None,
        &[DisruptionReason::Drifted],
        &format!(
            "the budget of 0 % of the nodes (reason `Drifted`) of NodePool `default` allows no disruption: {edit}"
        ),
    );
    check(
        "0",
        Some(("@daily", "24h")),
        &[],
        &format!(
            "the budget of 0 nodes (schedule `@daily` for 24h) of NodePool `default` allows no disruption now: wait \
             until its time is over, or {edit}"
        ),
    );
    // Waiting opens no budget that can't be understood.
    check(
        "1",
        Some(("61 * * * *", "1h")),
        &[],
        "the budget of 1 node (schedule `61 * * * *` for 1h) of NodePool `default` allows no disruption until you \
         correct it, because it can't be understood: Component error: Number out of bounds",
    );
}

#[test]
fn refusals_name_what_stands_in_the_way() {
    let pool = || NodePoolName::parse("default").unwrap();
    let pod = NamespacedName { namespace: "shop".to_owned(), name: "web".to_owned() };
    let told = |reason: RefusalReason| reason.to_string();
    let used_up = |allowed, going| RefusalReason::BudgetExhausted {
        pool: pool(),
        allowed,
        going,
        of: None,
        closed: None,
    };
    assert_eq!(
        told(used_up(2, 3)),
        "NodePool `default` allows 2 nodes at a time, and 3 are already being replaced or not ready"
    );
    assert_eq!(
        told(used_up(1, 1)),
        "NodePool `default` allows 1 node at a time, and 1 is already being replaced or not ready"
    );
    assert_eq!(
        told(RefusalReason::DoNotDisrupt { pod: Some(pod.clone()), until: Some(at(0)) }),
        "pod `shop/web` has `karpenter.sh/do-not-disrupt` until `2026-01-01T00:00:00Z`"
    );
    assert_eq!(
        told(RefusalReason::DoNotDisrupt { pod: None, until: None }),
        "the node has `karpenter.sh/do-not-disrupt`: remove the annotation to allow it"
    );
    assert_eq!(
        told(RefusalReason::BlockedByPdb { pod: pod.clone(), pdbs: vec!["a".to_owned()] }),
        "PodDisruptionBudget `a` doesn't allow evicting pod `shop/web`: make its other pods Ready, add replicas, or allow \
         a disruption"
    );
    assert_eq!(
        told(RefusalReason::BlockedByPdb { pod, pdbs: vec!["a".to_owned(), "b".to_owned()] }),
        "several PodDisruptionBudgets, `a` and `b`, select pod `shop/web`, so that it can't be evicted: let one of them \
         select its pods"
    );
    assert_eq!(
        told(RefusalReason::PoolNotFound { pool: pool() }),
        "NodePool `default` doesn't exist: create it again, or delete the NodeClaim"
    );
    let huge =
        cluster(vec![drifted(0, -30, pods("huge", 1, shape(&[("cpu", "64")])))], BudgetNodes::Percent(100));
    let unschedulable = plan(&huge).1.refusals.remove(0).reason.to_string();
    assert!(
        unschedulable
            .starts_with("no other node, existing or new, can take 1 of its pods: NodePool `default`"),
        "{unschedulable}"
    );
}
