use std::collections::BTreeMap;

use jiff::SignedDuration;
use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{
    AnnouncementKind, Claim, ClaimPhase, ClaimState, LaunchedInstance, RemovalReason, Terms,
};
use tenon_domain::id::InstanceId;
use tenon_domain::reservation::{LaunchedInto, ReservationKind};
use tenon_domain::unavailable::{Mark, UnavailableKey};
use tenon_domain::wake::{FunctionName, InterruptionKind, WakeCause};
use tenon_harness::claims::{
    claim as nth, claim_name, cluster, instance, instance_id, node_name, offering_of, world_with,
};
use tenon_harness::{EPOCH, FunctionWorld, Meeting, RungBell};
use tenon_memory_table::block_on;
use tenon_runtime::{Handler, WakeScope};
use tenon_snapshot::{ActionKind, NodeAction, ReplacementOrder};
use tenon_table::content_commit;
use tenon_table::items::{from_item, keys, set};
use tenon_table::{Key, Table};

use crate::Interruption;

fn spot(n: usize) -> LaunchedInstance {
    LaunchedInstance { capacity_type: CapacityType::Spot, ..instance(n) }
}

fn initialized(n: usize) -> ClaimState {
    ClaimState::Initialized { instance: spot(n), node: node_name(n), at: EPOCH }
}

fn world(states: impl IntoIterator<Item = ClaimState>) -> FunctionWorld {
    let claims = states.into_iter().enumerate().map(|(n, state)| Claim { revision: 7, ..nth(n, state) });
    let world = world_with(&claims.collect::<Vec<_>>());
    world.table.reset_meter();
    world
}

fn handle(world: &FunctionWorld, instances: Vec<InstanceId>, kind: InterruptionKind) -> Result<(), String> {
    let cause = WakeCause::Interruption { instances, kind, deadline: None };
    block_on(Interruption::new().handle(world, &WakeScope::Region, &[cause]))
        .map_err(|error| error.to_string())
}

fn claim(world: &FunctionWorld, n: usize) -> Claim {
    let key = keys::claim(&cluster(), &claim_name(n));
    from_item(&key, &world.table.peek(&key).unwrap()).unwrap()
}

fn action(world: &FunctionWorld, n: usize) -> Option<NodeAction> {
    world
        .table
        .peek(&keys::action(&cluster(), &claim_name(n)))
        .map(|item| NodeAction::from_item(&item).unwrap())
}

fn mark_key(world: &FunctionWorld) -> Key {
    let mark = UnavailableKey::Offering(offering_of(&spot(0)));
    keys::unavailable(&world.installation.region, &mark)
}

fn mark(world: &FunctionWorld) -> Option<Mark> {
    let key = mark_key(world);
    world.table.peek(&key).map(|item| from_item(&key, &item).unwrap())
}

fn calls(world: &FunctionWorld) -> u64 {
    world.table.meter().operations.values().map(|usage| usage.calls).sum()
}

fn journal(world: &FunctionWorld) -> usize {
    world.table.dump().filter(|(key, _)| key.pk.starts_with("JOURNAL#prod#claim")).count()
}

#[test]
fn c077_a_spot_warning_drains_marks_and_rings_in_three_calls() {
    let world = world([initialized(0)]);
    handle(&world, vec![instance_id(0)], InterruptionKind::Spot).unwrap();
    assert_eq!(calls(&world), 3);
    let deadline = EPOCH + SignedDuration::from_mins(2);
    assert_eq!(
        claim(&world, 0).state,
        ClaimState::Draining {
            instance: spot(0),
            node: Some(node_name(0)),
            reason: RemovalReason::SpotInterrupted,
            at: EPOCH,
            deadline: Some(deadline),
        }
    );
    let action = action(&world, 0).unwrap();
    assert_eq!((action.kind, action.number, action.deadline), (ActionKind::Drain, 8, Some(deadline)));
    let mark = mark(&world).unwrap();
    let held = mark.until.duration_since(EPOCH);
    assert!((SignedDuration::from_mins(3)..SignedDuration::from_secs(203)).contains(&held), "{held}");
    assert_eq!((mark.code.as_str(), mark.count, mark.revision), ("SpotInterruption", 1, 1));
    assert_eq!(journal(&world), 1);
    let rung = world.signals.take();
    assert_eq!(rung.first(), Some(&RungBell::Agent(cluster())));
    assert!(matches!(&rung[1], RungBell::Event(event) if event.detail_type == "Node Interrupted"
        && event.detail["reason"] == "SpotInterrupted" && event.detail["instance"] == instance_id(0).as_str()));
    for function in [FunctionName::Provisioner, FunctionName::Lifecycle] {
        assert!(rung.contains(&RungBell::Wake { function, cluster: cluster(), after: SignedDuration::ZERO }));
    }
}

