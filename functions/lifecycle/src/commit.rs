//! Plans, committed: each claim's steps on the claim's own revision, so that who loses one race loses nothing else.
//!
//! Decides what goes together. It doesn't retry: a lost race is observed again at the next wake.

use std::collections::BTreeSet;

use tenon_domain::Timestamp;
use tenon_domain::claim::Claim;
use tenon_domain::id::{ClaimName, ClusterName};
use tenon_domain::journal::JournalRecord;
use tenon_domain::launch::Launch;
use tenon_domain::pool_status::PoolStatus;
use tenon_runtime::{HandlerError, Ports};
use tenon_snapshot::Action;
use tenon_snapshot::action::action_key;
use tenon_table::content_commit;
use tenon_table::items::{JournalOf, add_step, form, journal_writes, keys};
use tenon_table::{Commit, CommitError, Condition, Expect, Key, Table, Write};

use crate::audit::AuditPlan;
use crate::audit_record::AuditRecord;
use crate::learn::Lesson;
use crate::plan::{CLAIM_KEPT, ClaimStep, Forgotten, LAUNCH_KEPT, Plan};

/// What went through.
#[derive(Debug, Default)]
pub struct Committed {
    /// Claims whose steps, or actions, are written.
    pub claims: BTreeSet<ClaimName>,
    /// How many actions the agent has to read.
    pub actions: usize,
    /// Whether the audit is written.
    pub audit: AuditCommit,
    /// How many commits lost their race.
    pub lost: usize,
    /// Why something that was learned isn't written, where it isn't; nothing else depends on it.
    pub not_learned: Option<HandlerError>,
}

/// Whether the audit's decisions stand.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum AuditCommit {
    /// They do; so do those of an audit that decided nothing.
    #[default]
    Written,
    /// Another run was faster: nothing of the audit is carried out.
    Lost,
}

/// Commits the plan: the audit first, for a halt has to stand before anything else is done. What is learned comes before
/// the steps that it is learned at, since those are taken once.
///
/// # Errors
/// [`HandlerError`] for anything but a lost race; what was committed before stays valid.
pub async fn commit<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    plan: &Plan,
    now: Timestamp,
) -> Result<Committed, HandlerError> {
    let mut done = Committed::default();
    if let Some((conditions, writes)) = audit_writes(cluster, &plan.audit)
        && !send(ports, content_commit(conditions, writes), &mut done).await?
    {
        done.audit = AuditCommit::Lost;
    }
    done.not_learned = commit_learned(ports, cluster, &plan.learned).await.err();
    for step in &plan.steps {
        if send(ports, step_commit(cluster, step)?, &mut done).await? {
            done.claims.insert(step.after.name.clone());
            done.actions += usize::from(step.action.is_some());
        }
    }
    for (claim, action) in &plan.actions {
        let writes = vec![action_write(cluster, action)?];
        if send(ports, content_commit(vec![on_claim(cluster, claim)], writes), &mut done).await? {
            done.actions += 1;
        }
    }
    for forgotten in &plan.forgotten {
        let writes = forget_writes(cluster, forgotten, now);
        send(ports, content_commit(vec![on_claim(cluster, &forgotten.claim)], writes), &mut done).await?;
    }
    for launch in &plan.launches {
        let (condition, write) = launch_write(cluster, launch, now);
        send(ports, content_commit(vec![condition], vec![write]), &mut done).await?;
    }
    for pool in &plan.pools {
        let (condition, write) = pool_write(cluster, pool);
        send(ports, content_commit(vec![condition], vec![write]), &mut done).await?;
    }
    Ok(done)
}

/// Whether it went through; a lost race didn't.
async fn send<P: Ports>(ports: &P, commit: Commit, done: &mut Committed) -> Result<bool, HandlerError> {
    match ports.table().commit(&commit).await {
        Ok(()) => Ok(true),
        Err(CommitError::LostRace { .. } | CommitError::Conflict { .. }) => {
            done.lost += 1;
            Ok(false)
        }
        Err(
            error @ (CommitError::TokenMismatch { .. }
            | CommitError::Throttled { .. }
            | CommitError::ItemTooLarge { .. }
            | CommitError::TooLarge { .. }
            | CommitError::Invalid { .. }
            | CommitError::Unavailable(_)),
        ) => Err(error.into()),
    }
}

