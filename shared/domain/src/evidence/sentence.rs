//! The sentences of the reasons to wait: what is missing, of which object, and what to do.
//!
//! Decides words only. Each reason has one sentence for the journal, the log and Kubernetes.

use std::fmt;

use jiff::Timestamp;

use super::{CLASS_DELETED, CLASS_UNREADABLE, NOT_RESOLVED, Waiting};
use crate::boot::JOIN_CHECKS;
use crate::karpenter;
use crate::launch_verdict::NO_LAUNCH;

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CatalogNotHydrated { part } => write!(
                f,
                "catalogue part `{part}` isn't loaded yet: function `catalog` loads it within 10 minutes, or `tenon get \
                 catalog` says why not"
            ),
            Self::CatalogStale { part, age } => {
                write!(
                    f,
                    "catalogue part `{part}` is {} s old, which is too old to plan with: see `tenon get catalog`",
                    age.as_secs()
                )
            }
            Self::SnapshotMissing => {
                f.write_str("the cluster's agent hasn't reported yet: install it, or check its pods")
            }
            Self::SnapshotStale { age } => {
                write!(f, "the cluster's agent last reported {} s ago: check its pods", age.as_secs())
            }
            Self::SnapshotAhead { by } => write!(
                f,
                "the cluster's agent dates its report {} s ahead of now: set the clock of the agent's node",
                by.as_secs()
            ),
            Self::SnapshotTooLarge { size, most, unit } => write!(
                f,
                "the agent's snapshot has at least {size} {unit}, the limit is {most}: delete what the cluster has too many of, \
                 such as finished pods"
            ),
            Self::NodeClassNotReady { class, reason } if reason == NOT_RESOLVED => {
                write!(
                    f,
                    "EC2NodeClass `{class}` isn't resolved yet: function `node-classes` resolves it within 5 minutes, or its \
                     log says why not"
                )
            }
            Self::NodeClassNotReady { class, reason } if reason == CLASS_DELETED => write!(
                f,
                "EC2NodeClass `{class}` isn't ready: it is being deleted: create it again once it is gone, which waits for its NodeClaims, or let the NodePool name another"
            ),
            Self::NodeClassNotReady { class, reason } if reason == CLASS_UNREADABLE => write!(
                f,
                "EC2NodeClass `{class}` isn't ready: it is invalid: its condition `ValidationSucceeded` names the fields to \
                 correct"
            ),
            Self::NodeClassNotReady { class, reason } => {
                write!(f, "EC2NodeClass `{class}` isn't ready: {reason}: its conditions say what to do")
            }
            Self::NodePoolNotReady { pool, reason, message } => {
                f.write_str(&pool_not_ready(pool, reason, message.as_deref()))
            }
            Self::LaunchRefused { pool, code, message, until } => {
                f.write_str(refused_by(message.as_deref()))?;
                write!(f, " launches of NodePool `{pool}` ({code}")?;
                message.as_ref().map_or(Ok(()), |message| write!(f, ": {message}"))?;
                write!(f, "); next launch at `{until:.0}`, or when the NodePool or its EC2NodeClass changes")
            }
            Self::NodesNotJoining { pool, rounds, until } => f.write_str(&not_joined(pool, *rounds, *until)),
            Self::NodesNotInitialized { pool, rounds, lacked, until } => {
                f.write_str(&not_initialized(pool, *rounds, lacked, *until))
            }
            Self::KarpenterRuns { pod } => f.write_str(&karpenter::runs(pod)),
            Self::ClusterNotRegistered => {
                f.write_str("the cluster isn't registered: deploy its per-cluster stack")
            }
            Self::TableRestored => f.write_str(
                "terminations and disruptions are halted: do what the item `HALT` says, then delete it",
            ),
        }
    }
}

fn pool_not_ready(pool: &str, reason: &str, message: Option<&str>) -> String {
    match message {
        Some(message) => format!("NodePool `{pool}` isn't ready ({reason}): {message}"),
        None => format!("NodePool `{pool}` isn't ready: {reason}: the NodePool's conditions say what to do"),
    }
}

fn not_joined(pool: &str, rounds: u32, until: Timestamp) -> String {
    format!(
        "no Node of NodePool `{pool}` joined in time, {rounds} rounds of launches in a row: check an instance's boot (`aws ec2 \
         get-console-output`), {JOIN_CHECKS}; next launch at `{until:.0}`, or when the NodePool's template or its EC2NodeClass changes"
    )
}

fn not_initialized(pool: &str, rounds: u32, lacked: &str, until: Timestamp) -> String {
    format!(
        "no Node of NodePool `{pool}` was initialised in time, {rounds} rounds of launches in a row: Nodes joined, and at last \
         {lacked}; next launch at `{until:.0}`, or when the NodePool's template or its EC2NodeClass changes"
    )
}

/// Without a request, EC2 refused nothing.
fn refused_by(message: Option<&str>) -> &'static str {
    match message {
        Some(message) if message.starts_with(NO_LAUNCH) => "Tenon can't make",
        Some(_) | None => "EC2 refuses",
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn nodes_that_joined_are_told_with_what_they_lacked() {
        let waiting = Waiting::NodesNotInitialized {
            pool: "default".to_owned(),
            rounds: 2,
            lacked: "Node `n` still has the taint `example.com/wait=x:NoSchedule`".to_owned(),
            until: at(0),
        };
        assert_eq!(
            waiting.to_string(),
            "no Node of NodePool `default` was initialised in time, 2 rounds of launches in a row: Nodes joined, and at last Node \
             `n` still has the taint `example.com/wait=x:NoSchedule`; next launch at `1970-01-01T00:00:00Z`, or when the \
             NodePool's template or its EC2NodeClass changes"
        );
        assert_eq!((waiting.into_str(), waiting.ends_at()), ("NodesNotInitialized", Some(at(0))));
    }

    #[test]
    fn a_clock_that_is_ahead_is_told_with_how_far() {
        assert_eq!(
            Waiting::SnapshotAhead { by: SignedDuration::from_secs(16) }.to_string(),
            "the cluster's agent dates its report 16 s ahead of now: set the clock of the agent's node"
        );
    }
}
