//! Snapshots as their writers and readers see them.

mod bounded;

use super::*;
use crate::object::Kind;
use crate::pod::{PodRef, SeenPod};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use tenon_domain::api::pod::{PodPhase, Readiness, SchedulingVerdict};
use tenon_domain::drain_block::{DrainBlock, DrainObstacle};
use tenon_domain::manifest::pod_uid;
use tenon_domain::snapshot::{ActionProgress, ActionReport, Snapshot};
use tenon_memory_table::block_on;
use tenon_memory_table::{MemoryConfig, MemoryTable};
use tenon_table::{Commit, CommitToken, Consistency, Table, Write};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn quiet_table() -> MemoryTable {
    let zero = jiff::SignedDuration::ZERO;
    let config = MemoryConfig {
        seed: 0,
        staleness_max: zero,
        ttl_delay_max: zero,
        throughput: tenon_memory_table::Throughput::Off,
    };
    MemoryTable::new(config, Arc::new(|| Timestamp::UNIX_EPOCH))
}

fn cluster() -> ClusterName {
    ClusterName::parse("prod").unwrap()
}

fn pod(app: usize, n: usize, extra: Value) -> PodRef {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("web-{app}-7d9c5b7c8f-{n:05}"),
            "namespace": "shop",
            "uid": format!("{:08x}-1c2d-4e3f-8a9b-{:012x}", n * 2_654_435_761 % 4_294_967_296, n * 40_503 + app),
            "creationTimestamp": at(1_700_000_000 + (n as i64 * 37) % 10_000).to_string(),
            "resourceVersion": "1",
            "labels": {"app": format!("web-{app}"), "pod-template-hash": "7d9c5b7c8f"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{app}-7d9c5b7c8f"),
                "uid": format!("owner-{app}"), "controller": true}],
            "managedFields": [{"manager": "kube-controller-manager"}],
        },
        "spec": {
            "nodeName": format!("ip-10-0-{}-{}.ec2.internal", n % 7, n % 200),
            "containers": [{"name": "app", "image": "registry.example.com/web:1", "env": [{"name": "A", "value": "secret"}],
                "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300}],
            "terminationGracePeriodSeconds": 30,
        },
        "status": {"phase": "Running", "startTime": at(1_700_000_100 + n as i64 % 1_000).to_string(),
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True",
                "lastTransitionTime": at(1_700_000_050 + n as i64 % 1_000).to_string()}]},
    });
    merge(&mut pod, &extra);
    Arc::new(SeenPod::read(&pod).unwrap())
}

/// Sets a patch's fields; null takes a field away.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else { return *target = patch.clone() };
    for (key, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key.as_str()], value);
        }
    }
}

fn objects() -> ClusterObjects {
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "a", "uid": "n", "labels": {"kubernetes.io/arch": "amd64"}, "resourceVersion": "9",
            "annotations": {"csi.volume.kubernetes.io/nodeid": "{}", "karpenter.sh/nodepool-hash": "1"},
            "finalizers": ["karpenter.sh/termination"]},
        "spec": {"providerID": "aws:///us-east-1a/i-0abc", "taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3920m"}, "images": [{"names": ["x"]}],
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "KubeletReady"}]}});
    let stateful = json!({"metadata": {"labels": {"statefulset.kubernetes.io/pod-name": "db-1"}},
        "spec": {"nodeName": null}, "status": {"phase": "Pending", "startTime": null,
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "a"}}});
    let csi_node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "a", "uid": "c",
            "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"}},
        "spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "i-0abc", "allocatable": {"count": 25},
            "topologyKeys": ["topology.kubernetes.io/zone"]}]}});
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": "csi-0badcafe", "uid": "v", "finalizers": ["external-attacher/ebs-csi-aws-com"]},
        "spec": {"attacher": "ebs.csi.aws.com", "nodeName": "a", "source": {"persistentVolumeName": "pv-1"}},
        "status": {"attached": true}});
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"a": "b"}},
        "spec": {"selector": {"app": "web"}, "clusterIP": "10.0.0.1", "ports": [{"port": 80}]}});
    ClusterObjects {
        attachments: vec![Arc::new(csi_node), Arc::new(attachment)],
        services: vec![Arc::new(service)],
        pods: vec![
            pod(1, 0, json!({})),
            pod(1, 1, stateful),
            pod(1, 2, json!({"status": {"phase": "Succeeded"}})),
        ],
        nodes: vec![Arc::new(node)],
        namespaces: vec![Arc::new(namespace)],
        reports: vec![
            ActionReport {
                claim: "a-1".into(),
                number: 3,
                progress: ActionProgress::Working {
                    pods_left: 2,
                    blocks: vec![DrainBlock {
                        by: DrainObstacle::PodDisruptionBudget,
                        names: vec!["a/web".to_owned()],
                        first: "a/web-1".to_owned(),
                        count: 2,
                    }],
                },
            },
            ActionReport {
                claim: "a-2".into(),
                number: 4,
                progress: ActionProgress::Left { volumes: vec!["pv-1".to_owned()] },
            },
        ],
        ..ClusterObjects::default()
    }
}

