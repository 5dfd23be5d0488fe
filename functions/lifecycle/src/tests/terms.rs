//! A claim's `expireAfter` and `terminationGracePeriod` are those of its pool at its creation.

use super::*;
use tenon_domain::api::node_claim::NodeClaimObject;
use tenon_domain::claim::{AnnouncementKind, InstanceAnnouncement, Terms};

fn hours(n: i64) -> SignedDuration {
    SignedDuration::from_hours(n)
}

/// The terms of a claim: expiry in hours, grace in minutes.
fn terms(expires: Option<i64>, grace: Option<i64>) -> Option<Terms> {
    let termination_grace_period = grace.map(SignedDuration::from_mins);
    Some(Terms {
        expire_after: expires.map(hours),
        termination_grace_period,
        load_balancer_deregistration: None,
    })
}

/// A claim with terms, and a pool whose template has changed since. Its expired nodes don't wait for budgets.
fn seen(now: Timestamp, terms: Option<Terms>, pool: (Option<i64>, Option<i64>)) -> LifecycleInput {
    let claim = Claim { terms, ..claim(0, initialized(0, minutes(1))) };
    with_snapshot(input(now, vec![claim], vec![node(0)]), |snapshot| {
        let annotations = &mut snapshot.node_pools[0].meta.annotations;
        annotations.insert("tenon.dev/expire-within-budgets".to_owned(), "0s".to_owned());
        let template = &mut snapshot.node_pools[0].template;
        template.expire_after = pool.0.map(hours);
        template.termination_grace_period = pool.1.map(SignedDuration::from_mins);
    })
}

/// When its drain that begins now has to be over, by the claim and by its action.
fn deadline(input: &LifecycleInput) -> Option<Timestamp> {
    let (plan, _) = planned(input);
    let ClaimState::Draining { deadline, .. } = plan.steps[0].after.state else { panic!("{:?}", plan.steps) };
    assert_eq!(plan.steps[0].action.as_ref().unwrap().deadline, deadline);
    deadline
}

#[test]
fn a_pool_that_is_edited_doesnt_change_when_its_claims_expire() {
    let check = |after, own: Option<Terms>, pool, expected: &[Decision]| {
        assert_eq!(phases(&seen(EPOCH + hours(after), own, pool)), expected, "{after} h, {own:?}, {pool:?}");
    };
    let goes = &[Decision::Draining];
    // Longer now, and never now.
    check(24, terms(Some(24), None), (Some(720), None), goes);
    check(24, terms(Some(24), None), (None, None), goes);
    check(23, terms(Some(24), None), (Some(720), None), &[]);
    // Shorter now.
    check(24, terms(Some(720), None), (Some(24), None), &[]);
    check(24, terms(None, None), (Some(24), None), &[]);
    // An old claim without terms has its pool's current ones.
    check(24, None, (Some(24), None), goes);
    check(24, None, (Some(720), None), &[]);
}

#[test]
fn an_expired_node_is_drained_when_its_budgets_kept_it_for_a_day() {
    let check = |after, wait: Option<&str>, expected: &[Decision]| {
        let input =
            with_snapshot(seen(EPOCH + hours(after), terms(Some(24), None), (None, None)), |snapshot| {
                let annotations = &mut snapshot.node_pools[0].meta.annotations;
                annotations.remove("tenon.dev/expire-within-budgets");
                annotations
                    .extend(wait.map(|wait| ("tenon.dev/expire-within-budgets".to_owned(), wait.to_owned())));
            });
        assert_eq!(phases(&input), expected, "{after} h, {wait:?}");
    };
    check(47, None, &[]);
    check(48, None, &[Decision::Draining]);
    check(25, Some("2h"), &[]);
    check(26, Some("2h"), &[Decision::Draining]);
}

#[test]
fn a_claim_is_looked_at_when_it_expires_and_not_when_its_pool_says() {
    let (plan, _) = planned(&with_audit(seen(minutes(30), terms(Some(1), None), (Some(720), None))));
    assert_eq!(plan.wake_at, EPOCH + hours(1));
}

