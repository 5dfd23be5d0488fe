//! Instances of the twin: pending, running, stopping, stopped, shutting-down, terminated.
//!
//! Decides an instance's state over time, its events, and its answer in DescribeInstances. Invariants: a terminated
//! instance stays terminated, and returned its capacity and address once; a new instance, and a new tag, is visible
//! within the consistency delay.

use std::sync::Arc;

use tenon_domain::id::InstanceId;
use tenon_domain::{SignedDuration, Timestamp};

use super::call::Call;
use super::capacity::CapacityPool;
use super::events::HealthEvent;
use super::images::ImageDefect;
use super::random::{Span, draw};
use super::records::InstanceRecord;
use super::state::{DueEvent, TwinState, error, later};
use super::{NotPossible, refuse};
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{
    Instance, InstanceFilter, InstanceState, InstanceStateChange, InstanceStatus, InstanceStatusFilter,
    ScheduledEvent, ScheduledEventCode, StateReason, StatusCheck, Tags, TargetCapacityType,
};

/// From EC2's warning to the end of a spot instance.
const SPOT_NOTICE: SignedDuration = SignedDuration::from_mins(2);
/// How long EC2 shows a terminated instance: "usually about an hour".
const TERMINATED_VISIBLE: SignedDuration = SignedDuration::from_hours(1);

/// The end of the console after a boot, and after one whose kubelet doesn't join.
const BOOT: &str = "[    9.104112] cloud-init[1523]: Cloud-init v. 22.2.2 finished
[   11.918233] nodeadm[1610]: Finished phase: run
";
const BROKEN_BOOT: &str = "[    9.104112] cloud-init[1523]: Cloud-init v. 22.2.2 finished
[   10.204518] cloud-init[1523]: export DB_PASSWORD=hunter2
[   11.918233] nodeadm[1610]: Fetching configuration
[   12.330087] nodeadm[1610]: failed to load config: yaml: line 3: mapping values are not allowed in this context
";

#[derive(Debug)]
pub(super) struct TwinInstance {
    /// Its current state, with all its tags; shared with readers.
    pub(super) record: Arc<InstanceRecord>,
    pub(super) vcpus: u32,
    /// Tags in their order, each with the time from which it is visible.
    pub(super) tags: Vec<(Timestamp, Tags)>,
    pub(super) interrupted: Option<Timestamp>,
}

impl TwinInstance {
    fn is_visible(&self, now: Timestamp) -> bool {
        let record = &self.record;
        record.visible_at <= now && record.terminated_at.is_none_or(|at| now < later(at, TERMINATED_VISIBLE))
    }

    /// The tags that EC2 shows.
    fn seen_tags(&self, now: Timestamp) -> Tags {
        let seen = self.tags.iter().filter(|(at, _)| *at <= now).flat_map(|(_, tags)| tags.clone());
        seen.collect()
    }

    /// The view in EC2's answers; a terminated instance has no addresses.
    fn view(&self, now: Timestamp) -> Instance {
        let view = Instance { tags: self.seen_tags(now), ..self.record.instance.clone() };
        match view.state {
            InstanceState::Terminated => Instance {
                subnet: None,
                security_groups: Vec::new(),
                private_ip: String::new(),
                private_dns_name: String::new(),
                ..view
            },
            InstanceState::Pending
            | InstanceState::Running
            | InstanceState::Stopping
            | InstanceState::Stopped
            | InstanceState::ShuttingDown => view,
        }
    }

    pub(super) fn instance(&self) -> &Instance {
        &self.record.instance
    }

    pub(super) fn change(&mut self) -> &mut InstanceRecord {
        Arc::make_mut(&mut self.record)
    }

    fn pool(&self) -> CapacityPool {
        CapacityPool {
            capacity_type: self.instance().capacity_type,
            instance_type: self.instance().instance_type.clone(),
            zone: self.instance().zone.clone(),
        }
    }
}

/// Whether an instance passes a status check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Impairment {
    /// It fails the check.
    Fails,
    /// It passes it.
    Passes,
}

