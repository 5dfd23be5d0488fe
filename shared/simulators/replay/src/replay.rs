//! Judges a plan by what kube-scheduler makes of it: the planned nodes become ready in some order, and the pods that
//! find no place are counted.
//!
//! It shares no code with the planner nor with the checker of assignments. Pods that fit on Nodes that are ready are
//! placed before the plan is made, as in a cluster. Those with room on a node that opens later are nominated for it. Of each
//! claim one offering is drawn. Pods of DaemonSets have a high priority, as those that a node can't do without.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::meta::{OwnerReference, OwnerRole};
use tenon_domain::api::pod::{NodeSelectorTerm, PodShape, WhenUnsatisfiable};
use tenon_domain::api::storage::{CsiNode, EBS_DRIVER, PersistentVolume};
use tenon_domain::labels;
use tenon_domain::quantity::Quantity;
use tenon_domain::requirement::Requirement;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::taint::{Taint, TaintEffect};
use tenon_planning::provision::{
    ExistingNode, NodeKind, PlannedClaim, ProvisionInput, ProvisionPlan, Storage, plan,
};
use tenon_simulated_cluster::{SimulatedCluster, SimulationConfig};
use tenon_snapshot::object::{self, Kind, text};

use crate::draw::Draw;
use crate::objects;
use crate::small::{csi_node_of, meta};

/// The taint of a node that takes no pods yet.
pub const OPENING: &str = "tenon.dev/opening";

/// Whether pods are nominated for their planned nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nominations {
    /// Just before their node opens. Nodes whose pods depend on others open once all nodes are ready: so does the agent,
    /// unless the last is ready too long after the first.
    InWaves,
    /// Just before their node opens, in the order in which nodes are ready.
    Made,
    /// Never.
    None,
}

/// What a replay found.
#[derive(Debug)]
pub struct Replay {
    /// Pods that the plan has a place for.
    pub planned: usize,
    /// Those among them that didn't get one, with kube-scheduler's reason.
    pub left: BTreeMap<String, String>,
    /// The node of each pod that has one.
    pub places: BTreeMap<String, String>,
    /// Those among them that wait after another plan, too, with its refusals among them: pods that took places which
    /// weren't theirs may have used up a limit, or keep others away.
    pub left_twice: BTreeMap<String, String>,
    /// Those that the other plan had a place for as well.
    pub promised_twice: BTreeSet<String>,
    /// Pods that found a place though the plan has none for them. They take what others were planned for.
    pub unforeseen: BTreeSet<String>,
    /// The input of the plan: what was left after kube-scheduler had used the Nodes that are ready.
    pub input: ProvisionInput,
    /// The plan.
    pub plan: ProvisionPlan,
}

