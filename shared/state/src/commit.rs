//! Commits a plan: groups as slices under the cluster's revision.
//!
//! Decides what a refused slice means for the later ones. It doesn't wait while the table is throttled: that is the
//! caller's decision.

use tenon_domain::id::ClusterName;
use tenon_runtime::{HandlerError, Ports};
use tenon_table::{Commit, CommitError, Slices, Table, WriteGroup, commit_through_conflicts, plan_token};

/// How much of a plan is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// All of it.
    Whole,
    /// Something else changed the cluster: observe again. Committed slices stay valid.
    Lost,
}

/// The result of one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SliceOutcome {
    /// It went through.
    Committed,
    /// The world changed in between: neither it nor any slice after it can go through.
    Lost,
    /// The table is throttled: the same slice may be sent again.
    Throttled,
}

/// Cuts the groups into slices, in their order.
///
/// # Errors
/// [`HandlerError::Internal`] for a group that no transaction holds.
pub fn cut(cluster: &ClusterName, revision: u64, groups: Vec<WriteGroup>) -> Result<Slices, HandlerError> {
    let token = plan_token(cluster, revision, &groups);
    Slices::cut(&token, cluster, revision, groups)
        .map_err(|error| HandlerError::Internal(tenon_runtime::error::chain(&error)))
}

/// Commits one slice, after those before it.
///
/// # Errors
/// [`HandlerError`] for anything but a lost race and throttling.
pub async fn commit_slice<T: Table>(table: &T, slice: &Commit) -> Result<SliceOutcome, HandlerError> {
    match commit_through_conflicts(table, slice).await {
        Ok(()) => Ok(SliceOutcome::Committed),
        Err(CommitError::LostRace { .. } | CommitError::Conflict { .. }) => Ok(SliceOutcome::Lost),
        Err(CommitError::Throttled { .. }) => Ok(SliceOutcome::Throttled),
        Err(error) => Err(error.into()),
    }
}

/// Commits the groups in order.
///
/// # Errors
/// [`HandlerError`] for anything but a lost race; [`CommitError::Throttled`] where the ports don't wait for it to end.
pub async fn commit<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    revision: u64,
    groups: Vec<WriteGroup>,
) -> Result<CommitOutcome, HandlerError> {
    for slice in cut(cluster, revision, groups)?.commits() {
        match commit_slice(ports.table(), slice).await? {
            SliceOutcome::Committed => {}
            SliceOutcome::Lost => return Ok(CommitOutcome::Lost),
            SliceOutcome::Throttled => {
                let pk = slice.writes.first().map(|write| write.key().pk.clone()).unwrap_or_default();
                return Err(CommitError::Throttled { pk }.into());
            }
        }
    }
    Ok(CommitOutcome::Whole)
}
