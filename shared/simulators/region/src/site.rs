//! A cluster of the region: the simulated cluster, the kubelets of its instances, and its agent.
//!
//! Decides what follows a crash or a silence of the agent. The agent's pace decides when it looks, as in a real
//! cluster.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_agent::bell::DETAIL_TYPE;
use tenon_agent::pace::{AgentPace, StepEnded, run_step};
use tenon_agent::{Agent, Bell, BellError, Ring};
use tenon_domain::catalog::LearnedMemory;
use tenon_domain::id::{ClusterName, InstanceType};
use tenon_memory_table::MemoryTable;
use tenon_runtime::{BusEvent, Installation};
use tenon_simulated_cluster::{PodCounts, SimulatedCluster};
use tenon_snapshot::object::at;
use tenon_snapshot::{Kind, Versions};
use tenon_twin::InstanceRecord;

use crate::asked::AskedCall;
use crate::clock::RegionClock;
use crate::gate::{Hooks, TaskGate, Undisturbed};
use crate::gated_kube::GatedKube;
use crate::happening::{Happening, HappeningKind};
use crate::kubelet::{BootTimes, node_of};
use crate::ports::{GatedTable, SharedOutbox, TaskSignal};

/// How long a crashed agent takes to be there again.
const RESTART: SignedDuration = SignedDuration::from_secs(5);

type LocalAgent = Agent<GatedKube, GatedTable, LocalBell>;

/// The parts of an agent.
pub struct AgentWorld {
    /// The state table.
    pub table: MemoryTable,
    /// The time.
    pub clock: RegionClock,
    /// The installation.
    pub installation: Arc<Installation>,
    /// The hooks that decide the fate of its calls.
    pub hooks: Arc<dyn Hooks>,
    /// Where its rings go.
    pub outbox: SharedOutbox,
}

/// A running step of the agent.
pub type AgentRun = Pin<Box<dyn Future<Output = AgentEnded> + Send>>;

/// A step of the agent that ended.
pub struct AgentEnded {
    agent: Box<LocalAgent>,
    step: StepEnded,
}

/// Whether an agent speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// It reports and acts.
    Speaks,
    /// It does neither.
    Silent,
}

/// A cluster of the region.
pub struct Site {
    name: ClusterName,
    cluster: SimulatedCluster,
    boot: BootTimes,
    agent: AgentSlot,
    gate: TaskGate,
    pace: AgentPace,
    noted: Versions,
    voice: Voice,
    free_since: Timestamp,
    begun_at: Timestamp,
    looked_at: Timestamp,
    converged_at: Timestamp,
    nodes: BTreeMap<String, &'static str>,
    pods: PodCounts,
    /// Memory that kubelets report instead of the usual, by type.
    memory: BTreeMap<InstanceType, LearnedMemory>,
}

enum AgentSlot {
    Idle(Box<LocalAgent>),
    Running,
    None,
}

