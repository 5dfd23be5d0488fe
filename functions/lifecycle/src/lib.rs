//! `lifecycle`: a claim's steps from its instance to its end, the pools' statuses, and orphans.
//!
//! Decides registration, initialisation, timeouts, expiry, users' deletions, termination, and the removal of old
//! items. It is the only function that terminates instances. It launches nothing, and begins no voluntary disruption.
//!
//! Invariants: a termination is committed first, and repeated until EC2 confirms it; while `HALT` exists nothing is
//! terminated; a sweep of an unchanged world ends after one read.

pub mod audit;
pub mod audit_record;
pub mod commit;
pub mod execute;
pub mod input;
pub mod learn;
pub mod node;
pub mod observe;
pub mod plan;
pub mod pools;
pub mod remind;
pub mod step;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use jiff::SignedDuration;
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::report::Report;
use tenon_domain::wake::{Cause, FunctionName};
use tenon_ec2::Ec2Error;
use tenon_runtime::patient::PATIENCE;
use tenon_runtime::{Handler, HandlerError, Patient, Ports, Scope};
use tenon_snapshot::snapshot::ChunkCaches;
use tenon_state::pass::{End, Next, Of, Pass, SeenOf, Waits, run};
use tenon_state::view::sharpness;

use tenon_table::Consistency;

use crate::commit::Committed;
use crate::input::Input;
use crate::observe::Gate;
use crate::plan::Plan;

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
        (look, sharpness): (Look, Consistency),
        causes: &[Cause],
    ) -> Result<(), HandlerError> {
        let now = ports.now();
        let gate = observe::observe_gate(ports, cluster, sharpness).await?;
        if causes.contains(&Cause::Sweep) {
            remind::remind(ports, cluster, &gate, now).await;
        }
        let unchanged = gate.seen.as_ref().is_some_and(|seen| seen.unchanged(now, &gate.generations));
        if unchanged && look == Look::IfChanged {
            return Ok(());
        }
        run(&LifecyclePass { ports, cluster, chunks: &self.chunks, gate, look }).await?;
        Ok(())
    }
}

/// A pass of a cluster in which something changed or is due.
struct LifecyclePass<'a, P> {
    ports: &'a P,
    cluster: &'a ClusterName,
    chunks: &'a ChunkCaches,
    gate: Gate,
    look: Look,
}

/// The result of a pass's observations.
#[derive(Debug, Default)]
struct Looked {
    plan: Plan,
    done: Committed,
    /// The error of the query to EC2, if it failed.
    refused: Option<Ec2Error>,
}

impl<P: Ports> Pass for LifecyclePass<'_, P> {
    type Ports = P;
    type Input = Input;
    type Plan = Plan;
    type Done = Looked;

    fn ports(&self) -> &P {
        self.ports
    }

    fn function(&self) -> FunctionName {
        FunctionName::Lifecycle
    }

    fn of(&self) -> Of<'_> {
        Of::Cluster(self.cluster)
    }

    async fn observe(&self, looked: &mut Looked) -> Result<Option<Input>, HandlerError> {
        let now = self.ports.now();
        let mut cache = self.chunks.take(self.cluster);
        let observed = observe::observe(self.ports, self.cluster, &self.gate, (now, &mut cache)).await;
        self.chunks.put(self.cluster, cache);
        let mut input = observed?;
        let due = self.gate.audit.at.is_none_or(|at| now.duration_since(at) >= AUDIT_EVERY);
        if due || self.look == Look::AtInstances {
            looked.refused = ask_ec2(self.ports, &mut input).await?;
        }
        Ok(Some(input))
    }

    fn plan(&self, input: &Input) -> (Plan, Report) {
        plan::plan(input)
    }

    async fn commit(&self, input: &Input, plan: Plan, looked: &mut Looked) -> Result<Next, HandlerError> {
        if plan.asks_ec2 && input.ec2.is_none() && looked.refused.is_none() {
            return Ok(Next::SeeMore);
        }
        looked.plan = plan;
        if looked.refused.is_some() {
            looked.plan.wake_at = input.now.saturating_add(TERMINATION_POLL).unwrap_or(input.now);
        }
        looked.done = commit::commit(self.ports, self.cluster, &looked.plan, input.now).await?;
        Ok(Next::Settled)
    }

    async fn see_more(&self, input: &mut Input, looked: &mut Looked) -> Result<(), HandlerError> {
        looked.refused = ask_ec2(self.ports, input).await?;
        Ok(())
    }

    async fn execute(&self, input: &Input, looked: &mut Looked) -> Result<(), HandlerError> {
        let Looked { plan, done, refused } = looked;
        let executed = execute::execute(self.ports, self.cluster, plan, (done, input.now)).await;
        executed?;
        done.not_learned.take().map_or(Ok(()), Err)?;
        match refused.take() {
            None
            | Some(Ec2Error::Throttled { .. } | Ec2Error::ServerError { .. } | Ec2Error::NoAnswer { .. }) => {
                Ok(())
            }
            Some(error) => Err(error.into()),
        }
    }

    fn end(&self, input: Input, looked: &Looked) -> End {
        let seen = SeenOf {
            generations: self.gate.generations.clone(),
            deadline: Some(if looked.done.lost > 0 { input.now } else { looked.plan.wake_at }),
            before: self.gate.seen.clone(),
            waits: Waits::Deadline,
        };
        End { seen: Some(seen), wake_at: None }
    }
}

/// How hard to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Only if something changed or is due.
    IfChanged,
    /// Always, for EC2's instances.
    AtInstances,
}

/// Queries EC2. A refusal is returned, so that everything else is planned.
async fn ask_ec2<P: Ports>(ports: &P, input: &mut Input) -> Result<Option<Ec2Error>, HandlerError> {
    match observe::observe_ec2(ports, input).await {
        Ok(()) => Ok(None),
        Err(HandlerError::Ec2(error)) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Instances that events report as leaving; the agent sees starting ones.
fn leaving(causes: &[Cause]) -> BTreeSet<InstanceId> {
    let instance = |cause: &Cause| match cause {
        Cause::InstanceState { instance, state } => {
            let leaves = matches!(state.as_str(), "shutting-down" | "stopping" | "stopped" | "terminated");
            leaves.then(|| instance.clone())
        }
        Cause::Sweep
        | Cause::Refresh(_)
        | Cause::SnapshotChanged
        | Cause::StateChanged
        | Cause::ZonalShift
        | Cause::ImageChanged(_)
        | Cause::Interruption { .. } => None,
    };
    causes.iter().filter_map(instance).collect()
}

impl Handler for Lifecycle {
    fn name(&self) -> FunctionName {
        FunctionName::Lifecycle
    }

    async fn handle<P: Ports>(&self, ports: &P, scope: &Scope, causes: &[Cause]) -> Result<(), HandlerError> {
        let ports = &Patient::new(ports, PATIENCE);
        let instances = leaving(causes);
        match scope {
            Scope::Cluster(cluster) => {
                let look = if instances.is_empty() { Look::IfChanged } else { Look::AtInstances };
                self.cluster(ports, cluster, (look, sharpness(causes)), causes).await
            }
            Scope::Region => {
                if instances.is_empty() {
                    return Ok(());
                }
                for cluster in observe::observe_clusters(ports, &instances).await? {
                    self.cluster(ports, &cluster, (Look::AtInstances, Consistency::Strong), causes).await?;
                }
                Ok(())
            }
        }
    }
}
