//! Two clusters of a region, and a third whose agent's credentials somebody has: a history of its own.
//!
//! Decides when pods arrive in the two, and compares two plays of one seed: without the third, and beside it. `deeds`
//! decides what the third does. Every call takes a while; no other fault happens.
//!
//! Invariant of the comparison: nobody in the two notices more of the third than that a pod runs a minute later.

mod borrowed;
mod classes;
mod deeds;
mod events;
mod snapshots;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::id::ClusterName;
use tenon_domain::tags;
use tenon_region::engine::SimulatedRegion;
use tenon_region::scenario::{ClusterForm, Scenario};
use tenon_snapshot::Kind;
use tenon_snapshot::object::text;

use self::borrowed::{LentByNobody, invariant_nothing_borrowed};
use self::deeds::HostileThird;
use crate::chaos::Weather;
use crate::invariants::{Found, Invariant, Violation};
use crate::random::Dice;
use crate::simulate::SimulationOptions;
use crate::world::{calm, cluster, node_class, plain_pool, set, small_region};

/// The clusters whose pods have to start.
const NEIGHBOURS: [&str; 2] = ["north", "south"];
/// The hostile one.
const THIRD: &str = "hostile";
/// Until then the region reads its catalogue and resolves its classes.
const CALM_BEFORE: SignedDuration = SignedDuration::from_mins(3);
/// The seconds of a step. Pods arrive in one neighbour at its begin, and the third does one thing.
const STEP_SECONDS: u32 = 10;
/// Steps after the last arrival, in which the third goes on: three minutes, in which alone every pod runs.
const STEPS_AFTER: u32 = 18;
/// How much later a pod may run than without the third.
const DELAY_MOST: SignedDuration = SignedDuration::from_mins(1);
/// The most nodes that the third's stack allows: whoever has its credentials can have these.
const THIRD_NODES: u32 = 12;
/// Types of one size: each pod fills a node, so the number of nodes doesn't depend on which pods are planned together.
const LARGE: [&str; 3] = ["m5.large", "m6i.large", "m7i.large"];

/// Whether the third cluster is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThirdCluster {
    Absent,
    Hostile,
}

/// A Deployment of a neighbour.
type Arrival = (ClusterName, String);

/// What users of the neighbours noticed.
struct NoticedByUsers {
    /// When pods ran first, in order; of each cluster. Which pod it was says nothing: kube-scheduler gives a Node to the
    /// pod that it tries first.
    ran: BTreeMap<ClusterName, Vec<Timestamp>>,
    /// How many pods each cluster has.
    wanted: BTreeMap<ClusterName, usize>,
    /// How many nodes each cluster had.
    nodes: BTreeMap<String, usize>,
    until: Timestamp,
}

/// Plays a seed without the third cluster and beside it, with one arrival of pods a step.
///
/// # Errors
/// A [`Violation`] of [`Invariant::NeighboursUndisturbed`] or [`Invariant::NothingBorrowed`].
pub fn hostile(options: SimulationOptions) -> Result<(), Box<Violation>> {
    let alone = played(SimulationOptions { sabotage: None, ..options }, ThirdCluster::Absent)?;
    let beside = played(options, ThirdCluster::Hostile)?;
    invariant_neighbours_undisturbed(&alone, &beside).map_err(|(invariant, found)| {
        Box::new(Violation { invariant, seed: options.seed, step: options.steps, at: beside.until, found })
    })
}

/// Every pod of the neighbours runs, at most [`DELAY_MOST`] later than without the third, and on no more nodes.
fn invariant_neighbours_undisturbed(alone: &NoticedByUsers, beside: &NoticedByUsers) -> Found {
    let violated = |text| Err((Invariant::NeighboursUndisturbed, text));
    for (cluster, wanted) in &beside.wanted {
        let ran = |of: &NoticedByUsers| of.ran.get(cluster).cloned().unwrap_or_default();
        let (before, now) = (ran(alone), ran(beside));
        if before.len() < *wanted {
            return violated(format!(
                "{} of {wanted} pods in {cluster} run, without any other cluster",
                before.len()
            ));
        }
        if now.len() < *wanted {
            return violated(format!(
                "{} of {wanted} pods in {cluster} run beside the hostile cluster",
                now.len()
            ));
        }
        for (number, (before, now)) in before.iter().zip(&now).enumerate() {
            let later = now.duration_since(*before);
            if later > DELAY_MOST {
                return violated(format!(
                    "pod {} of {cluster} runs {later:#} later beside the hostile cluster than without it",
                    number + 1
                ));
            }
        }
    }
    for (cluster, nodes) in &beside.nodes {
        let before = alone.nodes.get(cluster).copied().unwrap_or(0);
        if *nodes > before {
            return violated(format!(
                "{cluster} had {nodes} nodes beside the hostile cluster, and {before} without it"
            ));
        }
    }
    Ok(())
}

fn played(options: SimulationOptions, third: ThirdCluster) -> Result<NoticedByUsers, Box<Violation>> {
    let violation =
        |step, at, (invariant, found)| Box::new(Violation { invariant, seed: options.seed, step, at, found });
    let Some(mut play) = NeighbourPlay::new(options, third) else {
        let found = "can't set up the world of this seed".to_owned();
        return Err(violation(0, Timestamp::UNIX_EPOCH, (Invariant::NeighboursUndisturbed, found)));
    };
    for step in 0..options.steps.saturating_add(STEPS_AFTER) {
        if step < options.steps {
            play.arrive(step);
        }
        for second in 0..STEP_SECONDS {
            play.pass_second(second);
            let at = play.region.now();
            play.judge().map_err(|found| violation(step, at, found))?;
        }
    }
    Ok(play.noticed())
}

