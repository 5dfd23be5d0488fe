//! A batch of messages: wakes by scope, and which messages go back to the queue.
//!
//! Invariant: a message that can't be read fails alone; the others of its batch are handled.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::wake::Cause;

use crate::error::{HandlerError, chain};
use crate::events;
use crate::handler::{Handler, Scope};
use crate::ports::Ports;

/// A message of the function's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// SQS's message id.
    pub id: String,
    /// Its body.
    pub body: String,
}

/// What went wrong with a message; it goes back to the queue.
#[derive(Debug)]
pub struct Failure {
    /// The message.
    pub message_id: String,
    /// The stable name of the error.
    pub error_type: &'static str,
    /// The error with its causes, for the log.
    pub error: String,
}

/// Handles a batch: wakes of one scope are one wake. Returns the messages that failed (`batchItemFailures`).
pub async fn handle_batch<H: Handler, P: Ports>(
    handler: &H,
    ports: &P,
    messages: &[Message],
) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut wakes: BTreeMap<Scope, (BTreeSet<Cause>, Vec<&str>)> = BTreeMap::new();
    for message in messages {
        match events::parse(&message.body) {
            Ok(found) => {
                for wake in found {
                    let scope = wake.cluster.map_or(Scope::Region, Scope::Cluster);
                    let (causes, ids) = wakes.entry(scope).or_default();
                    causes.insert(wake.cause);
                    if ids.last() != Some(&message.id.as_str()) {
                        ids.push(&message.id);
                    }
                }
            }
            Err(error) => failures.push(failure(&message.id, &HandlerError::Message(error))),
        }
    }
    for (scope, (causes, ids)) in wakes {
        let causes: Vec<Cause> = causes.into_iter().collect();
        if let Err(error) = handler.handle(ports, &scope, &causes).await {
            failures.extend(ids.iter().map(|id| failure(id, &error)));
        }
    }
    failures.sort_by(|a, b| a.message_id.cmp(&b.message_id));
    failures.dedup_by(|a, b| a.message_id == b.message_id);
    failures
}

fn failure(message_id: &str, error: &HandlerError) -> Failure {
    Failure { message_id: message_id.to_owned(), error_type: error.error_type(), error: chain(error) }
}