#[test]
fn a_grace_period_of_the_claim_bounds_its_drain_too() {
    let drained = |kind, grace: Option<i64>| {
        let world = world([initialized(0)]);
        let termination_grace_period = grace.map(SignedDuration::from_secs);
        let terms =
            Some(Terms { expire_after: None, termination_grace_period, load_balancer_deregistration: None });
        let kept = Claim { terms, ..claim(&world, 0) };
        let write = set(keys::claim(&cluster(), &kept.name), &kept);
        block_on(world.table.commit(&content_commit(vec![], vec![write]))).unwrap();
        handle(&world, vec![instance_id(0)], kind).unwrap();
        let ClaimState::Draining { deadline, .. } = claim(&world, 0).state else { panic!() };
        assert_eq!(action(&world, 0).unwrap().deadline, deadline);
        deadline.map(|deadline| deadline.duration_since(EPOCH).as_secs())
    };
    assert_eq!(drained(InterruptionKind::Spot, Some(30)), Some(30));
    assert_eq!(drained(InterruptionKind::Spot, Some(600)), Some(120));
    assert_eq!(drained(InterruptionKind::ScheduledChange, Some(600)), Some(600));
    assert_eq!(drained(InterruptionKind::ScheduledChange, None), None);
}

#[test]
fn c074_each_kind_drains_with_its_reason_and_deadline() {
    let check = |kind, reason, deadline: Option<i64>, marked: bool| {
        let world = world([initialized(0)]);
        handle(&world, vec![instance_id(0)], kind).unwrap();
        let state = claim(&world, 0).state;
        let expected = deadline.map(|minutes| EPOCH + SignedDuration::from_mins(minutes));
        assert!(
            matches!(&state, ClaimState::Draining { deadline, .. } if *deadline == expected),
            "{state:?}"
        );
        assert_eq!(state.removal(), Some(reason));
        assert_eq!(mark(&world).is_some(), marked);
    };
    check(InterruptionKind::Spot, RemovalReason::SpotInterrupted, Some(2), true);
    check(
        InterruptionKind::CapacityReservation,
        RemovalReason::CapacityReservationInterrupted,
        Some(2),
        false,
    );
    check(InterruptionKind::ScheduledChange, RemovalReason::ScheduledChange, None, false);
}

#[test]
fn a_change_that_isnt_near_is_announced_and_one_within_a_day_drains() {
    let heard = |hours: i64| {
        let world = world([initialized(0)]);
        let cause = WakeCause::Interruption {
            instances: vec![instance_id(0)],
            kind: InterruptionKind::ScheduledChange,
            deadline: Some(EPOCH + SignedDuration::from_hours(hours)),
        };
        let handle =
            || block_on(Interruption::new().handle(&world, &WakeScope::Region, std::slice::from_ref(&cause)));
        handle().unwrap();
        let first = claim(&world, 0);
        handle().unwrap();
        assert_eq!(claim(&world, 0), first, "the same event again");
        (first.phase(), first.announced.and_then(|announced| announced.starts_at))
    };
    assert_eq!(heard(336), (ClaimPhase::Initialized, Some(EPOCH + SignedDuration::from_hours(336))));
    assert_eq!(heard(23), (ClaimPhase::Draining, None));
}

