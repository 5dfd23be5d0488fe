//! Judges a plan by what kube-scheduler makes of it: the planned nodes become ready in some order, and the pods that
//! find no place are counted.
//!
//! It shares no code with the planner nor with the checker of assignments. Pods that fit on Nodes that are ready are
//! placed before the plan is made, as in a cluster. Of each claim one offering is drawn. Pods of DaemonSets have a
//! high priority, as those that a node can't do without.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::meta::{OwnerReference, OwnerRole};
use tenon_domain::api::pod::PodShape;
use tenon_domain::api::storage::CsiNode;
use tenon_domain::labels;
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_planning::provision::{ExistingNode, NodeKind, PlannedClaim, ProvisionInput, ProvisionPlan, plan};
use tenon_simulated_cluster::{SimulatedCluster, SimulationConfig};
use tenon_snapshot::object::{self, Kind, text};

use crate::drawn::Draw;
use crate::objects;
use crate::volumes;

/// Whether pods are nominated for their planned nodes, as the agent does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Nominations {
    Made,
    None,
}

/// What a replay found.
#[derive(Debug)]
pub(crate) struct Replay {
    /// Pods that the plan has a place for.
    pub(crate) planned: usize,
    /// Those among them that didn't get one, with kube-scheduler's reason.
    pub(crate) left: BTreeMap<String, String>,
    /// The node of each pod that has one.
    pub(crate) places: BTreeMap<String, String>,
    /// Those among them that wait after another plan, too, with its refusals among them: pods that took places which
    /// weren't theirs may have used up a limit, or keep others away.
    pub(crate) left_twice: BTreeMap<String, String>,
    /// Those that the other plan had a place for as well.
    pub(crate) promised_twice: BTreeSet<String>,
    /// The input of the plan: what was left after kube-scheduler had used the Nodes that are ready.
    pub(crate) input: ProvisionInput,
    /// The plan.
    pub(crate) plan: ProvisionPlan,
}

/// Plans a world and replays the plan, then plans once more for what is left.
pub(crate) fn replay(world: &ProvisionInput, seed: u64, nominations: Nominations) -> Replay {
    let input = settled(world, seed);
    let (plan, _) = plan(&input);
    let first = Run::of(&input, &plan, seed, nominations);
    let left = first.left(&plan);
    let (mut left_twice, mut promised_twice) = (BTreeMap::new(), BTreeSet::new());
    if !left.is_empty() {
        let again = first.input_after(&input);
        let (more, _) = tenon_planning::provision::plan(&again);
        let second = Run::of(&again, &more, seed ^ 1, nominations);
        left_twice = left.keys().filter_map(|pod| Some((pod.clone(), second.waiting(pod)?))).collect();
        promised_twice = planned(&more).into_keys().filter(|pod| left_twice.contains_key(pod)).collect();
    }
    let (planned, places) = (planned(&plan).len(), first.places());
    Replay { planned, left, places, left_twice, promised_twice, input, plan }
}

/// The world when kube-scheduler has used the Nodes that are ready.
fn settled(world: &ProvisionInput, seed: u64) -> ProvisionInput {
    let ready = world.nodes.iter().any(|node| node.kind == NodeKind::Initialized);
    if !ready {
        return world.clone();
    }
    let run = Run::of(world, &ProvisionPlan::default(), seed, Nominations::None);
    run.input_after(world)
}

/// The planned pods with their nodes; `None` for a node that is there already, which nobody nominates.
fn planned(plan: &ProvisionPlan) -> BTreeMap<String, Option<String>> {
    let placed = plan.placements.iter().map(|one| (one.pod.name.name.clone(), None));
    let launched = plan
        .claims
        .iter()
        .flat_map(|claim| claim.pods.iter().map(|pod| (pod.name.name.clone(), Some(claim.name.to_string()))));
    placed.chain(launched).collect()
}

/// A node that opens at some time.
struct Opening {
    node: ExistingNode,
    kept: BTreeSet<String>,
}

/// A cluster in which a plan was carried out.
struct Run {
    cluster: SimulatedCluster,
    /// The nodes of claims, by name, and the amounts that they charge their pool's limits.
    made: Vec<(ExistingNode, ResourceList)>,
    /// Their limits on volumes.
    csi_nodes: Vec<CsiNode>,
    now: i64,
}

