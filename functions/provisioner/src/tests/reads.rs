//! What a wake reads: the heads once, each set once, and nothing that it wrote itself.

use super::*;

/// Calls of each operation that reads: batches, queries, single items.
fn reads(cluster: &Cluster, causes: &[WakeCause]) -> [u64; 3] {
    reads_of(cluster, &WakeScope::Cluster(cluster.name.clone()), causes)
}

fn reads_of(cluster: &Cluster, scope: &WakeScope, causes: &[WakeCause]) -> [u64; 3] {
    cluster.world.table.reset_meter();
    block_on(Provisioner::default().handle(&cluster.world, scope, causes)).unwrap();
    let meter = cluster.world.table.meter();
    [Operation::BatchGetItem, Operation::Query, Operation::GetItem].map(|operation| meter.of(operation).calls)
}

#[test]
fn a_wake_that_launches_reads_the_heads_once_and_no_template() {
    let rung = cluster(2);
    let found = reads(&rung, &[WakeCause::SnapshotChanged]);
    check_settled(&rung, 2);
    assert_eq!(found, [4, 5, 0]);
}

/// It only shows that the function is reached.
#[test]
fn a_sweep_of_the_region_reads_nothing() {
    let waiting = cluster(2);
    assert_eq!(reads_of(&waiting, &WakeScope::Region, &[WakeCause::Sweep]), [0, 0, 0]);
    check_settled(&waiting, 0);
}

#[test]
fn a_sweep_that_launches_reads_the_heads_again_consistently() {
    let swept = cluster(2);
    let found = reads(&swept, &[WakeCause::Sweep]);
    check_settled(&swept, 2);
    assert_eq!(found, [5, 5, 0]);
}