#[test]
fn pods_stay_until_they_are_replaced_where_a_near_change_has_its_time() {
    let heard = |starts_in: i64| {
        let world = world([initialized(0)]);
        let (kind, deadline) =
            (InterruptionKind::ScheduledChange, Some(EPOCH + SignedDuration::from_hours(starts_in)));
        let cause = WakeCause::Interruption { instances: vec![instance_id(0)], kind, deadline };
        block_on(Interruption::new().handle(&world, &WakeScope::Region, &[cause])).unwrap();
        let action = action(&world, 0).unwrap();
        (action.deadline, action.replacement)
    };
    let change = EPOCH + SignedDuration::from_hours(23);
    assert_eq!(heard(23), (Some(change), ReplacementOrder::First));
    // It should have begun.
    assert_eq!(heard(-1), (None, ReplacementOrder::Anytime));
}

#[test]
fn a_drain_ends_when_ec2_ends_the_instance_and_not_two_minutes_after_the_message_came() {
    let world = world([initialized(0)]);
    let warned = |seconds: i64| WakeCause::Interruption {
        instances: vec![instance_id(0)],
        kind: InterruptionKind::Spot,
        deadline: Some(EPOCH + SignedDuration::from_secs(seconds)),
    };
    // The same warning twice, by different routes; the first message was 70 s late.
    let causes = [warned(55), warned(50)];
    block_on(Interruption::new().handle(&world, &WakeScope::Region, &causes)).unwrap();
    let deadline = Some(EPOCH + SignedDuration::from_secs(50));
    assert!(
        matches!(claim(&world, 0).state, ClaimState::Draining { deadline: found, .. } if found == deadline)
    );
    assert_eq!(action(&world, 0).unwrap().deadline, deadline);
}

#[test]
fn a_recommendation_is_told_once_and_drains_nothing() {
    let world = world([initialized(0)]);
    handle(&world, vec![instance_id(0)], InterruptionKind::Rebalance).unwrap();
    assert!(calls(&world) <= 3);
    handle(&world, vec![instance_id(0)], InterruptionKind::Rebalance).unwrap();
    let told = claim(&world, 0);
    let kind = told.announced.map(|announced| announced.kind);
    assert_eq!((told.revision, told.phase()), (8, ClaimPhase::Initialized));
    assert_eq!(kind, Some(AnnouncementKind::RebalanceRecommendation));
    assert_eq!((journal(&world), action(&world, 0)), (1, None));
    let outcome = format!(
        "NodePool `{}` decides by annotation `tenon.dev/rebalance-recommendation`; `ReplaceFirst` and `Drain` move them",
        told.pool
    );
    assert!(world.table.dump().any(|(_, item)| format!("{item:?}").contains(&outcome)));
    assert_eq!(world.signals.take_events().len(), 1);
}

#[test]
fn an_instance_of_others_ends_after_one_read() {
    let world = world([]);
    handle(&world, vec![instance_id(9)], InterruptionKind::Spot).unwrap();
    assert_eq!((calls(&world), world.signals.take()), (1, vec![]));
}

#[test]
fn c076_a_hundred_at_once_and_what_already_leaves_stays() {
    let going = |n| ClaimState::Terminating {
        instance: spot(n),
        node: None,
        reason: RemovalReason::Deleted,
        at: EPOCH,
    };
    let world = world((0..101).map(|n| if n == 100 { going(n) } else { initialized(n) }));
    handle(&world, (0..101).map(instance_id).collect(), InterruptionKind::Spot).unwrap();
    assert!((0..100).all(|n| claim(&world, n).phase() == ClaimPhase::Draining));
    assert_eq!((claim(&world, 100).phase(), claim(&world, 100).revision), (ClaimPhase::Terminating, 7));
    assert!(calls(&world) <= 3 * 101);
    assert_eq!(world.signals.take_events().len(), 100);
}

