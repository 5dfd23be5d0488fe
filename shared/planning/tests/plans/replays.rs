//! Plans of drawn worlds, replayed by kube-scheduler's filters and scores.

use std::collections::BTreeMap;

use crate::checker::faults;
use crate::replay::{Nominations, Replay, replay};
use crate::wide::wide_world;

/// Worlds of `cargo test`: about 10 s.
const WORLDS: u64 = 60;

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

/// `TENON_WORLDS=0..10000 cargo test --release ... -- --ignored --nocapture many_worlds`
#[test]
#[ignore = "a measurement: it takes as long as the worlds that it is given"]
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
            }
            if nominations == Nominations::Made {
                judged += 1;
                let found = faults(&replayed.input, &replayed.plan);
                if !found.is_empty() {
                    at_fault.push((number, found.len(), found[0].clone()));
                }
            }
        }
    }
    for (nominations, tally) in &tallies {
        println!("{nominations:?}: {tally:?}");
    }
    println!("checker of assignments: {} of {judged} plans at fault: {at_fault:?}", at_fault.len());
}
