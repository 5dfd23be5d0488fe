//! The table's port, against which functions are written: reads, queries and commits.
//!
//! Decides the calls, and what each error means to the caller. Adapters decide nothing: all refuse the same requests,
//! which `tenon_memory_table::conformance` checks. There are no scans and no filters: a query that would need one
//! gets a prefix.
//!
//! Invariants: a query's items are sorted by sort key, bytewise; without writes in between, a page's `next` leads on
//! without gaps or repetitions.

use crate::commit::{Commit, CommitError};
use crate::key::{self, Key};
use crate::limits;
use crate::value::Item;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::future::Future;
use std::sync::Arc;

/// The source of an adapter's error, such as the SDK's own.
pub type AdapterCause = Arc<dyn Error + Send + Sync>;

/// The state table.
pub trait Table: Send + Sync {
    /// One item, or `None`.
    ///
    /// # Errors [`TableError`] tells the caller what to do next.
    fn get(
        &self,
        key: &Key,
        consistency: Consistency,
    ) -> impl Future<Output = Result<Option<Item>, TableError>> + Send;

    /// The existing items of these keys, by one call: 1 to 100 different keys, and 16 MB of items. An incomplete
    /// answer is an error as a whole.
    ///
    /// # Errors [`TableError`] tells the caller what to do next.
    fn batch_get(
        &self,
        keys: &[Key],
        consistency: Consistency,
    ) -> impl Future<Output = Result<BTreeMap<Key, Item>, TableError>> + Send;

    /// One page of a partition's items: up to 1 MB and up to the query's limit.
    ///
    /// # Errors [`TableError`] tells the caller what to do next.
    fn query(&self, query: &Query) -> impl Future<Output = Result<QueryPage, TableError>> + Send;

    /// Writes a decision, wholly or not at all.
    ///
    /// # Errors [`CommitError`] tells the caller what to do next.
    fn commit(&self, commit: &Commit) -> impl Future<Output = Result<(), CommitError>> + Send;
}

/// Whether a read must see every write that came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// It must: one unit per 4 KB.
    Strong,
    /// It may see the state of a moment ago: half the price.
    Eventual,
}

/// The order of a query's items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryOrder {
    /// Lowest sort key first.
    Ascending,
    /// Highest sort key first.
    Descending,
}

/// Which sort keys of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkRange {
    /// All.
    All,
    /// Sort keys with this prefix.
    Prefix(String),
    /// Sort keys with the prefix that come after this one, which has the prefix too.
    After {
        /// Their prefix.
        prefix: String,
        /// The sort key before the first item.
        after: String,
    },
    /// From the first to the second, both included.
    Between(String, String),
}

impl SkRange {
    /// Whether the sort key is in the range.
    #[must_use]
    pub fn contains(&self, sk: &str) -> bool {
        match self {
            Self::All => true,
            Self::Prefix(prefix) => sk.starts_with(prefix.as_str()),
            Self::After { prefix, after } => sk.starts_with(prefix.as_str()) && sk > after.as_str(),
            Self::Between(first, last) => (first.as_str()..=last.as_str()).contains(&sk),
        }
    }
}

/// A question about one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The partition.
    pub pk: String,
    /// Which of its items.
    pub range: SkRange,
    /// Whether writes that came before must be seen.
    pub consistency: Consistency,
    /// The most items of one page, at least 1. A page that is full has a `next`, even where nothing follows.
    pub limit: Option<u32>,
    /// Where the page begins: the `next` of the page before. Not included.
    pub start_after: Option<String>,
    /// The order.
    pub order: QueryOrder,
}

impl Query {
    /// All items of a range, ascending, from the start, with no limit but the page's bytes.
    pub fn new(pk: impl Into<String>, range: SkRange, consistency: Consistency) -> Self {
        Self {
            pk: pk.into(),
            range,
            consistency,
            limit: None,
            start_after: None,
            order: QueryOrder::Ascending,
        }
    }

