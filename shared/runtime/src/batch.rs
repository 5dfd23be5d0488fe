//! A batch of messages: wakes by scope, and the messages that go back to the queue.
//!
//! SQS learns the result of a batch only at the end of the invocation. An invocation that is killed or runs out of
//! memory gives no result, so all its messages come back, again and again, until they are dead letters. One cluster
//! must not do that to the others. A batch with returned messages is therefore handled with care (`trials`): the
//! table records the start and the end of each cluster's handling. A cluster whose handling ended an invocation is a
//! suspect and waits until the others are done. It is tried again beside new messages, or alone.
//!
//! Nor must a cluster whose handling is slow, or that sends the most messages: each invocation begins with another one,
//! and one that takes longer than its share continues after the others.
//!
//! Invariants: an unreadable message fails alone; a failing scope returns no other scope's messages; a scope that
//! ends invocations doesn't either, if the queue allows [`RECEIVES_LEAST`] receives; an unhandled message never
//! counts as handled.

mod shares;
mod trials;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use futures::future::{Either, select};
use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::ClusterName;
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::wake::{FunctionName, WakeCause};

pub use self::shares::Shares;

use self::shares::TimeShare;
use self::trials::Trials;
use crate::error::{DEADLINE, HandlerError, SET_ASIDE, chain};
use crate::events;
use crate::handler::{Handler, WakeScope};
use crate::ports::{Ports, Signals};

/// How often the queue must deliver a message before it is a dead letter. Up to three suspects can hold back another
/// cluster's message: it is received once at first, once with each suspect, and once without them.
pub const RECEIVES_LEAST: u32 = 5;

/// How long a scope is handled while others of its batch wait. Then it is stopped, as at the end of an invocation's time,
/// and continues after them: what it committed stays.
pub const SHARE: SignedDuration = SignedDuration::from_secs(5);

/// A message of the function's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// SQS's message id.
    pub id: String,
    /// Its body.
    pub body: String,
    /// How often the message was received, this time included.
    pub received: u32,
}

/// Why a message goes back to the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageFailure {
    /// The message.
    pub message_id: String,
    /// The stable name of the error.
    pub error_type: &'static str,
    /// The error with its causes, for the log.
    pub error: String,
}

/// The wakes of a batch that wait, and the messages that failed so far.
#[derive(Debug, Default)]
pub struct Batch {
    wakes: BTreeMap<WakeScope, ScopeWake>,
    failures: Vec<MessageFailure>,
}

/// The wakes of a scope, and their messages.
#[derive(Debug, Default)]
struct ScopeWake {
    causes: BTreeSet<WakeCause>,
    messages: Vec<String>,
    /// The highest receive count of its messages.
    received: u32,
}

/// How a scope's turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnEnd {
    /// It is handled.
    Handled,
    /// It took longer than its share.
    TimeUp,
}

impl Batch {
    /// Reads messages: wakes of one scope are one wake, a message that can't be read is a failure.
    #[must_use]
    pub fn read(messages: &[Message]) -> Self {
        let mut batch = Self::default();
        for message in messages {
            match events::parse(&message.body) {
                Ok(found) => {
                    for wake in found {
                        let scope = wake.cluster.map_or(WakeScope::Region, WakeScope::Cluster);
                        let waiting = batch.wakes.entry(scope).or_default();
                        waiting.causes.insert(wake.cause);
                        waiting.received = waiting.received.max(message.received);
                        if waiting.messages.last() != Some(&message.id) {
                            waiting.messages.push(message.id.clone());
                        }
                    }
                }
                Err(error) => batch.fail([message.id.clone()], &HandlerError::Message(error)),
            }
        }
        batch
    }

    /// Handles scope after scope. A caller whose time is up drops the future: the current scope and those after it
    /// stay unhandled.
    pub async fn handle<H: Handler, P: Ports>(&mut self, handler: &H, shares: &Shares, ports: &P) {
        self.put_off(handler.name(), shares, ports).await;
        let handler = &InShares { handler, shares };
        if self.wakes.len() > 1 && self.wakes.values().any(|wake| wake.received > 1) {
            return self.handle_with_care(handler, ports).await;
        }
        let mut slow = Vec::new();
        for scope in self.in_turn(ports.now()) {
            if self.take_turn(&scope, handler, ports).await == TurnEnd::TimeUp {
                slow.push(scope);
            }
        }
        for scope in slow {
            self.handle_scope(&scope, handler, ports).await;
        }
    }

