//! Doorbells over SQS and EventBridge.
//!
//! Decides the queue of a wake, how events are cut into requests, and how often a doorbell is tried: a lost one costs its
//! listener the minutes until a sweep, and one that is heard twice costs nothing. What fails after that is only logged,
//! because the sweep reaches the same state.
//!
//! Invariant: a doorbell never fails its caller, and takes at most [`CALL_TIMEOUT`] a request, twice if EventBridge refuses
//! events of it.

use std::error::Error;
use std::time::Duration;
use tenon_domain::journal::JournalRecord;

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use aws_sdk_eventbridge::types::PutEventsResultEntry;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use aws_types::SdkConfig;
use jiff::SignedDuration;
use tenon_domain::id::ClusterName;
use tenon_domain::wake::FunctionName;
use tenon_runtime::error::chain;
use tenon_runtime::ports::{WAKE_AT_MOST, wake_body};
use tenon_runtime::{BusEvent, Installation, Signals};

use crate::configuration::{FunctionConfiguration, Queues};

/// Connecting to an endpoint of the region.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The services accept a message or a batch of events within milliseconds; a longer wait isn't worth the wake's time.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// One try of it, so that another one follows a service that doesn't answer.
const TRY_TIMEOUT: Duration = Duration::from_millis(1_400);
/// The tries of a call. The first may fail on a connection that was closed while the function was frozen.
const TRIES: u32 = 3;
/// The first wait between them is shorter than this.
const TRIED_AGAIN: Duration = Duration::from_millis(50);
/// PutEvents' limits: entries of a request, and the bytes of them all.
const ENTRIES_MAX: usize = 10;
const BYTES_MAX: usize = 256 * 1024;

/// The error type of a doorbell that couldn't be rung.
pub(crate) const ERROR_TYPE: &str = "Signal";

/// The doorbells of an installation.
#[derive(Debug, Clone)]
pub struct AwsSignals {
    sqs: aws_sdk_sqs::Client,
    events: aws_sdk_eventbridge::Client,
    installation: Installation,
    queues: Queues,
    bus: String,
}

impl AwsSignals {
    /// Doorbells, with clients from `sdk`, whose retries and timeouts are replaced.
    #[must_use]
    pub fn new(sdk: &SdkConfig, configuration: &FunctionConfiguration) -> Self {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .operation_attempt_timeout(TRY_TIMEOUT)
            .operation_timeout(CALL_TIMEOUT)
            .build();
        let tries = RetryConfig::standard().with_max_attempts(TRIES).with_initial_backoff(TRIED_AGAIN);
        let sqs = aws_sdk_sqs::config::Builder::from(sdk)
            .retry_config(tries.clone())
            .timeout_config(timeouts.clone())
            .build();
        let events = aws_sdk_eventbridge::config::Builder::from(sdk)
            .retry_config(tries)
            .timeout_config(timeouts)
            .build();
        Self {
            sqs: aws_sdk_sqs::Client::from_conf(sqs),
            events: aws_sdk_eventbridge::Client::from_conf(events),
            installation: configuration.installation.clone(),
            queues: configuration.queues.clone(),
            bus: configuration.bus.clone(),
        }
    }

    async fn send(&self, queue: String, cluster: &ClusterName, delay_seconds: i32) {
        let body = wake_body(&self.installation, cluster);
        let message = self.sqs.send_message().queue_url(&queue).message_body(body);
        // SQS delivers the messages of quiet clusters before those of one that fills the queue.
        let message = message.message_group_id(cluster.as_str());
        // None is the queue's own delay, which is none; a FIFO queue would refuse the parameter.
        let message = message.set_delay_seconds((delay_seconds > 0).then_some(delay_seconds));
        if let Err(error) = message.send().await {
            tell("SendMessage", &queue, &error);
        }
    }

    /// Puts events, and once more those that EventBridge refuses.
    async fn put(&self, entries: Vec<PutEventsRequestEntry>) {
        let again = self.put_once(entries).await.into_iter().map(|refused| refused.entry).collect::<Vec<_>>();
        if !again.is_empty() {
            self.put_once(again).await.iter().for_each(|refused| tell_refused(&refused.why));
        }
    }

    /// The events that EventBridge refuses.
    async fn put_once(&self, entries: Vec<PutEventsRequestEntry>) -> Vec<RefusedEvent> {
        match self.events.put_events().set_entries(Some(entries.clone())).send().await {
            // The answer's entries are in the order of the request's.
            Ok(answer) => entries
                .into_iter()
                .zip(answer.entries.unwrap_or_default())
                .filter(|(_, answer)| answer.error_code.is_some())
                .map(|(entry, why)| RefusedEvent { entry, why })
                .collect(),
            Err(error) => {
                tell("PutEvents", &self.bus, &error);
                Vec::new()
            }
        }
    }

