//! Marks, as an operator clears them.
//!
//! Decides which marks are meant, and how one is cleared that functions write meanwhile: under the revision that was read,
//! and read again where another writer was faster. What clearing makes of a mark is the domain's; who may clear is IAM's.
//!
//! Invariants: where one of those that are named isn't there, none is cleared; what a function wrote since the read is
//! cleared by its own revision or not at all, so no write is lost.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::id::Region;
use tenon_domain::unavailable::{Mark, MarkState};

use crate::items::{FormError, from_item, from_items, keys, set};
use crate::{
    Commit, CommitError, CommitToken, Condition, Consistency, Expect, Query, SkRange, Table, TableError,
    query_all,
};

/// How often a mark is read again because a function was faster: each write is an answer of EC2 or a lease, and there are
/// few of those in a second.
const RACES: usize = 4;

/// Which marks are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meant {
    /// All that still say something.
    All,
    /// Those of these keys, as they stand after `UNAVAILABLE#`.
    Named(Vec<String>),
}

/// Why marks can't be cleared.
#[derive(Debug, thiserror::Error)]
pub enum MarksError {
    /// The table can't be read.
    #[error("the table can't be read")]
    Read(#[from] TableError),
    /// The table can't be written.
    #[error("the table can't be written")]
    Write(#[from] CommitError),
    /// An item isn't a mark.
    #[error("a mark can't be read")]
    Form(#[from] FormError),
    /// Some of those that were named aren't there, or say nothing any more.
    #[error("nothing is marked as `{}`", unknown.join("`, `"))]
    Unknown {
        /// Those, in the order in which they were named.
        unknown: Vec<String>,
        /// All that are there, by key.
        known: Vec<String>,
    },
}

/// Clears marks for an operator; gives them as they were then, by key. One that came to say nothing meanwhile isn't among
/// them.
///
/// # Errors
/// [`MarksError`]; a mark that others write faster than it can be cleared ends as a lost race. Those before it are cleared.
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

/// All marks of a region, by key, whatever they still say: as of now, not of a moment ago.
async fn read_marks<T: Table>(table: &T, region: &Region) -> Result<Vec<Mark>, MarksError> {
    let range = SkRange::Prefix(keys::UNAVAILABLE.to_owned());
    let items = query_all(table, &Query::new(keys::region_pk(region), range, Consistency::Strong)).await?;
    Ok(from_items(&items)?)
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

/// Clears one; gives it as it was then. Nothing where it says nothing any more.
async fn clear_mark<T: Table>(
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
        let (what, revision, at) = (key.to_string(), mark.revision.to_string(), now.to_string());
        let commit = Commit {
            token: CommitToken::of_texts(["clear", what.as_str(), revision.as_str(), at.as_str()]),
            conditions: vec![Condition::Item { key: key.clone(), expect }],
            writes: vec![set(key.clone(), &cleared)],
        };
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tenon_domain::id::{ClusterName, LaunchId};
    use tenon_domain::unavailable::{LaunchAsked, Probe, Refusal, RefusalCause, UnavailableKey};

    use super::*;
    use crate::items::put;
    use crate::{MemoryConfig, MemoryTable, block_on};

    const OFFERING: &str = "offering#spot#use1-az1#m5.large";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn region() -> Region {
        Region::parse("us-east-1").unwrap()
    }

    fn mark(what: &str) -> Mark {
        let refusal = Refusal {
            key: &UnavailableKey::parse(what).unwrap(),
            code: "InsufficientInstanceCapacity",
            cluster: &ClusterName::parse("prod").unwrap(),
            cause: RefusalCause::Launch(&LaunchId::parse("launch-0").unwrap()),
            vcpus: None,
            now: at(1000),
        };
        Mark::refused(None, &refusal).unwrap()
    }

    fn leased(mark: &Mark) -> Mark {
        let (cluster, launch) = (ClusterName::parse("prod").unwrap(), LaunchId::parse("launch-1").unwrap());
        mark.leased(Probe::of(LaunchAsked { cluster: &cluster, launch: &launch, planned_at: at(1010) }))
            .unwrap()
    }

    /// A table with these marks.
    fn table(marks: &[Mark]) -> MemoryTable {
        let table = MemoryTable::new(MemoryConfig::strict(7), Arc::new(|| at(1020)));
        for mark in marks {
            let token = CommitToken::of_texts([mark.key.to_string().as_str()]);
            let writes = vec![put(keys::unavailable(&region(), &mark.key), mark)];
            block_on(table.commit(&Commit { token, conditions: Vec::new(), writes })).unwrap();
        }
        table
    }

    fn clear(table: &MemoryTable, names: &[&str]) -> Result<Vec<Mark>, MarksError> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        block_on(clear_marks(table, &region(), &Meant::Named(names), at(1020)))
    }

    #[test]
    fn a_cleared_mark_says_nothing_and_the_others_stay() {
        let (first, other) = (mark(OFFERING), mark("capacity-type#spot"));
        let table = table(&[first.clone(), other.clone()]);
        assert_eq!(clear(&table, &[OFFERING, OFFERING]).unwrap(), std::slice::from_ref(&first));
        let left = block_on(read_marks(&table, &region())).unwrap();
        assert_eq!((left[0].clone(), left[1].state(at(1020))), (other.clone(), MarkState::Forgotten));
        assert_eq!(left[1].revision, first.revision + 1);
        // What says nothing any more isn't there.
        assert!(matches!(clear(&table, &[OFFERING]), Err(MarksError::Unknown { .. })));
        let all = |table| block_on(clear_marks(table, &region(), &Meant::All, at(1020))).unwrap();
        assert_eq!((all(&table), all(&table)), (vec![other], Vec::new()));
    }

    #[test]
    fn where_one_of_them_is_not_there_none_is_cleared() {
        let table = table(&[mark(OFFERING)]);
        let Err(MarksError::Unknown { unknown, known }) = clear(&table, &[OFFERING, "offering#m5", "x"])
        else {
            panic!("they aren't there");
        };
        assert_eq!(
            (unknown, known),
            (vec!["offering#m5".to_owned(), "x".to_owned()], vec![OFFERING.to_owned()])
        );
        assert_eq!(block_on(read_marks(&table, &region())).unwrap(), [mark(OFFERING)]);
    }

    #[test]
    fn what_a_function_wrote_meanwhile_is_cleared_by_its_own_revision() {
        let read = mark(OFFERING);
        let since = leased(&read);
        let table = table(std::slice::from_ref(&since));
        let cleared = block_on(clear_mark(&table, &region(), read, at(1020))).unwrap();
        assert_eq!(cleared, Some(since.clone()), "the lease is cleared too, and told");
        assert_eq!(block_on(read_marks(&table, &region())).unwrap()[0].revision, since.revision + 1);
    }

    #[test]
    fn a_mark_that_is_gone_meanwhile_is_nothing_to_clear() {
        assert_eq!(block_on(clear_mark(&table(&[]), &region(), mark(OFFERING), at(1020))).unwrap(), None);
    }
}
