//! The region's engine: one loop that works off what is due and moves the time to what is due next.
//!
//! Decides the order of things, never their outcome. Functions and agents run as tasks that the engine polls itself;
//! with the hooks of an undisturbed region each runs to its end at once, with the simulation's they interleave.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_cloud::Ec2;
use tenon_cloud::twin::RegionTwin;
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::wake::FunctionName;
use tenon_entrypoint::batch::Message;
use tenon_entrypoint::{BusEvent, Installation};
use tenon_table::MemoryTable;

use crate::clock::Clock;
use crate::functions::{Functions, Invocation};
use crate::gate::{Gate, Hooks, Stop};
use crate::happening::{Happening, HappeningKind};
use crate::kept::Kept;
use crate::ports::{LocalPorts, Outbox, SharedOutbox, Signal};
use crate::queue::Queue;
use crate::site::{AgentEnded, AgentRun, AgentWorld, Site, Voice};
use crate::timeline::{Due, TaskId, Timeline};
use crate::usage::Usage;
use crate::wiring::{BusName, Schedule, ScheduleTarget, Wiring, WiringError, cluster_schedules};

/// The tag that names an instance's cluster.
const CLUSTER_TAG: &str = "eks:eks-cluster-name";

/// A region on this machine.
pub struct Region {
    pub(crate) clock: Clock,
    pub(crate) table: MemoryTable,
    pub(crate) twin: RegionTwin,
    pub(crate) installation: Arc<Installation>,
    pub(crate) hooks: Arc<dyn Hooks>,
    wiring: Wiring,
    functions: Functions,
    queues: BTreeMap<FunctionName, Queue>,
    schedules: Vec<Schedule>,
    pub(crate) timeline: Timeline,
    tasks: BTreeMap<TaskId, Task>,
    next_task: u64,
    next_event: u64,
    outbox: SharedOutbox,
    pub(crate) sites: BTreeMap<ClusterName, Site>,
    pub(crate) log: Vec<Happening>,
    failures: Vec<FailedInvocation>,
    pod_deletions: Vec<PodDeletion>,
    usage: Usage,
    pub(crate) kept: Kept,
}

/// An invocation's message that went back to its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedInvocation {
    /// When.
    pub at: Timestamp,
    /// The function.
    pub function: FunctionName,
    /// The error's stable name.
    pub error_type: &'static str,
    /// The error with its causes.
    pub error: String,
}

/// A pod that an agent deleted without asking a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDeletion {
    /// When.
    pub at: Timestamp,
    /// The pod.
    pub pod: tenon_cluster::ObjectKey,
    /// The node that it was on.
    pub node: String,
}

struct Task {
    gate: Gate,
    run: Run,
}

enum Run {
    Invocation { function: FunctionName, batch: Vec<String>, future: Invocation },
    Agent { cluster: ClusterName, future: AgentRun },
}

/// What an engine is made of.
pub struct Parts {
    /// The time.
    pub clock: Clock,
    /// The state table.
    pub table: MemoryTable,
    /// EC2.
    pub twin: RegionTwin,
    /// Whose functions these are.
    pub installation: Installation,
    /// Who decides the fate of calls and events.
    pub hooks: Arc<dyn Hooks>,
}

impl Region {
    /// A region with its functions and schedules, and no cluster.
    ///
    /// # Errors
    /// [`WiringError`] when the stack that this was built with can't be played.
    pub fn new(parts: Parts) -> Result<Self, WiringError> {
        let wiring = Wiring::built_in()?;
        let queues =
            wiring.queues.iter().map(|(function, spec)| (*function, Queue::new(spec.clone()))).collect();
        let mut region = Self {
            clock: parts.clock,
            table: parts.table,
            twin: parts.twin,
            installation: Arc::new(parts.installation),
            hooks: parts.hooks,
            functions: Functions::default(),
            queues,
            schedules: Vec::new(),
            timeline: Timeline::default(),
            tasks: BTreeMap::new(),
            next_task: 0,
            next_event: 0,
            outbox: Arc::new(Mutex::new(Outbox::default())),
            sites: BTreeMap::new(),
            log: Vec::new(),
            failures: Vec::new(),
            pod_deletions: Vec::new(),
            usage: Usage::default(),
            kept: Kept::default(),
            wiring,
        };
        for schedule in region.wiring.schedules.clone() {
            region.add_schedule(schedule);
        }
        Ok(region)
    }

    /// Adds a cluster with its agent and the schedules of its stack.
    ///
    /// # Errors
    /// [`WiringError`] when the cluster's stack can't be played.
    pub fn add_site(&mut self, site: Site) -> Result<(), WiringError> {
        let cluster = site.name().clone();
        for schedule in cluster_schedules(self.installation.id.as_str(), cluster.as_str())? {
            self.add_schedule(schedule);
        }
        self.sites.insert(cluster.clone(), site);
        self.timeline.at(self.clock.now(), Due::Agent(cluster));
        Ok(())
    }

