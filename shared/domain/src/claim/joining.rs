//! Whether a NodePool's nodes join, and how long it waits with the next launch if they don't.
//!
//! Decides from the claims alone, which the table keeps for a day after their end. Claims that are made within
//! [`REGISTRATION_TIMEOUT`] of each other are one round: none of them knows how the others end. One failed round has many
//! causes; after two, each launch costs an instance for nothing until somebody mends what is wrong. The peer launches
//! again at once, for ever.

use jiff::{SignedDuration, Timestamp};

use super::{Claim, ClaimState, RemovalReason};
use crate::wait::doubled;

/// How long after its launch a Node must have joined. Source: kubernetes-sigs/karpenter
/// `pkg/controllers/nodeclaim/lifecycle/liveness.go`.
pub const REGISTRATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(15);
/// So many rounds in a row are no chance.
const FAILED_ROUNDS: u32 = 2;
/// The wait after them. It doubles with each round.
const FIRST_WAIT: SignedDuration = SignedDuration::from_mins(15);
/// The longest wait.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(2);

/// How a launch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchOutcome {
    /// Its Node joined, and became ready in time if that is known.
    Joined,
    /// It didn't.
    Failed,
}

/// Whether a pool's nodes join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joining {
    /// They do, as far as is known.
    Fine,
    /// So many rounds in a row failed. The next launch waits until then.
    Waits {
        /// How many.
        rounds: u32,
        /// Until when.
        until: Timestamp,
    },
    /// The wait is over: one claim tries.
    Tries,
}

impl Claim {
    /// How its launch ended; `None` while that is open, or if something else ended it.
    #[must_use]
    pub fn outcome(&self) -> Option<LaunchOutcome> {
        match &self.state {
            ClaimState::Registered { .. }
            | ClaimState::Initialized { .. }
            | ClaimState::Disrupting { .. } => Some(LaunchOutcome::Joined),
            ClaimState::Draining { reason, node, .. }
            | ClaimState::Drained { reason, node, .. }
            | ClaimState::Terminating { reason, node, .. }
            | ClaimState::Terminated { reason, node, .. } => match (reason, node) {
                (RemovalReason::RegistrationTimeout | RemovalReason::InitializationTimeout, _) => {
                    Some(LaunchOutcome::Failed)
                }
                (_, Some(_)) => Some(LaunchOutcome::Joined),
                (_, None) => None,
            },
            ClaimState::Planned | ClaimState::LaunchFailed { .. } | ClaimState::Launched { .. } => None,
        }
    }
}

/// What the Node of the claim that failed last lacked; `None` if it didn't join.
#[must_use]
pub fn lacked<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> Option<&'a str> {
    let failed = claims.into_iter().filter(|claim| claim.outcome() == Some(LaunchOutcome::Failed));
    let last = failed.max_by(|a, b| (a.state.since(), &a.name).cmp(&(b.state.since(), &b.name)))?;
    last.lacked.as_deref()
}

/// One round of a pool's claims.
#[derive(Default)]
struct LaunchRound {
    joined: bool,
    failed_at: Option<Timestamp>,
}

/// Whether the pool of these claims waits.
#[must_use]
pub fn joining<'a>(claims: impl IntoIterator<Item = &'a Claim>, now: Timestamp) -> Joining {
    let mut claims: Vec<&Claim> = claims.into_iter().collect();
    claims.sort_by_key(|claim| claim.created_at);
    let (mut rounds, mut failed_at) = (0, Timestamp::MIN);
    let mut rest = claims.as_slice();
    while let Some(first) = rest.first() {
        let end = first.created_at.saturating_add(REGISTRATION_TIMEOUT).unwrap_or(Timestamp::MAX);
        let (round, later) = rest.split_at(rest.partition_point(|claim| claim.created_at < end).max(1));
        rest = later;
        match judge(round) {
            LaunchRound { joined: true, .. } => rounds = 0,
            LaunchRound { failed_at: Some(at), .. } => {
                rounds += 1;
                failed_at = at;
            }
            LaunchRound { joined: false, failed_at: None } => {}
        }
    }
    if rounds < FAILED_ROUNDS {
        return Joining::Fine;
    }
    let wait = doubled(FIRST_WAIT, rounds - FAILED_ROUNDS, LONGEST_WAIT);
    let until = failed_at.saturating_add(wait).unwrap_or(Timestamp::MAX);
    if now < until {
        return Joining::Waits { rounds, until };
    }
    let tries = claims.iter().filter(|claim| claim.created_at >= until && claim.outcome().is_none());
    let open = tries.filter(|claim| is_open(claim)).map(|claim| claim.created_at).max();
    match open.and_then(|at| at.checked_add(REGISTRATION_TIMEOUT).ok()) {
        Some(until) => Joining::Waits { rounds, until },
        None => Joining::Tries,
    }
}

fn judge(round: &[&Claim]) -> LaunchRound {
    let mut found = LaunchRound::default();
    for claim in round {
        match claim.outcome() {
            Some(LaunchOutcome::Joined) => found.joined = true,
            Some(LaunchOutcome::Failed) => found.failed_at = found.failed_at.max(claim.state.since()),
            None => {}
        }
    }
    found
}

