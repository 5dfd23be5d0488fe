//! `lifecycle`: a claim's way from its instance to its end, the pools' statuses, and the instances that nobody owns.
//!
//! Decides registration, initialisation, timeouts, expiry, what the user deleted, termination, and what is forgotten.
//! It is the only function that terminates instances. It launches nothing and starts no disruption of its own.
//!
//! Invariants: what is terminated was committed first, and is repeated until EC2 says so; while `HALT` exists nothing
//! is terminated; a sweep of an unchanged world ends after one read.

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
use tenon_domain::wake::{Cause, FunctionName};
use tenon_ec2::Ec2Error;
use tenon_runtime::patient::PATIENCE;
use tenon_runtime::{Handler, HandlerError, Patient, Ports, Scope};
use tenon_snapshot::snapshot::ChunkCaches;
use tenon_state::view::sharpness;
use tenon_table::Consistency;
use tenon_table::items::Seen;

/// The function's name in journal records.
pub const NAME: &str = "lifecycle";
/// EC2 is asked for all instances of a cluster at least so often.
pub const AUDIT_EVERY: SignedDuration = SignedDuration::from_mins(10);
/// An instance that was told to terminate is looked at so often.
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
        let mut cache = self.chunks.take(cluster);
        let observed = observe::observe(ports, cluster, &gate, (now, &mut cache)).await;
        self.chunks.put(cluster, cache);
        let mut input = observed?;
        let due = gate.audit.at.is_none_or(|at| now.duration_since(at) >= AUDIT_EVERY);
        let mut refused = None;
        if due || look == Look::AtInstances {
            refused = ask_ec2(ports, &mut input).await?;
        }
        let (mut plan, mut report) = plan::plan(&input);
        if report.asks_ec2 && input.ec2.is_none() && refused.is_none() {
            refused = ask_ec2(ports, &mut input).await?;
            (plan, report) = plan::plan(&input);
        }
        if refused.is_some() {
            report.wake_at = now.saturating_add(TERMINATION_POLL).unwrap_or(now);
        }
        let done = commit::commit(ports, cluster, &plan, now).await?;
        let executed = execute::execute(ports, cluster, (&plan, &report), (&done, now)).await;
        let seen = Seen {
            function: FunctionName::Lifecycle,
            generations: gate.generations,
            deadline: Some(if done.lost > 0 { now } else { report.wake_at }),
            at: now,
            refusals: None,
        };
        commit::commit_seen(ports, cluster, &seen).await?;
        executed?;
        done.not_learned.map_or(Ok(()), Err)?;
        match refused {
            None
            | Some(Ec2Error::Throttled { .. } | Ec2Error::ServerError { .. } | Ec2Error::NoAnswer { .. }) => {
                Ok(())
            }
            Some(error) => Err(error.into()),
        }
    }
}

/// How hard to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Only if something changed or is due.
    IfChanged,
    /// In any case, and at what EC2 has.
    AtInstances,
}

/// Asks EC2; what it refuses is handed back, so that everything else is planned all the same.
async fn ask_ec2<P: Ports>(ports: &P, input: &mut input::Input) -> Result<Option<Ec2Error>, HandlerError> {
    match observe::observe_ec2(ports, input).await {
        Ok(()) => Ok(None),
        Err(HandlerError::Ec2(error)) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Instances that an event says are on their way out; what starts is seen by the agent.
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
