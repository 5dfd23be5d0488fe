//! Capacity reservations of classes, behind their gate.

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::class_status::{ConditionStatus, ConditionType, Seen};
use tenon_domain::registry::{ClusterSettings, FeatureGate, GateName, Gates};
use tenon_domain::reservation::{MatchCriteria, ReservationKind};
use tenon_domain::wake::WakeCause;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{CapacityReservation, Tags};
use tenon_node_classes::resolve;
use tenon_twin::{Call, Fault, FaultEffect, FaultWhen};

use crate::running::{Running, allowances, class, image, registered};

/// A reservation of two m5.large for a team.
fn reservation(id: &str, team: &str) -> CapacityReservation {
    CapacityReservation {
        id: id.parse().unwrap(),
        owner: "111122223333".to_owned(),
        instance_type: "m5.large".parse().unwrap(),
        zone: "us-east-1a".parse().unwrap(),
        match_criteria: MatchCriteria::Targeted,
        kind: ReservationKind::Default,
        ends_at: None,
        available: 2,
        tags: Tags::from([("team".to_owned(), team.to_owned())]),
    }
}

/// A class that selects a reservation by id, one that doesn't exist, and those of a team.
fn selecting() -> Value {
    let terms = json!([{"id": "cr-0a"}, {"id": "cr-0gone"}, {"tags": {"team": "ml"}, "instanceMatchCriteria": "targeted"}]);
    class(json!({"capacityReservationSelectorTerms": terms}))
}

fn with_reservations(gate: FeatureGate) -> Running {
    let gates = Gates::default().with(GateName::ReservedCapacity, gate);
    let running = registered(allowances(), gates, ClusterSettings::default());
    running.world.ec2.add_image(image("nodes-1"));
    for (id, team) in [("cr-0a", "web"), ("cr-0b", "ml"), ("cr-0c", "web")] {
        running.world.ec2.add_reservation(reservation(id, team)).unwrap();
    }
    running.report(&[selecting()]);
    running.wake(WakeCause::SnapshotChanged);
    running
}

fn reservations(running: &Running) -> Vec<(String, u32)> {
    let status = running.status().unwrap();
    status.reservations.shown().iter().map(|one| (one.id.to_string(), one.available)).collect()
}

#[test]
fn behind_the_gate_a_class_has_the_reservations_that_its_terms_select() {
    let running = with_reservations(FeatureGate::Enabled);
    assert_eq!(running.obstacle(), "ready");
    assert_eq!(reservations(&running), [("cr-0a".to_owned(), 2), ("cr-0b".to_owned(), 2)]);
    let ready = running.status().unwrap();
    let condition = ready.condition(ConditionType::CapacityReservationsReady).unwrap();
    assert_eq!(condition.status, ConditionStatus::True);
    assert!(ready.condition(ConditionType::Unsupported).is_none());
}

#[test]
fn capacity_blocks_and_reservations_that_are_taken_back_are_not_launched_into() {
    let served = |kind| {
        let found = [CapacityReservation { kind, ..reservation("cr-0b", "ml") }];
        let Seen::Holds(of_class) = resolve::reservations(&found) else { panic!("{found:?}") };
        of_class.len()
    };
    assert_eq!(served(ReservationKind::Default), 1);
    assert_eq!(served(ReservationKind::CapacityBlock), 0);
    assert_eq!(served(ReservationKind::Interruptible), 0);
}

#[test]
fn with_the_gate_off_nothing_is_asked_kept_or_waited_for() {
    let running = with_reservations(FeatureGate::Disabled);
    assert_eq!(running.obstacle(), "ready");
    assert_eq!(reservations(&running), []);
    let status = running.status().unwrap();
    assert!(status.condition(ConditionType::CapacityReservationsReady).is_none());
    let unsupported = status.condition(ConditionType::Unsupported).unwrap();
    assert!(unsupported.message.contains("spec.capacityReservationSelectorTerms"), "{}", unsupported.message);
    assert!(!running.world.ec2.calls().contains_key(&Call::DescribeCapacityReservations));
    // A class without selectors lacks no reservation.
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert!(running.status().unwrap().condition(ConditionType::Unsupported).is_none());
}

#[test]
fn reservations_that_are_not_answered_stay_and_that_are_denied_are_named() {
    let running = with_reservations(FeatureGate::Enabled);
    running.world.ec2.deny(Call::DescribeCapacityReservations, "an explicit deny");
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.obstacle(), "CapacityReservationsReady=False CapacityReservationResolutionFailed");
    assert!(running.message().contains("`ec2:DescribeCapacityReservations`"), "{}", running.message());
    running.world.ec2.allow(Call::DescribeCapacityReservations);
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    let effect =
        FaultEffect::Refused(Ec2Error::Throttled { action: "DescribeCapacityReservations".to_owned() });
    let call = Call::DescribeCapacityReservations;
    running.world.ec2.inject(Fault { call, effect, when: FaultWhen::Next(9) });
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    assert_eq!((running.obstacle().as_str(), reservations(&running).len()), ("ready", 2));
}

#[test]
fn a_look_at_reservations_is_dated_though_nothing_changed_and_wakes_nobody() {
    let running = with_reservations(FeatureGate::Enabled);
    running.said();
    let before = running.status().unwrap();
    assert_eq!(running.steps(), 1, "planners look again once it is resolved");
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    let after = running.status().unwrap();
    assert_eq!(after.resolved_at, running.world.clock.now());
    assert!(after.same_as(&before) && after.revision == before.revision + 1);
    assert!(running.said().is_empty());
    assert_eq!(running.steps(), 1);
}

#[test]
fn planners_look_again_where_a_reservation_has_other_room_though_nobody_is_told() {
    let running = with_reservations(FeatureGate::Enabled);
    running.said();
    running
        .world
        .ec2
        .add_reservation(CapacityReservation { available: 1, ..reservation("cr-0a", "web") })
        .unwrap();
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    assert_eq!(reservations(&running), [("cr-0a".to_owned(), 1), ("cr-0b".to_owned(), 2)]);
    assert_eq!((running.steps(), running.recorded("default").len()), (2, 1));
    assert!(running.said().is_empty());
}
