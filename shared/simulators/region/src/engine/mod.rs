//! The region's engine: one loop that runs whatever is due, and then moves the time to the next due thing.
//!
//! Decides the order, never an outcome. Functions and agents are tasks that the engine polls itself. With the hooks
//! of an undisturbed region each runs to its end at once; with the simulation's they interleave.

mod look;
mod tasks;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::registry::{FeatureGate, Registry};
use tenon_domain::wake::FunctionName;
use tenon_memory_table::MemoryTable;
use tenon_runtime::{BusEvent, Installation};
use tenon_table::items::{self, keys};
use tenon_twin::RegionTwin;

use crate::clock::RegionClock;
use crate::functions::Functions;
use crate::gate::Hooks;
use crate::happening::{Happening, Listeners};
use crate::kept::KeptClusters;
use crate::outside::OutsideCluster;
use crate::ports::{Outbox, SharedOutbox};
use crate::queue::Queue;
use crate::site::Site;
use crate::timeline::{TaskId, Timeline, TimelineEvent};
use crate::usage::RegionUsage;
use crate::wiring::{BusName, Schedule, ScheduleTarget, Wiring, WiringError, cluster_schedules};

pub use tasks::PodDeletion;
use tasks::Task;

/// The tag that names an instance's cluster.
const CLUSTER_TAG: &str = tenon_domain::tags::EKS_CLUSTER;

/// A region on this machine.
pub struct SimulatedRegion {
    pub(crate) clock: RegionClock,
    pub(crate) table: MemoryTable,
    pub(crate) twin: RegionTwin,
    pub(crate) installation: Arc<Installation>,
    pub(crate) hooks: Arc<dyn Hooks>,
    wiring: Wiring,
    functions: Functions,
    queues: BTreeMap<FunctionName, Queue>,
    schedules: Vec<Schedule>,
    /// Before then no schedule rings.
    schedules_from: Timestamp,
    pub(crate) timeline: Timeline,
    tasks: BTreeMap<TaskId, Task>,
    next_task: u64,
    next_event: u64,
    outbox: SharedOutbox,
    pub(crate) sites: BTreeMap<ClusterName, Site>,
    pub(crate) outside: BTreeMap<ClusterName, Box<dyn OutsideCluster>>,
    started: Timestamp,
    pub(crate) log: Vec<Happening>,
    listeners: Listeners,
    pod_deletions: Vec<PodDeletion>,
    usage: RegionUsage,
    pub(crate) kept: KeptClusters,
}

/// The parts of an engine.
pub struct EngineParts {
    /// The time.
    pub clock: RegionClock,
    /// The state table.
    pub table: MemoryTable,
    /// EC2.
    pub twin: RegionTwin,
    /// The installation.
    pub installation: Installation,
    /// The hooks that decide the fate of calls and events.
    pub hooks: Arc<dyn Hooks>,
}

