//! Evidence: what a decision must know before it may be made, and the reason if it is missing.
//!
//! Only [`require`] makes a `Ready<T>`: a planner that takes `&Ready<Catalog>` can't get an empty, stale or
//! half-written catalogue. Missing evidence is a typed [`Waiting`], never an empty list.

use std::fmt;

pub use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};

use crate::id::Region;
use crate::launch_verdict::NO_LAUNCH;

/// A snapshot older than this supports no launch for pods and no voluntary disruption. The agent refreshes its
/// heartbeat every [`HEARTBEAT_EVERY`], so one heartbeat may be lost.
pub const SNAPSHOT_STALE_AFTER: SignedDuration = SignedDuration::from_secs(90);

/// How far an agent's clock may be ahead of a function's. A time beyond it tells nothing of a report's age: counted as
/// fresh, it would stay so until that time comes. AWS keeps both clocks right to milliseconds; the rest is for a region
/// on this machine, whose time runs some seconds behind that of a real cluster while it is busy.
pub const CLOCK_SKEW_MOST: SignedDuration = SignedDuration::from_secs(15);

/// How often an agent confirms an unchanged snapshot.
pub const HEARTBEAT_EVERY: SignedDuration = SignedDuration::from_secs(40);

crate::words! {
    /// A part of the catalogue. Each is refreshed, and becomes stale, on its own. The table and the command line have
    /// its word.
    pub enum CatalogPart {
        /// The answers of DescribeInstanceTypes.
        InstanceTypes = "instance-types",
        /// Which type is offered in which zone.
        Offerings = "offerings",
        /// On-demand prices.
        OnDemandPrices = "on-demand-prices",
        /// Spot prices by zone.
        SpotPrices = "spot-prices",
    }
}

impl CatalogPart {
    /// How often it is refreshed.
    #[must_use]
    pub const fn refresh_every(self) -> SignedDuration {
        match self {
            Self::InstanceTypes | Self::Offerings => SignedDuration::from_hours(6),
            Self::OnDemandPrices => SignedDuration::from_hours(12),
            Self::SpotPrices => SignedDuration::from_mins(10),
        }
    }

    /// The age from which the part supports no decision. Types and list prices change over months, so several
    /// refreshes may fail; a spot price means little after some hours.
    #[must_use]
    pub const fn stale_after(self) -> SignedDuration {
        match self {
            Self::InstanceTypes | Self::Offerings => SignedDuration::from_hours(7 * 24),
            Self::OnDemandPrices => SignedDuration::from_hours(30 * 24),
            Self::SpotPrices => SignedDuration::from_hours(6),
        }
    }
}

crate::words! {
    /// The error of a part's refresh. Transient errors are told apart from those that need a person. The table, events
    /// and the command line have its word.
    pub enum ErrorKind {
        /// Too many requests.
        Throttled,
        /// The caller may not ask.
        Denied,
        /// No answer came.
        NoAnswer,
        /// AWS's own fault.
        Server,
        /// The answer is empty.
        Empty,
        /// The answer is much smaller than the last one, so it may be incomplete.
        Shrunk,
        /// The answer is unreadable, or the request was refused as invalid.
        Malformed,
        /// The region has no such API.
        NoApi,
    }
}

impl ErrorKind {
    /// Whether asking again later is no help by itself.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        match self {
            Self::Denied | Self::NoApi => true,
            Self::Throttled
            | Self::NoAnswer
            | Self::Server
            | Self::Empty
            | Self::Shrunk
            | Self::Malformed => false,
        }
    }
}

/// A refresh of a part that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshFailure {
    /// Its kind.
    pub kind: ErrorKind,
    /// The message for people.
    pub message: String,
}

/// Where a part's content is from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PartOrigin {
    /// AWS answered so.
    #[default]
    Answered,
    /// The price list of the release, for regions without an API.
    Shipped {
        /// The day of which it is.
        as_of: Date,
        /// Its region; another one if the release has none for the region itself.
        region: Region,
    },
}

/// Checked evidence, fresh enough for the decision. Only [`require`] and [`require_snapshot`] make it.
#[derive(Debug, Clone)]
pub struct Ready<T> {
    value: T,
    as_of: Timestamp,
}

impl<T> Ready<T> {
    /// The time of its last refresh.
    pub const fn as_of(&self) -> Timestamp {
        self.as_of
    }

    /// A part of the evidence, if it exists: as fresh as the whole.
    pub fn part<U>(self, of: impl FnOnce(T) -> Option<U>) -> Option<Ready<U>> {
        let as_of = self.as_of;
        Some(Ready { value: of(self.value)?, as_of })
    }
}

impl<T> std::ops::Deref for Ready<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// The reason of a class that `node-classes` hasn't resolved yet.
pub const NOT_RESOLVED: &str = "AwaitingReconciliation";
/// The reason of a class that the agent reported and that can't be read.
pub const CLASS_UNREADABLE: &str = "NodeClassUnreadable";
/// The reason of a class that is being deleted.
pub const CLASS_DELETED: &str = "NodeClassTerminating";

