//! The region's time: virtual, in whole milliseconds, moved only by the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

/// When virtual time starts.
pub const START: &str = "2026-01-01T00:00:00Z";

/// A handle to the region's time.
#[derive(Debug, Clone)]
pub struct RegionClock(Arc<AtomicI64>);

impl RegionClock {
    /// A clock at this time.
    #[must_use]
    pub fn at(start: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(start.as_millisecond())))
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.0.load(Ordering::SeqCst)).unwrap_or(Timestamp::MAX)
    }

    /// Moves to a later time; an earlier one changes nothing.
    pub fn advance_to(&self, to: Timestamp) {
        self.0.fetch_max(to.as_millisecond(), Ordering::SeqCst);
    }

    /// The clock as the adapters take it.
    #[must_use]
    pub fn as_fn(&self) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}
