//! What the agent takes at 1,000 nodes and 20,000 pods, and what it writes: the binary, a real API server, DynamoDB Local.
//!
//! Run by `tests/servers/dynamodb-local -- tests/servers/control-plane -- cargo test --workspace --test scale -- --ignored
//! --nocapture`, after `cargo build -p tenon-agent --features binary`.

#![expect(clippy::expect_used, clippy::panic, reason = "tests fail by them")]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use futures::{StreamExt, stream};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use tenon_cluster::snapshot::{Manifest, manifest_key, read_manifest};
use tenon_cluster_tests::Cluster;
use tenon_domain::id::ClusterName;
use tenon_domain::manifest;
use tenon_dynamodb::DynamoTable;
use tenon_table::{Consistency, Table};

const NODES: usize = 1_000;
const PODS: usize = 20_000;
const WORKLOADS: usize = 200;
/// The goals.
const MEMORY_KILOBYTES: u64 = 80 * 1024;
const SNAPSHOT_BYTES: usize = 500 * 1024;
const CHANGE_BYTES: usize = 8 * 1024;
/// Objects that are made at a time.
const AT_A_TIME: usize = 48;
const NAMESPACE: &str = "shop";

fn node(n: usize) -> Value {
    let family = ["m5", "c5", "r5", "m6i", "c6i"].get(n % 5).expect("one of five");
    let mut labels = json!({
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": format!("node-{n:04}"),
        "karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "spot", "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true", "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": format!("us-east-1{}", ["a", "b", "c"].get(n % 3).expect("one of three")),
        "topology.k8s.aws/zone-id": format!("use1-az{}", n % 3),
        "node.kubernetes.io/instance-type": format!("{family}.2xlarge"),
    });
    for (label, value) in [
        ("instance-category", "m"),
        ("instance-family", *family),
        ("instance-generation", "5"),
        ("instance-size", "2xlarge"),
        ("instance-cpu", "8"),
        ("instance-cpu-manufacturer", "intel"),
        ("instance-memory", "32768"),
        ("instance-ebs-bandwidth", "4750"),
        ("instance-network-bandwidth", "2500"),
        ("instance-hypervisor", "nitro"),
        ("instance-encryption-in-transit-supported", "false"),
        ("ec2nodeclass", "default"),
    ] {
        let labels = labels.as_object_mut().expect("labels are a map");
        labels.insert(format!("karpenter.k8s.aws/{label}"), json!(value));
    }
    let resources =
        json!({"cpu": "8", "memory": "31482280Ki", "pods": "58", "ephemeral-storage": "83873772Ki"});
    let images: Vec<Value> = (0..40).map(|i| json!({"names": [format!("registry.example.com/team/image-{i}@sha256:0123456789abcdef0123456789abcdef"), format!("registry.example.com/team/image-{i}:v1.2.3")], "sizeBytes": 100_000_000 + i})).collect();
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("node-{n:04}"), "labels": labels,
            "annotations": {"csi.volume.kubernetes.io/nodeid": format!("{{\"ebs.csi.aws.com\":\"i-{n:017x}\"}}"),
                "karpenter.sh/nodepool-hash": "1234567890123456789"},
            "finalizers": ["karpenter.sh/termination"]},
        "spec": {"providerID": format!("aws:///us-east-1a/i-{n:017x}")},
        "status": {"capacity": resources, "allocatable": resources, "images": images}})
}