impl Run {
    fn of(input: &ProvisionInput, plan: &ProvisionPlan, seed: u64, nominations: Nominations) -> Self {
        // Pods don't need to run: only their places matter.
        let never = SignedDuration::from_secs(1_000_000);
        let config = SimulationConfig { seed, pod_start: never, ..SimulationConfig::default() };
        let mut run = Self {
            cluster: SimulatedCluster::new(config, Timestamp::UNIX_EPOCH),
            made: Vec::new(),
            csi_nodes: Vec::new(),
            now: 0,
        };
        let mut draw = Draw::new(seed ^ 0xb0b);
        objects::surroundings(input).into_iter().for_each(|object| run.apply(object));
        for pod in &input.pods {
            run.apply(objects::pod(&pod.name.name, &pod.shape, None));
        }
        let (ready, later): (Vec<_>, Vec<_>) =
            input.nodes.iter().partition(|node| node.kind == NodeKind::Initialized);
        ready.into_iter().for_each(|node| run.open(node));
        run.tick();
        let of_claims =
            plan.claims.iter().map(|claim| run_claim(input, claim, &mut draw)).collect::<Vec<_>>();
        let later = if plan == &ProvisionPlan::default() { Vec::new() } else { later };
        let mut openings: Vec<(u64, Opening)> = Vec::new();
        for node in later {
            openings.push((0, Opening { node: node.clone(), kept: BTreeSet::new() }));
        }
        for (claim, (node, charge)) in plan.claims.iter().zip(of_claims) {
            // Its driver has told its limit by the time that the node takes pods.
            run.csi_nodes.extend(volumes::csi_node_of(input, &node));
            let kept = claim.pods.iter().map(|pod| pod.uid.to_string()).collect();
            openings.push((0, Opening { node: node.clone(), kept }));
            run.made.push((node, charge));
        }
        run.csi_nodes.iter().for_each(|node| run.apply(objects::csi_node(node)));
        // Some become ready together.
        let moments = 1 + openings.len() as u64;
        openings.iter_mut().for_each(|(at, _)| *at = draw.below(moments));
        openings.sort_by_key(|(at, _)| *at);
        let mut last = 0;
        for (at, opening) in openings {
            if at != last {
                run.tick();
                last = at;
            }
            if nominations == Nominations::Made {
                run.nominate(&opening);
            }
            run.open(&opening.node);
        }
        // Backoff and hints are over by then.
        (0..3).for_each(|_| run.tick());
        run
    }

    fn apply(&self, object: serde_json::Value) {
        self.cluster.apply(object).unwrap();
    }

    fn tick(&mut self) {
        self.now += 15;
        self.cluster.tick(Timestamp::from_second(self.now).unwrap());
    }

    fn open(&self, node: &ExistingNode) {
        for (index, shape) in node.occupancy.shapes().iter().enumerate() {
            let name = format!("{}-{index}", node.name);
            self.apply(objects::pod(&name, shape, Some(&node.name)));
        }
        self.apply(objects::node(&node.name, &node.labels, &node.taints, &node.allocatable));
    }

    /// The agent names the node in its waiting pods just before it takes pods.
    fn nominate(&self, opening: &Opening) {
        for pod in self.cluster.objects(Kind::Pod) {
            let uid = format!("uid-{}", object::name(&pod));
            if opening.kept.contains(&uid) && text(&pod, "/spec/nodeName").is_none() {
                let mut pod = serde_json::Value::clone(&pod);
                pod["status"]["nominatedNodeName"] = opening.node.name.clone().into();
                self.apply(pod);
            }
        }
    }

    /// kube-scheduler's reason, if the pod waits.
    fn waiting(&self, pod: &str) -> Option<String> {
        let pods = self.cluster.objects(Kind::Pod);
        let found = pods.iter().find(|one| object::name(one) == pod)?;
        let reason = object::list(found, "/status/conditions").iter().find_map(|one| text(one, "/message"));
        text(found, "/spec/nodeName").is_none().then(|| reason.unwrap_or_default().to_owned())
    }

    fn left(&self, plan: &ProvisionPlan) -> BTreeMap<String, String> {
        let pods = self.cluster.objects(Kind::Pod);
        let waiting = pods.iter().filter(|pod| text(pod, "/spec/nodeName").is_none());
        let waiting: BTreeSet<&str> = waiting.map(|pod| object::name(pod)).collect();
        let names = planned(plan).into_keys().filter(|pod| waiting.contains(pod.as_str()));
        names.map(|pod| (pod.clone(), self.waiting(&pod).unwrap_or_default())).collect()
    }

