//! The input of `lifecycle`: all observations with their age, and the time.
//!
//! Decides only when a Node, an instance or a user's object counts as present, absent or unknown.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::{Ec2NodeClass, Node, NodePool};
use tenon_domain::boot::BootRecord;
use tenon_domain::catalog::LearnedRecord;
use tenon_domain::claim::{Claim, ClaimPhase, LaunchedInstance};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::evidence::{Ready, Waiting};
use tenon_domain::id::{
    ClaimName, ClusterName, ImageId, InstanceId, InstanceType, LaunchId, NodeClassName, NodePoolName, Region,
    ZoneId,
};
use tenon_domain::launch::Launch;
use tenon_domain::launch_verdict::ClassVerdicts;
use tenon_domain::placement::LaunchPlacement;
use tenon_domain::pool_status::PoolStatus;
use tenon_domain::registry::FeatureGate;
use tenon_domain::snapshot::{ActionProgress, ActionReport, Snapshot};
use tenon_domain::{SignedDuration, Timestamp};
use tenon_ec2::port::{Instance, InstanceState};
use tenon_snapshot::NodeAction;
use tenon_table::items::{Halt, InstanceOwner, TypeRecord};

use crate::audit_record::AuditRecord;
use crate::statuses::StatusView;
use crate::templates::TemplatesView;

/// Everything that a plan is made from.
#[derive(Debug)]
pub struct LifecycleInput {
    /// The time of the plan.
    pub now: Timestamp,
    /// The cluster.
    pub cluster: ClusterName,
    /// Its region.
    pub region: Region,
    /// Its claims.
    pub claims: BTreeMap<ClaimName, Claim>,
    /// Claims whose items DynamoDB may delete.
    pub expiring: BTreeSet<ClaimName>,
    /// Its launches.
    pub launches: BTreeMap<LaunchId, Launch>,
    /// The agent's current actions.
    pub actions: BTreeMap<ClaimName, NodeAction>,
    /// The stored statuses of its pools.
    pub pools: BTreeMap<NodePoolName, PoolStatus>,
    /// Its classes, as they resolved last.
    pub classes: BTreeMap<NodeClassName, ClassStatus>,
    /// EC2's verdicts on launches from them.
    pub verdicts: BTreeMap<NodeClassName, ClassVerdicts>,
    /// The snapshot, if it is fresh.
    pub snapshot: Result<Ready<Snapshot>, Waiting>,
    /// Facts about the types of claims whose Node hasn't reported its own yet.
    pub types: BTreeMap<InstanceType, TypeRecord>,
    /// Stored memory of the cluster's own nodes, for the types and images of those claims.
    pub learned: BTreeMap<(InstanceType, ImageId), LearnedRecord>,
    /// What images of claims without a Node showed so far, by class.
    pub boots: BTreeMap<(NodeClassName, ImageId), BootRecord>,
    /// EC2's instances of the cluster, if EC2 was asked and answered.
    pub ec2: Option<Ec2View>,
    /// Instances of Nodes without a claim that EC2, asked by their ids, doesn't have.
    pub gone: BTreeSet<InstanceId>,
    /// What EC2 tells of the account's running instances, if it was asked and answered.
    pub statuses: Option<StatusView>,
    /// The cluster's launch templates, if a look at them was due and EC2 answered.
    pub templates: Option<TemplatesView>,
    /// The ends of the consoles of instances that never joined, if they were looked at.
    pub consoles: Option<BTreeMap<InstanceId, String>>,
    /// Whether Nodes are replaced that stay unhealthy.
    pub node_repair: FeatureGate,
    /// The halt, which stops every termination.
    pub halt: Option<Halt>,
    /// The last audit, and the terminated orphans.
    pub audit: AuditRecord,
}

/// EC2's instances with the tags of the installation and the cluster.
#[derive(Debug, Clone, Default)]
pub struct Ec2View {
    /// The instances; a new one may be missing for a while.
    pub instances: BTreeMap<InstanceId, Instance>,
    /// Owners of instances outside the input's claims, read after EC2's answer.
    pub owners: BTreeMap<InstanceId, InstanceOwner>,
    /// Launches that instances name and that the table doesn't have, read after EC2 answered.
    pub unknown_launches: BTreeSet<String>,
}

/// EC2's answer about a claim's instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceSeen {
    /// EC2 wasn't asked.
    NotAsked,
    /// It is there, in this state.
    State(InstanceState),
    /// The answer doesn't have it.
    Missing,
}

/// Where the Node of an instance is.
#[derive(Debug, Clone, Copy)]
pub enum NodeSeen<'a> {
    /// The snapshot isn't fresh, or can't be read at this place.
    Unknown,
    /// There is none.
    Absent,
    /// There is one.
    Present(&'a Node),
    /// Several carry the instance's providerID.
    Several,
}

impl<'a> NodeSeen<'a> {
    /// The Node, where there is exactly one.
    #[must_use]
    pub const fn node(self) -> Option<&'a Node> {
        match self {
            Self::Present(node) => Some(node),
            Self::Unknown | Self::Absent | Self::Several => None,
        }
    }
}

impl LifecycleInput {
    /// The snapshot, if it is fresh and newer than the moment: an older one may not show the decision's effect.
    #[must_use]
    pub fn snapshot_after(&self, moment: Timestamp) -> Option<&Snapshot> {
        self.snapshot.as_deref().ok().filter(|snapshot| snapshot.seen_at > moment)
    }