    /// A schedule fires once when its stack is deployed, as a `rate` does, and then every period.
    fn add_schedule(&mut self, schedule: Schedule) {
        self.timeline.at(self.clock.now(), Due::Schedule(self.schedules.len()));
        self.schedules.push(schedule);
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// When something is due next.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let sites = self.sites.values().filter_map(Site::next_due);
        let world = self.twin.next_due().into_iter().chain(sites);
        self.timeline.next_at().into_iter().chain(world).min()
    }

    /// Works off what is due next, if it is due by then; the time it was due at.
    pub fn step(&mut self, until: Timestamp) -> Option<Timestamp> {
        let at = self.next_due().filter(|at| *at <= until)?;
        self.clock.advance_to(at);
        let now = self.clock.now();
        self.move_world(now);
        while let Some(due) = self.timeline.pop_by(now) {
            self.work_off(due, now);
        }
        Some(now)
    }

    /// Works off all that is due up to then, and moves the time there.
    pub fn run_until(&mut self, until: Timestamp) {
        while self.step(until).is_some() {}
        self.clock.advance_to(until);
    }

    fn move_world(&mut self, now: Timestamp) {
        for event in self.twin.tick(now) {
            self.power(&event.json);
            self.route(BusName::Default, event.json);
        }
        let clusters: Vec<ClusterName> = self.sites.keys().cloned().collect();
        for cluster in clusters {
            let Some(site) = self.sites.get_mut(&cluster) else { continue };
            site.move_to(now, &mut self.log);
            if let Some(at) = site.agent_wants(now) {
                self.timeline.at(at, Due::Agent(cluster));
            }
        }
    }

    /// Instances that start or go have kubelets that start or go, whatever becomes of the event that tells it.
    fn power(&mut self, event: &Value) {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
        if text("/detail-type") != Some("EC2 Instance State-change Notification") {
            return;
        }
        let Some(record) = text("/detail/instance-id")
            .and_then(|id| InstanceId::parse(id).ok())
            .and_then(|id| self.twin.instance(&id))
        else {
            return;
        };
        let cluster =
            record.instance.tags.get(CLUSTER_TAG).and_then(|name| ClusterName::parse(name.as_str()).ok());
        let Some(site) = cluster.and_then(|cluster| self.sites.get(&cluster)) else { return };
        match text("/detail/state") {
            Some("running") => site.power_on(&record),
            Some("stopping" | "stopped" | "shutting-down" | "terminated") => site.power_off(&record),
            Some(_) | None => {}
        }
    }

    fn work_off(&mut self, due: Due, now: Timestamp) {
        match due {
            Due::World | Due::Step(_) => {}
            Due::Schedule(index) => self.fire(index, now),
            Due::Delivery { function, body } => self.enqueue(function, body, now),
            Due::Ring(cluster) => {
                self.usage.agent_rings += 1;
                if let Some(site) = self.sites.get_mut(&cluster) {
                    site.hear();
                    self.timeline.at(now, Due::Agent(cluster));
                }
            }
            Due::Poll(function) => self.poll_queue(function, now),
            Due::Resume(task) => self.run_task(task),
            Due::Agent(cluster) => self.start_agent(&cluster, now),
        }
    }

    fn fire(&mut self, index: usize, now: Timestamp) {
        let Some(schedule) = self.schedules.get(index) else { return };
        let next = now.checked_add(schedule.every).unwrap_or(Timestamp::MAX);
        self.timeline.at(next, Due::Schedule(index));
        self.usage.schedules_fired += 1;
        match schedule.target.clone() {
            ScheduleTarget::Queue { function, body } => self.deliver(function, body),
            ScheduleTarget::Event { source, detail_type, detail } => {
                self.publish(&BusEvent { source, detail_type, detail });
            }
        }
    }

    /// Sends a message to a function's queue, as late and as often as the hooks say.
    fn deliver(&mut self, function: FunctionName, body: String) {
        let now = self.clock.now();
        for delay in self.hooks.delivery() {
            let at = now.checked_add(delay).unwrap_or(now);
            self.timeline.at(at, Due::Delivery { function, body: body.clone() });
        }
    }

    fn enqueue(&mut self, function: FunctionName, body: String, now: Timestamp) {
        if let Some(queue) = self.queues.get_mut(&function) {
            queue.send(body, now);
            if let Some(at) = queue.arrange_poll(now) {
                self.timeline.at(at, Due::Poll(function));
            }
        }
    }

