//! The input of provisioning: one immutable value, with `now`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::api::storage::{
    CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment,
};
use tenon_domain::api::workload::{DaemonSet, Service};
use tenon_domain::api::{NodePool, Pod};
use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::default_spread::DefaultConstraint;
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{ClaimName, ClusterName, CommandId, NodeClassName, NodePoolName};
use tenon_domain::registry::PlanPolicies;
use tenon_domain::resources::ResourceList;
use tenon_domain::taint::Taint;

use super::occupancy::Occupancy;

/// Everything that a plan is made from. The order of its lists means nothing.
#[derive(Debug, Clone)]
pub struct ProvisionInput {
    /// The time of the plan.
    pub now: Timestamp,
    /// The cluster.
    pub cluster: ClusterName,
    /// Pods to place: unbound pods that no claim counts.
    pub pods: Vec<Pod>,
    /// Nodes and launched claims that may have room.
    pub nodes: Vec<ExistingNode>,
    /// The NodePools: dynamic ones that aren't being deleted.
    pub pools: Vec<PoolInput>,
    /// NodePools of a fixed number of nodes (`spec.replicas`): nothing is planned for them yet.
    pub static_pools: BTreeSet<NodePoolName>,
    /// NodePools that are being deleted.
    pub leaving_pools: BTreeSet<NodePoolName>,
    /// DaemonSets: overhead on every node that they run on.
    pub daemon_sets: Vec<DaemonSet>,
    /// Where volumes bind pods to.
    pub storage: Storage,
    /// Labels of namespaces, by name.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The spread of pods that have no constraint of their own.
    pub default_spread: DefaultSpread,
    /// Names that new claims can't have.
    pub taken_names: BTreeSet<ClaimName>,
    /// How far it follows wishes.
    pub policies: PlanPolicies,
    /// How much work the plan may be.
    pub steps: StepBudget,
    /// The reason for the plan.
    pub purpose: Purpose,
}

/// The cluster's default spread, which kube-scheduler gives pods without a constraint of their own.
#[derive(Debug, Clone, Default)]
pub struct DefaultSpread {
    /// The constraints that its configuration lists. Kubernetes' own defaults aren't among them: they only score nodes
    /// that are there.
    pub constraints: Vec<DefaultConstraint>,
    /// Services: pods are spread with those that the same Services select.
    pub services: Vec<Service>,
}

/// Storage objects that pods may refer to.
#[derive(Debug, Clone, Default)]
pub struct Storage {
    /// PersistentVolumes.
    pub volumes: Vec<PersistentVolume>,
    /// PersistentVolumeClaims.
    pub claims: Vec<PersistentVolumeClaim>,
    /// StorageClasses.
    pub classes: Vec<StorageClass>,
    /// CSINodes: how many volumes Nodes may attach.
    pub nodes: Vec<CsiNode>,
    /// VolumeAttachments: the volumes that Nodes have, or will have.
    pub attachments: Vec<VolumeAttachment>,
}

/// The work that a plan may do: a step is about one check of an instance type or node against a group of pods. A plan
/// without steps left ends with what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepBudget {
    /// The most steps.
    pub max: u64,
}

impl Default for StepBudget {
    /// Enough for thousands of groups of pods over the whole catalogue: some seconds.
    fn default() -> Self {
        Self { max: 500_000_000 }
    }
}

/// The reason for a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Pods that wait.
    PendingPods,
    /// The pods of a disruption command's candidates.
    Replacement(CommandId),
    /// The same, where nothing is available for them: EC2 is asked again for what it refused.
    AskingReplacement(CommandId),
}

/// A node, or a launched claim without a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingNode {
    /// The Node's name; of a claim in flight, the claim's.
    pub name: String,
    /// How far it is.
    pub kind: NodeKind,
    /// Its labels; of a claim in flight those that its Node will have.
    pub labels: BTreeMap<String, String>,
    /// Its taints, without those that go away by themselves while it starts (ephemeral and start-up taints of managed
    /// nodes that aren't initialised).
    pub taints: Vec<Taint>,
    /// Its allocatable resources.
    pub allocatable: ResourceList,
    /// Its pods: bound ones, with DaemonSets', and pods counted on its claim. What DaemonSets don't use yet of their
    /// requests is kept free.
    pub occupancy: Occupancy,
    /// Its pool, if a pool made it.
    pub pool: Option<NodePoolName>,
}

/// How far a node is; in the order in which nodes are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeKind {
    /// A Node that is initialised, or that no pool made.
    Initialized,
    /// A Node that is starting.
    Starting,
    /// A launched claim without a Node.
    InFlight,
}

/// A NodePool and the instance types of its nodes.
#[derive(Debug, Clone)]
pub struct PoolInput {
    /// The pool.
    pub pool: NodePool,
    /// All instance types, as nodes of the pool's class; unavailable offerings are marked.
    pub types: Arc<Vec<InstanceTypeOption>>,
    /// Capacity of the pool's nodes and claims that stay, `nodes` among it.
    pub usage: ResourceList,
    /// The same of those that leave.
    pub leaving: ResourceList,
    /// What each Node adds to `usage`, by name. Only of pools with limits.
    pub charges: BTreeMap<String, ResourceList>,
    /// Whether claims can be made of it.
    pub readiness: PoolReadiness,
    /// How many nodes the cluster's registry still allows; `None` for no bound.
    pub nodes_left: Option<u32>,
    /// How many vCPUs the cluster's registry still allows; `None` for no bound.
    pub vcpus_left: Option<u32>,
    /// What of the used vCPUs is a guess.
    pub vcpus_guessed: Option<GuessedVcpus>,
    /// Whether its requests are known to be refused.
    pub standing: PoolStanding,
    /// A missing price list that the pool can do without; offerings priced by it are unavailable.
    pub without: Option<Waiting>,
}

/// NodeClaims that count against the cluster's vCPUs as the largest instance type, because nothing tells their size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GuessedVcpus {
    /// The first.
    pub first: ClaimName,
    /// How many more there are.
    pub more: u32,
    /// The vCPUs that each counts as.
    pub each: u32,
}

/// Whether EC2 refuses a pool's requests, whatever the offering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolStanding {
    /// It isn't.
    Trusted,
    /// It refused them some time ago: one claim is tried first.
    OnProbation,
}

/// Whether claims can be made of a pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolReadiness {
    /// They can.
    Ready,
    /// Its node class doesn't exist.
    NodeClassNotFound(NodeClassName),
    /// Its claims must wait.
    NotReady(Waiting),
}
