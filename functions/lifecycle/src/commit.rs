//! Commits plans: each claim's steps on the claim's own revision, so that a lost race loses nothing else.
//!
//! Decides the transactions. It doesn't retry: the next wake observes again after a lost race.

use std::collections::BTreeSet;

use tenon_domain::Timestamp;
use tenon_domain::claim::Claim;
use tenon_domain::id::{ClaimName, ClusterName};
use tenon_domain::launch::Launch;
use tenon_runtime::{HandlerError, Ports};
use tenon_snapshot::action::action_key;
use tenon_state::step::Change;
use tenon_table::content_commit;
use tenon_table::items::{DecisionCounter, Journal, JournalOf, form, keys};
use tenon_table::{Commit, CommitError, Expect, Table, Write, WriteCondition};

use crate::audit::AuditPlan;
use crate::audit_record::AuditRecord;
use crate::boots::BootLesson;
use crate::learn::Lesson;
use crate::plan::{CLAIM_KEPT, ClaimStep, Forgotten, LAUNCH_KEPT, LifecyclePlan};
use crate::strays::StrayPlan;
use crate::templates::TemplatePlan;
use crate::unneeded::UnneededTemplates;

/// The committed parts of a plan.
#[derive(Debug, Default)]
pub struct CommittedClaims {
    /// Claims with committed steps or actions.
    pub claims: BTreeSet<ClaimName>,
    /// How many actions the agent has to read.
    pub actions: usize,
    /// Whether the audit is written.
    pub audit: AuditCommit,
    /// Whether the decisions about launch templates are written.
    pub templates: TemplatesCommit,
    /// How many commits lost their race.
    pub lost: usize,
    /// Claims whose failed image is new to `node-classes`, which looks first.
    pub held: BTreeSet<ClaimName>,
    /// Why a lesson isn't written, if one isn't; nothing else depends on it.
    pub not_learned: Option<HandlerError>,
}

impl CommittedClaims {
    /// Whether a part of the plan is left to the next pass.
    #[must_use]
    pub fn looks_again(&self) -> bool {
        self.lost > 0 || !self.held.is_empty()
    }
}

/// Whether the audit's decisions are committed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum AuditCommit {
    /// They are; an audit without decisions counts as committed.
    #[default]
    Written,
    /// Another pass was faster: nothing of this audit is executed.
    Lost,
}

/// Whether the decisions about launch templates are committed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum TemplatesCommit {
    /// They aren't, so that nothing is deleted in EC2.
    #[default]
    Open,
    /// They are.
    Written,
}

/// Commits the plan. The audit is first, because a halt must be visible before anything else happens. What is learned
/// comes before the steps that it was learned from, because each step happens once. A claim whose image failed steps in
/// the next pass: its pods and its command are planned again as soon as it does, and by then the class has another
/// image. Launch templates are last: nothing waits for them.
///
/// # Errors [`HandlerError`] for any error except a lost race; earlier commits stay valid.
pub async fn commit<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    plan: &LifecyclePlan,
    now: Timestamp,
) -> Result<CommittedClaims, HandlerError> {
    let mut done = CommittedClaims::default();
    if let Some(audit) = audit_commit(cluster, &plan.audit)
        && !send(ports, audit, &mut done).await?
    {
        done.audit = AuditCommit::Lost;
    }
    done.not_learned = commit_learned(ports, cluster, &plan.learned).await.err();
    if let Err(error) = commit_boots(ports, cluster, &plan.boots, &mut done.held).await {
        done.not_learned.get_or_insert(error);
    }
    for step in &plan.steps {
        if done.held.contains(&step.after.name) {
            continue;
        }
        if send(ports, step_commit(cluster, step)?, &mut done).await? {
            done.claims.insert(step.after.name.clone());
            done.actions += usize::from(step.action.is_some());
        }
    }
    for (claim, action) in &plan.actions {
        let mut change = Change::of(cluster);
        change.condition(on_claim(cluster, claim));
        change.action(action)?;
        if send(ports, change.commit(), &mut done).await? {
            done.actions += 1;
        }
    }
    commit_strays(ports, cluster, &plan.strays, &mut done).await?;
    for forgotten in &plan.forgotten {
        send(ports, forget_commit(cluster, forgotten, now), &mut done).await?;
    }
    for launch in &plan.launches {
        send(ports, launch_commit(cluster, launch, now), &mut done).await?;
    }
    for pool in &plan.pools {
        let mut change = Change::of(cluster);
        change.replace(before(pool.revision), form::set(keys::node_pool(cluster, &pool.name), pool));
        send(ports, change.commit(), &mut done).await?;
    }
    // Two passes may look at once: only the one that writes the audit down deletes.
    if done.audit == AuditCommit::Written {
        done.templates = commit_templates(ports, cluster, &plan.templates).await?;
    }
    Ok(done)
}

