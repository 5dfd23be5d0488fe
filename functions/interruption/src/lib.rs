//! `interruption`: what EC2 takes back is drained at once, and its offering or reservation is avoided for a while.
//!
//! Decides the drain, its deadline and the mark. It doesn't decide what replaces the node (`provisioner`), nor when the
//! instance is terminated (`lifecycle`).
//!
//! Invariants: at most three calls of the table for each instance, four in a capacity reservation, and no snapshot is
//! read, so a warning of two minutes is acted on in the first second; a throttled call and a lost race are tried again in
//! the same invocation, since a message that goes back is seen again only after its visibility timeout; instances stand on
//! their own, one that fails keeps no other.
//!
//! Source: KARPENTER.md 2.17. The peer gives an interrupted node no deadline; here it is EC2's own.

pub mod commit;
pub mod execute;
pub mod observe;
pub mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::wake::{Cause, FunctionName, InterruptionKind};
use tenon_runtime::{Handler, HandlerError, Patient, Ports, Scope};
use tenon_table::CommitError;

use crate::observe::Observed;
use crate::plan::{Input, Plan};

/// The function's name in journal records.
pub const NAME: &str = "interruption";

/// How long an invocation waits for a throttled table: its timeout is 10 s, and the doorbells take a moment.
const PATIENCE: SignedDuration = SignedDuration::from_secs(8);
/// Steps of other functions that one instance's drain gives way to. A claim has ten states, and each step is one of them.
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

    /// One instance: observe, plan, commit. A lost race is planned again from what is then, in the same invocation.
    async fn instance<P: Ports>(
        &self,
        ports: &Patient<'_, P>,
        (instance, warning): (&InstanceId, Warning),
    ) -> Result<Option<(ClusterName, Plan)>, HandlerError> {
        let mut name = None;
        for _ in 0..RACES {
            let now = ports.now();
            let Some(observed) = observe::observe(ports, instance).await? else { return Ok(None) };
            let Observed { cluster, claim, offering, mark } = observed;
            let Warning { kind, deadline } = warning;
            let instance = instance.clone();
            let input = Input { now, cluster, instance, kind, deadline, claim, offering, mark };
            let (plan, report) = plan::plan(&input);
            match commit::commit(ports, &input, &plan).await {
                Ok(()) => return Ok(report.nothing.is_none().then_some((input.cluster, plan))),
                // The claim went on meanwhile.
                Err(HandlerError::Commit(CommitError::LostRace { .. } | CommitError::Conflict { .. })) => {
                    name = Some(input.claim.name);
                }
                Err(error) => return Err(error),
            }
            if ports.is_over() {
                break;
            }
        }
        let name = name.map_or_else(|| instance.to_string(), |name| name.to_string());
        Err(HandlerError::Waiting(format!("NodeClaim `{name}` is changed by other functions all the time")))
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
fn interrupted(causes: &[Cause]) -> BTreeMap<InstanceId, Warning> {
    let mut found: BTreeMap<InstanceId, Warning> = BTreeMap::new();
    for cause in causes {
        let Cause::Interruption { instances, kind, deadline } = cause else { continue };
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
        _scope: &Scope,
        causes: &[Cause],
    ) -> Result<(), HandlerError> {
        let ports = &Patient::new(ports, PATIENCE);
        let mut plans: BTreeMap<ClusterName, Vec<Plan>> = BTreeMap::new();
        let mut failed = None;
        for (instance, warning) in interrupted(causes) {
            match self.instance(ports, (&instance, warning)).await {
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
