//! What DynamoDB's errors mean for the caller: the only place that knows its error codes.
//!
//! Codes and reasons are from the API reference's common errors and the errors of `PutItem`, `UpdateItem`,
//! `TransactWriteItems`, `Query` and `BatchGetItem`, read in November 2026; messages by which one code means two
//! things are those of DynamoDB Local 2.6.1.
//!
//! Invariants: what may have gone through is always `Unavailable`; a lost race is said only where DynamoDB said that
//! the condition failed, and names each that did.

use crate::value::AnswerError;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::CancellationReason;
use std::error::Error;
use std::sync::Arc;
use tenon_table::action::WriteAction;
use tenon_table::port::AdapterCause;
use tenon_table::{Commit, CommitError, Key, TableError, WriteCondition};

/// An error of the SDK, whatever the operation.
type CallError<E> = SdkError<E, aws_sdk_dynamodb::config::http::HttpResponse>;

/// What an error code says, before it is known what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// A condition doesn't hold.
    ConditionFailed,
    /// A transaction on the item, or with the token, is under way.
    Conflict,
    /// The token was used for something else.
    TokenMismatch,
    /// Too much for now.
    Throttled,
    /// The item would be too large.
    ItemTooLarge,
    /// The transaction would be too large.
    TransactionTooLarge,
    /// The credentials don't allow it.
    Denied,
    /// It can't be asked like this.
    Refused,
    /// DynamoDB failed; whether it did what was asked isn't known.
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

/// What became of a call that gave no answer.
enum CallTrouble {
    /// DynamoDB said so, in these words.
    Said(Meaning, String),
    /// It said nothing that can be understood.
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
        // The request couldn't be made, so nothing was sent.
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

/// A read's error. `pk` is the first partition key that was asked for.
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

/// What a canceled transaction's reasons, one an action, come to. A lost race is more than everything else: it is
/// what the caller can do something about. Then what will never go through, then what may later.
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

/// How soon it may pass: what never will comes first.
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

/// What an error is about.
struct About<'a> {
    commit: &'a Commit,
    key: &'a Key,
    lost: Option<&'a WriteCondition>,
}

/// The port's error; nothing where it isn't known whether the commit went through.
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

/// What was said, with the chain below an error that DynamoDB didn't say.
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
