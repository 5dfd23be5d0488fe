//! Other functions that write between an observation and its commit: the later writer changes nothing of theirs.

use tenon_domain::SignedDuration;
use tenon_domain::claim::{Claim, ClaimState};
use tenon_domain::id::Uid;
use tenon_domain::launch::Launch;
use tenon_domain::unavailable::{Mark, Probe};
use tenon_harness::Meeting;
use tenon_table::Commit;
use tenon_table::content_commit;
use tenon_table::items::{add_step, keys, set};

use super::joins::joining;
use super::probes::{dried, dry_out, launches_since, marks};
use super::*;

/// Whether a commit makes or changes a launch.
fn writes_launch(commit: &Commit) -> bool {
    commit.writes.iter().any(|write| write.key().sk.starts_with(keys::LAUNCH))
}

/// Wakes the provisioner; just before it writes a launch, these writes of another go through.
fn wake_beside(cluster: &Cluster, writes: Vec<tenon_table::Write>) {
    let ports = Meeting::new(&cluster.world, content_commit(Vec::new(), writes), writes_launch);
    let scope = WakeScope::Cluster(cluster.name.clone());
    block_on(Provisioner::default().handle(&ports, &scope, &[WakeCause::Sweep])).unwrap();
    assert!(ports.met(), "the other was never met");
}

/// A cluster whose launch another pass delayed while this one settled it; the launch as the other left it.
fn put_off_meanwhile() -> (Cluster, Launch) {
    let cluster = cluster(1);
    let throttled = Ec2Error::Throttled { action: "CreateFleet".to_owned() };
    fault(&cluster, Call::CreateFleet, FaultEffect::Refused(throttled));
    wake(&cluster);
    advance(&cluster, SignedDuration::from_secs(6));
    let launch = cluster.launches().unwrap().remove(0);
    let not_before = cluster.world.clock.now() + SignedDuration::from_secs(10);
    let state = LaunchState::Requested { attempts: 2, not_before };
    let put_off = Launch { revision: launch.revision + 1, state, ..launch };
    let written = set(keys::launch(&cluster.name, &put_off.id), &put_off);
    wake_beside(&cluster, vec![written, add_step(&cluster.name)]);
    (cluster, put_off)
}

#[test]
fn a_settlement_changes_nothing_of_a_launch_that_another_run_put_off_meanwhile() {
    let (cluster, put_off) = put_off_meanwhile();
    assert_eq!(cluster.launches().unwrap(), [put_off]);
    assert_eq!(phases(&cluster, ClaimPhase::Planned), 1);
}

#[test]
fn a_launch_that_another_run_put_off_is_sent_when_it_is_due_though_nothing_changed() {
    let (cluster, _) = put_off_meanwhile();
    advance(&cluster, SignedDuration::from_secs(11));
    wake(&cluster);
    check_settled(&cluster, 1);
}

#[test]
fn a_claim_that_is_there_is_not_planned_over() {
    let first = cluster(1);
    wake(&first);
    let planned = first.claims().unwrap().remove(0);
    // An equal world plans the same name, which exists by now.
    let second = cluster(1);
    let at = second.world.clock.now();
    let failure = tenon_domain::claim::LaunchFailure { reason: "Other".to_owned(), message: String::new() };
    let taken = Claim { revision: 9, state: ClaimState::LaunchFailed { at, failure }, ..planned };
    let written = set(keys::claim(&second.name, &taken.name), &taken);
    wake_beside(&second, vec![written, add_step(&second.name)]);
    let claims = second.claims().unwrap();
    assert!(claims.contains(&taken), "{claims:?}");
    assert_eq!(phases(&second, ClaimPhase::Launched), 1, "the pod has its own claim, of another name");
}

#[test]
fn what_another_launch_began_to_ask_for_meanwhile_is_left_to_it() {
    let cluster = dried(2);
    dry_out(&cluster, None);
    advance(&cluster, SignedDuration::from_secs(68));
    let now = cluster.world.clock.now();
    let probe = Probe {
        cluster: "staging".parse().unwrap(),
        launch: "launch-other".parse().unwrap(),
        at: now,
        until: now + SignedDuration::from_mins(3),
    };
    let leased = |mark: Mark| Mark { probe: Some(probe.clone()), revision: mark.revision + 1, ..mark };
    let leased: Vec<Mark> = marks(&cluster).into_iter().map(leased).collect();
    let region = &cluster.world.installation.region;
    let before = cluster.launches().unwrap();
    wake_beside(
        &cluster,
        leased.iter().map(|mark| set(keys::unavailable(region, &mark.key), mark)).collect(),
    );
    assert_eq!(launches_since(&cluster, &before), []);
    assert_eq!(marks(&cluster), leased);
}

#[test]
fn a_pod_that_another_run_let_join_meanwhile_joins_once() {
    let cluster = joining();
    let before = cluster.launches().unwrap().remove(0);
    let late = Uid::parse("uid-late").unwrap();
    let joined = before.joined_by([(&before.claims[0].name, &late)]).unwrap();
    wake_beside(&cluster, vec![set(keys::launch(&cluster.name, &joined.id), &joined)]);
    assert_eq!(cluster.launches().unwrap(), [joined]);
    check_settled(&cluster, 1);
}
