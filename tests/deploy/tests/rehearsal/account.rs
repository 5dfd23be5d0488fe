//! The account on the servers: its table, queues, bus and EC2, seen from outside the stacks.

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::{Value, json};
use tenon_domain::wake::FunctionName;
use tenon_dynamodb::DynamoTable;
use tenon_table::{Consistency, Item, Key, Query, SkRange, Table as _, query_all};

use crate::wait::eventually;

/// The installation, and so the name of its table and bus.
pub(crate) const INSTALLATION: &str = "tenon";
/// ministack's account.
pub(crate) const ACCOUNT: &str = "000000000000";
/// The region.
pub(crate) const REGION: &str = "us-east-1";

/// The functions that rules and schedules invoke.
const WITHOUT_QUEUE: [FunctionName; 2] = [FunctionName::Catalog, FunctionName::Images];
/// Messages that a function with a queue failed on.
pub(crate) const DEAD_LETTERS: &str = "dead-letters";
/// Invocations that failed.
pub(crate) const EXECUTION_DEAD_LETTERS: &str = "execution-dead-letters";

/// ministack answers from one process, beside everything else it does.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The clients.
pub(crate) struct RehearsalAccount {
    pub(crate) table: DynamoTable,
    pub(crate) sqs: aws_sdk_sqs::Client,
    pub(crate) events: aws_sdk_eventbridge::Client,
    pub(crate) lambda: aws_sdk_lambda::Client,
    pub(crate) ec2: aws_sdk_ec2::Client,
}

impl RehearsalAccount {
    /// The account of the endpoints in the environment.
    pub(crate) async fn new() -> Self {
        Self::of_table(INSTALLATION).await
    }

    /// The same account, read through another table.
    pub(crate) async fn of_table(name: &str) -> Self {
        let http = aws_smithy_http_client::Builder::new().build_http();
        let config = aws_config::defaults(BehaviorVersion::latest()).http_client(http).load().await;
        let dynamodb = aws_sdk_dynamodb::Client::new(&config);
        Self {
            table: DynamoTable::with_call_timeout(&dynamodb, name, CALL_TIMEOUT),
            sqs: aws_sdk_sqs::Client::new(&config),
            events: aws_sdk_eventbridge::Client::new(&config),
            lambda: aws_sdk_lambda::Client::new(&config),
            ec2: aws_sdk_ec2::Client::new(&config),
        }
    }

    /// An item, if it is there.
    pub(crate) async fn item(&self, pk: impl Into<String>, sk: impl Into<String>) -> Option<Item> {
        self.table.get(&Key::new(pk, sk), Consistency::Strong).await.expect("the table answers")
    }

    /// The items of a partition with this prefix.
    pub(crate) async fn items(&self, pk: impl Into<String>, prefix: &str) -> Vec<(Key, Item)> {
        let range = if prefix.is_empty() { SkRange::All } else { SkRange::Prefix(prefix.to_owned()) };
        query_all(&self.table, &Query::new(pk, range, Consistency::Strong)).await.expect("the table answers")
    }

    /// The URL of a queue of the installation.
    pub(crate) async fn queue(&self, name: &str) -> String {
        let name = format!("{INSTALLATION}-{name}");
        let found = self.sqs.get_queue_url().queue_name(&name).send().await;
        found.unwrap_or_else(|error| panic!("queue `{name}`: {error:?}")).queue_url.expect("a URL")
    }

    /// Sends a body to a function, as EventBridge does to a rule's target: to its queue, or to itself. The server repeats
    /// what fails only where the function is invoked by name, so tests do that.
    pub(crate) async fn send(&self, function: &str, body: &str) {
        if FunctionName::parse(function).is_some_and(|function| WITHOUT_QUEUE.contains(&function)) {
            let invocation = self.lambda.invoke().function_name(format!("{INSTALLATION}-{function}"));
            let invocation = invocation.invocation_type(InvocationType::Event).payload(Blob::new(body));
            invocation.send().await.expect("Lambda takes it");
            return;
        }
        let url = self.queue(function).await;
        self.sqs.send_message().queue_url(url).message_body(body).send().await.expect("the queue takes it");
    }