#[test]
fn what_ec2_announced_is_drained_when_nothing_may_keep_it_any_longer() {
    let check = |kind, starts_at: Option<i64>, order: Option<&str>, now: i64, expected: &[Decision]| {
        let announced =
            InstanceAnnouncement { kind, at: minutes(5), starts_at: starts_at.map(|at| EPOCH + hours(at)) };
        let claim = Claim { announced: Some(announced), ..claim(0, initialized(0, minutes(1))) };
        let input = with_snapshot(input(EPOCH + hours(now), vec![claim], vec![node(0)]), |snapshot| {
            let annotations = &mut snapshot.node_pools[0].meta.annotations;
            annotations.extend(
                order.map(|order| ("tenon.dev/rebalance-recommendation".to_owned(), order.to_owned())),
            );
        });
        assert_eq!(phases(&input), expected, "{kind:?} {starts_at:?} {order:?} at {now}");
    };
    let (change, rebalance) = (AnnouncementKind::ScheduledChange, AnnouncementKind::RebalanceRecommendation);
    check(change, Some(72), None, 47, &[]);
    check(change, Some(72), None, 48, &[Decision::Draining]);
    check(rebalance, None, None, 48, &[]);
    check(rebalance, None, Some("ReplaceFirst"), 48, &[]);
    check(rebalance, None, Some("Drain"), 1, &[Decision::Draining]);
}

/// An audit that is due later than anything here.
fn with_audit(mut input: LifecycleInput) -> LifecycleInput {
    input.audit.at = Some(EPOCH + hours(2));
    input
}

#[test]
fn each_drain_ends_by_the_claims_own_grace_period() {
    let now = minutes(30);
    let deleted = |snapshot: &mut Snapshot| snapshot.nodes[0].meta.deleted_at = Some(minutes(29));
    let after = |grace: i64| Some(now + SignedDuration::from_mins(grace));
    // Deleted.
    let drained = |own, pool| deadline(&with_snapshot(seen(now, own, (None, pool)), deleted));
    assert_eq!(drained(terms(None, Some(5)), None), after(5));
    assert_eq!(drained(terms(None, Some(5)), Some(60)), after(5));
    assert_eq!(drained(terms(None, None), Some(60)), None);
    assert_eq!(drained(None, Some(60)), after(60), "made before its terms were kept");
    // Its pool doesn't exist: the claim has its own terms.
    let gone = |snapshot: &mut Snapshot| {
        snapshot.node_pools.clear();
        deleted(snapshot);
    };
    assert_eq!(deadline(&with_snapshot(seen(now, terms(None, Some(5)), (None, None)), gone)), after(5));
    // Expired.
    let expired = seen(EPOCH + hours(2), terms(Some(1), Some(5)), (Some(1), Some(60)));
    assert_eq!(deadline(&expired), Some(EPOCH + hours(2) + SignedDuration::from_mins(5)));
    // Stopped: EC2 has a deadline too, and the earlier one holds.
    let stopped = |own| {
        deadline(&with_ec2(seen(now, own, (None, None)), vec![instance(0, InstanceState::Stopping, EPOCH)]))
    };
    assert_eq!(stopped(terms(None, Some(1))), after(1));
    assert_eq!(stopped(terms(None, Some(5))), after(2));
    assert_eq!(stopped(terms(None, None)), after(2));
}

/// A NodeClaim that somebody annotated with the end of its drain.
fn annotated(input: LifecycleInput, end: Timestamp) -> LifecycleInput {
    with_snapshot(input, |snapshot| {
        let annotations = [(labels::TERMINATION_TIMESTAMP.to_owned(), end.to_string())].into();
        snapshot.node_claims.push(NodeClaimObject {
            meta: ObjectMeta { name: name(0).to_string(), annotations, ..ObjectMeta::default() },
            name: name(0),
            spec: pool().template,
            requests: ResourceList::new(),
            provider_id: None,
            node_name: None,
            last_pod_event: None,
            unknown: Vec::new(),
        });
    })
}

