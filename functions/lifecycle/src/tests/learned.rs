//! Learned memory of Nodes that register.

use tenon_domain::catalog::settings::MIB;
use tenon_domain::catalog::{LearnedMemory, LearnedRecord};
use tenon_domain::journal::{JournalRecord, Subject, SubjectKind};
use tenon_table::items::{DecisionCounter, JournalOf};

use super::*;
use crate::learn::Lesson;

fn reporting(n: usize, mebibytes: i64) -> Node {
    let capacity = ResourceList::new().with(ResourceName::MEMORY, Quantity::from_mebi(mebibytes));
    Node { capacity, ..node(n) }
}

/// Claims whose Nodes, with so many MiB each, have just registered.
fn registering(mebibytes: &[i64], known: Option<u64>) -> LifecycleInput {
    let nodes = mebibytes.iter().enumerate().map(|(n, mebibytes)| reporting(n, *mebibytes)).collect();
    let claims = (0..mebibytes.len()).map(|n| claim(n, launched(n, minutes(1)))).collect();
    let mut seen = input(minutes(2), claims, nodes);
    seen.learned.extend(known.map(|known| {
        let record = record(known, 1);
        ((record.instance_type.clone(), record.image.clone()), record)
    }));
    seen
}

fn record(mebibytes: u64, revision: u64) -> LearnedRecord {
    LearnedRecord {
        instance_type: held(0).instance_type,
        image: held(0).image,
        revision,
        memory: LearnedMemory(mebibytes * MIB),
        seen_at: minutes(2),
        cluster: Some(cluster()),
    }
}

fn check(mebibytes: &[i64], known: Option<u64>, expected: Option<(u64, u64)>) {
    let expected: Vec<LearnedRecord> =
        expected.into_iter().map(|(mebibytes, revision)| record(mebibytes, revision)).collect();
    let lessons = planned(&registering(mebibytes, known)).0.learned;
    let records: Vec<LearnedRecord> = lessons.into_iter().filter_map(|lesson| lesson.record).collect();
    assert_eq!(records, expected, "{mebibytes:?} {known:?}");
}

/// The findings about these reports.
fn told(mebibytes: &[i64], known: Option<u64>) -> Vec<String> {
    let lessons = planned(&registering(mebibytes, known)).0.learned;
    lessons.into_iter().filter_map(|lesson| lesson.refused).map(|record| record.message).collect()
}

#[test]
fn a_report_that_other_clusters_do_not_believe_is_told_once() {
    assert_eq!(told(&[7600], None), [""; 0]);
    assert_eq!(
        told(&[1, 7600], None),
        [
            "planning `m5.large` with image `ami-1` with 1048576 bytes of memory in cluster `prod` only: the Node of \
          NodeClaim `default-00000` reports less than the expected 7786159144 bytes; check the Node, or clear this with \
          `tenon clear learned m5.large ami-1`"
        ]
    );
    assert_eq!(told(&[1], Some(1)), [""; 0]);
    assert_eq!(
        told(&[8193], None),
        [
            "ignoring the memory of `m5.large` with image `ami-1`: the Node of NodeClaim `default-00000` in cluster `prod` \
          reports 8590983168 bytes, and EC2 states 8589934592; check the Node"
        ]
    );
}

#[test]
fn what_is_refused_is_in_the_journal_that_all_clusters_of_the_region_show() {
    let seen = registering(&[1], None);
    let world = world_with(&seen.claims.values().cloned().collect::<Vec<_>>());
    let (plan, _) = planned(&seen);
    block_on(crate::commit::commit(&world, &cluster(), &plan, seen.now)).unwrap();
    let region = &world.installation.region;
    let subject = Subject { kind: SubjectKind::Image, name: held(0).image.to_string() };
    let counted = keys::learned(region, &held(0).instance_type, &held(0).image, &cluster());
    let counter = DecisionCounter::Item(&counted, 1);
    let key = keys::journal(JournalOf::Region(region), &subject, seen.now, counter, 0);
    let told = from_item::<JournalRecord>(&key, &world.table.peek(&key).unwrap()).unwrap();
    assert_eq!(told.decision, Decision::Refused);
    let key = keys::learned(region, &held(0).instance_type, &held(0).image, &cluster());
    assert_eq!(from_item::<LearnedRecord>(&key, &world.table.peek(&key).unwrap()).unwrap(), record(1, 1));
}

#[test]
fn the_least_that_nodes_report_when_they_register_is_learned() {
    check(&[7600], None, Some((7600, 1)));
    check(&[7600, 7500, 7700], None, Some((7500, 1)));
    check(&[7600], Some(7600), None);
    check(&[7700], Some(7600), None);
    check(&[7500], Some(7600), Some((7500, 2)));
    // More than EC2 states, or nothing at all, is implausible.
    check(&[8193], None, None);
    check(&[0], None, None);
}

#[test]
fn nothing_is_learned_twice_nor_of_a_type_that_is_not_known() {
    let mut registered_before = registering(&[7600], None);
    registered_before.claims = BTreeMap::from([(name(0), claim(0, registered(0, minutes(1))))]);
    assert_eq!(planned(&registered_before).0.learned, vec![]);
    let mut unknown = registering(&[7600], None);
    unknown.types.clear();
    let (plan, _) = planned(&unknown);
    assert_eq!((plan.learned, plan.steps.len()), (vec![], 1));
}

#[test]
fn what_was_learned_is_in_the_table_and_a_lost_race_over_it_is_nobodys_loss() {
    let seen = registering(&[7600], None);
    let world = world_with(&seen.claims.values().cloned().collect::<Vec<_>>());
    let (plan, _) = planned(&seen);
    let carry_out = || block_on(crate::commit::commit(&world, &cluster(), &plan, seen.now)).unwrap();
    let key = keys::learned(&world.installation.region, &held(0).instance_type, &held(0).image, &cluster());
    let faster = record(7550, 1);
    commit(&world, vec![put(key.clone(), &faster)]);
    let done = carry_out();
    assert_eq!((done.lost, done.claims.len()), (0, 1));
    assert!(done.not_learned.is_none());
    let kept = || from_item::<LearnedRecord>(&key, &world.table.peek(&key).unwrap()).unwrap();
    assert_eq!(kept(), faster);

    // With the existing record, a smaller value is learned.
    let mut again = registering(&[7400], None);
    again.learned.insert((faster.instance_type.clone(), faster.image.clone()), faster);
    let learned: Vec<Lesson> = planned(&again).0.learned;
    let plan = LifecyclePlan { learned, ..LifecyclePlan::default() };
    block_on(crate::commit::commit(&world, &cluster(), &plan, again.now)).unwrap();
    assert_eq!(kept(), record(7400, 2));
}
