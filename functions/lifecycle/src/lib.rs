//! `lifecycle`: a claim's steps from its instance to its end, the pools' statuses, and orphans.
//!
//! Decides registration, initialisation, timeouts, expiry, users' deletions, termination, and the removal of old
//! items and of launch templates that nothing needs. It is the only function that terminates instances. It launches
//! nothing, and begins no voluntary disruption.
//!
//! Invariants: a termination is committed first, and repeated until EC2 confirms it; while `HALT` exists nothing is
//! terminated; a sweep of an unchanged world ends after one read.

pub mod audit;
pub mod audit_record;
pub mod boots;
pub mod commit;
mod consistency;
mod console;
mod draining;
pub mod execute;
mod expiry;
mod gone;
pub mod input;
pub mod learn;
pub mod node;
pub mod observe;
pub mod plan;
pub mod pools;
pub mod remind;
mod repair;
pub mod statuses;
pub mod step;
pub mod strays;
pub mod templates;
pub mod templates_view;
#[cfg(test)]
mod tests;
pub mod unneeded;

use std::collections::BTreeSet;

use jiff::SignedDuration;
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::report::Report;
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_ec2::Ec2Error;
use tenon_runtime::patient::PATIENCE;
use tenon_runtime::{Handler, HandlerError, Patient, Ports, WakeScope};
use tenon_snapshot::snapshot::ChunkCaches;
use tenon_state::heads::sharpness;
use tenon_state::pass::{AfterCommit, End, Of, Pass, SeenOf, Waits, run, wake_when_due};

use crate::commit::CommittedClaims;
use crate::execute::SWEEP_EVERY;
use crate::input::LifecycleInput;
use crate::observe::ChangeCheck;
use crate::plan::LifecyclePlan;
use crate::statuses::{StatusPass, StatusView, StatusesSeen};

/// The function's name in journal records.
pub const NAME: &str = "lifecycle";
/// The interval of audits, which query all instances of a cluster.
pub const AUDIT_EVERY: SignedDuration = SignedDuration::from_mins(10);
/// How often a terminating instance is queried.
pub const TERMINATION_POLL: SignedDuration = SignedDuration::from_secs(30);

/// The function.
#[derive(Debug, Default)]
pub struct Lifecycle {
    /// Chunks of snapshots by cluster: immutable, so they are worth keeping between wakes.
    chunks: ChunkCaches,
}

