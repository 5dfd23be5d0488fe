//! The delay by a throttled table: EC2's warnings are handled in time, and a burst of pods is launched at once.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::claim::{ClaimPhase, ClaimState};
use tenon_domain::id::InstanceId;
use tenon_domain::launch::LaunchState;
use tenon_harness::mixed::mixed_kinds;

use crate::region::{BusyRegion, deployment};

/// How long EC2 takes to answer CreateFleet.
const FLEET_TAKES: SignedDuration = SignedDuration::from_millis(1500);
/// 24 warnings arrive while half of the table's calls are throttled for 20 s.
#[test]
fn warnings_are_acted_on_while_the_table_throttles() {
    let small = json!({"cpu": "1500m", "memory": "4Gi"});
    let selector = json!({"node.kubernetes.io/instance-type": "m5.large"});
    let mut throttled = BusyRegion::new("spot", vec![deployment("web", &small, &selector)]);
    throttled.scale("web", 24);
    throttled.pass(SignedDuration::from_mins(5));
    let instances: Vec<InstanceId> = throttled
        .region
        .claims(&throttled.cluster)
        .iter()
        .filter(|claim| claim.phase() == ClaimPhase::Initialized)
        .map(|claim| claim.state.instance().unwrap().id.clone())
        .collect();
    assert_eq!(instances.len(), 24);
    throttled.listener.throttles.store(true, Ordering::Relaxed);
    let warned_at = throttled.region.now();
    for instance in &instances {
        throttled.region.twin().interrupt_spot(instance).unwrap();
    }
    throttled.pass(SignedDuration::from_secs(20));
    throttled.listener.throttles.store(false, Ordering::Relaxed);
    throttled.pass(SignedDuration::from_secs(5));
    let deadline_of = |state: &ClaimState| {
        if let ClaimState::Draining { deadline, .. } = state { *deadline } else { None }
    };
    let claims = throttled.region.claims(&throttled.cluster);
    let waiting = instances.iter().filter(|instance| {
        let claim = claims.iter().find(|c| c.state.instance().is_some_and(|held| held.id == **instance));
        let state = &claim.unwrap().state;
        // EC2's two minutes begin with its warning, whenever that is handled.
        state.removal().is_none()
            || deadline_of(state)
                .is_some_and(|deadline| deadline > warned_at + SignedDuration::from_secs(121))
    });
    assert_eq!(waiting.count(), 0, "of 24 instances");
}

/// Deployments of 40 kinds of pods.
fn mixed() -> Vec<Value> {
    let kinds = mixed_kinds().into_iter().enumerate();
    kinds.map(|(n, kind)| deployment(&format!("app-{n}"), &kind.requests, &kind.selector)).collect()
}

/// A region to which so many pods of 40 kinds came, when they came, and 15 s later.
fn burst(pods: i64) -> (BusyRegion, Timestamp) {
    let deployments = mixed();
    let kinds = i64::try_from(deployments.len()).unwrap();
    let mut throttled = BusyRegion::new("on-demand", deployments);
    *throttled.listener.fleet_takes.lock().unwrap() = FLEET_TAKES;
    let began = throttled.region.now();
    for kind in 0..kinds {
        throttled.scale(&format!("app-{kind}"), pods / kinds);
    }
    throttled.pass(SignedDuration::from_secs(15));
    (throttled, began)
}

/// When the last of so many launches goes out by the pace of calls to EC2, 40 at once and then four a second: the first
/// after 1.5 s at most. How many launches a plan has depends on the order of its claims, and so on the names of its pods,
/// which every earlier write to the cluster changes: 5,000 pods have 50 to 60 launches.
fn paced(launches: usize) -> i128 {
    1500 + 250 * i128::try_from(launches.saturating_sub(40)).unwrap()
}

#[test]
fn the_first_launch_of_a_burst_goes_out_while_the_rest_is_committed() {
    let check = |pods, launches, first_within: i128, last_within: i128| {
        let (throttled, began) = burst(pods);
        let fleets = throttled.listener.fleets.lock().unwrap();
        let after = |at: &Timestamp| at.duration_since(began).as_millis();
        let (first, last) = (after(fleets.first().unwrap()), after(fleets.last().unwrap()));
        assert!(first <= first_within, "the first launch of {pods} pods went out after {first} ms");
        assert!(fleets.len() <= launches, "{pods} pods have {} launches", fleets.len());
        let last_within = last_within.max(paced(fleets.len()));
        assert!(last <= last_within, "the last launch of {pods} pods went out after {last} ms");
    };
    check(1200, 50, 1500, 2000);
    check(5000, 62, 1500, 2000);
}

#[test]
fn a_burst_is_asked_for_in_one_wake_and_settled_as_answers_come() {
    let (throttled, began) = burst(2000);
    let launches = throttled.region.launches(&throttled.cluster);
    let looks: BTreeSet<Timestamp> = launches.iter().map(|launch| launch.created_at).collect();
    let [look] = Vec::from_iter(looks)[..] else { panic!("several looks") };
    let pods: usize = launches.iter().flat_map(|launch| &launch.claims).map(|claim| claim.pods.len()).sum();
    assert_eq!(pods, 2000, "one look plans for all");
    assert!(look.duration_since(began) <= SignedDuration::from_secs(2), "{look}");
    let (fleets, answers) =
        (throttled.listener.fleets.lock().unwrap(), throttled.listener.answers.lock().unwrap());
    assert_eq!((fleets.len(), answers.len()), (launches.len(), launches.len()), "each is sent once");
    let last = *answers.iter().max().unwrap();
    let took = last.duration_since(look);
    assert!(
        took <= SignedDuration::from_secs(5),
        "the last of {} answers came after {took:#}",
        answers.len()
    );
    // Names follow the answers.
    let mutating = throttled.listener.mutating.lock().unwrap();
    let mutating = mutating.iter().filter(|at| **at < last).count();
    assert!(mutating <= launches.len() + 20, "{mutating} calls for {} launches", launches.len());
    for launch in &launches {
        let LaunchState::Settled { at, instances } = launch.state else { panic!("{launch:?}") };
        assert_eq!(instances as usize, launch.claims.len());
        assert!(at.duration_since(look) <= took + SignedDuration::from_secs(1), "settled at {at}");
    }
}
