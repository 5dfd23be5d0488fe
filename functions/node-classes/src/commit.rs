//! Writes changes: each class on its own revision, counted as a step, with its record.

use std::collections::BTreeSet;

use tenon_domain::id::{ClusterName, NodeClassName};
use tenon_runtime::{HandlerError, Ports};
use tenon_state::step::Change as Changed;
use tenon_table::items::{self, DecisionCounter, keys};
use tenon_table::{Commit, CommitError, Expect, Table, Write};

use crate::change::{ChangeReach, ClassChange};
use crate::item::ClassItem;
use crate::plan::NodeClassesPlan;

/// The committed changes.
#[derive(Debug, Default)]
pub(crate) struct CommittedClasses {
    /// Classes that another pass changed first; they are observed again.
    pub(crate) lost: BTreeSet<NodeClassName>,
}

pub(crate) async fn commit<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    plan: &NodeClassesPlan,
) -> Result<CommittedClasses, HandlerError> {
    let mut committed = CommittedClasses::default();
    let changed = plan.changes.iter().map(|change| (&change.status.name, class_commit(cluster, change)));
    let gone = plan.gone.iter().map(|(name, revision)| (name, gone_commit(cluster, name, *revision)));
    for (name, commit) in changed.chain(gone) {
        match ports.table().commit(&commit).await {
            Ok(()) => {}
            Err(CommitError::LostRace { .. }) => {
                committed.lost.insert(name.clone());
            }
            Err(error) => return Err(HandlerError::Commit(error)),
        }
    }
    Ok(committed)
}

fn class_commit(cluster: &ClusterName, change: &ClassChange) -> Commit {
    let before = change.before.map_or(Expect::Absent, Expect::Revision);
    let item = ClassItem { status: change.status.clone(), images: change.images.clone() };
    let mut changed = Changed::of(cluster);
    let key = keys::node_class(cluster, &change.status.name);
    changed.replace(before, items::set(key.clone(), &item));
    match change.reach {
        ChangeReach::Planners => changed.count(),
        ChangeReach::Nobody => {}
    }
    if let Some(record) = &change.record {
        changed.record(record, DecisionCounter::Subject(change.status.revision));
    }
    for rejection in &change.rejections {
        changed.record(&rejection.record, DecisionCounter::Item(&key, change.status.revision));
    }
    changed.commit()
}

fn gone_commit(cluster: &ClusterName, name: &NodeClassName, revision: u64) -> Commit {
    let mut changed = Changed::of(cluster);
    changed.replace(Expect::Revision(revision), Write::Delete { key: keys::node_class(cluster, name) });
    changed.count();
    changed.commit()
}
