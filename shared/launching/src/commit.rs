//! Commits a plan: groups as slices under the cluster's revision, and at the end what was planned from.
//!
//! What is refused and waited for is told once, and again only when it changed.

use jiff::Timestamp;
use tenon_domain::digest::Digest;
use tenon_domain::evidence::Waiting;
use tenon_domain::id::ClusterName;
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::wake::FunctionName;
use tenon_entrypoint::{HandlerError, Ports, content_commit};
use tenon_table::items::{Generations, JournalOf, Seen, journal_writes, keys, set};
use tenon_table::{CommitError, CommitToken, Group, Slices, Table, commit_slices};

/// Letters and digits of the digest of what was refused.
const DIGEST_DIGITS: usize = 24;

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

/// What a pass ends with.
#[derive(Debug)]
pub struct End {
    /// Who ends.
    pub function: FunctionName,
    /// What it planned from.
    pub generations: Generations,
    /// When it must look again at the latest.
    pub deadline: Option<Timestamp>,
    /// What was refused and is waited for.
    pub told: Vec<JournalRecord>,
    /// Digest of what the pass before told.
    pub told_before: Option<String>,
}

/// Writes what the pass planned from, and what it refused where that changed.
///
/// # Errors
/// [`HandlerError::Commit`].
pub async fn finish<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    now: Timestamp,
    end: End,
) -> Result<(), HandlerError> {
    let identities: Vec<String> = end.told.iter().map(identity).collect();
    let digest = (!identities.is_empty())
        .then(|| Digest::of_texts(identities.iter().map(String::as_str)).base36(DIGEST_DIGITS));
    let seen = Seen {
        function: end.function,
        generations: end.generations,
        deadline: end.deadline,
        at: now,
        refusals: digest.clone(),
    };
    let revision = seen.generations.revision;
    let mut writes = vec![set(keys::seen(cluster, end.function), &seen)];
    if digest != end.told_before {
        for (n, record) in end.told.iter().enumerate() {
            writes.extend(journal_writes(JournalOf::Cluster(cluster), record, revision, n));
        }
    }
    ports.table().commit(&content_commit(Vec::new(), writes)).await?;
    Ok(())
}

/// That something is waited for. An age changes with every look, so it isn't part of what the record is known by.
#[must_use]
pub fn told_waiting(by: FunctionName, now: Timestamp, waiting: &Waiting) -> JournalRecord {
    let (kind, name) = match waiting {
        Waiting::NodeClassNotReady { class, .. } => (SubjectKind::Class, class.clone()),
        Waiting::CatalogNotHydrated { .. }
        | Waiting::CatalogStale { .. }
        | Waiting::SnapshotMissing
        | Waiting::SnapshotStale { .. }
        | Waiting::ClusterNotRegistered
        | Waiting::TableRestored => (SubjectKind::Pool, ALL_POOLS.to_owned()),
    };
    let message = format!("{by} waits: {waiting}");
    JournalRecord::new(Subject { kind, name }, now, by.as_str(), Decision::Waiting, message)
        .detail("reason", waiting.reason())
}

/// The subject of what holds for all pools of a cluster.
const ALL_POOLS: &str = "*";

/// What makes two records of different times the same: subject, decision and reason.
fn identity(record: &JournalRecord) -> String {
    let reason = record.details.get("reason").map_or("", String::as_str);
    format!("{} {} {reason}", record.subject, record.decision.as_str())
}
