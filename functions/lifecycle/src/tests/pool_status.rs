//! What a NodePool's status tells: its nodes, what they hold, and its conditions.

use super::*;

fn status(seen: &Input) -> tenon_domain::pool_status::PoolStatus {
    planned(seen).0.pools.into_iter().next().unwrap()
}

fn condition(seen: &Input, wanted: PoolConditionType) -> Option<(ConditionStatus, String, String)> {
    let conditions = status(seen).conditions;
    let found = conditions.into_iter().find(|found| found.condition == wanted);
    found.map(|found| (found.status, found.reason, found.message))
}

#[test]
fn a_pool_names_the_fields_that_nothing_acts_on() {
    let unsupported = |change: fn(&mut NodePool)| {
        let seen = with_snapshot(input(minutes(30), vec![], vec![]), |snapshot| {
            change(&mut snapshot.node_pools[0]);
        });
        condition(&seen, PoolConditionType::Unsupported)
    };
    assert_eq!(unsupported(|_| {}), None);
    let told = |fields: &str| {
        let message = format!("nothing acts on these yet: {fields}");
        Some((ConditionStatus::True, "UnsupportedFields".to_owned(), message))
    };
    assert_eq!(unsupported(|pool| pool.replicas = Some(3)), told("spec.replicas"));
}

#[test]
fn a_pool_counts_the_claims_that_are_its_nodes_and_what_they_hold() {
    let cpu = |claims: Vec<Claim>, nodes| {
        let status = status(&input(minutes(30), claims, nodes));
        (status.nodes, status.resources.get(&ResourceName::CPU).nanos() / 1_000_000)
    };
    assert_eq!(cpu(vec![], vec![]), (0, 0));
    // A planned claim counts with what it was made for, one with a Node with what that has.
    assert_eq!(cpu(vec![claim(0, ClaimState::Planned)], vec![]), (1, 500));
    assert_eq!(cpu(vec![claim(0, initialized(0, minutes(1)))], vec![node(0)]), (1, 1930));
    let both = vec![claim(0, ClaimState::Planned), claim(1, initialized(1, minutes(1)))];
    assert_eq!(cpu(both, vec![node(1)]), (2, 2430));
    let reason = RemovalReason::Deleted;
    let gone = ClaimState::Terminated { instance: None, node: None, reason, at: minutes(29) };
    assert_eq!(cpu(vec![claim(0, gone)], vec![]), (0, 0));
}

#[test]
fn a_status_that_says_the_same_is_not_written_again() {
    let mut seen = input(minutes(30), vec![claim(0, initialized(0, minutes(1)))], vec![node(0)]);
    let first = status(&seen);
    seen.pools.insert(first.name.clone(), first);
    assert_eq!(planned(&seen).0.pools, vec![]);
    seen.now = minutes(31);
    assert_eq!(planned(&seen).0.pools, vec![]);
}
