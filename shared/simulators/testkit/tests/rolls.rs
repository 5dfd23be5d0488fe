//! How long a drift takes to roll a pool: with nodes that start within three seconds, what is left is Tenon's own time.
//!
//! Prints its figures: `cargo test -p tenon-testkit --test rolls -- --nocapture`.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde_json::json;
use tenon_domain::id::InstanceId;
use tenon_ec2::port::InstanceState;
use tenon_region::engine::SimulatedRegion;
use tenon_region::scenario::ImageForm;

mod one_pool;

use one_pool::{LARGE, OnePool, fill, image, name, never, pass};

/// From a launch to a Ready node.
const START: i64 = 3;
const LOOK: SignedDuration = SignedDuration::from_millis(100);

fn running(region: &SimulatedRegion) -> BTreeSet<InstanceId> {
    let instances = region.twin().instances().into_iter();
    instances
        .filter(|one| one.instance.state == InstanceState::Running)
        .map(|one| one.instance.id.clone())
        .collect()
}

/// The time from the first drifted claim to the request that ends the last old node.
fn rolled(nodes: u32, budget: &str) -> SignedDuration {
    let annotations = json!({});
    let (capacity_type, disruption) = ("on-demand", never(budget));
    let pool =
        OnePool { title: "a roll", capacity_type, start: START, annotations, disruption, types: &LARGE };
    let mut region = pool.region();
    pass(&mut region, SignedDuration::from_mins(3));
    fill(&region, nodes);
    pass(&mut region, SignedDuration::from_mins(10));
    let old = running(&region);
    assert_eq!(old.len(), usize::try_from(nodes).unwrap());
    region.make_image(&ImageForm { takes: Some(SignedDuration::from_secs(30)), ..image("node-2") });
    let drifts = |region: &SimulatedRegion| region.claims(&name()).iter().any(|claim| claim.drift.is_some());
    while !drifts(&region) {
        pass(&mut region, LOOK);
    }
    let begun = region.now();
    while running(&region).iter().any(|id| old.contains(id)) {
        pass(&mut region, LOOK);
        assert!(
            region.now().duration_since(begun) < SignedDuration::from_hours(1),
            "{nodes} nodes at {budget}"
        );
    }
    region.now().duration_since(begun)
}

#[test]
fn twenty_nodes_roll_at_once_within_fifteen_seconds() {
    let took = rolled(20, "100%");
    println!("20 nodes, budget 100 %: {took:#}");
    assert!(took <= SignedDuration::from_secs(15), "{took:#}");
}

#[test]
fn a_hundred_nodes_roll_by_tens() {
    let took = rolled(100, "10%");
    println!("100 nodes, budget 10 %: {took:#}");
    // Ten waves. Each takes a start of 3 s, a drain of 5 s at least, and a second for each of four steps between them: the
    // Node's registration, its initialisation, the decision to drain, and the drain's end.
    assert!(took <= SignedDuration::from_secs(10 * (3 + 5 + 4)), "{took:#}");
}
