//! Commits that another transaction on one of their items keeps off.
//!
//! DynamoDB refuses one of two transactions that overlap in time, whatever they say. Nothing was decided by that: the same
//! commit, which its token makes safe to repeat, goes through a moment later.

use tenon_table::{Commit, CommitError, Table};

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tenon_table::{Consistency, Item, Key, Page, Query, TableError, block_on};

    use super::*;
    use crate::content_commit;

    /// Another transaction is under way so many times.
    struct Busy {
        conflicts: usize,
        commits: AtomicUsize,
    }

    fn not_asked<T>() -> Result<T, TableError> {
        Err(TableError::Unavailable(Arc::new(std::io::Error::other("nothing is read"))))
    }

    impl Table for Busy {
        async fn get(&self, _: &Key, _: Consistency) -> Result<Option<Item>, TableError> {
            not_asked()
        }

        async fn batch_get(&self, _: &[Key], _: Consistency) -> Result<BTreeMap<Key, Item>, TableError> {
            not_asked()
        }

        async fn query(&self, _: &Query) -> Result<Page, TableError> {
            not_asked()
        }

        async fn commit(&self, _: &Commit) -> Result<(), CommitError> {
            let before = self.commits.fetch_add(1, Ordering::Relaxed);
            if before < self.conflicts {
                Err(CommitError::Conflict { key: Key::new("pk", "sk") })
            } else {
                Ok(())
            }
        }
    }

    fn check(conflicts: usize, commits: usize, goes_through: bool) {
        let table = Busy { conflicts, commits: AtomicUsize::new(0) };
        let sent = block_on(commit_through_conflicts(&table, &content_commit(Vec::new(), Vec::new())));
        assert_eq!((sent.is_ok(), table.commits.into_inner()), (goes_through, commits), "{conflicts}");
    }

    #[test]
    fn what_another_transaction_keeps_off_goes_through_after_it() {
        check(0, 1, true);
        check(1, 2, true);
        check(TRIES - 1, TRIES, true);
        check(TRIES, TRIES, false);
    }
}
