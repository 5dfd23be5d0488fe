//! A pass of a function that plans a cluster's nodes, from its first glance to its end.
//!
//! Decides whether there is anything to plan, when to look again, and what is told: what is refused and waited for is
//! told once, and again only when it changed. What a look plans and commits is the function's.

use crate::view::{ClusterView, Wants, glance, sharpness};
use jiff::{SignedDuration, Timestamp};
use tenon_domain::digest::Digest;
use tenon_domain::evidence::Waiting;
use tenon_domain::id::ClusterName;
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::wake::{Cause, FunctionName};
use tenon_runtime::ports::WAKE_AT_MOST;
use tenon_runtime::{HandlerError, Ports, Scope, Signals};
use tenon_table::Table;
use tenon_table::content_commit;
use tenon_table::items::{Generations, Journal, JournalOf, Seen, keys, set};

/// Looks of one wake: the first, and those at what it left: a lost race, or what it failed at.
pub const ROUNDS: usize = 3;
/// Where something waits or failed, the function wakes itself to look again.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(55);
/// Letters and digits of the digest of what was refused.
const DIGEST_DIGITS: usize = 24;

/// What one look of a pass found, beside what it committed.
#[derive(Debug, Default)]
pub struct Look {
    /// What was refused and is waited for.
    pub told: Vec<JournalRecord>,
    /// When the world must be looked at again, where that is known.
    pub wake_at: Option<Timestamp>,
    /// Whether something waits, so that the next sweep looks again.
    pub waits: bool,
}

impl Look {
    /// A look that ended because evidence is missing.
    #[must_use]
    pub fn waiting(by: FunctionName, now: Timestamp, waiting: &Waiting) -> Self {
        Self { told: vec![told_waiting(by, now, waiting)], wake_at: None, waits: true }
    }
}

/// The cluster that a wake is about, where anything changed that the function plans from. Launches and commands are a
/// cluster's; the region's events are for others.
///
/// # Errors
/// [`HandlerError::Read`] and [`HandlerError::Item`].
pub async fn changed<'s, P: Ports>(
    ports: &P,
    scope: &'s Scope,
    causes: &[Cause],
    wants: Wants<'_>,
) -> Result<Option<&'s ClusterName>, HandlerError> {
    let cluster = match scope {
        Scope::Region => return Ok(None),
        Scope::Cluster(cluster) => cluster,
    };
    let now = ports.now();
    let glance = glance(ports, cluster, wants, sharpness(causes)).await?;
    Ok((!glance.unchanged(now)).then_some(cluster))
}

/// When the next sweep looks again at a pass that began at `now`.
#[must_use]
pub fn look_again(now: Timestamp) -> Timestamp {
    now.saturating_add(LOOK_AGAIN).unwrap_or(now)
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

impl End {
    /// The end of a pass that began at `now` and whose last look at `view` found this.
    #[must_use]
    pub fn of(function: FunctionName, now: Timestamp, view: &ClusterView, look: Look) -> Self {
        let again = look.waits.then(|| look_again(now));
        Self {
            function,
            generations: view.generations.clone(),
            deadline: [look.wake_at, again].into_iter().flatten().min(),
            told: look.told,
            told_before: view.seen.as_ref().and_then(|seen| seen.refusals.clone()),
        }
    }
}

/// Wakes the function itself at a moment, or as late as a wake can be before it.
pub async fn wake_again<P: Ports>(ports: &P, function: FunctionName, cluster: &ClusterName, at: Timestamp) {
    let after = at.duration_since(ports.now()).clamp(SignedDuration::ZERO, WAKE_AT_MOST);
    ports.signals().wake(function, cluster, after).await;
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
        let mut journal = Journal::of(JournalOf::Cluster(cluster));
        writes.extend(end.told.iter().flat_map(|record| journal.writes(record, revision)));
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
        | Waiting::SnapshotTooLarge { .. }
        | Waiting::ClusterNotRegistered
        | Waiting::TableRestored => (SubjectKind::Pool, ALL_POOLS.to_owned()),
    };
    let message = format!("{by} waits: {waiting}");
    let record = JournalRecord::new(Subject { kind, name }, now, by.as_str(), Decision::Waiting, message)
        .detail("reason", waiting.reason());
    match waiting.condition() {
        Some(condition) => record.detail(CONDITION, condition),
        None => record,
    }
}

/// The subject of what holds for all pools of a cluster.
const ALL_POOLS: &str = "*";

/// The detail with what may change of a reason; see [`Waiting::condition`].
pub const CONDITION: &str = "condition";

/// What makes two records of different times the same: subject, decision, and reason with its condition.
fn identity(record: &JournalRecord) -> String {
    let detail = |key| record.details.get(key).map_or("", String::as_str);
    format!("{} {} {} {}", record.subject, record.decision.as_str(), detail("reason"), detail(CONDITION))
}