/// Another run that was faster knew as much: the next Node of the type says it again. What is told is written with the
/// record that it is about.
async fn commit_learned<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    learned: &[Lesson],
) -> Result<(), HandlerError> {
    let region = &ports.installation().region;
    for (n, Lesson { record, refused }) in learned.iter().enumerate() {
        let (mut conditions, mut writes) = (Vec::new(), Vec::new());
        if let Some(record) = record {
            let key = keys::learned(region, &record.instance_type, &record.image, cluster);
            conditions.push(on_revision(key.clone(), record.revision));
            writes.push(form::set(key, record));
        }
        let revision = record.as_ref().map_or(0, |record| record.revision);
        if let Some(told) = refused {
            writes.extend(journal_writes(JournalOf::Region(region), told, revision, n));
        }
        send(ports, content_commit(conditions, writes), &mut Committed::default()).await?;
    }
    Ok(())
}

fn on_claim(cluster: &ClusterName, claim: &Claim) -> Condition {
    Condition::Item { key: keys::claim(cluster, &claim.name), expect: Expect::Revision(claim.revision) }
}

fn step_commit(cluster: &ClusterName, step: &ClaimStep) -> Result<Commit, HandlerError> {
    let mut commit = tenon_state::step::ClaimStep::new(cluster, step.before.revision, &step.after);
    if let Some(action) = &step.action {
        commit = commit.write(action_write(cluster, action)?);
    }
    Ok(step.journal.iter().fold(commit, tenon_state::step::ClaimStep::record).commit())
}

fn action_write(cluster: &ClusterName, action: &Action) -> Result<Write, HandlerError> {
    let item = action.to_item().map_err(|error| HandlerError::Internal(error.to_string()))?;
    Ok(Write::Put { key: action_key(cluster, &action.claim), item })
}

fn journal(cluster: &ClusterName, records: &[JournalRecord], revision: u64) -> Vec<Write> {
    let of = JournalOf::Cluster(cluster);
    records.iter().enumerate().flat_map(|(n, record)| journal_writes(of, record, revision, n)).collect()
}

fn forget_writes(cluster: &ClusterName, forgotten: &Forgotten, now: Timestamp) -> Vec<Write> {
    let claim = Claim { revision: forgotten.claim.revision.saturating_add(1), ..forgotten.claim.clone() };
    let until = now.saturating_add(CLAIM_KEPT).unwrap_or(now);
    let mut writes = vec![
        form::set_expiring(keys::claim(cluster, &claim.name), &claim, until),
        Write::Delete { key: action_key(cluster, &claim.name) },
        add_step(cluster),
    ];
    writes.extend(forgotten.instance.iter().map(|id| Write::Delete { key: keys::instance(id) }));
    writes
}

fn launch_write(cluster: &ClusterName, launch: &Launch, now: Timestamp) -> (Condition, Write) {
    let key = keys::launch(cluster, &launch.id);
    let condition = Condition::Item { key: key.clone(), expect: Expect::Revision(launch.revision) };
    let next = Launch { revision: launch.revision.saturating_add(1), ..launch.clone() };
    (condition, form::set_expiring(key, &next, now.saturating_add(LAUNCH_KEPT).unwrap_or(now)))
}

fn pool_write(cluster: &ClusterName, pool: &PoolStatus) -> (Condition, Write) {
    let key = keys::node_pool(cluster, &pool.name);
    (on_revision(key.clone(), pool.revision), form::set(key, pool))
}

/// The condition of an item that now gets this revision.
fn on_revision(key: Key, next: u64) -> Condition {
    let before = next.saturating_sub(1);
    Condition::Item { key, expect: if before == 0 { Expect::Absent } else { Expect::Revision(before) } }
}

/// The audit's record, its decisions and a halt.
fn audit_writes(cluster: &ClusterName, audit: &AuditPlan) -> Option<(Vec<Condition>, Vec<Write>)> {
    let record = audit.record.as_ref()?;
    let key = AuditRecord::key(cluster);
    let mut conditions = vec![on_revision(key.clone(), record.revision)];
    let mut writes = vec![form::set(key, record)];
    if let Some(halt) = &audit.halt {
        let key = keys::halt(cluster);
        conditions.push(Condition::Item { key: key.clone(), expect: Expect::Absent });
        writes.push(form::put(key, halt));
        writes.push(add_step(cluster));
    }
    writes.extend(journal(cluster, &audit.journal, record.revision));
    Some((conditions, writes))
}
