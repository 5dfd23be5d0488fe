//! The provisioner as a user sees it: claims, instances, and that an interruption anywhere loses and duplicates
//! nothing.

mod answers;
mod bounds;
mod bursts;
mod commits;
mod crashes;
mod interrupted;
mod joins;
mod karpenter;
mod launch_roles;
mod lost;
mod nodes;
mod probes;
mod races;
mod reads;
mod sending;
mod stepping;
mod told;
mod validation;
mod volumes;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use tenon_domain::claim::ClaimPhase;
use tenon_domain::id::{InstanceType, Zone};
use tenon_domain::launch::{Launch, LaunchState};
use tenon_domain::unavailable::{Mark, UnavailableKey};
use tenon_domain::wake::WakeCause;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{CreateFleetRequest, TargetCapacityType};
use tenon_harness::cluster::{Cluster, pod, pool};
use tenon_harness::{FunctionWorld, RungBell, WorldConfig};
use tenon_memory_table::{Operation, block_on};
use tenon_runtime::{Handler, WakeScope};
use tenon_snapshot::SeenPod;
use tenon_table::items::form::from_item;
use tenon_table::items::{LeavingTemplates, keys, set};
use tenon_table::{Table, Write, content_commit};
use tenon_twin::{Call, CapacityPool, Fault, FaultEffect, FaultWhen};

use super::*;

const TYPES: [&str; 3] = ["m5.large", "m5.xlarge", "m6g.large"];

fn cluster(pods: usize) -> Cluster {
    let mut cluster = Cluster::new(FunctionWorld::new(&WorldConfig::default()).unwrap(), &TYPES).unwrap();
    cluster.objects.node_pools = vec![Arc::new(pool(&[&["karpenter.sh/capacity-type", "on-demand"]]))];
    let waiting = |name: &str| Arc::new(SeenPod::read(&pod(name, "1500m", None)).unwrap());
    cluster.objects.pods = (0..pods).map(|n| waiting(&format!("web-{n}"))).collect();
    cluster.report().unwrap();
    cluster
}

fn wake(cluster: &Cluster) {
    wake_with(&Provisioner::default(), cluster);
}

fn wake_with(function: &Provisioner, cluster: &Cluster) {
    let scope = WakeScope::Cluster(cluster.name.clone());
    block_on(function.handle(&cluster.world, &scope, &[WakeCause::Sweep])).unwrap();
}

fn phases(cluster: &Cluster, phase: ClaimPhase) -> usize {
    cluster.claims().unwrap().iter().filter(|claim| claim.phase() == phase).count()
}

/// One instance for each launched claim, and none besides.
fn check_settled(cluster: &Cluster, expected: usize) {
    let claims = cluster.claims().unwrap();
    let owned: BTreeSet<_> = claims
        .iter()
        .filter_map(|claim| claim.state.instance())
        .map(|i| (i.id.clone(), i.subnet.clone()))
        .collect();
    let records = cluster.world.ec2.instances();
    let of_ec2 = |i: &tenon_ec2::port::Instance| (i.id.clone(), i.subnet.clone());
    let running: BTreeSet<_> = records.iter().map(|record| of_ec2(&record.instance)).collect();
    assert_eq!(owned, running);
    assert_eq!((owned.len(), phases(cluster, ClaimPhase::Launched)), (expected, expected), "{claims:#?}");
    let open = |state: &LaunchState| matches!(state, LaunchState::Requested { .. });
    assert!(cluster.launches().unwrap().iter().all(|launch| !open(&launch.state)));
    // No pod is counted on two claims that offer room.
    let offering = |name| claims.iter().any(|c| c.name == name && c.phase().offers_room());
    let launches = cluster.launches().unwrap();
    let counted: Vec<_> = launches
        .into_iter()
        .flat_map(|launch| launch.claims)
        .filter(|claim| offering(claim.name.clone()))
        .flat_map(|claim| claim.pods)
        .collect();
    assert_eq!(counted.iter().collect::<BTreeSet<_>>().len(), counted.len());
}

