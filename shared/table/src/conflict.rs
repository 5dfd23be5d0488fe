//! Commits in conflict with another transaction on one of their items.
//!
//! DynamoDB refuses one of two overlapping transactions, whatever they contain. That decides nothing: the same commit
//! succeeds a moment later, and its token makes repeating it safe.

use crate::{Commit, CommitError, Table};

/// How often a commit is sent. Items that many transactions write are counters, so each transaction takes
/// milliseconds.
const TRIES: usize = 5;

/// Sends a commit, and repeats it at once while another transaction on its items runs.
///
/// # Errors [`CommitError`]; [`CommitError::Conflict`] only if the conflict lasts.
pub async fn commit_through_conflicts<T: Table>(table: &T, commit: &Commit) -> Result<(), CommitError> {
    for _ in 1..TRIES {
        match table.commit(commit).await {
            Err(CommitError::Conflict { .. }) => {}
            outcome => return outcome,
        }
    }
    table.commit(commit).await
}