impl Site {
    /// A cluster with its objects, before its agent's first step.
    #[must_use]
    pub fn new(name: ClusterName, cluster: SimulatedCluster, boot: BootTimes) -> Self {
        Self {
            name,
            boot,
            agent: AgentSlot::None,
            gate: TaskGate::new("agent", Arc::new(Undisturbed)),
            pace: AgentPace::default(),
            noted: Versions::default(),
            voice: Voice::Speaks,
            free_since: Timestamp::MIN,
            begun_at: Timestamp::MIN,
            looked_at: Timestamp::MIN,
            converged_at: Timestamp::MIN,
            nodes: BTreeMap::new(),
            pods: cluster.pod_counts(),
            memory: BTreeMap::new(),
            cluster,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &ClusterName {
        &self.name
    }

    /// The cluster itself.
    #[must_use]
    pub const fn cluster(&self) -> &SimulatedCluster {
        &self.cluster
    }

    /// Its Nodes' names.
    #[must_use]
    pub fn node_names(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    /// When the cluster moves by itself next.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.cluster.next_due()
    }

    /// Lets the agent fall silent, or speak again: it neither reports nor acts meanwhile.
    pub fn set_voice(&mut self, voice: Voice, now: Timestamp) {
        if self.voice != voice {
            self.free_since = self.free_since.max(now);
        }
        self.voice = voice;
    }

    /// Since when the agent is idle; `None` while it is silent or busy.
    #[must_use]
    pub const fn agent_free_since(&self) -> Option<Timestamp> {
        match (&self.agent, self.voice) {
            (AgentSlot::Idle(_) | AgentSlot::None, Voice::Speaks) => Some(self.free_since),
            (AgentSlot::Running, _) | (_, Voice::Silent) => None,
        }
    }

    /// When the agent's last step began.
    #[must_use]
    pub const fn agent_begun_at(&self) -> Timestamp {
        self.begun_at
    }

    /// When the last step began that the agent brought to its end without an error.
    #[must_use]
    pub const fn agent_looked_at(&self) -> Timestamp {
        self.looked_at
    }

    /// When the last step began in which the agent brought all Nodes to their actions, and every write succeeded.
    #[must_use]
    pub const fn agent_converged_at(&self) -> Timestamp {
        self.converged_at
    }

    /// Lets kubelets that join from now on report so much memory on instances of a type.
    pub fn set_reported_memory(&mut self, instance_type: InstanceType, memory: LearnedMemory) {
        self.memory.insert(instance_type, memory);
    }

    /// An instance runs: its kubelet will join.
    pub fn power_on(&self, record: &InstanceRecord) {
        let memory = self.memory.get(&record.instance.instance_type).copied();
        if let Some(node) = node_of(record, self.boot, memory) {
            self.cluster.add_node(node);
        }
    }

    /// Stops or removes an instance.
    pub fn power_off(&self, record: &InstanceRecord) {
        self.cluster.remove_instance(&record.instance.provider_id().to_string());
    }

    /// Moves the cluster to this time, and logs its changes.
    pub fn move_to(&mut self, now: Timestamp, log: &mut Vec<Happening>) {
        self.cluster.tick(now);
        if self.cluster.versions() == self.noted {
            return;
        }
        self.tell_nodes(now, log);
        self.tell_pods(now, log);
    }

    fn tell_nodes(&mut self, now: Timestamp, log: &mut Vec<Happening>) {
        let mut nodes = BTreeMap::new();
        for node in self.cluster.objects(Kind::Node) {
            let text = |pointer: &str| at(&node, pointer).and_then(serde_json::Value::as_str);
            let Some(name) = text("/metadata/name") else { continue };
            let conditions = at(&node, "/status/conditions").and_then(serde_json::Value::as_array);
            let ready = conditions.into_iter().flatten().any(|condition| {
                condition.get("type").and_then(serde_json::Value::as_str) == Some("Ready")
                    && condition.get("status").and_then(serde_json::Value::as_str) == Some("True")
            });
            let going = at(&node, "/metadata/deletionTimestamp").is_some();
            let state = match (going, ready) {
                (true, _) => "is going",
                (false, true) => "is Ready",
                (false, false) => "is not Ready",
            };
            if self.nodes.get(name) != Some(&state) {
                let joined = if self.nodes.contains_key(name) { state } else { "joined the cluster" };
                let happening = Happening::new(now, HappeningKind::Node, name, joined);
                let instance_type = text("/metadata/labels/node.kubernetes.io~1instance-type");
                let zone = text("/metadata/labels/topology.kubernetes.io~1zone");
                log.push(happening.with("instanceType", json!(instance_type)).with("zone", json!(zone)));
            }
            nodes.insert(name.to_owned(), state);
        }
        for gone in self.nodes.keys().filter(|name| !nodes.contains_key(*name)) {
            log.push(Happening::new(now, HappeningKind::Node, gone.as_str(), "left the cluster"));
        }
        self.nodes = nodes;
    }

    fn tell_pods(&mut self, now: Timestamp, log: &mut Vec<Happening>) {
        let pods = self.cluster.pod_counts();
        if (pods.running, pods.pending) != (self.pods.running, self.pods.pending) {
            let mut message = format!("{} running, {} pending", pods.running, pods.pending);
            for (count, what) in [(pods.starting, "starting"), (pods.terminating, "terminating")] {
                if count > 0 {
                    message += &format!(", {count} {what}");
                }
            }
            log.push(
                Happening::new(now, HappeningKind::Pod, self.name.as_str(), message)
                    .with("running", json!(pods.running))
                    .with("pending", json!(pods.pending)),
            );
        }
        self.pods = pods;
    }

    /// When the agent wants to look, if the cluster changed since the last call.
    pub fn agent_wants(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.noted = self.cluster.versions();
        self.pace.observe(self.noted, now)
    }

    /// The agent's doorbell rang.
    pub const fn hear(&mut self) {
        self.pace.observe_ring();
    }

    /// The agent crashed; when it is there again.
    pub fn agent_crashed(&mut self, now: Timestamp) -> Timestamp {
        self.agent = AgentSlot::None;
        self.pace.restart();
        self.free_since = now.checked_add(RESTART).unwrap_or(now);
        self.free_since
    }

    /// Starts a step of the agent, if one is due and none is under way.
    pub fn start_agent(&mut self, now: Timestamp, world: &AgentWorld) -> Option<(TaskGate, AgentRun)> {
        if self.voice == Voice::Silent || matches!(self.agent, AgentSlot::Running) {
            return None;
        }
        let work = self.pace.begin(now)?;
        self.begun_at = now;
        self.cluster.look_begins(now);
        let mut agent = match std::mem::replace(&mut self.agent, AgentSlot::Running) {
            AgentSlot::Idle(agent) => agent,
            AgentSlot::Running | AgentSlot::None => Box::new(self.new_agent(world)),
        };
        let clock = world.clock.clone();
        let run = Box::pin(async move {
            let step = run_step(&mut agent, work, || clock.now()).await;
            AgentEnded { agent, step }
        });
        Some((self.gate.clone(), run))
    }

    fn new_agent(&mut self, world: &AgentWorld) -> LocalAgent {
        self.gate = TaskGate::new("agent", Arc::clone(&world.hooks));
        let kube = GatedKube::new(self.cluster.clone(), self.gate.clone(), Arc::clone(&world.outbox));
        let table = GatedTable::new(world.table.clone(), self.gate.clone(), Arc::clone(&world.outbox));
        let bell = LocalBell {
            cluster: self.name.clone(),
            gate: self.gate.clone(),
            installation: Arc::clone(&world.installation),
            outbox: Arc::clone(&world.outbox),
        };
        Agent::new(self.name.clone(), kube, table, bell)
    }

    /// Ends a step of the agent; returns the time of its next look, and its happenings.
    pub fn agent_ended(&mut self, ended: AgentEnded, now: Timestamp) -> (Timestamp, Vec<Happening>) {
        let due = self.pace.end(&ended.step, now);
        self.free_since = now;
        if ended.step.errors.is_empty() {
            self.looked_at = self.begun_at;
            if ended.step.converged.as_ref().is_some_and(|converged| converged.unwritten.is_empty()) {
                self.converged_at = self.begun_at;
            }
        }
        self.agent = AgentSlot::Idle(ended.agent);
        let told = ended.step.errors.iter().map(|error| {
            let error = tenon_runtime::error::chain(error);
            Happening::new(now, HappeningKind::Action, format!("agent of {}", self.name), error)
        });
        let happened = told.collect();
        (due, happened)
    }
}

/// Rings for the functions by an event on our bus.
#[derive(Clone)]
pub struct LocalBell {
    cluster: ClusterName,
    gate: TaskGate,
    installation: Arc<Installation>,
    outbox: SharedOutbox,
}

impl Bell for LocalBell {
    async fn ring(&self, ring: &Ring) -> Result<(), BellError> {
        let form = serde_json::to_value(ring.to_form(&self.cluster)).unwrap_or_default();
        let event = BusEvent::new(&self.installation, Some(&self.cluster), DETAIL_TYPE, form);
        let event = BusEvent { source: format!("tenon.agent.{}", self.cluster), ..event };
        let signal = TaskSignal::Publish(event);
        self.gate.hear(AskedCall::Ring(&signal));
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).signals.push(signal);
        Ok(())
    }
}
