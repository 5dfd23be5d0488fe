//! The replay of plans against the real kube-scheduler: the same plans, on the same nodes, which open in the same order.
//!
//! kube-scheduler draws among equal nodes, so that places differ. What must agree is judged attempt by attempt, in the
//! order of kube-scheduler's log: a pod's place passes the replay's filters at that moment, and no place is rated
//! higher; a pod without a place is refused by them everywhere, for the same reasons. In the end as many pods are left,
//! but for a tolerance.
//!
//! Not compared: preemption, pods of DaemonSets, and priorities together with nominations.

use std::collections::{BTreeMap, BTreeSet};

use tenon_cluster_tests::{Cluster, SchedulerEvent, alone};
use tenon_domain::api::Pod;
use tenon_domain::api::pod::{PodShape, PodVolume};
use tenon_domain::api::storage::PersistentVolumeClaim;
use tenon_planning::provision::{ExistingNode, ProvisionInput};
use tenon_replay::follower::Follower;
use tenon_replay::objects;
use tenon_replay::replay::{Nominations, Openings, Replay, replay, residents};
use tenon_replay::wide::wide_world;

use crate::stage::{Stage, StageEvent, closed, open};

/// Worlds in which pods are left, among them with volumes, nominations and Nodes that are there before. They take less
/// than a minute.
const WORLDS: [u64; 9] = [50, 80, 97, 115, 151, 173, 236, 295, 304];
/// The most nodes that open in a world: each takes some tenths of a second.
const MOST_NODES: usize = 12;
/// By how many pods the sums of those that are left may differ, of all that the plans have a place for: another place
/// of one pod closes a domain for several, and pods in backoff come in another order where nodes open within seconds.
/// Up to 4 were seen.
const TOLERANCE_PERCENT: usize = 6;

/// What was judged in all worlds.
#[derive(Debug, Default)]
struct Calibration {
    worlds: usize,
    nodes: usize,
    planned: usize,
    /// Planned pods that are left in the replay.
    left_there: usize,
    /// Planned pods that are left here.
    left_here: usize,
    placed: usize,
    refused: usize,
    /// Places that kube-scheduler took without rating nodes again.
    hinted: usize,
    /// Attempts of which nobody can tell what kube-scheduler knew: a node or a nomination came to be known meanwhile, or
    /// another pod's failed attempt had taken a place.
    unclear: usize,
    faults: Vec<String>,
}

/// A world whose objects the API server takes.
fn world(number: u64, nominations: Nominations) -> ProvisionInput {
    let mut world = wide_world(number);
    world.daemon_sets.clear();
    for pod in &mut world.pods {
        let mut shape = PodShape::clone(&pod.shape);
        let mut known = BTreeSet::new();
        // It takes one constraint for a label and a kind.
        shape.topology_spread.retain(|rule| {
            known.insert((rule.topology_key.clone(), format!("{:?}", rule.when_unsatisfiable)))
        });
        if nominations == Nominations::Made {
            shape.priority = 0;
        }
        pod.shape = shape.into();
    }
    world
}

/// Where kube-scheduler put a pod.
struct BoundPod<'r> {
    node: &'r str,
    /// How many nodes passed the filters.
    feasible: usize,
}

/// Pods of which several use a claim that has no volume yet.
fn sharing(input: &ProvisionInput) -> BTreeSet<&str> {
    let uses = |pod: &Pod, claim: &PersistentVolumeClaim| {
        pod.shape.volumes.contains(&PodVolume::Claim(claim.meta.name.clone()))
    };
    let unbound = input.storage.claims.iter().filter(|claim| claim.volume.is_none());
    let users = unbound.map(|claim| input.pods.iter().filter(|pod| uses(pod, claim)).collect::<Vec<_>>());
    users.filter(|users| users.len() > 1).flatten().map(|pod| pod.name.name.as_str()).collect()
}

/// One world's events, as they are judged.
struct Judge<'r> {
    follower: Follower,
    nodes: BTreeMap<&'r str, &'r ExistingNode>,
    opening: BTreeSet<String>,
    nominating: BTreeMap<String, String>,
    /// By pod, its last attempt, as an index of the events.
    last: BTreeMap<&'r str, usize>,
    bound: BTreeMap<&'r str, BoundPod<'r>>,
    /// Attempts that took a node without rating nodes again.
    hinted: BTreeSet<usize>,
    /// Pods that share a volume which is made for the first of them: kube-scheduler sends the others to its node until the
    /// volume is there, and wherever the volume can be afterwards.
    sharing: BTreeSet<&'r str>,
    events: &'r [StageEvent],
    number: u64,
}