fn advance(cluster: &Cluster, by: SignedDuration) {
    cluster.world.clock.advance(by);
    cluster.beat(cluster.world.clock.now()).unwrap();
}

fn fault(cluster: &Cluster, call: Call, effect: FaultEffect) {
    cluster.world.ec2.inject(Fault { call, when: FaultWhen::Next(1), effect });
}

#[test]
fn pending_pods_become_claims_and_claims_become_instances() {
    let cluster = cluster(4);
    wake(&cluster);
    let launched = phases(&cluster, ClaimPhase::Launched);
    assert!(launched > 0);
    check_settled(&cluster, launched);
    let record = &cluster.world.ec2.instances()[0];
    assert!(record.instance.tags.contains_key(tenon_domain::tags::CLAIM), "{:?}", record.instance.tags);
    assert_eq!(record.instance.tags[tenon_domain::tags::CLUSTER], "prod");
    let events = cluster.world.signals.take_events();
    assert_eq!(events.iter().filter(|(kind, _)| kind == "NodeClaim Launched").count(), launched);
    let journal = |word: &str| {
        let of = |(key, item): &(tenon_table::Key, tenon_table::Item)| {
            key.pk.starts_with("JOURNAL#prod#claim#") && item["decision"].as_text() == Some(word)
        };
        cluster.world.table.dump().filter(of).count()
    };
    assert_eq!((journal("Planned"), journal("Launched")), (launched, launched));
    // The pods still wait, and are counted.
    wake(&cluster);
    check_settled(&cluster, launched);
}

#[test]
fn an_unchanged_sweep_is_one_read_and_no_write() {
    let cluster = cluster(4);
    let function = Provisioner::default();
    for _ in 0..2 {
        wake_with(&function, &cluster);
    }
    cluster.world.table.reset_meter();
    wake_with(&function, &cluster);
    let used: Vec<_> = cluster.world.table.meter().operations.keys().copied().collect();
    assert_eq!(used, [Operation::BatchGetItem]);
}

#[test]
fn a_refused_offering_is_marked_and_planned_around_in_the_same_wake() {
    let cluster = cluster(1);
    let error = ("InsufficientInstanceCapacity".to_owned(), "none left".to_owned());
    for zone in ["us-east-1a", "us-east-1b"] {
        let pool = CapacityPool {
            capacity_type: TargetCapacityType::OnDemand,
            instance_type: InstanceType::parse("m6g.large").unwrap(),
            zone: Zone::parse(zone).unwrap(),
        };
        cluster.world.ec2.fail_pool(pool.clone(), Some(error.clone()));
        let other = CapacityPool { instance_type: InstanceType::parse("m5.large").unwrap(), ..pool };
        cluster.world.ec2.set_capacity(other, Some(5));
    }
    wake(&cluster);
    check_settled(&cluster, 1);
    let marks: Vec<Mark> = cluster
        .world
        .table
        .dump()
        .filter(|(key, _)| key.sk.starts_with("UNAVAILABLE#offering"))
        .map(|(key, item)| from_item(&key, &item).unwrap())
        .collect();
    assert_eq!(marks.len(), 2, "{marks:?}");
}

fn dry_key(cluster: &Cluster) -> UnavailableKey {
    let zones = block_on(tenon_ec2::Ec2::describe_availability_zones(&cluster.world.ec2)).unwrap();
    let zone = zones.iter().find(|zone| zone.name.as_str() == "us-east-1a").unwrap();
    UnavailableKey::parse(&format!("offering#on-demand#{}#m6g.large", zone.id)).unwrap()
}

/// The mark of m6g.large in us-east-1a, as the table has it.
fn mark_of(cluster: &Cluster) -> (tenon_table::Key, Option<Mark>) {
    let key = dry_key(cluster);
    let key = tenon_table::items::keys::unavailable(&cluster.world.installation.region, &key);
    let mark = cluster.world.table.peek(&key).map(|item| from_item(&key, &item).unwrap());
    (key, mark)
}