struct Fixture {
    table: MemoryTable,
    encoder: Encoder,
    manifest: Option<Manifest>,
}

impl Fixture {
    fn new() -> Self {
        Self { table: quiet_table(), encoder: Encoder::default(), manifest: None }
    }

    fn write(&mut self, objects: &ClusterObjects, now: i64) -> Encoded {
        let encoded = self.encoder.encode(objects, self.manifest.as_ref(), at(now));
        let generation = self.manifest.as_ref().map_or(1, |manifest| manifest.generation + 1);
        let written = block_on(write(&self.table, &cluster(), &encoded, generation, self.manifest.as_ref()));
        self.manifest = Some(written.unwrap());
        block_on(encoded.retire_dropped(&self.table, &cluster(), at(now))).unwrap();
        encoded
    }

    fn read(&self, cache: &mut ChunkCache) -> Snapshot {
        block_on(read(&self.table, &cluster(), Consistency::Strong, cache)).unwrap().unwrap()
    }
}

#[test]
fn the_forms_of_chunks_are_stable() {
    let encoded = Encoder::default().encode(&objects(), None, at(0));
    let mut text = String::new();
    for chunk in &encoded.new {
        let content = Chunk::unpack(&chunk.to_item(), size::SizeBudget::new(1 << 20)).unwrap().0;
        text.push_str(&format!(
            "{}/{}\n{}\n",
            chunk.name.kind,
            chunk.name.digest,
            serde_json::to_string_pretty(&content).unwrap()
        ));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_snapshot_comes_back_in_the_domains_types() {
    let mut fixture = Fixture::new();
    fixture.write(&objects(), 100);
    let snapshot = fixture.read(&mut ChunkCache::default());
    assert_eq!((snapshot.generation, snapshot.seen_at), (1, at(100)));
    assert_eq!(snapshot.unreadable, []);
    let [running, waiting] = snapshot.pods.as_slice() else { panic!("finished pods are left out") };
    assert_eq!(running.name.to_string(), "shop/web-1-7d9c5b7c8f-00000");
    assert_eq!((running.phase, running.readiness), (PodPhase::Running, Readiness::Ready));
    assert_eq!(running.shape.requests.to_string(), "cpu: 250m, memory: 512Mi, pods: 1");
    assert_eq!(running.shape.owner.as_ref().unwrap().kind, "ReplicaSet");
    assert_eq!((waiting.node.clone(), waiting.scheduling), (None, SchedulingVerdict::Unschedulable));
    assert_eq!(waiting.shape.labels["statefulset.kubernetes.io/pod-name"], "db-1");
    assert_eq!(snapshot.nodes[0].meta.finalizers, ["karpenter.sh/termination"]);
    assert_eq!(snapshot.nodes[0].readiness, Readiness::Ready);
    assert_eq!(snapshot.namespaces["shop"]["team"], "a");
    assert_eq!(snapshot.reports, objects().reports);
    assert_eq!(snapshot.csi_nodes[0].drivers, [("ebs.csi.aws.com".to_owned(), Some(25))].into());
    let attached = &snapshot.volume_attachments[0];
    assert_eq!((attached.node.as_str(), attached.volume.as_deref()), ("a", Some("pv-1")));
    assert_eq!(snapshot.services[0].selector, Some([("app".to_owned(), "web".to_owned())].into()));
}

#[test]
fn a_bound_pod_is_known_by_its_name_and_a_waiting_one_by_its_uid() {
    let stays = json!({"metadata": {"name": "kept", "annotations": {"karpenter.sh/do-not-disrupt": "1h"}}});
    // No UID is as long.
    let long = "a".repeat(150);
    let mut given = objects();
    given.pods.extend([pod(1, 3, stays), pod(1, 4, json!({"metadata": {"name": long}}))]);
    // Namespaces have names of their own.
    given.pods.push(pod(1, 0, json!({"metadata": {"namespace": "other", "uid": "another"}})));
    let mut fixture = Fixture::new();
    fixture.write(&given, 100);
    let snapshot = fixture.read(&mut ChunkCache::default());
    assert_eq!(snapshot.unreadable, []);
    let [other, long, kept, bound, waiting] = snapshot.pods.as_slice() else { panic!("{:?}", snapshot.pods) };
    assert_eq!(Ok(bound.uid.clone()), pod_uid("shop", "web-1-7d9c5b7c8f-00000"));
    assert_eq!((bound.created_at, bound.started_at), (None, None));
    assert_eq!((bound.bound_at, waiting.bound_at), (Some(at(1_700_000_050)), None));
    assert_ne!(other.uid, bound.uid);
    assert!(long.uid.as_str().ends_with("-1c2d-4e3f-8a9b-0000000278dd"), "{}", long.uid);
    assert_eq!(kept.started_at, Some(at(1_700_000_103)));
    assert_eq!(waiting.uid.as_str(), "9e3779b1-1c2d-4e3f-8a9b-000000009e38");
    assert_eq!(waiting.created_at, Some(at(1_700_000_037)));
}

#[test]
fn rows_of_older_agents_are_read() {
    let mut fixture = Fixture::new();
    let mut encoded = fixture.encoder.encode(&objects(), None, at(0));
    let shape = objects().pods[0].shape().digest().to_owned();
    let row = json!([
        "web-1",
        "5a1c0e52-bound",
        1_700_000_000,
        "ip-10-0-0-0.ec2.internal",
        "Running",
        "r",
        1_700_000_100
    ]);
    let older = Chunk::pack(ChunkKind::Pods, 0, &json!({"v": 1, "groups": {shape: [row]}}).to_string());
    encoded.manifest.chunks.retain(|chunk| chunk.kind != ChunkKind::Pods);
    encoded.manifest.chunks.push(older.name.clone());
    encoded.new.push(older);
    block_on(write(&fixture.table, &cluster(), &encoded, 1, None)).unwrap();
    let snapshot = fixture.read(&mut ChunkCache::default());
    let [bound] = snapshot.pods.as_slice() else { panic!("{:?}", snapshot.pods) };
    assert_eq!(bound.uid.as_str(), "5a1c0e52-bound");
    assert_eq!((bound.bound_at, bound.started_at), (Some(at(1_700_000_000)), Some(at(1_700_000_100))));
}

#[test]
fn a_heartbeat_counts_for_its_own_generation_only() {
    let mut fixture = Fixture::new();
    fixture.write(&objects(), 100);
    let beat_at = |generation, second| {
        block_on(beat(&fixture.table, &cluster(), Heartbeat { generation, seen_at: at(second) })).unwrap();
        fixture.read(&mut ChunkCache::default()).seen_at
    };
    assert_eq!(beat_at(1, 140), at(140));
    assert_eq!(beat_at(2, 180), at(100));
}

#[test]
fn one_bad_object_hides_no_other() {
    let mut bad = objects();
    bad.nodes.push(Arc::new(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bad"},
        "spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}})));
    let mut fixture = Fixture::new();
    fixture.write(&bad, 0);
    let snapshot = fixture.read(&mut ChunkCache::default());
    assert_eq!(snapshot.nodes.len(), 1);
    let bad = &snapshot.unreadable[0];
    assert_eq!((bad.kind.as_str(), bad.name.as_str()), ("Node", "bad"));
    assert!(bad.errors[0].starts_with("spec.taints[0]"), "{bad:?}");
}

#[test]
fn fields_of_newer_versions_hide_nothing_and_those_that_mean_something_are_named() {
    let node_class_ref = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default", "new": 1},
        "spec": {"new": {}, "template": {"spec": {"nodeClassRef": node_class_ref, "requirements": [], "other": 1}}}});
    let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {"amiFamily": "AL2023", "role": "nodes", "amiSelectorTerms": [{"id": "ami-1"}], "new": true,
            "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}]}});
    let mut newer = objects();
    newer.nodes = newer
        .nodes
        .iter()
        .map(|node| {
            let mut node = Value::clone(node);
            (node["spec"]["new"], node["status"]["new"], node["new"]) = (json!(1), json!({}), json!([]));
            Arc::new(node)
        })
        .collect();
    newer.pods = vec![
        pod(1, 0, json!({"spec": {"new": 1, "containers": [{"name": "a", "new": 1}]}})),
        pod(1, 1, json!({"spec": {"nodeName": null, "affinity": {"new": {}}}})),
    ];
    newer.node_pools = vec![Arc::new(keep(Kind::NodePool, pool))];
    newer.node_classes = vec![Arc::new(keep(Kind::Ec2NodeClass, class))];
    let mut fixture = Fixture::new();
    fixture.write(&newer, 0);
    let snapshot = fixture.read(&mut ChunkCache::default());
    assert_eq!((snapshot.unreadable.len(), snapshot.nodes.len()), (0, 1));
    let unknown: Vec<&[String]> = snapshot.pods.iter().map(|pod| pod.shape.unknown.as_slice()).collect();
    assert_eq!(unknown, [&[][..], &["spec.affinity.new".to_owned()]]);
    assert_eq!(snapshot.node_pools[0].unknown, ["spec.new", "spec.template.spec.other"]);
    assert_eq!(snapshot.node_classes[0].unsupported, ["spec.new"]);
}

/// What an agent wrote whose fields were listed by hand: more of a volume and of a DaemonSet than is read.
#[test]
fn chunks_of_older_agents_are_read() {
    let shape = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"app":"web"},"name":"shape","namespace":"shop","ownerReferences":[{"apiVersion":"apps/v1","controller":true,"kind":"ReplicaSet","name":"web-7d","uid":"u"}]},"spec":{"containers":[{"name":"app","ports":[{"containerPort":80,"hostPort":80,"name":"http","protocol":"TCP"}],"resources":{"requests":{"cpu":"250m"}}}],"schedulerName":"default-scheduler","tolerations":[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300}],"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"data","readOnly":true}}]},"status":{"containerStatuses":[{"allocatedResources":{"cpu":"2"},"name":"app"}]}}"#;
    let set = r#"{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"generation":1,"name":"cni","namespace":"kube-system","uid":"d"},"spec":{"selector":{"matchLabels":{"app":"cni"}},"template":{"metadata":{"labels":{"app":"cni"}},"spec":{"containers":[{"name":"cni","resources":{}}]}}}}"#;
    let mut fixture = Fixture::new();
    let mut encoded = fixture.encoder.encode(&ClusterObjects::default(), None, at(0));
    for (kind, content) in [
        (ChunkKind::Shapes, format!(r#"{{"shapes":{{"0011223344556677":{shape}}},"v":1}}"#)),
        (
            ChunkKind::Pods,
            r#"{"groups":{"0011223344556677":[["web-7d-x","uid-1",1700000000,"","Pending","u"]]},"v":1}"#
                .to_owned(),
        ),
        (ChunkKind::DaemonSets, format!(r#"{{"items":[{set}],"v":1}}"#)),
    ] {
        let chunk = Chunk::pack(kind, 0, &content);
        encoded.manifest.chunks.push(chunk.name.clone());
        encoded.new.push(chunk);
    }
    block_on(write(&fixture.table, &cluster(), &encoded, 1, None)).unwrap();
    let snapshot = fixture.read(&mut ChunkCache::default());
    assert_eq!((snapshot.unreadable.len(), snapshot.daemon_sets.len()), (0, 1));
    let shape = &snapshot.pods[0].shape;
    assert_eq!(shape.requests.to_string(), "cpu: 2, pods: 1");
    assert_eq!((shape.host_ports.len(), shape.volumes.len(), shape.unknown.len()), (1, 1, 0));
}

/// A sidecar and the pod as a whole are being lowered, the container isn't.
#[test]
fn what_a_node_reserves_while_a_pod_is_resized_counts() {
    let cpu = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let lowered = json!({
        "spec": {
            "resources": {"requests": {"memory": "1Gi"}},
            "initContainers": [{"name": "proxy", "restartPolicy": "Always", "resources": cpu("100m")}]},
        "status": {
            "allocatedResources": {"memory": "2Gi"}, "resources": {"requests": {"memory": "3Gi"}},
            "containerStatuses": [{"name": "app", "allocatedResources": {"cpu": "250m"}, "resources": cpu("250m")}],
            "initContainerStatuses": [
                {"name": "proxy", "allocatedResources": {"cpu": "100m"}, "resources": cpu("500m")}]}});
    let mut fixture = Fixture::new();
    fixture.write(&ClusterObjects { pods: vec![pod(1, 0, lowered)], ..ClusterObjects::default() }, 0);
    let snapshot = fixture.read(&mut ChunkCache::default());
    assert_eq!(snapshot.pods[0].shape.requests.to_string(), "cpu: 750m, memory: 3Gi, pods: 1");
}

#[test]
fn of_a_resize_that_its_node_can_never_grant_the_reserve_alone_counts() {
    let check = |reason: &str, expected: &str| {
        let raised = json!({
            "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1500m"}}}, {"name": "log",
                "resources": {"requests": {"cpu": "100m"}}}]},
            "status": {
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
                "containerStatuses": [
                    {"name": "app", "allocatedResources": {"cpu": "500m"}, "resources": {"requests": {"cpu": "500m"}}},
                    {"name": "log", "allocatedResources": {"cpu": "100m"}, "resources": {"requests": {"cpu": "100m"}}}]}});
        let mut fixture = Fixture::new();
        fixture.write(&ClusterObjects { pods: vec![pod(1, 0, raised)], ..ClusterObjects::default() }, 0);
        let snapshot = fixture.read(&mut ChunkCache::default());
        assert_eq!(snapshot.pods[0].shape.requests.to_string(), expected, "{reason}");
    };
    check("Infeasible", "cpu: 600m, pods: 1");
    check("Deferred", "cpu: 1600m, pods: 1");
}

