//! Disruption as a user sees it: a new image replaces the nodes one at a time, new nodes first.

mod commands;
mod races;

use std::sync::Arc;

use serde_json::{Value, json};
use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, LaunchedInstance, Terms};
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::{
    ClaimName, ImageId, InstanceId, InstanceType, LaunchId, NodeClassName, NodeName, NodePoolName, Zone,
};
use tenon_domain::launch::{LaunchCause, LaunchState};
use tenon_domain::registry::{FeatureGate, Registry};
use tenon_domain::report::Shown;
use tenon_ec2::port::ImageArchitecture;
use tenon_harness::cluster::{Cluster, pod, pool};
use tenon_harness::{FunctionWorld, RungBell, WorldConfig};
use tenon_memory_table::{Operation, block_on};
use tenon_snapshot::SeenPod;
use tenon_snapshot::action::{ActionKind, NodeAction, PREFIX};
use tenon_table::items::{Halt, ToldFindings, from_item, keys, set};
use tenon_twin::NewImage;

use super::*;

const TYPES: [&str; 3] = ["m5.large", "m5.xlarge", "m6g.large"];

/// A cluster with initialised nodes of an image that its class doesn't select, each with a pod.
fn cluster(nodes: u32) -> Cluster {
    let mut cluster = Cluster::new(FunctionWorld::new(&WorldConfig::default()).unwrap(), &TYPES).unwrap();
    cluster.objects.node_pools = vec![Arc::new(pool(&[&["karpenter.sh/capacity-type", "on-demand"]]))];
    for n in 0..nodes {
        let name = format!("node-{n}");
        let claim = claim(n, &name, cluster.world.clock.now());
        cluster.put(set(keys::claim(&cluster.name, &claim.name), &claim)).unwrap();
        cluster.objects.nodes.push(Arc::new(node(&name, n)));
        cluster
            .objects
            .pods
            .push(Arc::new(SeenPod::read(&pod(&format!("web-{n}"), "1500m", Some(&name))).unwrap()));
    }
    let image = cluster.world.ec2.add_image(NewImage::named("new", ImageArchitecture::X86_64));
    cluster.resolve(&[(image, ImageArchitecture::X86_64)]).unwrap();
    cluster.report().unwrap();
    cluster
}

fn claim(n: u32, node: &str, at: Timestamp) -> Claim {
    let instance = LaunchedInstance {
        id: InstanceId::parse(format!("i-{n:017x}")).unwrap(),
        instance_type: InstanceType::parse("m5.large").unwrap(),
        zone: Zone::parse("us-east-1a").unwrap(),
        subnet: None,
        reservation: None,
        placement: None,
        capacity_type: CapacityType::OnDemand,
        image: ImageId::parse("ami-0123456789abcdef0").unwrap(),
    };
    Claim {
        revision: 4,
        state: ClaimState::Initialized { instance, node: NodeName::parse(node).unwrap(), at },
        ..Claim::planned(
            ClaimName::parse(format!("default-{n}")).unwrap(),
            (NodePoolName::parse("default").unwrap(), NodeClassName::parse("default").unwrap()),
            LaunchId::parse("launch-old").unwrap(),
            at,
        )
    }
}

