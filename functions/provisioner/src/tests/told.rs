//! Findings about pods and claims without a node or launch, and the time of the next look.

use serde_json::{Value, json};
use tenon_domain::claim::BINDING_WINDOW;
use tenon_domain::journal::{JournalRecord, SubjectKind};
use tenon_domain::launch::LaunchClaim;

use tenon_table::items::add_step;

use super::probes::{dried, marks};
use super::*;

/// The journals of pods or claims, by name.
pub(super) fn told(cluster: &Cluster, of: SubjectKind) -> Vec<JournalRecord> {
    let journals = format!("JOURNAL#prod#{}#", of.as_str());
    let items = cluster.world.table.dump().filter(|(key, _)| key.pk.starts_with(&journals));
    items.map(|(key, item)| from_item(&key, &item).unwrap()).collect()
}

/// After how long the provisioner wakes itself.
pub(super) fn woken(cluster: &Cluster) -> Vec<SignedDuration> {
    let own = |rung| match rung {
        RungBell::Wake { function: FunctionName::Provisioner, after, .. } => Some(after),
        RungBell::Wake { .. } | RungBell::Agent(_) | RungBell::Event(_) => None,
    };
    cluster.world.signals.take().into_iter().filter_map(own).collect()
}

fn selecting(name: &str, disk: &str) -> Arc<SeenPod> {
    let mut made = pod(name, "1500m", None);
    made["spec"]["nodeSelector"] = json!({"disk": disk});
    Arc::new(SeenPod::read(&made).unwrap())
}

/// Nobody knows where another scheduler would put it.
#[test]
fn a_pod_of_another_scheduler_is_left_alone_and_its_user_is_told() {
    let mut cluster = cluster(0);
    let mut other = pod("batch", "1500m", None);
    other["spec"]["schedulerName"] = json!("volcano");
    cluster.objects.pods = vec![Arc::new(SeenPod::read(&other).unwrap())];
    cluster.report().unwrap();
    wake(&cluster);
    assert_eq!(cluster.claims().unwrap(), []);
    let messages = told(&cluster, SubjectKind::Pod).into_iter().map(|record| record.message);
    assert_eq!(
        messages.collect::<Vec<_>>(),
        [
            "making no node for pod `default/batch`: scheduler `volcano` places it; Tenon makes nodes for the pods of \
             `default-scheduler`"
        ]
    );
}

/// Karpenter's own Deployment is one of them. Somebody else makes their nodes.
#[test]
fn a_pod_that_runs_on_nodes_of_no_node_pool_is_passed_over() {
    let check = |terms: Value, records: usize| {
        let mut cluster = cluster(0);
        let mut apart = pod("controller", "1500m", None);
        apart["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": terms});
        cluster.objects.pods = vec![Arc::new(SeenPod::read(&apart).unwrap())];
        cluster.report().unwrap();
        wake(&cluster);
        assert_eq!(cluster.claims().unwrap(), []);
        assert_eq!(told(&cluster, SubjectKind::Pod).len(), records, "{terms}");
    };
    let apart = json!({"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]});
    let lost = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]});
    check(json!([apart]), 0);
    // Its terms are ORed.
    check(json!([apart, lost]), 1);
}

#[test]
fn pods_that_are_refused_alike_are_told_of_once() {
    let check = |pods: &[(&str, &str)], expected: &[(&str, &str)]| {
        let mut cluster = cluster(0);
        cluster.objects.pods = pods.iter().map(|(name, disk)| selecting(name, disk)).collect();
        cluster.report().unwrap();
        wake(&cluster);
        let told = told(&cluster, SubjectKind::Pod);
        assert_eq!(told.len(), expected.len(), "{told:?}");
        for (record, (begins, pods)) in told.iter().zip(expected) {
            assert!(record.message.starts_with(begins), "{}", record.message);
            assert_eq!(record.details["pods"], *pods);
        }
        // No time changes that: it is looked at when the cluster changes.
        assert_eq!(woken(&cluster), []);
    };
    check(&[("a", "ssd")], &[("no node for pod `default/a`: ", "1")]);
    check(&[("a", "ssd"), ("b", "ssd")], &[("no node for 2 pods (`default/a`, `default/b`): ", "2")]);
    check(
        &[("a", "ssd"), ("b", "ssd"), ("c", "ssd")],
        &[("no node for 3 pods (`default/a`, `default/b`, `default/c`): ", "3")],
    );
}

#[test]
fn a_launch_that_can_not_be_made_is_told_and_tried_again_soon() {
    let mut cluster = cluster(1);
    let mut class = serde_json::Value::clone(&*cluster.objects.node_classes[0]);
    class["spec"]["userData"] = json!("MIME-Version: 1.0\nContent-Type: multipart/mixed\n\nx");
    cluster.objects.node_classes = vec![Arc::new(class)];
    cluster.report().unwrap();
    wake(&cluster);
    assert!(cluster.claims().unwrap().is_empty());
    let told: Vec<String> =
        told(&cluster, SubjectKind::Claim).into_iter().map(|record| record.message).collect();
    let expected =
        "invalid user data: `spec.userData` begins with a MIME header, but isn't a MIME multipart archive";
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("not launching NodeClaim `") && told[0].contains(expected), "{told:?}");
    assert_eq!(woken(&cluster), [SignedDuration::from_secs(55)]);
}

