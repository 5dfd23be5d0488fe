//! One invocation: from its payload to Lambda's answer.
//!
//! Decides which payloads are batches of a queue, when the time is up, and the answer for failures. A batch succeeds
//! with a list of failed messages, which SQS keeps. A directly invoked event has no queue, so its failure is the
//! invocation's; Lambda repeats an asynchronous one.

use std::future::Future;
use std::time::{Duration, SystemTime};

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use serde_json::Value;
use tenon_runtime::batch::{Batch, Message, MessageFailure, Shares};
use tenon_runtime::{Handler, Ports};

use crate::log;

/// The time reserved for the answer: lines of the log, one request of the runtime.
pub(crate) const TO_ANSWER: Duration = Duration::from_millis(500);

/// SQS's attribute with the number of receives of a message.
const RECEIVED: &str = "ApproximateReceiveCount";

/// Why an invocation failed as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvocationError {
    /// The stable name of the error.
    pub error_type: &'static str,
    /// The error with its causes.
    pub message: String,
}

/// Handles a payload: a batch of a queue, or one event. `deadline` is when Lambda ends the process. Invocations of a
/// process have the same `shares`.
///
/// # Errors [`InvocationError`] for a failed event without a queue, and for a malformed batch.
pub(crate) async fn invoke<H: Handler, P: Ports>(
    (handler, shares): (&H, &Shares),
    ports: &P,
    payload: Value,
    deadline: SystemTime,
) -> Result<SqsBatchResponse, InvocationError> {
    // Lets the connections' tasks run, which drop connections that the other end closed while the function was
    // frozen.
    tokio::task::yield_now().await;
    let (messages, origin) = read(payload).inspect_err(log::invocation)?;
    let mut batch = Batch::read(&messages);
    let left = deadline.duration_since(SystemTime::now()).unwrap_or_default().saturating_sub(TO_ANSWER);
    in_time(left, Box::pin(batch.handle(handler, shares, ports))).await;
    let failures = batch.into_failures();
    log::failures(&failures);
    answer(failures, origin)
}

/// Runs a future that may be dropped when the time is up.
async fn in_time(left: Duration, work: impl Future<Output = ()>) {
    // The unhandled messages show whether the time was up.
    let _ = tokio::time::timeout(left, work).await;
}

/// Where messages came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageOrigin {
    /// A queue.
    Queue,
    /// A direct invocation.
    Invoker,
}

fn read(payload: Value) -> Result<(Vec<Message>, MessageOrigin), InvocationError> {
    if !is_batch(&payload) {
        return Ok((
            vec![Message { id: "event".to_owned(), body: payload.to_string(), received: 1 }],
            MessageOrigin::Invoker,
        ));
    }
    let event: SqsEvent = serde_json::from_value(payload).map_err(|error| malformed(&error.to_string()))?;
    let messages = event.records.into_iter().map(message).collect::<Result<_, _>>()?;
    Ok((messages, MessageOrigin::Queue))
}

fn is_batch(payload: &Value) -> bool {
    let records = payload.get("Records").and_then(Value::as_array);
    let source = |record: &Value| record.get("eventSource").and_then(Value::as_str) == Some("aws:sqs");
    records.is_some_and(|records| records.iter().all(source))
}

fn message(record: SqsMessage) -> Result<Message, InvocationError> {
    let id = record.message_id.ok_or_else(|| malformed("a record has no `messageId`"))?;
    let received = record.attributes.get(RECEIVED).and_then(|count| count.parse().ok());
    // An empty body is no event, which is a failure of that message alone.
    Ok(Message { id, body: record.body.unwrap_or_default(), received: received.unwrap_or(1) })
}

fn malformed(what: &str) -> InvocationError {
    InvocationError { error_type: "BatchForm", message: format!("can't read the queue's batch: {what}") }
}

fn answer(failures: Vec<MessageFailure>, origin: MessageOrigin) -> Result<SqsBatchResponse, InvocationError> {
    match origin {
        MessageOrigin::Queue => {
            let mut answer = SqsBatchResponse::default();
            answer.set_failures(failures.into_iter().map(|failure| failure.message_id));
            Ok(answer)
        }
        MessageOrigin::Invoker => match failures.into_iter().next() {
            Some(MessageFailure { error_type, error, .. }) => {
                Err(InvocationError { error_type, message: error })
            }
            None => Ok(SqsBatchResponse::default()),
        },
    }
}

#[cfg(test)]
mod tests;