struct NeighbourPlay {
    region: SimulatedRegion,
    neighbours: Vec<ClusterName>,
    third: Option<HostileThird>,
    lent: LentByNobody,
    dice: Dice,
    /// How many pods a Deployment has.
    arrived: BTreeMap<Arrival, usize>,
    /// When its pods ran first, in order.
    running: BTreeMap<Arrival, Vec<Timestamp>>,
}

impl NeighbourPlay {
    fn new(options: SimulationOptions, third: ThirdCluster) -> Option<Self> {
        let (region, chaos) = calm(&world(options.seed, third), options)?;
        let neighbours: Vec<ClusterName> =
            NEIGHBOURS.iter().map(|name| ClusterName::parse(*name).ok()).collect::<Option<_>>()?;
        let third = match third {
            ThirdCluster::Absent => None,
            ThirdCluster::Hostile => {
                let name = ClusterName::parse(THIRD).ok()?;
                Some(HostileThird::new(name, neighbours.clone(), options.seed))
            }
        };
        let mut play = Self {
            region,
            neighbours,
            third,
            lent: LentByNobody::default(),
            dice: Dice::new(options.seed, 26),
            arrived: BTreeMap::new(),
            running: BTreeMap::new(),
        };
        play.pass(CALM_BEFORE);
        play.lent = LentByNobody::of(&play.region, &play.neighbours);
        chaos.set_weather(Weather::Slow);
        Some(play)
    }

    fn pass(&mut self, time: SignedDuration) {
        let until = self.region.now().checked_add(time).unwrap_or(Timestamp::MAX);
        self.region.run_until(until);
        self.region.take_happenings();
    }

    /// Makes a Deployment in one of the neighbours.
    fn arrive(&mut self, step: u32) {
        let pods = self.dice.between(1, 2);
        let Some(cluster) = self.dice.pick(&self.neighbours).cloned() else { return };
        let Some(site) = self.region.site(&cluster) else { return };
        let name = format!("web-{step}");
        let _ = site.cluster().apply(filling(&name, pods));
        let pods = usize::try_from(pods).unwrap_or(0);
        self.arrived.insert((cluster, name), pods);
    }

    fn pass_second(&mut self, second: u32) {
        if let Some(third) = &mut self.third {
            if second == 0 {
                third.act(&mut self.region);
            }
            third.flood(&mut self.region);
        }
        self.pass(SignedDuration::from_secs(1));
        self.note_running();
    }

    fn note_running(&mut self) {
        for cluster in &self.neighbours {
            let Some(site) = self.region.site(cluster) else { continue };
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            for pod in site.cluster().objects(Kind::Pod) {
                if text(&pod, "/status/phase") == Some("Running")
                    && let Some(app) = text(&pod, "/metadata/labels/app")
                {
                    *counts.entry(app.to_owned()).or_default() += 1;
                }
            }
            for (app, count) in counts {
                let times = self.running.entry((cluster.clone(), app)).or_default();
                let since = times.len().max(count);
                times.resize(since, self.region.now());
            }
        }
    }

    /// What has to hold at each second.
    fn judge(&self) -> Found {
        for record in self.region.twin().instances() {
            let instance = &record.instance;
            let cluster = instance.tags.get(tags::CLUSTER).map_or("", String::as_str);
            if NEIGHBOURS.contains(&cluster) && instance.state.is_going() {
                let text = format!("instance {} of {cluster} is {}", instance.id, instance.state.as_str());
                return Err((Invariant::NeighboursUndisturbed, text));
            }
        }
        invariant_nothing_borrowed(&self.region, &self.lent)
    }

    fn noticed(&self) -> NoticedByUsers {
        let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
        for record in self.region.twin().instances() {
            let cluster = record.instance.tags.get(tags::CLUSTER).map_or("", String::as_str);
            if NEIGHBOURS.contains(&cluster) {
                *nodes.entry(cluster.to_owned()).or_default() += 1;
            }
        }
        let (mut ran, mut wanted): (BTreeMap<ClusterName, Vec<Timestamp>>, BTreeMap<ClusterName, usize>) =
            Default::default();
        for ((cluster, _), times) in &self.running {
            ran.entry(cluster.clone()).or_default().extend(times);
        }
        ran.values_mut().for_each(|times| times.sort());
        for ((cluster, _), pods) in &self.arrived {
            *wanted.entry(cluster.clone()).or_default() += pods;
        }
        NoticedByUsers { ran, wanted, nodes, until: self.region.now() }
    }
}

/// A Deployment of pods of which each fills a node of [`LARGE`].
fn filling(name: &str, pods: u64) -> serde_json::Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}],
            }},
        },
    })
}

fn world(seed: u64, third: ThirdCluster) -> Scenario {
    let form = |name: &str, after: &str| {
        let disruption = json!({"consolidateAfter": after, "consolidationPolicy": "WhenEmpty"});
        let mut pool = plain_pool(&["on-demand"], &disruption);
        let requirements = json!([
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": LARGE},
        ]);
        set(&mut pool, &["spec", "template", "spec", "requirements"], requirements);
        cluster(name, vec![node_class(name), pool])
    };
    let mut clusters: Vec<ClusterForm> = NEIGHBOURS.iter().map(|name| form(name, "Never")).collect();
    match third {
        ThirdCluster::Absent => {}
        // Its empty nodes go, so that new ones are launched from the class as it is then.
        ThirdCluster::Hostile => {
            clusters.push(ClusterForm { max_nodes: Some(THIRD_NODES), ..form(THIRD, "0s") });
        }
    }
    small_region(format!("hostile {seed}"), seed, clusters)
}