impl<'r> Judge<'r> {
    fn new(number: u64, replayed: &'r Replay, openings: &'r Openings, events: &'r [StageEvent]) -> Self {
        let input = &replayed.input;
        let all = openings.ready.iter().chain(&openings.registered);
        let all: Vec<&ExistingNode> =
            all.chain(openings.later.values().flatten().map(|one| &one.node)).collect();
        let nodes: BTreeMap<&str, &ExistingNode> =
            all.iter().map(|node| (node.name.as_str(), *node)).collect();
        let mut objects = objects::surroundings(input);
        objects.extend(openings.limits().map(objects::csi_node));
        objects.extend(nodes.values().flat_map(|node| residents(node)));
        objects.extend(input.pods.iter().map(|pod| objects::pod(&pod.name.name, &pod.shape, None)));
        let mut judge = Self {
            follower: Follower::new(objects),
            nodes,
            opening: BTreeSet::new(),
            nominating: BTreeMap::new(),
            last: BTreeMap::new(),
            bound: BTreeMap::new(),
            hinted: BTreeSet::new(),
            sharing: sharing(input),
            events,
            number,
        };
        judge.look_ahead();
        judge
    }

    fn look_ahead(&mut self) {
        for (index, event) in self.events.iter().enumerate() {
            let StageEvent::Scheduler(event) = event else { continue };
            match event {
                SchedulerEvent::Attempted(pod) => {
                    self.last.insert(pod, index);
                }
                SchedulerEvent::Hinted(pod) => self.hinted.extend(self.last.get(pod.as_str())),
                SchedulerEvent::Bound { pod, node, feasible } => {
                    self.bound.insert(pod, BoundPod { node, feasible: *feasible });
                }
                SchedulerEvent::NodeAdded(_)
                | SchedulerEvent::NodeUpdated(_)
                | SchedulerEvent::PodUpdated(_)
                | SchedulerEvent::Refused { .. }
                | SchedulerEvent::Failed(_) => {}
            }
        }
    }

    fn judge(&mut self, all: &mut Calibration) {
        for (index, event) in self.events.iter().enumerate() {
            match event {
                StageEvent::Opens(node) => {
                    self.opening.insert(node.clone());
                }
                StageEvent::Nominates(pod, node) => {
                    self.nominating.insert(pod.clone(), node.clone());
                }
                StageEvent::Scheduler(SchedulerEvent::NodeAdded(node)) => {
                    self.follower.apply(closed(self.nodes[node.as_str()]));
                }
                StageEvent::Scheduler(SchedulerEvent::NodeUpdated(node)) => {
                    if self.opening.remove(node) {
                        self.follower.apply(open(self.nodes[node.as_str()]));
                    }
                }
                StageEvent::Scheduler(SchedulerEvent::PodUpdated(pod)) => {
                    if let Some(node) = self.nominating.remove(pod) {
                        self.follower.nominate(pod, Some(&node));
                    }
                }
                StageEvent::Scheduler(SchedulerEvent::Attempted(pod)) => {
                    let found = match self.bound.get(pod.as_str()) {
                        Some(bound) if self.last[pod.as_str()] == index => {
                            all.placed += 1;
                            all.hinted += usize::from(self.hinted.contains(&index));
                            self.judge_place(index, pod, bound)
                        }
                        Some(_) | None => {
                            all.refused += 1;
                            self.judge_refusal(index, pod)
                        }
                    };
                    let clear = self.is_clear(index, pod);
                    all.unclear += usize::from(!clear);
                    let found = found.filter(|_| clear);
                    all.faults.extend(found.map(|found| format!("world {}: `{pod}`: {found}", self.number)));
                }
                // Two that write the same claim.
                StageEvent::Scheduler(SchedulerEvent::Failed(pod)) if self.sharing.contains(pod.as_str()) => {
                }
                StageEvent::Scheduler(SchedulerEvent::Failed(pod)) => {
                    all.faults.push(format!("world {}: `{pod}`: an attempt failed", self.number));
                }
                StageEvent::Scheduler(
                    SchedulerEvent::Hinted(_) | SchedulerEvent::Bound { .. } | SchedulerEvent::Refused { .. },
                ) => {}
            }
        }
    }