/// Whether the claim's Node may still join.
const fn is_open(claim: &Claim) -> bool {
    match claim.state {
        ClaimState::Planned | ClaimState::Launched { .. } => true,
        ClaimState::LaunchFailed { .. }
        | ClaimState::Registered { .. }
        | ClaimState::Initialized { .. }
        | ClaimState::Disrupting { .. }
        | ClaimState::Draining { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. }
        | ClaimState::Terminated { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::LaunchedInstance;
    use crate::id::{ClaimName, LaunchId, NodeClassName, NodePoolName};

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(minutes * 60).unwrap()
    }

    fn instance() -> LaunchedInstance {
        LaunchedInstance {
            id: "i-0a".parse().unwrap(),
            instance_type: "m5.large".parse().unwrap(),
            zone: "us-east-1a".parse().unwrap(),
            capacity_type: crate::catalog::CapacityType::OnDemand,
            image: "ami-0a".parse().unwrap(),
            subnet: None,
            reservation: None,
            placement: None,
        }
    }

    /// A claim that is made at a minute and ends so.
    fn claim(made: i64, end: ClaimEnd) -> Claim {
        let terminated =
            |reason, at| ClaimState::Terminated { instance: Some(instance()), node: None, reason, at };
        let (name, launch) = (format!("a-{made}"), LaunchId::parse("launch-1").unwrap());
        let of = (NodePoolName::parse("a").unwrap(), NodeClassName::parse("c").unwrap());
        let planned = Claim::planned(ClaimName::parse(name).unwrap(), of, launch, at(made));
        let state = match end {
            ClaimEnd::Open => ClaimState::Launched { instance: instance(), at: at(made) },
            ClaimEnd::Joined => {
                let node = "n".parse().unwrap();
                ClaimState::Initialized { instance: instance(), node, at: at(made + 1) }
            }
            ClaimEnd::Failed => terminated(RemovalReason::RegistrationTimeout, at(made + 16)),
            ClaimEnd::Interrupted => terminated(RemovalReason::SpotInterrupted, at(made + 3)),
        };
        Claim { state, ..planned }
    }

    #[test]
    fn what_the_last_failed_node_lacked_is_known_if_it_joined() {
        let check = |of: &[(i64, ClaimEnd, Option<&str>)], expected: Option<&str>| {
            let with = |(made, end, lacks): &(i64, ClaimEnd, Option<&str>)| Claim {
                lacked: lacks.map(str::to_owned),
                ..claim(*made, *end)
            };
            let claims: Vec<Claim> = of.iter().map(with).collect();
            assert_eq!(lacked(&claims), expected);
        };
        let (first, second) = (Some("Node `a` isn't Ready"), Some("Node `b` isn't Ready"));
        check(&[], None);
        check(&[(0, ClaimEnd::Failed, first), (20, ClaimEnd::Failed, second)], second);
        check(&[(0, ClaimEnd::Failed, first), (20, ClaimEnd::Joined, None)], first);
        check(&[(0, ClaimEnd::Failed, first), (20, ClaimEnd::Failed, None)], None);
    }

    #[derive(Clone, Copy)]
    enum ClaimEnd {
        Open,
        Joined,
        Failed,
        Interrupted,
    }

    #[test]
    fn a_pool_waits_longer_with_each_round_that_failed_and_then_tries_with_one_claim() {
        use ClaimEnd::{Failed, Interrupted, Joined, Open};
        let check = |ends: &[(i64, ClaimEnd)], now: i64, expected: Joining| {
            let claims: Vec<Claim> = ends.iter().map(|(made, end)| claim(*made, *end)).collect();
            assert_eq!(joining(&claims, at(now)), expected, "at {now}");
        };
        let waits = |rounds, until: i64| Joining::Waits { rounds, until: at(until) };
        check(&[], 0, Joining::Fine);
        // Claims of one round fail together.
        check(&[(0, Failed), (1, Failed), (14, Failed)], 31, Joining::Fine);
        check(&[(0, Failed), (16, Failed)], 32, waits(2, 47));
        check(&[(0, Failed), (16, Failed)], 47, Joining::Tries);
        // While one tries, the others wait for it.
        check(&[(0, Failed), (16, Failed), (47, Open)], 50, waits(2, 62));
        check(&[(0, Failed), (16, Failed), (47, Failed)], 63, waits(3, 93));
        check(&[(0, Failed), (16, Failed), (47, Failed), (93, Failed)], 109, waits(4, 169));
        let long: Vec<(i64, ClaimEnd)> = (0..9).map(|n| (n * 20, Failed)).collect();
        check(&long, 177, waits(9, 176 + 120));
        // One that joins ends it; something else says nothing.
        check(&[(0, Failed), (16, Failed), (47, Joined)], 63, Joining::Fine);
        check(&[(0, Failed), (16, Joined), (47, Failed)], 63, Joining::Fine);
        check(&[(0, Failed), (1, Joined), (16, Failed)], 32, Joining::Fine);
        check(&[(0, Failed), (16, Interrupted), (32, Failed)], 48, waits(2, 63));
    }
}