#[test]
fn a_refused_pool_is_looked_at_when_its_next_launch_is_due() {
    let cluster = cluster(1);
    cluster.world.ec2.deny(Call::CreateFleet, "no");
    wake(&cluster);
    let due = marks(&cluster)[0].blocked_until().duration_since(cluster.world.clock.now());
    let soonest = woken(&cluster).into_iter().min().unwrap();
    // Whole seconds, rounded up.
    assert!((0..=1).contains(&(soonest - due).as_secs()), "{soonest:?} {due:?}");
    // So does a look in between.
    advance(&cluster, SignedDuration::from_secs(30));
    cluster.put(add_step(&cluster.name)).unwrap();
    wake(&cluster);
    let again = woken(&cluster).into_iter().min().unwrap();
    assert!((0..=31).contains(&(due - again).as_secs()), "{again:?} {due:?}");
}

#[test]
fn a_launch_that_ec2_throttles_again_and_again_is_told_of_once() {
    let cluster = cluster(1);
    let throttled = Ec2Error::Throttled { action: "CreateFleet".to_owned() };
    let (when, effect) = (FaultWhen::Next(5), FaultEffect::Refused(throttled));
    cluster.world.ec2.inject(Fault { call: Call::CreateFleet, when, effect });
    let check = |expected: usize| {
        wake(&cluster);
        let told = told(&cluster, SubjectKind::Claim).into_iter().map(|record| record.message);
        let told: Vec<String> = told.filter(|message| message.starts_with("no instance yet for")).collect();
        assert_eq!(told.len(), expected, "{told:?}");
        advance(&cluster, SignedDuration::from_secs(61));
    };
    [0, 0, 1, 1].into_iter().for_each(check);
    // Another claim, which comes first by its name, is no news either.
    let (launch, claim) = (cluster.launches().unwrap().remove(0), cluster.claims().unwrap().remove(0));
    let not_before = cluster.world.clock.now() + SignedDuration::from_hours(1);
    let claim =
        Claim { name: "default-00000".parse().unwrap(), launch: "launch-0".parse().unwrap(), ..claim };
    let launch = Launch {
        id: claim.launch.clone(),
        claims: vec![LaunchClaim { name: claim.name.clone(), pods: Vec::new() }],
        state: LaunchState::Requested { attempts: 3, not_before },
        ..launch
    };
    cluster.put(set(keys::launch(&cluster.name, &launch.id), &launch)).unwrap();
    cluster.put(set(keys::claim(&cluster.name, &claim.name), &claim)).unwrap();
    cluster.put(add_step(&cluster.name)).unwrap();
    check(1);
}

/// Two claims would probe the same mark; one launch does, and the other claim waits for its answer.
#[test]
fn a_claim_that_leaves_it_to_another_to_ask_is_not_told_of_as_a_failure() {
    let mut cluster = dried(1);
    cluster.objects.pods.push(Arc::new(SeenPod::read(&pod("large", "3500m", None)).unwrap()));
    cluster.report().unwrap();
    advance(&cluster, SignedDuration::from_secs(68));
    let observed = block_on(observe(&cluster.world, &cluster.name, WANTS, &Caches::default())).unwrap();
    let (planned, report) = plan::plan(&cluster.name, &cluster.world.installation.region, &observed);
    let refused: Vec<_> = planned.built.refused.iter().map(|(_, why)| why.to_string()).collect();
    assert_eq!((planned.built.launches.len(), planned.wake_at.is_some()), (1, true));
    assert_eq!(refused, ["another launch already asks EC2 for this capacity"]);
    assert_eq!(report, Report::default());
}

#[test]
fn a_pod_that_is_not_bound_to_the_node_that_came_for_it_is_looked_at_again_when_its_time_is_over() {
    let mut cluster = cluster(1);
    wake(&cluster);
    let claim = cluster.claims().unwrap().remove(0);
    cluster.objects.nodes = vec![Arc::new(node_of(&claim, "2"))];
    cluster.report().unwrap();
    nodes::initialize(&cluster, claim);
    let _ = cluster.world.signals.take();
    wake(&cluster);
    assert_eq!(woken(&cluster), [BINDING_WINDOW]);
}

#[test]
fn a_pod_that_can_not_be_read_is_told_with_its_field() {
    let mut cluster = cluster(0);
    let mut made = pod("odd", "1500m", None);
    made["metadata"]["namespace"] = json!("default");
    made["spec"]["tolerations"] = json!([{"key": "team", "operator": "Around"}]);
    cluster.objects.pods = vec![Arc::new(SeenPod::read(&made).unwrap())];
    cluster.report().unwrap();
    wake(&cluster);
    let told: Vec<String> =
        told(&cluster, SubjectKind::Pod).into_iter().map(|record| record.message).collect();
    let expected = "ignoring invalid pod `default/odd`: spec.tolerations[0].operator";
    assert!(told[0].starts_with(expected), "{told:?}");
}
