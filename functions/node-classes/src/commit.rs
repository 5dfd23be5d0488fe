//! Writes what changed: each class on its own revision, counted as a step, with its record.

use std::collections::BTreeSet;

use tenon_domain::evidence::Waiting;
use tenon_domain::id::{ClusterName, NodeClassName};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::wake::FunctionName;
use tenon_runtime::{HandlerError, Ports};
use tenon_state::step::Change as Changed;
use tenon_table::content_commit;
use tenon_table::items::{self, Seen, keys};
use tenon_table::{Commit, CommitError, Expect, Table, Write};

use crate::item::ClassItem;
use crate::plan::{Change, Plan, Reach};

/// What went through.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    /// Classes whose change another look was faster with: it is looked at again.
    pub(crate) lost: BTreeSet<NodeClassName>,
}

pub(crate) async fn commit<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    plan: &Plan,
) -> Result<Committed, HandlerError> {
    let mut committed = Committed::default();
    let changed = plan.changes.iter().map(|change| (&change.status.name, class_commit(cluster, change)));
    let gone = plan.gone.iter().map(|(name, revision)| (name, gone_commit(cluster, name, *revision)));
    for (name, commit) in changed.chain(gone) {
        match ports.table().commit(&commit).await {
            Ok(()) => {}
            Err(CommitError::LostRace { .. }) => {
                committed.lost.insert(name.clone());
            }
            Err(
                error @ (CommitError::Conflict { .. }
                | CommitError::TokenMismatch { .. }
                | CommitError::Throttled { .. }
                | CommitError::ItemTooLarge { .. }
                | CommitError::TooLarge { .. }
                | CommitError::Invalid { .. }
                | CommitError::Unavailable(_)),
            ) => return Err(HandlerError::Commit(error)),
        }
    }
    // A look that lost a race isn't the one that the next sweep may rely on.
    if committed.lost.is_empty() {
        let seen = items::set(keys::seen(cluster, FunctionName::NodeClasses), &plan.seen);
        ports.table().commit(&content_commit(Vec::new(), vec![seen])).await?;
    }
    Ok(committed)
}

/// Writes that the classes are waited for, with its record.
pub(crate) async fn commit_waiting<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    waiting: &Waiting,
    seen: &Seen,
) -> Result<(), HandlerError> {
    let by = FunctionName::NodeClasses.as_str();
    let subject = Subject { kind: SubjectKind::Class, name: "*".to_owned() };
    let message = format!("{by} waits: {waiting}");
    let record = JournalRecord::new(subject, seen.at, by, Decision::Waiting, message)
        .detail("reason", waiting.reason())
        .evidence("snapshot", seen.generations.snapshot);
    let mut change = Changed::of(cluster);
    change.write(items::set(keys::seen(cluster, FunctionName::NodeClasses), seen));
    change.record(&record, seen.generations.revision);
    ports.table().commit(&change.commit()).await?;
    Ok(())
}

fn class_commit(cluster: &ClusterName, change: &Change) -> Commit {
    let before = change.before.map_or(Expect::Absent, Expect::Revision);
    let item = ClassItem { status: change.status.clone(), images: change.images.clone() };
    let mut changed = Changed::of(cluster);
    changed.replace(before, items::set(keys::node_class(cluster, &change.status.name), &item));
    match change.reach {
        Reach::Planners => changed.count(),
        Reach::Nobody => {}
    }
    if let Some(record) = &change.record {
        changed.record(record, change.status.revision);
    }
    changed.commit()
}

fn gone_commit(cluster: &ClusterName, name: &NodeClassName, revision: u64) -> Commit {
    let mut changed = Changed::of(cluster);
    changed.replace(Expect::Revision(revision), Write::Delete { key: keys::node_class(cluster, name) });
    changed.count();
    changed.commit()
}
