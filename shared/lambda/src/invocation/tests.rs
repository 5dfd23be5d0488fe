use std::sync::Mutex;

use serde_json::json;
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_harness::{FunctionWorld, WorldConfig};
use tenon_runtime::{HandlerError, WakeScope};

use super::*;

/// Fails for the cluster `broken`, never ends for the cluster `slow`, and records its calls.
#[derive(Debug, Default)]
struct Probe {
    asked: Mutex<Vec<WakeScope>>,
}

impl Handler for Probe {
    fn name(&self) -> FunctionName {
        FunctionName::Lifecycle
    }

    async fn handle<P: Ports>(&self, _: &P, scope: &WakeScope, _: &[WakeCause]) -> Result<(), HandlerError> {
        self.asked.lock().unwrap().push(scope.clone());
        match scope {
            WakeScope::Cluster(cluster) if cluster.as_str() == "broken" => {
                Err(HandlerError::Internal("it doesn't fit".to_owned()))
            }
            WakeScope::Cluster(cluster) if cluster.as_str() == "slow" => std::future::pending().await,
            WakeScope::Cluster(_) | WakeScope::Region => Ok(()),
        }
    }
}

fn wake(cluster: &str) -> Value {
    json!({"source": "tenon", "detail-type": "Wake", "detail": {"installation": "tenon", "cluster": cluster}})
}

/// A batch as Lambda's poller gives it; the messages' ids are `m0`, `m1`, ….
fn batch(bodies: &[&str]) -> Value {
    let records: Vec<Value> = bodies
        .iter()
        .enumerate()
        .map(|(n, body)| {
            json!({
                "messageId": format!("m{n}"), "receiptHandle": "r", "body": body,
                "attributes": {"ApproximateReceiveCount": "1"}, "messageAttributes": {}, "md5OfBody": "",
                "eventSource": "aws:sqs", "awsRegion": "us-east-1",
                "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:tenon-lifecycle",
            })
        })
        .collect();
    json!({ "Records": records })
}

async fn invoked(probe: &Probe, payload: Value, left: Duration) -> Result<Value, InvocationError> {
    let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
    let deadline = SystemTime::now() + TO_ANSWER + left;
    invoke((probe, &Shares::default()), &world, payload, deadline)
        .await
        .map(|answer| serde_json::to_value(answer).unwrap())
}

async fn check(bodies: &[&str], failed: &[&str]) {
    let answer = invoked(&Probe::default(), batch(bodies), Duration::from_secs(60)).await.unwrap();
    let failed: Vec<Value> = failed.iter().map(|id| json!({"itemIdentifier": id})).collect();
    assert_eq!(answer, json!({"batchItemFailures": failed}));
}

#[tokio::test]
async fn only_messages_that_failed_go_back() {
    let (prod, broken) = (wake("prod").to_string(), wake("broken").to_string());
    check(&[&prod], &[]).await;
    check(&[&prod, &broken, &prod, &broken], &["m1", "m3"]).await;
    // An unreadable message fails alone, and so does an empty one.
    check(&[&prod, "{", ""], &["m1", "m2"]).await;
    check(&[], &[]).await;
}

#[tokio::test]
async fn wakes_of_one_cluster_are_one_wake() {
    let probe = Probe::default();
    let body = wake("prod").to_string();
    invoked(&probe, batch(&[&body, &body, &body]), Duration::from_secs(60)).await.unwrap();
    assert_eq!(probe.asked.into_inner().unwrap().len(), 1);
}

#[tokio::test]
async fn what_the_time_ends_goes_back_and_what_others_wait_for_is_handled_before() {
    let probe = Probe::default();
    let bodies = [wake("prod"), wake("slow"), wake("zebra")].map(|body| body.to_string());
    let payload = batch(&bodies.each_ref().map(String::as_str));
    // Work continues until its first wait, for which there is no time; here, shares end at once.
    let answer = invoked(&probe, payload, Duration::ZERO).await.unwrap();
    assert_eq!(answer, json!({"batchItemFailures": [{"itemIdentifier": "m1"}]}));
    let asked = probe.asked.into_inner().unwrap();
    for cluster in ["prod", "slow", "zebra"] {
        assert!(asked.iter().any(|scope| scope.cluster().is_some_and(|name| name.as_str() == cluster)));
    }
}

#[tokio::test]
async fn an_event_is_an_invocation_of_its_own() {
    let minute = Duration::from_secs(60);
    let answer = invoked(&Probe::default(), wake("prod"), minute).await.unwrap();
    assert_eq!(answer, json!({"batchItemFailures": []}));
    let error = invoked(&Probe::default(), wake("broken"), minute).await.unwrap_err();
    assert_eq!((error.error_type, error.message.as_str()), ("Internal", "it doesn't fit"));
    let error = invoked(&Probe::default(), json!({"hello": 1}), minute).await.unwrap_err();
    assert_eq!(error.error_type, "MessageForm");
}

#[tokio::test]
async fn a_batch_without_its_form_fails_whole() {
    let payload = json!({"Records": [{"eventSource": "aws:sqs", "body": "{}"}]});
    let error = invoked(&Probe::default(), payload, Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.error_type, "BatchForm");
    assert_eq!(error.message, "can't read the queue's batch: a record has no `messageId`");
}