    fn poll_queue(&mut self, function: FunctionName, now: Timestamp) {
        let Some(queue) = self.queues.get_mut(&function) else { return };
        let batch = if queue.poll(now) { queue.receive(now) } else { Vec::new() };
        // What is left, and what fails, is seen again.
        let soonest = now.checked_add(SignedDuration::from_millis(1)).unwrap_or(now);
        if let Some(at) = queue.arrange_poll(soonest) {
            self.timeline.at(at, Due::Poll(function));
        }
        if batch.is_empty() {
            return;
        }
        *self.usage.invocations.entry(function).or_default() += 1;
        let ids = batch.iter().map(|message| message.id.clone()).collect();
        let messages = batch.into_iter().map(|m| Message { id: m.id, body: m.body }).collect();
        let gate = Gate::new(function.as_str(), Arc::clone(&self.hooks));
        let ports = LocalPorts::new(
            self.table.clone(),
            self.twin.clone(),
            self.clock.clone(),
            Arc::clone(&self.installation),
            (gate.clone(), Arc::clone(&self.outbox)),
        );
        let future = self.functions.invoke(function, ports, messages);
        self.start(Task { gate, run: Run::Invocation { function, batch: ids, future } });
    }

    fn start_agent(&mut self, cluster: &ClusterName, now: Timestamp) {
        let world = AgentWorld {
            table: self.table.clone(),
            clock: self.clock.clone(),
            installation: Arc::clone(&self.installation),
            hooks: Arc::clone(&self.hooks),
            outbox: Arc::clone(&self.outbox),
        };
        let Some(site) = self.sites.get_mut(cluster) else { return };
        if let Some((gate, future)) = site.start_agent(now, &world) {
            self.start(Task { gate, run: Run::Agent { cluster: cluster.clone(), future } });
        }
    }

    fn start(&mut self, task: Task) {
        self.next_task += 1;
        let id = TaskId(self.next_task);
        self.tasks.insert(id, task);
        self.run_task(id);
    }

    /// Polls a task until it ends, waits or crashes.
    fn run_task(&mut self, id: TaskId) {
        let Some(mut task) = self.tasks.remove(&id) else { return };
        let mut context = Context::from_waker(Waker::noop());
        let ended = match &mut task.run {
            Run::Invocation { function, batch, future } => match future.as_mut().poll(&mut context) {
                Poll::Ready(failures) => {
                    let (function, batch) = (*function, std::mem::take(batch));
                    self.finish_invocation(function, &batch, failures);
                    true
                }
                Poll::Pending => false,
            },
            Run::Agent { cluster, future } => match future.as_mut().poll(&mut context) {
                Poll::Ready(ended) => {
                    let cluster = cluster.clone();
                    self.finish_agent(&cluster, ended);
                    true
                }
                Poll::Pending => false,
            },
        };
        if !ended {
            match task.gate.take_stop() {
                Stop::For(delay) => {
                    let at = self.clock.now().checked_add(delay).unwrap_or(Timestamp::MAX);
                    self.timeline.at(at, Due::Resume(id));
                    self.tasks.insert(id, task);
                }
                Stop::Crashed => self.bury(task.run),
            }
        }
        self.empty_outbox();
    }

    fn bury(&mut self, run: Run) {
        if let Run::Agent { cluster, .. } = run
            && let Some(site) = self.sites.get_mut(&cluster)
        {
            let at = site.agent_crashed(self.clock.now());
            self.timeline.at(at, Due::Agent(cluster));
        }
        // An invocation's messages become visible again when their time is up.
    }

    fn finish_invocation(
        &mut self,
        function: FunctionName,
        batch: &[String],
        failures: Vec<tenon_entrypoint::batch::Failure>,
    ) {
        let failed: Vec<String> = failures.iter().map(|failure| failure.message_id.clone()).collect();
        let at = self.clock.now();
        for failure in failures {
            let happened =
                Happening::new(at, HappeningKind::Action, function.as_str(), failure.error.clone())
                    .with("errorType", json!(failure.error_type));
            self.log.push(happened);
            self.failures.push(FailedInvocation {
                at,
                function,
                error_type: failure.error_type,
                error: failure.error,
            });
        }
        if let Some(queue) = self.queues.get_mut(&function) {
            queue.finish(batch, &failed);
        }
    }

    fn finish_agent(&mut self, cluster: &ClusterName, ended: AgentEnded) {
        let Some(site) = self.sites.get_mut(cluster) else { return };
        let (next, happened) = site.agent_ended(ended, self.clock.now());
        self.timeline.at(next, Due::Agent(cluster.clone()));
        self.log.extend(happened);
    }

