//! The bounds of the cluster's stack: vCPUs of live and in-flight claims, families, and what classes may ask for.

use serde_json::{Value, json};
use tenon_domain::claim::{Claim, ClaimState, LaunchedInstance};
use tenon_domain::journal::{JournalRecord, SubjectKind};
use tenon_domain::registry::{Allowances, Permission, Registry};

use super::*;

/// The cluster's allowances, as its stack changes them.
fn bound(cluster: &Cluster, change: impl FnOnce(&mut Allowances)) {
    let key = keys::registry(&cluster.world.installation.region, &cluster.name);
    let mut entry: Registry = from_item(&key, &cluster.world.table.peek(&key).unwrap()).unwrap();
    change(&mut entry.allowed);
    cluster.put(set(key, &entry)).unwrap();
}

fn add_pods(cluster: &mut Cluster, names: &[&str]) {
    let waiting = |name: &&str| Arc::new(SeenPod::read(&pod(name, "1500m", None)).unwrap());
    cluster.objects.pods.extend(names.iter().map(waiting));
    cluster.report().unwrap();
}

/// The vCPUs of the cluster's instances.
fn vcpus(cluster: &Cluster) -> u32 {
    let of = |name: &str| if name.ends_with(".xlarge") { 4 } else { 2 };
    cluster.world.ec2.instances().iter().map(|one| of(one.instance.instance_type.as_str())).sum()
}

/// The messages to users of pods.
fn told(cluster: &Cluster) -> Vec<String> {
    let journals = format!("JOURNAL#prod#{}#", SubjectKind::Pod.as_str());
    let items = cluster.world.table.dump().filter(|(key, _)| key.pk.starts_with(&journals));
    items.map(|(key, item)| from_item::<JournalRecord>(&key, &item).unwrap().message).collect()
}

#[test]
fn the_vcpus_of_launched_claims_count_until_the_stack_allows_more() {
    let mut cluster = cluster(2);
    bound(&cluster, |allowed| allowed.max_vcpus = Some(4));
    wake(&cluster);
    assert_eq!(vcpus(&cluster), 4);
    add_pods(&mut cluster, &["late"]);
    wake(&cluster);
    assert_eq!(vcpus(&cluster), 4);
    let told = told(&cluster);
    assert!(told.iter().any(|message| message.contains("raise it in the cluster's stack")), "{told:?}");
    bound(&cluster, |allowed| allowed.max_vcpus = Some(6));
    add_pods(&mut cluster, &["later"]);
    wake(&cluster);
    assert_eq!(vcpus(&cluster), 6);
}

/// `registry` rings when it has written the entry. Nothing else changed.
#[test]
fn a_raised_bound_gives_waiting_pods_nodes_at_the_ring() {
    let mut cluster = cluster(2);
    bound(&cluster, |allowed| allowed.max_vcpus = Some(4));
    wake(&cluster);
    add_pods(&mut cluster, &["late"]);
    wake(&cluster);
    assert_eq!(vcpus(&cluster), 4);
    bound(&cluster, |allowed| allowed.max_vcpus = Some(6));
    let scope = WakeScope::Cluster(cluster.name.clone());
    block_on(Provisioner::default().handle(&cluster.world, &scope, &[WakeCause::StateChanged])).unwrap();
    assert_eq!(vcpus(&cluster), 6);
}

/// Whichever of its types EC2 gives it.
#[test]
fn a_claim_in_flight_counts_as_the_largest_of_its_types() {
    let check = |most: u32, claims: usize| {
        let mut cluster = cluster(1);
        let throttled = Ec2Error::Throttled { action: "CreateFleet".to_owned() };
        fault(&cluster, Call::CreateFleet, FaultEffect::Refused(throttled));
        wake(&cluster);
        assert_eq!((phases(&cluster, ClaimPhase::Launched), cluster.claims().unwrap().len()), (0, 1));
        bound(&cluster, |allowed| allowed.max_vcpus = Some(most));
        add_pods(&mut cluster, &["late"]);
        wake(&cluster);
        assert_eq!(cluster.claims().unwrap().len(), claims, "{most} vCPUs");
    };
    // An `m5.xlarge` is among the types of the first.
    check(5, 1);
    check(6, 2);
}