    /// The partition of the instance's placement group that EC2 told.
    #[must_use]
    pub fn partition_of(&self, instance: &LaunchedInstance) -> Option<u32> {
        self.ec2.as_ref()?.instances.get(&instance.id)?.partition
    }

    /// Whether the Node's registration waits for the partition that EC2 chose: it is one of the Node's labels.
    #[must_use]
    pub fn awaits_partition(&self, claim: &Claim, instance: &LaunchedInstance) -> bool {
        let Some(LaunchPlacement { group, partition: None }) = &instance.placement else { return false };
        let of_class = self.classes.get(&claim.class).and_then(|class| class.placement_group.as_ref());
        let has_partitions =
            of_class.is_some_and(|known| known.id == *group && known.partition_numbers().next().is_some());
        has_partitions && !self.actions.contains_key(&claim.name) && self.partition_of(instance).is_none()
    }

    /// The Node of an instance, as of a snapshot seen after the moment.
    #[must_use]
    pub fn node_of(&self, instance: &LaunchedInstance, after: Timestamp) -> NodeSeen<'_> {
        let Some(snapshot) = self.snapshot.as_deref().ok() else { return NodeSeen::Unknown };
        let mut nodes = snapshot.nodes.iter().filter(|node| has_instance(node, &instance.id));
        match (nodes.next(), nodes.next()) {
            (Some(node), None) => NodeSeen::Present(node),
            (Some(_), Some(_)) => NodeSeen::Several,
            // A Node that can't be read may be this one.
            (None, _) if snapshot.seen_at <= after || is_unreadable(snapshot, "Node", None) => {
                NodeSeen::Unknown
            }
            (None, _) => NodeSeen::Absent,
        }
    }

    /// EC2's answer about the instance.
    #[must_use]
    pub fn instance(&self, id: &InstanceId) -> InstanceSeen {
        match &self.ec2 {
            None => InstanceSeen::NotAsked,
            Some(view) => {
                view.instances.get(id).map_or(InstanceSeen::Missing, |found| InstanceSeen::State(found.state))
            }
        }
    }

    /// The claim's pool, from a fresh snapshot.
    #[must_use]
    pub fn pool_of(&self, claim: &Claim) -> Option<&NodePool> {
        let snapshot = self.snapshot.as_deref().ok()?;
        snapshot.node_pools.iter().find(|pool| pool.name == claim.pool)
    }

    /// The claim's class, from a fresh snapshot.
    #[must_use]
    pub fn class_of(&self, claim: &Claim) -> Option<&Ec2NodeClass> {
        let snapshot = self.snapshot.as_deref().ok()?;
        snapshot.node_classes.iter().find(|class| class.name == claim.class)
    }

    /// What of the claim the user deleted, if anything: its NodePool, which takes its NodeClaims with it, or the NodeClaim
    /// alone. Only a fresh snapshot after the claim's creation, readable at this place, says so.
    ///
    /// A NodePool that isn't there proves nothing about a Node that joined: it may not be there yet, in a cluster that was
    /// restored or took Tenon again, or be gone without its NodeClaims (`--cascade=orphan`). Kubernetes deletes them
    /// otherwise.
    #[must_use]
    pub fn deleted_by_user(&self, claim: &Claim) -> Option<String> {
        let snapshot = self.snapshot_after(claim.created_at)?;
        let object = snapshot.node_claims.iter().find(|object| object.name == claim.name);
        let is_deleted = object.is_some_and(|object| object.meta.deleted_at.is_some());
        let pool_is_deleted = match self.pool_of(claim) {
            Some(pool) => pool.meta.deleted_at.is_some(),
            None if is_unreadable(snapshot, "NodePool", Some(claim.pool.as_str())) => false,
            None => is_deleted || (object.is_none() && claim.phase() < ClaimPhase::Registered),
        };
        if pool_is_deleted {
            return Some(format!("its NodePool `{}` was deleted", claim.pool));
        }
        is_deleted.then(|| "its NodeClaim was deleted".to_owned())
    }

    /// How far the agent reports the action to be.
    #[must_use]
    pub fn progress_of(&self, action: &NodeAction) -> Option<&ActionProgress> {
        let reports = &self.snapshot.as_deref().ok()?.reports;
        let of_action =
            |report: &&ActionReport| report.claim == action.claim.as_str() && report.number == action.number;
        Some(&reports.iter().find(of_action)?.progress)
    }

    /// The id of an instance's zone, from the subnets of its class.
    #[must_use]
    pub fn zone_id(&self, claim: &Claim, instance: &LaunchedInstance) -> Option<&ZoneId> {
        let class = self.classes.get(&claim.class)?;
        class.subnets.iter().find(|subnet| subnet.zone == instance.zone).map(|subnet| &subnet.zone_id)
    }

    /// The end of the instance's console, if it was read.
    #[must_use]
    pub fn console_of(&self, instance: &LaunchedInstance) -> Option<&String> {
        self.consoles.as_ref()?.get(&instance.id)
    }

    /// The time since the moment.
    #[must_use]
    pub fn since(&self, moment: Timestamp) -> SignedDuration {
        self.now.duration_since(moment)
    }
}

/// Whether the Node is the instance's.
#[must_use]
pub fn has_instance(node: &Node, instance: &InstanceId) -> bool {
    node.provider_id.as_ref().is_some_and(|id| id.instance == *instance)
}

fn is_unreadable(snapshot: &Snapshot, kind: &str, name: Option<&str>) -> bool {
    snapshot
        .unreadable
        .iter()
        .any(|object| object.kind == kind && name.is_none_or(|name| object.name == name))
}
