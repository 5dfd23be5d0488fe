//! Volumes and limits on them, from the agent's report to the plan.

use serde_json::{Value, json};

use super::*;

/// A pod that uses a claim of its own.
fn using(claim: &str) -> Value {
    let mut pod = pod(claim, "100m", None);
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    pod
}

/// A node of nobody with much room, and pods with a volume each, of which the first is attached already.
fn with_pods(count: usize) -> Cluster {
    let mut cluster = cluster(0);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here", "resourceVersion": "1"},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "200"},
            "conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.objects.nodes = vec![Arc::new(node)];
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "ebs"},
        "provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.objects.volumes.push(Arc::new(class));
    for index in 0..count {
        let name = format!("data-{index}");
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"storageClassName": "ebs"}});
        cluster.objects.volumes.push(Arc::new(claim));
        cluster.objects.pods.push(Arc::new(SeenPod::read(&using(&name)).unwrap()));
    }
    cluster
}

fn counted(cluster: &Cluster) -> usize {
    let launches = cluster.launches().unwrap();
    launches.iter().flat_map(|launch| &launch.claims).map(|claim| claim.pods.len()).sum()
}

#[test]
fn a_node_that_is_full_of_volumes_gets_no_pod_with_another() {
    let check = |most: u64, attached: &[&str], launched_for: usize| {
        let mut cluster = with_pods(4);
        let driver = json!({"name": "ebs.csi.aws.com", "nodeID": "i-0abc", "allocatable": {"count": most}});
        let csi_node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "here"},
            "spec": {"drivers": [driver]}});
        cluster.objects.attachments.push(Arc::new(csi_node));
        for volume in attached {
            let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
                "metadata": {"name": format!("csi-{volume}")}, "spec": {"attacher": "ebs.csi.aws.com",
                "nodeName": "here", "source": {"persistentVolumeName": volume}}});
            cluster.objects.attachments.push(Arc::new(attachment));
        }
        cluster.report().unwrap();
        wake(&cluster);
        assert_eq!(counted(&cluster), launched_for, "{most} {attached:?}");
    };
    check(4, &[], 0);
    check(3, &[], 1);
    check(3, &["leaving"], 2);
    check(1, &["leaving"], 4);
}

#[test]
fn a_new_node_gets_no_more_volumes_than_its_type_attaches() {
    let mut cluster = with_pods(60);
    cluster.objects.nodes.clear();
    cluster.report().unwrap();
    wake(&cluster);
    let launches = cluster.launches().unwrap();
    let pods: Vec<usize> =
        launches.iter().flat_map(|launch| &launch.claims).map(|claim| claim.pods.len()).collect();
    assert_eq!(pods.iter().sum::<usize>(), 60);
    assert!(pods.iter().all(|pods| *pods <= 31), "{pods:?}");
}

/// Kubernetes makes the claim with the pod, and a StorageClass that binds at once gives it a volume in some zone.
#[test]
fn a_bound_ephemeral_volume_decides_the_zone_of_its_pod() {
    let zones = |volume: &str| {
        let mut cluster = with_pods(0);
        cluster.objects.nodes.clear();
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": "at-once"}, "provisioner": "ebs.csi.aws.com", "volumeBindingMode": "Immediate"});
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "web-scratch", "namespace": "default"},
            "spec": {"storageClassName": "at-once", "volumeName": volume}});
        let terms = json!([{"matchExpressions": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1b"]}]}]);
        let made = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
            "spec": {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
        cluster.objects.volumes.extend([class, claim, made].map(Arc::new));
        let mut web = pod("web", "100m", None);
        let template = json!({"spec": {"storageClassName": "at-once"}});
        web["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
        cluster.objects.pods = vec![Arc::new(SeenPod::read(&web).unwrap())];
        cluster.report().unwrap();
        wake(&cluster);
        let launches = cluster.launches().unwrap();
        let fleets = launches.iter().map(|launch| CreateFleetRequest::from_stored(&launch.request).unwrap());
        let overrides =
            fleets.flat_map(|fleet| fleet.launch_templates).flat_map(|template| template.overrides);
        overrides.filter_map(|one| Some(one.zone?.to_string())).collect::<BTreeSet<_>>()
    };
    assert_eq!(zones("pv"), BTreeSet::from(["us-east-1b".to_owned()]));
    assert_eq!(zones(""), BTreeSet::new());
}