    fn empty_outbox(&mut self) {
        let Outbox { signals, records, pod_deletions } =
            std::mem::take(&mut *self.outbox.lock().unwrap_or_else(PoisonError::into_inner));
        self.log.extend(records.iter().filter_map(|(key, item)| crate::record::happening(key, item)));
        let now = self.clock.now();
        self.pod_deletions.extend(pod_deletions.into_iter().map(|(pod, node)| PodDeletion {
            at: now,
            pod,
            node,
        }));
        for signal in signals {
            match signal {
                Signal::Publish(event) => self.publish(&event),
                Signal::RingAgent(cluster) => {
                    for delay in self.hooks.ring() {
                        let at = self.clock.now().checked_add(delay).unwrap_or(Timestamp::MAX);
                        self.timeline.at(at, Due::Ring(cluster.clone()));
                    }
                }
                Signal::Wake { function, body, after } => {
                    let at = self.clock.now().checked_add(after).unwrap_or(Timestamp::MAX);
                    self.timeline.at(at, Due::Delivery { function, body });
                }
            }
        }
    }

    /// Puts an event on our bus.
    pub fn publish(&mut self, event: &BusEvent) {
        self.usage.events_published += 1;
        let envelope = self.envelope(event);
        self.route(BusName::Tenon, envelope);
    }

    /// Puts an event, as AWS or a pipeline sends it, on a bus; which functions' queues get it.
    pub fn route(&mut self, bus: BusName, event: Value) -> Vec<FunctionName> {
        if let Some(happening) = crate::record::event(self.clock.now(), &event) {
            self.log.push(happening);
        }
        let targets = self.wiring.route(bus, &event);
        let body = event.to_string();
        for function in &targets {
            self.deliver(*function, body.clone());
        }
        targets
    }

    fn envelope(&mut self, event: &BusEvent) -> Value {
        self.next_event += 1;
        json!({
            "version": "0",
            "id": format!("00000000-0000-4000-8000-{:012x}", self.next_event),
            "detail-type": event.detail_type,
            "source": event.source,
            "account": self.installation.account,
            "time": self.clock.now().to_string(),
            "region": self.installation.region.as_str(),
            "resources": [],
            "detail": event.detail,
        })
    }
}

/// Looking at a region.
impl Region {
    /// EC2.
    #[must_use]
    pub const fn twin(&self) -> &RegionTwin {
        &self.twin
    }

    /// The state table.
    #[must_use]
    pub const fn table(&self) -> &MemoryTable {
        &self.table
    }

    /// A cluster.
    #[must_use]
    pub fn site(&self, cluster: &ClusterName) -> Option<&Site> {
        self.sites.get(cluster)
    }

    /// The clusters, by name.
    pub fn sites(&self) -> impl Iterator<Item = &Site> {
        self.sites.values()
    }

    /// The queues.
    #[must_use]
    pub const fn queues(&self) -> &BTreeMap<FunctionName, Queue> {
        &self.queues
    }

    /// What AWS would bill for, as far as the engine counts it.
    #[must_use]
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Invocations that failed since the last call.
    pub fn take_failures(&mut self) -> Vec<FailedInvocation> {
        std::mem::take(&mut self.failures)
    }

    /// Pods that agents deleted without asking a budget, since the last call.
    pub fn take_pod_deletions(&mut self) -> Vec<PodDeletion> {
        std::mem::take(&mut self.pod_deletions)
    }

    /// What happened since the last call.
    pub fn take_happenings(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.log)
    }

    /// Whether no task is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The region's zones, by name.
    #[must_use]
    pub fn zones(&self) -> Vec<tenon_domain::id::Zone> {
        let zones = tenon_table::block_on(self.twin.describe_availability_zones());
        zones.map(|zones| zones.into_iter().map(|zone| zone.name).collect()).unwrap_or_default()
    }

    /// Makes an image: pending first.
    pub fn make_image(&mut self, form: &crate::scenario::ImageForm) -> tenon_domain::id::ImageId {
        let id = self.twin.create_image(crate::scenario::new_image(form));
        self.note(id.as_str(), format!("image `{}` is being made", form.name));
        id
    }

    /// Lets a cluster's agent fall silent, or speak again.
    pub fn set_voice(&mut self, cluster: &ClusterName, voice: Voice) {
        if let Some(site) = self.sites.get_mut(cluster) {
            site.set_voice(voice);
            self.timeline.at(self.clock.now(), Due::Agent(cluster.clone()));
        }
    }

    /// Puts a message, whatever it is, on a function's queue.
    pub fn send(&mut self, function: FunctionName, body: String) {
        self.deliver(function, body);
    }

    /// Puts a note among what happened.
    pub fn note(&mut self, subject: &str, message: impl Into<String>) {
        self.log.push(Happening::new(self.clock.now(), HappeningKind::Note, subject, message));
    }
}
