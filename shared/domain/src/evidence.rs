//! Evidence: what a decision must know before it may be made, and the reason if it is missing.
//!
//! Only [`require`] makes a `Ready<T>`: a planner that takes `&Ready<Catalog>` can't get an empty, stale or
//! half-written catalogue. Missing evidence is a typed [`Waiting`], never an empty list.

mod part;
mod sentence;
mod waiting;

pub use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};

pub use self::part::{CatalogPart, ErrorKind, PartOrigin, RefreshFailure};
pub use self::waiting::{CLASS_DELETED, CLASS_UNREADABLE, NOT_RESOLVED, Waiting};

/// A snapshot older than this supports no launch for pods and no voluntary disruption. The agent refreshes its
/// heartbeat every [`HEARTBEAT_EVERY`], so one heartbeat may be lost.
pub const SNAPSHOT_STALE_AFTER: SignedDuration = SignedDuration::from_secs(90);

/// How far an agent's clock may be ahead of a function's. A time beyond it tells nothing of a report's age: counted as
/// fresh, it would stay so until that time comes. AWS keeps both clocks right to milliseconds; the rest is for a region
/// on this machine, whose time runs some seconds behind that of a real cluster while it is busy.
pub const CLOCK_SKEW_MOST: SignedDuration = SignedDuration::from_secs(15);

/// How often an agent confirms an unchanged snapshot.
pub const HEARTBEAT_EVERY: SignedDuration = SignedDuration::from_secs(40);

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
    }
}
