//! The agent's usage at 1,000 nodes and 20,000 pods, and its writes: the binary, a real API server, DynamoDB Local. CI
//! looks at a fifth of them.
//!
//! Run by `tests/servers/dynamodb-local -- tests/servers/control-plane -- cargo test --workspace --test scale --
//! --ignored --nocapture thousand_nodes` (or `fifth`), after `infra/build host`.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of an integration test fail as tests do")]

mod agent;
mod objects;

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};
use tenon_cluster_tests::Cluster;
use tenon_domain::manifest;
use tenon_snapshot::snapshot::{ChunkKind, Manifest};

use agent::{Agent, Region, Written};
use objects::{Bound, ClusterSize, NAMESPACE, node, node_claim, pod, replica_set};

/// What a cluster may cost, in bytes.
struct Goals {
    memory: u64,
    snapshot: usize,
    /// One pod's change.
    change: usize,
}

/// Objects that are made at a time.
const AT_A_TIME: usize = 48;
/// Stand-ins for kubelets run all pods within a minute on two idle cores, and within this on busy ones.
const ALL_RUN_WITHIN: Duration = Duration::from_secs(600);
/// The number of followed pods.
const LIVES: usize = 8;

async fn make(admin: &Cluster, objects: impl Iterator<Item = Value>) {
    let mut objects = objects.peekable();
    let first = objects.peek().expect("there are some").clone();
    let api = admin.api_of(&first).await;
    let make = |object: Value| {
        let api = api.clone();
        async move {
            let object = serde_json::from_value(object).expect("it is an object");
            let made = api.create(&PostParams::default(), &object).await;
            made.unwrap_or_else(|error| panic!("an object can't be made: {error}"));
        }
    };
    stream::iter(objects).map(make).buffer_unordered(AT_A_TIME).collect::<()>().await;
}

/// Makes ReplicaSets that stay and do nothing; their UIDs, by workload.
async fn make_owners(admin: &Cluster, workloads: usize) -> Vec<String> {
    let api: Api<ReplicaSet> = Api::namespaced(admin.client(), NAMESPACE);
    let mut owners = Vec::new();
    for workload in 0..workloads {
        let set: ReplicaSet = serde_json::from_value(replica_set(workload)).expect("it is a ReplicaSet");
        let made = api.create(&PostParams::default(), &set).await.expect("a ReplicaSet is made");
        let (name, uid) = (made.metadata.name.expect("a name"), made.metadata.uid.expect("a UID"));
        let _held = api.delete(&name, &DeleteParams::background()).await.expect("it is there");
        owners.push(uid);
    }
    owners
}

