//! The delay of a look at changes: a short time after the last change, but at most a longer time after the first.
//!
//! The report decides which changes it contains, and which wait for the next heartbeat.

use jiff::{SignedDuration, Timestamp};

/// A window that collects changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeWindow {
    idle: SignedDuration,
    longest: SignedDuration,
    open: Option<(Timestamp, Timestamp)>,
}

impl ChangeWindow {
    /// For arriving pods. They come in bursts, and a burst is planned together: once no pod came for a second, or
    /// after ten seconds. Source: kubernetes-sigs/karpenter `pkg/controllers/provisioning/batcher.go`.
    #[must_use]
    pub const fn of_arrivals() -> Self {
        Self { idle: SignedDuration::from_secs(1), longest: SignedDuration::from_secs(10), open: None }
    }

    /// For other reported changes. Pending pods depend on these too, because a newly bound pod takes room. So a
    /// restless cluster is reported soon.
    #[must_use]
    pub const fn of_changes() -> Self {
        Self { idle: SignedDuration::from_secs(1), longest: SignedDuration::from_secs(3), open: None }
    }

    /// For Nodes that an action waits for: no pod runs on a Node before its registration, even in a restless cluster.
    /// Nodes that join together are registered together.
    #[must_use]
    pub const fn of_nodes() -> Self {
        Self { idle: SignedDuration::from_millis(100), longest: SignedDuration::from_millis(500), open: None }
    }

    /// Something changed.
    pub fn observe_change(&mut self, now: Timestamp) {
        let first = self.open.map_or(now, |(first, _)| first);
        self.open = Some((first, now));
    }

    /// When to look; nothing while nothing changed.
    #[must_use]
    pub fn due(&self) -> Option<Timestamp> {
        let (first, last) = self.open?;
        let idle = last.saturating_add(self.idle).unwrap_or(Timestamp::MAX);
        Some(idle.min(first.saturating_add(self.longest).unwrap_or(Timestamp::MAX)))
    }

    /// Closes the window after a look.
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
    fn c080_a_burst_is_one_report() {
        let mut window = ChangeWindow::of_arrivals();
        assert_eq!(window.due(), None);
        window.observe_change(at(0));
        window.observe_change(at(900));
        assert_eq!(window.due(), Some(at(1_900)));
        window.close();
        assert_eq!(window.due(), None);
    }

    #[test]
    fn c080_a_restless_cluster_is_reported_after_ten_seconds() {
        let mut window = ChangeWindow::of_arrivals();
        for second in 0..30 {
            window.observe_change(at(second * 500));
        }
        assert_eq!(window.due(), Some(at(10_000)));
    }
}
