//! What is known of one claim.

use jiff::{SignedDuration, Timestamp};

use super::phase::{ClaimPhase, may_follow};
use super::terms::Terms;
use crate::catalog::CapacityType;
use crate::id::{
    ClaimName, CommandId, ImageId, InstanceId, InstanceType, LaunchId, NodeClassName, NodeName, NodePoolName,
    SubnetId, Zone,
};
use crate::reservation::LaunchedInto;
use crate::resources::ResourceList;

/// A claim: one node wanted, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its name: `<pool>-<five characters>`.
    pub name: ClaimName,
    /// Counts up with every step; the condition of the next.
    pub revision: u64,
    /// Its pool.
    pub pool: NodePoolName,
    /// Its node class.
    pub class: NodeClassName,
    /// The launch that it shares with its equals.
    pub launch: LaunchId,
    /// When it was committed.
    pub created_at: Timestamp,
    /// How far it is.
    pub state: ClaimState,
    /// Set once it is seen to have drifted; cleared when it no longer has.
    pub drift: Option<Drift>,
    /// What it is to a disruption command.
    pub role: CommandRole,
    /// What it keeps of its pool's template; nothing of a claim that was made before that was kept.
    pub terms: Option<Terms>,
    /// Requests of its pods and of the DaemonSets, as in `spec.resources.requests`.
    pub requests: ResourceList,
}

/// How long a node that is ready keeps the pods that were planned on it: the peer protects a nominated node for 20 s
/// (kubernetes-sigs/karpenter `pkg/controllers/state/cluster.go`), and the agent reports a binding within 10 s.
pub const BINDING_WINDOW: SignedDuration = SignedDuration::from_secs(30);

/// Whether a claim's pods are its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodsCounted {
    /// They are, until its node is ready and after.
    UntilReady,
    /// They are, until then.
    Until(Timestamp),
    /// They aren't any more.
    No,
}

/// What a claim is to a disruption command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandRole {
    /// Nothing: it was made for pending pods.
    None,
    /// It replaces that command's candidates.
    Replacement(CommandId),
}

/// A claim's state, with what is known in it.
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
        /// When the drain began.
        at: Timestamp,
        /// When the instance goes whether or not the drain is done.
        deadline: Option<Timestamp>,
    },
    /// See [`ClaimPhase::Drained`].
    Drained {
        /// Its instance.
        instance: LaunchedInstance,
        /// Its Node, if it ever joined.
        node: Option<NodeName>,
        /// Why it was drained.
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
        /// When EC2 was told.
        at: Timestamp,
    },
    /// See [`ClaimPhase::Terminated`].
    Terminated {
        /// The instance that it had, if it ever had one.
        instance: Option<LaunchedInstance>,
        /// The Node that it had, if it ever joined.
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
    /// Its subnet; unknown of claims that were launched before it was kept.
    pub subnet: Option<SubnetId>,
    /// How its capacity is paid for.
    pub capacity_type: CapacityType,
    /// The reservation that it was launched into, as its launch asked. What EC2 says of an instance is never taken
    /// for it: an open reservation takes whatever fits.
    pub reservation: Option<LaunchedInto>,
    /// The image that it was launched from.
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

/// A claim that no longer is what its pool and class would make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Which part.
    pub reason: DriftReason,
    /// Since when it is known; orders replacement.
    pub since: Timestamp,
    /// What it has.
    pub from: String,
    /// What it would get.
    pub to: String,
}

/// What drifted, in the peer's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriftReason {
    /// The class resolves to another image.
    AmiDrift,
    /// Its subnet isn't the class's any more.
    SubnetDrift,
    /// Its reservation isn't the class's any more.
    CapacityReservationDrift,
}

impl DriftReason {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::AmiDrift, Self::SubnetDrift, Self::CapacityReservationDrift];

    /// The reason in the condition `Drifted`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AmiDrift => "AMIDrift",
            Self::SubnetDrift => "SubnetDrift",
            Self::CapacityReservationDrift => "CapacityReservationDrift",
        }
    }

    /// The reason of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// Why a claim goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemovalReason {
    /// It drifted and was replaced.
    Drifted,
    /// EC2 takes its spot instance back.
    SpotInterrupted,
    /// EC2 takes its reserved instance back.
    CapacityReservationInterrupted,
    /// AWS Health announced a change of its instance.
    ScheduledChange,
    /// Its instance is stopping or stopped.
    InstanceStopped,
    /// Its instance is terminated, and not by us.
    InstanceTerminated,
    /// The user deleted the claim, its Node, its pool or its class.
    Deleted,
    /// Its `expireAfter` passed.
    Expired,
    /// No Node joined in time.
    RegistrationTimeout,
}

impl RemovalReason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::Drifted,
        Self::SpotInterrupted,
        Self::CapacityReservationInterrupted,
        Self::ScheduledChange,
        Self::InstanceStopped,
        Self::InstanceTerminated,
        Self::Deleted,
        Self::Expired,
        Self::RegistrationTimeout,
    ];

    /// The reason's stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drifted => "Drifted",
            Self::SpotInterrupted => "SpotInterrupted",
            Self::CapacityReservationInterrupted => "CapacityReservationInterrupted",
            Self::ScheduledChange => "ScheduledChange",
            Self::InstanceStopped => "InstanceStopped",
            Self::InstanceTerminated => "InstanceTerminated",
            Self::Deleted => "Deleted",
            Self::Expired => "Expired",
            Self::RegistrationTimeout => "RegistrationTimeout",
        }
    }

    /// The reason of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
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

    /// The instance, once there is one.
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

    /// The Node, once it joined.
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

    /// Why the claim goes, once it does.
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

    /// When the state was entered; `None` for `Planned`, whose time is the claim's.
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
    /// The claim's phase.
    #[must_use]
    pub const fn phase(&self) -> ClaimPhase {
        self.state.phase()
    }

    /// Until when the pods that were planned on it count for it; `None` while there is no end to that.
    ///
    /// kube-scheduler binds pods as it likes: once the node takes pods, one that was planned for it may find its place
    /// taken by another. So the pods are the claim's until its node has been ready for [`BINDING_WINDOW`] at most, and
    /// whatever still waits then is planned anew, against the room that is really left.
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
