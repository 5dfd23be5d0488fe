//! The record of one claim.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::announced::InstanceAnnouncement;
use super::drift::Drift;
use super::phase::{ClaimPhase, may_follow};
use super::removal::RemovalReason;
use super::terms::Terms;
use crate::catalog::CapacityType;
use crate::class_hash::{ClassHash, FieldDigests, PoolHash};
use crate::id::{
    ClaimName, CommandId, ImageId, InstanceId, InstanceType, LaunchId, NodeClassName, NodeName, NodePoolName,
    SecurityGroupId, SubnetId, Zone,
};
use crate::placement::{LaunchPlacement, Tenancy};
use crate::reservation::LaunchedInto;
use crate::resources::ResourceList;

/// A claim: one node wanted, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its name: `<pool>-<five characters>`.
    pub name: ClaimName,
    /// The count of steps; the next step is conditional on it.
    pub revision: u64,
    /// Its pool.
    pub pool: NodePoolName,
    /// Its node class.
    pub class: NodeClassName,
    /// The hash of its class at its launch; `None` for old claims.
    pub class_hash: Option<ClassHash>,
    /// The hash of its pool's template at its launch; `None` for old claims.
    pub pool_hash: Option<PoolHash>,
    /// Digests of the fields of its class at its launch; `None` for old claims.
    pub class_fields: Option<FieldDigests>,
    /// Digests of the fields of its pool's template at its launch; `None` for old claims.
    pub pool_fields: Option<FieldDigests>,
    /// Its security groups at its launch; `None` for old claims.
    pub security_groups: Option<BTreeSet<SecurityGroupId>>,
    /// The launch that it shares with its equals.
    pub launch: LaunchId,
    /// When the claim was committed.
    pub created_at: Timestamp,
    /// How far it is.
    pub state: ClaimState,
    /// Set while it differs from its class.
    pub drift: Option<Drift>,
    /// Set while its Node could go, because it is empty or costs more than its pods need.
    pub consolidatable: Option<Consolidatable>,
    /// What EC2 announced about its instance.
    pub announced: Option<InstanceAnnouncement>,
    /// Its role in a disruption command.
    pub role: CommandRole,
    /// The terms from its pool's template; `None` for old claims without any.
    pub terms: Option<Terms>,
    /// Whether it has its pool's `minValues`.
    pub min_values: MinValuesState,
    /// The tenancy that its launch asks for.
    pub tenancy: Tenancy,
    /// Labels of its Node: its pool's, and a value of each that its pool or its pods require; none for old claims.
    pub labels: BTreeMap<String, String>,
    /// Requests of its pods and of the DaemonSets, as in `spec.resources.requests`.
    pub requests: ResourceList,
    /// The `ephemeral-storage` that its Node reported, in bytes.
    pub storage: Option<u64>,
    /// What its Node lacked, in a sentence, if its initialisation timed out.
    pub lacked: Option<String>,
}

crate::words! {
    /// Whether a claim has its pool's `minValues`.
    #[derive(Default)]
    pub enum MinValuesState else Relaxed {
        /// It has, or the pool has none.
        #[default]
        AsWritten,
        /// They couldn't be met, so they were lowered to what there was.
        Relaxed,
    }
}

/// How long a ready node keeps its counted pods. The peer protects a nominated node for 20 s
/// (kubernetes-sigs/karpenter `pkg/controllers/state/cluster.go`), and the agent reports a binding within 10 s.
pub const BINDING_WINDOW: SignedDuration = SignedDuration::from_secs(30);

/// Whether a claim's pods are its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodsCounted {
    /// They are, until its node is ready and after.
    UntilReady,
    /// They are, until then.
    Until(Timestamp),
    /// They aren't.
    No,
}

/// A claim's role in a disruption command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandRole {
    /// None: it was made for pending pods.
    None,
    /// It replaces that command's candidates.
    Replacement(CommandId),
}

