//! Plans larger than one transaction, and their commits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenon_domain::Timestamp;
use tenon_harness::{Meeting, Over, SetClock};
use tenon_memory_table::MemoryTable;
use tenon_state::commit::{CommitOutcome, commit};
use tenon_table::{
    Commit, CommitError, Consistency, Item, Key, Query, QueryPage, Slices, Table, TableError, Value, Write,
    WriteGroup,
};

use super::*;

/// So many groups of one item each.
fn groups(cluster: &Cluster, count: usize) -> Vec<WriteGroup> {
    let group = |n: usize| {
        let key = Key::new(tenon_table::items::keys::cluster_pk(&cluster.name), format!("PART#{n:03}"));
        WriteGroup { conditions: Vec::new(), writes: vec![Write::Put { key, item: BTreeMap::new() }] }
    };
    (0..count).map(group).collect()
}

/// The items of the groups that are there, and the cluster's revision.
fn found(cluster: &Cluster) -> (usize, Option<i64>) {
    let parts = cluster.world.table.dump().filter(|(key, _)| key.sk.starts_with("PART#")).count();
    let revision = cluster.world.table.dump().find(|(key, _)| key.sk == "REVISION");
    let number =
        |item: tenon_table::Item| item.values().filter_map(Value::as_number).find_map(|n| n.to_i64());
    (parts, revision.and_then(|(_, item)| number(item)))
}

#[test]
fn a_plan_is_cut_into_slices_under_the_clusters_revision() {
    let cluster = cluster(0);
    let committed =
        |revision| block_on(commit(&cluster.world, &cluster.name, revision, groups(&cluster, 150))).unwrap();
    assert_eq!(committed(0), CommitOutcome::Whole);
    assert_eq!(found(&cluster), (150, Some(2)), "two transactions, each of which raises the revision");
    assert_eq!(committed(1), CommitOutcome::Lost);
    assert_eq!(found(&cluster), (150, Some(2)));
}

#[test]
fn who_loses_a_race_between_two_slices_keeps_the_first_and_writes_no_other() {
    let cluster = cluster(0);
    let second = |commit: &Commit| commit.writes.iter().any(|write| write.key().sk == "PART#149");
    // Another's decision about the set, which raises the revision.
    let one =
        Slices::cut(&tenon_table::CommitToken::of_texts(["other"]), &cluster.name, 1, groups(&cluster, 1));
    let other = one.unwrap().commits()[0].clone();
    let ports = Meeting::new(&cluster.world, other, second);
    let outcome = block_on(commit(&ports, &cluster.name, 0, groups(&cluster, 150))).unwrap();
    assert_eq!((outcome, ports.met()), (CommitOutcome::Lost, true));
    let (parts, revision) = found(&cluster);
    assert_eq!(revision, Some(2));
    assert!((90..100).contains(&parts), "{parts}");
}

/// A table that throttles writes of one item, until a moment.
struct ThrottledTable {
    table: MemoryTable,
    clock: SetClock,
    item: &'static str,
    until: Timestamp,
    refused: AtomicUsize,
}

impl Table for ThrottledTable {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, TableError> {
        self.table.get(key, consistency).await
    }

    async fn batch_get(
        &self,
        keys: &[Key],
        consistency: Consistency,
    ) -> Result<BTreeMap<Key, Item>, TableError> {
        self.table.batch_get(keys, consistency).await
    }

    async fn query(&self, query: &Query) -> Result<QueryPage, TableError> {
        self.table.query(query).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let writes = commit.writes.iter().any(|write| write.key().sk == self.item);
        if writes && self.clock.now() < self.until {
            let refused = self.refused.fetch_add(1, Ordering::Relaxed);
            assert!(refused < 200, "asked again and again, without waiting");
            return Err(CommitError::Throttled { pk: String::new() });
        }
        self.table.commit(commit).await
    }
}

/// Committed launches are sent meanwhile; then it can only wait.
#[test]
fn a_throttled_slice_is_waited_for_and_goes_through_in_the_same_wake() {
    for item in ["PART#000", "PART#149"] {
        let cluster = cluster(0);
        let (table, clock) = (cluster.world.table.clone(), cluster.world.clock.clone());
        let until = clock.now() + SignedDuration::from_secs(2);
        let ports = Over::of(
            &cluster.world,
            ThrottledTable { table, clock, item, until, refused: AtomicUsize::new(0) },
        );
        let observed = block_on(observe(&cluster.world, &cluster.name, WANTS, &Caches::default())).unwrap();
        let groups = groups(&cluster, 150);
        let ports = Patient::new(&ports, PATIENCE);
        let (outcome, sent) =
            block_on(commit_and_send(&ports, &cluster.name, &observed, &CallPace::default(), (groups, &[])))
                .unwrap();
        assert_eq!((outcome, sent.retry_at), (CommitOutcome::Whole, None), "{item}");
        assert_eq!(found(&cluster), (150, Some(2)), "{item}");
    }
}