/// Whether it was committed; `false` after a lost race.
async fn send<P: Ports>(ports: &P, commit: Commit, done: &mut CommittedClaims) -> Result<bool, HandlerError> {
    match ports.table().commit(&commit).await {
        Ok(()) => Ok(true),
        Err(CommitError::LostRace { .. } | CommitError::Conflict { .. }) => {
            done.lost += 1;
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes the actions of strays, and deletes those that are done.
async fn commit_strays<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    plan: &StrayPlan,
    done: &mut CommittedClaims,
) -> Result<(), HandlerError> {
    for action in &plan.released {
        let mut change = Change::of(cluster);
        change.action(action)?;
        if send(ports, change.commit(), done).await? {
            done.actions += 1;
        }
    }
    for claim in &plan.done {
        let mut change = Change::of(cluster);
        change.write(Write::Delete { key: action_key(cluster, claim) });
        send(ports, change.commit(), done).await?;
    }
    Ok(())
}

/// After a lost race nothing is deleted: a launch was committed meanwhile, and the next look sees it.
async fn commit_templates<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    plan: &TemplatePlan,
) -> Result<TemplatesCommit, HandlerError> {
    let Some(commit) = templates_commit(cluster, plan) else { return Ok(TemplatesCommit::Written) };
    let written = send(ports, commit, &mut CommittedClaims::default()).await?;
    Ok(if written { TemplatesCommit::Written } else { TemplatesCommit::Open })
}

/// After a lost race nothing is lost: the next Node of the type reports again. A finding is written with its record.
async fn commit_learned<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    learned: &[Lesson],
) -> Result<(), HandlerError> {
    let region = &ports.installation().region;
    let mut journal = Journal::of(JournalOf::Region(region));
    for Lesson { record, refused } in learned {
        let (mut conditions, mut writes) = (Vec::new(), Vec::new());
        if let Some(record) = record {
            let key = keys::learned(region, &record.instance_type, &record.image, cluster);
            conditions.push(WriteCondition::Item { key: key.clone(), expect: before(record.revision) });
            writes.push(form::set(key, record));
        }
        if let Some(told) = refused {
            // A report that isn't stored has no item: its cluster's entry stands for it.
            let (counted, revision) = match record {
                Some(of) => (keys::learned(region, &of.instance_type, &of.image, cluster), of.revision),
                None => (keys::registry(region, cluster), 0),
            };
            writes.extend(journal.writes(told, DecisionCounter::Item(&counted, revision)));
        }
        send(ports, content_commit(conditions, writes), &mut CommittedClaims::default()).await?;
    }
    Ok(())
}

/// After a lost race, or an error, the claims step at once: the image's next instance shows the same.
async fn commit_boots<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    boots: &[BootLesson],
    held: &mut BTreeSet<ClaimName>,
) -> Result<(), HandlerError> {
    let region = &ports.installation().region;
    for BootLesson { record, holds } in boots {
        let written = match record {
            Some(record) => {
                let key = keys::boot(region, cluster, &record.class, &record.image);
                let condition = WriteCondition::Item { key: key.clone(), expect: before(record.revision) };
                let commit = content_commit(vec![condition], vec![form::set(key, record)]);
                send(ports, commit, &mut CommittedClaims::default()).await?
            }
            None => true,
        };
        if written {
            held.extend(holds.iter().cloned());
        }
    }
    Ok(())
}

