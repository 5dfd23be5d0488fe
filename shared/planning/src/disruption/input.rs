//! The input of disruption.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::api::pod::{DoNotDisrupt, Readiness};
use tenon_domain::api::workload::PodDisruptionBudget;
use tenon_domain::api::{NodePool, Pod};
use tenon_domain::budget::BudgetNodes;
use tenon_domain::catalog::facts::InstanceTypeFacts;
use tenon_domain::claim::{Claim, Drift, RemovalReason};
use tenon_domain::class_hash::{ClassHash, FieldDigests};
use tenon_domain::class_status::ResolvedImage;
use tenon_domain::command::Command;
use tenon_domain::id::{
    ClaimName, CommandId, ImageId, NodeClassName, NodePoolName, PlacementGroupId, SecurityGroupId, SubnetId,
    Uid,
};
use tenon_domain::money::Currency;
use tenon_domain::registry::FeatureGate;
use tenon_domain::reservation::{ClassReservations, ReservedCapacity};

use crate::provision;

/// Everything that a plan is made from. The order of its lists means nothing.
#[derive(Debug, Clone)]
pub struct DisruptionInput {
    /// The time of the plan.
    pub now: Timestamp,
    /// Whether anything may be taken away.
    pub halt: HaltState,
    /// Pools whose voluntary disruption is paused.
    pub paused: BTreeMap<NodePoolName, DisruptionPause>,
    /// How many nodes of all pools together may be disrupted at once.
    pub cluster_budget: Option<BudgetNodes>,
    /// The currency of its prices.
    pub currency: Currency,
    /// The gate `SpotToSpotConsolidation`.
    pub spot_to_spot: FeatureGate,
    /// All claims of the cluster, those of replacements among them.
    pub claims: Vec<ClaimView>,
    /// The node classes, as they resolved last.
    pub classes: Vec<ClassView>,
    /// The NodePools.
    pub pools: Vec<NodePool>,
    /// The PodDisruptionBudgets.
    pub pdbs: Vec<PodDisruptionBudget>,
    /// Commands that are active.
    pub commands: Vec<Command>,
    /// When consolidations moved pods lately.
    pub moved: Vec<MovingTime>,
    /// Commands that were undone, so that their candidates still serve.
    pub undone: Vec<UndoneCommand>,
    /// The drift for which commands, done ones among them, replaced their candidates.
    pub replaced_drift: BTreeMap<CommandId, Drift>,
    /// Pods that are counted on claims that offer room, replacements' among them, with their claims.
    pub counted: BTreeMap<Uid, ClaimName>,
    /// The world that pods move in: nodes (named as in [`ClaimView::node`]), pools with their instance types,
    /// DaemonSets. Its `pods` are the pending ones, which take their room first; its `purpose` isn't read.
    pub world: provision::ProvisionInput,
}

/// What pauses voluntary disruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisruptionPause {
    /// The pool's annotation.
    Annotation,
    /// The cluster's setting, whatever the pool's annotation says.
    Setting,
    /// A Karpenter controller that works. Commands that have begun go on: half of a replacement helps nobody.
    Karpenter,
}

impl DisruptionPause {
    /// Whether it ends commands that haven't begun to drain, too.
    #[must_use]
    pub const fn ends_begun(self) -> bool {
        match self {
            Self::Annotation | Self::Setting => true,
            Self::Karpenter => false,
        }
    }
}

/// A candidate of a command that was undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoneCommand {
    /// The candidate.
    pub claim: ClaimName,
    /// Why it was to go.
    pub reason: RemovalReason,
    /// What it had drifted to, where that is known.
    pub drifted_to: Option<String>,
    /// When the command was undone.
    pub at: Timestamp,
}

/// The time in which a consolidation moved pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovingTime {
    /// When it began.
    pub from: Timestamp,
    /// When its nodes were gone.
    pub to: Timestamp,
}

impl MovingTime {
    /// Whether it was going on then.
    #[must_use]
    pub fn holds(&self, at: Timestamp) -> bool {
        self.from <= at && at <= self.to
    }
}

/// Whether anything may be taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HaltState {
    /// It may.
    Running,
    /// The table was restored from a backup: a person decides.
    Halted,
}

/// A claim and its node's state in the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimView {
    /// The claim.
    pub claim: Claim,
    /// The facts of its instance type, once it has an instance.
    pub facts: Option<Arc<InstanceTypeFacts>>,
    /// Its node, if it joined and the snapshot has it.
    pub node: Option<NodeView>,
}

/// A claim's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Its name, as in `world.nodes`.
    pub name: String,
    /// Its `Ready` condition.
    pub readiness: Readiness,
    /// The labels of a node that is being disrupted, which `world.nodes` hasn't.
    pub labels: BTreeMap<String, String>,
    /// Its annotation `karpenter.sh/do-not-disrupt`; on a node only `true` counts.
    pub do_not_disrupt: DoNotDisrupt,
    /// All pods that are bound to it.
    pub pods: Vec<Pod>,
    /// When a pod last left it, if one did. Those that came are among `pods`, or left since.
    pub pod_left_at: Option<Timestamp>,
}

/// A node class, as it resolved last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassView {
    /// Its name.
    pub name: NodeClassName,
    /// Whether the fields below may be compared with nodes.
    pub readiness: ClassReadiness,
    /// Its images, newest first.
    pub images: Vec<ResolvedImage>,
    /// Images that it passes over because a new instance of each failed.
    pub failed_images: BTreeSet<ImageId>,
    /// The hash of its spec in the cluster, where it is known.
    pub hash: Option<ClassHash>,
    /// Digests of the fields of its spec in the cluster, where it has one.
    pub fields: Option<FieldDigests>,
    /// Its security groups.
    pub security_groups: BTreeSet<SecurityGroupId>,
    /// Its subnets.
    pub subnets: Vec<SubnetId>,
    /// Its capacity reservations, behind the open gate.
    pub reservations: Option<DriftingReservations>,
    /// Its placement group, if it selects one.
    pub placement_group: Option<PlacementGroupId>,
}

/// A class's capacity reservations behind their open gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftingReservations {
    /// The open gate.
    pub right: ReservedCapacity,
    /// The reservations.
    pub of_class: ClassReservations,
}

/// Whether a class is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClassReadiness {
    /// It is, for its present spec.
    Ready,
    /// It isn't: nothing is known to have drifted.
    NotReady,
}