    /// Whether kube-scheduler learnt nothing new between the beginning of an attempt and its end, and counted no place
    /// that nobody is told.
    fn is_clear(&self, index: usize, pod: &str) -> bool {
        if self.counts_an_untold_place(index) {
            return false;
        }
        let later = self.events[index..].iter().skip(1);
        let during = later.take_while(|event| match event {
            StageEvent::Scheduler(SchedulerEvent::Attempted(_)) => false,
            StageEvent::Scheduler(
                SchedulerEvent::Bound { pod: of, .. } | SchedulerEvent::Refused { pod: of, .. },
            ) => of != pod,
            StageEvent::Scheduler(_) | StageEvent::Opens(_) | StageEvent::Nominates(..) => true,
        });
        let mut known = during.filter(|event| match event {
            StageEvent::Scheduler(SchedulerEvent::NodeAdded(_)) => true,
            StageEvent::Scheduler(SchedulerEvent::NodeUpdated(node)) => self.opening.contains(node),
            StageEvent::Scheduler(SchedulerEvent::PodUpdated(pod)) => self.nominating.contains_key(pod),
            StageEvent::Scheduler(
                SchedulerEvent::Attempted(_)
                | SchedulerEvent::Hinted(_)
                | SchedulerEvent::Bound { .. }
                | SchedulerEvent::Refused { .. }
                | SchedulerEvent::Failed(_),
            )
            | StageEvent::Opens(_)
            | StageEvent::Nominates(..) => false,
        });
        known.next().is_none()
    }

    /// Whether another pod's place counts that the log doesn't tell: its last attempt before fails after the choice of a
    /// node. Until then the pod is there, and afterwards it is nominated for it until its next attempt.
    fn counts_an_untold_place(&self, index: usize) -> bool {
        let attempts = self.events[..index].iter().enumerate().filter_map(|(at, event)| match event {
            StageEvent::Scheduler(SchedulerEvent::Attempted(pod)) => Some((pod, at)),
            StageEvent::Scheduler(_) | StageEvent::Opens(_) | StageEvent::Nominates(..) => None,
        });
        let last: BTreeMap<&String, usize> = attempts.collect();
        last.into_iter().any(|(pod, at)| self.fails(at, pod))
    }

    /// Whether an attempt fails.
    fn fails(&self, index: usize, pod: &str) -> bool {
        let outcome = self.events[index..].iter().find_map(|event| match event {
            StageEvent::Scheduler(SchedulerEvent::Failed(of)) if of == pod => Some(true),
            StageEvent::Scheduler(
                SchedulerEvent::Bound { pod: of, .. } | SchedulerEvent::Refused { pod: of, .. },
            ) if of == pod => Some(false),
            StageEvent::Scheduler(_) | StageEvent::Opens(_) | StageEvent::Nominates(..) => None,
        });
        outcome == Some(true)
    }

    fn judge_place(&self, index: usize, pod: &str, bound: &BoundPod<'_>) -> Option<String> {
        let BoundPod { node, feasible } = *bound;
        let judged = self.follower.placed(pod, node);
        if let Some(why) = judged.refused {
            return Some(format!("it is on `{node}`, which the filters refuse: {why}"));
        }
        if self.hinted.contains(&index) || self.sharing.contains(pod) {
            return None;
        }
        let ratings = judged.ratings;
        if judged.feasible != feasible {
            return Some(format!("{feasible} nodes passed the filters, not as here: {ratings:?}"));
        }
        (judged.worse_by > 0).then(|| format!("it is on `{node}`, but others are rated higher: {ratings:?}"))
    }

    fn judge_refusal(&self, index: usize, pod: &str) -> Option<String> {
        let mut later = self.events[index..].iter();
        let why = later.find_map(|event| {
            let StageEvent::Scheduler(SchedulerEvent::Refused { pod: of, why }) = event else { return None };
            (of == pod).then_some(why.as_str())
        });
        let (why, judged) = (why.unwrap_or_default(), self.follower.refused(pod));
        if self.sharing.contains(pod) {
            return None;
        }
        if !judged.taking.is_empty() {
            return Some(format!("it is refused ({why}), but the filters let it be on {:?}", judged.taking));
        }
        (judged.reasons != told(why))
            .then(|| format!("it is refused ({why}), but here by {:?}", judged.reasons))
    }
}

