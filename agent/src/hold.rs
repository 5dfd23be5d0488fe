//! Pods of an interrupted node that stay until their replacement is ready.
//!
//! Decides until when each pod of such a drain stays. A pod that stays keeps serving while its replacement starts; EC2's
//! two minutes are enough for most. It stays until the claim that counts it is initialised. Its own grace period and
//! [`TIME_TO_START`] always fit before the deadline. Pods that gain nothing, or that need the time themselves, go at
//! once: those that other nodes have room for, with a volume that one node at a time can have, with a long grace period,
//! or whose PodDisruptionBudget lets them go one by one only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenon_domain::api::workload::PodDisruptionBudget;
use tenon_domain::claim::{Claim, ClaimState, InterruptionOrder};
use tenon_domain::id::{ClaimName, ClusterName, LaunchId, Uid};
use tenon_domain::labels::{INTERRUPTION, NODEPOOL};
use tenon_domain::launch::Launch;
use tenon_domain::manifest::{self, ManifestObject};
use tenon_domain::pool_annotations::interruption_order;
use tenon_snapshot::pod::SeenPod;
use tenon_snapshot::{
    Kind, Kube, KubeError, NodeAction, Object, ObjectKey, PodRef, ReplacementOrder, object,
};
use tenon_table::items::keys;
use tenon_table::{Consistency, Key, Table, TableError};

use crate::decided::{Decided, read_items};
use crate::drain::Drain;
use crate::volumes::claims;

/// How long a pod stays without a claim that counts it: `provisioner` plans within this time. Then other nodes have room
/// for it, or none can be made.
pub const PLANNED_WITHIN: SignedDuration = SignedDuration::from_secs(5);
/// How long a pod stays for a claim without an instance. A launch that EC2 refused counts: it is planned elsewhere within
/// seconds.
pub const LAUNCHED_WITHIN: SignedDuration = SignedDuration::from_secs(20);
/// How long a pod has to start elsewhere, beside its grace period, before the node ends.
pub const TIME_TO_START: SignedDuration = SignedDuration::from_secs(20);
/// The grace period of a pod that names none.
const DEFAULT_GRACE: i64 = 30;

/// How far the replacement of a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplacementStage {
    /// It has no instance yet, or EC2 refused it one.
    Planned,
    /// Its instance starts.
    Launched,
    /// Its Node takes pods.
    Ready,
}

/// What decides which pods stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldPods {
    /// How far the claims are that count pods, by the pods' UIDs in snapshots.
    pub replacements: Arc<BTreeMap<Uid, ReplacementStage>>,
    /// UIDs of pods that go at once.
    pub at_once: BTreeSet<String>,
    /// When the drains of claims became interruptions': EC2 may warn of an instance that has been drained for long.
    pub warned: BTreeMap<ClaimName, Timestamp>,
}

impl HeldPods {
    /// Until when the pod stays; `None` if it may go.
    #[must_use]
    pub fn until(&self, pod: &SeenPod, drain: &Drain<'_>, now: Timestamp) -> Option<Timestamp> {
        let (deadline, since) = (drain.deadline?, drain.since);
        let grace = SignedDuration::from_secs(pod.grace_seconds.unwrap_or(DEFAULT_GRACE));
        let takes_half = grace.saturating_add(grace) > deadline.duration_since(since);
        if takes_half || self.at_once.contains(&pod.uid) {
            return None;
        }
        let latest = deadline.saturating_sub(grace.saturating_add(TIME_TO_START)).ok()?;
        let within = |time| since.saturating_add(time).unwrap_or(Timestamp::MAX);
        let counted = pod.counted_as();
        let end = match counted.and_then(|uid| self.replacements.get(&uid)) {
            None => within(PLANNED_WITHIN),
            Some(ReplacementStage::Planned) => within(LAUNCHED_WITHIN),
            Some(ReplacementStage::Launched) => latest,
            Some(ReplacementStage::Ready) => return None,
        };
        Some(end.min(latest)).filter(|end| now < *end)
    }
}

/// Whether the action keeps pods for their replacements.
pub(crate) fn holds(action: &NodeAction) -> bool {
    action.replacement == ReplacementOrder::First
}

/// When the drains became interruptions' that keep pods for their replacements.
pub(crate) fn warned(decided: &Decided) -> BTreeMap<ClaimName, Timestamp> {
    let keeps = decided.claims.values().filter(|claim| claim.state.holds_pods_until().is_some());
    keeps.filter_map(|claim| Some((claim.name.clone(), claim.state.since()?))).collect()
}

/// Launches that count pods of interrupted nodes. Pods join a launch under the cluster's revision, so each is read once for
/// each of these.
#[derive(Debug, Default)]
pub(crate) struct CountingLaunches {
    read: BTreeMap<LaunchId, Launch>,
    /// The revision that they were read after.
    revision: Option<u64>,
}

