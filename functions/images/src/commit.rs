//! Writes changes, each with its record.
//!
//! The writes are unconditional: EC2's last answer counts, and if two passes cross, the next sweep corrects them.

use tenon_runtime::{HandlerError, Ports};
use tenon_table::content_commit;
use tenon_table::items::{self, Journal, JournalOf, keys};
use tenon_table::{Table, Write};

use crate::plan::{ImageChange, ImagesPlan};

/// Changes of one transaction: each is an item and two of the journal, of at most 100.
const CHANGES_A_COMMIT: usize = 30;

pub(crate) async fn commit<P: Ports>(ports: &P, plan: &ImagesPlan) -> Result<(), HandlerError> {
    for changes in plan.changes.chunks(CHANGES_A_COMMIT) {
        let mut journal = Journal::of(JournalOf::Region(&ports.installation().region));
        let writes = changes.iter().flat_map(|change| writes(ports, change, &mut journal)).collect();
        ports.table().commit(&content_commit(Vec::new(), writes)).await?;
    }
    Ok(())
}

fn writes<P: Ports>(ports: &P, change: &ImageChange, journal: &mut Journal<'_>) -> Vec<Write> {
    let region = &ports.installation().region;
    let key = keys::image(region, &change.record.id);
    let mut writes = vec![match change.expires_at {
        Some(at) => items::set_expiring(key, &change.record, at),
        None => items::set(key, &change.record),
    }];
    if let Some(record) = &change.journal {
        writes.extend(journal.writes(record, 0));
    }
    writes
}