    /// Takes the clusters out that have had their share of the process's time: a wake for each comes later. EC2's warnings
    /// leave no time for that, and the processes that take them aren't bounded.
    async fn put_off<P: Ports>(&mut self, function: FunctionName, shares: &Shares, ports: &P) {
        if function == FunctionName::Interruption {
            return;
        }
        let now = ports.now();
        let clusters: Vec<ClusterName> = self.wakes.keys().filter_map(WakeScope::cluster).cloned().collect();
        for cluster in clusters {
            match shares.share(&cluster, now) {
                TimeShare::Free => continue,
                TimeShare::Awaited => {}
                TimeShare::Waits(time) => {
                    ports.signals().wake(function, &cluster, time).await;
                    ports.signals().log(&told(function, &cluster, time, now));
                }
            }
            self.wakes.remove(&WakeScope::Cluster(cluster));
        }
    }

    /// The scopes; the first one is another one each second.
    fn in_turn(&self, now: Timestamp) -> Vec<WakeScope> {
        let mut scopes: Vec<WakeScope> = self.wakes.keys().cloned().collect();
        let second = usize::try_from(now.as_second()).unwrap_or_default();
        let first = second.checked_rem(scopes.len()).unwrap_or_default();
        scopes.rotate_left(first);
        scopes
    }

    /// Handles a scope for as long as its share, or to its end if it is the only one.
    async fn take_turn<H: Handler, P: Ports>(
        &mut self,
        scope: &WakeScope,
        handler: &H,
        ports: &P,
    ) -> TurnEnd {
        if self.wakes.len() == 1 {
            self.handle_scope(scope, handler, ports).await;
            return TurnEnd::Handled;
        }
        let causes = self.causes(scope);
        let handled = {
            let (work, time) = (pin!(handler.handle(ports, scope, &causes)), pin!(ports.pause(SHARE)));
            match select(work, time).await {
                Either::Left((handled, _)) => handled,
                Either::Right(_) => return TurnEnd::TimeUp,
            }
        };
        self.ended(scope, handled);
        TurnEnd::Handled
    }

    async fn handle_scope<H: Handler, P: Ports>(&mut self, scope: &WakeScope, handler: &H, ports: &P) {
        let causes = self.causes(scope);
        let handled = handler.handle(ports, scope, &causes).await;
        self.ended(scope, handled);
    }

    fn causes(&self, scope: &WakeScope) -> Vec<WakeCause> {
        self.wakes.get(scope).map(|wake| wake.causes.iter().cloned().collect()).unwrap_or_default()
    }

    fn ended(&mut self, scope: &WakeScope, handled: Result<(), HandlerError>) {
        let messages = self.wakes.remove(scope).unwrap_or_default().messages;
        if let Err(error) = handled {
            self.fail(messages, &error);
        }
    }

    /// Handles all scopes without a suspicion, and at most one suspect: if that ends the invocation, nothing of the
    /// batch counts as handled.
    async fn handle_with_care<H: Handler, P: Ports>(&mut self, handler: &H, ports: &P) {
        let mut trials = Trials::read(ports, handler.name(), self.wakes.keys()).await;
        let (suspects, others): (Vec<WakeScope>, Vec<WakeScope>) =
            self.in_turn(ports.now()).into_iter().partition(|scope| trials.may_end_an_invocation(scope));
        let tried = self.tried(&suspects, &others, &trials);
        for scope in suspects.iter().filter(|scope| tried.as_ref() != Some(scope)) {
            self.set_aside(scope, trials.begun(scope));
        }
        let mut last = Vec::new();
        for scope in others {
            trials.begin(ports, &scope).await;
            let end = self.take_turn(&scope, handler, ports).await;
            trials.end(ports, &scope).await;
            if end == TurnEnd::TimeUp {
                last.push(scope);
            }
        }
        for scope in last.iter().chain(&tried) {
            trials.begin(ports, scope).await;
            self.handle_scope(scope, handler, ports).await;
            trials.end(ports, scope).await;
        }
    }