fn dry(cluster: &Cluster, zone: &str) {
    let pool = CapacityPool {
        capacity_type: TargetCapacityType::OnDemand,
        instance_type: InstanceType::parse("m6g.large").unwrap(),
        zone: Zone::parse(zone).unwrap(),
    };
    let error = ("InsufficientInstanceCapacity".to_owned(), "none left".to_owned());
    cluster.world.ec2.fail_pool(pool, Some(error));
}

/// Another cluster marked the offering during this launch: its mark stays.
#[test]
fn a_refusal_never_lowers_what_others_know() {
    let cluster = cluster(1);
    let throttled = Ec2Error::Throttled { action: "CreateFleet".to_owned() };
    fault(&cluster, Call::CreateFleet, FaultEffect::Refused(throttled));
    wake(&cluster);
    let now = cluster.world.clock.now();
    let known = Mark {
        key: dry_key(&cluster),
        revision: 7,
        code: "InsufficientInstanceCapacity".to_owned(),
        message: None,
        count: 5,
        since: now,
        asked_at: now,
        until: now + SignedDuration::from_mins(16),
        from_vcpus: None,
        probe: None,
        seen_by: "staging".parse().unwrap(),
    };
    cluster.put(tenon_table::items::set(mark_of(&cluster).0, &known)).unwrap();
    for zone in ["us-east-1a", "us-east-1b"] {
        dry(&cluster, zone);
    }
    advance(&cluster, SignedDuration::from_secs(6));
    wake(&cluster);
    check_settled(&cluster, 1);
    assert_eq!(mark_of(&cluster).1, Some(known));
}

#[test]
fn a_mark_is_written_once_and_an_instance_keeps_its_offering() {
    let cluster = cluster(1);
    dry(&cluster, "us-east-1a");
    dry(&cluster, "us-east-1b");
    wake(&cluster);
    let marked = mark_of(&cluster).1.unwrap();
    assert_eq!((marked.count, marked.revision, marked.seen_by.as_str()), (1, 1, "prod"));
    let owner = |claim: &Claim| {
        let id = &claim.state.instance().unwrap().id;
        let key = tenon_table::items::keys::instance(id);
        let owner: tenon_table::items::InstanceOwner =
            from_item(&key, &cluster.world.table.peek(&key).unwrap()).unwrap();
        owner.offering.unwrap()
    };
    let claims = cluster.claims().unwrap();
    let launched = claims.iter().find(|claim| claim.phase() == ClaimPhase::Launched).unwrap();
    assert_eq!(owner(launched).instance_type, launched.state.instance().unwrap().instance_type);
}

#[test]
fn a_template_that_is_gone_is_made_anew_in_the_same_wake() {
    let mut cluster = cluster(1);
    wake(&cluster);
    let template = cluster.world.ec2.requests().len();
    assert_eq!(template, 1);
    let launch = &cluster.launches().unwrap()[0];
    let request = tenon_ec2::port::CreateFleetRequest::from_stored(&launch.request).unwrap();
    for template in &request.launch_templates {
        block_on(tenon_ec2::Ec2::delete_launch_template(&cluster.world.ec2, &template.name)).unwrap();
    }
    cluster.objects.pods.push(Arc::new(SeenPod::read(&pod("late", "1500m", None)).unwrap()));
    cluster.report().unwrap();
    wake(&cluster);
    check_settled(&cluster, 2);
}

