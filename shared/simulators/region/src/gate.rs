//! Where a task can be stopped: every call of a port passes its gate, before it takes effect and before its answer is
//! heard.
//!
//! Decides nothing: [`Hooks`] do. With the hooks of an undisturbed region a call goes straight through; the
//! simulation's make it slow, refuse it, lose its answer, or end the task there, which is a crash between two calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use jiff::SignedDuration;
use serde_json::Value;
use tenon_ec2::port::{CreateFleetRequest, Image, Instance};
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
    /// Whose call it is: a function's name, or `agent`.
    pub task: &'static str,
    /// The call: `table.commit`, `ec2.create_fleet`, ….
    pub call: &'static str,
    /// Where it is.
    pub moment: CallMoment,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFate {
    /// It goes on at once.
    Go,
    /// It goes on after a while; other tasks run meanwhile.
    Delay(SignedDuration),
    /// It fails: before, as throttled and without effect; after, with its effect and without an answer.
    Fail,
    /// It isn't allowed, and has no effect; after, it fails without an answer.
    Deny,
    /// It fails by the service's own fault, and has no effect; after, it fails without an answer.
    Break,
    /// It meets another transaction on one of its items, and has no effect; after, and what writes nothing, goes on.
    Conflict,
    /// The task ends here.
    Crash,
}

/// Who decides the fate of calls and of events.
pub trait Hooks: Send + Sync {
    /// What becomes of a call.
    fn call(&self, site: CallSite) -> CallFate;

    /// When an event arrives, counted from now: never (lost), once, or more often (doubled).
    fn delivery(&self) -> Vec<SignedDuration>;

    /// How the agent hears its doorbell; like [`Hooks::delivery`].
    fn ring(&self) -> Vec<SignedDuration> {
        self.delivery()
    }

    /// Hears what a task asks of the world.
    fn hear(&self, _task: &'static str, _asked: AskedCall<'_>) {}

    /// Changes what a task commits. Only sabotage does: tests break the code here and watch the invariants.
    fn tamper_commit(&self, _task: &'static str, _commit: &mut Commit) {}

    /// Changes what a task's query answers; only sabotage does.
    fn tamper_page(&self, _task: &'static str, _page: &mut QueryPage) {}

    /// Changes what a task's reads by key answer; only sabotage does.
    fn tamper_items(&self, _task: &'static str, _asked: &[Key], _items: &mut BTreeMap<Key, Item>) {}

    /// Changes what EC2 says of instances; only sabotage does.
    fn tamper_instances(&self, _: &mut Vec<Instance>) {}

    /// Changes a launch; only sabotage does.
    fn tamper_fleet(&self, _: &mut CreateFleetRequest) {}

    /// Changes what EC2 says of images; only sabotage does.
    fn tamper_images(&self, _: &mut Vec<Image>) {}

    /// Changes what the agent patches; only sabotage does.
    fn tamper_patch(&self, _: &mut Value) {}

    /// How the agent's evictions are carried out; only sabotage changes it.
    fn evicting(&self) -> Evicting {
        Evicting::ByEviction
    }
}

/// How an eviction is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evicting {
    /// As it must be: budgets are asked.
    ByEviction,
    /// By deleting the pod: no budget is asked.
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
    /// It goes on after a while.
    For(SignedDuration),
    /// It has crashed: drop it.
    Crashed,
}

/// Whether a call goes on.
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
            // What has taken effect can't be refused any more.
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

    /// Lets time pass: the task goes on after a while.
    pub async fn pause(&self, time: SignedDuration) {
        self.stop(GateState::Waiting(time)).await;
    }

    fn stop(&self, state: GateState) -> Stopped {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        Stopped { polled: false }
    }

    /// Tells the hooks what is asked of the world.
    pub fn hear(&self, asked: AskedCall<'_>) {
        self.hooks.hear(self.task, asked);
    }

    /// Whose gate it is.
    #[must_use]
    pub const fn task(&self) -> &'static str {
        self.task
    }

    /// Who decides.
    #[must_use]
    pub fn hooks(&self) -> &dyn Hooks {
        self.hooks.as_ref()
    }

    /// Why the task's future was pending; the engine asks after each poll.
    #[must_use]
    pub fn take_stop(&self) -> TaskStop {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, GateState::Open) {
            GateState::Waiting(delay) => TaskStop::For(delay),
            GateState::Crashed => TaskStop::Crashed,
            // A future that is pending for another reason than its gate would never go on.
            GateState::Open => TaskStop::For(SignedDuration::ZERO),
        }
    }
}

/// Pending once.
struct Stopped {
    polled: bool,
}

impl Future for Stopped {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.polled, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}