impl Lifecycle {
    /// The function, with nothing remembered.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    async fn cluster<P: Ports>(
        &self,
        ports: &P,
        cluster: &ClusterName,
        look: LookDepth<'_>,
        causes: &[WakeCause],
    ) -> Result<(), HandlerError> {
        let now = ports.now();
        let check = observe::observe_check(ports, cluster, sharpness(causes)).await?;
        if causes.contains(&WakeCause::Sweep) {
            remind::remind(ports, cluster, &check, now).await;
        }
        if check.heads.unchanged(now) && look == LookDepth::IfChanged {
            wake_when_due(ports, cluster, &check.heads, causes).await;
            return Ok(());
        }
        run(&LifecyclePass { ports, cluster, chunks: &self.chunks, check, look }).await?;
        Ok(())
    }

    /// Looks at the status of the region's instances, and at the clusters for which it is news.
    async fn look_at_statuses<P: Ports>(&self, ports: &P) -> Result<(), HandlerError> {
        let Some(StatusesSeen { view, clusters }) = run(&StatusPass { ports }).await? else { return Ok(()) };
        self.each(ports, clusters, LookDepth::AtStatuses(&view), &[WakeCause::StateChanged]).await
    }

    /// Looks at clusters of a region's wake. One that can't be read doesn't stop the others.
    async fn each<P: Ports>(
        &self,
        ports: &P,
        clusters: BTreeSet<ClusterName>,
        look: LookDepth<'_>,
        causes: &[WakeCause],
    ) -> Result<(), HandlerError> {
        let mut failed = None;
        for cluster in clusters {
            if let Err(error) = self.cluster(ports, &cluster, look, causes).await {
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// A pass of a cluster in which something changed or is due.
struct LifecyclePass<'a, P> {
    ports: &'a P,
    cluster: &'a ClusterName,
    chunks: &'a ChunkCaches,
    check: ChangeCheck,
    look: LookDepth<'a>,
}

/// The result of a pass's observations.
#[derive(Debug, Default)]
struct LifecycleDone {
    plan: LifecyclePlan,
    done: CommittedClaims,
    /// Instances that the plan gives up, whose consoles are looked at next.
    given_up: Vec<InstanceId>,
    /// The error of the query to EC2, if it failed.
    refused: Option<Ec2Error>,
    /// Why a due look at launch templates saw nothing, if it didn't. Nothing else waits for them.
    templates_failed: Option<HandlerError>,
}

impl<P: Ports> Pass for LifecyclePass<'_, P> {
    type Ports = P;
    type Input = LifecycleInput;
    type Plan = LifecyclePlan;
    type Done = LifecycleDone;

    fn ports(&self) -> &P {
        self.ports
    }

    fn function(&self) -> FunctionName {
        FunctionName::Lifecycle
    }

    fn of(&self) -> Of<'_> {
        Of::Cluster(self.cluster)
    }

    async fn observe(&self, looked: &mut LifecycleDone) -> Result<Option<LifecycleInput>, HandlerError> {
        let now = self.ports.now();
        let mut cache = self.chunks.take(self.cluster);
        let observed = observe::observe(self.ports, self.cluster, &self.check, now, &mut cache).await;
        self.chunks.put(self.cluster, cache);
        let mut input = observed?;
        input.statuses = match self.look {
            LookDepth::AtStatuses(seen) => Some(seen.clone()),
            LookDepth::IfChanged | LookDepth::AtInstances if self.check.audit.impaired.is_empty() => None,
            // The region's sweep tells what EC2 refuses.
            LookDepth::IfChanged | LookDepth::AtInstances => statuses::observe_checks(self.ports).await.ok(),
        };
        let due = self.check.audit.is_due(now);
        if due || self.look == LookDepth::AtInstances || boots::asks_ec2(&input) {
            looked.refused = ask_ec2(self.ports, &mut input).await?;
        }
        if due && looked.refused.is_none() && templates::is_due(&input) {
            let revision = self.check.heads.generations.revision;
            let answer = templates_view::observe_templates(self.ports, &mut input, revision).await;
            looked.templates_failed = answer.err();
        }
        input.gone = strays::observe_strays(self.ports, &input).await;
        Ok(Some(input))
    }

    fn plan(&self, input: &LifecycleInput) -> (LifecyclePlan, Report) {
        plan::plan(input)
    }

    async fn commit(
        &self,
        input: &LifecycleInput,
        plan: LifecyclePlan,
        looked: &mut LifecycleDone,
    ) -> Result<AfterCommit, HandlerError> {
        if plan.asks_ec2 && input.ec2.is_none() && looked.refused.is_none() {
            return Ok(AfterCommit::SeeMore);
        }
        if input.consoles.is_none() {
            looked.given_up = console::given_up(&plan);
            if !looked.given_up.is_empty() {
                return Ok(AfterCommit::SeeMore);
            }
        }
        looked.plan = plan;
        if looked.refused.is_some() {
            looked.plan.wake_at = input.now.saturating_add(TERMINATION_POLL).unwrap_or(input.now);
        }
        looked.done = commit::commit(self.ports, self.cluster, &looked.plan, input.now).await?;
        Ok(AfterCommit::Settled)
    }

    async fn see_more(
        &self,
        input: &mut LifecycleInput,
        looked: &mut LifecycleDone,
    ) -> Result<(), HandlerError> {
        match std::mem::take(&mut looked.given_up).as_slice() {
            [] => looked.refused = ask_ec2(self.ports, input).await?,
            given_up => input.consoles = Some(console::observe(self.ports, self.cluster, given_up).await?),
        }
        Ok(())
    }

    async fn execute(&self, input: &LifecycleInput, looked: &mut LifecycleDone) -> Result<(), HandlerError> {
        let LifecycleDone { plan, done, refused, templates_failed, .. } = looked;
        let executed = execute::execute(self.ports, self.cluster, plan, done, input.now).await;
        executed?;
        done.not_learned.take().map_or(Ok(()), Err)?;
        let failed = refused.take().map(HandlerError::from).or_else(|| templates_failed.take());
        match failed {
            None
            | Some(HandlerError::Ec2(
                Ec2Error::Throttled { .. } | Ec2Error::ServerError { .. } | Ec2Error::NoAnswer { .. },
            )) => Ok(()),
            Some(error) => Err(error),
        }
    }

    fn end(&self, input: LifecycleInput, looked: &LifecycleDone) -> End {
        let seen = SeenOf {
            generations: self.check.heads.generations.clone(),
            deadline: Some(if looked.done.looks_again() { input.now } else { looked.plan.wake_at }),
            due: looked.plan.due_at.filter(|at| at.duration_since(input.now) >= SWEEP_EVERY),
            before: self.check.heads.seen.clone(),
            waits: Waits::Deadline,
            offerings: Vec::new(),
            offerings_at: None,
        };
        End { seen: Some(seen), wake_at: None }
    }
}

