//! Running tasks: invocations and agents' steps, which the engine polls itself.
//!
//! Decides when a task continues, and the consequences of its end, its wait or its crash; a crashed invocation's
//! messages come again as their queue says.

use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use jiff::Timestamp;
use serde_json::json;
use tenon_domain::id::ClusterName;
use tenon_domain::wake::FunctionName;
use tenon_runtime::batch::{Message, MessageFailure};

use super::SimulatedRegion;
use crate::functions::Invocation;
use crate::gate::{TaskGate, TaskStop};
use crate::happening::{Happening, HappeningKind, Listeners};
use crate::ports::{LocalPorts, Outbox, TaskOutlet, TaskSignal};
use crate::queue::QueuedMessage;
use crate::site::{AgentEnded, AgentRun, AgentWorld};
use crate::timeline::{TaskId, TimelineEvent};

/// A pod that an agent deleted without asking a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDeletion {
    /// When.
    pub at: Timestamp,
    /// The pod.
    pub pod: tenon_snapshot::ObjectKey,
    /// Its node.
    pub node: String,
}

pub(super) struct Task {
    gate: TaskGate,
    run: TaskRun,
}

enum TaskRun {
    Invocation { function: FunctionName, batch: Vec<String>, future: Invocation },
    Agent { cluster: ClusterName, future: AgentRun },
}

impl SimulatedRegion {
    /// Runs a function with a batch of its queue's messages.
    pub(super) fn invoke(&mut self, function: FunctionName, batch: Vec<QueuedMessage>) {
        *self.usage.invocations.entry(function).or_default() += 1;
        let ids = batch.iter().map(|message| message.id.clone()).collect();
        let mut messages: Vec<Message> = batch
            .into_iter()
            .map(|m| Message { id: m.id, body: m.body, received: m.receive_count })
            .collect();
        self.hooks.tamper_messages(&mut messages);
        let gate = TaskGate::new(function.as_str(), Arc::clone(&self.hooks));
        let ports = LocalPorts::new(
            self.table.clone(),
            self.twin.clone(),
            self.clock.clone(),
            Arc::clone(&self.installation),
            TaskOutlet { gate: gate.clone(), outbox: Arc::clone(&self.outbox) },
        );
        let future = self.functions.invoke(function, ports, messages);
        self.start(Task { gate, run: TaskRun::Invocation { function, batch: ids, future } });
    }

    pub(super) fn start_agent(&mut self, cluster: &ClusterName, now: Timestamp) {
        let world = AgentWorld {
            table: self.table.clone(),
            clock: self.clock.clone(),
            installation: Arc::clone(&self.installation),
            hooks: Arc::clone(&self.hooks),
            outbox: Arc::clone(&self.outbox),
        };
        let Some(site) = self.sites.get_mut(cluster) else { return };
        if let Some((gate, future)) = site.start_agent(now, &world) {
            self.start(Task { gate, run: TaskRun::Agent { cluster: cluster.clone(), future } });
        }
    }

    fn start(&mut self, task: Task) {
        self.next_task += 1;
        let id = TaskId(self.next_task);
        self.tasks.insert(id, task);
        self.run_task(id);
    }

    /// Polls a task, after the time for which it stopped, until it ends, waits or crashes.
    pub(super) fn run_task(&mut self, id: TaskId) {
        let Some(mut task) = self.tasks.remove(&id) else { return };
        task.gate.resume();
        let mut context = Context::from_waker(Waker::noop());
        let ended = match &mut task.run {
            TaskRun::Invocation { function, batch, future } => match future.as_mut().poll(&mut context) {
                Poll::Ready(failures) => {
                    let (function, batch) = (*function, std::mem::take(batch));
                    self.finish_invocation(function, &batch, failures);
                    true
                }
                Poll::Pending => false,
            },
            TaskRun::Agent { cluster, future } => match future.as_mut().poll(&mut context) {
                Poll::Ready(ended) => {
                    let cluster = cluster.clone();
                    self.finish_agent(&cluster, ended);
                    true
                }
                Poll::Pending => false,
            },
        };
        if !ended {
            match task.gate.stop() {
                TaskStop::For(delay) => {
                    let at = self.clock.now().checked_add(delay).unwrap_or(Timestamp::MAX);
                    self.timeline.at(at, TimelineEvent::Resume(id));
                    self.tasks.insert(id, task);
                }
                TaskStop::Crashed => self.bury(task.run),
            }
        }
        self.empty_outbox();
    }

    fn bury(&mut self, run: TaskRun) {
        let now = self.clock.now();
        match run {
            TaskRun::Agent { cluster, .. } => {
                let Some(site) = self.sites.get_mut(&cluster) else { return };
                let at = site.agent_crashed(now);
                self.timeline.at(at, TimelineEvent::Agent(cluster));
            }
            TaskRun::Invocation { function, batch, .. } => {
                if let Some(queue) = self.queues.get_mut(&function) {
                    queue.crashed(&batch, now);
                }
                self.poll_again(function, now);
            }
        }
    }

    fn finish_invocation(&mut self, function: FunctionName, batch: &[String], failures: Vec<MessageFailure>) {
        let failed: Vec<String> = failures.iter().map(|failure| failure.message_id.clone()).collect();
        let at = self.clock.now();
        for failure in failures {
            let happened = Happening::new(at, HappeningKind::Action, function.as_str(), failure.error)
                .with("errorType", json!(failure.error_type));
            self.log.push(happened);
        }
        if let Some(queue) = self.queues.get_mut(&function) {
            queue.finish(batch, &failed, at);
        }
        self.poll_again(function, at);
    }

    /// How many invocations of a function there are.
    pub(super) fn running(&self, function: FunctionName) -> usize {
        let is_of = |task: &&Task| match &task.run {
            TaskRun::Invocation { function: of, .. } => *of == function,
            TaskRun::Agent { .. } => false,
        };
        self.tasks.values().filter(is_of).count()
    }

    fn finish_agent(&mut self, cluster: &ClusterName, ended: AgentEnded) {
        let Some(site) = self.sites.get_mut(cluster) else { return };
        let (next, happened) = site.agent_ended(ended, self.clock.now());
        self.timeline.at(next, TimelineEvent::Agent(cluster.clone()));
        self.log.extend(happened);
    }

    fn empty_outbox(&mut self) {
        let Outbox { signals, records, pod_deletions, logged_bytes } =
            std::mem::take(&mut *self.outbox.lock().unwrap_or_else(PoisonError::into_inner));
        self.usage.logged_bytes += logged_bytes;
        if self.listeners == Listeners::Some {
            self.log.extend(records.iter().filter_map(|(key, item)| crate::record::happening(key, item)));
        }
        let now = self.clock.now();
        self.pod_deletions.extend(pod_deletions.into_iter().map(|(pod, node)| PodDeletion {
            at: now,
            pod,
            node,
        }));
        for signal in signals {
            match signal {
                TaskSignal::Publish(event) => self.publish(&event),
                TaskSignal::RingAgent(cluster) => {
                    for delay in self.hooks.ring() {
                        let at = self.clock.now().checked_add(delay).unwrap_or(Timestamp::MAX);
                        self.timeline.at(at, TimelineEvent::Ring(cluster.clone()));
                    }
                }
                TaskSignal::Wake { function, body, cluster, after } => {
                    let at = self.clock.now().checked_add(after).unwrap_or(Timestamp::MAX);
                    let group = Some(cluster);
                    self.timeline.at(at, TimelineEvent::Delivery { function, body, group });
                }
            }
        }
    }
}
