//! The speed of virtual time.

use std::time::{Duration, Instant};

use tenon_domain::Timestamp;

use crate::args::Speed;

/// The longest single wait. Ctrl-C ends a wait anyway, so this only bounds the sleep.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Virtual time against the machine's.
pub(super) struct LocalPace {
    speed: Speed,
    began: Instant,
    start: Timestamp,
}

impl LocalPace {
    /// A pace that begins now, at this virtual time.
    pub(super) fn new(speed: Speed, start: Timestamp) -> Self {
        Self { speed, began: Instant::now(), start }
    }

    /// From now on the region goes at a speed that people can follow, instead of using the whole processor.
    pub(super) fn slow_down(&mut self, now: Timestamp) {
        if self.speed == Speed::Max {
            *self = Self::new(Speed::DEFAULT, now);
        }
    }

    /// How long it still is, on the machine's clock, until this virtual time.
    pub(super) fn left_until(&self, due: Timestamp) -> Duration {
        match self.speed {
            Speed::Max => Duration::ZERO,
            Speed::Times(times) => {
                let virtual_seconds = due.duration_since(self.start).as_secs_f64().max(0.0);
                let real = Duration::try_from_secs_f64(virtual_seconds / times).unwrap_or(WAIT_MAX);
                real.saturating_sub(self.began.elapsed()).min(WAIT_MAX)
            }
        }
    }
}
