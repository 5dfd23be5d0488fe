//! An operator's clearing of marks.
//!
//! Decides which marks are cleared, and how to clear a mark that functions write meanwhile: under the revision that
//! was read, with a new read after a lost race. The domain decides the cleared form, IAM the right to clear.
//!
//! Invariants: if a named mark doesn't exist, none is cleared; a concurrent write is cleared by its own revision or
//! not at all, so no write is lost.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::id::Region;
use tenon_domain::unavailable::{Mark, MarkState};

use crate::items::{FormError, from_item, from_known_items, keys, set};
use crate::{
    CommitError, Consistency, Expect, Query, SkRange, Table, TableError, WriteCondition, content_commit,
    query_all,
};

/// How often a mark is read again after a lost race: each write is an answer of EC2 or a lease, and those are few a
/// second.
const RACES: usize = 4;

/// Which marks are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meant {
    /// All that still say something.
    All,
    /// The marks of these keys, without the prefix `UNAVAILABLE#`.
    Named(Vec<String>),
}

/// Why marks can't be cleared.
#[derive(Debug, thiserror::Error)]
pub enum MarksError {
    /// The table can't be read.
    #[error("can't read the table")]
    Read(#[from] TableError),
    /// The table can't be written.
    #[error("can't write to the table")]
    Write(#[from] CommitError),
    /// An item isn't a mark.
    #[error("invalid mark")]
    Form(#[from] FormError),
    /// Some of the named marks don't exist, or have no effect.
    #[error("no capacity is marked as `{}`", unknown.join("`, `"))]
    Unknown {
        /// Their names, in the given order.
        unknown: Vec<String>,
        /// All that are there, by key.
        known: Vec<String>,
    },
}

/// Clears marks for an operator. Returns the earlier marks, by key, except ended ones.
///
/// # Errors [`MarksError`]; a mark that changes too fast is a lost race. Marks before it are cleared.
pub async fn clear_marks<T: Table>(
    table: &T,
    region: &Region,
    meant: &Meant,
    now: Timestamp,
) -> Result<Vec<Mark>, MarksError> {
    let mut cleared = Vec::new();
    for mark in choose(read_marks(table, region).await?, meant, now)? {
        cleared.extend(clear_mark(table, region, mark, now).await?);
    }
    Ok(cleared)
}

/// All marks of a region that this release knows, by key, even without effect, by a consistent read.
///
/// # Errors [`MarksError`] if the read fails, or an item isn't a mark.
pub async fn read_marks<T: Table>(table: &T, region: &Region) -> Result<Vec<Mark>, MarksError> {
    let range = SkRange::Prefix(keys::UNAVAILABLE.to_owned());
    let items = query_all(table, &Query::new(keys::region_pk(region), range, Consistency::Strong)).await?;
    Ok(from_known_items(&items)?)
}

fn choose(marks: Vec<Mark>, meant: &Meant, now: Timestamp) -> Result<Vec<Mark>, MarksError> {
    let there = marks.into_iter().filter(|mark| mark.state(now) != MarkState::Forgotten);
    let mut there: BTreeMap<String, Mark> = there.map(|mark| (mark.key.to_string(), mark)).collect();
    let names = match meant {
        Meant::All => return Ok(there.into_values().collect()),
        Meant::Named(names) => names,
    };
    let unknown: Vec<String> = names.iter().filter(|name| !there.contains_key(*name)).cloned().collect();
    if !unknown.is_empty() {
        return Err(MarksError::Unknown { unknown, known: there.into_keys().collect() });
    }
    let once: BTreeSet<&String> = names.iter().collect();
    Ok(once.into_iter().filter_map(|name| there.remove(name)).collect())
}

/// Clears one mark. Returns the earlier mark; `None` if it has no effect.
///
/// # Errors [`MarksError`]; a mark that changes too fast is a lost race.
pub async fn clear_mark<T: Table>(
    table: &T,
    region: &Region,
    mark: Mark,
    now: Timestamp,
) -> Result<Option<Mark>, MarksError> {
    let key = keys::unavailable(region, &mark.key);
    let (mut mark, mut lost) = (mark, None);
    for _ in 0..RACES {
        let Some(cleared) = mark.cleared_by_operator(now) else { return Ok(None) };
        let expect = Expect::Revision(mark.revision);
        let commit = content_commit(
            vec![WriteCondition::Item { key: key.clone(), expect }],
            vec![set(key.clone(), &cleared)],
        );
        match table.commit(&commit).await {
            Ok(()) => return Ok(Some(mark)),
            Err(error @ CommitError::LostRace { .. }) => lost = Some(error),
            Err(error) => return Err(error.into()),
        }
        match table.get(&key, Consistency::Strong).await? {
            Some(item) => mark = from_item(&key, &item)?,
            None => return Ok(None),
        }
    }
    lost.map_or(Ok(None), |error| Err(error.into()))
}
