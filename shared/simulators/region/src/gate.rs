//! The gate of a task: every port call passes it, before its effect and before its answer.
//!
//! Decides nothing: [`Hooks`] do. In an undisturbed region a call passes at once. The simulation's hooks delay it,
//! refuse it, lose its answer, or end the task, which is a crash between two calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use jiff::SignedDuration;
use serde_json::Value;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{CreateFleetRequest, Image, Instance, InstanceProfileFacts};
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

    /// Changes a task's commit. Only sabotage does: tests break the code here and watch the invariants.
    fn tamper_commit(&self, _task: &'static str, _commit: &mut Commit) {}

    /// Changes the answer to a task's query; only sabotage does.
    fn tamper_page(&self, _task: &'static str, _page: &mut QueryPage) {}

    /// Changes the answer to a task's reads by key; only sabotage does.
    fn tamper_items(&self, _task: &'static str, _asked: &[Key], _items: &mut BTreeMap<Key, Item>) {}

    /// Changes EC2's answer about instances; only sabotage does.
    fn tamper_instances(&self, _: &mut Vec<Instance>) {}

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

/// One task's gate.
#[derive(Clone)]
pub struct TaskGate {
    task: &'static str,
    hooks: Arc<dyn Hooks>,
    state: Arc<Mutex<GateState>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GateState {
    Open,
    Waiting(SignedDuration),
    Crashed,
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
        Self { task, hooks, state: Arc::new(Mutex::new(GateState::Open)) }
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
                self.stop(GateState::Waiting(delay)).await;
                Passage::Pass
            }
            (CallFate::Crash, _) => {
                self.stop(GateState::Crashed).await;
                // Never reached: the engine drops a crashed task instead of polling it.
                Passage::Fail
            }
        }
    }

    /// Lets time pass: the task continues afterwards.
    pub async fn pause(&self, time: SignedDuration) {
        self.stop(GateState::Waiting(time)).await;
    }

    fn stop(&self, state: GateState) -> Stopped {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        Stopped { polled: false }
    }

    /// Passes a request to the hooks.
    pub fn hear(&self, asked: AskedCall<'_>) {
        self.hooks.hear(self.task, asked);
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

    /// Why the task's future was pending; the engine reads it after each poll.
    #[must_use]
    pub fn take_stop(&self) -> TaskStop {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, GateState::Open) {
            GateState::Waiting(delay) => TaskStop::For(delay),
            GateState::Crashed => TaskStop::Crashed,
            // A future that is pending for another reason than its gate would never continue.
            GateState::Open => TaskStop::For(SignedDuration::ZERO),
        }
    }
}

/// A future that is pending once.
struct Stopped {
    polled: bool,
}

impl Future for Stopped {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.polled, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}