/// Plans a world and replays the plan, then plans once more for what is left.
#[must_use]
pub fn replay(world: &ProvisionInput, seed: u64, nominations: Nominations) -> Replay {
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
    let (planned, places) = (planned(&plan), first.places());
    let found = input.pods.iter().map(|pod| pod.name.name.clone()).filter(|name| places.contains_key(name));
    let unforeseen = found.filter(|name| !planned.contains_key(name)).collect();
    let planned = planned.len();
    Replay { planned, left, places, left_twice, promised_twice, unforeseen, input, plan }
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

/// The planned pods with the claims that are made for them; `None` for a node that is there already.
fn planned(plan: &ProvisionPlan) -> BTreeMap<String, Option<String>> {
    let placed = plan.placements.iter().map(|one| (one.pod.name.name.clone(), None));
    let launched = plan
        .claims
        .iter()
        .flat_map(|claim| claim.pods.iter().map(|pod| (pod.name.name.clone(), Some(claim.name.to_string()))));
    placed.chain(launched).collect()
}

/// A node that takes pods from some time on.
#[derive(Debug, Clone)]
pub struct NodeOpening {
    /// The node.
    pub node: ExistingNode,
    /// UIDs of the pods that it was planned for, or that have room on it as it opens.
    pub kept: BTreeSet<String>,
    /// What it charges its pool's limits, if it is a claim's.
    charge: Option<ResourceList>,
    /// Its limits on volumes, if it is a claim's and has any.
    pub limits: Option<CsiNode>,
}

/// When the nodes of a plan open.
#[derive(Debug, Clone, Default)]
pub struct Openings {
    /// Nodes that take pods before.
    pub ready: Vec<ExistingNode>,
    /// Nodes that don't, but have pods already: kube-scheduler counts these before the node takes others.
    pub registered: Vec<ExistingNode>,
    /// All that open, by the time of it. Some open together.
    pub later: BTreeMap<u64, Vec<NodeOpening>>,
}

impl Openings {
    /// Draws an offering for each claim, and an order.
    #[must_use]
    pub fn of(input: &ProvisionInput, plan: &ProvisionPlan, seed: u64) -> Self {
        let mut draw = Draw::new(seed ^ 0xb0b);
        let (ready, later): (Vec<_>, Vec<_>) =
            input.nodes.iter().cloned().partition(|node| node.kind == NodeKind::Initialized);
        let of_claims =
            plan.claims.iter().map(|claim| run_claim(input, claim, &mut draw)).collect::<Vec<_>>();
        let registered = later.iter().filter(|node| !node.occupancy.shapes().is_empty()).cloned().collect();
        let later = if plan == &ProvisionPlan::default() { Vec::new() } else { later };
        let there = |node: ExistingNode| {
            let placed = plan.placements.iter().filter(|one| one.node == node.name);
            let kept = placed.map(|one| one.pod.uid.to_string()).collect();
            NodeOpening { node, kept, charge: None, limits: None }
        };
        let mut all: Vec<NodeOpening> = later.into_iter().map(there).collect();
        for (claim, (node, charge)) in plan.claims.iter().zip(of_claims) {
            let kept = claim.pods.iter().map(|pod| pod.uid.to_string()).collect();
            // Its driver has told its limit by the time that the node takes pods.
            let limits = csi_node_of(input, &node);
            all.push(NodeOpening { node, kept, charge: Some(charge), limits });
        }
        let moments = 1 + all.len() as u64;
        let mut openings = Self { ready, registered, later: BTreeMap::new() };
        for one in all {
            openings.later.entry(draw.below(moments)).or_default().push(one);
        }
        openings
    }

    /// Nodes whose pods depend on others open together, after all others.
    #[must_use]
    pub fn in_waves(mut self, input: &ProvisionInput) -> Self {
        let pods = input.pods.iter().filter(|pod| depends_on_others(&pod.shape));
        let depending: BTreeSet<String> = pods.map(|pod| pod.uid.to_string()).collect();
        let last = self.later.keys().next_back().map_or(0, |at| at + 1);
        let mut together = Vec::new();
        for opening in self.later.values_mut() {
            together.extend(opening.extract_if(.., |one| !one.kept.is_disjoint(&depending)));
        }
        self.later.insert(last, together);
        self
    }

    /// The limits on volumes of the claims' nodes.
    pub fn limits(&self) -> impl Iterator<Item = &CsiNode> {
        self.later.values().flatten().filter_map(|one| one.limits.as_ref())
    }
}

/// Whether kube-scheduler may refuse the pod until others run elsewhere.
fn depends_on_others(pod: &PodShape) -> bool {
    pod.topology_spread.iter().any(|spread| spread.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule)
}

/// The objects of a node's pods.
pub fn residents(node: &ExistingNode) -> impl Iterator<Item = serde_json::Value> {
    let shapes = node.occupancy.shapes().iter().enumerate();
    shapes.map(|(index, shape)| objects::pod(&format!("{}-{index}", node.name), shape, Some(&node.name)))
}

/// A cluster in which a plan was carried out.
struct Run {
    cluster: SimulatedCluster,
    openings: Openings,
    now: i64,
}

impl Run {
    fn of(input: &ProvisionInput, plan: &ProvisionPlan, seed: u64, nominations: Nominations) -> Self {
        // Pods don't need to run: only their places matter.
        let never = SignedDuration::from_secs(1_000_000);
        let config = SimulationConfig { seed, pod_start: never, ..SimulationConfig::default() };
        let cluster = SimulatedCluster::new(config, Timestamp::UNIX_EPOCH);
        let openings = Openings::of(input, plan, seed);
        let openings = match nominations {
            Nominations::InWaves => openings.in_waves(input),
            Nominations::Made | Nominations::None => openings,
        };
        let mut run = Self { cluster, openings, now: 0 };
        objects::surroundings(input).into_iter().for_each(|object| run.apply(object));
        for pod in &input.pods {
            run.apply(objects::pod(&pod.name.name, &pod.shape, None));
        }
        run.openings.ready.iter().for_each(|node| run.add(node, &node.taints));
        run.openings.registered.iter().for_each(|node| run.register(node));
        run.tick();
        run.openings.limits().for_each(|node| run.apply(objects::csi_node(node)));
        let mut last = 0;
        for (at, openings) in run.openings.later.clone() {
            if at != last {
                run.tick();
                last = at;
            }
            for opening in openings {
                if nominations != Nominations::None {
                    run.nominate(&opening);
                }
                run.add(&opening.node, &opening.node.taints);
            }
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

    /// A node with its pods takes no others yet.
    fn register(&self, node: &ExistingNode) {
        let mut taints = node.taints.clone();
        taints.push(Taint::new(OPENING, TaintEffect::NoSchedule));
        self.add(node, &taints);
    }

    fn add(&self, node: &ExistingNode, taints: &[Taint]) {
        self.apply(objects::node(&node.name, &node.labels, taints, &node.allocatable));
        residents(node).for_each(|pod| self.apply(pod));
    }

    /// The agent names the node in its waiting pods just before it takes pods.
    fn nominate(&self, opening: &NodeOpening) {
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
        after.storage.nodes.extend(self.openings.limits().cloned());
        self.add_made_volumes(&mut after.storage);
        let made = self.openings.later.values().flatten();
        for (node, charge) in made.filter_map(|one| Some((&one.node, one.charge.as_ref()?))) {
            after.nodes.push(node.clone());
            for pool in after.pools.iter_mut().filter(|pool| Some(&pool.pool.name) == node.pool.as_ref()) {
                pool.usage.add(charge);
                pool.nodes_left = pool.nodes_left.map(|left| left.saturating_sub(1));
                let vcpus = u32::try_from(charge.get(&ResourceName::CPU).value_ceil()).unwrap_or(u32::MAX);
                pool.vcpus_left = pool.vcpus_left.map(|left| left.saturating_sub(vcpus));
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

impl Run {
    /// Claims that waited for their first pod have a volume where it is.
    fn add_made_volumes(&self, storage: &mut Storage) {
        for claim in storage.claims.iter_mut().filter(|claim| claim.volume.is_none()) {
            let found =
                self.cluster.object(Kind::PersistentVolumeClaim, &claim.meta.namespace, &claim.meta.name);
            let Some(name) = found.as_ref().and_then(|found| text(found, "/spec/volumeName")) else {
                continue;
            };
            let volume = self.cluster.object(Kind::PersistentVolume, "", name).unwrap();
            let expression = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0";
            let zone = Requirement::one_of(
                labels::ZONE,
                [text(&volume, &format!("{expression}/values/0")).unwrap()],
            );
            storage.volumes.push(PersistentVolume {
                meta: meta(name, ""),
                node_affinity: vec![NodeSelectorTerm {
                    match_expressions: vec![zone],
                    match_fields: Vec::new(),
                }],
                driver: Some(EBS_DRIVER.to_owned()),
            });
            claim.volume = Some(name.to_owned());
            "Bound".clone_into(&mut claim.phase);
        }
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
