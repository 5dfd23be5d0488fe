//! Writes changes, each with its journal record, and after a whole sweep which queries the records answer.
//!
//! Invariant: an older answer of EC2 never replaces a newer one. A record is written only over the one that was read
//! before EC2 was asked; an image whose record another pass wrote meanwhile is looked at again.

use std::collections::BTreeSet;

use tenon_runtime::{HandlerError, Ports};
use tenon_table::items::{self, DecisionCounter, ImageSweep, Journal, JournalOf, keys};
use tenon_table::{Commit, CommitError, Expect, Table, WriteCondition, content_commit};

use crate::plan::{ImageChange, ImagesPlan};
use crate::{ImagesDone, LostImages};

/// Changes of one transaction: each is an item and two of the journal, of at most 100.
const CHANGES_A_COMMIT: usize = 30;

pub(crate) async fn commit<P: Ports>(
    ports: &P,
    plan: &ImagesPlan,
    done: &mut ImagesDone,
) -> Result<(), HandlerError> {
    done.lost = None;
    for changes in plan.changes.chunks(CHANGES_A_COMMIT) {
        match ports.table().commit(&one_commit(ports, changes)).await {
            Ok(()) => done.committed.extend_from_slice(changes),
            Err(error @ CommitError::LostRace { .. }) => {
                let lost = done.lost.get_or_insert_with(|| LostImages { ids: BTreeSet::new(), error });
                lost.ids.extend(changes.iter().map(|change| change.record.id.clone()));
            }
            Err(error) => return Err(HandlerError::Commit(error)),
        }
    }
    Ok(())
}

fn one_commit<P: Ports>(ports: &P, changes: &[ImageChange]) -> Commit {
    let region = &ports.installation().region;
    let mut journal = Journal::of(JournalOf::Region(region));
    let (mut conditions, mut writes) = (Vec::new(), Vec::new());
    for change in changes {
        let key = keys::image(region, &change.record.id);
        let expect = match change.before {
            None => Some(Expect::Absent),
            // A record of an older release has no revision.
            Some(0) => None,
            Some(revision) => Some(Expect::Revision(revision)),
        };
        conditions.extend(expect.map(|expect| WriteCondition::Item { key: key.clone(), expect }));
        writes.push(match change.expires_at {
            Some(at) => items::set_expiring(key, &change.record, at),
            None => items::set(key, &change.record),
        });
        if let Some(record) = &change.journal {
            writes.extend(journal.writes(record, DecisionCounter::Subject(change.record.revision)));
        }
    }
    content_commit(conditions, writes)
}

/// Writes which queries the records answer. An older sweep may come last: its time then says so.
pub(crate) async fn swept<P: Ports>(ports: &P, sweep: &ImageSweep) -> Result<(), HandlerError> {
    let key = keys::image_sweep(&ports.installation().region);
    ports.table().commit(&content_commit(Vec::new(), vec![items::set(key, sweep)])).await?;
    Ok(())
}
