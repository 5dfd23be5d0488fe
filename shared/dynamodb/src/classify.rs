//! The meaning of DynamoDB's errors to the caller: the only place that knows its error codes.
//!
//! Codes and reasons are from the API reference's common errors and the errors of `PutItem`, `UpdateItem`,
//! `TransactWriteItems`, `Query` and `BatchGetItem`, read in November 2026. The messages that tell two meanings of
//! one code apart are those of DynamoDB Local 2.6.1.
//!
//! Invariants: a write that may be applied is always `Unavailable`; a lost race needs DynamoDB's word that a
//! condition failed, and names each such condition.

use crate::value::AnswerError;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::CancellationReason;
use std::error::Error;
use std::sync::Arc;
use tenon_table::action::WriteAction;
use tenon_table::port::AdapterCause;
use tenon_table::{Commit, CommitError, Key, TableError, WriteCondition};

/// An SDK error of any operation.
type CallError<E> = SdkError<E, aws_sdk_dynamodb::config::http::HttpResponse>;

/// The meaning of an error code, independent of the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// A condition doesn't hold.
    ConditionFailed,
    /// A transaction on the item, or with the token, is under way.
    Conflict,
    /// Another request used the token.
    TokenMismatch,
    /// Too much for now.
    Throttled,
    /// The item would be too large.
    ItemTooLarge,
    /// The transaction would be too large.
    TransactionTooLarge,
    /// The credentials don't allow it.
    Denied,
    /// The request is invalid.
    Refused,
    /// DynamoDB failed; the request may be applied.
    Failed,
}

fn meaning_of(code: &str, message: &str, status: u16) -> Meaning {
    match code {
        "ConditionalCheckFailedException" | "ConditionalCheckFailed" => Meaning::ConditionFailed,
        "TransactionConflictException"
        | "TransactionConflict"
        | "TransactionInProgressException"
        | "ReplicatedWriteConflictException" => Meaning::Conflict,
        "IdempotentParameterMismatchException" => Meaning::TokenMismatch,
        "ProvisionedThroughputExceededException"
        | "ProvisionedThroughputExceeded"
        | "RequestLimitExceeded"
        | "ThrottlingException"
        | "ThrottlingError"
        | "Throttling" => Meaning::Throttled,
        "ItemCollectionSizeLimitExceededException" | "ItemCollectionSizeLimitExceeded" => {
            Meaning::ItemTooLarge
        }
        "ValidationException" | "ValidationError" => meaning_of_validation(message),
        "AccessDeniedException"
        | "AccessDenied"
        | "UnrecognizedClientException"
        | "ExpiredTokenException"
        | "InvalidSignatureException"
        | "MissingAuthenticationTokenException"
        | "MissingAuthenticationToken" => Meaning::Denied,
        "InternalServerError"
        | "InternalServerErrorException"
        | "ServiceUnavailable"
        | "ServiceUnavailableException"
        | "RequestTimeoutException" => Meaning::Failed,
        _ if status == 429 => Meaning::Throttled,
        _ if status >= 500 => Meaning::Failed,
        _ => Meaning::Refused,
    }
}

fn meaning_of_validation(message: &str) -> Meaning {
    let message = message.to_ascii_lowercase();
    if message.contains("item size") && message.contains("exceeded the maximum") {
        Meaning::ItemTooLarge
    } else if message.contains("transaction") && (message.contains("4mb") || message.contains("4 mb")) {
        Meaning::TransactionTooLarge
    } else {
        Meaning::Refused
    }
}

/// A call without a usable answer.
enum CallTrouble {
    /// DynamoDB's error, with its message.
    Said(Meaning, String),
    /// There is no readable answer.
    Silent,
}

fn trouble_of<E: ProvideErrorMetadata>(error: &CallError<E>) -> CallTrouble {
    match error {
        SdkError::ServiceError(answer) => {
            let meta = answer.err().meta();
            let (code, message) = (meta.code().unwrap_or("no code"), meta.message().unwrap_or("no message"));
            let status = answer.raw().status().as_u16();
            CallTrouble::Said(meaning_of(code, message, status), words(code, message))
        }
        // The request couldn't be built, so it wasn't sent.
        SdkError::ConstructionFailure(_) => {
            CallTrouble::Said(Meaning::Refused, "can't build the request".to_owned())
        }
        SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => {
            CallTrouble::Silent
        }
        // The SDK may add kinds: nothing is known of them.
        _ => CallTrouble::Silent,
    }
}

fn words(code: &str, message: &str) -> String {
    format!("{code}: {message}")
}

fn denied(said: &str) -> String {
    format!("access denied: {said}; allow the action for these credentials, or renew them")
}

/// A read's error. `pk` is the first requested partition key.
pub(crate) fn read_error<E>(error: CallError<E>, pk: &str) -> TableError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    match trouble_of(&error) {
        CallTrouble::Silent | CallTrouble::Said(Meaning::Failed, _) => TableError::Unavailable(cause(error)),
        CallTrouble::Said(Meaning::Throttled, _) => TableError::Throttled { pk: pk.to_owned() },
        CallTrouble::Said(Meaning::Denied, said) => TableError::Invalid { message: denied(&said) },
        CallTrouble::Said(
            Meaning::Refused
            | Meaning::ConditionFailed
            | Meaning::Conflict
            | Meaning::TokenMismatch
            | Meaning::ItemTooLarge
            | Meaning::TransactionTooLarge,
            said,
        ) => TableError::Invalid { message: with_cause(said, &error) },
    }
}

