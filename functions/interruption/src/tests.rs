use std::collections::BTreeMap;

use jiff::SignedDuration;
use tenon_cluster::{Action, ActionKind};
use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, LaunchedInstance, RemovalReason};
use tenon_domain::id::InstanceId;
use tenon_domain::unavailable::{Mark, UnavailableKey};
use tenon_domain::wake::{Cause, FunctionName, InterruptionKind};
use tenon_entrypoint::testing::claims::{
    claim as nth, claim_name, cluster, instance, instance_id, node_name, world_with,
};
use tenon_entrypoint::testing::{EPOCH, Rung, World};
use tenon_entrypoint::{Handler, Scope, content_commit};
use tenon_table::items::{from_item, keys};
use tenon_table::{Table, block_on};

use crate::Interruption;

fn spot(n: usize) -> LaunchedInstance {
    LaunchedInstance { capacity_type: CapacityType::Spot, ..instance(n) }
}

fn initialized(n: usize) -> ClaimState {
    ClaimState::Initialized { instance: spot(n), node: node_name(n), at: EPOCH }
}

fn world(states: impl IntoIterator<Item = ClaimState>) -> World {
    let claims = states.into_iter().enumerate().map(|(n, state)| Claim { revision: 7, ..nth(n, state) });
    let world = world_with(&claims.collect::<Vec<_>>());
    world.table.reset_meter();
    world
}

fn handle(world: &World, instances: Vec<InstanceId>, kind: InterruptionKind) -> Result<(), String> {
    let cause = Cause::Interruption { instances, kind };
    block_on(Interruption::new().handle(world, &Scope::Region, &[cause])).map_err(|error| error.to_string())
}

fn claim(world: &World, n: usize) -> Claim {
    let key = keys::claim(&cluster(), &claim_name(n));
    from_item(&key, &world.table.peek(&key).unwrap()).unwrap()
}

fn action(world: &World, n: usize) -> Option<Action> {
    world.table.peek(&keys::action(&cluster(), &claim_name(n))).map(|item| Action::from_item(&item).unwrap())
}

fn mark(world: &World) -> Option<Mark> {
    let zones = ["use1-az1", "use1-az2", "use1-az3", "use1-az4", "use1-az5", "use1-az6"];
    zones.iter().find_map(|zone| {
        let mark = UnavailableKey::parse(&format!("offering#spot#{zone}#m5.large")).unwrap();
        let key = keys::unavailable(&world.installation.region, &mark);
        world.table.peek(&key).map(|item| from_item(&key, &item).unwrap())
    })
}

fn calls(world: &World) -> u64 {
    world.table.meter().operations.values().map(|usage| usage.calls).sum()
}

fn journal(world: &World) -> usize {
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
    assert_eq!(mark.until, EPOCH + SignedDuration::from_mins(3));
    assert_eq!(journal(&world), 1);
    let rung = world.signals.take();
    assert_eq!(rung.first(), Some(&Rung::Agent(cluster())));
    assert!(matches!(&rung[1], Rung::Event(event) if event.detail_type == "Node Interrupted"
        && event.detail["reason"] == "SpotInterrupted" && event.detail["instance"] == instance_id(0).as_str()));
    for function in [FunctionName::Provisioner, FunctionName::Lifecycle] {
        assert!(rung.contains(&Rung::Wake { function, cluster: cluster(), after: SignedDuration::ZERO }));
    }
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
fn a_recommendation_is_told_and_changes_nothing() {
    let world = world([initialized(0)]);
    handle(&world, vec![instance_id(0)], InterruptionKind::Rebalance).unwrap();
    assert_eq!(claim(&world, 0).revision, 7);
    assert_eq!((journal(&world), action(&world, 0)), (1, None));
    assert_eq!(world.signals.take_events().len(), 1);
    assert!(calls(&world) <= 3);
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
