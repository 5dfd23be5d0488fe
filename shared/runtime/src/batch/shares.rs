//! How much of a process's time clusters take.
//!
//! SQS delivers in the order of arrival, and a process handles one batch at a time. So a cluster that sends many messages,
//! each of which takes long, would hold all processes. Decides when such a cluster waits, so that others come first: its
//! messages become one wake that comes later.
//!
//! Invariants: a cluster waits only if others were handled lately, and it took more than two thirds of the time and more
//! than [`MOST`] above half of it; while it waits, a wake for it is on its way.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::ClusterName;

/// What a cluster may take above half of the time, before it waits for others.
const MOST: SignedDuration = SignedDuration::from_secs(20);
/// How long another cluster counts as one that may want the time.
const REMEMBERED_FOR: SignedDuration = SignedDuration::from_mins(10);

/// The shares of a process's time.
#[derive(Debug, Default)]
pub struct Shares(Mutex<BTreeMap<ClusterName, UsedTime>>);

/// A cluster's use of the time.
#[derive(Debug, Clone, Copy)]
struct UsedTime {
    /// The time above half of the time that passed.
    above: SignedDuration,
    /// When it was handled last.
    at: Timestamp,
    /// Until when it waits.
    until: Option<Timestamp>,
}

/// Whether a cluster is handled now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeShare {
    /// It is.
    Free,
    /// It waits for so long, and needs a wake then.
    Waits(SignedDuration),
    /// It waits already.
    Awaited,
}

impl UsedTime {
    /// What is left of its use.
    fn now(self, now: Timestamp) -> SignedDuration {
        let passed = now.duration_since(self.at).max(SignedDuration::ZERO);
        self.above.saturating_sub(passed / 2).max(SignedDuration::ZERO)
    }
}

impl Shares {
    /// Whether the cluster is handled now.
    pub(super) fn share(&self, cluster: &ClusterName, now: Timestamp) -> TimeShare {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, one| now.duration_since(one.at) < REMEMBERED_FOR);
        let all: SignedDuration =
            used.values().map(|one| one.now(now)).fold(SignedDuration::ZERO, SignedDuration::saturating_add);
        let alone = used.len() == 1;
        let Some(own) = used.get_mut(cluster) else { return TimeShare::Free };
        if own.until.is_some_and(|until| now < until) {
            return TimeShare::Awaited;
        }
        let above = own.now(now);
        if alone || above <= MOST || above.saturating_mul(3) <= all.saturating_mul(2) {
            own.until = None;
            return TimeShare::Free;
        }
        // Half of it is gone by then. A message is delayed by whole seconds.
        let wait = SignedDuration::from_secs(above.as_secs().saturating_add(1));
        own.until = now.checked_add(wait).ok();
        TimeShare::Waits(wait)
    }

    /// Notes that the cluster was handled from then until now.
    pub(super) fn took(&self, cluster: &ClusterName, from: Timestamp, now: Timestamp) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = used.get(cluster).map_or(SignedDuration::ZERO, |one| one.now(now));
        let above = before.saturating_add(now.duration_since(from));
        used.insert(cluster.clone(), UsedTime { above, at: now, until: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn name(name: &str) -> ClusterName {
        ClusterName::parse(name).unwrap()
    }

    #[test]
    fn who_takes_all_of_the_time_waits_while_others_want_some() {
        let shares = Shares::default();
        shares.took(&name("busy"), at(0), at(50));
        assert_eq!(shares.share(&name("busy"), at(50)), TimeShare::Free, "nobody else is there");
        shares.took(&name("calm"), at(50), at(51));
        assert_eq!(shares.share(&name("busy"), at(50)), TimeShare::Waits(SignedDuration::from_secs(51)));
        assert_eq!(shares.share(&name("calm"), at(51)), TimeShare::Free);
        assert_eq!(shares.share(&name("busy"), at(99)), TimeShare::Awaited);
        // Of its 50 s, 24.5 are left after 51, which is still most of the time that anybody took.
        assert_eq!(shares.share(&name("busy"), at(101)), TimeShare::Waits(SignedDuration::from_secs(25)));
        assert_eq!(shares.share(&name("busy"), at(126)), TimeShare::Free);
    }

    #[test]
    fn nobody_waits_where_all_take_much() {
        let shares = Shares::default();
        shares.took(&name("one"), at(0), at(50));
        shares.took(&name("other"), at(50), at(90));
        assert_eq!(shares.share(&name("one"), at(90)), TimeShare::Free);
        assert_eq!(shares.share(&name("other"), at(90)), TimeShare::Free);
    }
}