/// Why a decision waits. Not an error: it ends in the report, the journal and a condition. Conditions, reports and
/// metrics have its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(const_into_str)]
pub enum Waiting {
    /// A part of the catalogue never arrived.
    CatalogNotHydrated {
        /// Which.
        part: CatalogPart,
    },
    /// A part of the catalogue is too old.
    CatalogStale {
        /// Which.
        part: CatalogPart,
        /// How old it is.
        age: SignedDuration,
    },
    /// The cluster's agent never reported.
    SnapshotMissing,
    /// The agent's last heartbeat is too old.
    SnapshotStale {
        /// How old it is.
        age: SignedDuration,
    },
    /// The agent's last heartbeat has a time that hasn't come yet.
    SnapshotAhead {
        /// How far it is ahead.
        by: SignedDuration,
    },
    /// The agent's snapshot is too large for the functions' memory.
    SnapshotTooLarge {
        /// How much it is at least.
        size: u64,
        /// The most that is read.
        most: u64,
        /// The unit of the size.
        unit: &'static str,
    },
    /// A node class isn't ready; holds what it waits for.
    NodeClassNotReady {
        /// The class.
        class: String,
        /// The reason of its first condition that isn't True.
        reason: String,
    },
    /// A NodePool isn't ready by its own status, which only a simulation asks: functions judge its class.
    NodePoolNotReady {
        /// The pool.
        pool: String,
        /// The reason of its condition.
        reason: String,
    },
    /// EC2 refuses a pool's launches, whatever the offering.
    LaunchRefused {
        /// The pool.
        pool: String,
        /// EC2's code.
        code: String,
        /// EC2's words.
        message: Option<String>,
        /// When a launch is tried again.
        until: Timestamp,
    },
    /// A pool's nodes don't join.
    NodesNotJoining {
        /// The pool.
        pool: String,
        /// How many rounds of launches failed in a row.
        rounds: u32,
        /// When a launch is tried again.
        until: Timestamp,
    },
    /// The cluster isn't in the registry: its per-cluster stack isn't deployed.
    ClusterNotRegistered,
    /// The table was restored, or unknown instances have our tags, and no person has confirmed it yet.
    TableRestored,
}

impl Waiting {
    /// The part of the reason that makes it a different one: the class's or the pool's own reason. An age doesn't.
    #[must_use]
    pub fn condition(&self) -> Option<&str> {
        match self {
            Self::NodeClassNotReady { reason, .. } | Self::NodePoolNotReady { reason, .. } => Some(reason),
            Self::LaunchRefused { code, .. } => Some(code),
            Self::CatalogNotHydrated { part } | Self::CatalogStale { part, .. } => Some(part.as_str()),
            Self::SnapshotMissing
            | Self::SnapshotStale { .. }
            | Self::SnapshotAhead { .. }
            | Self::SnapshotTooLarge { .. }
            | Self::NodesNotJoining { .. }
            | Self::ClusterNotRegistered
            | Self::TableRestored => None,
        }
    }

    /// When it ends by itself, where that is known.
    #[must_use]
    pub const fn ends_at(&self) -> Option<Timestamp> {
        match self {
            Self::LaunchRefused { until, .. } | Self::NodesNotJoining { until, .. } => Some(*until),
            Self::CatalogNotHydrated { .. }
            | Self::CatalogStale { .. }
            | Self::SnapshotMissing
            | Self::SnapshotStale { .. }
            | Self::SnapshotAhead { .. }
            | Self::SnapshotTooLarge { .. }
            | Self::NodeClassNotReady { .. }
            | Self::NodePoolNotReady { .. }
            | Self::ClusterNotRegistered
            | Self::TableRestored => None,
        }
    }
}

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
                "EC2NodeClass `{class}` isn't ready: it is being deleted: create it again, or let the NodePool name another"
            ),
            Self::NodeClassNotReady { class, reason } if reason == CLASS_UNREADABLE => write!(
                f,
                "EC2NodeClass `{class}` isn't ready: it is invalid: its condition `ValidationSucceeded` names the fields to \
                 correct"
            ),
            Self::NodeClassNotReady { class, reason } => {
                write!(f, "EC2NodeClass `{class}` isn't ready: {reason}: its conditions say what to do")
            }
            Self::NodePoolNotReady { pool, reason } => {
                write!(f, "NodePool `{pool}` isn't ready: {reason}: its conditions say what to do")
            }
            Self::LaunchRefused { pool, code, message, until } => {
                f.write_str(refused_by(message.as_deref()))?;
                write!(f, " launches of NodePool `{pool}` ({code}")?;
                message.as_ref().map_or(Ok(()), |message| write!(f, ": {message}"))?;
                write!(f, "); next launch at `{until}`, or when the NodePool or its EC2NodeClass changes")
            }
            Self::NodesNotJoining { pool, rounds, until } => write!(
                f,
                "no Node of NodePool `{pool}` joined in time, {rounds} rounds of launches in a row: check an instance's boot (`aws ec2 \
                 get-console-output`), the access entry of its role, its security groups and the way to the API server; next \
                 launch at `{until}`, or when the NodePool's template or its EC2NodeClass changes"
            ),
            Self::ClusterNotRegistered => {
                f.write_str("the cluster isn't registered: deploy its per-cluster stack")
            }
            Self::TableRestored => f.write_str(
                "terminations and disruptions are halted: do what the item `HALT` says, then delete it",
            ),
        }
    }
}

