//! Nodes whose pods need another one soon: EC2 takes their instances back.
//!
//! Decides which nodes these are. Their pods run, and are planned for as if they were pending, so that a replacement starts
//! before they are evicted. Bound pods come and go unreported for as long as a heartbeat, so a plan for them waits some
//! seconds for the report that the agent makes when it begins the drain. Without one it goes by the last.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::Claim;
use tenon_domain::id::{InstanceId, NodeName, Uid};
use tenon_domain::snapshot::Snapshot;
use tenon_domain::wait::later;

use super::ObservedCluster;
use crate::view::ClusterView;

/// How long after the begin of its drain the pods of an interrupted node wait for a report. The agent makes one within a
/// second or two, and evicts a pod after five if nothing is planned for it.
const REPORTED_WITHIN: SignedDuration = SignedDuration::from_secs(3);
/// How often the report is looked for: no doorbell tells of it while no pod is pending.
const LOOKED_FOR_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// Pods of interrupted nodes that the agent hasn't reported since.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AwaitedReport {
    /// The pods: some of them may be gone, and others may have left room for them.
    pub pods: BTreeSet<Uid>,
    /// When to look for the report again; `None` if nothing waits for it.
    pub look_at: Option<Timestamp>,
}

impl ObservedCluster<'_> {
    /// The pods that a plan leaves out until the agent has reported what goes on now. They are among [`Self::pending`].
    #[must_use]
    pub fn awaited_report(&self) -> AwaitedReport {
        let now = self.view.now;
        let waits_until = |claim: &Claim| {
            let since = claim.state.since().filter(|since| self.snapshot.seen_at < *since)?;
            Some(later(since, REPORTED_WITHIN)).filter(|until| now < *until)
        };
        let mut awaited = AwaitedReport::default();
        for node in &self.snapshot.nodes {
            let claim = node.provider_id.as_ref().and_then(|id| self.by_instance.get(&id.instance));
            let Some(until) = claim.and_then(|claim| waits_until(claim)) else { continue };
            let here = self.bound.get(&node.name).into_iter().flatten();
            for pod in here.filter(|pod| self.unbound.contains_key(&pod.uid)) {
                awaited.pods.insert(pod.uid.clone());
                let look_at = until.min(later(now, LOOKED_FOR_EVERY));
                awaited.look_at = Some(awaited.look_at.map_or(look_at, |at| at.min(look_at)));
            }
        }
        awaited
    }
}

/// The names of interrupted nodes whose time isn't over.
pub(super) fn interrupted<'a>(
    view: &ClusterView,
    snapshot: &'a Snapshot,
    by_instance: &BTreeMap<&InstanceId, &Claim>,
) -> Vec<&'a NodeName> {
    let holds = |claim: &&Claim| claim.state.holds_pods_until().is_some_and(|until| view.now < until);
    let nodes = snapshot.nodes.iter().filter(|node| {
        let instance = node.provider_id.as_ref().map(|id| &id.instance);
        instance.and_then(|instance| by_instance.get(instance).copied()).filter(holds).is_some()
    });
    nodes.map(|node| &node.name).collect()
}