#[test]
fn an_unchanged_cluster_writes_nothing_and_a_reader_reads_what_changed() {
    let mut fixture = Fixture::new();
    let first = fixture.write(&objects(), 0);
    let again = fixture.encoder.encode(&objects(), fixture.manifest.as_ref(), at(1));
    assert!(again.changed.is_empty() && again.new.is_empty() && again.dropped.is_empty());
    let mut cache = ChunkCache::default();
    fixture.read(&mut cache);
    let mut changed = objects();
    changed.namespaces.clear();
    let second = fixture.write(&changed, 2);
    assert_eq!(second.changed.iter().map(|kind| kind.as_str()).collect::<Vec<_>>(), ["namespaces"]);
    // Everything but the manifest is in the reader's cache: chunks may go.
    for chunk in &first.new {
        let commit = Commit {
            token: CommitToken::parse("gone").unwrap(),
            conditions: vec![],
            writes: vec![Write::Delete { key: chunk_key(&cluster(), &chunk.name) }],
        };
        block_on(fixture.table.commit(&commit)).unwrap();
    }
    assert!(fixture.read(&mut cache).namespaces.is_empty());
    let torn = block_on(read(&fixture.table, &cluster(), Consistency::Strong, &mut ChunkCache::default()));
    assert!(matches!(torn, Err(ReadError::Torn { generation: 2, .. })));
}