/// Without a request, EC2 refused nothing.
fn refused_by(message: Option<&str>) -> &'static str {
    match message {
        Some(message) if message.starts_with(NO_LAUNCH) => "Tenon can't make",
        Some(_) | None => "EC2 refuses",
    }
}

/// Checks a part of the catalogue.
///
/// # Errors
/// [`Waiting`] when it never arrived or is older than the part's limit.
pub fn require<T>(
    part: CatalogPart,
    found: Option<(T, Timestamp)>,
    now: Timestamp,
) -> Result<Ready<T>, Waiting> {
    let (value, as_of) = found.ok_or(Waiting::CatalogNotHydrated { part })?;
    let age = now.duration_since(as_of);
    if age > part.stale_after() {
        return Err(Waiting::CatalogStale { part, age });
    }
    Ok(Ready { value, as_of })
}

/// Checks the agent's snapshot; `value` is the snapshot or derived from it.
///
/// # Errors [`Waiting`] if the agent never reported, or as for [`require_heard`].
pub fn require_snapshot<T>(found: Option<(T, Timestamp)>, now: Timestamp) -> Result<Ready<T>, Waiting> {
    let (value, as_of) = found.ok_or(Waiting::SnapshotMissing)?;
    require_heard(as_of, now)?;
    Ok(Ready { value, as_of })
}

/// Checks the time of an agent's last report.
///
/// # Errors [`Waiting`] if it is older than [`SNAPSHOT_STALE_AFTER`], or ahead of `now` by more than
/// [`CLOCK_SKEW_MOST`].
pub fn require_heard(heard_at: Timestamp, now: Timestamp) -> Result<(), Waiting> {
    let age = now.duration_since(heard_at);
    match ahead(heard_at, now) {
        Some(by) => Err(Waiting::SnapshotAhead { by }),
        None if age > SNAPSHOT_STALE_AFTER => Err(Waiting::SnapshotStale { age }),
        None => Ok(()),
    }
}

/// How far an agent's time is ahead of `now`, where that is more than [`CLOCK_SKEW_MOST`].
#[must_use]
pub fn ahead(time: Timestamp, now: Timestamp) -> Option<SignedDuration> {
    Some(time.duration_since(now)).filter(|by| *by > CLOCK_SKEW_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn what_never_arrived_is_not_an_empty_list() {
        let found: Option<(Vec<u8>, Timestamp)> = None;
        let waiting = require(CatalogPart::InstanceTypes, found, at(0)).unwrap_err();
        assert_eq!(waiting, Waiting::CatalogNotHydrated { part: CatalogPart::InstanceTypes });
    }

    #[test]
    fn a_part_is_ready_up_to_its_limit_and_stale_after() {
        let limit = CatalogPart::SpotPrices.stale_after().as_secs();
        assert!(require(CatalogPart::SpotPrices, Some(((), at(0))), at(limit)).is_ok());
        let waiting = require(CatalogPart::SpotPrices, Some(((), at(0))), at(limit + 1)).unwrap_err();
        assert_eq!(waiting.into_str(), "CatalogStale");
    }

    #[test]
    fn a_snapshot_is_stale_after_ninety_seconds() {
        assert!(require_snapshot(Some(((), at(0))), at(90)).is_ok());
        assert_eq!(
            require_snapshot(Some(((), at(0))), at(91)).unwrap_err(),
            Waiting::SnapshotStale { age: SignedDuration::from_secs(91) }
        );
    }

    #[test]
    fn a_snapshot_of_the_future_is_never_fresh() {
        let check = |seen_at: Timestamp, expected: Option<i64>| {
            let found = require_snapshot(Some(((), seen_at)), at(100)).map(|_| ());
            let by =
                expected.map(|seconds| Waiting::SnapshotAhead { by: SignedDuration::from_secs(seconds) });
            assert_eq!(found.err(), by);
        };
        check(at(100), None);
        check(at(115), None);
        check(at(116), Some(16));
        check(at(3700), Some(3600));
        let waiting = require_heard(Timestamp::MAX, at(100)).unwrap_err();
        assert_eq!(waiting.into_str(), "SnapshotAhead");
        let waiting = require_heard(at(116), at(100)).unwrap_err();
        assert_eq!(
            waiting.to_string(),
            "the cluster's agent dates its report 16 s ahead of now: set the clock of the agent's node"
        );
    }
}