fn drains_already(n: usize, deadline: Option<i64>) -> ClaimState {
    ClaimState::Draining {
        instance: spot(n),
        node: Some(node_name(n)),
        reason: RemovalReason::Deleted,
        at: EPOCH - SignedDuration::from_hours(1),
        deadline: deadline.map(|seconds| EPOCH + SignedDuration::from_secs(seconds)),
    }
}

#[test]
fn a_warning_ends_a_drain_that_began_for_another_reason() {
    let world = world([drains_already(0, None)]);
    handle(&world, vec![instance_id(0)], InterruptionKind::Spot).unwrap();
    assert_eq!(calls(&world), 3);
    let deadline = EPOCH + SignedDuration::from_mins(2);
    let after = claim(&world, 0);
    assert_eq!(
        after.state,
        ClaimState::Draining {
            instance: spot(0),
            node: Some(node_name(0)),
            reason: RemovalReason::SpotInterrupted,
            at: EPOCH,
            deadline: Some(deadline),
        }
    );
    let action = action(&world, 0).unwrap();
    assert_eq!((action.number, action.deadline), (8, Some(deadline)));
    assert_eq!(action.replacement, ReplacementOrder::First);
    assert!(mark(&world).is_some());
    let told = world
        .table
        .dump()
        .any(|(_, item)| format!("{item:?}").contains("so the drain that began before (deleted) ends then"));
    assert!(told && journal(&world) == 1);
    let rung = world.signals.take();
    assert_eq!(rung.first(), Some(&RungBell::Agent(cluster())));
    for function in [FunctionName::Provisioner, FunctionName::Lifecycle] {
        assert!(rung.contains(&RungBell::Wake { function, cluster: cluster(), after: SignedDuration::ZERO }));
    }
    // The same event again.
    let before: BTreeMap<_, _> = world.table.dump().collect();
    handle(&world, vec![instance_id(0)], InterruptionKind::Spot).unwrap();
    assert_eq!(world.table.dump().collect::<BTreeMap<_, _>>(), before);
    assert_eq!(world.signals.take(), vec![]);
}

#[test]
fn the_earlier_end_of_a_drain_holds() {
    let ends = |deadline: Option<i64>, kind, starts_in: Option<i64>| {
        let world = world([drains_already(0, deadline)]);
        let deadline = starts_in.map(|seconds| EPOCH + SignedDuration::from_secs(seconds));
        let cause = WakeCause::Interruption { instances: vec![instance_id(0)], kind, deadline };
        block_on(Interruption::new().handle(&world, &WakeScope::Region, &[cause])).unwrap();
        let ClaimState::Draining { deadline, .. } = claim(&world, 0).state else { panic!() };
        (deadline.map(|at| at.duration_since(EPOCH).as_secs()), claim(&world, 0).revision)
    };
    // Its own `terminationGracePeriod` is two hours, or a minute and a half.
    assert_eq!(ends(Some(7_200), InterruptionKind::Spot, None), (Some(120), 8));
    assert_eq!(ends(Some(90), InterruptionKind::Spot, None), (Some(90), 7));
    assert_eq!(ends(None, InterruptionKind::CapacityReservation, Some(100)), (Some(100), 8));
    // A change in 23 hours ends it, one in two weeks is far.
    let hours = |hours: i64| Some(hours * 3_600);
    assert_eq!(ends(None, InterruptionKind::ScheduledChange, hours(23)), (hours(23), 8));
    assert_eq!(ends(None, InterruptionKind::ScheduledChange, hours(336)), (None, 7));
    assert_eq!(ends(None, InterruptionKind::ScheduledChange, None), (None, 7));
    assert_eq!(ends(None, InterruptionKind::Rebalance, None), (None, 7));
}

