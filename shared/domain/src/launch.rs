//! A launch: one CreateFleet request for equal claims, committed before it is sent.
//!
//! Invariants: every call sends the stored request, byte for byte, under the stored client token; a launch counts a pod
//! on one claim at most, and at most [`PODS_PER_LAUNCH`] pods.

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

impl Launch {
    /// The launch one step on, with these pods on these claims of it; `None` if it counts them already. A pod leaves another
    /// claim of the launch for it. Pods beyond [`PODS_PER_LAUNCH`] aren't counted.
    #[must_use]
    pub fn joined_by<'a>(&self, pods: impl IntoIterator<Item = (&'a ClaimName, &'a Uid)>) -> Option<Self> {
        let mut next = Self { revision: self.revision.saturating_add(1), ..self.clone() };
        for (claim, pod) in pods {
            next.count(claim, pod);
        }
        (next.claims != self.claims).then_some(next)
    }

    /// Counts the pod on the claim.
    fn count(&mut self, on: &ClaimName, pod: &Uid) {
        let counts = |claim: &LaunchClaim| claim.pods.contains(pod);
        let Some(claim) = self.claims.iter().find(|claim| claim.name == *on) else { return };
        if counts(claim) {
            return;
        }
        let all: usize = self.claims.iter().map(|claim| claim.pods.len()).sum();
        if all >= PODS_PER_LAUNCH && !self.claims.iter().any(counts) {
            return;
        }
        for claim in &mut self.claims {
            if claim.name == *on {
                claim.pods.push(pod.clone());
            } else {
                claim.pods.retain(|other| other != pod);
            }
        }
    }
}

/// A claim of a launch and the pods that are counted on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchClaim {
    /// The claim.
    pub name: ClaimName,
    /// The pods that it was planned for, and those that joined it on its way; no other plan counts them while it has room
    /// for them. The journal has their names.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(claims: &[(&str, &[&str])]) -> Launch {
        let of = |(name, pods): &(&str, &[&str])| LaunchClaim {
            name: ClaimName::parse(*name).unwrap(),
            pods: pods.iter().map(|pod| Uid::parse(*pod).unwrap()).collect(),
        };
        Launch {
            id: LaunchId::parse("launch-1").unwrap(),
            revision: 2,
            pool: NodePoolName::parse("default").unwrap(),
            class: NodeClassName::parse("default").unwrap(),
            token: ClientToken::parse("tenon-1").unwrap(),
            request: String::new(),
            made_from: None,
            reservation: None,
            placement: None,
            claims: claims.iter().map(of).collect(),
            cause: LaunchCause::PendingPods,
            created_at: Timestamp::UNIX_EPOCH,
            state: LaunchState::Settled { at: Timestamp::UNIX_EPOCH, instances: 2 },
        }
    }

    #[test]
    fn a_pod_joins_one_claim_of_a_launch_once() {
        let before = launch(&[("default-aaaaa", &["1", "2"]), ("default-bbbbb", &[])]);
        let check = |claim: &str, pod: &str, expected: Option<[&[&str]; 2]>| {
            let (claim, pod) = (ClaimName::parse(claim).unwrap(), Uid::parse(pod).unwrap());
            let expected = expected.map(|[first, second]| Launch {
                revision: 3,
                ..launch(&[("default-aaaaa", first), ("default-bbbbb", second)])
            });
            assert_eq!(before.joined_by([(&claim, &pod)]), expected, "{pod} on {claim}");
        };
        check("default-aaaaa", "3", Some([&["1", "2", "3"], &[]]));
        check("default-aaaaa", "2", None);
        check("default-bbbbb", "2", Some([&["1"], &["2"]]));
        check("default-ccccc", "3", None);
    }

    #[test]
    fn a_full_launch_counts_no_more_pods_but_may_move_its_own() {
        let pods: Vec<String> = (0..PODS_PER_LAUNCH - 1).map(|n| n.to_string()).collect();
        let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
        let before = launch(&[("default-aaaaa", &pods), ("default-bbbbb", &[])]);
        let claims = ["default-aaaaa", "default-bbbbb"].map(|name| ClaimName::parse(name).unwrap());
        let [first, second, own] = ["one", "two", "0"].map(|pod| Uid::parse(pod).unwrap());
        let joining = [(&claims[0], &first), (&claims[0], &second), (&claims[1], &own)];
        let after = before.joined_by(joining).unwrap();
        assert_eq!(after.claims[0].pods.len(), PODS_PER_LAUNCH - 1);
        assert!(after.claims[0].pods.contains(&first) && !after.claims[0].pods.contains(&second));
        assert_eq!(after.claims[1].pods, [own]);
    }
}
