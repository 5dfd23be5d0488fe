//! Writes of marks, against the writes of other clusters.
//!
//! Decides nothing: the domain has a mark's next form.
//!
//! Invariant: a mark is written only over the form that it follows from.

use std::collections::BTreeMap;

use tenon_domain::unavailable::{Mark, UnavailableKey};
use tenon_runtime::{HandlerError, Ports};
use tenon_state::view::form_error;
use tenon_table::items::{form, keys, set};
use tenon_table::{CommitError, Consistency, Expect, Table, WriteCondition};
use tenon_table::{commit_through_conflicts, content_commit};

use crate::settle::{MarkWord, SettleInput};

/// The most attempts to write a mark against other clusters' writes. After that many lost races, the mark is recent.
const MARK_RACES: usize = 3;

/// The marks that this pass wrote or read since the observation.
pub(crate) type WrittenMarks = BTreeMap<UnavailableKey, Option<Mark>>;

/// Applies EC2's answer to one mark, on the condition of the mark's revision. All clusters share marks: after a lost
/// race it reads the mark again.
pub(crate) async fn write_mark<P: Ports>(
    ports: &P,
    input: SettleInput<'_>,
    word: &MarkWord,
    written: &mut WrittenMarks,
) -> Result<(), HandlerError> {
    let key = keys::unavailable(&ports.installation().region, &word.key);
    let known = written.entry(word.key.clone()).or_insert_with(|| input.marks.get(&word.key).cloned());
    for _ in 0..MARK_RACES {
        let Some(next) = word.next(known.as_ref(), input.asked(), input.now) else { return Ok(()) };
        let expect = known.as_ref().map_or(Expect::Absent, |mark| Expect::Revision(mark.revision));
        let condition = WriteCondition::Item { key: key.clone(), expect };
        let commit = content_commit(vec![condition], vec![set(key.clone(), &next)]);
        match commit_through_conflicts(ports.table(), &commit).await {
            Ok(()) => {
                *known = Some(next);
                return Ok(());
            }
            Err(CommitError::LostRace { .. }) => {
                let items = ports.table().batch_get(std::slice::from_ref(&key), Consistency::Strong).await?;
                let item = items.get(&key);
                *known = item.map(|item| form::from_item(&key, item)).transpose().map_err(form_error)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