#[test]
fn chunks_that_are_dropped_end_in_an_hour_and_come_back_whole() {
    let mut fixture = Fixture::new();
    fixture.write(&objects(), 0);
    let mut changed = objects();
    changed.namespaces.clear();
    let dropped = fixture.write(&changed, 10).dropped;
    let expires = |fixture: &Fixture| {
        let item =
            block_on(fixture.table.get(&chunk_key(&cluster(), &dropped[0]), Consistency::Strong)).unwrap();
        item.unwrap().get("expires_at").and_then(|v| v.as_number().and_then(tenon_table::Number::to_i64))
    };
    assert_eq!(expires(&fixture), Some(3_610));
    fixture.write(&objects(), 20);
    assert_eq!(expires(&fixture), None);
    let orphan = Chunk::pack(ChunkKind::Nodes, 0, "{}");
    let write = Write::Put { key: chunk_key(&cluster(), &orphan.name), item: orphan.to_item() };
    let commit = Commit { token: CommitToken::parse("o").unwrap(), conditions: vec![], writes: vec![write] };
    block_on(fixture.table.commit(&commit)).unwrap();
    let retire =
        || block_on(retire_orphans(&fixture.table, &cluster(), fixture.manifest.as_ref().unwrap(), at(30)));
    assert_eq!((retire().unwrap(), retire().unwrap()), (1, 0));
}

