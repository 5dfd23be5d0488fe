//! What was learned of nodes' memory, as an operator clears it.
//!
//! Decides which records are meant. One is cleared under the revision that was read: where `lifecycle` was faster, the
//! operator is told so and asks again. What clearing makes of a record is the domain's; who may clear is IAM's.
//!
//! Invariant: where one of those that are named isn't there, none is cleared.

use jiff::Timestamp;
use tenon_domain::catalog::LearnedRecord;
use tenon_domain::id::Region;

use crate::items::{from_item, keys, set};
use crate::marks::Meant;
use crate::{
    CommitError, Consistency, Expect, Item, Key, Query, SkRange, Table, TableError, WriteCondition,
    content_commit, query_all,
};

/// Why records can't be cleared.
#[derive(Debug, thiserror::Error)]
pub enum LearnedError {
    /// The table can't be read.
    #[error("can't read the table")]
    Read(#[from] TableError),
    /// The table can't be written.
    #[error("can't write to the table")]
    Write(#[from] CommitError),
    /// Some of those that were named aren't there, or aren't believed any more.
    #[error("no learned memory of `{}`", unknown.join("`, `"))]
    Unknown {
        /// Those, in the order in which they were named.
        unknown: Vec<String>,
        /// All that are there, by key.
        known: Vec<String>,
    },
}

/// A record with the key that it is known by: `<type>#<image>#<cluster>`, without a cluster in records of before.
type Named = (String, Key, LearnedRecord);

/// Clears what was learned, for an operator; gives the items as they were then, with their keys. A name is a type, a type and
/// an image, or those and a cluster, with `#` between.
///
/// # Errors
/// [`LearnedError`]; a record that `lifecycle` writes meanwhile ends as a lost race. Those before it are cleared.
pub async fn clear_learned<T: Table>(
    table: &T,
    region: &Region,
    meant: &Meant,
    now: Timestamp,
) -> Result<Vec<(String, LearnedRecord)>, LearnedError> {
    let mut cleared = Vec::new();
    for (name, key, record) in choose(there(table, region, now).await?, meant)? {
        let Some(after) = record.cleared_by_operator(now) else { continue };
        let commit = content_commit(
            vec![WriteCondition::Item { key: key.clone(), expect: Expect::Revision(record.revision) }],
            vec![set(key, &after)],
        );
        table.commit(&commit).await?;
        cleared.push((name, record));
    }
    Ok(cleared)
}

/// The items that are still believed, with their keys, and those of a form that this build can't read.
///
/// # Errors
/// [`TableError`] where the table can't be read.
pub async fn read_learned<T: Table>(
    table: &T,
    region: &Region,
    now: Timestamp,
) -> Result<Vec<(String, Item)>, TableError> {
    let items = items(table, region).await?.into_iter().filter_map(|(key, item)| {
        let believed =
            from_item::<LearnedRecord>(&key, &item).map_or(true, |record| now < record.expires_at());
        believed.then(|| Some((keys::name_of(&key, keys::LEARNED)?.to_owned(), item))).flatten()
    });
    Ok(items.collect())
}

async fn items<T: Table>(table: &T, region: &Region) -> Result<Vec<(Key, Item)>, TableError> {
    let range = SkRange::Prefix(keys::LEARNED.to_owned());
    query_all(table, &Query::new(keys::region_pk(region), range, Consistency::Strong)).await
}

async fn there<T: Table>(table: &T, region: &Region, now: Timestamp) -> Result<Vec<Named>, LearnedError> {
    let named = items(table, region).await?.into_iter().filter_map(|(key, item)| {
        let record: LearnedRecord = from_item(&key, &item).ok()?;
        let name = keys::name_of(&key, keys::LEARNED)?.to_owned();
        (now < record.expires_at()).then_some((name, key, record))
    });
    Ok(named.collect())
}

fn choose(there: Vec<Named>, meant: &Meant) -> Result<Vec<Named>, LearnedError> {
    let names = match meant {
        Meant::All => return Ok(there),
        Meant::Named(names) => names,
    };
    let is = |found: &str, name: &str| {
        found.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
    };
    let unknown: Vec<String> =
        names.iter().filter(|name| !there.iter().any(|(found, ..)| is(found, name))).cloned().collect();
    if !unknown.is_empty() {
        let known = there.into_iter().map(|(name, ..)| name).collect();
        return Err(LearnedError::Unknown { unknown, known });
    }
    Ok(there.into_iter().filter(|(found, ..)| names.iter().any(|name| is(found, name))).collect())
}
