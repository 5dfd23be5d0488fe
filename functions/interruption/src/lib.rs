//! `interruption`: drains interrupted instances at once, and marks their offering or reservation.
//!
//! Decides the drain, its deadline and the mark. `provisioner` replaces the node, and `lifecycle` terminates the
//! instance.
//!
//! Invariants: an instance costs at most three calls of the table, four in a capacity reservation, and no snapshot is
//! read, so the drain begins within a second of a two-minute warning. Throttled calls and lost races are repeated in
//! the same invocation, because a returned message waits for its visibility timeout. A failing instance doesn't
//! affect the others.
//!
//! Source: aws/karpenter-provider-aws `pkg/controllers/interruption/controller.go`. The peer gives an interrupted
//! node no deadline; here it has EC2's.

pub mod commit;
pub mod execute;
pub mod observe;
pub mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::report::Report;
use tenon_domain::wake::{FunctionName, InterruptionKind, WakeCause};
use tenon_runtime::{Handler, HandlerError, Patient, Ports, WakeScope};
use tenon_state::pass::{AfterCommit, End, Of, Pass, run};
use tenon_table::CommitError;

use crate::observe::InterruptedInstance;
use crate::plan::{InterruptionInput, InterruptionPlan};

/// The function's name in journal records.
pub const NAME: &str = "interruption";

/// How long an invocation waits for a throttled table: its timeout is 10 s, and the doorbells take a moment.
const PATIENCE: SignedDuration = SignedDuration::from_secs(8);
/// Steps of other functions that one instance's drain gives way to. A claim has ten states, and each step is one of
/// them.
const RACES: usize = 10;

/// The function.
#[derive(Debug, Default)]
pub struct Interruption;

impl Interruption {
    /// The function.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
}

/// A pass for one instance; after a lost race it observes and plans again in the same invocation.
struct InstancePass<'a, P> {
    ports: &'a Patient<'a, P>,
    instance: &'a InstanceId,
    warning: Warning,
}

/// The result of a pass's observations.
#[derive(Debug, Default)]
struct InterruptionDone {
    /// The committed plan, with its cluster.
    written: Option<(ClusterName, InterruptionPlan)>,
    /// Whether the last look lost its race.
    lost: bool,
}

impl<'a, P: Ports> Pass for InstancePass<'a, P> {
    type Ports = Patient<'a, P>;
    type Input = InterruptionInput;
    type Plan = Option<InterruptionPlan>;
    type Done = InterruptionDone;

    const ROUNDS: usize = RACES;

    fn ports(&self) -> &Self::Ports {
        self.ports
    }

    fn function(&self) -> FunctionName {
        FunctionName::Interruption
    }

    fn of(&self) -> Of<'_> {
        Of::Region(&self.ports.installation().region)
    }

    async fn observe(&self, _: &mut InterruptionDone) -> Result<Option<InterruptionInput>, HandlerError> {
        let now = self.ports.now();
        let Some(observed) = observe::observe(self.ports, self.instance).await? else { return Ok(None) };
        let InterruptedInstance { cluster, claim, offering, mark } = observed;
        let (Warning { kind, deadline }, instance) = (self.warning, self.instance.clone());
        Ok(Some(InterruptionInput { now, cluster, instance, kind, deadline, claim, offering, mark }))
    }

    /// A warning is acted on or has been: nothing of it is refused.
    fn plan(&self, input: &InterruptionInput) -> (Option<InterruptionPlan>, Report) {
        (plan::plan(input), Report::default())
    }

    async fn commit(
        &self,
        input: &InterruptionInput,
        plan: Option<InterruptionPlan>,
        looked: &mut InterruptionDone,
    ) -> Result<AfterCommit, HandlerError> {
        looked.lost = false;
        let Some(plan) = plan else { return Ok(AfterCommit::Settled) };
        match commit::commit(self.ports, input, &plan).await {
            Ok(()) => {
                looked.written = Some((input.cluster.clone(), plan));
                Ok(AfterCommit::Settled)
            }
            // The claim has stepped meanwhile.
            Err(HandlerError::Commit(CommitError::LostRace { .. } | CommitError::Conflict { .. })) => {
                looked.lost = true;
                Ok(if self.ports.is_over() { AfterCommit::Settled } else { AfterCommit::LookAgain })
            }
            Err(error) => Err(error),
        }
    }

    /// Doorbells are rung for all instances of a cluster together.
    async fn execute(
        &self,
        input: &InterruptionInput,
        looked: &mut InterruptionDone,
    ) -> Result<(), HandlerError> {
        if looked.lost {
            let name = &input.claim.name;
            let message = format!("other functions keep changing NodeClaim `{name}`");
            return Err(HandlerError::Waiting(message));
        }
        Ok(())
    }

    fn end(&self, _: InterruptionInput, _: &InterruptionDone) -> End {
        End::default()
    }
}

/// How an instance is interrupted, and when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Warning {
    kind: InterruptionKind,
    deadline: Option<Timestamp>,
}

impl Warning {
    /// Both: the harder kind, and of two of a kind the earlier end.
    fn and(self, other: Self) -> Self {
        let rank = |warning: Self| match warning.kind {
            InterruptionKind::Spot => 3,
            InterruptionKind::CapacityReservation => 2,
            InterruptionKind::ScheduledChange => 1,
            InterruptionKind::Rebalance => 0,
        };
        let deadline = [self.deadline, other.deadline].into_iter().flatten().min();
        Self { kind: if rank(other) > rank(self) { other.kind } else { self.kind }, deadline }
    }
}

/// The instances of all causes, each with its warnings as one.
fn interrupted(causes: &[WakeCause]) -> BTreeMap<InstanceId, Warning> {
    let mut found: BTreeMap<InstanceId, Warning> = BTreeMap::new();
    for cause in causes {
        let WakeCause::Interruption { instances, kind, deadline } = cause else { continue };
        let warning = Warning { kind: *kind, deadline: *deadline };
        for instance in instances {
            let known = found.entry(instance.clone()).or_insert(warning);
            *known = known.and(warning);
        }
    }
    found
}

impl Handler for Interruption {
    fn name(&self) -> FunctionName {
        FunctionName::Interruption
    }

    async fn handle<P: Ports>(
        &self,
        ports: &P,
        _scope: &WakeScope,
        causes: &[WakeCause],
    ) -> Result<(), HandlerError> {
        let ports = &Patient::new(ports, PATIENCE);
        let mut plans: BTreeMap<ClusterName, Vec<InterruptionPlan>> = BTreeMap::new();
        let mut failed = None;
        for (instance, warning) in interrupted(causes) {
            let looked = run(&InstancePass { ports, instance: &instance, warning }).await;
            match looked.map(|looked| looked.and_then(|looked| looked.written)) {
                Ok(Some((cluster, plan))) => plans.entry(cluster).or_default().push(plan),
                Ok(None) => {}
                Err(error) => failed = Some(failed.unwrap_or(error)),
            }
        }
        for (cluster, plans) in &plans {
            execute::execute(ports, cluster, plans).await;
        }
        failed.map_or(Ok(()), Err)
    }
}