#[test]
fn two_agents_never_write_over_each_other() {
    let mut fixture = Fixture::new();
    let encoded = fixture.write(&objects(), 0);
    let late = block_on(write(&fixture.table, &cluster(), &encoded, 1, None));
    assert!(matches!(late, Err(WriteError::LostRace)));
}

/// Somebody may end a drain earlier than its NodePool says.
#[test]
fn the_annotated_end_of_a_drain_is_sent() {
    let end = json!({"karpenter.sh/nodeclaim-termination-timestamp": "2026-01-01T00:00:00Z"});
    let object = json!({"apiVersion": Kind::NodeClaim.api_version(), "kind": Kind::NodeClaim.as_str(),
        "metadata": {"name": "a", "annotations": end}});
    let sent = project::sent(&keep(Kind::NodeClaim, object));
    assert_eq!(sent.pointer("/metadata/annotations"), Some(&end));
}

/// An agent that doesn't see its own annotation writes it again and again; one that sends it rings functions for nothing.
#[test]
fn annotations_that_the_agent_writes_are_kept_and_not_sent() {
    let check = |kind: Kind, name: &str| {
        let object = json!({"apiVersion": kind.api_version(), "kind": kind.as_str(),
            "metadata": {"name": "a", "annotations": {name: "1"}}});
        let kept = keep(kind, object);
        let annotation = |object: &Value| {
            object.pointer("/metadata/annotations").and_then(|all| all.get(name)).and_then(Value::as_str)
                == Some("1")
        };
        assert_eq!((annotation(&kept), annotation(&project::sent(&kept))), (true, false), "{name}");
    };
    check(Kind::NodePool, "karpenter.sh/nodepool-hash");
    check(Kind::NodePool, "karpenter.sh/nodepool-hash-version");
    check(Kind::Ec2NodeClass, "karpenter.k8s.aws/ec2nodeclass-hash");
}