fn pod(n: usize) -> Value {
    let app = format!("web-{:03}", n % WORKLOADS);
    let env: Vec<Value> = (0..20)
        .map(|i| json!({"name": format!("SETTING_{i}"), "value": "some value that nobody here reads"}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{app}-7d9c5b7c8f-{n:05}"), "namespace": NAMESPACE,
            "labels": {"app": app, "pod-template-hash": "7d9c5b7c8f", "team": format!("team-{}", n % 20)}},
        "spec": {"nodeName": format!("node-{:04}", n % NODES), "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "app", "image": "registry.example.com/web:1", "env": env,
                "resources": {"requests": {"cpu": format!("{}m", 100 + n % WORKLOADS), "memory": "256Mi"}}}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": app}}}]}})
}

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

fn client() -> aws_sdk_dynamodb::Client {
    let endpoint = std::env::var("TENON_DYNAMODB_ENDPOINT").expect("run it by tests/servers/dynamodb-local");
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
        .region(aws_sdk_dynamodb::config::Region::new("us-east-1"))
        .credentials_provider(aws_sdk_dynamodb::config::Credentials::new("test", "test", None, None, "tests"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(endpoint);
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

async fn table(name: &str) -> DynamoTable {
    let client = client();
    let schema = |key: &str, kind| {
        KeySchemaElement::builder().attribute_name(key).key_type(kind).build().expect("a key")
    };
    let attribute = |key: &str| {
        let attribute = AttributeDefinition::builder().attribute_name(key);
        attribute.attribute_type(ScalarAttributeType::S).build().expect("an attribute")
    };
    let request = client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
    let request = request.key_schema(schema("pk", KeyType::Hash)).key_schema(schema("sk", KeyType::Range));
    let request = request.attribute_definitions(attribute("pk")).attribute_definitions(attribute("sk"));
    request.send().await.expect("the server makes a table");
    DynamoTable::new(&client, name)
}

struct Agent(Child);

impl Agent {
    fn start(table: &str) -> Self {
        let mut path = std::env::current_exe().expect("a test has a path");
        path.pop();
        path.pop();
        let binary = path.join("tenon-agent");
        assert!(binary.exists(), "build it: cargo build -p tenon-agent --features binary");
        let endpoint =
            std::env::var("TENON_DYNAMODB_ENDPOINT").expect("run it by tests/servers/dynamodb-local");
        let kubeconfig =
            std::env::var("TENON_AGENT_KUBECONFIG").expect("run it by tests/servers/control-plane");
        let child = Command::new(binary)
            .env("KUBECONFIG", kubeconfig)
            .envs([
                ("TENON_CLUSTER", "prod"),
                ("TENON_INSTALLATION", "tenon"),
                ("TENON_TABLE", table),
                ("TENON_BUS", "tenon"),
                ("TENON_QUEUE", "http://127.0.0.1:9/queue"),
                ("TENON_LISTEN", "127.0.0.1:0"),
                ("AWS_REGION", "us-east-1"),
                ("AWS_ACCESS_KEY_ID", "test"),
                ("AWS_SECRET_ACCESS_KEY", "test"),
                ("AWS_ENDPOINT_URL_DYNAMODB", &endpoint),
                // Nobody answers there: rings are told again, and the queue is asked again.
                ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
                ("POD_NAME", "scale"),
                ("POD_NAMESPACE", "tenon-system"),
            ])
            .stdout(Stdio::inherit())
            .spawn()
            .expect("the agent starts");
        Self(child)
    }

    /// The most memory that it had, in kilobytes.
    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux says it");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It ends with the test; nobody waits for what it would still say.
        let _killed = self.0.kill();
        let _waited = self.0.wait();
    }
}

async fn until(table: &DynamoTable, what: &str, is: impl Fn(&Manifest) -> bool) -> Manifest {
    let cluster = ClusterName::parse("prod").expect("a name");
    let start = Instant::now();
    loop {
        let found = read_manifest(table, &cluster, Consistency::Strong).await.expect("the table answers");
        if let Some(found) = found.filter(&is) {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(180), "no manifest: {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
#[ignore = "needs tests/servers/control-plane and tests/servers/dynamodb-local"]
async fn a_thousand_nodes_and_twenty_thousand_pods() {
    let admin = Cluster::admin().await;
    admin.install_definitions().await;
    for name in ["tenon-system", NAMESPACE] {
        admin.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")).await;
    }
    for object in manifest::objects("rbac.yaml", include_str!("../../../infra/chart/rbac.yaml")) {
        admin.apply_object(&object).await;
    }
    let start = Instant::now();
    make(&admin, (0..NODES).map(node)).await;
    make(&admin, (0..PODS).map(pod)).await;
    println!("objects made in {:?}", start.elapsed());
    let name = format!("scale-{}", std::process::id());
    let table = table(&name).await;
    let started = Instant::now();
    let agent = Agent::start(&name);
    let pods = |manifest: &Manifest| manifest.buckets.keys().any(|kind| kind.as_str() == "pods");
    until(&table, "the first", pods).await;
    println!("first snapshot after {:?}, {} MB at most", started.elapsed(), agent.peak() / 1024);
    // What stand-ins of kubelets still write settles, and heartbeats come.
    tokio::time::sleep(Duration::from_secs(100)).await;
    let before = until(&table, "one that rests", pods).await;
    let snapshot: usize = before.chunks.iter().map(|chunk| chunk.bytes).sum();
    let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(admin.client(), NAMESPACE);
    api.delete("web-077-7d9c5b7c8f-00077", &DeleteParams::default().grace_period(0))
        .await
        .expect("it is there");
    let after = until(&table, "the changed one", |now| now.generation > before.generation).await;
    let known: Vec<&str> = before.chunks.iter().map(|chunk| chunk.digest.as_str()).collect();
    let fresh: Vec<_> = after.chunks.iter().filter(|chunk| !known.contains(&chunk.digest.as_str())).collect();
    let key = manifest_key(&ClusterName::parse("prod").expect("a name"));
    let item = table.get(&key, Consistency::Strong).await.expect("the table answers").expect("it is there");
    let named = usize::try_from(tenon_table::value::attributes_size(&item)).expect("an item is small");
    let chunks: usize = fresh.iter().map(|chunk| chunk.bytes).sum();
    let peak = agent.peak();
    println!(
        "memory at most {} MB; snapshot {snapshot} bytes in {} chunks; one pod's change {chunks} bytes in {} chunks \
        and {named} bytes of manifest",
        peak / 1024,
        before.chunks.len(),
        fresh.len()
    );
    assert!(peak <= MEMORY_KILOBYTES, "{peak} KB of memory");
    assert!(snapshot <= SNAPSHOT_BYTES, "a snapshot of {snapshot} bytes");
    assert!(chunks + named <= CHANGE_BYTES, "{chunks} + {named} bytes for one pod's change");
}