/// EC2 gave a type that the catalogue doesn't describe.
#[test]
fn a_claim_of_an_unknown_type_counts_as_nodes_report_it_else_as_the_largest() {
    let check = |node: &dyn Fn(&LaunchedInstance) -> Option<Value>, claims: usize| {
        let mut cluster = cluster(1);
        wake(&cluster);
        let claim = cluster.claims().unwrap().remove(0);
        let ClaimState::Launched { instance, at } = claim.state.clone() else { panic!("{claim:?}") };
        let instance = LaunchedInstance { instance_type: "x9.large".parse().unwrap(), ..instance };
        cluster.objects.nodes = node(&instance).into_iter().map(Arc::new).collect();
        let unknown = Claim { state: ClaimState::Launched { instance, at }, ..claim };
        cluster.put(set(keys::claim(&cluster.name, &unknown.name), &unknown)).unwrap();
        bound(&cluster, |allowed| allowed.max_vcpus = Some(5));
        add_pods(&mut cluster, &["late"]);
        wake(&cluster);
        assert_eq!(cluster.claims().unwrap().len(), claims);
        told(&cluster)
    };
    // No pod has room on it.
    let node = |provider_id: &Value, labels: &Value| {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "joined", "uid": "joined", "resourceVersion": "1", "labels": labels},
            "spec": {"providerID": provider_id},
            "status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "100m", "memory": "1Gi", "pods": "20"},
                "conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    let own = |of: &LaunchedInstance| Some(node(&json!(format!("aws:///{}/{}", of.zone, of.id)), &json!({})));
    let of_type = |of: &LaunchedInstance| {
        Some(node(&Value::Null, &json!({"node.kubernetes.io/instance-type": of.instance_type.as_str()})))
    };
    // The largest of the types has 4.
    let told = check(&|_| None, 1);
    let counted = "of unknown size counted as 4, the largest instance type, until their Nodes report";
    assert!(told.iter().any(|message| message.contains(counted)), "{told:?}");
    check(&own, 2);
    check(&of_type, 2);
}

#[test]
fn only_families_that_the_stack_allows_are_launched() {
    let check = |families: &[&str], launched: usize, expected: &str| {
        let cluster = cluster(1);
        let patterns = families.iter().map(|pattern| pattern.parse().unwrap()).collect();
        bound(&cluster, |allowed| allowed.families = patterns);
        wake(&cluster);
        let records = cluster.world.ec2.instances();
        assert_eq!(records.len(), launched, "{families:?}");
        assert!(records.iter().all(|one| one.instance.instance_type.family() == expected), "{families:?}");
        told(&cluster)
    };
    check(&["m5"], 1, "m5");
    check(&["m6*"], 1, "m6g");
    let told = check(&["p5"], 0, "");
    let message = "families `m5`, `m6g` aren't among `AllowedFamilies` of the cluster's stack";
    assert!(told.iter().any(|one| one.contains(message)), "{told:?}");
}

/// Before the class is judged again, too.
#[test]
fn nothing_is_launched_from_a_class_that_asks_for_what_the_stack_denies() {
    let check = |field: &str, value: Value, change: fn(&mut Allowances), launched: usize| {
        let mut cluster = cluster(1);
        let mut class = Value::clone(&cluster.objects.node_classes[0]);
        class["spec"][field] = value;
        cluster.objects.node_classes = vec![Arc::new(class)];
        cluster.report().unwrap();
        bound(&cluster, change);
        wake(&cluster);
        assert_eq!(cluster.claims().unwrap().len(), launched, "{field}");
    };
    let optional = || json!({"httpTokens": "optional"});
    let deny_all = |allowed: &mut Allowances| {
        allowed.public_addresses = Permission::Denied;
        allowed.imds_v1 = Permission::Denied;
        allowed.user_data = Permission::Denied;
    };
    check("associatePublicIPAddress", json!(true), |_| (), 1);
    check(
        "associatePublicIPAddress",
        json!(true),
        |allowed| allowed.public_addresses = Permission::Denied,
        0,
    );
    check("metadataOptions", optional(), |allowed| allowed.imds_v1 = Permission::Denied, 0);
    check("userData", json!("#!/bin/sh"), |allowed| allowed.user_data = Permission::Denied, 0);
    check("associatePublicIPAddress", json!(false), deny_all, 1);
}