    fn places(&self) -> BTreeMap<String, String> {
        let pods = self.cluster.objects(Kind::Pod);
        let place = |pod: &object::Object| {
            Some((object::name(pod).to_owned(), text(pod, "/spec/nodeName")?.to_owned()))
        };
        pods.iter().filter_map(place).collect()
    }

    /// The next plan's input: pods that were placed run, and the nodes of claims are there.
    fn input_after(&self, before: &ProvisionInput) -> ProvisionInput {
        let mut after = before.clone();
        after.storage.nodes.extend(self.csi_nodes.iter().cloned());
        for (node, charge) in &self.made {
            after.nodes.push(node.clone());
            for pool in after.pools.iter_mut().filter(|pool| Some(&pool.pool.name) == node.pool.as_ref()) {
                pool.usage.add(charge);
                pool.nodes_left = pool.nodes_left.map(|left| left.saturating_sub(1));
            }
        }
        for node in &mut after.nodes {
            let is_there = self.cluster.object(Kind::Node, "", &node.name).is_some();
            if is_there {
                node.kind = NodeKind::Initialized;
            }
        }
        let pods = self.cluster.objects(Kind::Pod);
        let place = |name: &str| {
            let found = pods.iter().find(|pod| object::name(pod) == name)?;
            text(found, "/spec/nodeName").map(str::to_owned)
        };
        let mut waiting = Vec::new();
        for pod in std::mem::take(&mut after.pods) {
            match place(&pod.name.name).and_then(|on| after.nodes.iter_mut().find(|node| node.name == on)) {
                Some(node) => node.occupancy.add(&pod.shape),
                None => waiting.push(pod),
            }
        }
        after.pods = waiting;
        for pod in pods.iter().filter(|pod| is_of_daemon_set(pod)) {
            let of = object::controller(pod).and_then(|owner| text(owner, "/name"));
            let set = before.daemon_sets.iter().find(|set| Some(set.meta.name.as_str()) == of);
            let Some((set, on)) = set.zip(text(pod, "/spec/nodeName")) else { continue };
            if let Some(node) = after.nodes.iter_mut().find(|node| node.name == on) {
                node.occupancy.add(&daemon(&set.meta.name, &set.template));
            }
        }
        after
    }
}

/// The shape of a DaemonSet's pod.
fn daemon(name: &str, template: &PodShape) -> Arc<PodShape> {
    let (kind, name, role) = ("DaemonSet".to_owned(), name.to_owned(), OwnerRole::Controller);
    let owner = OwnerReference { kind, name, uid: String::new(), role };
    Arc::new(PodShape { owner: Some(owner), ..template.clone() })
}

fn is_of_daemon_set(pod: &serde_json::Value) -> bool {
    object::controller(pod).is_some_and(|owner| text(owner, "/kind") == Some("DaemonSet"))
}

/// The Node of a claim by one of its offerings, and what it charges its pool's limits.
fn run_claim(input: &ProvisionInput, claim: &PlannedClaim, draw: &mut Draw) -> (ExistingNode, ResourceList) {
    let chosen = usize::try_from(draw.below(claim.offerings.len() as u64)).unwrap();
    let offering = claim.offerings.iter().nth(chosen).unwrap();
    let pool = input.pools.iter().find(|pool| pool.pool.name == claim.pool).unwrap();
    let option = pool.types.iter().find(|one| one.facts.name == offering.instance_type).unwrap();
    let mut all = claim.labels.clone();
    for label in option.labels.iter() {
        all.extend(label.single_value().map(|value| (label.key().to_owned(), value.to_owned())));
    }
    all.insert(labels::HOSTNAME.to_owned(), claim.name.to_string());
    all.insert(labels::NODEPOOL.to_owned(), claim.pool.to_string());
    all.insert(labels::ZONE.to_owned(), offering.zone.to_string());
    all.insert(labels::ZONE_ID.to_owned(), offering.zone_id.to_string());
    all.insert(labels::CAPACITY_TYPE.to_owned(), offering.capacity_type.as_str().to_owned());
    let node = ExistingNode {
        name: claim.name.to_string(),
        kind: NodeKind::Initialized,
        labels: all,
        taints: claim.taints.clone(),
        allocatable: option.allocatable.clone(),
        occupancy: tenon_planning::provision::Occupancy::default(),
        pool: Some(claim.pool.clone()),
    };
    (node, option.capacity.clone().with(ResourceName::NODES, Quantity::from_integer(1)))
}
