//! How long Tenon takes when EC2 takes back three of ten nodes in the same second.
//!
//! Prints its figures: `cargo test -p tenon-testkit --test mass_interruption -- --nocapture`; with `--ignored` for 1,000
//! nodes.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde_json::json;
use tenon_domain::claim::ClaimPhase;
use tenon_domain::id::InstanceId;
use tenon_region::engine::SimulatedRegion;

mod one_pool;

use one_pool::{LARGE, OnePool, fill, name, never, pass};

const LOOK: SignedDuration = SignedDuration::from_millis(100);
/// All that EC2 gives.
const NOTICE: SignedDuration = SignedDuration::from_mins(2);

fn running(region: &SimulatedRegion) -> BTreeSet<InstanceId> {
    let instances = region.twin().instances().into_iter();
    instances.filter(|one| one.terminated_at.is_none()).map(|one| one.instance.id.clone()).collect()
}

/// Claims of these instances that drain.
fn draining(region: &SimulatedRegion, of: &BTreeSet<InstanceId>) -> usize {
    let ours = |held: Option<&InstanceId>| held.is_some_and(|id| of.contains(id));
    let claims = region.claims(&name()).into_iter();
    claims
        .filter(|claim| claim.phase() == ClaimPhase::Draining)
        .filter(|claim| ours(claim.state.instance().map(|held| &held.id)))
        .count()
}

fn check(nodes: u32, interrupted: usize) {
    let (annotations, disruption) = (json!({}), never("10%"));
    let (title, capacity_type) = ("three of ten nodes", "spot");
    let pool = OnePool { title, capacity_type, start: 45, annotations, disruption, types: &LARGE };
    let mut region = pool.region();
    pass(&mut region, SignedDuration::from_mins(3));
    fill(&region, nodes);
    pass(&mut region, SignedDuration::from_mins(20));
    let old = running(&region);
    assert_eq!(old.len(), usize::try_from(nodes).unwrap());

    let taken: BTreeSet<InstanceId> = old.iter().take(interrupted).cloned().collect();
    for id in &taken {
        region.twin().interrupt_spot(id).unwrap();
    }
    let (begun, metered) = (region.now(), region.table().meter());
    let (mut decided, mut requested) = (None, None);
    while requested.is_none() {
        pass(&mut region, LOOK);
        let since = region.now().duration_since(begun);
        assert!(
            since < NOTICE,
            "decided {decided:?}, {} replaced",
            running(&region).difference(&old).count()
        );
        if decided.is_none() && draining(&region, &taken) == interrupted {
            decided = Some(since);
        }
        if running(&region).difference(&old).count() >= interrupted {
            requested = Some(since);
        }
    }
    let used = region.table().meter().since(&metered).total();
    println!(
        "{interrupted} of {nodes} nodes interrupted: all drains decided after {:#}, all replacements launched after {:#}; {} \
         write units, {} throttled calls, {} lost races",
        decided.unwrap(),
        requested.unwrap(),
        used.write_units,
        used.throttled,
        used.lost,
    );
}

#[test]
fn thirty_of_a_hundred_nodes_are_replaced_within_their_notice() {
    check(100, 30);
}

#[test]
#[ignore = "two minutes"]
fn three_hundred_of_a_thousand_nodes_are_replaced_within_their_notice() {
    check(1_000, 300);
}
