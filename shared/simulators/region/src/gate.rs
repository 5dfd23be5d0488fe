//! The gate of a task: every port call passes it, before its effect and before its answer.
//!
//! Decides nothing: [`Hooks`] do. In an undisturbed region a call passes at once. The simulation's hooks delay it,
//! refuse it, lose its answer, or end the task, which is a crash between two calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use jiff::SignedDuration;
use serde_json::Value;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{
    CreateFleetRequest, Image, Instance, InstanceProfileFacts, InstanceStatus, LaunchRole,
};
use tenon_runtime::batch::Message;
use tenon_snapshot::{Kind, Object};
use tenon_table::{Commit, Item, Key, QueryPage};

use crate::asked::AskedCall;

/// Where a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallMoment {
    /// It hasn't taken effect.
    Before,
    /// It has; its answer isn't heard yet.
    After,
}

/// A call of a port by a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallSite {
    /// The caller: a function's name, or `agent`.
    pub task: &'static str,
    /// The call: `table.commit`, `ec2.create_fleet`, ….
    pub call: &'static str,
    /// Where it is.
    pub moment: CallMoment,
}

/// The fate of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFate {
    /// It continues at once.
    Go,
    /// It continues after a delay; other tasks run meanwhile.
    Delay(SignedDuration),
    /// It fails: before, as throttled and without effect; after, with its effect and without an answer.
    Fail,
    /// It isn't allowed, and has no effect; after, it fails without an answer.
    Deny,
    /// It fails by the service's own fault, and has no effect; after, it fails without an answer.
    Break,
    /// It conflicts with another transaction on one of its items, and has no effect. After the effect, or without a
    /// write, it continues.
    Conflict,
    /// The task ends here.
    Crash,
}

/// Decides the fate of calls and events.
pub trait Hooks: Send + Sync {
    /// The fate of a call.
    fn call(&self, site: CallSite) -> CallFate;

    /// The delays of an event's deliveries: none (lost), one, or more (duplicated).
    fn delivery(&self) -> Vec<SignedDuration>;

    /// How the agent hears its doorbell; like [`Hooks::delivery`].
    fn ring(&self) -> Vec<SignedDuration> {
        self.delivery()
    }

    /// Receives the requests of a task.
    fn hear(&self, _task: &'static str, _asked: AskedCall<'_>) {}

    /// Changes a function's batch of messages; only sabotage does.
    fn tamper_messages(&self, _: &mut [Message]) {}

    /// Changes a task's commit. Only sabotage does: tests break the code here and watch the invariants.
    fn tamper_commit(&self, _task: &'static str, _commit: &mut Commit) {}

    /// Changes the answer to a task's query; only sabotage does.
    fn tamper_page(&self, _task: &'static str, _page: &mut QueryPage) {}

    /// Changes the answer to a task's reads by key; only sabotage does.
    fn tamper_items(&self, _task: &'static str, _asked: &[Key], _items: &mut BTreeMap<Key, Item>) {}

    /// Changes EC2's answer about instances; only sabotage does.
    fn tamper_instances(&self, _: &mut Vec<Instance>) {}

    /// Changes EC2's answer about the status of instances; only sabotage does.
    fn tamper_statuses(&self, _: &mut Vec<InstanceStatus>) {}

    /// Changes the launch role that a task takes; only sabotage does.
    fn tamper_launch_role(&self, _: &mut LaunchRole) {}

    /// Changes a launch; only sabotage does.
    fn tamper_fleet(&self, _: &mut CreateFleetRequest) {}

    /// Changes EC2's answer about images; only sabotage does.
    fn tamper_images(&self, _: &mut Vec<Image>) {}

    /// Changes IAM's answer about an instance profile; only sabotage does.
    ///
    /// # Errors
    /// IAM's.
    fn tamper_profile(
        &self,
        answer: Result<InstanceProfileFacts, Ec2Error>,
    ) -> Result<InstanceProfileFacts, Ec2Error> {
        answer
    }

    /// Changes the API server's list for the agent; only sabotage does.
    fn tamper_list(&self, _: Kind, _: &mut Vec<Object>) {}

    /// Changes the agent's patch; only sabotage does.
    fn tamper_patch(&self, _: &mut Value) {}

    /// How the agent's evictions are carried out; only sabotage changes it.
    fn evicting(&self) -> Evicting {
        Evicting::ByEviction
    }
}

/// How an eviction is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evicting {
    /// By eviction, which obeys PodDisruptionBudgets: the correct way.
    ByEviction,
    /// By deletion, which ignores PodDisruptionBudgets.
    ByDeletion,
}

/// An undisturbed region.
#[derive(Debug, Clone, Copy)]
pub struct Undisturbed;

impl Hooks for Undisturbed {
    fn call(&self, _: CallSite) -> CallFate {
        CallFate::Go
    }

    fn delivery(&self) -> Vec<SignedDuration> {
        vec![SignedDuration::ZERO]
    }
}

/// One task's gate. Calls that a task makes side by side wait side by side, each for its own time.
#[derive(Clone)]
pub struct TaskGate {
    task: &'static str,
    hooks: Arc<dyn Hooks>,
    state: Arc<Mutex<GateState>>,
}

/// The waits of a task, by its own time: how long it has waited since it began.
#[derive(Debug, Default)]
struct GateState {
    waited: SignedDuration,
    /// For how long it stopped last.
    stopped: SignedDuration,
    is_crashed: bool,
    /// Calls that wait, in the order in which they began to.
    waits: BTreeMap<u64, GateWait>,
    next: u64,
}

#[derive(Debug)]
struct GateWait {
    until: SignedDuration,
    waker: Waker,
}

/// Why a task's future is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStop {
    /// It continues after this time.
    For(SignedDuration),
    /// It has crashed: drop it.
    Crashed,
}

/// Whether a call continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// It does.
    Pass,
    /// It fails here.
    Fail,
    /// It isn't allowed.
    Denied,
    /// The service fails at it.
    Broken,
    /// Another transaction is under way.
    Conflict,
}

