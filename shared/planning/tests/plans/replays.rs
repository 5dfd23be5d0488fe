//! Plans of drawn worlds, replayed by kube-scheduler's filters and scores.
//!
//! A plan can't always be carried out, even if each of its pods has a valid place. kube-scheduler places a pod as soon
//! as any node takes it, so pods whose nodes open late go where others were planned:
//!
//! - The first pod of an affinity to its own kind comes to another zone, and all others must follow it there.
//! - A pod that others keep away from comes to the domain that they were planned for.
//! - Pods of a higher priority, or ones that found no place in the plan, take the room of a node that opens first. A
//!   nomination keeps it only from pods of no higher priority.
//! - A pod comes to the domain of nominated pods that keep away from it: kube-scheduler doesn't look at their terms if the
//!   pod has none itself and no running pod keeps it away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::checker::faults;
use crate::claims_checker::claim_faults;
use tenon_domain::api::Pod;
use tenon_domain::api::pod::PodShape;
use tenon_domain::id::Uid;
use tenon_planning::provision::plan;
use tenon_replay::replay::{Nominations, Replay, replay};
use tenon_replay::wide::wide_world;

/// Worlds of `cargo test`: about 7 s.
const WORLDS: u64 = 60;
/// How many planned pods of these worlds find no place, of about 2,400, and how many of them wait after another plan. The
/// goal is at most `max(1 pod, 1 %)` in each world, and none after another plan. In world 27, which has the most of them,
/// pods may be where at most 3 others are, which come first.
const LEFT: [(Nominations, usize, usize); 3] =
    [(Nominations::InWaves, 33, 22), (Nominations::Made, 43, 24), (Nominations::None, 106, 85)];
/// Worlds in which more than `max(1 pod, 1 %)` are left where nodes open as the agent lets them: for higher priorities,
/// for others that keep them away, and for an affinity that began elsewhere.
const BEYOND: [u64; 5] = [9, 27, 28, 40, 53];

/// What a run over many worlds found.
#[derive(Debug, Default)]
struct Tally {
    worlds: usize,
    planned: usize,
    left: usize,
    left_twice: usize,
    promised_twice: usize,
    /// Pods that found a place though the plan has none for them.
    unforeseen: usize,
    /// Worlds with more pods left than `max(1 pod, 1 %)`.
    beyond: Vec<u64>,
    worst: (usize, u64),
}

impl Tally {
    fn add(&mut self, number: u64, replay: &Replay) {
        self.worlds += 1;
        self.planned += replay.planned;
        self.left += replay.left.len();
        self.left_twice += replay.left_twice.len();
        self.promised_twice += replay.promised_twice.len();
        self.unforeseen += replay.unforeseen.len();
        self.worst = self.worst.max((replay.left.len(), number));
        if replay.left.len() > (replay.planned / 100).max(1) {
            self.beyond.push(number);
        }
    }
}

#[test]
fn planned_pods_find_their_places_but_for_known_worlds() {
    for (nominations, left, twice) in LEFT {
        let mut tally = Tally::default();
        (0..WORLDS).for_each(|number| tally.add(number, &replay(&wide_world(number), number, nominations)));
        assert!(tally.left <= left && tally.left_twice <= twice, "{nominations:?}: {tally:?}");
        assert_eq!(tally.promised_twice, 0, "{nominations:?}: {tally:?}");
        if nominations == Nominations::InWaves {
            assert_eq!(tally.beyond, BEYOND, "{tally:?}");
        }
    }
}

/// kube-scheduler tries the older ones first.
#[test]
fn the_youngest_of_equal_pods_wait() {
    for number in 0..WORLDS {
        let world = wide_world(number);
        let (plan, _) = plan(&world);
        let of_claims = plan.claims.iter().flat_map(|claim| &claim.pods);
        let placed: BTreeSet<&Uid> =
            plan.placements.iter().map(|one| &one.pod).chain(of_claims).map(|pod| &pod.uid).collect();
        let mut waits: BTreeMap<*const PodShape, &Pod> = BTreeMap::new();
        for pod in &world.pods {
            let shape = Arc::as_ptr(&pod.shape);
            if !placed.contains(&pod.uid) {
                waits.entry(shape).or_insert(pod);
            } else if let Some(older) = waits.get(&shape) {
                panic!("world {number}: {} has a place, {} doesn't", pod.name, older.name);
            }
        }
    }
}

/// `TENON_WORLDS=0..10000 cargo test --release ... -- --ignored --nocapture many_worlds`; with `TENON_TELL=1` each pod
/// that is left.
#[test]
#[ignore = "a measurement: it takes as long as the worlds that it is given"]
#[expect(clippy::disallowed_methods, reason = "a person says which worlds to measure")]
fn many_worlds_are_measured() {
    let range = std::env::var("TENON_WORLDS").unwrap_or_else(|_| "0..200".to_owned());
    let (from, to) = range.split_once("..").unwrap();
    let (from, to): (u64, u64) = (from.parse().unwrap(), to.parse().unwrap());
    let mut tallies: BTreeMap<Nominations, Tally> = BTreeMap::new();
    let (mut judged, mut at_fault) = (0, Vec::new());
    for number in from..to {
        let world = wide_world(number);
        for nominations in [Nominations::InWaves, Nominations::Made, Nominations::None] {
            let replayed = replay(&world, number, nominations);
            tallies.entry(nominations).or_default().add(number, &replayed);
            if !replayed.left.is_empty() && std::env::var("TENON_TELL").is_ok() {
                println!("world {number} {nominations:?}");
                tell(&replayed);
            }
            if nominations == Nominations::InWaves {
                judged += 1;
                let mut found = faults(&replayed.input, &replayed.plan);
                found.extend(claim_faults(&replayed.input, &replayed.plan));
                if !found.is_empty() {
                    at_fault.push((number, found.len(), found[0].clone()));
                }
            }
        }
    }
    for (nominations, tally) in &tallies {
        println!("{nominations:?}: {tally:?}");
    }
    println!(
        "checkers of assignments and claims: {} of {judged} plans at fault: {at_fault:?}",
        at_fault.len()
    );
}

/// Says of each pod that is left why, and which pods have the nodes that such pods were planned for.
fn tell(replayed: &Replay) {
    let mut told: BTreeSet<&str> = BTreeSet::new();
    for pod in replayed.input.pods.iter().filter(|pod| replayed.left.contains_key(&pod.name.name)) {
        let again = if replayed.left_twice.contains_key(&pod.name.name) { " twice" } else { "" };
        println!("  {}{again}: {}", pod.name, replayed.left[&pod.name.name]);
        if told.insert(pod.name.name.split('-').next().unwrap_or_default()) {
            println!("    {:?}", pod.shape);
        }
    }
    let claims = replayed.plan.claims.iter();
    let of_left = |name: &str| replayed.left.contains_key(name);
    for claim in claims.filter(|claim| claim.pods.iter().any(|pod| of_left(&pod.name.name))) {
        let here = replayed.places.iter().filter(|(_, node)| **node == *claim.name.as_str());
        let came: Vec<&String> = here.map(|(pod, _)| pod).collect();
        let planned: Vec<&String> = claim.pods.iter().map(|pod| &pod.name.name).collect();
        println!("  {} in {:?}: planned {planned:?}, came {came:?}", claim.name, claim.zones);
    }
}
