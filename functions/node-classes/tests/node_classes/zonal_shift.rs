//! Zones that a class's cluster is shifted away from.

use jiff::SignedDuration;
use serde_json::json;
use tenon_domain::class_status::ConditionType;
use tenon_domain::id::ZoneId;
use tenon_domain::journal::Decision;
use tenon_domain::registry::{ClusterSettings, FeatureGate, Gates};
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_domain::zonal_shift::ShiftEnd;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::cluster_arn;
use tenon_harness::RungBell;
use tenon_twin::{Call, FaultWhen};

use crate::running::{Running, allowances, class, image, registered};

/// A cluster that ARC manages, with a ready class.
fn shiftable() -> Running {
    let running = with_setting(FeatureGate::Enabled);
    running.world.ec2.manage(&arn(&running));
    running.wake(WakeCause::SnapshotChanged);
    running.said();
    running
}

fn with_setting(zonal_shift: FeatureGate) -> Running {
    let settings = ClusterSettings { zonal_shift, ..ClusterSettings::default() };
    let running = registered(allowances(), Gates::default(), settings);
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running
}

fn arn(running: &Running) -> String {
    let installation = &running.world.installation;
    cluster_arn(&installation.region, &installation.account, &running.cluster)
}

/// The zone of the class's first subnet, by id.
fn zone(running: &Running) -> ZoneId {
    let mut subnets = running.status().unwrap().subnets;
    subnets.sort_by(|a, b| a.zone.cmp(&b.zone));
    subnets.remove(0).zone_id
}

fn shift(running: &Running, end: ShiftEnd) {
    running.world.ec2.shift_zone(&arn(running), &zone(running), end).unwrap();
}

fn in_minutes(running: &Running, minutes: i64) -> ShiftEnd {
    ShiftEnd::At(running.world.clock.now() + SignedDuration::from_mins(minutes))
}

/// A minute passes and the sweep comes.
fn minute(running: &Running) {
    running.world.clock.advance(SignedDuration::from_mins(1));
    running.wake(WakeCause::Sweep);
}

fn told(running: &Running) -> String {
    let status = running.status().unwrap();
    let told = status.condition(ConditionType::ZonesInService);
    let told = told.map_or("nothing".to_owned(), |c| format!("{} {}", c.status.as_str(), c.reason_text()));
    format!("{told}, {} shifted, {}", status.shifts().len(), running.obstacle())
}

/// The message of the zones' condition.
fn message(running: &Running) -> String {
    running.status().unwrap().condition(ConditionType::ZonesInService).unwrap().message.clone()
}

const IN_SERVICE: &str = "True ZonesInService, 0 shifted, ready";
const SHIFTED: &str = "False ZonalShiftActive, 1 shifted, ready";

#[test]
fn where_it_isnt_asked_for_arc_isnt_asked() {
    let running = with_setting(FeatureGate::Disabled);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(told(&running), "nothing, 0 shifted, ready");
    assert!(!running.world.ec2.calls().contains_key(&Call::GetManagedResource));
}

#[test]
fn an_operators_shift_is_seen_by_the_next_minute_and_so_is_its_end() {
    let running = shiftable();
    assert_eq!(told(&running), IN_SERVICE);
    let end = in_minutes(&running, 30);
    shift(&running, end);
    minute(&running);
    assert_eq!(told(&running), SHIFTED);
    let status = running.status().unwrap();
    let shifted: Vec<bool> =
        status.subnets.iter().map(|subnet| subnet.is_shifted(running.world.clock.now())).collect();
    assert_eq!(shifted.iter().filter(|shifted| **shifted).count(), 1);
    let events = running.world.signals.take_events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].1["shiftedZones"], json!([zone(&running).as_str()]));
    minute(&running);
    assert!(running.said().is_empty(), "nothing is new");
    running.world.ec2.end_shift(&arn(&running), &zone(&running)).unwrap();
    minute(&running);
    assert_eq!((told(&running).as_str(), running.said().len()), (IN_SERVICE, 1));
}

#[test]
fn a_look_that_sees_nothing_new_writes_nothing_of_the_class() {
    let running = shiftable();
    let before = running.status().unwrap();
    minute(&running);
    assert_eq!(running.status().unwrap(), before);
    running.world.clock.advance(SignedDuration::from_secs(20));
    running.world.table.reset_meter();
    running.wake(WakeCause::Sweep);
    let calls: u64 = running.world.table.meter().operations.values().map(|usage| usage.calls).sum();
    assert_eq!(calls, 1, "less than a minute ago everything was looked at");
}