impl CountingLaunches {
    /// How far the claims are that count pods.
    ///
    /// # Errors [`TableError`] if the launches can't be read.
    pub(crate) async fn stages<T: Table>(
        &mut self,
        table: &T,
        cluster: &ClusterName,
        decided: &Decided,
        since: Timestamp,
    ) -> Result<BTreeMap<Uid, ReplacementStage>, TableError> {
        let coming: Vec<(&Claim, ReplacementStage)> =
            decided.claims.values().filter_map(|claim| Some((claim, stage(claim, since)?))).collect();
        let wanted: BTreeSet<&LaunchId> = coming.iter().map(|(claim, _)| &claim.launch).collect();
        let revision = decided.revision();
        if revision.is_none() || revision != self.revision {
            self.read.clear();
            self.revision = revision;
        }
        self.read.retain(|id, _| wanted.contains(id));
        let unread = wanted.into_iter().filter(|id| !self.read.contains_key(*id));
        let unread: Vec<Key> = unread.map(|id| keys::launch(cluster, id)).collect();
        let read: Vec<Launch> = read_items(table, &unread, Consistency::Strong).await?;
        self.read.extend(read.into_iter().map(|launch| (launch.id.clone(), launch)));
        // A pod whose room was taken is planned again, and its first claim still counts it: the newest launch has its
        // place, unless EC2 refused it.
        let mut newest: BTreeMap<Uid, (bool, Timestamp, ReplacementStage)> = BTreeMap::new();
        for (claim, stage) in coming {
            let Some(launch) = self.read.get(&claim.launch) else { continue };
            let planned = launch.claims.iter().find(|one| one.name == claim.name);
            let is_refused = matches!(claim.state, ClaimState::LaunchFailed { .. });
            let place = (!is_refused, launch.created_at, stage);
            for pod in planned.iter().flat_map(|planned| &planned.pods) {
                let known = newest.entry(pod.clone()).or_insert(place);
                *known = place.max(*known);
            }
        }
        Ok(newest.into_iter().map(|(pod, (_, _, stage))| (pod, stage)).collect())
    }
}

/// How far a claim is that may count pods of a node that is drained since then.
fn stage(claim: &Claim, since: Timestamp) -> Option<ReplacementStage> {
    match &claim.state {
        ClaimState::Planned => Some(ReplacementStage::Planned),
        ClaimState::Launched { .. } | ClaimState::Registered { .. } => Some(ReplacementStage::Launched),
        ClaimState::LaunchFailed { at, .. } => (*at >= since).then_some(ReplacementStage::Planned),
        ClaimState::Initialized { at, .. } => (*at >= since).then_some(ReplacementStage::Ready),
        ClaimState::Disrupting { .. }
        | ClaimState::Draining { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. }
        | ClaimState::Terminated { .. } => None,
    }
}

/// An interrupted Node and its pods.
pub(crate) struct InterruptedNode<'a> {
    pub(crate) node: &'a Object,
    pub(crate) pods: &'a [PodRef],
}

impl InterruptedNode<'_> {
    /// What its pool wants. A value that can't be read is told by `disruption`.
    fn order(&self, pools: &[Object]) -> InterruptionOrder {
        let labels = object::texts(self.node, "/metadata/labels");
        let name = labels.into_iter().find(|(key, _)| *key == NODEPOOL).map(|(_, name)| name);
        let pool = pools.iter().find(|pool| Some(object::name(pool)) == name);
        let written = pool.and_then(|pool| {
            let mut annotations = object::texts(pool, "/metadata/annotations");
            annotations.find(|(key, _)| *key == INTERRUPTION).map(|(_, value)| value)
        });
        interruption_order(written).unwrap_or(InterruptionOrder::ReplaceFirst)
    }
}

