//! Reminders with every sweep.

use serde_json::Value;
use tenon_ec2::Ec2;
use tenon_snapshot::snapshot::{Heartbeat, beat};

use super::ended::{launch_instance, pass, report};
use super::*;

/// The details of the events of that kind since the last look.
fn told(world: &FunctionWorld, kind: &str) -> Vec<Value> {
    let events = world.signals.take_events().into_iter();
    events.filter(|(name, _)| name == kind).map(|(_, detail)| detail).collect()
}

#[test]
fn a_halt_is_told_with_every_sweep_with_its_instance_and_its_remedy_until_it_is_gone() {
    let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
    let foreign = launch_instance(&world);
    let lifecycle = Lifecycle::new();
    pass(&world, 600);
    for generation in 1..5 {
        report(&world, generation, vec![]);
        sweep(&world, &lifecycle);
        let told = told(&world, "Termination Halted");
        assert_eq!(told.len(), 1, "sweep {generation}: {told:?}");
        let text = |field: &str| told[0][field].as_str().unwrap().to_owned();
        assert!(text("reason").contains(foreign.id.as_str()), "{told:?}");
        assert_eq!(
            text("remedy"),
            "aws dynamodb delete-item --region us-east-1 --table-name tenon --key \
             '{\"pk\": {\"S\": \"CLUSTER#prod\"}, \"sk\": {\"S\": \"HALT\"}}'"
        );
        pass(&world, 180);
    }
    // A wake with another cause sends none: there may be many.
    block_on(lifecycle.handle(&world, &WakeScope::Cluster(cluster()), &[WakeCause::SnapshotChanged]))
        .unwrap();
    assert!(told(&world, "Termination Halted").is_empty());
    // The instance is terminated and the item deleted, as the event asks.
    block_on(world.ec2.terminate_instances(&[foreign.id])).unwrap();
    commit(&world, vec![tenon_table::Write::Delete { key: keys::halt(&cluster()) }]);
    pass(&world, 180);
    report(&world, 5, vec![]);
    sweep(&world, &lifecycle);
    assert!(told(&world, "Termination Halted").is_empty());
}

#[test]
fn a_silent_agent_is_told_of_with_every_sweep_until_it_reports() {
    let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
    let lifecycle = Lifecycle::new();
    report(&world, 1, vec![]);
    let check = |seconds: i64, expected: Option<i64>| {
        pass(&world, seconds);
        sweep(&world, &lifecycle);
        let told = told(&world, "Agent Silent");
        let ages: Vec<i64> = told.iter().map(|detail| detail["ageSeconds"].as_i64().unwrap()).collect();
        assert_eq!(ages, Vec::from_iter(expected));
        assert!(told.iter().all(|detail| detail["lastHeartbeat"] == EPOCH.to_string()), "{told:?}");
    };
    check(180, None);
    check(119, None);
    check(1, Some(300));
    check(180, Some(480));
    report(&world, 2, vec![]);
    sweep(&world, &lifecycle);
    assert!(told(&world, "Agent Silent").is_empty());
}

#[test]
fn an_agent_whose_clock_is_ahead_is_silent() {
    let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
    let lifecycle = Lifecycle::new();
    report(&world, 1, vec![]);
    let beat_at = |seconds: i64| {
        let seen_at = world.clock.now() + SignedDuration::from_secs(seconds);
        block_on(beat(&world.table, &cluster(), Heartbeat { generation: 1, seen_at })).unwrap();
    };
    for (seconds, expected) in [(3600, vec![-3600]), (15, vec![])] {
        beat_at(seconds);
        sweep(&world, &lifecycle);
        let told = told(&world, "Agent Silent");
        let ages: Vec<i64> = told.iter().map(|detail| detail["ageSeconds"].as_i64().unwrap()).collect();
        assert_eq!(ages, expected);
    }
}

#[test]
fn an_agent_that_never_reported_is_silent() {
    let (world, lifecycle) = (world_with(&[]), Lifecycle::new());
    sweep(&world, &lifecycle);
    let told = told(&world, "Agent Silent");
    assert_eq!((told.len(), &told[0]["lastHeartbeat"]), (1, &Value::Null));
    assert_eq!(told[0]["cluster"], "prod");
}

/// Of two orphans it names the foreign one, not the one with a known launch.
#[test]
fn the_journal_names_the_instance_that_halts() {
    let orphan = instance(0, InstanceState::Running, EPOCH);
    let mut foreign = instance(1, InstanceState::Running, EPOCH);
    foreign.tags.insert(tenon_domain::tags::LAUNCH.to_owned(), "launch-of-others".to_owned());
    let mut seen = with_launch(with_ec2(input(minutes(9), vec![], vec![]), vec![orphan, foreign]), settled());
    seen.ec2.as_mut().unwrap().unknown_launches.insert("launch-of-others".to_owned());
    let (plan, _) = planned(&seen);
    let named: Vec<&str> = plan.audit.journal.iter().map(|record| record.subject.name.as_str()).collect();
    assert_eq!(named, [id(1).as_str()]);
    let reason = plan.audit.halt.unwrap().reason;
    assert!(reason.contains(id(1).as_str()) && !reason.contains(id(0).as_str()), "{reason}");
}
