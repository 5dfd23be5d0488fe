//! Throughput of one partition key: a bucket of units that refills over time.
//!
//! Decides which requests are throttled. A request passes while its bucket holds anything, and may leave a debt that
//! later requests wait for. So a request larger than a second's units passes once, as in DynamoDB.

use super::Throughput;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use tenon_table::limits;

/// Which of a key's two buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// Read units, in halves.
    ReadHalves,
    /// Write units.
    Write,
}

impl Side {
    fn a_second(self) -> i64 {
        let units = match self {
            Self::ReadHalves => limits::READ_UNITS_A_SECOND * 2,
            Self::Write => limits::WRITE_UNITS_A_SECOND,
        };
        i64::try_from(units).unwrap_or(i64::MAX)
    }

    /// A second's worth, in millionths of a unit: a microsecond refills `a_second` of them.
    fn full(self) -> i64 {
        self.a_second() * 1_000_000
    }
}

#[derive(Debug, Clone, Copy)]
struct ThroughputBucket {
    /// Millionths of units; below zero: debt.
    left: i64,
    at: Timestamp,
}

impl ThroughputBucket {
    fn left_at(self, side: Side, now: Timestamp) -> i64 {
        let micros = i64::try_from(now.duration_since(self.at).as_micros()).unwrap_or(i64::MAX).max(0);
        self.left.saturating_add(micros.saturating_mul(side.a_second())).min(side.full())
    }
}

/// The buckets of all keys. A full bucket needn't be kept.
#[derive(Debug)]
pub(super) struct ThroughputBuckets {
    throughput: Throughput,
    buckets: BTreeMap<(Side, String), ThroughputBucket>,
    swept_at: Option<Timestamp>,
}

/// How often full buckets are dropped, so that dropping costs at most one step for each charge.
const SWEEP_EVERY: SignedDuration = SignedDuration::from_secs(10);

impl ThroughputBuckets {
    pub(super) fn new(throughput: Throughput) -> Self {
        Self { throughput, buckets: BTreeMap::new(), swept_at: None }
    }

    pub(super) fn clear(&mut self) {
        self.buckets.clear();
    }

    /// Whether a request to this partition is let in.
    pub(super) fn admits(&self, side: Side, pk: &str, now: Timestamp) -> bool {
        match self.throughput {
            Throughput::Off => true,
            Throughput::Enforced => {
                self.buckets.get(&(side, pk.to_owned())).is_none_or(|bucket| bucket.left_at(side, now) > 0)
            }
        }
    }

    /// Charges the units of a passed request.
    pub(super) fn charge(&mut self, side: Side, pk: &str, units: u64, now: Timestamp) {
        match self.throughput {
            Throughput::Off => return,
            Throughput::Enforced => {}
        }
        self.sweep(now);
        let cost = i64::try_from(units).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        let bucket = self
            .buckets
            .entry((side, pk.to_owned()))
            .or_insert(ThroughputBucket { left: side.full(), at: now });
        *bucket = ThroughputBucket { left: bucket.left_at(side, now).saturating_sub(cost), at: now };
    }

    fn sweep(&mut self, now: Timestamp) {
        let swept_at = *self.swept_at.get_or_insert(now);
        if now.duration_since(swept_at) >= SWEEP_EVERY {
            self.swept_at = Some(now);
            self.buckets.retain(|(side, _), bucket| bucket.left_at(*side, now) < side.full());
        }
    }
}
