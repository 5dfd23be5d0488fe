//! Consolidation: which used nodes go, what replaces them, and why others stay.

use super::*;
use tenon_domain::catalog::{Availability, InstanceTypeOption, Offering};
use tenon_domain::claim::Consolidatable;
use tenon_domain::id::ZoneId;
use tenon_domain::labels;
use tenon_domain::money::UsdPerHour;
use tenon_domain::requirement::Requirements;
use tenon_planning::disruption::MovingTime;
use tenon_planning::provision::{PlannedClaim, PoolInput};

/// A type by its CPUs, with a price in cents an hour, on demand and spot, in one zone.
pub(super) fn machine(name: &'static str, cpu: i64, cents: u64) -> InstanceTypeOption {
    let mut option = FakeType::new(name, cpu, 4 * cpu, 100).option();
    let offering = |capacity_type, cents: u64| Offering {
        zone: Zone::parse("test-zone-1").unwrap(),
        zone_id: ZoneId::parse("tstz1").unwrap(),
        capacity_type,
        reservation: None,
        price: Some(UsdPerHour::from_nanos(cents * 10_000_000)),
        availability: Availability::Available,
    };
    option.offerings = vec![offering(CapacityType::Spot, cents), offering(CapacityType::OnDemand, cents)];
    option.labels.replace(Requirement::one_of(labels::ZONE, ["test-zone-1"]));
    option
}

/// A node: its type, how it is paid for, and the CPU of each of its pods in thousandths.
pub(super) type Given<'a> = (&'a str, CapacityType, &'a [u32]);

use CapacityType::{OnDemand, Spot};

