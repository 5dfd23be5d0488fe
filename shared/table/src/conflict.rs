//! Commits that another transaction on one of their items keeps off.
//!
//! DynamoDB refuses one of two transactions that overlap in time, whatever they say. Nothing was decided by that: the same
//! commit, which its token makes safe to repeat, goes through a moment later.

use crate::{Commit, CommitError, Table};

/// How often a commit is sent. The items that many transactions write are counted on, not read and written, so each of
/// them takes milliseconds.
const TRIES: usize = 5;

/// Sends a commit, and sends it again at once while another transaction on its items is under way.
///
/// # Errors
/// [`CommitError`]; [`CommitError::Conflict`] only where that goes on.
pub async fn commit_through_conflicts<T: Table>(table: &T, commit: &Commit) -> Result<(), CommitError> {
    for _ in 1..TRIES {
        match table.commit(commit).await {
            Err(CommitError::Conflict { .. }) => {}
            outcome => return outcome,
        }
    }
    table.commit(commit).await
}