    fn entry(&self, event: &BusEvent) -> PutEventsRequestEntry {
        PutEventsRequestEntry::builder()
            .event_bus_name(&self.bus)
            .source(&event.source)
            .detail_type(&event.detail_type)
            .detail(event.detail.to_string())
            .build()
    }
}

/// An event that EventBridge refuses, with the reason.
struct RefusedEvent {
    entry: PutEventsRequestEntry,
    why: PutEventsResultEntry,
}

impl Signals for AwsSignals {
    async fn publish(&self, events: &[BusEvent]) {
        let entries = events.iter().map(|event| self.entry(event));
        for request in requests(entries) {
            self.put(request).await;
        }
    }

    async fn ring_agent(&self, cluster: &ClusterName) {
        self.send(self.queues.of_agent(cluster), cluster, 0).await;
    }

    fn log(&self, record: &JournalRecord) {
        crate::log::told(record);
    }

    async fn wake(&self, function: FunctionName, cluster: &ClusterName, after: SignedDuration) {
        self.send(self.queues.of_function(function), cluster, delay_seconds(after)).await;
    }
}

/// SQS's delay in whole seconds, rounded up: an early wake would find nothing due, and no other would follow.
fn delay_seconds(after: SignedDuration) -> i32 {
    let after = after.clamp(SignedDuration::ZERO, WAKE_AT_MOST);
    let begun = i64::from(after.subsec_nanos() > 0);
    i32::try_from(after.as_secs().saturating_add(begun)).unwrap_or(i32::MAX)
}

/// Entries in as few requests as PutEvents' limits allow, in their order. An entry that is too large is logged and
/// left out, because its whole request would fail.
fn requests(entries: impl Iterator<Item = PutEventsRequestEntry>) -> Vec<Vec<PutEventsRequestEntry>> {
    let mut requests: Vec<Vec<PutEventsRequestEntry>> = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        let size = size(&entry);
        if size > BYTES_MAX {
            let detail_type = entry.detail_type().unwrap_or_default();
            tracing::warn!(
                error_type = ERROR_TYPE,
                "not publishing event `{detail_type}`: it has {size} bytes, more than PutEvents takes"
            );
            continue;
        }
        match requests.last_mut() {
            Some(last) if last.len() < ENTRIES_MAX && bytes + size <= BYTES_MAX => {
                last.push(entry);
                bytes += size;
            }
            Some(_) | None => {
                requests.push(vec![entry]);
                bytes = size;
            }
        }
    }
    requests
}

/// The size of an entry: source, detail type and detail. Source: EventBridge's user guide, "PutEvents event entry
/// size".
fn size(entry: &PutEventsRequestEntry) -> usize {
    [entry.source(), entry.detail_type(), entry.detail()].into_iter().flatten().map(str::len).sum()
}

fn tell(action: &'static str, to: &str, error: &dyn Error) {
    tracing::warn!(error_type = ERROR_TYPE, action, to, "can't ring a doorbell: {}", chain(error));
}