/// EC2 may delete the template between the look and the launch's call.
#[test]
fn a_launch_beside_the_deletion_of_its_template_makes_another() {
    let mut cluster = cluster(1);
    wake(&cluster);
    let named = |launch: &Launch| -> BTreeSet<String> {
        let request = CreateFleetRequest::from_stored(&launch.request).unwrap();
        request.launch_templates.into_iter().map(|template| template.name).collect()
    };
    let first = cluster.launches().unwrap().remove(0);
    let leaving = named(&first);
    let since = leaving.iter().map(|name| (name.clone(), cluster.world.clock.now())).collect();
    let gone = leaving.iter().map(|name| Write::Delete { key: keys::template(&cluster.name, name) });
    let leaves = set(keys::leaving_templates(&cluster.name), &LeavingTemplates { revision: 1, since });
    let writes = gone.chain([leaves]).collect();
    block_on(cluster.world.table.commit(&content_commit(Vec::new(), writes))).unwrap();
    cluster.objects.pods.push(Arc::new(SeenPod::read(&pod("late", "1500m", None)).unwrap()));
    cluster.report().unwrap();
    wake(&cluster);
    check_settled(&cluster, 2);
    let second = cluster.launches().unwrap().into_iter().find(|launch| launch.id != first.id).unwrap();
    assert_eq!(named(&second), leaving.iter().map(|name| format!("{name}-2")).collect());
    // The first ones are EC2's to delete whenever the calls arrive.
    for name in &leaving {
        block_on(tenon_ec2::Ec2::delete_launch_template(&cluster.world.ec2, name)).unwrap();
    }
}

#[test]
fn a_stale_snapshot_launches_nothing_and_says_so_once() {
    let cluster = cluster(1);
    cluster.world.clock.advance(SignedDuration::from_secs(91));
    for _ in 0..2 {
        wake(&cluster);
        cluster.world.clock.advance(SignedDuration::from_secs(60));
    }
    assert!(cluster.claims().unwrap().is_empty());
    let told = cluster.world.table.dump().filter(|(key, _)| key.pk.starts_with("JOURNAL#prod#pool")).count();
    assert_eq!(told, 1);
}

#[test]
fn a_snapshot_of_the_future_launches_nothing_and_is_told_with_the_clock_to_set() {
    let cluster = cluster(1);
    cluster.beat(cluster.world.clock.now() + SignedDuration::from_secs(3600)).unwrap();
    for _ in 0..2 {
        wake(&cluster);
        cluster.world.clock.advance(SignedDuration::from_secs(60));
    }
    assert!(cluster.claims().unwrap().is_empty());
    let told: Vec<String> = cluster
        .world
        .table
        .dump()
        .filter(|(key, _)| key.pk.starts_with("JOURNAL#prod#pool"))
        .map(|(_, item)| item.get("message").and_then(tenon_table::Value::as_text).unwrap().to_owned())
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("3600 s ahead of now: set the clock of the agent's node"), "{told:?}");
    // The clock is set: the next heartbeat counts.
    cluster.beat(cluster.world.clock.now()).unwrap();
    wake(&cluster);
    assert!(!cluster.claims().unwrap().is_empty());
}

/// A Node of the claim that reports so much CPU.
fn node_of(claim: &tenon_domain::claim::Claim, cpu: &str) -> serde_json::Value {
    let instance = claim.state.instance().unwrap();
    serde_json::json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": claim.name.as_str(), "uid": format!("node-{}", claim.name), "resourceVersion": "1", "labels": {}},
        "spec": {"providerID": format!("aws:///{}/{}", instance.zone, instance.id)},
        "status": {"allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "20"},
            "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

#[test]
fn a_pod_whose_place_was_taken_is_planned_anew_at_once() {
    let check = |cpu, expected| {
        let mut cluster = cluster(1);
        wake(&cluster);
        check_settled(&cluster, 1);
        let claims = cluster.claims().unwrap();
        let claim = claims.first().unwrap();
        // kube-scheduler bound another pod there.
        cluster.objects.nodes = vec![Arc::new(node_of(claim, cpu))];
        let other = pod("other", "500m", Some(claim.name.as_str()));
        cluster.objects.pods.push(Arc::new(SeenPod::read(&other).unwrap()));
        cluster.report().unwrap();
        wake(&cluster);
        assert_eq!(cluster.claims().unwrap().len(), expected, "with {cpu} of CPU");
        // Looking again plans nothing more.
        cluster.report().unwrap();
        wake(&cluster);
        assert_eq!(cluster.claims().unwrap().len(), expected, "with {cpu} of CPU, again");
    };
    check("2", 1);
    check("1900m", 2);
}
