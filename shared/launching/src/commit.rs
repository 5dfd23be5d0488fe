//! Commits a plan: groups as slices under the cluster's revision.

use tenon_domain::id::ClusterName;
use tenon_entrypoint::{HandlerError, Ports};
use tenon_table::{CommitError, CommitToken, Group, Slices, commit_slices};

/// How far a plan was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of it.
    Whole,
    /// The world changed in between: observe again. What was committed stays valid.
    Lost,
}

/// Commits the groups in order.
///
/// # Errors
/// [`HandlerError`] for anything but a lost race.
pub async fn commit<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    revision: u64,
    groups: Vec<Group>,
) -> Result<Outcome, HandlerError> {
    let texts = [format!("{revision}"), format!("{groups:?}")];
    let token = CommitToken::of_texts(texts.iter().map(String::as_str));
    let slices = Slices::cut(&token, cluster, revision, groups)
        .map_err(|error| HandlerError::Internal(tenon_entrypoint::error::chain(&error)))?;
    match commit_slices(ports.table(), &slices).await.stopped {
        None => Ok(Outcome::Whole),
        Some(CommitError::LostRace { .. } | CommitError::Conflict { .. }) => Ok(Outcome::Lost),
        Some(error) => Err(error.into()),
    }
}