/// An answer that can't be read.
pub(crate) fn answer_error(error: &AnswerError, pk: &str) -> TableError {
    let why = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    TableError::Invalid { message: format!("partition `{pk}`: {error}{why}") }
}

/// The error of a single write: one action with or without its condition.
pub(crate) fn write_error<E>(error: CallError<E>, commit: &Commit, action: &WriteAction<'_>) -> CommitError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    match trouble_of(&error) {
        CallTrouble::Silent => CommitError::Unavailable(cause(error)),
        CallTrouble::Said(meaning, said) => {
            let said = with_cause(said, &error);
            commit_error(meaning, said, &About { commit, key: &action.key, lost: action.condition })
                .unwrap_or_else(|| CommitError::Unavailable(cause(error)))
        }
    }
}

/// The error of a transaction of these actions, in this order.
pub(crate) fn transaction_error(
    error: CallError<TransactWriteItemsError>,
    commit: &Commit,
    actions: &[WriteAction<'_>],
) -> CommitError {
    if let Some(TransactWriteItemsError::TransactionCanceledException(canceled)) = error.as_service_error() {
        return reasons_error(canceled.cancellation_reasons(), commit, actions)
            .unwrap_or_else(|| CommitError::Unavailable(cause(error)));
    }
    let first = actions.first().map(|action| action.key.clone()).unwrap_or_else(|| Key::new("", ""));
    match trouble_of(&error) {
        CallTrouble::Silent => CommitError::Unavailable(cause(error)),
        CallTrouble::Said(meaning, said) => {
            let said = with_cause(said, &error);
            commit_error(meaning, said, &About { commit, key: &first, lost: None })
                .unwrap_or_else(|| CommitError::Unavailable(cause(error)))
        }
    }
}

/// The error of a cancelled transaction, from its reasons, one for each action. A lost race wins, because the caller
/// can act on it; then permanent reasons, then transient ones.
fn reasons_error(
    reasons: &[CancellationReason],
    commit: &Commit,
    actions: &[WriteAction<'_>],
) -> Option<CommitError> {
    let found: Vec<(Meaning, String, &WriteAction<'_>)> = reasons
        .iter()
        .zip(actions)
        .filter_map(|(reason, action)| {
            let code = reason.code().filter(|code| *code != "None")?;
            let message = reason.message().unwrap_or("no message");
            Some((meaning_of(code, message, 400), words(code, message), action))
        })
        .collect();
    let failed = |(meaning, _, action): &(Meaning, String, &WriteAction<'_>)| match meaning {
        Meaning::ConditionFailed => action.condition.cloned(),
        Meaning::Conflict
        | Meaning::TokenMismatch
        | Meaning::Throttled
        | Meaning::ItemTooLarge
        | Meaning::TransactionTooLarge
        | Meaning::Denied
        | Meaning::Refused
        | Meaning::Failed => None,
    };
    let lost: Vec<WriteCondition> = found.iter().filter_map(failed).collect();
    if !lost.is_empty() {
        return Some(CommitError::LostRace { lost });
    }
    let (meaning, said, action) = found.into_iter().min_by_key(|(meaning, ..)| passing(*meaning))?;
    commit_error(meaning, said, &About { commit, key: &action.key, lost: None })
}

/// The order by permanence: permanent reasons come first.
fn passing(meaning: Meaning) -> u8 {
    match meaning {
        Meaning::ItemTooLarge
        | Meaning::TransactionTooLarge
        | Meaning::TokenMismatch
        | Meaning::Denied
        | Meaning::Refused
        | Meaning::ConditionFailed => 0,
        Meaning::Failed => 1,
        Meaning::Throttled => 2,
        Meaning::Conflict => 3,
    }
}

/// The subject of an error.
struct About<'a> {
    commit: &'a Commit,
    key: &'a Key,
    lost: Option<&'a WriteCondition>,
}

/// The port's error; `None` if the commit's outcome is unknown.
fn commit_error(meaning: Meaning, said: String, about: &About<'_>) -> Option<CommitError> {
    let invalid = |message| CommitError::Invalid { message: format!("`{}`: {message}", about.key) };
    Some(match meaning {
        Meaning::Failed => return None,
        Meaning::ConditionFailed => match about.lost {
            Some(condition) => CommitError::LostRace { lost: vec![condition.clone()] },
            None => invalid(said),
        },
        Meaning::Conflict => CommitError::Conflict { key: about.key.clone() },
        Meaning::TokenMismatch => CommitError::TokenMismatch { token: about.commit.token.clone() },
        Meaning::Throttled => CommitError::Throttled { pk: about.key.pk.clone() },
        Meaning::ItemTooLarge => CommitError::ItemTooLarge { key: about.key.clone(), bytes: None },
        Meaning::TransactionTooLarge => {
            let actions = about.commit.actions().unwrap_or_default();
            let bytes = actions.iter().map(WriteAction::request_bytes).sum();
            CommitError::TooLarge { actions: actions.len(), bytes }
        }
        Meaning::Denied => invalid(denied(&said)),
        Meaning::Refused => invalid(said),
    })
}

fn cause<E: Error + Send + Sync + 'static>(error: CallError<E>) -> AdapterCause {
    Arc::new(error)
}

/// The message, with the chain of sources for an error that isn't DynamoDB's.
fn with_cause<E: Error + 'static>(said: String, error: &CallError<E>) -> String {
    let SdkError::ConstructionFailure(_) = error else { return said };
    let (mut said, mut next) = (said, error.source());
    while let Some(source) = next {
        said = format!("{said}: {source}");
        next = source.source();
    }
    said
}

#[cfg(test)]
mod tests;