impl SimulatedRegion {
    /// A region with its functions and schedules, and no cluster.
    ///
    /// # Errors [`WiringError`] if the built-in stack can't be simulated.
    pub fn new(parts: EngineParts) -> Result<Self, WiringError> {
        let wiring = Wiring::built_in()?;
        let queues =
            wiring.queues.iter().map(|(function, spec)| (*function, Queue::new(spec.clone()))).collect();
        let started = parts.clock.now();
        let mut region = Self {
            clock: parts.clock,
            table: parts.table,
            twin: parts.twin,
            installation: Arc::new(parts.installation),
            hooks: parts.hooks,
            functions: Functions::default(),
            queues,
            schedules: Vec::new(),
            schedules_from: started,
            timeline: Timeline::default(),
            tasks: BTreeMap::new(),
            next_task: 0,
            next_event: 0,
            outbox: Arc::new(Mutex::new(Outbox::default())),
            sites: BTreeMap::new(),
            outside: BTreeMap::new(),
            started,
            log: Vec::new(),
            listeners: Listeners::Some,
            pod_deletions: Vec::new(),
            usage: RegionUsage::default(),
            kept: KeptClusters::default(),
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
        self.add_stack(&cluster)?;
        self.sites.insert(cluster.clone(), site);
        self.timeline.at(self.clock.now(), TimelineEvent::Agent(cluster));
        Ok(())
    }

    /// Adds the schedules of a cluster's stack.
    pub(crate) fn add_stack(&mut self, cluster: &ClusterName) -> Result<(), WiringError> {
        let zonal_shift = self.registered(cluster).map_or(FeatureGate::Disabled, |r| r.settings.zonal_shift);
        for schedule in cluster_schedules(self.installation.id.as_str(), cluster.as_str(), zonal_shift)? {
            self.add_schedule(schedule);
        }
        Ok(())
    }

    /// The cluster's registry entry.
    fn registered(&self, cluster: &ClusterName) -> Option<Registry> {
        let key = keys::registry(&self.installation.region, cluster);
        items::from_item(&key, &self.table.peek(&key)?).ok()
    }

    /// A schedule fires once at its stack's deployment, like a `rate`, and then every period.
    fn add_schedule(&mut self, schedule: Schedule) {
        self.timeline.at(self.clock.now(), TimelineEvent::Schedule(self.schedules.len()));
        self.schedules.push(schedule);
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// When it began.
    #[must_use]
    pub const fn started(&self) -> Timestamp {
        self.started
    }

    /// When something is due next.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let sites = self.sites.values().filter_map(Site::next_due);
        let world = self.twin.next_due().into_iter().chain(sites);
        self.timeline.next_at().into_iter().chain(world).min()
    }

    /// Runs the next due thing, if it is due by `until`; returns its time.
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
        // Objects applied now get the current time, not that of the cluster's last change.
        self.sites.values().for_each(|site| site.cluster().tick(until));
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
                self.timeline.at(at, TimelineEvent::Agent(cluster));
            }
        }
    }

    /// Starts and stops the kubelets of instances, even if the event is lost.
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
        let Some(cluster) = cluster else { return };
        let (site, outside) = (self.sites.get(&cluster), self.outside.get(&cluster));
        match text("/detail/state") {
            Some("running") => {
                site.into_iter().for_each(|site| site.power_on(&record));
                outside.into_iter().for_each(|cluster| cluster.power_on(&record));
            }
            Some("stopping" | "stopped" | "shutting-down" | "terminated") => {
                site.into_iter().for_each(|site| site.power_off(&record));
                outside.into_iter().for_each(|cluster| cluster.power_off(&record));
            }
            Some(_) | None => {}
        }
    }

    fn work_off(&mut self, due: TimelineEvent, now: Timestamp) {
        match due {
            TimelineEvent::World | TimelineEvent::Step(_) => {}
            TimelineEvent::Schedule(index) => self.fire(index, now),
            TimelineEvent::Delivery { function, body, group } => {
                self.enqueue(function, body, group);
            }
            TimelineEvent::Ring(cluster) => {
                self.usage.agent_rings += 1;
                if let Some(outside) = self.outside.get(&cluster) {
                    outside.ring();
                } else if let Some(site) = self.sites.get_mut(&cluster) {
                    site.hear();
                    self.timeline.at(now, TimelineEvent::Agent(cluster));
                }
            }
            TimelineEvent::Poll(function) => self.poll_queue(function, now),
            TimelineEvent::Resume(task) => self.run_task(task),
            TimelineEvent::Agent(cluster) => self.start_agent(&cluster, now),
        }
    }

    fn fire(&mut self, index: usize, now: Timestamp) {
        if now < self.schedules_from {
            self.timeline.at(self.schedules_from, TimelineEvent::Schedule(index));
            return;
        }
        let Some(schedule) = self.schedules.get(index) else { return };
        let next = now.checked_add(schedule.every).unwrap_or(Timestamp::MAX);
        self.timeline.at(next, TimelineEvent::Schedule(index));
        self.usage.schedules_fired += 1;
        match schedule.target.clone() {
            ScheduleTarget::Function { function, body } => self.deliver(function, body, None),
            ScheduleTarget::Event { source, detail_type, detail } => {
                self.publish(&BusEvent { source, detail_type, detail });
            }
        }
    }

    /// Sends a message to a function, as late and as often as the hooks say.
    fn deliver(&mut self, function: FunctionName, body: String, group: Option<&ClusterName>) {
        let now = self.clock.now();
        for delay in self.hooks.delivery() {
            let at = now.checked_add(delay).unwrap_or(now);
            let (body, group) = (body.clone(), group.cloned());
            self.timeline.at(at, TimelineEvent::Delivery { function, body, group });
        }
    }

    fn enqueue(&mut self, function: FunctionName, body: String, group: Option<ClusterName>) {
        let now = self.clock.now();
        if let Some(queue) = self.queues.get_mut(&function) {
            queue.send(body, group, now);
            if let Some(at) = queue.arrange_poll(now) {
                self.timeline.at(at, TimelineEvent::Poll(function));
            }
        }
    }

    fn poll_queue(&mut self, function: FunctionName, now: Timestamp) {
        let running = self.running(function);
        let Some(queue) = self.queues.get_mut(&function) else { return };
        let due = queue.poll(now);
        if running >= queue.spec().at_once {
            // The end of an invocation polls again.
            return;
        }
        let batch = if due { queue.receive(now) } else { Vec::new() };
        self.poll_again(function, now);
        if batch.is_empty() {
            return;
        }
        self.invoke(function, batch);
    }

    /// Remaining and failed messages become visible again.
    fn poll_again(&mut self, function: FunctionName, now: Timestamp) {
        let soonest = now.checked_add(SignedDuration::from_millis(1)).unwrap_or(now);
        let poll = self.queues.get_mut(&function).and_then(|queue| queue.arrange_poll(soonest));
        if let Some(at) = poll {
            self.timeline.at(at, TimelineEvent::Poll(function));
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
        if self.listeners == Listeners::Some
            && let Some(happening) = crate::record::event(self.clock.now(), &event)
        {
            self.log.push(happening);
        }
        let targets = self.wiring.route(bus, &event);
        let body = event.to_string();
        for function in &targets {
            // A rule can't make the group of an event's content.
            self.deliver(*function, body.clone(), None);
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