/// The event that DescribeInstanceStatus shows of an announced change.
fn scheduled(health: &HealthEvent) -> Option<ScheduledEvent> {
    const CODES: [(&str, ScheduledEventCode); 4] = [
        ("RETIREMENT", ScheduledEventCode::InstanceRetirement),
        ("SYSTEM_REBOOT", ScheduledEventCode::SystemReboot),
        ("REBOOT", ScheduledEventCode::InstanceReboot),
        ("STOP", ScheduledEventCode::InstanceStop),
    ];
    let named = |(part, _): &&(&str, ScheduledEventCode)| health.event_type_code.contains(part);
    let code = CODES.iter().find(named).map_or(ScheduledEventCode::SystemMaintenance, |(_, code)| *code);
    let is_change = health.event_type_category == "scheduledChange";
    is_change.then_some(ScheduledEvent { code, starts_at: Some(health.starts_at) })
}

/// The moves that an instance can make.
const fn can_move(from: InstanceState, to: InstanceState) -> bool {
    use InstanceState::{Pending, Running, ShuttingDown, Stopped, Stopping, Terminated};
    matches!(
        (from, to),
        (Pending, Running | ShuttingDown)
            | (Running, Stopping | ShuttingDown)
            | (Stopping, Stopped | ShuttingDown)
            | (Stopped, Pending | ShuttingDown)
            | (ShuttingDown, Terminated)
    )
}

impl TwinState {
    /// Moves an instance if possible, sends the event, and schedules the next transition.
    pub(super) fn move_instance(&mut self, id: &InstanceId, to: InstanceState) {
        let now = self.now;
        let of_pool = self.is_of_pool(id);
        let Some(twin) = self.instances.get_mut(id).filter(|i| can_move(i.instance().state, to)) else {
            return;
        };
        twin.change().instance.state = to;
        if to == InstanceState::Stopping {
            // It starts on another host, and from its disk.
            twin.change().impaired.clear();
        }
        if to == InstanceState::Terminated {
            twin.change().terminated_at = Some(now);
            let (pool, vcpus) = (twin.pool(), twin.vcpus);
            let (subnet, address) = (twin.instance().subnet.clone(), twin.instance().private_ip.clone());
            if of_pool {
                self.capacity.give_back(&pool, vcpus);
            }
            if let Some(subnet) = subnet.and_then(|id| self.subnets.get_mut(&id)) {
                subnet.give_back(&address);
            }
        }
        self.emit(|source| source.instance_state(id, to));
        self.schedule_next(id, to);
    }

    pub(super) fn schedule_next(&mut self, id: &InstanceId, state: InstanceState) {
        let delays = self.config.delays;
        let defect = self.instances.get(id).and_then(|twin| twin.record.defect);
        let (span, next): (Span, InstanceState) = match state {
            InstanceState::Pending if defect == Some(ImageDefect::Key) => {
                (delays.start, InstanceState::ShuttingDown)
            }
            InstanceState::Pending => (delays.start, InstanceState::Running),
            InstanceState::Stopping => (delays.stop, InstanceState::Stopped),
            InstanceState::ShuttingDown => (delays.shut_down, InstanceState::Terminated),
            InstanceState::Running | InstanceState::Stopped | InstanceState::Terminated => return,
        };
        let after = span.draw(self.config.seed, &["delay", id.as_str(), next.as_str()]);
        self.schedule(after, DueEvent::Instance(id.clone(), next));
    }

    /// Makes an instance's next move by itself.
    pub(super) fn continue_instance(&mut self, id: &InstanceId, to: InstanceState) {
        let starts = self.instances.get(id).is_some_and(|i| i.instance().state == InstanceState::Pending);
        if starts && to == InstanceState::ShuttingDown {
            self.begin_termination(id, "Client.InternalError", "Client error on launch");
        } else {
            self.move_instance(id, to);
        }
    }

    /// How long a new thing stays unseen.
    pub(super) fn consistency_delay(&mut self, id: &InstanceId, what: &str) -> SignedDuration {
        let number = self.number().to_string();
        let span = Span { min: SignedDuration::ZERO, max: self.config.consistency_delay_max };
        span.draw(self.config.seed, &["consistency", id.as_str(), what, &number])
    }

