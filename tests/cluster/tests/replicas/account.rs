//! A replica's AWS: a table, a bus and a queue of the test's own, on ministack.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use aws_sdk_eventbridge::types::Target;
use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::{Value, json};
use tenon_domain::id::{ClaimName, ClusterName};
use tenon_dynamodb::DynamoTable;
use tenon_snapshot::{ActionKind, NodeAction, action};
use tenon_table::{Commit, CommitToken, Table as _, Write};

/// The replicas' region.
pub(crate) const REGION: &str = "us-east-1";
/// ministack answers from one process, beside everything else it does.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// The variable by which the script names a server.
pub(crate) fn named(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("`{variable}` isn't set: run it by tests/servers/ministack -- tests/servers/control-plane -- COMMAND")
    })
}

/// One test's account.
pub(crate) struct ReplicasAccount {
    /// The cluster's name, and that of everything else here.
    pub(crate) name: String,
    /// The agent's queue.
    pub(crate) queue: String,
    table: DynamoTable,
    sqs: aws_sdk_sqs::Client,
    /// The queue with the bus's deliveries of agents' events.
    heard: String,
}

impl ReplicasAccount {
    pub(crate) async fn new(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let http = aws_smithy_http_client::Builder::new().build_http();
        let config = aws_config::SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(REGION))
            .credentials_provider(aws_sdk_dynamodb::config::SharedCredentialsProvider::new(Credentials::new(
                "test", "test", None, None, "tests",
            )))
            .http_client(http)
            .endpoint_url(named("AWS_ENDPOINT_URL"))
            .build();
        let dynamodb = aws_sdk_dynamodb::Client::new(&config);
        make_table(&dynamodb, &name).await;
        let sqs = aws_sdk_sqs::Client::new(&config);
        let mut queues = Vec::new();
        for queue in [format!("{name}-agent"), format!("{name}-heard")] {
            let made = sqs.create_queue().queue_name(queue).send().await.expect("a queue is made");
            queues.push(made.queue_url.expect("a queue has a URL"));
        }
        let heard = queues.pop().expect("two were made");
        let attributes =
            sqs.get_queue_attributes().queue_url(&heard).attribute_names(QueueAttributeName::QueueArn);
        let attributes =
            attributes.send().await.expect("a queue has attributes").attributes.unwrap_or_default();
        let arn = attributes.get(&QueueAttributeName::QueueArn).expect("a queue has an ARN").clone();
        route(&aws_sdk_eventbridge::Client::new(&config), &name, &arn).await;
        let table = DynamoTable::with_call_timeout(&dynamodb, &name, CALL_TIMEOUT);
        Self { name, queue: queues.pop().expect("two were made"), table, sqs, heard }
    }

    /// Writes the target state of a claim's Node, and rings like a function.
    pub(crate) async fn act(&self, node: &str, kind: ActionKind) {
        let cluster = ClusterName::parse(&self.name).expect("a name");
        let action = NodeAction {
            claim: ClaimName::parse(node).expect("a name"),
            number: 1,
            kind,
            provider_id: Some(provider_id(node)),
            node: None,
            labels: BTreeMap::from([("karpenter.sh/nodepool".to_owned(), "default".to_owned())]),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            deadline: None,
            replacement: tenon_snapshot::ReplacementOrder::Anytime,
        };
        let key = action::action_key(&cluster, &action.claim);
        let write = Write::Put { key, item: action.to_item().expect("an action is written") };
        let token = CommitToken::parse(node).expect("a token");
        let commit = Commit { token, conditions: Vec::new(), writes: vec![write] };
        self.table.commit(&commit).await.expect("the table takes it");
        let ring = self.sqs.send_message().queue_url(&self.queue).message_body("{}");
        ring.send().await.expect("the queue takes it");
    }

    /// The bus's deliveries since the last call.
    pub(crate) async fn heard(&self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let taken = self.sqs.receive_message().queue_url(&self.heard).max_number_of_messages(10);
            let messages = taken.send().await.expect("the queue answers").messages.unwrap_or_default();
            if messages.is_empty() {
                return events;
            }
            for message in messages {
                let body = message.body.unwrap_or_default();
                events.push(serde_json::from_str(&body).expect("an event is JSON"));
                let handle = message.receipt_handle.expect("a message has a handle");
                let gone = self.sqs.delete_message().queue_url(&self.heard).receipt_handle(handle);
                gone.send().await.expect("a message is deleted");
            }
        }
    }
}

/// The Node's instance.
pub(crate) fn provider_id(node: &str) -> String {
    let digits: String = node.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("aws:///us-east-1a/i-{digits}")
}

async fn make_table(client: &aws_sdk_dynamodb::Client, name: &str) {
    let key = |name: &str, kind| {
        KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("a key")
    };
    let attribute = |name: &str| {
        let attribute = AttributeDefinition::builder().attribute_name(name);
        attribute.attribute_type(ScalarAttributeType::S).build().expect("an attribute")
    };
    let request = client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
    let request = request.key_schema(key("pk", KeyType::Hash)).key_schema(key("sk", KeyType::Range));
    let request = request.attribute_definitions(attribute("pk")).attribute_definitions(attribute("sk"));
    request.send().await.expect("a table is made");
}

/// A bus that delivers agents' events to a queue.
async fn route(client: &aws_sdk_eventbridge::Client, name: &str, queue: &str) {
    client.create_event_bus().name(name).send().await.expect("a bus is made");
    let pattern = json!({"source": [{"prefix": "tenon.agent."}]}).to_string();
    let rule = client.put_rule().name(name).event_bus_name(name).event_pattern(pattern);
    rule.send().await.expect("a rule is made");
    let target = Target::builder().id("queue").arn(queue).build().expect("a target");
    let targets = client.put_targets().rule(name).event_bus_name(name).targets(target);
    targets.send().await.expect("a rule has a target");
}
