//! The agent's three services of AWS: the table, the bus, its queue.
//!
//! Decides the clients: one HTTP client for all, no retries except those of the next step, a long poll on the queue.
//! Credentials come from the SDK's default chain: Pod Identity, or a service account's role.

use std::sync::Arc;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use serde_json::{Value, json};
use tenon_domain::id::ClusterName;
use tenon_dynamodb::DynamoTable;

use super::configuration::AgentConfiguration;
use crate::bell::{Bell, BellError, DETAIL_TYPE, Ring};

/// The longest poll that SQS knows.
const POLL_SECONDS: i32 = 20;
/// A poll that takes longer is cut off: its connection is dead.
const POLL_TIMEOUT: Duration = Duration::from_secs(25);
/// Rings come one at a time; more are taken together, since they all say the same.
const MESSAGES: i32 = 10;
/// PutEvents answers within milliseconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The agent's clients of AWS.
#[derive(Debug, Clone)]
pub(super) struct Aws {
    pub(super) table: DynamoTable,
    pub(super) bell: AwsBell,
    pub(super) doorbell: Doorbell,
}

impl Aws {
    /// Clients, not yet connected.
    pub(super) async fn new(configuration: &AgentConfiguration) -> Self {
        let http = aws_smithy_http_client::Builder::new()
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let config = aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new(configuration.region.clone()))
            .http_client(http)
            .retry_config(RetryConfig::disabled())
            .load()
            .await;
        let within = |timeout| TimeoutConfig::builder().operation_timeout(timeout).build();
        let events = aws_sdk_eventbridge::config::Builder::from(&config).timeout_config(within(CALL_TIMEOUT));
        let queue = aws_sdk_sqs::config::Builder::from(&config).timeout_config(within(POLL_TIMEOUT));
        Self {
            table: DynamoTable::new(&aws_sdk_dynamodb::Client::new(&config), configuration.table.clone()),
            bell: AwsBell {
                client: aws_sdk_eventbridge::Client::from_conf(events.build()),
                bus: configuration.bus.clone(),
                installation: configuration.installation.clone(),
                cluster: configuration.cluster.clone(),
            },
            doorbell: Doorbell {
                client: aws_sdk_sqs::Client::from_conf(queue.build()),
                url: configuration.queue.clone(),
            },
        }
    }
}

/// Rings for the functions by PutEvents, with the source that the agent's role may use.
#[derive(Debug, Clone)]
pub(super) struct AwsBell {
    client: aws_sdk_eventbridge::Client,
    bus: String,
    installation: String,
    cluster: ClusterName,
}

/// The event wasn't taken.
#[derive(Debug, thiserror::Error)]
#[error("EventBridge refused the event with `{code}`: {message}")]
struct EventRefused {
    code: String,
    message: String,
}

impl AwsBell {
    /// The event's `detail`.
    fn detail(&self, ring: &Ring) -> Value {
        let mut detail = serde_json::to_value(ring.to_form(&self.cluster)).unwrap_or_default();
        if let Some(fields) = detail.as_object_mut() {
            fields.insert("installation".to_owned(), json!(self.installation));
        }
        detail
    }
}

impl Bell for AwsBell {
    async fn ring(&self, ring: &Ring) -> Result<(), BellError> {
        let entry = PutEventsRequestEntry::builder()
            .event_bus_name(&self.bus)
            .source(format!("tenon.agent.{}", self.cluster))
            .detail_type(DETAIL_TYPE)
            .detail(self.detail(ring).to_string())
            .build();
        let answer = self.client.put_events().entries(entry).send().await;
        let answer = answer.map_err(|error| BellError(Arc::new(error)))?;
        let refused = answer.entries().iter().find_map(|entry| {
            let code = entry.error_code()?.to_owned();
            Some(EventRefused { code, message: entry.error_message().unwrap_or_default().to_owned() })
        });
        refused.map_or(Ok(()), |refused| Err(BellError(Arc::new(refused))))
    }
}

/// The agent's own queue.
#[derive(Debug, Clone)]
pub(super) struct Doorbell {
    client: aws_sdk_sqs::Client,
    url: String,
}

/// The poll failed. The agent looks every minute anyway.
#[derive(Debug, thiserror::Error)]
#[error("can't read the agent's queue")]
pub(super) struct DoorbellError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// The result of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// There was a ring.
    Ring,
    /// There was none.
    Nothing,
}

impl Doorbell {
    /// Waits for a ring, 20 s at most. Received rings are deleted; a repeated one is harmless.
    pub(super) async fn listen(&self) -> Result<Heard, DoorbellError> {
        let receive = self.client.receive_message().queue_url(&self.url);
        let receive = receive.wait_time_seconds(POLL_SECONDS).max_number_of_messages(MESSAGES);
        let answer = receive.send().await.map_err(|error| DoorbellError(Box::new(error)))?;
        let mut heard = Heard::Nothing;
        for message in answer.messages() {
            heard = Heard::Ring;
            if let Some(handle) = message.receipt_handle() {
                let deleted =
                    self.client.delete_message().queue_url(&self.url).receipt_handle(handle).send().await;
                if let Err(error) = deleted {
                    tracing::debug!(error = %super::logging::chain(&error), "can't delete a message of the agent's queue: it comes again");
                }
            }
        }
        Ok(heard)
    }
}