#[test]
fn a_drain_says_what_was_deleted() {
    let check = |change: fn(&mut Snapshot), expected: &str| {
        let now = minutes(30);
        // The NodeClaim's annotation says nothing here.
        let input = annotated(seen(now, terms(None, None), (None, None)), minutes(600));
        let (plan, _) = planned(&with_snapshot(input, change));
        let message = &plan.steps[0].journal[0].message;
        assert!(message.ends_with(expected), "{message}");
    };
    let of_claim = |snapshot: &mut Snapshot| snapshot.node_claims[0].meta.deleted_at = Some(minutes(29));
    check(of_claim, "(deleted): its NodeClaim was deleted");
    check(
        |snapshot| snapshot.node_pools[0].meta.deleted_at = Some(minutes(29)),
        "(deleted): its NodePool `default` was deleted",
    );
    // Kubernetes deletes the NodeClaims of a NodePool with it.
    check(
        |snapshot| {
            snapshot.node_pools.clear();
            snapshot.node_claims[0].meta.deleted_at = Some(minutes(29));
        },
        "(deleted): its NodePool `default` was deleted",
    );
}

#[test]
fn a_node_outlives_a_nodepool_that_isnt_there() {
    let check = |change: fn(&mut Snapshot)| {
        let now = minutes(30);
        let input = annotated(seen(now, terms(None, None), (None, None)), minutes(600));
        let (plan, _) = planned(&with_snapshot(input, change));
        assert!(plan.steps.iter().all(|step| step.after.state.removal().is_none()), "{:?}", plan.steps);
    };
    // Of a cluster that took Tenon again, or of `--cascade=orphan`.
    check(|snapshot| {
        snapshot.node_pools.clear();
        snapshot.node_claims.clear();
    });
    check(|snapshot| snapshot.node_pools.clear());
}

#[test]
fn an_earlier_end_that_somebody_annotated_bounds_the_drain() {
    let now = minutes(30);
    let deleted = |snapshot: &mut Snapshot| snapshot.nodes[0].meta.deleted_at = Some(minutes(29));
    let begins = |grace, end: i64| {
        let seen = with_snapshot(seen(now, terms(None, grace), (None, None)), deleted);
        deadline(&annotated(seen, minutes(end)))
    };
    assert_eq!(begins(Some(60), 40), Some(minutes(40)));
    assert_eq!(begins(Some(5), 40), Some(minutes(35)));
    assert_eq!(begins(None, 40), Some(minutes(40)));
    // While it drains.
    let drains = |until: Option<i64>, end: Timestamp| {
        let claims = vec![claim(0, draining(0, minutes(20), until.map(minutes)))];
        let (plan, _) = planned(&annotated(input(now, claims, vec![node(0)]), end));
        let step = plan.steps.first()?;
        let ClaimState::Draining { deadline, at, .. } = step.after.state else { panic!("{step:?}") };
        assert_eq!((at, step.action.as_ref().unwrap().deadline), (minutes(20), deadline));
        deadline
    };
    assert_eq!(drains(Some(50), minutes(40)), Some(minutes(40)));
    assert_eq!(drains(None, minutes(40)), Some(minutes(40)));
    assert_eq!(drains(Some(40), minutes(50)), None);
    // The agent's own annotation has no fractions of seconds.
    let own = minutes(40) - SignedDuration::from_millis(999);
    assert_eq!(drains(Some(40), own), None);
    // An end that has passed.
    let claims = vec![claim(0, draining(0, minutes(20), None))];
    let ended = with_ec2(input(now, claims, vec![node(0)]), vec![instance(0, InstanceState::Running, EPOCH)]);
    check(&annotated(ended, minutes(29)), &[Decision::Draining, Decision::Drained, Decision::Terminating]);
}
