//! Claims that step between disruption's observation and its commit: their step stays.

use tenon_domain::claim::{Drift, DriftReason, RemovalReason};
use tenon_harness::Meeting;
use tenon_table::Commit;

use super::*;

/// The claim as `interruption` leaves it: EC2 takes its instance back.
fn interrupted(claim: &Claim, at: Timestamp) -> Claim {
    let state = ClaimState::Draining {
        instance: claim.state.instance().unwrap().clone(),
        node: claim.state.node().cloned(),
        reason: RemovalReason::SpotInterrupted,
        at,
        deadline: Some(at + SignedDuration::from_mins(2)),
    };
    claim.stepped(state).unwrap()
}

/// Wakes disruption; a claim is interrupted just before the first commit that writes to such a key.
fn wake_beside(cluster: &Cluster, claim: &Claim, writes: &'static str) {
    let step = set(keys::claim(&cluster.name, &claim.name), claim);
    let meets = move |commit: &Commit| commit.writes.iter().any(|write| write.key().sk.starts_with(writes));
    let ports = Meeting::new(
        &cluster.world,
        tenon_table::content_commit(Vec::new(), vec![step, tenon_table::items::add_step(&cluster.name)]),
        meets,
    );
    let scope = WakeScope::Cluster(cluster.name.clone());
    block_on(Disruption::default().handle(&ports, &scope, &[WakeCause::Sweep])).unwrap();
    assert!(ports.met(), "the other was never met");
}

/// The claim of the first node, as it is in the table.
fn first(cluster: &Cluster) -> Claim {
    cluster.claims().unwrap().remove(0)
}

#[test]
fn a_claim_that_is_interrupted_meanwhile_is_taken_by_no_command() {
    let cluster = cluster(1);
    let now = cluster.world.clock.now();
    // As disruption marks it, just before it takes it.
    let (from, to) = (String::new(), String::new());
    let drift = Some(Drift { reason: DriftReason::AmiDrift, since: now, from, to, fields: Vec::new() });
    let marked = Claim { revision: first(&cluster).revision + 1, drift, ..first(&cluster) };
    let other = interrupted(&marked, now);
    wake_beside(&cluster, &other, keys::COMMAND);
    assert_eq!(cluster.claims().unwrap(), [other]);
    assert!(cluster.launches().unwrap().is_empty() && actions(&cluster).is_empty());
    assert!(cluster.all::<Command>(keys::COMMAND).unwrap().is_empty());
}

#[test]
fn a_candidate_that_is_interrupted_meanwhile_keeps_its_deadline() {
    let cluster = cluster(1);
    wake(&cluster);
    initialize(&cluster);
    let taken = phases(&cluster, ClaimPhase::Disrupting).remove(0);
    let other = interrupted(&taken, cluster.world.clock.now());
    wake_beside(&cluster, &other, keys::COMMAND);
    assert_eq!(phases(&cluster, ClaimPhase::Draining), [other]);
}

#[test]
fn drift_is_not_marked_over_what_a_claim_became_meanwhile() {
    let cluster = cluster(1);
    let other = interrupted(&first(&cluster), cluster.world.clock.now());
    wake_beside(&cluster, &other, keys::NODE_CLAIM);
    let found = first(&cluster);
    assert_eq!((found.phase(), found.state), (ClaimPhase::Draining, other.state));
}
