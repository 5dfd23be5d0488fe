//! Existing and starting nodes, and their taints.

use serde_json::{Value, json};
use tenon_domain::claim::{Claim, ClaimState};
use tenon_domain::id::NodeName;

use super::*;

/// A Node with room for a pod of these tests, as the agent sees it.
fn node(name: &str, provider_id: &Value, taints: &[&str]) -> Value {
    let taint = |key: &&str| json!({"key": key, "effect": "NoSchedule"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("node-{name}"), "resourceVersion": "1", "labels": {}},
        "spec": {"providerID": provider_id, "taints": taints.iter().map(taint).collect::<Vec<_>>()},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"},
            "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn add_pod(cluster: &mut Cluster, pod: &Value) {
    cluster.objects.pods.push(Arc::new(SeenPod::read(pod).unwrap()));
}

/// A pod that tolerates a taint.
fn tolerating(name: &str, key: &str) -> Value {
    let mut pod = pod(name, "1500m", None);
    pod["spec"]["tolerations"] = json!([{"key": key, "operator": "Exists"}]);
    pod
}

fn pool_named(name: &str, weight: u32, spec: &Value) -> Arc<Value> {
    let mut made = pool(&[&["karpenter.sh/capacity-type", "on-demand"]]);
    made["metadata"]["name"] = json!(name);
    made["metadata"]["uid"] = json!(format!("pool-{name}"));
    made["spec"]["weight"] = json!(weight);
    for (field, value) in spec.as_object().unwrap() {
        made["spec"]["template"]["spec"][field] = value.clone();
    }
    Arc::new(made)
}

#[test]
fn a_node_of_nobody_takes_what_tolerates_its_taints() {
    let check = |pod: &Value, taints: &[&str], claims: usize| {
        let mut cluster = cluster(0);
        add_pod(&mut cluster, pod);
        cluster.objects.nodes = vec![Arc::new(node("stranger", &Value::Null, taints))];
        cluster.report().unwrap();
        wake(&cluster);
        assert_eq!(cluster.claims().unwrap().len(), claims, "{taints:?}");
    };
    let plain = pod("web", "1500m", None);
    check(&plain, &[], 0);
    check(&plain, &["dedicated"], 1);
    check(&tolerating("web", "dedicated"), &["dedicated"], 0);
    check(&tolerating("web", "dedicated"), &["dedicated", "other"], 1);
    // It isn't our node, so its startup taints don't go away by themselves.
    check(&plain, &["cni"], 1);
    check(&plain, &["node.kubernetes.io/not-ready"], 1);
}

/// The claim's Node takes pods now.
pub(super) fn initialize(cluster: &Cluster, claim: Claim) {
    let instance = claim.state.instance().unwrap().clone();
    let node = NodeName::parse(claim.name.as_str()).unwrap();
    let at = cluster.world.clock.now();
    let ready = Claim { state: ClaimState::Initialized { instance, node, at }, ..claim };
    let write = set(keys::claim(&cluster.name, &ready.name), &ready);
    block_on(cluster.world.table.commit(&content_commit(Vec::new(), vec![write]))).unwrap();
}

#[test]
fn c086_startup_taints_keep_pods_out_only_of_a_node_that_is_initialised() {
    let check = |initialized: bool, taints: &[&str], claims: usize| {
        let mut cluster = cluster(1);
        let startup = json!({"startupTaints": [{"key": "cni", "effect": "NoSchedule"}]});
        cluster.objects.node_pools = vec![pool_named("default", 1, &startup)];
        cluster.report().unwrap();
        wake(&cluster);
        let claim = cluster.claims().unwrap().remove(0);
        let instance = claim.state.instance().unwrap();
        let id = json!(format!("aws:///{}/{}", instance.zone, instance.id));
        cluster.objects.nodes = vec![Arc::new(node("starting", &id, taints))];
        if initialized {
            initialize(&cluster, claim);
        }
        add_pod(&mut cluster, &pod("late", "1500m", None));
        cluster.report().unwrap();
        wake(&cluster);
        assert_eq!(cluster.claims().unwrap().len(), claims, "{initialized} {taints:?}");
    };
    check(false, &["cni", "node.kubernetes.io/not-ready"], 1);
    check(false, &["cni", "dedicated"], 2);
    check(true, &[], 1);
    check(true, &["cni"], 2);
    check(true, &["node.kubernetes.io/not-ready"], 2);
}

#[test]
fn a_node_that_isnt_registered_yet_has_the_labels_and_taints_that_it_will_have() {
    let check = |late: &Value, initialized: bool, claims: usize| {
        let mut cluster = cluster(0);
        let dedicated = json!({"taints": [{"key": "dedicated", "effect": "NoSchedule"}]});
        cluster.objects.node_pools =
            vec![pool_named("dedicated", 50, &dedicated), pool_named("default", 1, &json!({}))];
        add_pod(&mut cluster, &tolerating("first", "dedicated"));
        cluster.report().unwrap();
        wake(&cluster);
        let claim = cluster.claims().unwrap().remove(0);
        assert_eq!(claim.pool.as_str(), "dedicated");
        let instance = claim.state.instance().unwrap();
        let id = json!(format!("aws:///{}/{}", instance.zone, instance.id));
        // The kubelet of a Custom image registers with neither.
        cluster.objects.nodes = vec![Arc::new(node("starting", &id, &[]))];
        if initialized {
            initialize(&cluster, claim);
        }
        add_pod(&mut cluster, late);
        cluster.report().unwrap();
        wake(&cluster);
        assert_eq!(cluster.claims().unwrap().len(), claims, "{late} {initialized}");
    };
    let mut selecting = tolerating("late", "dedicated");
    selecting["spec"]["nodeSelector"] = json!({"karpenter.k8s.aws/instance-category": "m"});
    check(&selecting, false, 1);
    check(&selecting, true, 2);
    check(&pod("late", "1500m", None), false, 2);
    check(&pod("late", "1500m", None), true, 1);
}

#[test]
fn a_claim_on_its_way_takes_only_pods_that_tolerate_its_pools_taints() {
    let check = |late: &Value, claims: usize| {
        let mut cluster = cluster(0);
        let taints = json!({"taints": [{"key": "dedicated", "effect": "NoSchedule"}], "requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]},
        ]});
        cluster.objects.node_pools =
            vec![pool_named("dedicated", 50, &taints), pool_named("default", 1, &json!({}))];
        add_pod(&mut cluster, &tolerating("first", "dedicated"));
        cluster.report().unwrap();
        wake(&cluster);
        assert_eq!(cluster.claims().unwrap()[0].pool.as_str(), "dedicated");
        add_pod(&mut cluster, late);
        cluster.report().unwrap();
        wake(&cluster);
        assert_eq!(cluster.claims().unwrap().len(), claims);
    };
    check(&tolerating("late", "dedicated"), 1);
    check(&pod("late", "1500m", None), 2);
}

#[test]
fn pods_of_several_groups_do_not_share_the_room_for_one() {
    let mut cluster = cluster(0);
    cluster.objects.nodes = vec![Arc::new(node("stranger", &Value::Null, &[]))];
    for (name, cpu) in [("a", "2500m"), ("b", "2600m"), ("c", "2700m")] {
        add_pod(&mut cluster, &pod(name, cpu, None));
    }
    cluster.report().unwrap();
    wake(&cluster);
    let counted: usize = cluster
        .launches()
        .unwrap()
        .iter()
        .flat_map(|launch| &launch.claims)
        .map(|claim| claim.pods.len())
        .sum();
    assert_eq!(counted, 2, "one of the three has room on the Node");
}
