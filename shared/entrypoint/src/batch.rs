//! A batch of messages: wakes by scope, and which messages go back to the queue.
//!
//! Invariants: a message that can't be read fails alone; a scope that fails takes no other's messages with it; what
//! wasn't handled is never taken for handled.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::wake::Cause;

use crate::error::{DEADLINE, HandlerError, chain};
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The message.
    pub message_id: String,
    /// The stable name of the error.
    pub error_type: &'static str,
    /// The error with its causes, for the log.
    pub error: String,
}

/// The wakes of a batch that wait, and the messages that failed so far.
#[derive(Debug, Default)]
pub struct Batch {
    wakes: BTreeMap<Scope, Wake>,
    failures: Vec<Failure>,
}

/// What a scope is woken for, and by which messages.
#[derive(Debug, Default)]
struct Wake {
    causes: BTreeSet<Cause>,
    messages: Vec<String>,
}

impl Batch {
    /// Reads messages: wakes of one scope are one wake, a message that can't be read is a failure.
    #[must_use]
    pub fn read(messages: &[Message]) -> Self {
        let mut batch = Self::default();
        for message in messages {
            match events::parse(&message.body) {
                Ok(found) => {
                    for wake in found {
                        let scope = wake.cluster.map_or(Scope::Region, Scope::Cluster);
                        let waiting = batch.wakes.entry(scope).or_default();
                        waiting.causes.insert(wake.cause);
                        if waiting.messages.last() != Some(&message.id) {
                            waiting.messages.push(message.id.clone());
                        }
                    }
                }
                Err(error) => batch.fail([message.id.clone()], &HandlerError::Message(error)),
            }
        }
        batch
    }

    /// Handles scope after scope. A caller whose time is up drops the future: the scope that was being handled and
    /// those after it still wait then.
    pub async fn handle<H: Handler, P: Ports>(&mut self, handler: &H, ports: &P) {
        while let Some((scope, wake)) = self.wakes.first_key_value() {
            let (scope, causes) = (scope.clone(), wake.causes.iter().cloned().collect::<Vec<_>>());
            let handled = handler.handle(ports, &scope, &causes).await;
            let messages = self.wakes.remove(&scope).unwrap_or_default().messages;
            if let Err(error) = handled {
                self.fail(messages, &error);
            }
        }
    }

    /// The messages that go back to the queue, by their ids: those that failed, and those whose scope still waits.
    #[must_use]
    pub fn into_failures(self) -> Vec<Failure> {
        let mut failures = self.failures;
        let waiting = self.wakes.into_values().flat_map(|wake| wake.messages);
        failures.extend(waiting.map(|message_id| Failure {
            message_id,
            error_type: DEADLINE,
            error: "the invocation's time ended before this was handled".to_owned(),
        }));
        failures.sort_by(|a, b| a.message_id.cmp(&b.message_id));
        failures.dedup_by(|a, b| a.message_id == b.message_id);
        failures
    }

    fn fail(&mut self, messages: impl IntoIterator<Item = String>, error: &HandlerError) {
        let (error_type, error) = (error.error_type(), chain(error));
        let failure = |message_id| Failure { message_id, error_type, error: error.clone() };
        self.failures.extend(messages.into_iter().map(failure));
    }
}

/// Handles a batch: wakes of one scope are one wake. Returns the messages that failed (`batchItemFailures`).
pub async fn handle_batch<H: Handler, P: Ports>(
    handler: &H,
    ports: &P,
    messages: &[Message],
) -> Vec<Failure> {
    let mut batch = Batch::read(messages);
    batch.handle(handler, ports).await;
    batch.into_failures()
}