#[test]
fn an_autoshift_is_looked_at_when_its_event_comes() {
    let running = shiftable();
    shift(&running, ShiftEnd::Open);
    running.wake(WakeCause::ZonalShift);
    assert_eq!(told(&running), SHIFTED);
    running.world.clock.advance(SignedDuration::from_hours(100));
    running.wake(WakeCause::Sweep);
    assert_eq!(told(&running), SHIFTED);
}

#[test]
fn what_arc_doesnt_answer_stays_and_is_asked_again_soon() {
    let running = shiftable();
    shift(&running, ShiftEnd::Open);
    minute(&running);
    running.said();
    let throttled = Ec2Error::Throttled { action: "GetManagedResource".to_owned() };
    running.fail(Call::GetManagedResource, FaultWhen::Next(1), throttled);
    // A new spec keeps the cluster's shifts.
    running.report(&[class(json!({"userData": "other"}))]);
    minute(&running);
    assert_eq!(told(&running), SHIFTED);
    let rung = running.world.signals.take();
    let again = |rung: &RungBell| matches!(rung, RungBell::Wake { function: FunctionName::NodeClasses, .. });
    assert!(rung.iter().any(again), "{rung:?}");
}

#[test]
fn what_arc_refuses_names_the_remedy_and_keeps_the_class_from_nothing() {
    let running = with_setting(FeatureGate::Enabled);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(told(&running), "False ZonalShiftResolutionFailed, 0 shifted, ready");
    assert!(message(&running).contains("enable it in EKS"), "{}", message(&running));
    let running = shiftable();
    shift(&running, ShiftEnd::Open);
    minute(&running);
    running.world.ec2.deny(Call::GetManagedResource, "an explicit deny");
    minute(&running);
    assert_eq!(told(&running), "Unknown ZonalShiftResolutionFailed, 1 shifted, ready");
    assert!(message(&running).contains("`arc-zonal-shift:GetManagedResource`"), "{}", message(&running));
}

#[test]
fn a_missing_answer_neither_ends_a_refusal_nor_makes_one() {
    let running = with_setting(FeatureGate::Enabled);
    running.wake(WakeCause::SnapshotChanged);
    let throttle = |running: &Running| {
        let throttled = Ec2Error::Throttled { action: "GetManagedResource".to_owned() };
        running.fail(Call::GetManagedResource, FaultWhen::Next(1), throttled);
        minute(running);
    };
    throttle(&running);
    assert_eq!(told(&running), "False ZonalShiftResolutionFailed, 0 shifted, ready");
    assert!(message(&running).contains("enable it in EKS"), "{}", message(&running));
    let running = with_setting(FeatureGate::Enabled);
    running.world.ec2.deny(Call::GetManagedResource, "an explicit deny");
    running.wake(WakeCause::SnapshotChanged);
    running.world.ec2.allow(Call::GetManagedResource);
    throttle(&running);
    assert_eq!(told(&running), "Unknown ZonalShiftResolutionFailed, 0 shifted, ready");
    assert!(message(&running).contains("was throttled"), "{}", message(&running));
}

#[test]
fn a_shift_and_its_end_are_recorded_and_what_else_changes_as_what_it_is() {
    let running = shiftable();
    let zone = zone(&running);
    let away = format!("{zone} until AWS ends the autoshift");
    let last = |decision: Decision, shifted: Option<&String>, says: &str| {
        let recorded = running.recorded("default");
        let record = recorded.last().unwrap();
        assert_eq!((record.decision, record.details.get("shifted")), (decision, shifted));
        assert!(record.message.contains(says), "{}", record.message);
        recorded.len()
    };
    assert_eq!(last(Decision::Resolved, None, "EC2NodeClass `default` is ready: it resolves to ami-"), 1);
    shift(&running, ShiftEnd::Open);
    minute(&running);
    // By its name, as Nodes have it, and its id.
    let named = format!("of cluster `prod`: `us-east-1a` ({zone}) until AWS ends the autoshift");
    assert_eq!(last(Decision::ZonalShiftActive, Some(&away), &named), 2);
    let newer = running.world.ec2.add_image(image("nodes-2"));
    minute(&running);
    assert_eq!(last(Decision::Resolved, Some(&away), newer.as_str()), 3);
    running.world.ec2.end_shift(&arn(&running), &zone).unwrap();
    minute(&running);
    let back = "all zones of EC2NodeClass `default` are in service again";
    assert_eq!(last(Decision::ZonalShiftCleared, None, back), 4);
    let newest = running.world.ec2.add_image(image("nodes-3"));
    minute(&running);
    assert_eq!(last(Decision::Resolved, None, newest.as_str()), 5);
}