/// A claim's state, with its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimState {
    /// See [`ClaimPhase::Planned`].
    Planned,
    /// See [`ClaimPhase::LaunchFailed`].
    LaunchFailed {
        /// When.
        at: Timestamp,
        /// Why.
        failure: LaunchFailure,
    },
    /// See [`ClaimPhase::Launched`].
    Launched {
        /// Its instance.
        instance: LaunchedInstance,
        /// When EC2 gave it.
        at: Timestamp,
    },
    /// See [`ClaimPhase::Registered`].
    Registered {
        /// Its instance.
        instance: LaunchedInstance,
        /// Its Node.
        node: NodeName,
        /// When.
        at: Timestamp,
    },
    /// See [`ClaimPhase::Initialized`].
    Initialized {
        /// Its instance.
        instance: LaunchedInstance,
        /// Its Node.
        node: NodeName,
        /// When.
        at: Timestamp,
    },
    /// See [`ClaimPhase::Disrupting`].
    Disrupting {
        /// Its instance.
        instance: LaunchedInstance,
        /// Its Node.
        node: NodeName,
        /// The command that holds it.
        command: CommandId,
        /// When.
        at: Timestamp,
    },
    /// See [`ClaimPhase::Draining`].
    Draining {
        /// Its instance.
        instance: LaunchedInstance,
        /// Its Node, if it ever joined.
        node: Option<NodeName>,
        /// Why.
        reason: RemovalReason,
        /// When the drain began, or became an interruption's.
        at: Timestamp,
        /// When the instance is terminated, drained or not.
        deadline: Option<Timestamp>,
    },
    /// See [`ClaimPhase::Drained`].
    Drained {
        /// Its instance.
        instance: LaunchedInstance,
        /// Its Node, if it ever joined.
        node: Option<NodeName>,
        /// The reason of the drain.
        reason: RemovalReason,
        /// When.
        at: Timestamp,
    },
    /// See [`ClaimPhase::Terminating`].
    Terminating {
        /// Its instance.
        instance: LaunchedInstance,
        /// Its Node, if it ever joined.
        node: Option<NodeName>,
        /// Why.
        reason: RemovalReason,
        /// When Tenon terminated it.
        at: Timestamp,
    },
    /// See [`ClaimPhase::Terminated`].
    Terminated {
        /// Its instance, if it ever had one.
        instance: Option<LaunchedInstance>,
        /// Its Node, if one ever joined.
        node: Option<NodeName>,
        /// Why.
        reason: RemovalReason,
        /// When.
        at: Timestamp,
    },
}

/// The instance that a claim got, from the fleet's answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchedInstance {
    /// The instance.
    pub id: InstanceId,
    /// Its type.
    pub instance_type: InstanceType,
    /// Its zone.
    pub zone: Zone,
    /// Its subnet; `None` for old claims.
    pub subnet: Option<SubnetId>,
    /// How its capacity is paid for.
    pub capacity_type: CapacityType,
    /// The reservation that its launch named. EC2's own field isn't used, because an open reservation takes any
    /// matching instance.
    pub reservation: Option<LaunchedInto>,
    /// The placement group that its launch named.
    pub placement: Option<LaunchPlacement>,
    /// Its image.
    pub image: ImageId,
}

/// Why EC2 gave no instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchFailure {
    /// The peer's reason where there is one, such as `InsufficientCapacityError`, `LaunchTemplateNotFound`.
    pub reason: String,
    /// EC2's own code and message, shortened.
    pub message: String,
}

/// Since when a claim's Node could go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consolidatable {
    /// Since when it is known of its present pods.
    pub since: Timestamp,
    /// The digest of its pods that would move; `None` if there are none. Other pods begin the wait again.
    pub pods: Option<String>,
}

/// A step that the table of transitions doesn't have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("NodeClaim `{claim}` can't go from `{from}` to `{to}`")]
pub struct ImpossibleTransition {
    /// The claim.
    pub claim: ClaimName,
    /// Where it is.
    pub from: ClaimPhase,
    /// Where it can't go.
    pub to: ClaimPhase,
}

impl ClaimState {
    /// The state without its data.
    #[must_use]
    pub const fn phase(&self) -> ClaimPhase {
        match self {
            Self::Planned => ClaimPhase::Planned,
            Self::LaunchFailed { .. } => ClaimPhase::LaunchFailed,
            Self::Launched { .. } => ClaimPhase::Launched,
            Self::Registered { .. } => ClaimPhase::Registered,
            Self::Initialized { .. } => ClaimPhase::Initialized,
            Self::Disrupting { .. } => ClaimPhase::Disrupting,
            Self::Draining { .. } => ClaimPhase::Draining,
            Self::Drained { .. } => ClaimPhase::Drained,
            Self::Terminating { .. } => ClaimPhase::Terminating,
            Self::Terminated { .. } => ClaimPhase::Terminated,
        }
    }

    /// The instance, if there is one.
    #[must_use]
    pub const fn instance(&self) -> Option<&LaunchedInstance> {
        match self {
            Self::Planned | Self::LaunchFailed { .. } => None,
            Self::Launched { instance, .. }
            | Self::Registered { instance, .. }
            | Self::Initialized { instance, .. }
            | Self::Disrupting { instance, .. }
            | Self::Draining { instance, .. }
            | Self::Drained { instance, .. }
            | Self::Terminating { instance, .. } => Some(instance),
            Self::Terminated { instance, .. } => instance.as_ref(),
        }
    }