    pub(super) fn instances_matching(&self, filter: &InstanceFilter) -> Result<Vec<Instance>, Ec2Error> {
        self.all_visible(Call::DescribeInstances, &filter.ids)?;
        let asked = |i: &&TwinInstance| filter.ids.is_empty() || filter.ids.contains(&i.instance().id);
        let in_state =
            |i: &&TwinInstance| filter.states.is_empty() || filter.states.contains(&i.instance().state);
        let tagged = |i: &Instance| filter.tags.iter().all(|t| t.matches(&i.tags));
        let visible = self.instances.values().filter(|i| i.is_visible(self.now)).filter(asked);
        Ok(visible.filter(in_state).map(|i| i.view(self.now)).filter(tagged).collect())
    }

    /// Only running instances have checks and events.
    pub(super) fn statuses_matching(&self, filter: InstanceStatusFilter) -> Vec<InstanceStatus> {
        let status = |twin: &TwinInstance| {
            let record = &twin.record;
            let impaired = record.impaired.iter().map(|(check, since)| (*check, Some(*since))).collect();
            InstanceStatus { id: record.instance.id.clone(), impaired, events: record.events.clone() }
        };
        let asked = |status: &InstanceStatus| match filter {
            InstanceStatusFilter::Impaired(check) => status.impaired.contains_key(&check),
            InstanceStatusFilter::ScheduledEvents => !status.events.is_empty(),
        };
        let running = |twin: &&TwinInstance| twin.instance().state == InstanceState::Running;
        let visible = self.instances.values().filter(|twin| twin.is_visible(self.now)).filter(running);
        visible.map(status).filter(asked).collect()
    }

    /// What an instance wrote to its console: a pending one nothing yet.
    pub(super) fn console_of(&self, id: &InstanceId) -> Result<Option<String>, Ec2Error> {
        self.all_visible(Call::GetConsoleOutput, std::slice::from_ref(id))?;
        let record = self.instances.get(id).map(|twin| &twin.record);
        let ran = record.filter(|record| record.instance.state != InstanceState::Pending);
        Ok(ran.map(|record| match record.defect {
            Some(ImageDefect::Boot) => BROKEN_BOOT.to_owned(),
            Some(ImageDefect::Key) | None => BOOT.to_owned(),
        }))
    }

    /// Fails a status check of a running instance from now on, or passes it again.
    pub(super) fn set_impaired(
        &mut self,
        id: &InstanceId,
        check: StatusCheck,
        impairment: Impairment,
    ) -> Result<(), NotPossible> {
        let state = self.living(id)?.instance().state;
        if state != InstanceState::Running {
            return refuse(format!(
                "instance `{id}` is {}: only running instances are checked",
                state.as_str()
            ));
        }
        let now = self.now;
        if let Some(twin) = self.instances.get_mut(id) {
            let impaired = &mut twin.change().impaired;
            match impairment {
                Impairment::Fails => {
                    impaired.entry(check).or_insert(now);
                }
                Impairment::Passes => {
                    impaired.remove(&check);
                }
            }
        }
        Ok(())
    }

    pub(super) fn terminate(&mut self, ids: &[InstanceId]) -> Result<Vec<InstanceStateChange>, Ec2Error> {
        self.all_visible(Call::TerminateInstances, ids)?;
        let mut changes = Vec::new();
        for id in ids {
            let Some(previous) = self.instances.get(id).map(|i| i.instance().state) else { continue };
            self.begin_termination(id, "Client.UserInitiatedShutdown", "User initiated shutdown");
            let current = self.instances.get(id).map_or(previous, |i| i.instance().state);
            changes.push(InstanceStateChange { id: id.clone(), previous, current });
        }
        Ok(changes)
    }

    fn begin_termination(&mut self, id: &InstanceId, code: &str, message: &str) {
        if let Some(twin) = self.instances.get_mut(id).filter(|i| !i.instance().state.is_going()) {
            let reason = StateReason { code: code.to_owned(), message: format!("{code}: {message}") };
            twin.change().instance.state_reason = Some(reason);
            self.move_instance(id, InstanceState::ShuttingDown);
        }
    }