/// How hard to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LookDepth<'a> {
    /// Only if something changed or is due.
    IfChanged,
    /// Always, for EC2's instances.
    AtInstances,
    /// Always, for what the region's look at statuses saw.
    AtStatuses(&'a StatusView),
}

/// Queries EC2. A refusal is returned, so that everything else is planned.
async fn ask_ec2<P: Ports>(ports: &P, input: &mut LifecycleInput) -> Result<Option<Ec2Error>, HandlerError> {
    match observe::observe_ec2(ports, input).await {
        Ok(()) => Ok(None),
        Err(HandlerError::Ec2(error)) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Instances that events report as leaving; the agent sees starting ones.
fn leaving(causes: &[WakeCause]) -> BTreeSet<InstanceId> {
    let instance = |cause: &WakeCause| match cause {
        WakeCause::InstanceState { instance, state } => {
            let leaves = matches!(state.as_str(), "shutting-down" | "stopping" | "stopped" | "terminated");
            leaves.then(|| instance.clone())
        }
        WakeCause::Sweep
        | WakeCause::Refresh(_)
        | WakeCause::SnapshotChanged
        | WakeCause::StateChanged
        | WakeCause::ZonalShift
        | WakeCause::ImageChanged(_)
        | WakeCause::Interruption { .. } => None,
    };
    causes.iter().filter_map(instance).collect()
}

impl Handler for Lifecycle {
    fn name(&self) -> FunctionName {
        FunctionName::Lifecycle
    }

    async fn handle<P: Ports>(
        &self,
        ports: &P,
        scope: &WakeScope,
        causes: &[WakeCause],
    ) -> Result<(), HandlerError> {
        let ports = &Patient::new(ports, PATIENCE);
        let instances = leaving(causes);
        match scope {
            WakeScope::Cluster(cluster) => {
                let look = if instances.is_empty() { LookDepth::IfChanged } else { LookDepth::AtInstances };
                self.cluster(ports, cluster, look, causes).await
            }
            WakeScope::Region => {
                let mut failed = None;
                if causes.contains(&WakeCause::Sweep) {
                    failed = self.look_at_statuses(ports).await.err();
                }
                if !instances.is_empty() {
                    let clusters = observe::observe_clusters(ports, &instances).await?;
                    let looked = self.each(ports, clusters, LookDepth::AtInstances, causes).await;
                    failed = failed.or(looked.err());
                }
                failed.map_or(Ok(()), Err)
            }
        }
    }
}
