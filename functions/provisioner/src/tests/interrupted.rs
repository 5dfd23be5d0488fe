//! Pods of interrupted nodes, and the report that they wait for.

use serde_json::{Value, json};
use tenon_domain::claim::{ClaimState, RemovalReason};
use tenon_harness::claims;

use super::*;

/// The only claim's Node, with room for two pods of these tests.
fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": claims::node_name(0).as_str(), "uid": "node-0", "resourceVersion": "1", "labels": {}},
        "spec": {"providerID": format!("aws:///us-east-1a/{}", claims::instance_id(0))},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"},
            "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// A cluster with a node, a bound pod and a pending one for each name, that was reported a while before EC2 takes the node
/// back.
fn interrupted(pending: &[&str]) -> Cluster {
    let mut cluster = cluster(0);
    let bound = pod("web", "1500m", Some(claims::node_name(0).as_str()));
    let waiting = pending.iter().map(|name| pod(name, "1500m", None));
    let pods = std::iter::once(bound).chain(waiting);
    cluster.objects.pods = pods.map(|pod| Arc::new(SeenPod::read(&pod).unwrap())).collect();
    cluster.objects.nodes = vec![Arc::new(node())];
    cluster.report().unwrap();
    cluster.world.clock.advance(SignedDuration::from_secs(20));
    let at = cluster.world.clock.now();
    let state = ClaimState::Draining {
        instance: claims::instance(0),
        node: Some(claims::node_name(0)),
        reason: RemovalReason::SpotInterrupted,
        at,
        deadline: Some(at + SignedDuration::from_secs(120)),
    };
    let claim = claims::claim(0, state);
    cluster.put(set(keys::claim(&cluster.name, &claim.name), &claim)).unwrap();
    cluster
}

/// The replacements.
fn planned(cluster: &Cluster) -> usize {
    cluster.claims().unwrap().len() - 1
}

#[test]
fn a_pod_that_left_since_the_last_report_gets_no_replacement() {
    let mut cluster = interrupted(&[]);
    wake(&cluster);
    assert_eq!(planned(&cluster), 0, "the report is older than the drain");
    cluster.world.clock.advance(SignedDuration::from_secs(1));
    cluster.objects.pods.clear();
    cluster.report().unwrap();
    wake(&cluster);
    cluster.world.clock.advance(SignedDuration::from_secs(10));
    wake(&cluster);
    assert_eq!(planned(&cluster), 0);
}

#[test]
fn a_pod_that_is_still_there_gets_one_once_it_is_reported() {
    let mut cluster = interrupted(&[]);
    wake(&cluster);
    cluster.world.clock.advance(SignedDuration::from_secs(1));
    cluster.report().unwrap();
    wake(&cluster);
    assert_eq!(planned(&cluster), 1);
}

#[test]
fn a_replacement_waits_three_seconds_for_a_report_at_most() {
    let cluster = interrupted(&[]);
    for expected in [0, 0, 0, 1] {
        wake(&cluster);
        assert_eq!(planned(&cluster), expected);
        cluster.world.clock.advance(SignedDuration::from_secs(1));
    }
}

#[test]
fn pending_pods_do_not_wait_for_it() {
    let cluster = interrupted(&["new"]);
    wake(&cluster);
    assert_eq!(planned(&cluster), 1);
    let counted: Vec<String> = cluster
        .launches()
        .unwrap()
        .iter()
        .flat_map(|launch| &launch.claims)
        .flat_map(|claim| &claim.pods)
        .map(ToString::to_string)
        .collect();
    assert_eq!(counted, ["uid-new"]);
}
