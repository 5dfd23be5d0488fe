//! The agent's binary, and its table.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use tenon_cluster_tests::agent_binary;
use tenon_domain::id::ClusterName;
use tenon_dynamodb::DynamoTable;
use tenon_snapshot::snapshot::{CHUNK_PREFIX, Manifest, manifest_key, partition, read_manifest};
use tenon_table::value::attributes_size;
use tenon_table::{Consistency, Query, SkRange, Table, query_all};

/// No report takes longer on two busy cores.
const WITHIN: Duration = Duration::from_secs(120);
const SERVER: &str = "run it by tests/servers/dynamodb-local";

fn cluster() -> ClusterName {
    ClusterName::parse("prod").expect("a name")
}

/// The table of a region, with nothing in it.
pub(crate) struct Region {
    table: DynamoTable,
    name: String,
}

/// The agent's items in the table.
pub(crate) struct Written {
    pub(crate) manifest: Manifest,
    /// The bytes of the manifest's item.
    pub(crate) manifest_bytes: usize,
    /// The bytes of the items of chunks and indexes, by sort key.
    chunks: BTreeMap<String, usize>,
}

impl Written {
    /// The bytes of a chunk's item, or of an index's.
    pub(crate) fn bytes(&self, kind: &str, digest: &str) -> usize {
        self.chunks.get(&format!("{CHUNK_PREFIX}{kind}#{digest}")).copied().expect("what is named is there")
    }
}

impl Region {
    pub(crate) async fn new() -> Self {
        let endpoint = std::env::var("TENON_DYNAMODB_ENDPOINT").expect(SERVER);
        let credentials = aws_sdk_dynamodb::config::Credentials::new("test", "test", None, None, "tests");
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
            .region(aws_sdk_dynamodb::config::Region::new("us-east-1"))
            .credentials_provider(credentials)
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(endpoint);
        let client = aws_sdk_dynamodb::Client::from_conf(config.build());
        let schema = |key: &str, kind| {
            KeySchemaElement::builder().attribute_name(key).key_type(kind).build().expect("a key")
        };
        let attribute = |key: &str| {
            let attribute = AttributeDefinition::builder().attribute_name(key);
            attribute.attribute_type(ScalarAttributeType::S).build().expect("an attribute")
        };
        let name = format!("scale-{}", std::process::id());
        let request = client.create_table().table_name(&name).billing_mode(BillingMode::PayPerRequest);
        let request =
            request.key_schema(schema("pk", KeyType::Hash)).key_schema(schema("sk", KeyType::Range));
        let request = request.attribute_definitions(attribute("pk")).attribute_definitions(attribute("sk"));
        request.send().await.expect("the server makes a table");
        Self { table: DynamoTable::new(&client, &name), name }
    }

    /// Waits for a matching manifest, and reads all items.
    pub(crate) async fn until(&self, what: &str, is: impl Fn(&Manifest) -> bool) -> Written {
        let start = Instant::now();
        loop {
            let found =
                read_manifest(&self.table, &cluster(), Consistency::Strong).await.expect("the table answers");
            if let Some(manifest) = found.filter(&is) {
                return self.read(manifest).await;
            }
            assert!(start.elapsed() < WITHIN, "no manifest within {WITHIN:?}: {what}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn read(&self, manifest: Manifest) -> Written {
        let size = |item| usize::try_from(attributes_size(item)).expect("an item is small");
        let item = self.table.get(&manifest_key(&cluster()), Consistency::Strong).await;
        let item = item.expect("the table answers").expect("it is there");
        let all = SkRange::Prefix(CHUNK_PREFIX.to_owned());
        let query = Query::new(partition(&cluster()), all, Consistency::Strong);
        let chunks = query_all(&self.table, &query).await.expect("the table answers");
        let chunks = chunks.iter().map(|(key, item)| (key.sk.clone(), size(item))).collect();
        Written { manifest, manifest_bytes: size(&item), chunks }
    }
}

/// A running agent.
pub(crate) struct Agent(Child);

impl Agent {
    pub(crate) fn start(region: &Region) -> Self {
        let endpoint = std::env::var("TENON_DYNAMODB_ENDPOINT").expect(SERVER);
        let kubeconfig =
            std::env::var("TENON_AGENT_KUBECONFIG").expect("run it by tests/servers/control-plane");
        let child = Command::new(agent_binary())
            .env("KUBECONFIG", kubeconfig)
            .envs([
                ("TENON_CLUSTER", "prod"),
                ("TENON_INSTALLATION", "tenon"),
                ("TENON_TABLE", &region.name),
                ("TENON_BUS", "tenon"),
                ("TENON_QUEUE", "http://127.0.0.1:9/queue"),
                ("TENON_LISTEN", "127.0.0.1:0"),
                ("AWS_REGION", "us-east-1"),
                ("AWS_ACCESS_KEY_ID", "test"),
                ("AWS_SECRET_ACCESS_KEY", "test"),
                ("AWS_ENDPOINT_URL_DYNAMODB", &endpoint),
                // No server listens there: rings and polls are repeated.
                ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
                ("POD_NAME", "scale"),
                ("POD_NAMESPACE", "tenon-system"),
            ])
            .stdout(Stdio::inherit())
            .spawn()
            .expect("the agent starts");
        Self(child)
    }

    /// Its peak memory in bytes.
    pub(crate) fn peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// The memory that it has, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        self.memory("VmRSS:")
    }

    fn memory(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with(what)).expect("Linux says it");
        let kibibytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
        kibibytes.expect("a number") * 1_024
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It ends with the test, without a clean shutdown.
        let _killed = self.0.kill();
        let _waited = self.0.wait();
    }
}