    /// Checks the query against the limits of DynamoDB and the port.
    ///
    /// # Errors [`TableError::Invalid`].
    pub fn check(&self) -> Result<(), TableError> {
        let invalid = |message| Err(TableError::Invalid { message });
        let check_sk = |sk: &str| key::check_part(key::SK, sk, limits::SK_BYTES);
        let check_keys = || {
            key::check_part(key::PK, &self.pk, limits::PK_BYTES)?;
            self.start_after.as_deref().map_or(Ok(()), check_sk)?;
            match &self.range {
                SkRange::All => Ok(()),
                SkRange::Prefix(prefix) => check_sk(prefix),
                SkRange::After { prefix, after } => check_sk(prefix).and_then(|()| check_sk(after)),
                SkRange::Between(first, last) => check_sk(first).and_then(|()| check_sk(last)),
            }
        };
        if let Err(message) = check_keys() {
            return invalid(message);
        }
        match &self.range {
            SkRange::After { prefix, after } if !after.starts_with(prefix.as_str()) => {
                return invalid(format!("`{after}` doesn't begin with `{prefix}`: give a key of the range"));
            }
            SkRange::Between(first, last) if first > last => {
                return invalid(format!("`{first}` comes after `{last}`: give the lower key first"));
            }
            SkRange::All | SkRange::Prefix(_) | SkRange::After { .. } | SkRange::Between(..) => {}
        }
        if self.limit == Some(0) {
            return invalid("a limit of 0: give at least 1, or none".to_owned());
        }
        match &self.start_after {
            Some(start) if !self.range.contains(start) => invalid(format!(
                "`{start}` lies outside of the query's range: give the `next` of its own page"
            )),
            Some(_) | None => Ok(()),
        }
    }
}

/// One page of a query's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryPage {
    /// The items, in the query's order.
    pub items: Vec<(Key, Item)>,
    /// The position of the next page; `None` on the last.
    pub next: Option<String>,
}

/// Why a read gave no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TableError {
    /// Too much for this partition key in this second. Ask again a moment later.
    #[error("reads of `{pk}` are throttled: ask again later")]
    Throttled {
        /// The partition key, if the table names it; otherwise the request's first.
        pk: String,
    },
    /// The answer is larger than one call gives. Ask for less.
    #[error("{what} exceeds {limit}, the limit of one answer: ask for less")]
    AnswerTooLarge {
        /// The request.
        what: String,
        /// The limit of one answer.
        limit: String,
    },
    /// The request is invalid: a defect of the caller.
    #[error("invalid read: {message}")]
    Invalid {
        /// The problem, and the remedy.
        message: String,
    },
    /// The table didn't answer. Ask again at the next wake.
    #[error("the table is unavailable")]
    Unavailable(#[source] AdapterCause),
}

/// Checks the keys of a batch against DynamoDB's limits.
///
/// # Errors [`TableError::Invalid`] for no keys, more than 100, a repeated key, or one of a wrong size.
pub fn check_batch(keys: &[Key]) -> Result<(), TableError> {
    let invalid = |message| Err(TableError::Invalid { message });
    if keys.is_empty() || keys.len() > limits::BATCH_KEYS {
        return invalid(format!("a batch of {} keys: give 1 to {}", keys.len(), limits::BATCH_KEYS));
    }
    let mut seen = BTreeSet::new();
    for key in keys {
        if let Err(message) = key.check() {
            return invalid(message);
        }
        if !seen.insert(key) {
            return invalid(format!("`{key}` twice in one batch: give it once"));
        }
    }
    Ok(())
}

/// The most pages that [`query_all`] follows: 256 MB, which no function's memory should hold.
pub const QUERY_ALL_PAGES: usize = 256;

/// All items of a query, page by page; the query's limit is each page's. It isn't one consistent view: a write
/// between two pages may be visible.
///
/// # Errors Those of [`Table::query`], and [`TableError::AnswerTooLarge`] after [`QUERY_ALL_PAGES`] pages.
pub async fn query_all<T: Table>(table: &T, query: &Query) -> Result<Vec<(Key, Item)>, TableError> {
    let mut query = query.clone();
    let mut items = Vec::new();
    for _ in 0..QUERY_ALL_PAGES {
        let page = table.query(&query).await?;
        items.extend(page.items);
        match page.next {
            None => return Ok(items),
            next @ Some(_) => query.start_after = next,
        }
    }
    Err(TableError::AnswerTooLarge {
        what: format!("the query of `{}`", query.pk),
        limit: format!("{QUERY_ALL_PAGES} pages"),
    })
}
