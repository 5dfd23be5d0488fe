//! The frame of a pass: observe, plan, commit, execute, and the end.
//!
//! Decides the order of a function's four steps, the number of looks in a pass, and the writes at its end. It alone has
//! a planner's [`Report`], and hands it to the sink. The function decides what a look reads, plans and commits.
//!
//! Invariants: the sink gets the last round's report, even if its commit fails; a pass ends after [`Pass::ROUNDS`]
//! rounds; a look that a sweep would be late for has its message, however far away it was planned.

use std::future::Future;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::catalog::HeldOffering;
use tenon_domain::id::ClusterName;
use tenon_domain::report::Report;
use tenon_domain::wait::later;
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_runtime::ports::WAKE_AT_MOST;
use tenon_runtime::{HandlerError, Ports, Signals, WakeScope};
use tenon_table::items::{Generations, SeenRecord, keys, set};
use tenon_table::{CommitError, Table, Write, content_commit};

use crate::heads::{Heads, glance, sharpness};
use crate::observe::Caches;
pub use crate::tell::Of;
use crate::tell::{TOLD_AGAIN_AFTER, Telling};
use crate::view::Wants;

/// The time until a function with a waiting decision looks again.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(55);

/// The function's part of a pass.
pub trait Pass: Sync {
    /// The ports.
    type Ports: Ports;
    /// The observation of a look.
    type Input: Send + Sync;
    /// The planned writes.
    type Plan: Send;
    /// The result of the pass.
    type Done: Default + Send + Sync;

    /// The most rounds of a pass: the first one, and one after each [`AfterCommit`] that isn't settled.
    const ROUNDS: usize = 3;

    /// The ports.
    fn ports(&self) -> &Self::Ports;
    /// The function.
    fn function(&self) -> FunctionName;
    /// The cluster or the region of the pass.
    fn of(&self) -> Of<'_>;
    /// Reads everything; `None` if there is nothing to plan.
    fn observe(
        &self,
        done: &mut Self::Done,
    ) -> impl Future<Output = Result<Option<Self::Input>, HandlerError>> + Send;
    /// Plans, purely.
    fn plan(&self, input: &Self::Input) -> (Self::Plan, Report);
    /// Writes a plan.
    fn commit(
        &self,
        input: &Self::Input,
        plan: Self::Plan,
        done: &mut Self::Done,
    ) -> impl Future<Output = Result<AfterCommit, HandlerError>> + Send;
    /// Extends the observation after [`AfterCommit::SeeMore`].
    fn see_more(
        &self,
        _input: &mut Self::Input,
        _done: &mut Self::Done,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send {
        async { Ok(()) }
    }
    /// Executes committed decisions: sends doorbells, calls EC2.
    fn execute(
        &self,
        input: &Self::Input,
        done: &mut Self::Done,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
    /// The end of the pass.
    fn end(&self, input: Self::Input, done: &Self::Done) -> End;
}

/// The next step after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterCommit {
    /// None: the whole plan is written.
    Settled,
    /// Another look, after a lost race or a write that allows further planning.
    LookAgain,
    /// A larger observation in the same look; nothing was written.
    SeeMore,
}

/// The end of a pass.
#[derive(Debug, Default)]
pub struct End {
    /// The record for the next sweep to compare, if the function keeps one.
    pub seen: Option<SeenOf>,
    /// The time when the function wakes itself.
    pub wake_at: Option<Timestamp>,
}

/// The input of a cluster's pass.
#[derive(Debug, Default)]
pub struct SeenOf {
    /// The generations.
    pub generations: Generations,
    /// The latest time for the next look.
    pub deadline: Option<Timestamp>,
    /// A look that a sweep would be late for, and for which the function sends no message now.
    pub due: Option<Timestamp>,
    /// The record of the previous pass.
    pub before: Option<SeenRecord>,
    /// How the function gets back to waiting decisions.
    pub waits: Waits,
    /// The offerings of the cluster's instances, where the function tells them.
    pub offerings: Vec<HeldOffering>,
    /// When it knew them so, if an earlier pass did.
    pub offerings_at: Option<Timestamp>,
}

/// How a function gets back to waiting decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Waits {
    /// It wakes itself.
    #[default]
    LookAgain,
    /// It has set its own deadline.
    Deadline,
}

/// Runs a pass; `None` if there was nothing to plan.
///
/// # Errors
/// [`HandlerError`] returns the messages to the queue; committed writes stay valid.
pub async fn run<F: Pass>(pass: &F) -> Result<Option<F::Done>, HandlerError> {
    let now = pass.ports().now();
    let mut done = F::Done::default();
    // The functions' futures are large: boxed, a small stack suffices.
    let Some(mut input) = Box::pin(pass.observe(&mut done)).await? else { return Ok(None) };
    let mut rounds = 1;
    let (report, mut failed) = loop {
        let (plan, report) = pass.plan(&input);
        match pass.commit(&input, plan, &mut done).await {
            Ok(AfterCommit::LookAgain) if rounds < F::ROUNDS => match Box::pin(pass.observe(&mut done)).await
            {
                Ok(Some(next)) => input = next,
                Ok(None) => break (report, None),
                Err(error) => break (report, Some(error)),
            },
            Ok(AfterCommit::SeeMore) if rounds < F::ROUNDS => {
                if let Err(error) = pass.see_more(&mut input, &mut done).await {
                    break (report, Some(error));
                }
            }
            Ok(AfterCommit::Settled | AfterCommit::LookAgain | AfterCommit::SeeMore) => break (report, None),
            Err(error) => break (report, Some(error)),
        }
        rounds += 1;
    };
    if failed.is_none() {
        failed = Box::pin(pass.execute(&input, &mut done)).await.err();
        finish(pass, pass.end(input, &done), report, now).await?;
    } else {
        // The messages return to the queue, and the next pass repeats the plan. Its refusals are told now.
        finish(pass, End::default(), report, now).await?;
    }
    failed.map_or(Ok(Some(done)), Err)
}