    /// The suspect to handle after the others. There is one if there are no others, or if all others are new and the
    /// suspect ended fewer than two invocations. The suspect with the fewest trials wins, then the one with the most
    /// receives.
    fn tried(&self, suspects: &[WakeScope], others: &[WakeScope], trials: &Trials) -> Option<WakeScope> {
        let received = |scope: &WakeScope| self.wakes.get(scope).map_or(0, |wake| wake.received);
        let fresh = others.iter().all(|scope| received(scope) <= 1);
        let may = |scope: &&WakeScope| others.is_empty() || (fresh && trials.begun(scope) <= 1);
        let order = |scope: &&WakeScope| (trials.begun(scope), Reverse(received(scope)));
        suspects.iter().filter(may).min_by_key(order).cloned()
    }

    fn set_aside(&mut self, scope: &WakeScope, begun: u64) {
        let messages = self.wakes.remove(scope).unwrap_or_default().messages;
        let whose = match scope {
            WakeScope::Region => "the region".to_owned(),
            WakeScope::Cluster(cluster) => format!("cluster `{cluster}`"),
        };
        let error = format!(
            "setting {whose} aside: its last {begun} invocations ended without an answer, so the rest of this batch comes \
             first"
        );
        let failure = |message_id| MessageFailure { message_id, error_type: SET_ASIDE, error: error.clone() };
        self.failures.extend(messages.into_iter().map(failure));
    }

    /// The ids of the messages that go back to the queue: failed ones, and those of unhandled scopes.
    #[must_use]
    pub fn into_failures(self) -> Vec<MessageFailure> {
        let mut failures = self.failures;
        let waiting = self.wakes.into_values().flat_map(|wake| wake.messages);
        failures.extend(waiting.map(|message_id| MessageFailure {
            message_id,
            error_type: DEADLINE,
            error: "the invocation timed out before handling this message".to_owned(),
        }));
        failures.sort_by(|a, b| a.message_id.cmp(&b.message_id));
        failures.dedup_by(|a, b| a.message_id == b.message_id);
        failures
    }

    fn fail(&mut self, messages: impl IntoIterator<Item = String>, error: &HandlerError) {
        let (error_type, error) = (error.error_type(), chain(error));
        let failure = |message_id| MessageFailure { message_id, error_type, error: error.clone() };
        self.failures.extend(messages.into_iter().map(failure));
    }
}

/// Handles a batch: wakes of one scope are one wake. Returns the messages that failed (`batchItemFailures`).
pub async fn handle_batch<H: Handler, P: Ports>(
    handler: &H,
    shares: &Shares,
    ports: &P,
    messages: &[Message],
) -> Vec<MessageFailure> {
    let mut batch = Batch::read(messages);
    batch.handle(handler, shares, ports).await;
    batch.into_failures()
}

/// A handler whose use of the process's time is noted.
struct InShares<'h, H> {
    handler: &'h H,
    shares: &'h Shares,
}

impl<H: Handler> Handler for InShares<'_, H> {
    fn name(&self) -> FunctionName {
        self.handler.name()
    }

    async fn handle<P: Ports>(
        &self,
        ports: &P,
        scope: &WakeScope,
        causes: &[WakeCause],
    ) -> Result<(), HandlerError> {
        let _taking = TakenTime { shares: self.shares, ports, scope, from: ports.now() };
        self.handler.handle(ports, scope, causes).await
    }
}

/// Time that a scope takes, also where its handling is stopped.
struct TakenTime<'t, P: Ports> {
    shares: &'t Shares,
    ports: &'t P,
    scope: &'t WakeScope,
    from: Timestamp,
}

impl<P: Ports> Drop for TakenTime<'_, P> {
    fn drop(&mut self) {
        if let Some(cluster) = self.scope.cluster() {
            self.shares.took(cluster, self.from, self.ports.now());
        }
    }
}

fn told(
    function: FunctionName,
    cluster: &ClusterName,
    time: SignedDuration,
    now: Timestamp,
) -> JournalRecord {
    let subject = Subject { kind: SubjectKind::Object, name: format!("Cluster/{cluster}") };
    let seconds = time.as_secs();
    let message = format!(
        "putting cluster `{cluster}` off for {seconds} s: it took most of this function's time, and other clusters want \
         some; if that lasts, look at what changes in the cluster all the time"
    );
    JournalRecord::new(subject, now, function.as_str(), Decision::Waiting, message)
        .detail("reason", "OthersComeFirst")
}