    /// Sets a queue's visibility timeout; returns the earlier one.
    pub(crate) async fn set_visibility_timeout(&self, queue: &str, seconds: &str) -> String {
        let (url, name) = (self.queue(queue).await, QueueAttributeName::VisibilityTimeout);
        let asked = self.sqs.get_queue_attributes().queue_url(&url).attribute_names(name.clone());
        let before = asked.send().await.expect("the queue has attributes");
        let before = before.attributes().and_then(|all| all.get(&name)).expect("it has this one").clone();
        let set = self.sqs.set_queue_attributes().queue_url(url).attributes(name, seconds);
        set.send().await.expect("the queue can be set");
        before
    }

    /// How many messages wait on a queue or are taken from it.
    pub(crate) async fn depth(&self, queue: &str) -> u32 {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let asked = self.sqs.get_queue_attributes().queue_url(self.queue(queue).await);
        let found = asked.set_attribute_names(Some(names.to_vec())).send().await.expect("attributes");
        let count = |name| found.attributes().and_then(|all| all.get(name)?.parse::<u32>().ok()).unwrap_or(0);
        names.iter().map(count).sum()
    }

    /// How many dead letters there are.
    pub(crate) async fn dead_letters(&self) -> u32 {
        let mut count = 0;
        for queue in [DEAD_LETTERS, EXECUTION_DEAD_LETTERS, "delivery-dead-letters"] {
            count += self.depth(queue).await;
        }
        count
    }

    /// Takes all messages from a queue for good.
    pub(crate) async fn drain(&self, queue: &str) -> Vec<String> {
        let url = self.queue(queue).await;
        let mut bodies = Vec::new();
        loop {
            let taken = self.sqs.receive_message().queue_url(&url).max_number_of_messages(10).send().await;
            let messages = taken.expect("the queue answers").messages.unwrap_or_default();
            if messages.is_empty() {
                return bodies;
            }
            for message in messages {
                let handle = message.receipt_handle.expect("a handle");
                let delete = self.sqs.delete_message().queue_url(&url).receipt_handle(handle);
                delete.send().await.expect("the message goes");
                bodies.extend(message.body);
            }
        }
    }

    /// Waits until the functions' queues are empty. Lambda doesn't show its own, of functions without one.
    pub(crate) async fn settled(&self) {
        for function in FunctionName::ALL.into_iter().filter(|function| !WITHOUT_QUEUE.contains(function)) {
            eventually(&format!("the end of what is on {function}'s queue"), || async {
                (self.depth(function.as_str()).await == 0).then_some(())
            })
            .await;
        }
    }
}

/// Puts an event on the installation's bus.
pub(crate) async fn put_event(
    events: &aws_sdk_eventbridge::Client,
    source: &str,
    detail_type: &str,
    detail: &Value,
) {
    let entry = PutEventsRequestEntry::builder()
        .event_bus_name(INSTALLATION)
        .source(source)
        .detail_type(detail_type)
        .detail(detail.to_string())
        .build();
    let sent = events.put_events().entries(entry).send().await.expect("the bus answers");
    assert_eq!(sent.failed_entry_count, 0, "{sent:?}");
}

/// An event of EC2 in the envelope in which EventBridge delivers it.
pub(crate) fn ec2_event(detail_type: &str, resource: &str, detail: Value) -> Value {
    json!({
        "version": "0",
        "id": "6a7e8feb-b491-4cf7-a9f1-bf3703467718",
        "detail-type": detail_type,
        "source": "aws.ec2",
        "account": ACCOUNT,
        "time": jiff::Timestamp::now().to_string(),
        "region": REGION,
        "resources": [resource],
        "detail": detail,
    })
}
