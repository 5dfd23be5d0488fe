//! Reading and clearing marks.

#![expect(clippy::unwrap_used, reason = "helpers of an integration test fail as tests do")]

use jiff::Timestamp;
use std::sync::Arc;
use tenon_domain::id::Region;
use tenon_domain::unavailable::{Mark, MarkState};
use tenon_table::items::keys;
use tenon_table::marks::*;
use tenon_table::{Commit, CommitToken, Table};

use tenon_domain::id::{ClusterName, LaunchId};
use tenon_domain::unavailable::{LaunchAsked, Probe, Refusal, RefusalCause, UnavailableKey};

use tenon_memory_table::{MemoryConfig, MemoryTable, block_on};
use tenon_table::items::put;

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
    mark.leased(Probe::of(LaunchAsked { cluster: &cluster, launch: &launch, planned_at: at(1010) })).unwrap()
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
    // A mark without effect counts as unknown.
    assert!(matches!(clear(&table, &[OFFERING]), Err(MarksError::Unknown { .. })));
    let all = |table| block_on(clear_marks(table, &region(), &Meant::All, at(1020))).unwrap();
    assert_eq!((all(&table), all(&table)), (vec![other], Vec::new()));
}

#[test]
fn where_one_of_them_is_not_there_none_is_cleared() {
    let table = table(&[mark(OFFERING)]);
    let Err(MarksError::Unknown { unknown, known }) = clear(&table, &[OFFERING, "offering#m5", "x"]) else {
        panic!("they aren't there");
    };
    assert_eq!((unknown, known), (vec!["offering#m5".to_owned(), "x".to_owned()], vec![OFFERING.to_owned()]));
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