/// The peer marks the offering before it looks whether the claim is being deleted.
#[test]
fn c077_the_offering_of_an_instance_that_goes_already_is_avoided() {
    let drained = ClaimState::Drained {
        instance: spot(0),
        node: Some(node_name(0)),
        reason: RemovalReason::Deleted,
        at: EPOCH,
    };
    for (state, late) in [(drained.clone(), false), (drains_already(0, Some(30)), false), (drained, true)] {
        let world = world([state]);
        let before = claim(&world, 0);
        let ends_in = SignedDuration::from_secs(if late { -1 } else { 110 });
        let cause = WakeCause::Interruption {
            instances: vec![instance_id(0)],
            kind: InterruptionKind::Spot,
            deadline: Some(EPOCH + ends_in),
        };
        block_on(Interruption::new().handle(&world, &WakeScope::Region, &[cause])).unwrap();
        assert_eq!((mark(&world).is_none(), claim(&world, 0)), (late, before));
        assert_eq!((journal(&world), world.signals.take()), (0, vec![]));
    }
}

#[test]
fn a_claim_without_a_node_drains_and_the_warning_again_changes_nothing() {
    let world = world([ClaimState::Launched { instance: spot(0), at: EPOCH }]);
    handle(&world, vec![instance_id(0)], InterruptionKind::Spot).unwrap();
    assert!(matches!(claim(&world, 0).state, ClaimState::Draining { node: None, .. }));
    let before: BTreeMap<_, _> = world.table.dump().collect();
    let _ = world.signals.take();
    handle(&world, vec![instance_id(0)], InterruptionKind::Spot).unwrap();
    assert_eq!(world.table.dump().collect::<BTreeMap<_, _>>(), before);
    assert_eq!(world.signals.take(), vec![]);
}

/// The state of the offering: refused five times, with a probe due in a while.
fn known(until: i64) -> Mark {
    Mark {
        key: UnavailableKey::Offering(offering_of(&spot(0))),
        revision: 9,
        code: "InsufficientInstanceCapacity".to_owned(),
        message: None,
        count: 5,
        since: EPOCH - SignedDuration::from_mins(40),
        asked_at: EPOCH - SignedDuration::from_mins(10),
        until: EPOCH + SignedDuration::from_secs(until),
        from_vcpus: None,
        probe: None,
        seen_by: "staging".parse().unwrap(),
    }
}

fn put_mark(world: &FunctionWorld, mark: &Mark) {
    let commit = content_commit(vec![], vec![set(mark_key(world), mark)]);
    block_on(world.table.commit(&commit)).unwrap();
    world.table.reset_meter();
}

#[test]
fn an_interruption_never_lowers_what_is_known() {
    let world = world([initialized(0)]);
    put_mark(&world, &known(360));
    handle(&world, vec![instance_id(0)], InterruptionKind::Spot).unwrap();
    assert_eq!((mark(&world), calls(&world)), (Some(known(360)), 3));
    assert_eq!(claim(&world, 0).phase(), ClaimPhase::Draining);
}

#[test]
fn an_interruption_of_what_may_be_asked_for_again_holds_it_for_as_long_as_before() {
    let world = world([initialized(0)]);
    put_mark(&world, &known(-1));
    handle(&world, vec![instance_id(0)], InterruptionKind::Spot).unwrap();
    let after = mark(&world).unwrap();
    assert_eq!((after.count, after.revision, after.since), (5, 10, known(0).since));
    assert!(after.until >= EPOCH + SignedDuration::from_mins(16), "{after:?}");
}

fn reserved(n: usize) -> LaunchedInstance {
    let into = LaunchedInto { id: "cr-0abc".parse().unwrap(), kind: ReservationKind::Interruptible };
    LaunchedInstance { capacity_type: CapacityType::Reserved, reservation: Some(into), ..instance(n) }
}

