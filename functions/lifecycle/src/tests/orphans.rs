//! Orphans: which may be terminated, how many, and the findings.

use tenon_domain::snapshot::Unreadable;

use super::*;

/// Orphans of a launch that settled long ago.
fn unowned(now: Timestamp, orphans: usize) -> LifecycleInput {
    let orphans = (0..orphans).map(|n| instance(n, InstanceState::Running, EPOCH)).collect();
    with_launch(with_ec2(input(now, vec![], vec![]), orphans), settled())
}

#[test]
fn an_orphan_that_was_told_of_is_terminated_again_without_another_word() {
    let mut seen = unowned(minutes(9), 1);
    seen.audit.told.insert(id(0), minutes(8));
    let (plan, _) = planned(&seen);
    assert_eq!(plan.audit.orphans, BTreeSet::from([id(0)]));
    assert_eq!((plan.audit.journal, plan.audit.record), (vec![], None));
    // Orphans that still run don't count twice.
    let mut seen = unowned(minutes(9), 5);
    seen.audit.told = (0..5).map(|n| (id(n), minutes(8))).collect();
    let (plan, _) = planned(&seen);
    assert_eq!((plan.audit.orphans.len(), plan.audit.halt), (5, None));
}

#[test]
fn an_orphan_that_is_too_young_is_looked_at_again_as_soon_as_it_is_old_enough() {
    let check = |now: Timestamp, before: Timestamp, again: Option<Timestamp>, looks: Timestamp| {
        let mut seen = unowned(now, 1);
        seen.audit.at = Some(before);
        let (plan, _) = planned(&seen);
        assert_eq!(plan.audit.record.and_then(|record| record.again_at), again, "at {now}");
        assert_eq!(plan.wake_at, looks, "at {now}");
        plan.audit.orphans.len()
    };
    // Launched and settled at 0, five minutes before it may go. The audit's turn would be at 12.
    let old = minutes(5);
    assert_eq!(check(minutes(2), minutes(-8), Some(old), old), 0);
    assert_eq!(check(minutes(3), minutes(1), Some(old), old), 0);
    // The audit's turn comes first.
    assert_eq!(check(minutes(3), minutes(-6), None, minutes(4)), 0);
    let mut seen = unowned(old, 1);
    (seen.audit.at, seen.audit.again_at) = (Some(minutes(2)), Some(old));
    assert!(seen.audit.is_due(old) && !seen.audit.is_due(minutes(4)));
    assert_eq!(planned(&seen).0.audit.orphans, BTreeSet::from([id(0)]));
}

#[test]
fn an_instance_is_owned_by_the_claim_that_its_item_names_until_that_ends() {
    let check = |owner: Option<ClaimState>, orphans: usize| {
        let mut seen = unowned(minutes(9), 1);
        seen.claims.extend(owner.clone().map(|state| (name(0), claim(0, state))));
        let item = InstanceOwner { instance: id(0), cluster: cluster(), claim: name(0), offering: None };
        seen.ec2.as_mut().unwrap().owners.insert(id(0), item);
        assert_eq!(planned(&seen).0.audit.orphans.len(), orphans, "{owner:?}");
    };
    check(None, 0);
    check(Some(ClaimState::Planned), 0);
    check(Some(terminated(0, minutes(1))), 1);
}

#[test]
fn a_node_that_cannot_be_read_may_be_that_of_any_instance() {
    let check = |kind: &str, orphans: usize| {
        let seen = with_snapshot(unowned(minutes(9), 1), |snapshot| {
            let (kind, name) = (kind.to_owned(), "x".to_owned());
            snapshot.unreadable.push(Unreadable { kind, name, errors: vec![] });
        });
        assert_eq!(planned(&seen).0.audit.orphans.len(), orphans, "an unreadable {kind}");
    };
    check("Node", 0);
    check("Pod", 1);
}

#[test]
fn what_is_beyond_one_transaction_is_left_to_the_next_audit() {
    // A twentieth of so many claims are 50.
    let mut first = unowned(minutes(9), 60);
    let live = (100..1100).map(|n| claim(n, launched(n, minutes(8))));
    first.claims = live.map(|claim| (claim.name.clone(), claim)).collect();
    let (plan, _) = planned(&first);
    assert_eq!((plan.audit.orphans.len(), plan.audit.journal.len(), plan.audit.halt), (40, 40, None));
}

/// Few claims allow five; a larger cluster had allowed more.
#[test]
fn whoever_went_while_the_cluster_was_larger_counts_all_the_same() {
    let mut seen = unowned(minutes(9), 1);
    seen.audit.told = (10..16).map(|n| (id(n), minutes(8))).collect();
    let (plan, _) = planned(&seen);
    assert_eq!(plan.audit.orphans, BTreeSet::new());
    let reason = plan.audit.halt.unwrap().reason;
    assert!(reason.starts_with("found more than 5 instances without a NodeClaim"), "{reason}");
}

#[test]
fn a_halt_names_the_instances_whose_launches_are_unknown() {
    let reason = |count: usize| {
        let mut seen = unowned(minutes(9), count);
        seen.ec2.as_mut().unwrap().unknown_launches.insert("launch-1".to_owned());
        planned(&seen).0.audit.halt.unwrap().reason
    };
    let (one, two) = (reason(1), reason(2));
    let named = format!("instance `{}` has this cluster's tags, but its launch isn't", id(0));
    assert!(one.starts_with(&named), "{one}");
    let named =
        format!("2 instances (`{}`, `{}`) have this cluster's tags, but their launches", id(0), id(1));
    assert!(two.starts_with(&named), "{two}");
}

#[test]
fn an_audit_that_finds_nothing_is_written_down_every_ten_minutes() {
    let check = |before: Option<Timestamp>, due: bool| {
        let mut seen = unowned(minutes(20), 0);
        seen.audit.at = before;
        let (plan, _) = planned(&seen);
        let record = plan.audit.record.map(|record| (record.revision, record.at));
        assert_eq!(record, due.then_some((2, Some(minutes(20)))), "after {before:?}");
        let next = if due { minutes(30) } else { before.unwrap() + SignedDuration::from_mins(10) };
        assert_eq!(plan.wake_at, next, "after {before:?}");
    };
    check(None, true);
    check(Some(minutes(9)), true);
    check(Some(minutes(10)), true);
    check(Some(minutes(11)), false);
    check(Some(minutes(20)), false);
}

#[test]
fn an_orphan_that_waits_for_the_agent_is_told_although_no_claim_does() {
    let mut seen = unowned(minutes(9), 1);
    seen.snapshot = Err(Waiting::SnapshotStale { age: SignedDuration::from_mins(5) });
    let (plan, report) = planned(&seen);
    assert_eq!((plan.audit.orphans.len(), told(report)), (0, vec!["SnapshotStale".to_owned()]));
}
