//! The frame of a pass: observe, plan, commit, execute, and the end.
//!
//! Decides in which order a function's four steps run, how often a pass looks again at what it left, and what is written
//! at its end. It alone has a planner's [`Report`], and gives it to the sink. What a look reads, plans and commits is the
//! function's.
//!
//! Invariants: no report is dropped, also where a commit fails; a pass ends after [`Pass::ROUNDS`] looks.

use std::future::Future;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::ClusterName;
use tenon_domain::report::Report;
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_runtime::ports::WAKE_AT_MOST;
use tenon_runtime::{HandlerError, Ports, Signals, WakeScope};
use tenon_table::items::{Generations, SeenRecord, keys, set};
use tenon_table::{CommitError, Table, Write, content_commit};

use crate::heads::{glance, sharpness};
use crate::observe::Caches;
pub use crate::tell::Of;
use crate::tell::{TOLD_AGAIN_AFTER, Telling};
use crate::view::Wants;

/// Where something waits, the function looks again after this.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(55);

/// What a function does of its own in a pass.
pub trait Pass: Sync {
    /// The ports.
    type Ports: Ports;
    /// Everything that a look saw.
    type Input: Send + Sync;
    /// What is to be done.
    type Plan: Send;
    /// What the looks of the pass came to.
    type Done: Default + Send + Sync;

    /// Looks of a pass at most: the first, and those at what it left.
    const ROUNDS: usize = 3;

    /// The ports.
    fn ports(&self) -> &Self::Ports;
    /// The function.
    fn function(&self) -> FunctionName;
    /// Of whom it is.
    fn of(&self) -> Of<'_>;
    /// Reads everything; nothing where there is nothing to plan.
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
    /// Sees more of what it looks at: what [`AfterCommit::SeeMore`] asks for.
    fn see_more(
        &self,
        _input: &mut Self::Input,
        _done: &mut Self::Done,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send {
        async { Ok(()) }
    }
    /// Does what is committed: rings doorbells, calls EC2.
    fn execute(
        &self,
        input: &Self::Input,
        done: &mut Self::Done,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
    /// What the pass ends with.
    fn end(&self, input: Self::Input, done: &Self::Done) -> End;
}

/// What comes after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterCommit {
    /// Nothing: all that was planned is written.
    Settled,
    /// Another look: a race was lost, or what was written changes what can be planned.
    LookAgain,
    /// Nothing was written: the same look must see more first.
    SeeMore,
}

/// What a pass ends with.
#[derive(Debug, Default)]
pub struct End {
    /// What a sweep compares, where the function keeps it.
    pub seen: Option<SeenOf>,
    /// When the function wakes itself.
    pub wake_at: Option<Timestamp>,
}

/// What a pass of a cluster planned from.
#[derive(Debug, Default)]
pub struct SeenOf {
    /// The generations.
    pub generations: Generations,
    /// When it must look again at the latest.
    pub deadline: Option<Timestamp>,
    /// What the pass before wrote here.
    pub before: Option<SeenRecord>,
    /// Whether what waits is looked at again by this function itself, before the next sweep.
    pub waits: Waits,
}

/// What a function does about what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Waits {
    /// It wakes itself.
    #[default]
    LookAgain,
    /// It has a deadline of its own for it.
    Deadline,
}

/// Runs a pass; gives what its looks came to, and nothing where there was nothing to plan.
///
/// # Errors
/// [`HandlerError`] sends the messages back to the queue; what was committed stays valid.
pub async fn run<F: Pass>(pass: &F) -> Result<Option<F::Done>, HandlerError> {
    let now = pass.ports().now();
    let mut done = F::Done::default();
    let Some(mut input) = pass.observe(&mut done).await? else { return Ok(None) };
    let mut rounds = 1;
    let (report, mut failed) = loop {
        let (plan, report) = pass.plan(&input);
        match pass.commit(&input, plan, &mut done).await {
            Ok(AfterCommit::LookAgain) if rounds < F::ROUNDS => match pass.observe(&mut done).await {
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
        failed = pass.execute(&input, &mut done).await.err();
        finish(pass, pass.end(input, &done), report, now).await?;
    } else {
        // The messages come back, and the next pass sees the same; what was refused is told all the same.
        finish(pass, End::default(), report, now).await?;
    }
    failed.map_or(Ok(Some(done)), Err)
}

/// Tells what was refused, writes what was planned from, and wakes the function when it must look again.
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
        let seen = SeenRecord {
            function,
            generations: seen.generations,
            deadline: [seen.deadline, waits, told_again].into_iter().flatten().min(),
            at: now,
            refusals: telltale.digest,
            told_at: telltale.told_at,
        };
        writes.push(set(keys::seen(cluster, function), &seen));
    }
    if let (Some(at), Of::Cluster(cluster)) = (wake_at, pass.of()) {
        wake_again(ports, function, cluster, at).await;
    }
    write(ports, writes).await
}

/// Writes all of it, or what belongs together where that is too much for one transaction.
async fn write<P: Ports>(ports: &P, writes: Vec<Write>) -> Result<(), HandlerError> {
    if writes.is_empty() {
        return Ok(());
    }
    ports.table().commit(&content_commit(Vec::new(), writes)).await.map_err(CommitError::into)
}

/// The cluster that a wake is about, where anything changed that the function plans from. Its first look is made from
/// what the glance read, where that was read consistently. Launches and commands are a
/// cluster's; the region's events are for others.
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
    caches.glanced(cluster, heads.strong());
    Ok(changed.then_some(cluster))
}

/// When a function that waits since `now` looks again.
#[must_use]
pub fn look_again(now: Timestamp) -> Timestamp {
    later(now, LOOK_AGAIN)
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(at)
}

/// Wakes the function itself at a moment, or as late as a wake can be before it.
async fn wake_again<P: Ports>(ports: &P, function: FunctionName, cluster: &ClusterName, at: Timestamp) {
    let after = at.duration_since(ports.now()).clamp(SignedDuration::ZERO, WAKE_AT_MOST);
    ports.signals().wake(function, cluster, after).await;
}

#[cfg(test)]
mod tests;
