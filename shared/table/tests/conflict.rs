//! Commits in conflict with another transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tenon_table::conflict::*;
use tenon_table::{Commit, CommitError, Table};

use tenon_memory_table::block_on;
use tenon_table::{Consistency, Item, Key, Query, QueryPage, TableError};

use tenon_table::content_commit;

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

    async fn query(&self, _: &Query) -> Result<QueryPage, TableError> {
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
    check(4, 5, true);
    check(5, 5, false);
}
