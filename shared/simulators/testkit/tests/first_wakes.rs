//! From an empty table every order of first wakes, with any failing call, ends in the same state. `tenon-simulation
//! first-wakes` plays all orders and all calls; this test plays some of both.

use tenon_testkit::{CANONICAL, CallFault, Failing, FirstWakes, ORDERS, WakeOrder, calls};

/// So many random orders with a random fault each.
const RANDOM: u64 = 300;

#[test]
fn the_canonical_order_runs_every_pod() {
    let played = FirstWakes::of(CANONICAL).play().unwrap();
    insta::assert_snapshot!(played.standing.join("\n"));
}

#[test]
fn orders_without_faults_agree() {
    for number in (0..ORDERS).step_by(97) {
        FirstWakes::of(WakeOrder(number)).check().unwrap();
    }
}

#[test]
fn random_orders_with_a_random_fault_agree() {
    for seed in 0..RANDOM {
        FirstWakes::random(seed, None).check().unwrap();
    }
}

#[test]
fn a_call_that_never_comes_is_no_fault() {
    let fault = Some(CallFault { call: calls() * 2, failing: Failing::CrashAfter });
    FirstWakes { fault, ..FirstWakes::of(CANONICAL) }.check().unwrap();
}