impl TaskGate {
    /// A gate for a task.
    #[must_use]
    pub fn new(task: &'static str, hooks: Arc<dyn Hooks>) -> Self {
        Self { task, hooks, state: Arc::default() }
    }

    /// Passes the gate.
    pub async fn pass(&self, call: &'static str, moment: CallMoment) -> Passage {
        match (self.hooks.call(CallSite { task: self.task, call, moment }), moment) {
            (CallFate::Go, _) | (CallFate::Conflict, CallMoment::After) => Passage::Pass,
            (CallFate::Conflict, CallMoment::Before) => Passage::Conflict,
            (CallFate::Deny, CallMoment::Before) => Passage::Denied,
            (CallFate::Break, CallMoment::Before) => Passage::Broken,
            // A call can't be refused after its effect.
            (CallFate::Fail, _) | (CallFate::Deny | CallFate::Break, CallMoment::After) => Passage::Fail,
            (CallFate::Delay(delay), _) => {
                self.pause(delay).await;
                Passage::Pass
            }
            (CallFate::Crash, _) => {
                self.state().is_crashed = true;
                std::future::pending::<()>().await;
                // Never reached: the engine drops a crashed task instead of polling it.
                Passage::Fail
            }
        }
    }

    /// Lets time pass: the caller continues afterwards.
    pub async fn pause(&self, time: SignedDuration) {
        let until = self.state().waited.saturating_add(time);
        GatePause { gate: self, until, id: None }.await;
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a request to the hooks.
    pub fn hear(&self, asked: AskedCall<'_>) {
        self.hooks.hear(self.task, asked);
    }

    /// Passes a request to the hooks that the task makes by other rights than its own, under a name of theirs.
    pub fn hear_as(&self, rights: &'static str, asked: AskedCall<'_>) {
        self.hooks.hear(rights, asked);
    }

    /// The task of the gate.
    #[must_use]
    pub const fn task(&self) -> &'static str {
        self.task
    }

    /// The hooks.
    #[must_use]
    pub fn hooks(&self) -> &dyn Hooks {
        self.hooks.as_ref()
    }

    /// Why the task's future is pending; the engine reads it after each poll.
    #[must_use]
    pub fn stop(&self) -> TaskStop {
        let mut state = self.state();
        if state.is_crashed {
            return TaskStop::Crashed;
        }
        let first = state.waits.values().map(|wait| wait.until).min();
        // A future that is pending for another reason than its gate would never continue.
        state.stopped = first.map_or(SignedDuration::ZERO, |first| first.saturating_sub(state.waited));
        TaskStop::For(state.stopped)
    }

    /// Notes before a poll that the time of the task's stop has passed, and wakes the calls that waited for it.
    pub fn resume(&self) {
        let mut state = self.state();
        state.waited = state.waited.saturating_add(std::mem::take(&mut state.stopped));
        let now = state.waited;
        let due: Vec<Waker> =
            state.waits.values().filter(|wait| wait.until <= now).map(|wait| wait.waker.clone()).collect();
        drop(state);
        due.iter().for_each(Waker::wake_by_ref);
    }
}

/// The wait of one call. It is pending at least once, so that other tasks run even if it waits for no time.
struct GatePause<'a> {
    gate: &'a TaskGate,
    until: SignedDuration,
    id: Option<u64>,
}

impl Future for GatePause<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.gate.state();
        let id = match self.id {
            Some(_) if self.until <= state.waited => return Poll::Ready(()),
            Some(id) => id,
            None => {
                state.next += 1;
                state.next
            }
        };
        state.waits.insert(id, GateWait { until: self.until, waker: context.waker().clone() });
        drop(state);
        self.id = Some(id);
        Poll::Pending
    }
}

impl Drop for GatePause<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.gate.state().waits.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    /// Delays each call by its name's length in seconds; the call `crash` is a crash.
    struct ByName;

    impl Hooks for ByName {
        fn call(&self, site: CallSite) -> CallFate {
            if site.call == "crash" {
                return CallFate::Crash;
            }
            CallFate::Delay(SignedDuration::from_secs(i64::try_from(site.call.len()).unwrap()))
        }

        fn delivery(&self) -> Vec<SignedDuration> {
            Vec::new()
        }
    }

    /// The stops of a task that makes these calls side by side, in milliseconds; `None` is a crash.
    fn stops(calls: &[&'static str]) -> Vec<Option<i128>> {
        let gate = TaskGate::new("task", Arc::new(ByName));
        let calls = calls.iter().map(|call| gate.pass(call, CallMoment::Before));
        let mut task = std::pin::pin!(join_all(calls));
        let mut stops = Vec::new();
        while task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            match gate.stop() {
                TaskStop::For(time) => {
                    stops.push(Some(time.as_millis()));
                    gate.resume();
                }
                TaskStop::Crashed => {
                    stops.push(None);
                    break;
                }
            }
        }
        stops
    }

    #[test]
    fn calls_side_by_side_wait_each_for_its_own_time() {
        assert_eq!(stops(&["aaa"]), [Some(3000)]);
        assert_eq!(stops(&["aaa", "a"]), [Some(1000), Some(2000)]);
        assert_eq!(stops(&["aa", "bb", "c"]), [Some(1000), Some(1000)]);
        // More than `join_all` polls without being woken.
        assert_eq!(stops(&["a"; 100]), [Some(1000)]);
        assert_eq!(stops(&["a", "crash"]), [None]);
    }
}