fn tell_refused(entry: &PutEventsResultEntry) {
    let (code, message) = (entry.error_code().unwrap_or_default(), entry.error_message().unwrap_or_default());
    tracing::warn!(
        error_type = ERROR_TYPE,
        action = "PutEvents",
        code,
        "EventBridge refused an event: {message}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_http::{FakeAwsHttp, configuration};
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};

    const QUEUES: &str = "https://sqs.us-east-1.amazonaws.com/123456789012/tenon-";

    fn signals(http: &FakeAwsHttp) -> AwsSignals {
        AwsSignals::new(&http.sdk_config(), &configuration())
    }

    fn cluster() -> ClusterName {
        ClusterName::parse("prod").unwrap()
    }

    fn sent_message() -> (u16, Value) {
        (200, json!({"MessageId": "m", "MD5OfMessageBody": ""}))
    }

    fn taken(entries: usize) -> (u16, Value) {
        let entries: Vec<Value> = (0..entries).map(|n| json!({"EventId": n.to_string()})).collect();
        (200, json!({"FailedEntryCount": 0, "Entries": entries}))
    }

    fn event(bytes: usize) -> BusEvent {
        let detail = json!({"text": "x".repeat(bytes)});
        BusEvent { source: "tenon".to_owned(), detail_type: "Test".to_owned(), detail }
    }

    #[tokio::test]
    async fn a_wake_is_a_message_to_the_functions_queue_with_its_delay() {
        let http = FakeAwsHttp::new([sent_message(), sent_message()]);
        let signals = signals(&http);
        signals.wake(FunctionName::NodeClasses, &cluster(), SignedDuration::from_millis(1_200)).await;
        signals.wake(FunctionName::Lifecycle, &cluster(), SignedDuration::ZERO).await;
        let sent = http.sent();
        assert_eq!(sent[0].0, "AmazonSQS.SendMessage");
        assert_eq!(sent[0].1["QueueUrl"], format!("{QUEUES}node-classes"));
        assert_eq!((&sent[0].1["DelaySeconds"], &sent[0].1["MessageGroupId"]), (&json!(2), &json!("prod")));
        let body = sent[0].1["MessageBody"].as_str().unwrap();
        let wakes = tenon_runtime::events::parse(body).unwrap();
        assert_eq!(wakes[0].cluster, Some(cluster()));
        assert_eq!(sent[1].1["QueueUrl"], format!("{QUEUES}lifecycle"));
        assert_eq!(sent[1].1.get("DelaySeconds"), None);
    }

    #[tokio::test]
    async fn an_agent_is_rung_by_its_clusters_queue() {
        let http = FakeAwsHttp::new([sent_message()]);
        signals(&http).ring_agent(&cluster()).await;
        assert_eq!(http.sent()[0].1["QueueUrl"], format!("{QUEUES}agent-prod"));
    }

    #[test]
    fn a_delay_is_whole_seconds_rounded_up_within_sqs_limit() {
        let check = |milliseconds, expected| {
            assert_eq!(
                delay_seconds(SignedDuration::from_millis(milliseconds)),
                expected,
                "{milliseconds} ms"
            );
        };
        check(-5, 0);
        check(0, 0);
        check(1, 1);
        check(30_000, 30);
        check(30_001, 31);
        check(900_000, 900);
        check(86_400_000, 900);
    }

    #[tokio::test]
    async fn events_are_put_ten_at_a_time_on_the_installations_bus() {
        let http = FakeAwsHttp::new([taken(10), taken(2)]);
        let events: Vec<BusEvent> = (0..12).map(|_| event(10)).collect();
        signals(&http).publish(&events).await;
        let sent = http.sent();
        assert_eq!(
            sent.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["AWSEvents.PutEvents"; 2]
        );
        assert_eq!(sent[0].1["Entries"].as_array().unwrap().len(), 10);
        let entry = json!({"Source": "tenon", "DetailType": "Test", "EventBusName": "tenon",
                           "Detail": json!({"text": "x".repeat(10)}).to_string()});
        assert_eq!(sent[1].1["Entries"], json!([entry.clone(), entry]));
    }

    #[tokio::test]
    async fn requests_stay_under_the_limit_of_bytes_and_what_fits_none_is_left_out() {
        let http = FakeAwsHttp::new([taken(1), taken(2)]);
        let events = [event(200_000), event(300_000), event(100_000), event(100_000)];
        signals(&http).publish(&events).await;
        let sizes: Vec<usize> =
            http.sent().iter().map(|(_, body)| body["Entries"].as_array().unwrap().len()).collect();
        assert_eq!(sizes, [1, 2]);
    }

    /// Keeps what is logged.
    #[derive(Debug, Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn refusing() -> (u16, Value) {
        (
            200,
            json!({"FailedEntryCount": 1,
            "Entries": [{"EventId": "0"}, {"ErrorCode": "InternalFailure", "ErrorMessage": "later"}]}),
        )
    }

    #[tokio::test]
    async fn what_fails_once_is_tried_again_and_events_that_were_taken_arent_sent_again() {
        let http =
            FakeAwsHttp::new([(503, json!({})), refusing(), taken(1), (500, json!({})), sent_message()]);
        let signals = signals(&http);
        signals.publish(&[event(1), event(2)]).await;
        signals.ring_agent(&cluster()).await;
        let sent = http.sent();
        let events: Vec<usize> =
            sent.iter().filter_map(|(_, body)| body["Entries"].as_array()).map(Vec::len).collect();
        assert_eq!(events, [2, 2, 1]);
        assert_eq!(sent[2].1["Entries"][0]["Detail"], json!({"text": "xx"}).to_string());
        assert_eq!(sent.len(), 5);
    }

    #[tokio::test]
    async fn a_doorbell_that_fails_is_told_and_keeps_no_other() {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
        let _logging = tracing::subscriber::set_default(log.finish());
        let refused = || (200, json!({"FailedEntryCount": 1, "Entries": [{"ErrorCode": "InternalFailure"}]}));
        let broken = || (503, json!({}));
        let answers = [refused(), refused(), broken(), broken(), broken(), sent_message()];
        let http = FakeAwsHttp::new(answers);
        let signals = signals(&http);
        signals.publish(&[event(1)]).await;
        signals.ring_agent(&cluster()).await;
        signals.ring_agent(&cluster()).await;
        assert_eq!(http.sent().len(), 6);
        // The answers are used up: the connection breaks.
        signals.publish(&[event(1)]).await;
        assert_eq!(http.sent().len(), 9);
        let logged = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let logged: Vec<Value> = logged.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of_signals = logged.iter().filter(|line| line["error_type"] == ERROR_TYPE);
        let actions: Vec<&Value> = of_signals.map(|line| &line["action"]).collect();
        assert_eq!(actions, ["PutEvents", "SendMessage", "PutEvents"], "{logged:?}");
    }
}