    /// The Node, if it has joined.
    #[must_use]
    pub const fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Planned | Self::LaunchFailed { .. } | Self::Launched { .. } => None,
            Self::Registered { node, .. }
            | Self::Initialized { node, .. }
            | Self::Disrupting { node, .. } => Some(node),
            Self::Draining { node, .. }
            | Self::Drained { node, .. }
            | Self::Terminating { node, .. }
            | Self::Terminated { node, .. } => node.as_ref(),
        }
    }

    /// The reason of the removal, once it has begun.
    #[must_use]
    pub const fn removal(&self) -> Option<RemovalReason> {
        match self {
            Self::Planned
            | Self::LaunchFailed { .. }
            | Self::Launched { .. }
            | Self::Registered { .. }
            | Self::Initialized { .. }
            | Self::Disrupting { .. } => None,
            Self::Draining { reason, .. }
            | Self::Drained { reason, .. }
            | Self::Terminating { reason, .. }
            | Self::Terminated { reason, .. } => Some(*reason),
        }
    }

    /// When the state was entered; `None` for `Planned`, which has the claim's own time.
    #[must_use]
    pub const fn since(&self) -> Option<Timestamp> {
        match self {
            Self::Planned => None,
            Self::LaunchFailed { at, .. }
            | Self::Launched { at, .. }
            | Self::Registered { at, .. }
            | Self::Initialized { at, .. }
            | Self::Disrupting { at, .. }
            | Self::Draining { at, .. }
            | Self::Drained { at, .. }
            | Self::Terminating { at, .. }
            | Self::Terminated { at, .. } => Some(*at),
        }
    }
}

impl Claim {
    /// A claim of a launch that EC2 hasn't answered.
    #[must_use]
    pub fn planned(
        name: ClaimName,
        (pool, class): (NodePoolName, NodeClassName),
        launch: LaunchId,
        created_at: Timestamp,
    ) -> Self {
        Self {
            name,
            revision: 1,
            pool,
            class,
            class_hash: None,
            pool_hash: None,
            class_fields: None,
            pool_fields: None,
            security_groups: None,
            launch,
            created_at,
            state: ClaimState::Planned,
            drift: None,
            consolidatable: None,
            announced: None,
            role: CommandRole::None,
            terms: None,
            min_values: MinValuesState::AsWritten,
            tenancy: Tenancy::Default,
            labels: BTreeMap::new(),
            requests: ResourceList::new(),
            storage: None,
            lacked: None,
        }
    }

    /// The claim's phase.
    #[must_use]
    pub const fn phase(&self) -> ClaimPhase {
        self.state.phase()
    }

    /// Until when its planned pods count for it; `None` without an end.
    ///
    /// kube-scheduler binds pods as it likes, so a planned pod may find its room taken. A claim's pods count until
    /// its node has been ready for [`BINDING_WINDOW`] at most. Pods that are pending then are planned again, against
    /// the room that is left.
    #[must_use]
    pub fn counts_pods(&self, now: Timestamp) -> PodsCounted {
        match &self.state {
            ClaimState::Planned | ClaimState::Launched { .. } | ClaimState::Registered { .. } => {
                PodsCounted::UntilReady
            }
            ClaimState::Initialized { at, .. } => {
                let end = at.saturating_add(BINDING_WINDOW).unwrap_or(Timestamp::MAX);
                if now < end { PodsCounted::Until(end) } else { PodsCounted::No }
            }
            ClaimState::LaunchFailed { .. }
            | ClaimState::Disrupting { .. }
            | ClaimState::Draining { .. }
            | ClaimState::Drained { .. }
            | ClaimState::Terminating { .. }
            | ClaimState::Terminated { .. } => PodsCounted::No,
        }
    }

    /// The claim one step on: the next state, the next revision.
    ///
    /// # Errors
    /// [`ImpossibleTransition`] when the table of transitions doesn't have the step.
    pub fn stepped(&self, to: ClaimState) -> Result<Self, ImpossibleTransition> {
        if may_follow(self.phase(), to.phase()) {
            Ok(Self { state: to, revision: self.revision.saturating_add(1), ..self.clone() })
        } else {
            Err(ImpossibleTransition { claim: self.name.clone(), from: self.phase(), to: to.phase() })
        }
    }
}