/// The pods of these nodes that go at once, by UID.
///
/// # Errors [`KubeError`]: try again at the next step.
pub(crate) async fn leave_at_once<K: Kube>(
    kube: &K,
    nodes: &[InterruptedNode<'_>],
    own_pod: Option<&ObjectKey>,
) -> Result<BTreeSet<String>, KubeError> {
    let pools = kube.list(Kind::NodePool).await?;
    let volume_claims = kube.list(Kind::PersistentVolumeClaim).await?;
    let shared: BTreeSet<(&str, &str)> = volume_claims
        .iter()
        .filter(|claim| is_shared(claim))
        .map(|claim| (object::namespace(claim), object::name(claim)))
        .collect();
    let budgets = budgets(kube).await?;
    let (mut found, mut held) = (BTreeSet::new(), Vec::<&PodRef>::new());
    for interrupted in nodes {
        let pods = interrupted.pods;
        match interrupted.order(&pools) {
            InterruptionOrder::ReplaceFirst => held.extend(pods),
            InterruptionOrder::Drain => {
                found.extend(pods.iter().map(|pod| pod.uid.clone()));
                continue;
            }
        }
        let alone = |pod: &&PodRef| {
            let volumes = claims(pod);
            let bound = |name: &String| !shared.contains(&(pod.key.namespace.as_str(), name.as_str()));
            volumes.iter().any(bound) || own_pod == Some(&pod.key)
        };
        found.extend(pods.iter().filter(alone).map(|pod| pod.uid.clone()));
    }
    // A budget lets go as many of all these nodes together.
    for budget in &budgets {
        let guarded: Vec<&&PodRef> = held.iter().filter(|pod| covers(budget, pod)).collect();
        if guarded.len() > usize::try_from(budget.disruptions_allowed).unwrap_or(usize::MAX) {
            found.extend(guarded.iter().map(|pod| pod.uid.clone()));
        }
    }
    Ok(found)
}

/// Whether several nodes can have the claim's volume at once.
fn is_shared(claim: &Value) -> bool {
    let modes = object::list(claim, "/spec/accessModes").iter().filter_map(Value::as_str);
    modes.into_iter().any(|mode| matches!(mode, "ReadWriteMany" | "ReadOnlyMany"))
}

/// Whether the budget selects the pod.
pub(crate) fn covers(budget: &PodDisruptionBudget, pod: &SeenPod) -> bool {
    let labels = || {
        let shape = shape(pod);
        let labels = object::texts(&shape, "/metadata/labels");
        labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    budget.meta.namespace == pod.key.namespace
        && budget.selector.as_ref().is_some_and(|selector| selector.matches(&labels()))
}

fn shape(pod: &SeenPod) -> Value {
    serde_json::from_str(pod.shape().text()).unwrap_or_default()
}

/// The cluster's PodDisruptionBudgets. One that can't be read is the API server's to enforce.
///
/// # Errors [`KubeError`]: try again at the next step.
pub(crate) async fn budgets<K: Kube>(kube: &K) -> Result<Vec<PodDisruptionBudget>, KubeError> {
    let read = |object: &Object| match manifest::read_stored(object) {
        Ok(ManifestObject::PodDisruptionBudget(budget)) => Some(*budget),
        Ok(_) | Err(_) => None,
    };
    Ok(kube.list(Kind::PodDisruptionBudget).await?.iter().filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::DrainVolumes;
    use serde_json::json;
    use tenon_domain::claim::LaunchFailure;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(grace: i64) -> SeenPod {
        SeenPod::read(&json!({"kind": "Pod", "metadata": {"name": "web-1", "namespace": "a", "uid": "u"},
            "spec": {"nodeName": "n", "terminationGracePeriodSeconds": grace}}))
        .unwrap()
    }

    /// Until which second a pod of a drain from 0 to 120 stays.
    fn until(stage: Option<ReplacementStage>, grace: i64, now: i64) -> Option<i64> {
        let uid = pod(grace).counted_as().unwrap();
        let replacements = Arc::new(stage.map(|stage| (uid, stage)).into_iter().collect());
        let holds = HeldPods { replacements, ..HeldPods::default() };
        let volumes = DrainVolumes::default();
        let drain =
            Drain { pods: &[], since: at(0), deadline: Some(at(120)), holds: None, budgets: &[], volumes };
        holds.until(&pod(grace), &drain, at(now)).map(Timestamp::as_second)
    }

    #[test]
    fn a_launch_that_ec2_refused_after_the_interruption_still_counts_its_pods() {
        let refused = |second| {
            let failure = LaunchFailure {
                reason: "InsufficientCapacityError".to_owned(),
                message: "InsufficientInstanceCapacity".to_owned(),
            };
            let names = ("default".parse().unwrap(), "default".parse().unwrap());
            let claim =
                Claim::planned("default-3k9x2".parse().unwrap(), names, "launch-1".parse().unwrap(), at(0));
            stage(&Claim { state: ClaimState::LaunchFailed { at: at(second), failure }, ..claim }, at(60))
        };
        assert_eq!((refused(59), refused(60)), (None, Some(ReplacementStage::Planned)));
    }

    #[test]
    fn a_pod_stays_for_as_long_as_its_replacement_may_still_come() {
        use ReplacementStage::{Launched, Planned, Ready};
        // Nobody counts it: other nodes have room, or none has.
        assert_eq!((until(None, 30, 0), until(None, 30, 5)), (Some(5), None));
        // No instance comes.
        assert_eq!((until(Some(Planned), 30, 19), until(Some(Planned), 30, 20)), (Some(20), None));
        // It has to stop, and to start elsewhere, before the deadline.
        assert_eq!((until(Some(Launched), 30, 69), until(Some(Launched), 30, 70)), (Some(70), None));
        assert_eq!(until(Some(Launched), 0, 99), Some(100));
        assert_eq!(until(Some(Ready), 30, 1), None);
        // A pod that needs more than half of the time needs it now.
        assert_eq!((until(Some(Launched), 60, 0), until(Some(Launched), 61, 0)), (Some(40), None));
    }
}
