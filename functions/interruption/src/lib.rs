//! `interruption`: what EC2 takes back is drained at once, and its offering is avoided for a while.
//!
//! Decides the drain, its deadline and the mark. It doesn't decide what replaces the node (`provisioner`), nor when the
//! instance is terminated (`lifecycle`).
//!
//! Invariants: at most three calls of the table for each instance, and no snapshot is read, so a warning of two minutes
//! is acted on in the first second; instances stand on their own, one that fails keeps no other.
//!
//! Source: KARPENTER.md 2.17. The peer gives an interrupted node no deadline; here it is EC2's own.

pub mod commit;
pub mod execute;
pub mod observe;
pub mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::wake::{Cause, FunctionName, InterruptionKind};
use tenon_entrypoint::{Handler, HandlerError, Ports, Scope};
use tenon_table::CommitError;

use crate::observe::Observed;
use crate::plan::{Input, Plan};

/// The function's name in journal records.
pub const NAME: &str = "interruption";

/// The function.
#[derive(Debug, Default)]
pub struct Interruption;

impl Interruption {
    /// The function.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    /// One instance: observe, plan, commit. A lost race sends the message back, to be planned from what is then.
    async fn instance<P: Ports>(
        &self,
        ports: &P,
        instance: &InstanceId,
        kind: InterruptionKind,
    ) -> Result<Option<(ClusterName, Plan)>, HandlerError> {
        let now = ports.now();
        let Some(observed) = observe::observe(ports, instance).await? else { return Ok(None) };
        let Observed { cluster, claim, offering, mark } = observed;
        let instance = instance.clone();
        let input = Input { now, cluster: cluster.clone(), instance, kind, claim, offering, mark };
        let (plan, report) = plan::plan(&input);
        match commit::commit(ports, &input, &plan).await {
            Ok(()) => {}
            // The claim went on meanwhile; the message comes again, and is planned from what it is then.
            Err(HandlerError::Commit(CommitError::LostRace { .. } | CommitError::Conflict { .. })) => {
                return Err(HandlerError::Waiting(format!(
                    "NodeClaim `{}` was changed by another function",
                    input.claim.name
                )));
            }
            Err(error) => return Err(error),
        }
        match report.nothing {
            Some(_) => Ok(None),
            None => Ok(Some((cluster, plan))),
        }
    }
}

/// The instances of all causes, each with the way in which it is interrupted; the hardest where there are several.
fn interrupted(causes: &[Cause]) -> BTreeMap<InstanceId, InterruptionKind> {
    let rank = |kind: InterruptionKind| match kind {
        InterruptionKind::Spot => 3,
        InterruptionKind::CapacityReservation => 2,
        InterruptionKind::ScheduledChange => 1,
        InterruptionKind::Rebalance => 0,
    };
    let mut found: BTreeMap<InstanceId, InterruptionKind> = BTreeMap::new();
    for cause in causes {
        let Cause::Interruption { instances, kind } = cause else { continue };
        for instance in instances {
            let known = found.entry(instance.clone()).or_insert(*kind);
            if rank(*kind) > rank(*known) {
                *known = *kind;
            }
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
        let mut plans: BTreeMap<ClusterName, Vec<Plan>> = BTreeMap::new();
        let mut failed = None;
        for (instance, kind) in interrupted(causes) {
            match self.instance(ports, &instance, kind).await {
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