fn on_claim(cluster: &ClusterName, claim: &Claim) -> WriteCondition {
    WriteCondition::Item { key: keys::claim(cluster, &claim.name), expect: Expect::Revision(claim.revision) }
}

fn step_commit(cluster: &ClusterName, step: &ClaimStep) -> Result<Commit, HandlerError> {
    let mut change = Change::step(cluster, step.before.revision, &step.after);
    if let Some(action) = &step.action {
        change.action(action)?;
    }
    for record in &step.journal {
        change.record(record, DecisionCounter::Subject(step.after.revision));
    }
    Ok(change.commit())
}

fn forget_commit(cluster: &ClusterName, forgotten: &Forgotten, now: Timestamp) -> Commit {
    let before = Expect::Revision(forgotten.claim.revision);
    let claim = Claim { revision: forgotten.claim.revision.saturating_add(1), ..forgotten.claim.clone() };
    let mut change = Change::of(cluster);
    change.last_of_claim(before, &claim, now.saturating_add(CLAIM_KEPT).unwrap_or(now));
    change.write(Write::Delete { key: action_key(cluster, &claim.name) });
    change.count();
    if let Some(instance) = &forgotten.instance {
        change.write(Write::Delete { key: keys::instance(instance) });
    }
    change.commit()
}

fn launch_commit(cluster: &ClusterName, launch: &Launch, now: Timestamp) -> Commit {
    let next = Launch { revision: launch.revision.saturating_add(1), ..launch.clone() };
    let until = now.saturating_add(LAUNCH_KEPT).unwrap_or(now);
    let mut change = Change::of(cluster);
    let key = keys::launch(cluster, &launch.id);
    change.replace(Expect::Revision(launch.revision), form::set_expiring(key, &next, until));
    change.commit()
}

/// The observation of an item that gets this revision.
fn before(next: u64) -> Expect {
    match next.saturating_sub(1) {
        0 => Expect::Absent,
        before => Expect::Revision(before),
    }
}

/// The audit's record, its decisions and a halt.
fn audit_commit(cluster: &ClusterName, audit: &AuditPlan) -> Option<Commit> {
    let record = audit.record.as_ref()?;
    let mut change = Change::of(cluster);
    change.replace(before(record.revision), form::set(AuditRecord::key(cluster), record));
    if let Some(halt) = &audit.halt {
        change.replace(Expect::Absent, form::put(keys::halt(cluster), halt));
        change.count();
    }
    let counted = AuditRecord::key(cluster);
    for told in &audit.journal {
        change.record(told, DecisionCounter::Item(&counted, record.revision));
    }
    Some(change.commit())
}

/// Names that leave or are free again, on the condition that no launch was committed since the look. `None` without
/// changes.
fn templates_commit(cluster: &ClusterName, plan: &TemplatePlan) -> Option<Commit> {
    if plan.leaving.is_none() && plan.unneeded.is_none() {
        return None;
    }
    let mut change = Change::of(cluster);
    if let Some(leaving) = &plan.leaving {
        change.condition(WriteCondition::Cluster { cluster: cluster.clone(), revision: plan.revision });
        change.replace(before(leaving.revision), form::set(keys::leaving_templates(cluster), leaving));
    }
    if let Some(unneeded) = &plan.unneeded {
        change.replace(before(unneeded.revision), form::set(UnneededTemplates::key(cluster), unneeded));
    }
    for name in &plan.forgotten {
        change.write(Write::Delete { key: keys::template(cluster, name) });
    }
    let counted = keys::revision(cluster);
    for record in &plan.journal {
        change.record(record, DecisionCounter::Item(&counted, plan.revision.saturating_add(1)));
    }
    Some(change.commit())
}
