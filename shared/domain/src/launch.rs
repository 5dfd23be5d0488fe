//! A launch: one CreateFleet request for equal claims, committed before it is sent.
//!
//! Invariant: every call sends the stored request, byte for byte, under the stored client token.

use jiff::{SignedDuration, Timestamp};

use crate::id::{
    ClaimName, ClientToken, CommandId, LaunchId, NamespacedName, NodeClassName, NodePoolName, Uid,
};
use crate::placement::LaunchPlacement;
use crate::reservation::LaunchedInto;
use crate::unavailable::RequestDigest;

/// A launch without an answer is sent again under its token up to this age; later, its instances are searched by the
/// launch's tag. EC2 documents no lifetime for CreateFleet's tokens. Other EC2 calls keep theirs for hours, so ten
/// minutes are safe.
pub const REPLAY_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// How long DescribeInstances may miss new instances.
pub const EC2_CONSISTENCY: SignedDuration = SignedDuration::from_mins(2);

/// Most pods that one launch records, so that its item and that of its pods' names stay well under DynamoDB's 400 KB.
pub const PODS_PER_LAUNCH: usize = 1_500;

/// Most claims of one launch: with their items they must fit into one transaction of 100 actions.
pub const CLAIMS_PER_LAUNCH: usize = 20;

/// A launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Its id, which its instances carry as a tag.
    pub id: LaunchId,
    /// The count of steps.
    pub revision: u64,
    /// The pool of its claims.
    pub pool: NodePoolName,
    /// Their node class.
    pub class: NodeClassName,
    /// The client token of the request.
    pub token: ClientToken,
    /// The request as it is stored and sent (the cloud adapter's stored form).
    pub request: String,
    /// The class's spec and images that it was made from; `None` for launches of releases before this field.
    pub made_from: Option<RequestDigest>,
    /// The capacity reservation that its instances are launched into.
    pub reservation: Option<LaunchedInto>,
    /// The placement group that its instances are launched into.
    pub placement: Option<LaunchPlacement>,
    /// Its claims, in the order in which instances are dealt to them.
    pub claims: Vec<LaunchClaim>,
    /// The reason of the launch.
    pub cause: LaunchCause,
    /// When it was committed.
    pub created_at: Timestamp,
    /// How far it is.
    pub state: LaunchState,
}

/// A claim of a launch and the pods that are counted on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchClaim {
    /// The claim.
    pub name: ClaimName,
    /// The pods that it was planned for; no other plan counts them while it has room for them. The journal has their
    /// names.
    pub pods: Vec<Uid>,
}

/// A pod that is counted on a claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountedPod {
    /// Its name.
    pub name: NamespacedName,
    /// Its UID: a pod that is made again under the same name is another pod.
    pub uid: Uid,
}

/// The reason of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchCause {
    /// Pods that wait.
    PendingPods,
    /// A disruption command, whose candidates it replaces.
    Replacement(CommandId),
}

/// How far a launch is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchState {
    /// Committed; it may have been sent, its answer isn't recorded.
    Requested {
        /// The number of transient refusals of the call (throttled, server error).
        attempts: u32,
        /// Not to be sent again before.
        not_before: Timestamp,
    },
    /// The answer is recorded with its claims.
    Settled {
        /// When.
        at: Timestamp,
        /// How many instances it got.
        instances: u32,
    },
}
