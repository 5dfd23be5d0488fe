//! Tenon is no worse than the peer's rule, in a short form of the benchmark and in the document's tables.

use tenon_backoff::{Case, Size, both};

/// Less than half of the hour with fewer pods. Half of it are whole turns of the peer's rule, as of the hour.
const SHORT: Size = Size { first: 60, each_minute: 10, minutes: 24 };
/// Boot times are drawn, so that equal waits differ by as much.
const DRAWN_SECONDS: i64 = 1;

const DOCUMENT: &str = include_str!("../../../docs/backoff.md");

fn allowed(column: &str) -> i64 {
    if column.ends_with(", s") { DRAWN_SECONDS } else { 0 }
}

/// Whether a column may exceed the peer's: if nothing is available, Tenon probes exhausted offerings one after the
/// other with one claim, the peer all at once; the short form with few pods also probes a little more often.
fn may_exceed(case: Case, column: &str) -> bool {
    case == Case::NothingElse && column.starts_with("launches")
}

#[test]
fn no_column_is_worse_than_the_peers() {
    for case in Case::ALL {
        let [ours, peers] = both(case, SHORT).unwrap();
        let few_pods = |column: &str| case == Case::NothingElse && column.starts_with("errors");
        for ((column, ours), (_, peers)) in ours.columns().into_iter().zip(peers.columns()) {
            let worse = ours > peers + allowed(column) && !may_exceed(case, column) && !few_pods(column);
            assert!(!worse, "{}: {column}: {ours}, the peer {peers}", case.as_str());
        }
    }
}

#[test]
fn the_documents_tables_say_so() {
    for case in Case::ALL {
        let (_, section) = DOCUMENT.split_once(&format!("## {}\n", case.title())).unwrap();
        let rows: Vec<Vec<&str>> = section
            .lines()
            .take_while(|line| !line.starts_with("## "))
            .filter(|line| line.starts_with("| ") && !line.starts_with("| |"))
            .map(|line| line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(rows.len(), 7);
        for row in rows {
            let [ours, peers] = [row[1], row[2]].map(|cell| cell.parse::<i64>().unwrap());
            assert!(ours <= peers + allowed(row[0]) || may_exceed(case, row[0]), "{row:?}");
        }
    }
}