/// Waits until every pod runs.
async fn until_all_run(admin: &Cluster) {
    let api: Api<Pod> = Api::namespaced(admin.client(), NAMESPACE);
    let waiting = ListParams::default().fields("status.phase!=Running").limit(1);
    let start = Instant::now();
    while !api.list(&waiting).await.expect("pods are listed").items.is_empty() {
        assert!(start.elapsed() < ALL_RUN_WITHIN, "not all pods run within {ALL_RUN_WITHIN:?}");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// One step of a pod's life.
#[derive(Debug, Clone, Copy)]
enum Step {
    Made,
    Bound,
    Runs,
    Gone,
}

/// Takes a pod through a step, as its controller, the scheduler, a kubelet and a person would.
async fn take(admin: &Cluster, (name, object): (&str, &Value), step: Step) {
    let api: Api<Pod> = Api::namespaced(admin.client(), NAMESPACE);
    match step {
        Step::Made => {
            let pod = serde_json::from_value(object.clone()).expect("it is a pod");
            api.create(&PostParams::default(), &pod).await.expect("a pod is made");
        }
        Step::Bound => {
            // The kubelets' stand-in doesn't know this Node, so the pod doesn't run at once. The pods' garbage
            // collector waits 40 s, once a Node.
            let node = format!("of-{name}.ec2.internal");
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
            let body = serde_json::to_vec(&binding).expect("a value can be written");
            let url = format!("/api/v1/namespaces/{NAMESPACE}/pods");
            let request = Request::new(url)
                .create_subresource("binding", name, &PostParams::default(), body)
                .expect("a request");
            admin.client().request::<Value>(request).await.expect("the pod is bound");
        }
        Step::Runs => {
            let ready = json!({"type": "Ready", "status": "True"});
            let status = json!({"status": {"phase": "Running", "startTime": "2026-11-01T08:30:00Z", "conditions": [ready]}});
            let patch = Patch::Strategic(status);
            api.patch_status(name, &PatchParams::default(), &patch).await.expect("its status is written");
        }
        Step::Gone => {
            let now = DeleteParams::default().grace_period(0);
            api.delete(name, &now).await.expect("the pod is there");
        }
    }
}

/// The bytes of a change: its chunks of pods and shapes, the manifest, and a new index.
fn change(before: &Written, after: &Written) -> usize {
    let of_pods = after
        .manifest
        .chunks
        .iter()
        .filter(|chunk| matches!(chunk.kind, ChunkKind::Pods | ChunkKind::Shapes));
    let new = of_pods.filter(|chunk| !before.manifest.chunks.contains(chunk));
    let chunks: usize = new.map(|chunk| after.bytes(chunk.kind.as_str(), &chunk.digest)).sum();
    let index = after.manifest.index.as_ref().filter(|index| before.manifest.index.as_ref() != Some(index));
    chunks + index.map_or(0, |index| after.bytes("index", &index.digest)) + after.manifest_bytes
}

fn print_kinds(manifest: &Manifest) {
    for kind in ChunkKind::ALL {
        let of: Vec<usize> =
            manifest.chunks.iter().filter(|chunk| chunk.kind == kind).map(|chunk| chunk.bytes).collect();
        if let Some(largest) = of.iter().max() {
            println!(
                "{kind}: {} bytes in {} chunks, the largest {largest}",
                of.iter().sum::<usize>(),
                of.len()
            );
        }
    }
}

#[tokio::test]
#[ignore = "needs tests/servers/control-plane and tests/servers/dynamodb-local"]
async fn a_thousand_nodes_and_twenty_thousand_pods() {
    let size = ClusterSize { nodes: 1_000, pods: 20_000, workloads: 200 };
    check(size, Goals { memory: 80_000_000, snapshot: 500_000, change: 8_000 }).await;
}

#[tokio::test]
#[ignore = "needs tests/servers/control-plane and tests/servers/dynamodb-local"]
async fn a_fifth_of_them() {
    let size = ClusterSize { nodes: 200, pods: 4_000, workloads: 40 };
    check(size, Goals { memory: 40_000_000, snapshot: 100_000, change: 8_000 }).await;
}

async fn check(size: ClusterSize, goals: Goals) {
    let admin = Cluster::admin().await;
    admin.install_definitions().await;
    for name in ["tenon-system", NAMESPACE] {
        admin.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")).await;
    }
    for object in manifest::objects("rbac.yaml", include_str!("../../../../infra/chart/rbac.yaml")) {
        admin.apply_object(&object).await;
    }
    let start = Instant::now();
    let owners = make_owners(&admin, size.workloads).await;
    let owner = |n: usize| owners.get(n % size.workloads).expect("every workload has one").as_str();
    make(&admin, (0..size.nodes).map(node)).await;
    make(&admin, (0..size.nodes).map(node_claim)).await;
    make(&admin, (0..size.pods).map(|n| pod(size, n, owner(n), Bound::Yes))).await;
    println!("objects made after {:?}", start.elapsed());
    until_all_run(&admin).await;
    println!("all run after {:?}", start.elapsed());

    let region = Region::new().await;
    let started = Instant::now();
    let agent = Agent::start(&region);
    // While a pod is pending, the agent reports every change at once, instead of with the next heartbeat.
    make(&admin, std::iter::once(pod(size, size.pods, owner(size.pods), Bound::No))).await;
    let first = region.until("the first", |now| now.pending_pods == 1).await;
    println!("first snapshot after {:?}, {} MB", started.elapsed(), agent.peak() / 1_000_000);
    print_kinds(&first.manifest);
    let chunks: usize = first.manifest.chunks.iter().map(|chunk| chunk.bytes).sum();
    let index = first.manifest.index.as_ref().map_or(0, |index| first.bytes("index", &index.digest));
    let snapshot = chunks + first.manifest_bytes + index;

    let mut largest = 0;
    let mut before = first;
    for n in size.pods + 1..=size.pods + LIVES {
        let object = pod(size, n, owner(n), Bound::No);
        let name = object.pointer("/metadata/name").and_then(Value::as_str).expect("a name");
        let mut told = Vec::new();
        for step in [Step::Made, Step::Bound, Step::Runs, Step::Gone] {
            take(&admin, (name, &object), step).await;
            let after = region.until("a change", |now| now.generation > before.manifest.generation).await;
            let bytes = change(&before, &after);
            told.push(format!("{step:?} {bytes}"));
            largest = largest.max(bytes);
            before = after;
        }
        println!("{name}: {}", told.join(", "));
    }
    let peak = agent.peak();
    println!(
        "memory at most {} MB, {} MB now; snapshot {snapshot} bytes; one pod's change {largest} bytes at most; {:?} in all",
        peak / 1_000_000,
        agent.resident() / 1_000_000,
        start.elapsed()
    );
    assert!(peak <= goals.memory, "{peak} bytes of memory");
    assert!(snapshot <= goals.snapshot, "a snapshot of {snapshot} bytes");
    assert!(largest <= goals.change, "{largest} bytes for one pod's change");
}
