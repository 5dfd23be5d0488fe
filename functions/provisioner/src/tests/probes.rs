//! Exhausted capacity, and its probes.

use tenon_domain::launch::Launch;
use tenon_domain::unavailable::{Mark, Probe};
use tenon_table::items::{keys, set};

use super::crashes::crash_after;
use super::*;

const ZONES: [&str; 2] = ["us-east-1a", "us-east-1b"];

/// A cluster whose pods have no available offering, after the refusal.
pub(super) fn dried(pods: usize) -> Cluster {
    let cluster = cluster(pods);
    dry_out(&cluster, Some(("InsufficientInstanceCapacity", "none left")));
    wake(&cluster);
    check_settled(&cluster, 0);
    assert!(marks(&cluster).iter().all(|mark| mark.count == 1));
    assert_eq!(marks(&cluster).len(), TYPES.len() * ZONES.len());
    cluster
}

pub(super) fn dry_out(cluster: &Cluster, error: Option<(&str, &str)>) {
    for (name, zone) in TYPES.iter().flat_map(|name| ZONES.map(|zone| (name, zone))) {
        let pool = CapacityPool {
            capacity_type: TargetCapacityType::OnDemand,
            instance_type: InstanceType::parse(*name).unwrap(),
            zone: Zone::parse(zone).unwrap(),
        };
        let error = error.map(|(code, message)| (code.to_owned(), message.to_owned()));
        cluster.world.ec2.fail_pool(pool, error);
    }
}

pub(super) fn marks(cluster: &Cluster) -> Vec<Mark> {
    let of = |(key, item)| from_item(&key, &item).unwrap();
    cluster.world.table.dump().filter(|(key, _)| key.sk.starts_with("UNAVAILABLE#")).map(of).collect()
}

fn put(cluster: &Cluster, mark: &Mark) {
    let key = keys::unavailable(&cluster.world.installation.region, &mark.key);
    cluster.put(set(key, mark)).unwrap();
}

/// Launches after these.
pub(super) fn launches_since(cluster: &Cluster, before: &[Launch]) -> Vec<Launch> {
    let old: BTreeSet<_> = before.iter().map(|launch| launch.id.clone()).collect();
    cluster.launches().unwrap().into_iter().filter(|launch| !old.contains(&launch.id)).collect()
}

#[test]
fn one_launch_asks_again_and_its_refusal_doubles_the_hold() {
    let cluster = dried(6);
    let mut before = cluster.launches().unwrap();
    wake(&cluster);
    assert!(launches_since(&cluster, &before).is_empty(), "all is held");
    for (count, seconds) in [(2, 68), (3, 136)] {
        advance(&cluster, SignedDuration::from_secs(seconds));
        wake(&cluster);
        let asked = launches_since(&cluster, &before);
        assert_eq!(asked.iter().map(|launch| launch.claims.len()).collect::<Vec<_>>(), [1]);
        for mark in marks(&cluster) {
            assert_eq!((mark.count, mark.probe), (count, None));
        }
        before = cluster.launches().unwrap();
    }
}

#[test]
fn capacity_that_is_back_is_found_by_the_probe_and_used_in_the_same_wake() {
    let cluster = dried(6);
    dry_out(&cluster, None);
    advance(&cluster, SignedDuration::from_secs(68));
    wake(&cluster);
    let launched = phases(&cluster, ClaimPhase::Launched);
    check_settled(&cluster, launched);
    let pods: usize = cluster
        .launches()
        .unwrap()
        .iter()
        .filter(|launch| matches!(launch.state, LaunchState::Settled { instances, .. } if instances > 0))
        .map(|launch| launch.claims.iter().map(|claim| claim.pods.len()).sum::<usize>())
        .sum();
    assert_eq!(pods, 6, "every pod has a claim");
    assert!(
        marks(&cluster).iter().any(|mark| mark.count == 0),
        "the mark of the launched offering is cleared"
    );
    assert!(marks(&cluster).iter().all(|mark| mark.probe.is_none()), "no lease is left");
}

#[test]
fn what_another_cluster_asks_for_is_left_to_it() {
    let cluster = dried(2);
    advance(&cluster, SignedDuration::from_secs(68));
    let now = cluster.world.clock.now();
    for mark in marks(&cluster) {
        let probe = Probe {
            cluster: "staging".parse().unwrap(),
            launch: "launch-other".parse().unwrap(),
            at: now,
            until: now + SignedDuration::from_mins(3),
        };
        put(&cluster, &Mark { probe: Some(probe), revision: mark.revision + 1, ..mark });
    }
    let before = cluster.launches().unwrap();
    wake(&cluster);
    assert!(launches_since(&cluster, &before).is_empty());
    // It crashed: its lease has ended.
    advance(&cluster, SignedDuration::from_secs(181));
    wake(&cluster);
    assert_eq!(launches_since(&cluster, &before).len(), 1);
}

#[test]
fn however_long_all_is_held_one_launch_asks_every_three_minutes() {
    let cluster = dried(2);
    let now = cluster.world.clock.now();
    for mark in marks(&cluster) {
        put(
            &cluster,
            &Mark {
                count: 8,
                until: now + SignedDuration::from_hours(2),
                revision: mark.revision + 1,
                ..mark
            },
        );
    }
    let mut before = cluster.launches().unwrap();
    for _ in 0..3 {
        advance(&cluster, SignedDuration::from_secs(134));
        wake(&cluster);
        assert!(launches_since(&cluster, &before).is_empty());
        advance(&cluster, SignedDuration::from_secs(46));
        wake(&cluster);
        assert_eq!(launches_since(&cluster, &before).len(), 1);
        before = cluster.launches().unwrap();
    }
}

#[test]
fn a_cut_while_it_is_asked_loses_no_lease() {
    for polls in 0..200 {
        let cluster = dried(2);
        dry_out(&cluster, None);
        advance(&cluster, SignedDuration::from_secs(68));
        let ended = crash_after(&cluster, polls);
        advance(&cluster, SignedDuration::from_secs(30));
        wake(&cluster);
        let launched = phases(&cluster, ClaimPhase::Launched);
        assert!(launched > 0, "after {polls} polls");
        check_settled(&cluster, launched);
        assert!(marks(&cluster).iter().all(|mark| mark.probe.is_none()), "after {polls} polls");
        if ended {
            return;
        }
    }
    panic!("never ends");
}