/// The reasons of kube-scheduler's sentence, with their numbers.
fn told(why: &str) -> BTreeMap<String, usize> {
    let reasons = why.split_once(" are available: ").map_or("", |(_, reasons)| reasons);
    // After that it tells of preemption.
    let reasons = reasons.split_once(". ").map_or(reasons, |(reasons, _)| reasons);
    let one = |reason: &str| {
        let (count, reason) = reason.split_once(' ')?;
        Some((reason.to_owned(), count.parse().ok()?))
    };
    reasons.trim_end_matches(['.', ' ']).split(", ").filter_map(one).collect()
}

/// The pods that the replay's filters would let on a node, though they wait. Of those that share a volume nobody here
/// knows where it can be.
fn forgotten(judge: &Judge<'_>, input: &ProvisionInput, places: &BTreeMap<String, String>) -> Vec<String> {
    let waiting = input.pods.iter().map(|pod| &pod.name.name).filter(|name| !places.contains_key(*name));
    let waiting = waiting.filter(|name| !judge.sharing.contains(name.as_str()));
    let found = waiting.filter_map(|name| {
        let taking = judge.follower.waiting(name).taking;
        let fault =
            format!("world {}: `{name}` waits, but the filters let it be on {taking:?}", judge.number);
        (!taking.is_empty()).then_some(fault)
    });
    found.collect()
}

async fn calibrate(cluster: &Cluster, number: u64, all: &mut Calibration) {
    let nominations = if number.is_multiple_of(2) { Nominations::Made } else { Nominations::None };
    let replayed = replay(&world(number, nominations), number, nominations);
    let openings = Openings::of(&replayed.input, &replayed.plan, number);
    let nodes = openings.later.values().flatten().count();
    if nodes == 0 || nodes > MOST_NODES {
        return;
    }
    let mut stage = Stage::clear(cluster).await;
    stage.play(&replayed.input, &openings, nominations).await;
    let places = stage.places().await;
    let mut judge = Judge::new(number, &replayed, &openings, &stage.events);
    judge.judge(all);
    all.faults.extend(forgotten(&judge, &replayed.input, &places));
    all.worlds += 1;
    all.nodes += nodes;
    all.planned += replayed.planned;
    let planned = replayed.plan.claims.iter().flat_map(|claim| &claim.pods);
    let planned = planned.chain(replayed.plan.placements.iter().map(|one| &one.pod));
    let left = planned.filter(|pod| !places.contains_key(&pod.name.name)).count();
    println!("world {number}, {nominations:?}: {} pods left in the replay, {left} here", replayed.left.len());
    all.left_there += replayed.left.len();
    all.left_here += left;
}

/// Other worlds, if a person names them: `TENON_WORLDS=0..100`.
fn worlds() -> Vec<u64> {
    let Ok(range) = std::env::var("TENON_WORLDS") else { return WORLDS.to_vec() };
    let (from, to) = range.split_once("..").expect("a range of worlds");
    (from.parse().expect("a number")..to.parse().expect("a number")).collect()
}

#[tokio::test]
#[ignore = "needs tests/servers/control-plane"]
async fn plans_come_out_as_in_the_replay_of_kube_scheduler() {
    let _alone = alone().await;
    let cluster = Cluster::admin().await;
    cluster.install_definitions().await;
    let mut all = Calibration::default();
    for number in worlds() {
        calibrate(&cluster, number, &mut all).await;
    }
    let _cleared = Stage::clear(&cluster).await;
    println!("{all:#?}");
    assert!(all.faults.is_empty(), "{} faults:\n{}", all.faults.len(), all.faults.join("\n"));
    let most = all.planned * TOLERANCE_PERCENT / 100;
    assert!(all.left_there.abs_diff(all.left_here) <= most, "{all:?}");
    assert!(all.worlds >= 8 && all.refused > 0 && all.left_here > 0, "too little is compared: {all:?}");
}