fn node(name: &str, n: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {
            "karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "on-demand",
            "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
            "node.kubernetes.io/instance-type": "m5.large", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": "us-east-1a", "kubernetes.io/os": "linux",
        }},
        "spec": {"providerID": format!("aws:///us-east-1a/i-{n:017x}")},
        "status": {
            "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
            "allocatable": {"cpu": "1930m", "memory": "7Gi", "pods": "29"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn wake(cluster: &Cluster) {
    let scope = WakeScope::Cluster(cluster.name.clone());
    block_on(Disruption::default().handle(&cluster.world, &scope, &[WakeCause::Sweep])).unwrap();
}

fn phases(cluster: &Cluster, phase: ClaimPhase) -> Vec<Claim> {
    cluster.claims().unwrap().into_iter().filter(|claim| claim.phase() == phase).collect()
}

fn actions(cluster: &Cluster) -> Vec<NodeAction> {
    let items = cluster.world.table.dump().filter(|(key, _)| key.sk.starts_with(PREFIX));
    items.map(|(_, item)| NodeAction::from_item(&item).unwrap()).collect()
}

/// The replacements of all commands become initialised, as lifecycle would see it.
fn initialize(cluster: &Cluster) {
    for (n, planned) in (100_u32..).zip(phases(cluster, ClaimPhase::Planned)) {
        let ready = claim(n, &format!("node-{n}"), cluster.world.clock.now());
        let next = Claim { state: ready.state, revision: planned.revision + 3, ..planned };
        cluster.put(set(keys::claim(&cluster.name, &next.name), &next)).unwrap();
    }
    cluster.put(tenon_table::items::add_step(&cluster.name)).unwrap();
}

#[test]
fn drift_is_marked_and_replaced_within_the_budget_new_nodes_first() {
    let cluster = cluster(3);
    wake(&cluster);
    assert_eq!(cluster.claims().unwrap().iter().filter(|claim| claim.drift.is_some()).count(), 3);
    let (taken, planned) = (phases(&cluster, ClaimPhase::Disrupting), phases(&cluster, ClaimPhase::Planned));
    assert_eq!((taken.len(), planned.len()), (1, 1), "the budget is one");
    let launches = cluster.launches().unwrap();
    assert!(matches!(launches[0].cause, LaunchCause::Replacement(_)));
    assert!(matches!(launches[0].state, LaunchState::Requested { attempts: 0, .. }));
    let found = actions(&cluster);
    assert_eq!((found.len(), found[0].kind, &found[0].claim), (1, ActionKind::Disrupt, &taken[0].name));
    let rung = cluster.world.signals.take();
    assert!(rung.contains(&RungBell::Agent(cluster.name.clone())));
    assert!(
        rung.iter().any(|rung| matches!(rung, RungBell::Wake { function: FunctionName::Provisioner, .. }))
    );
    initialize(&cluster);
    wake(&cluster);
    let draining = phases(&cluster, ClaimPhase::Draining);
    assert_eq!(draining.iter().map(|claim| &claim.name).collect::<Vec<_>>(), [&taken[0].name]);
    assert_eq!(actions(&cluster)[0].kind, ActionKind::Drain);
    let commands: Vec<Command> = cluster.all(keys::COMMAND).unwrap();
    assert!(matches!(commands[0].state, CommandState::Draining { .. }), "{commands:?}");
    assert_eq!(commands.len(), 1, "the node that drains counts against the budget");
}

#[test]
fn a_drain_for_drift_ends_by_the_claims_own_grace_period() {
    let drained = |own: Option<SignedDuration>, pool: Option<&str>| {
        let mut cluster = cluster(1);
        let mut changed = Value::clone(&*cluster.objects.node_pools[0]);
        changed["spec"]["template"]["spec"]["terminationGracePeriod"] = json!(pool);
        cluster.objects.node_pools = vec![Arc::new(changed)];
        cluster.report().unwrap();
        for claim in cluster.claims().unwrap() {
            let terms = Terms {
                expire_after: None,
                termination_grace_period: own,
                load_balancer_deregistration: None,
            };
            let kept = Claim { terms: Some(terms), ..claim };
            cluster.put(set(keys::claim(&cluster.name, &kept.name), &kept)).unwrap();
        }
        wake(&cluster);
        initialize(&cluster);
        wake(&cluster);
        let found = actions(&cluster);
        let drain = found.iter().find(|action| action.kind == ActionKind::Drain).unwrap();
        let claims = phases(&cluster, ClaimPhase::Draining);
        let ClaimState::Draining { at, deadline, .. } = claims[0].state else { panic!("{claims:?}") };
        assert_eq!(drain.deadline, deadline);
        deadline.map(|deadline| deadline.duration_since(at))
    };
    let minutes = SignedDuration::from_mins;
    assert_eq!(drained(Some(minutes(5)), None), Some(minutes(5)));
    assert_eq!(drained(Some(minutes(5)), Some("1h")), Some(minutes(5)));
    assert_eq!(drained(None, Some("1h")), None);
}

#[test]
fn a_halt_and_a_stale_snapshot_take_nothing_away() {
    let halted = cluster(1);
    let halt = Halt { since: halted.world.clock.now(), reason: "restored".to_owned() };
    halted.put(set(keys::halt(&halted.name), &halt)).unwrap();
    let stale = cluster(1);
    stale.world.clock.advance(SignedDuration::from_secs(91));
    for cluster in [halted, stale] {
        wake(&cluster);
        assert_eq!(phases(&cluster, ClaimPhase::Initialized).len(), 1);
        assert!(cluster.launches().unwrap().is_empty());
    }
}

#[test]
fn a_pass_tells_the_offerings_of_the_clusters_instances() {
    let cluster = cluster(2);
    wake(&cluster);
    let key = keys::seen(&cluster.name, FunctionName::Disruption);
    let item = block_on(cluster.world.table.get(&key, Consistency::Strong)).unwrap().unwrap();
    let seen: tenon_table::items::SeenRecord = from_item(&key, &item).unwrap();
    let [offering] = seen.offerings.as_slice() else { panic!("{:?}", seen.offerings) };
    assert_eq!((offering.instance_type.as_str(), offering.zone.as_str()), ("m5.large", "us-east-1a"));
    assert_eq!(offering.capacity_type, CapacityType::OnDemand);
    assert!(offering.price.is_some() && offering.available, "{offering:?}");
}

#[test]
fn a_halted_cluster_keeps_the_offerings_of_its_last_plan() {
    let cluster = cluster(2);
    wake(&cluster);
    let key = keys::seen(&cluster.name, FunctionName::Disruption);
    let seen = || -> tenon_table::items::SeenRecord {
        from_item(&key, &cluster.world.table.peek(&key).unwrap()).unwrap()
    };
    let planned = seen();
    assert_eq!((planned.offerings.len(), planned.offerings_at), (1, None));
    let halt = Halt { since: cluster.world.clock.now(), reason: "restored".to_owned() };
    cluster.put(set(keys::halt(&cluster.name), &halt)).unwrap();
    for _ in 0..2 {
        cluster.world.clock.advance(SignedDuration::from_mins(1));
        cluster.put(tenon_table::items::add_step(&cluster.name)).unwrap();
        wake(&cluster);
        let kept = seen();
        assert!(kept.at > planned.at);
        assert_eq!((kept.offerings, kept.offerings_at), (planned.offerings.clone(), Some(planned.at)));
    }
}

#[test]
fn an_unchanged_sweep_is_one_read_and_no_write() {
    let cluster = cluster(2);
    for _ in 0..3 {
        wake(&cluster);
    }
    cluster.world.table.reset_meter();
    wake(&cluster);
    let used: Vec<_> = cluster.world.table.meter().operations.keys().copied().collect();
    assert_eq!(used, [Operation::BatchGetItem]);
}

/// The planned claim becomes the n-th node, with the pod of the node that it replaces.
fn replace(cluster: &mut Cluster, n: u32) -> Claim {
    let planned = phases(cluster, ClaimPhase::Planned).remove(0);
    let name = format!("node-{n}");
    let ready = claim(n, &name, cluster.world.clock.now());
    let next = Claim { state: ready.state, revision: planned.revision + 3, ..planned };
    cluster.put(set(keys::claim(&cluster.name, &next.name), &next)).unwrap();
    cluster.put(tenon_table::items::add_step(&cluster.name)).unwrap();
    cluster.objects.nodes.push(Arc::new(node(&name, n)));
    cluster.report().unwrap();
    next
}

#[test]
fn a_drain_for_drift_ends_with_the_pools_termination_grace_period() {
    let mut cluster = cluster(1);
    let mut pool = pool(&[&["karpenter.sh/capacity-type", "on-demand"]]);
    pool["spec"]["template"]["spec"]["terminationGracePeriod"] = json!("5m");
    cluster.objects.node_pools = vec![Arc::new(pool)];
    cluster.report().unwrap();
    wake(&cluster);
    // The first replacement has the pool's current template; it drifted, too.
    let second = replace(&mut cluster, 100);
    let gone =
        cluster.claims().unwrap().into_iter().find(|claim| claim.name.as_str() == "default-0").unwrap();
    cluster.put(tenon_table::Write::Delete { key: keys::claim(&cluster.name, &gone.name) }).unwrap();
    cluster.objects.nodes.remove(0);
    cluster.objects.pods = vec![Arc::new(SeenPod::read(&pod("web-0", "1500m", Some("node-100"))).unwrap())];
    cluster.report().unwrap();
    wake(&cluster);
    assert_eq!(phases(&cluster, ClaimPhase::Disrupting).remove(0).name, second.name);
    replace(&mut cluster, 200);
    wake(&cluster);
    let due = cluster.world.clock.now() + SignedDuration::from_mins(5);
    let drains = phases(&cluster, ClaimPhase::Draining).remove(0);
    let ClaimState::Draining { reason, deadline, .. } = drains.state else { panic!("{drains:?}") };
    let found = (drains.name, reason, deadline);
    assert_eq!(found, (second.name.clone(), tenon_domain::claim::RemovalReason::Drifted, Some(due)));
    let told = actions(&cluster).into_iter().find(|action| action.claim == second.name).unwrap();
    assert_eq!((told.kind, told.deadline), (ActionKind::Drain, Some(due)));
}

/// The cluster's setting `VoluntaryDisruption`, as its stack or an operator sets it: no counter counts that.
fn set_voluntary_disruption(cluster: &Cluster, gate: FeatureGate) {
    let key = keys::registry(&cluster.world.installation.region, &cluster.name);
    let mut entry: Registry = from_item(&key, &cluster.world.table.peek(&key).unwrap()).unwrap();
    entry.settings.voluntary_disruption = gate;
    cluster.put(set(key, &entry)).unwrap();
}

#[test]
fn a_pause_gives_back_a_node_that_waits_for_its_replacement() {
    let cluster = cluster(1);
    wake(&cluster);
    assert_eq!(phases(&cluster, ClaimPhase::Disrupting).len(), 1);
    set_voluntary_disruption(&cluster, FeatureGate::Disabled);
    wake(&cluster);
    let kept = phases(&cluster, ClaimPhase::Initialized).remove(0);
    let told = actions(&cluster).into_iter().find(|action| action.claim == kept.name).unwrap();
    assert_eq!(told.kind, ActionKind::Initialize);
    let commands: Vec<Command> = cluster.all(keys::COMMAND).unwrap();
    let found: Vec<_> = commands.iter().map(|one| (one.is_active(), one.candidates.len())).collect();
    assert_eq!(found, [(false, 0)], "none of its candidates waits for a next try");
    // Ready, its replacement moves no pod.
    initialize(&cluster);
    wake(&cluster);
    assert!(phases(&cluster, ClaimPhase::Draining).is_empty());
    assert_eq!(phases(&cluster, ClaimPhase::Initialized).len(), 2);
}

#[test]
fn a_pause_of_the_cluster_is_told_and_ends_though_nothing_else_changed() {
    let cluster = cluster(0);
    let told = || -> Vec<(String, Shown, String)> {
        let all: Vec<ToldFindings> = cluster.all(keys::TOLD).unwrap();
        let findings = all.into_iter().flat_map(|told| told.findings);
        findings.map(|found| (found.names.into_iter().collect(), found.shown, found.message)).collect()
    };
    let message = "voluntary disruption of all NodePools is paused: `VoluntaryDisruption` of the cluster's \
                   stack is `Disabled`; `Enabled` ends the pause";
    wake(&cluster);
    assert_eq!(told(), []);
    set_voluntary_disruption(&cluster, FeatureGate::Disabled);
    wake(&cluster);
    assert_eq!(told(), [("*".to_owned(), Shown::DisruptionPaused, message.to_owned())]);
    cluster.world.table.reset_meter();
    wake(&cluster);
    let used: Vec<_> = cluster.world.table.meter().operations.keys().copied().collect();
    assert_eq!(used, [Operation::BatchGetItem], "it is told once");
    // The table takes an equal write as the first one again for ten minutes.
    cluster.world.clock.advance(SignedDuration::from_mins(11));
    cluster.beat(cluster.world.clock.now()).unwrap();
    set_voluntary_disruption(&cluster, FeatureGate::Enabled);
    wake(&cluster);
    assert_eq!(told(), []);
}
