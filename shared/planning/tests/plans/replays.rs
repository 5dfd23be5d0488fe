//! Plans of drawn worlds, replayed by kube-scheduler's filters and scores.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::checker::faults;
use crate::claims_checker::claim_faults;
use crate::replay::{Nominations, Replay, replay};
use crate::wide::wide_world;
use tenon_domain::api::pod::PodShape;

/// Worlds of `cargo test`: about 7 s.
const WORLDS: u64 = 60;
/// How many planned pods of these worlds find no place, with nominations and without. The planner isn't right yet:
/// whoever mends it lowers the numbers. The goal is at most `max(1 pod, 1 %)` in each world, and none after another plan.
const LEFT: [(Nominations, usize); 2] = [(Nominations::Made, 106), (Nominations::None, 142)];

/// What a run over many worlds found.
#[derive(Debug, Default)]
struct Tally {
    worlds: usize,
    planned: usize,
    left: usize,
    left_twice: usize,
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
        self.worst = self.worst.max((replay.left.len(), number));
        if replay.left.len() > (replay.planned / 100).max(1) {
            self.beyond.push(number);
        }
    }
}

#[test]
fn no_more_planned_pods_find_no_place_than_is_known() {
    for (nominations, known) in LEFT {
        let mut tally = Tally::default();
        (0..WORLDS).for_each(|number| tally.add(number, &replay(&wide_world(number), number, nominations)));
        assert!(tally.left <= known, "{nominations:?}: {tally:?}");
    }
}

#[test]
#[ignore = "the planner's plans can't be carried out in some of these worlds"]
fn planned_pods_find_their_places() {
    for nominations in [Nominations::Made, Nominations::None] {
        for number in 0..WORLDS {
            let replay = replay(&wide_world(number), number, nominations);
            let left = (replay.left.len(), replay.left_twice.len());
            assert!(
                left.0 <= (replay.planned / 100).max(1) && left.1 == 0,
                "world {number}, {nominations:?}: {:?}",
                replay.left
            );
        }
    }
}

/// `TENON_WORLDS=0..10000 cargo test --release ... -- --ignored --nocapture many_worlds`
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
        for nominations in [Nominations::Made, Nominations::None] {
            let replayed = replay(&world, number, nominations);
            tallies.entry(nominations).or_default().add(number, &replayed);
            if !replayed.left.is_empty() && std::env::var("TENON_TELL").is_ok() {
                println!("world {number} {nominations:?}: {:?}", replayed.left);
                println!("  twice: {:?}", replayed.left_twice);
                let mut told: Vec<*const PodShape> = Vec::new();
                for pod in replayed.input.pods.iter().filter(|pod| replayed.left.contains_key(&pod.name.name))
                {
                    if !told.contains(&Arc::as_ptr(&pod.shape)) {
                        told.push(Arc::as_ptr(&pod.shape));
                        let one = &pod.shape;
                        println!(
                            "  {}: selects {:?} {:?}\n    spread {:?}\n    with {:?}\n    apart {:?}",
                            pod.name,
                            one.node_selector,
                            one.required_node_affinity,
                            one.topology_spread,
                            one.required_pod_affinity,
                            one.required_pod_anti_affinity,
                        );
                        for claim in replayed
                            .plan
                            .claims
                            .iter()
                            .filter(|claim| claim.pods.iter().any(|one| one.uid == pod.uid))
                        {
                            println!(
                                "    on {} in {:?} {:?} {:?}",
                                claim.name,
                                claim.zones,
                                claim.labels,
                                claim.pods.len()
                            );
                        }
                    }
                }
            }
            if nominations == Nominations::Made {
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
