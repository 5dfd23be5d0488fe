//! Two clusters and a hostile third in one region: the others' pods start as they would alone.

use tenon_testkit::{SimulationOptions, hostile};

/// Things that the third does in a history, beside its messages.
const DEEDS: u32 = 30;
const SEEDS: u64 = 3;

#[test]
fn a_hostile_cluster_delays_no_other_and_has_nothing_of_theirs() {
    for seed in 0..SEEDS {
        assert_eq!(hostile(SimulationOptions { seed, steps: DEEDS, sabotage: None, pace: None }), Ok(()));
    }
}
