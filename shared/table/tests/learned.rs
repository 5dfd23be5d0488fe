//! Reading and clearing learned memory.

#![expect(clippy::unwrap_used, reason = "helpers of an integration test fail as tests do")]

use jiff::Timestamp;
use std::sync::Arc;
use tenon_domain::catalog::LearnedRecord;
use tenon_domain::id::Region;
use tenon_table::items::keys;
use tenon_table::learned::*;
use tenon_table::marks::Meant;
use tenon_table::{Commit, CommitToken, Table};

use tenon_domain::catalog::LearnedMemory;

use tenon_memory_table::{MemoryConfig, MemoryTable, block_on};
use tenon_table::items::put;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn region() -> Region {
    Region::parse("us-east-1").unwrap()
}

fn table(reports: &[(&str, &str, &str)]) -> MemoryTable {
    let table = MemoryTable::new(MemoryConfig::strict(7), Arc::new(|| at(1020)));
    for (instance_type, image, cluster) in reports {
        let record = LearnedRecord {
            instance_type: instance_type.parse().unwrap(),
            image: image.parse().unwrap(),
            revision: 1,
            memory: LearnedMemory(1),
            seen_at: at(1000),
            cluster: Some(cluster.parse().unwrap()),
        };
        let key = keys::learned(&region(), &record.instance_type, &record.image, &cluster.parse().unwrap());
        let token = CommitToken::of_texts([key.to_string().as_str()]);
        let commit = Commit { token, conditions: Vec::new(), writes: vec![put(key, &record)] };
        block_on(table.commit(&commit)).unwrap();
    }
    table
}

const REPORTS: [(&str, &str, &str); 4] = [
    ("m5.large", "ami-1", "prod"),
    ("m5.large", "ami-1", "shop"),
    ("m5.large", "ami-2", "prod"),
    ("m5.larger", "ami-1", "prod"),
];

fn check(names: &[&str], cleared: &[&str]) {
    let table = table(&REPORTS);
    let meant = Meant::Named(names.iter().map(|name| (*name).to_owned()).collect());
    let found = block_on(clear_learned(&table, &region(), &meant, at(1020))).unwrap();
    let found: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(found, cleared, "{names:?}");
    let left = block_on(read_learned(&table, &region(), at(1020))).unwrap();
    assert_eq!(left.len() + cleared.len(), REPORTS.len());
    assert!(left.iter().all(|(name, _)| !cleared.contains(&name.as_str())));
}

#[test]
fn a_type_an_image_or_a_clusters_report_is_cleared_and_the_others_stay() {
    check(&["m5.large"], &["m5.large#ami-1#prod", "m5.large#ami-1#shop", "m5.large#ami-2#prod"]);
    check(&["m5.large#ami-1"], &["m5.large#ami-1#prod", "m5.large#ami-1#shop"]);
    check(&["m5.large#ami-1#shop", "m5.large#ami-1#shop"], &["m5.large#ami-1#shop"]);
}

#[test]
fn where_one_of_them_is_not_there_none_is_cleared() {
    let table = table(&REPORTS);
    let meant = Meant::Named(vec!["m5.large".to_owned(), "c5.large".to_owned()]);
    let error = block_on(clear_learned(&table, &region(), &meant, at(1020))).unwrap_err();
    assert_eq!(error.to_string(), "no learned memory of `c5.large`");
    assert_eq!(block_on(read_learned(&table, &region(), at(1020))).unwrap().len(), 4);
    let all = || block_on(clear_learned(&table, &region(), &Meant::All, at(1020))).unwrap().len();
    assert_eq!((all(), all()), (4, 0));
}