/// A cluster of these nodes, whose pool consolidates at once and buys in these ways.
pub(super) fn used(
    types: Vec<InstanceTypeOption>,
    buys: &[CapacityType],
    nodes: &[Given<'_>],
) -> DisruptionInput {
    let mut types = types;
    types.sort_by(|a, b| a.facts.name.cmp(&b.facts.name));
    let views = nodes.iter().enumerate().map(|(index, (name, capacity_type, cpus))| {
        let pods = cpus
            .iter()
            .enumerate()
            .flat_map(|(n, cpu)| pods(&format!("web-{index}-{n}"), 1, shape(&[("cpu", &format!("{cpu}m"))])));
        let mut view = settled(index, NEW, pods.collect());
        if let ClaimState::Initialized { instance, .. } = &mut view.claim.state {
            instance.instance_type = InstanceType::parse(*name).unwrap();
            instance.capacity_type = *capacity_type;
        }
        view
    });
    let mut world = cluster(views.collect(), BudgetNodes::Percent(100));
    let mut default: PoolInput = pool("default", types);
    let ways = buys.iter().map(|way| way.as_str());
    default.pool.template.requirements =
        Requirements::from_iter([Requirement::one_of(labels::CAPACITY_TYPE, ways)]);
    default.pool.disruption.budgets = vec![Budget::always(BudgetNodes::Percent(100))];
    default.pool.disruption.consolidate_after = Some(SignedDuration::ZERO);
    for (node, (name, capacity_type, _)) in world.world.nodes.iter_mut().zip(nodes) {
        let option = default.types.iter().find(|one| one.facts.name.as_str() == *name).unwrap();
        node.allocatable = option.allocatable.clone();
        node.labels.extend(
            [
                (labels::INSTANCE_TYPE, *name),
                (labels::ZONE, "test-zone-1"),
                (labels::CAPACITY_TYPE, capacity_type.as_str()),
                (labels::NODEPOOL, "default"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
    }
    world.pools = vec![default.pool.clone()];
    world.world.pools = vec![default];
    world
}

pub(super) fn change(world: &mut DisruptionInput, change: impl Fn(&mut NodePool)) {
    change(&mut world.pools[0]);
    change(&mut world.world.pools[0].pool);
}

/// The plan of the second look, some seconds after the first, whose marks are written.
pub(super) fn after(world: &DisruptionInput, seconds: i64) -> (DisruptionPlan, DisruptionReport) {
    let (first, _) = plan(world);
    assert!(first.commands.is_empty(), "one look isn't enough");
    let mut world = world.clone();
    for mark in first.consolidatable {
        let view = world.claims.iter_mut().find(|view| view.claim.name == mark.claim).unwrap();
        view.claim.consolidatable = mark.mark;
    }
    world.now = at(seconds);
    world.world.now = world.now;
    plan(&world)
}

pub(super) fn looked_twice(world: &DisruptionInput) -> (DisruptionPlan, DisruptionReport) {
    after(world, 15)
}

fn launched(plan: &DisruptionPlan) -> Vec<&PlannedClaim> {
    plan.commands.iter().flat_map(|command| &command.replacement.claims).collect()
}

fn types_of(claim: &PlannedClaim) -> Vec<&str> {
    claim.instance_types.iter().map(InstanceType::as_str).collect()
}

pub(super) fn three() -> Vec<InstanceTypeOption> {
    vec![machine("x.large", 16, 80), machine("x.medium", 8, 40), machine("x.small", 4, 20)]
}

#[test]
fn c109_three_expensive_nodes_become_one() {
    for way in [OnDemand, Spot] {
        let mut world = used(
            three(),
            &[way],
            &[("x.large", way, &[1000]), ("x.large", way, &[1000]), ("x.large", way, &[1000])],
        );
        world.spot_to_spot = FeatureGate::Enabled;
        let (plan, _) = looked_twice(&world);
        // Two nodes' pods fit on the third, but one small node for all is cheaper.
        assert_eq!(candidates(&plan).len(), 3, "{way:?}");
        assert_eq!(launched(&plan).iter().map(|claim| types_of(claim)[0]).collect::<Vec<_>>(), ["x.small"]);
        assert_eq!(plan.commands[0].saves, Some(UsdPerHour::from_nanos(2_200_000_000)));
        assert!(plan.commands.iter().all(|command| command.reason == RemovalReason::Underutilized));
    }
    let mixed =
        used(three(), &[OnDemand, Spot], &[("x.large", OnDemand, &[1000]), ("x.large", Spot, &[1000])]);
    let (plan, _) = looked_twice(&mixed);
    let [claim] = launched(&plan)[..] else { panic!("{plan:?}") };
    assert_eq!(
        (claim.capacity_types.clone(), claim.price),
        ([Spot].into(), Some(UsdPerHour::from_nanos(200_000_000)))
    );
}

#[test]
fn c109_of_two_nodes_of_the_cheapest_type_one_goes() {
    let world = used(three(), &[OnDemand], &[("x.small", OnDemand, &[500]), ("x.small", OnDemand, &[500])]);
    let (plan, _) = looked_twice(&world);
    assert_eq!((candidates(&plan).len(), launched(&plan).len()), (1, 0));
}

/// Their pods are equal and of mixed ages; a plan deals pods by age.
#[test]
fn nodes_that_share_no_replacement_go_by_commands_of_their_own() {
    let types = vec![machine("x.half", 4, 10), machine("x.large", 8, 32)];
    let mut world = used(types, &[OnDemand], &[("x.large", OnDemand, &[1800, 1800][..]); 4]);
    for (index, view) in world.claims.iter_mut().enumerate() {
        for (n, pod) in view.node.as_mut().unwrap().pods.iter_mut().enumerate() {
            pod.created_at = Some(at(i64::try_from(4 * n + index).unwrap()));
        }
    }
    let (plan, _) = looked_twice(&world);
    let sizes = plan.commands.iter().map(|one| (one.candidates.len(), one.replacement.claims.len()));
    assert_eq!(sizes.collect::<Vec<_>>(), [(1, 1); 4]);
}

#[test]
fn a_node_is_replaced_by_a_cheaper_one() {
    let world = used(three(), &[OnDemand], &[("x.large", OnDemand, &[3000, 500])]);
    let (plan, _) = looked_twice(&world);
    let [claim] = launched(&plan)[..] else { panic!("{plan:?}") };
    // Types that are no cheaper are no choice, so that EC2 can't give one.
    assert_eq!(
        (candidates(&plan), types_of(claim)),
        (vec!["default-00000".to_owned()], vec!["x.small", "x.medium"])
    );
}

#[test]
fn what_would_save_too_little_stays_and_is_told() {
    let types = || vec![machine("a.x", 4, 100), machine("b.x", 4, 97)];
    let world = used(types(), &[OnDemand], &[("a.x", OnDemand, &[3000])]);
    let (plan, report) = looked_twice(&world);
    assert_eq!((plan.commands.len(), plan.consolidatable.len()), (0, 0));
    assert_eq!(
        report.refusals[0].reason.to_string(),
        "moving its pods would save 3 %, and NodePool `default` asks for 5 %: annotation \
         `tenon.dev/minimum-savings` changes that"
    );
    let with = |value: &str| {
        let mut world = used(types(), &[OnDemand], &[("a.x", OnDemand, &[3000])]);
        change(&mut world, |pool| {
            pool.meta.annotations.insert(labels::MINIMUM_SAVINGS.to_owned(), value.to_owned());
        });
        let (plan, report) = looked_twice(&world);
        (plan.commands.len(), report.unread.len())
    };
    assert_eq!(with("3%"), (1, 0));
    assert_eq!(with("0.03"), (1, 0));
    assert_eq!(with("0.031"), (0, 0));
    assert_eq!(with("much"), (0, 1));
}

#[test]
fn an_old_enough_node_goes_and_a_young_one_waits() {
    let mut world = used(three(), &[OnDemand], &[("x.large", OnDemand, &[500])]);
    change(&mut world, |pool| {
        pool.meta.annotations.insert(labels::MINIMUM_NODE_LIFETIME.to_owned(), "30m".to_owned());
    });
    // It was made 1000 s ago.
    let (young, report) = looked_twice(&world);
    assert_eq!((young.commands.len(), young.wake_at), (0, Some(at(800))));
    let told: Vec<String> = report.refusals.iter().map(|refused| refused.reason.to_string()).collect();
    let keeps = "annotation `tenon.dev/minimum-node-lifetime` of NodePool `default` keeps its nodes for 30m, this one until \
                 `2026-01-01T00:13:20Z`";
    assert_eq!(told, [keeps]);
    // Its mark says it, too.
    let (first, _) = plan(&world);
    let [mark] = first.consolidatable.as_slice() else { panic!("{first:?}") };
    assert_eq!(mark.stays.as_ref().map(ToString::to_string).as_deref(), Some(keeps));
    let (old, report) = after(&world, 800);
    assert_eq!((old.commands.len(), refusals(&report).len()), (1, 0));
}

/// What keeps a node leaves its mark, so that it goes at once when nothing keeps it any longer. Other pods end the mark.
#[test]
fn a_kept_node_stays_marked_and_the_end_of_its_mark_says_what_keeps_it() {
    let mut world = used(three(), &[OnDemand], &[("x.large", OnDemand, &[500])]);
    let (first, _) = plan(&world);
    assert_eq!(first.consolidatable[0].stays, None);
    world.claims[0].claim.consolidatable = first.consolidatable[0].mark.clone();
    world.claims[0].node.as_mut().unwrap().do_not_disrupt = DoNotDisrupt::Always;
    world.now = at(60);
    world.world.now = world.now;
    let (kept, report) = plan(&world);
    assert_eq!((kept.commands.len(), kept.consolidatable.len(), refusals(&report).len()), (0, 0, 1));
    let mut free = world.clone();
    free.claims[0].node.as_mut().unwrap().do_not_disrupt = DoNotDisrupt::No;
    assert_eq!(plan(&free).0.commands.len(), 1);
    let mark = world.claims[0].claim.consolidatable.as_mut().unwrap();
    mark.pods = Some("others".to_owned());
    let (kept, _) = plan(&world);
    let [mark] = kept.consolidatable.as_slice() else { panic!("{kept:?}") };
    assert_eq!(
        (mark.mark.clone(), mark.stays.clone()),
        (None, Some(RefusalReason::DoNotDisrupt { pod: None, until: None }))
    );
}

/// Also where nothing would be cheaper now: the refusal of capacity that made the replacement fail ends sooner.
#[test]
fn a_node_rests_after_an_undone_consolidation_and_it_is_told() {
    let resting = |nodes: &[Given<'_>], types: Vec<InstanceTypeOption>| {
        let mut world = used(types, &[OnDemand], nodes);
        let (first, _) = plan(&used(three(), &[OnDemand], nodes));
        let mark = first.consolidatable[0].mark.clone();
        world.claims[0].claim.consolidatable = mark.map(|mark| Consolidatable { since: at(100), ..mark });
        plan(&world)
    };
    let until = "its last consolidation was undone, and would fail the same way: next try at `2026-01-01T00:01:40Z`, or once \
                 its pods change";
    for types in [three(), vec![machine("x.large", 16, 80)]] {
        let (plan, report) = resting(&[("x.large", OnDemand, &[500])], types);
        assert_eq!((plan.commands.len(), plan.consolidatable.len()), (0, 0));
        assert_eq!(plan.wake_at, Some(at(100)));
        let told: Vec<String> = report.refusals.iter().map(|refused| refused.reason.to_string()).collect();
        assert_eq!(told, [until]);
    }
}

/// Either could go beside the other, and the first would if both might.
#[test]
fn a_node_that_rests_or_is_too_young_holds_back_no_other() {
    let nodes = [("x.large", OnDemand, [500].as_slice()), ("x.large", OnDemand, [500].as_slice())];
    let both = || used(vec![machine("x.large", 2, 10)], &[OnDemand], &nodes);
    let (first, _) = plan(&both());
    let mark = first.consolidatable.iter().find(|mark| mark.claim == claim_name(0)).unwrap().mark.clone();
    let mut rests = both();
    rests.claims[0].claim.consolidatable = mark.map(|mark| Consolidatable { since: at(100), ..mark });
    let mut young = both();
    young.claims[0].claim.created_at = at(0);
    change(&mut young, |pool| {
        pool.meta.annotations.insert(labels::MINIMUM_NODE_LIFETIME.to_owned(), "15m".to_owned());
    });
    for (world, why) in [(rests, "Undone"), (young, "TooYoung")] {
        let (plan, report) = looked_twice(&world);
        assert_eq!(candidates(&plan), [claim_name(1).to_string()], "{why}");
        assert_eq!(refusals(&report), BTreeMap::from([(why, 1)]));
    }
}

/// A node at a half with a pod that a consolidation moved so many hours ago, beside one with room for it.
fn moved(hours: i64, rest: Option<&str>) -> DisruptionInput {
    let nodes = [("x.large", OnDemand, [500].as_slice()), ("x.large", OnDemand, [500].as_slice())];
    let mut world = used(vec![machine("x.large", 2, 10)], &[OnDemand], &nodes);
    let bound = at(0) - SignedDuration::from_hours(hours);
    for view in &mut world.claims {
        view.node.as_mut().unwrap().pods[0].bound_at = Some(bound);
    }
    world.moved = vec![MovingTime { from: bound - SignedDuration::from_mins(1), to: bound }];
    if let Some(rest) = rest {
        change(&mut world, |pool| {
            pool.meta.annotations.insert(labels::MOVED_PODS_REST.to_owned(), rest.to_owned());
        });
    }
    world
}

#[test]
fn pods_that_were_moved_lately_arent_moved_for_little_again() {
    // A node less saves all of its price: that is worth it after half of the rest.
    let commands = |hours, rest| looked_twice(&moved(hours, rest)).0.commands.len();
    assert_eq!((commands(5, None), commands(6, None), commands(7, None)), (0, 0, 1));
    assert_eq!((commands(3, Some("4h")), commands(1, Some("4h"))), (1, 0));
    assert_eq!(commands(1, Some("0s")), 1);
    let (_, report) = looked_twice(&moved(5, None));
    assert_eq!(refusals(&report), BTreeMap::from([("MovedLately", 2)]));
    assert_eq!(
        report.refusals[0].reason.to_string(),
        "1 of its pods moved within the last 12h for cheaper nodes, and another move so soon doesn't save enough: \
         NodePool `default`'s annotation `tenon.dev/moved-pods-rest` changes that"
    );
    // Pods that came at another time are no moved ones.
    let mut others = moved(5, None);
    others.moved[0].to = others.moved[0].from;
    assert_eq!(looked_twice(&others).0.commands.len(), 1);
}

/// A spot node, and so many cheaper types.
fn spot_among(cheaper: usize) -> DisruptionInput {
    const NAMES: [&str; 18] = [
        "t.s01", "t.s02", "t.s03", "t.s04", "t.s05", "t.s06", "t.s07", "t.s08", "t.s09", "t.s10", "t.s11",
        "t.s12", "t.s13", "t.s14", "t.s15", "t.s16", "t.s17", "t.s18",
    ];
    let cents = 10_u64..;
    let mut types: Vec<_> =
        NAMES.iter().zip(cents).take(cheaper).map(|(name, cents)| machine(name, 4, cents)).collect();
    types.push(machine("x.used", 4, 60));
    let mut world = used(types, &[Spot], &[("x.used", Spot, &[1000])]);
    world.spot_to_spot = FeatureGate::Enabled;
    world
}

#[test]
fn c107_spot_is_replaced_by_spot_only_where_fifteen_types_are_cheaper() {
    let (few, report) = looked_twice(&spot_among(14));
    assert_eq!((few.commands.len(), refusals(&report)), (0, BTreeMap::from([("TooFewSpotTypes", 1)])));
    assert!(report.refusals[0].reason.to_string().starts_with("14 types of spot nodes would be cheaper"));

    let mut closed = spot_among(18);
    closed.spot_to_spot = FeatureGate::Disabled;
    let (none, report) = looked_twice(&closed);
    assert_eq!((none.commands.len(), refusals(&report)), (0, BTreeMap::from([("SpotToSpotDisabled", 1)])));

    let (plan, _) = looked_twice(&spot_among(18));
    let [claim] = launched(&plan)[..] else { panic!("{plan:?}") };
    assert_eq!((claim.instance_types.len(), types_of(claim)[0], types_of(claim)[14]), (15, "t.s01", "t.s15"));

    // The gate keeps nothing where no spot node is cheaper.
    let (none, report) = looked_twice(&{
        let mut alone = spot_among(0);
        alone.spot_to_spot = FeatureGate::Disabled;
        alone
    });
    assert_eq!((none.commands.len(), refusals(&report)), (0, BTreeMap::new()));

    // More types are kept where `minValues` asks for them.
    let mut asking = spot_among(18);
    change(&mut asking, |pool| {
        let key = labels::INSTANCE_TYPE;
        pool.template.requirements.add(Requirement::exists(key).with_min_values(Some(16)));
    });
    let (plan, _) = looked_twice(&asking);
    assert_eq!(launched(&plan)[0].instance_types.len(), 16);
}

#[test]
fn cheaper_types_that_are_too_few_for_min_values_are_told() {
    let mut world = used(three(), &[OnDemand], &[("x.large", OnDemand, &[500])]);
    change(&mut world, |pool| {
        let asked = Requirement::exists(labels::INSTANCE_TYPE).with_min_values(Some(3));
        pool.template.requirements.add(asked);
    });
    let (plan, report) = looked_twice(&world);
    assert_eq!((plan.commands.len(), refusals(&report)), (0, BTreeMap::from([("MinValuesUnmet", 1)])));
}

#[test]
fn c110_a_node_that_pods_came_to_lately_takes_no_others() {
    let nodes: [Given<'_>; 2] = [("x.small", OnDemand, &[500]), ("x.large", OnDemand, &[15_000])];
    let with = |bound: i64, after: Option<i64>| {
        let mut world = used(three(), &[OnDemand], &nodes);
        change(&mut world, |pool| {
            pool.disruption.consolidate_after = Some(SignedDuration::from_secs(60));
        });
        // The other node is of a pool of its own.
        let mut own = world.pools[0].clone();
        own.name = NodePoolName::parse("own").unwrap();
        own.disruption.consolidate_after = after.map(SignedDuration::from_secs);
        world.claims[1].claim.pool = own.name.clone();
        world.pools.push(own);
        world.claims[1].node.as_mut().unwrap().pods[0].bound_at = Some(at(bound));
        world
    };
    let gone = |world: &DisruptionInput| candidates(&after(world, 60).0).len();
    assert_eq!(gone(&with(-300, Some(60))), 1);
    assert_eq!(gone(&with(50, Some(60))), 0);
    // In a quiet cluster nothing else wakes the function then.
    assert_eq!(after(&with(50, Some(60)), 60).0.wake_at, Some(at(110)));
    // A pool that never consolidates has no such time.
    assert_eq!(gone(&with(50, None)), 1);

    // A cheaper new node is found all the same.
    let mut world = with(50, Some(60));
    if let ClaimState::Initialized { instance, .. } = &mut world.claims[0].claim.state {
        instance.instance_type = InstanceType::parse("x.medium").unwrap();
    }
    let (plan, _) = after(&world, 60);
    assert_eq!((candidates(&plan).len(), launched(&plan).len()), (1, 1));
}

#[test]
fn c110_a_node_that_still_starts_is_no_target() {
    let mut world =
        used(three(), &[OnDemand], &[("x.small", OnDemand, &[500]), ("x.large", OnDemand, &[14_000])]);
    world.world.nodes[1].kind = NodeKind::Starting;
    assert_eq!(looked_twice(&world).0.commands.len(), 0);
}

#[test]
fn pods_that_come_or_go_begin_the_wait_again() {
    let mut world = used(three(), &[OnDemand], &[("x.large", OnDemand, &[500, 500])]);
    change(&mut world, |pool| pool.disruption.consolidate_after = Some(SignedDuration::from_secs(60)));
    let (first, _) = plan(&world);
    world.claims[0].claim.consolidatable = first.consolidatable[0].mark.clone();
    world.now = at(59);
    world.claims[0].node.as_mut().unwrap().pods.pop();
    let (second, _) = plan(&world);
    let mark = second.consolidatable[0].mark.clone().unwrap();
    assert_eq!((mark.since, second.wake_at, second.commands.len()), (at(59), Some(at(119)), 0));

    // A pod that came counts from its binding.
    let mut bound = used(three(), &[OnDemand], &[("x.large", OnDemand, &[500])]);
    change(&mut bound, |pool| pool.disruption.consolidate_after = Some(SignedDuration::from_secs(60)));
    bound.claims[0].node.as_mut().unwrap().pods[0].bound_at = Some(at(10));
    assert_eq!(after(&bound, 60).0.commands.len(), 0);
    assert_eq!(after(&bound, 70).0.commands.len(), 1);
}

#[test]
fn c112_what_must_stay_stays_and_a_grace_period_changes_nothing() {
    let check = |change: &dyn Fn(&mut DisruptionInput), expected: usize, told: &[(&'static str, usize)]| {
        let mut world = used(three(), &[OnDemand], &[("x.large", OnDemand, &[500])]);
        let terms = Terms {
            expire_after: None,
            termination_grace_period: Some(SignedDuration::from_mins(5)),
            load_balancer_deregistration: None,
        };
        world.claims[0].claim.terms = Some(terms);
        change(&mut world);
        let (plan, report) = looked_twice(&world);
        assert_eq!((plan.commands.len(), refusals(&report)), (expected, told.iter().copied().collect()));
    };
    let annotated = |world: &mut DisruptionInput, value: DoNotDisrupt, started: i64| {
        let pod = &mut world.claims[0].node.as_mut().unwrap().pods[0];
        pod.shape = Arc::new(PodShape { do_not_disrupt: value, ..(*pod.shape).clone() });
        pod.started_at = Some(at(started));
    };
    let minute = DoNotDisrupt::For(SignedDuration::from_mins(1));
    check(&|_| {}, 1, &[]);
    check(
        &|world| world.claims[0].node.as_mut().unwrap().do_not_disrupt = DoNotDisrupt::Always,
        0,
        &[("DoNotDisrupt", 1)],
    );
    check(&|world| annotated(world, DoNotDisrupt::Always, -100), 0, &[("DoNotDisrupt", 1)]);
    check(&|world| annotated(world, minute.clone(), 0), 0, &[("DoNotDisrupt", 1)]);
    check(&|world| annotated(world, minute.clone(), -100), 1, &[]);
    check(&|world| annotated(world, DoNotDisrupt::Invalid("soon".to_owned()), -100), 1, &[]);
    let guarded = |world: &mut DisruptionInput| {
        let meta =
            ObjectMeta { name: "guard".to_owned(), namespace: "default".to_owned(), ..ObjectMeta::default() };
        world.pdbs.push(PodDisruptionBudget {
            meta,
            selector: Some(LabelSelector::default()),
            bound: PdbBound::MaxUnavailable(IntOrPercent::Int(0)),
            unhealthy_pods: UnhealthyPodEviction::IfHealthyBudget,
            disruptions_allowed: 0,
        });
    };
    check(&guarded, 0, &[("BlockedByPdb", 1)]);
}
