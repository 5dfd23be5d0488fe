//! Throttling of the table, waited out.

use jiff::SignedDuration;
use tenon_harness::{FunctionWorld, WorldConfig};
use tenon_memory_table::Throughput;
use tenon_memory_table::block_on;
use tenon_runtime::patient::*;
use tenon_runtime::ports::Ports;
use tenon_table::{Commit, Item, Key, Table};
use tenon_table::{Value, Write};

fn write(n: usize) -> Commit {
    let item = Item::from([("data".to_owned(), Value::B(vec![0; 100_000]))]);
    tenon_table::content_commit(
        vec![],
        vec![Write::Put { key: Key::new("CLUSTER#prod", n.to_string()), item }],
    )
}

/// 98 units each, and 1,000 a second.
#[test]
fn a_throttled_call_goes_through_as_soon_as_the_key_has_units_and_not_after_the_patience() {
    let config = WorldConfig { throughput: Throughput::Enforced, ..WorldConfig::default() };
    let world = FunctionWorld::new(&config).unwrap();
    let began = world.now();
    let patient = Patient::new(&world, SignedDuration::from_secs(3));
    for n in 0..20 {
        block_on(patient.table().commit(&write(n))).unwrap();
    }
    let took = world.now().duration_since(began);
    assert!((SignedDuration::from_millis(700)..SignedDuration::from_millis(1500)).contains(&took), "{took}");
    let all = (20..60).map(|n| block_on(patient.table().commit(&write(n))));
    let refused = all.filter(Result::is_err).count();
    assert!(refused > 0 && patient.is_over(), "{refused}");
    assert!(world.now().duration_since(began) <= SignedDuration::from_secs(3));
}

#[test]
fn only_throttling_is_waited_out() {
    let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
    let began = world.now();
    let patient = Patient::new(&world, SignedDuration::from_secs(3));
    let invalid = tenon_table::content_commit(vec![], vec![Write::Delete { key: Key::new("", "") }]);
    assert!(block_on(patient.table().commit(&invalid)).is_err());
    assert_eq!(world.now(), began);
}
