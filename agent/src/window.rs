//! When a change is reported: one second after the last one, ten seconds after the first at most.
//!
//! What of it must be reported then, and what may wait for the next heartbeat, is the report's own decision.
//!
//! Source: the peer's batching (KARPENTER.md 3.3): 1 s idle, 10 s at most.

use jiff::{SignedDuration, Timestamp};

/// Changes come in bursts: a report waits until the cluster was quiet for so long.
pub const IDLE: SignedDuration = SignedDuration::from_secs(1);
/// A cluster that is never quiet is reported all the same.
pub const LONGEST: SignedDuration = SignedDuration::from_secs(10);

/// A window that collects changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    open: Option<(Timestamp, Timestamp)>,
}

impl Window {
    /// Something changed.
    pub fn observe_change(&mut self, now: Timestamp) {
        let first = self.open.map_or(now, |(first, _)| first);
        self.open = Some((first, now));
    }

    /// When to report; nothing while nothing changed.
    #[must_use]
    pub fn due(&self) -> Option<Timestamp> {
        let (first, last) = self.open?;
        let idle = last.saturating_add(IDLE).unwrap_or(Timestamp::MAX);
        Some(idle.min(first.saturating_add(LONGEST).unwrap_or(Timestamp::MAX)))
    }

    /// It was reported.
    pub fn close(&mut self) {
        self.open = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(milliseconds).unwrap()
    }

    #[test]
    fn a_burst_is_one_report() {
        let mut window = Window::default();
        assert_eq!(window.due(), None);
        window.observe_change(at(0));
        window.observe_change(at(900));
        assert_eq!(window.due(), Some(at(1_900)));
        window.close();
        assert_eq!(window.due(), None);
    }

    #[test]
    fn a_restless_cluster_is_reported_after_ten_seconds() {
        let mut window = Window::default();
        for second in 0..30 {
            window.observe_change(at(second * 500));
        }
        assert_eq!(window.due(), Some(at(10_000)));
    }
}