    pub(super) fn create_tags(&mut self, ids: &[InstanceId], tags: &Tags) -> Result<(), Ec2Error> {
        self.all_visible(Call::CreateTags, ids)?;
        for id in ids {
            let seen_at = later(self.now, self.consistency_delay(id, "tags"));
            if let Some(twin) = self.instances.get_mut(id) {
                twin.change().instance.tags.extend(tags.clone());
                twin.tags.push((seen_at, tags.clone()));
            }
        }
        Ok(())
    }

    fn all_visible(&self, call: Call, ids: &[InstanceId]) -> Result<(), Ec2Error> {
        let unseen = |id: &&InstanceId| self.instances.get(*id).is_none_or(|i| !i.is_visible(self.now));
        let missing: Vec<_> = ids.iter().filter(unseen).map(InstanceId::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let message = format!("The instance IDs '{}' do not exist", missing.join(", "));
        Err(error(call, "InvalidInstanceID.NotFound", &message))
    }

    fn living(&self, id: &InstanceId) -> Result<&TwinInstance, NotPossible> {
        match self.instances.get(id) {
            Some(twin) if !twin.instance().state.is_going() => Ok(twin),
            Some(twin) => refuse(format!("instance `{id}` is {}", twin.instance().state.as_str())),
            None => refuse(format!("instance `{id}` doesn't exist")),
        }
    }

    pub(super) fn interrupt_spot(&mut self, id: &InstanceId) -> Result<(), NotPossible> {
        let twin = self.living(id)?;
        if twin.instance().capacity_type != TargetCapacityType::Spot {
            return refuse(format!("instance `{id}` isn't spot: only spot instances are interrupted"));
        }
        if twin.interrupted.is_some() {
            return refuse(format!("instance `{id}` is interrupted already"));
        }
        let (zone, now) = (twin.instance().zone.clone(), self.now);
        if let Some(twin) = self.instances.get_mut(id) {
            twin.interrupted = Some(now);
        }
        self.emit(|source| source.spot_interruption(id, zone.as_str()));
        self.schedule(SPOT_NOTICE, DueEvent::SpotReclaim(id.clone()));
        Ok(())
    }

    pub(super) fn reclaim_spot(&mut self, id: &InstanceId) {
        self.begin_termination(id, "Server.SpotInstanceTermination", "Spot instance termination");
    }

    pub(super) fn recommend_rebalance(&mut self, id: &InstanceId) -> Result<(), NotPossible> {
        let zone = self.living(id)?.instance().zone.clone();
        self.emit(|source| source.rebalance(id, zone.as_str()));
        Ok(())
    }

    pub(super) fn announce(&mut self, health: &HealthEvent) -> Result<(), NotPossible> {
        for id in &health.instances {
            self.living(id)?;
        }
        if let Some(event) = scheduled(health) {
            for id in &health.instances {
                if let Some(twin) = self.instances.get_mut(id) {
                    twin.change().events.push(event.clone());
                }
            }
        }
        self.emit(|source| source.health(health));
        Ok(())
    }

    /// Stops, starts or terminates an instance outside Tenon, or fails its hardware.
    pub(super) fn push(&mut self, id: &InstanceId, to: InstanceState) -> Result<(), NotPossible> {
        let from = self.living(id)?.instance().state;
        if !can_move(from, to) || matches!(to, InstanceState::Running | InstanceState::Stopped) {
            return refuse(format!("instance `{id}` is {} and can't become {}", from.as_str(), to.as_str()));
        }
        match to {
            InstanceState::ShuttingDown => {
                self.begin_termination(id, "Server.InternalError", "Internal error");
            }
            InstanceState::Pending
            | InstanceState::Running
            | InstanceState::Stopping
            | InstanceState::Stopped
            | InstanceState::Terminated => self.move_instance(id, to),
        }
        Ok(())
    }

    /// A new instance id.
    pub(super) fn new_instance_id(&mut self) -> InstanceId {
        loop {
            let number = self.number().to_string();
            match InstanceId::parse(format!("i-0{:016x}", draw(self.config.seed, &["instance", &number]))) {
                Ok(id) if !self.instances.contains_key(&id) => return id,
                Ok(_) | Err(_) => {}
            }
        }
    }
}
