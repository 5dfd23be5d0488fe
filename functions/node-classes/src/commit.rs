//! Writes what changed: each class on its own revision, counted as a step, with its record.

use std::collections::BTreeSet;

use tenon_domain::id::{ClusterName, NodeClassName};
use tenon_runtime::{HandlerError, Ports};
use tenon_table::content_commit;
use tenon_table::items::{self, JournalOf, add_step, journal_writes, keys};
use tenon_table::{Commit, CommitError, Condition, Expect, Table, Write};

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
    Ok(committed)
}

fn class_commit(cluster: &ClusterName, change: &Change) -> Commit {
    let key = keys::node_class(cluster, &change.status.name);
    let expect = change.before.map_or(Expect::Absent, Expect::Revision);
    let item = ClassItem { status: change.status.clone(), images: change.images.clone() };
    let mut writes = vec![items::set(key.clone(), &item)];
    match change.reach {
        Reach::Planners => writes.push(add_step(cluster)),
        Reach::Nobody => {}
    }
    if let Some(record) = &change.record {
        writes.extend(journal_writes(JournalOf::Cluster(cluster), record, change.status.revision, 0));
    }
    content_commit(vec![Condition::Item { key, expect }], writes)
}

fn gone_commit(cluster: &ClusterName, name: &NodeClassName, revision: u64) -> Commit {
    let key = keys::node_class(cluster, name);
    let condition = Condition::Item { key: key.clone(), expect: Expect::Revision(revision) };
    content_commit(vec![condition], vec![Write::Delete { key }, add_step(cluster)])
}
