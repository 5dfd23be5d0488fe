//! An operator's clearing of learned memory.
//!
//! Decides which records are cleared. Each is cleared under the revision that was read; if `lifecycle` writes it
//! meanwhile, the operator gets an error and tries again. The domain decides the cleared form, IAM the right to
//! clear.
//!
//! Invariant: if a named record doesn't exist, none is cleared.

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
    /// Some of the named records don't exist, or have expired.
    #[error("no learned memory of `{}`", unknown.join("`, `"))]
    Unknown {
        /// Their names, in the given order.
        unknown: Vec<String>,
        /// All that are there, by key.
        known: Vec<String>,
    },
}

/// A record with the key that it is known by: `<type>#<image>#<cluster>`, without a cluster in records of before.
type Named = (String, Key, LearnedRecord);

/// Clears learned memory for an operator. Returns the earlier items with their keys. A name is a type, a type and an
/// image, or those and a cluster, joined by `#`.
///
/// # Errors [`LearnedError`]; a concurrent write of `lifecycle` is a lost race. Records before it are cleared.
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

/// The records that haven't expired, with their keys, and those that this build can't read.
///
/// # Errors [`TableError`] if the read fails.
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