/// Its owner takes the capacity back, so the replacement has to be planned into another reservation, or into none.
#[test]
fn an_interrupted_reservation_is_marked_and_a_second_warning_changes_nothing_of_it() {
    let held = |n| ClaimState::Initialized { instance: reserved(n), node: node_name(n), at: EPOCH };
    let world = world([held(0), held(1)]);
    let key = keys::unavailable(
        &world.installation.region,
        &UnavailableKey::Reservation("cr-0abc".parse().unwrap()),
    );
    let marked = || world.table.peek(&key).map(|item| from_item::<Mark>(&key, &item).unwrap());
    handle(&world, vec![instance_id(0)], InterruptionKind::CapacityReservation).unwrap();
    let first = marked().expect("the reservation is marked");
    assert_eq!((first.code.as_str(), first.count), ("CapacityReservationInterruption", 1));
    let held_for = first.until.duration_since(EPOCH);
    assert!((SignedDuration::from_mins(3)..SignedDuration::from_secs(203)).contains(&held_for), "{held_for}");
    // The capacity pool and the reservation have separate marks.
    assert_eq!(world.table.dump().filter(|(key, _)| key.sk.starts_with("UNAVAILABLE#")).count(), 1);

    handle(&world, vec![instance_id(1)], InterruptionKind::CapacityReservation).unwrap();
    assert_eq!(marked(), Some(first));
    for n in [0, 1] {
        let state = claim(&world, n).state;
        assert_eq!(state.removal(), Some(RemovalReason::CapacityReservationInterrupted));
    }
}

/// Another function writes the mark between the look and the commit.
#[test]
fn a_drain_does_not_wait_for_a_mark() {
    let world = world([initialized(0)]);
    let observed = block_on(crate::observe::observe(&world, &instance_id(0))).unwrap().unwrap();
    let input = crate::plan::InterruptionInput {
        now: EPOCH,
        cluster: observed.cluster,
        instance: instance_id(0),
        kind: InterruptionKind::Spot,
        deadline: None,
        claim: observed.claim,
        offering: observed.offering,
        mark: observed.mark,
    };
    put_mark(&world, &known(360));
    let plan = crate::plan::plan(&input).unwrap();
    assert!(plan.mark.is_some());
    block_on(crate::commit::commit(&world, &input, &plan)).unwrap();
    assert_eq!(claim(&world, 0).phase(), ClaimPhase::Draining);
    assert_eq!(mark(&world), Some(known(360)));
}

#[test]
fn one_that_fails_keeps_no_other() {
    let world = world([initialized(0), initialized(1)]);
    let broken = tenon_table::Write::Set {
        key: keys::claim(&cluster(), &claim_name(0)),
        set: BTreeMap::from([("phase".to_owned(), tenon_table::Value::text("Floating"))]),
        remove: vec![],
    };
    block_on(world.table.commit(&content_commit(vec![], vec![broken]))).unwrap();
    let error = handle(&world, vec![instance_id(0), instance_id(1)], InterruptionKind::Spot).unwrap_err();
    assert!(error.contains("NODECLAIM#default-00000"), "{error}");
    assert_eq!(claim(&world, 1).phase(), ClaimPhase::Draining);
}

/// The claim takes a step between the look and the commit; the message must not wait for its visibility timeout.
#[test]
fn a_drain_that_loses_its_race_is_planned_again_at_once() {
    let world = world([ClaimState::Registered { instance: spot(0), node: node_name(0), at: EPOCH }]);
    let before = claim(&world, 0);
    let stepped = Claim { revision: 8, state: initialized(0), ..before };
    let key = keys::claim(&cluster(), &claim_name(0));
    let drained = key.clone();
    let other = content_commit(vec![], vec![set(key, &stepped)]);
    let meeting =
        Meeting::new(&world, other, move |commit| commit.writes.iter().any(|w| *w.key() == drained));
    let cause = WakeCause::Interruption {
        instances: vec![instance_id(0)],
        kind: InterruptionKind::Spot,
        deadline: None,
    };
    block_on(Interruption::new().handle(&meeting, &WakeScope::Region, &[cause])).unwrap();
    assert!(meeting.met());
    let after = claim(&world, 0);
    assert_eq!((after.phase(), after.revision), (ClaimPhase::Draining, 9));
    // Twice the three calls of a drain, and the other's step: after a lost race for the claim the mark isn't dropped.
    assert_eq!(calls(&world), 2 * 3 + 1);
}