/// Tells the report, writes the record of the pass, and wakes the function when it must look again.
async fn finish<F: Pass>(pass: &F, end: End, report: Report, now: Timestamp) -> Result<(), HandlerError> {
    let (ports, function) = (pass.ports(), pass.function());
    let looks_again = report.waits().then(|| later(now, LOOK_AGAIN));
    let End { seen, mut wake_at } = end;
    let before = seen.as_ref().and_then(|seen| seen.before.as_ref());
    let revision = seen.as_ref().map_or(0, |seen| seen.generations.revision);
    let telling = Telling { function, of: pass.of(), now, revision };
    let telltale = telling.tell(ports, report, before).await?;
    let mut writes = telltale.writes;
    if let (Some(seen), Of::Cluster(cluster)) = (seen, pass.of()) {
        let waits = looks_again.filter(|_| seen.waits == Waits::LookAgain);
        wake_at = [wake_at, waits].into_iter().flatten().min();
        let told_again = telltale.told_at.map(|at| later(at, TOLD_AGAIN_AFTER));
        let unsent = wake_at.filter(|at| is_far(now, *at));
        let seen = SeenRecord {
            function,
            generations: seen.generations,
            deadline: [seen.deadline, waits, told_again].into_iter().flatten().min(),
            wake_at: [seen.due, unsent].into_iter().flatten().min(),
            at: now,
            refusals: telltale.digest,
            told_at: telltale.told_at,
            offerings: seen.offerings,
            offerings_at: seen.offerings_at,
        };
        writes.push(set(keys::seen(cluster, function), &seen));
    }
    if let (Some(at), Of::Cluster(cluster)) = (wake_at.filter(|at| !is_far(now, *at)), pass.of()) {
        wake_again(ports, function, cluster, at).await;
    }
    write(ports, writes).await
}

/// Writes all in one commit.
async fn write<P: Ports>(ports: &P, writes: Vec<Write>) -> Result<(), HandlerError> {
    if writes.is_empty() {
        return Ok(());
    }
    ports.table().commit(&content_commit(Vec::new(), writes)).await.map_err(CommitError::into)
}

/// The cluster of a wake, if the function's input changed. The first look uses the glance's heads if they were read
/// consistently. A wake of the region has none: launches and commands belong to clusters.
///
/// # Errors
/// [`HandlerError::Read`] and [`HandlerError::Item`].
pub async fn changed<'s, P: Ports>(
    ports: &P,
    scope: &'s WakeScope,
    causes: &[WakeCause],
    wants: Wants<'_>,
    caches: &Caches,
) -> Result<Option<&'s ClusterName>, HandlerError> {
    let cluster = match scope {
        WakeScope::Region => return Ok(None),
        WakeScope::Cluster(cluster) => cluster,
    };
    let now = ports.now();
    let heads = glance(ports, cluster, wants, sharpness(causes)).await?;
    let changed = !heads.unchanged(now);
    if !changed {
        wake_when_due(ports, cluster, &heads, causes).await;
    }
    caches.glanced(cluster, heads.strong());
    Ok(changed.then_some(cluster))
}

/// The time of the next look of a function that waits since `now`.
#[must_use]
pub fn look_again(now: Timestamp) -> Timestamp {
    later(now, LOOK_AGAIN)
}

/// Whether a look is too far away for a delayed message.
fn is_far(now: Timestamp, at: Timestamp) -> bool {
    at.duration_since(now) > WAKE_AT_MOST
}

/// Sends the message of a look that comes before the next sweep. The pass that named its time was too early for it, and a
/// sweep of an unchanged world is no pass.
pub async fn wake_when_due<P: Ports>(ports: &P, cluster: &ClusterName, heads: &Heads, causes: &[WakeCause]) {
    // Other wakes may come by the hundred. A sweep in one batch with them may be the last one.
    let swept = heads.seen.as_ref().filter(|_| causes.contains(&WakeCause::Sweep));
    let Some((seen, at)) = swept.and_then(|seen| Some((seen, seen.wake_at?))) else { return };
    let after = at.duration_since(ports.now());
    if after.is_positive() && after < between_sweeps(seen.function) {
        ports.signals().wake(seen.function, cluster, after).await;
    }
}

/// The longest time between two sweeps: that of the function's schedule, and a minute by which a schedule may be late.
const fn between_sweeps(function: FunctionName) -> SignedDuration {
    match function {
        FunctionName::NodeClasses | FunctionName::Disruption => SignedDuration::from_mins(6),
        FunctionName::Catalog
        | FunctionName::Images
        | FunctionName::Provisioner
        | FunctionName::Lifecycle
        | FunctionName::Interruption => SignedDuration::from_mins(4),
    }
}

/// Wakes the function itself at `at`.
async fn wake_again<P: Ports>(ports: &P, function: FunctionName, cluster: &ClusterName, at: Timestamp) {
    let after = at.duration_since(ports.now()).clamp(SignedDuration::ZERO, WAKE_AT_MOST);
    ports.signals().wake(function, cluster, after).await;
}

#[cfg(test)]
mod tests;
