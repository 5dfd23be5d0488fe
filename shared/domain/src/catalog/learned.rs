//! Memory that kubelets really reported, by type and image.
//!
//! Decides what of a report is kept and for how long. It doesn't decide whether a cluster uses it.
//!
//! Invariants: what is learned is never more than EC2 states for the type, and holds for no other image.
//!
//! Source: KARPENTER.md 2.1, the discovered capacity, which the peer keeps in memory.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::catalog::node_shape::LearnedMemory;
use crate::id::{ClusterName, ImageId, InstanceType};

/// How long a report is believed; the peer's.
pub const LEARNED_FOR: SignedDuration = SignedDuration::from_hours(60 * 24);
/// A report that says nothing new renews one that is older than this, so that a fleet of equal nodes writes once a month.
pub const RENEWED_AFTER: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What was learned of a type and an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedRecord {
    /// The type.
    pub instance_type: InstanceType,
    /// The image.
    pub image: ImageId,
    /// Counts up with every write; 0 where its item has none.
    pub revision: u64,
    /// The least that was reported.
    pub memory: LearnedMemory,
    /// When it was last reported.
    pub seen_at: Timestamp,
    /// The cluster whose Node reported it last.
    pub seen_by: ClusterName,
}

/// What a kubelet reported when its Node registered.
#[derive(Debug, Clone, Copy)]
pub struct MemoryReport<'a> {
    /// The Node's type.
    pub instance_type: &'a InstanceType,
    /// Its image.
    pub image: &'a ImageId,
    /// `status.capacity` of the Node, in bytes.
    pub memory: LearnedMemory,
    /// What EC2 states for the type, in bytes.
    pub stated_bytes: u64,
    /// The Node's cluster.
    pub cluster: &'a ClusterName,
    /// When.
    pub now: Timestamp,
}

impl LearnedRecord {
    /// When it isn't believed any more, and its item may go.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        self.seen_at.saturating_add(LEARNED_FOR).unwrap_or(Timestamp::MAX)
    }

    /// The record after a report. Nothing where it says nothing new, or what can't be.
    #[must_use]
    pub fn reported(before: Option<&Self>, report: &MemoryReport<'_>) -> Option<Self> {
        let LearnedMemory(bytes) = report.memory;
        if bytes == 0 || bytes > report.stated_bytes {
            return None;
        }
        let known = before.filter(|known| report.now < known.expires_at());
        let fresh = known.is_some_and(|known| {
            report.memory >= known.memory && report.now.duration_since(known.seen_at) <= RENEWED_AFTER
        });
        (!fresh).then(|| Self {
            instance_type: report.instance_type.clone(),
            image: report.image.clone(),
            revision: before.map_or(0, |before| before.revision).saturating_add(1),
            memory: known.map_or(report.memory, |known| known.memory.min(report.memory)),
            seen_at: report.now,
            seen_by: report.cluster.clone(),
        })
    }
}

/// All that was learned in a region.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Learned(BTreeMap<InstanceType, BTreeMap<ImageId, LearnedMemory>>);

impl Learned {
    /// What is still believed of the records.
    #[must_use]
    pub fn of(records: impl IntoIterator<Item = LearnedRecord>, now: Timestamp) -> Self {
        let mut learned = Self::default();
        for record in records.into_iter().filter(|record| now < record.expires_at()) {
            learned.0.entry(record.instance_type).or_default().insert(record.image, record.memory);
        }
        learned
    }

    /// What was learned of nodes of the type with the image.
    #[must_use]
    pub fn memory(&self, instance_type: &InstanceType, image: &ImageId) -> Option<LearnedMemory> {
        self.0.get(instance_type)?.get(image).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;

    fn reported(before: Option<&LearnedRecord>, bytes: u64, now: i64) -> Option<LearnedRecord> {
        let report = MemoryReport {
            instance_type: &"m5.large".parse().unwrap(),
            image: &"ami-1".parse().unwrap(),
            memory: LearnedMemory(bytes),
            stated_bytes: 8000,
            cluster: &"prod".parse().unwrap(),
            now: Timestamp::from_second(now).unwrap(),
        };
        LearnedRecord::reported(before, &report)
    }

    fn check(known: (u64, i64), report: (u64, i64), expected: Option<u64>) {
        let before = reported(None, known.0, known.1).unwrap();
        let after = reported(Some(&before), report.0, report.1);
        assert_eq!(after.as_ref().map(|after| after.memory.0), expected, "{known:?} {report:?}");
        assert!(after.is_none_or(|after| after.revision == 2 && after.seen_at.as_second() == report.1));
    }

    #[test]
    fn the_least_is_kept_and_written_when_it_is_new() {
        check((7700, 0), (7700, 1), None);
        check((7700, 0), (7800, 1), None);
        check((7700, 0), (7600, 1), Some(7600));
        check((7700, 0), (7800, 30 * DAY), None);
        check((7700, 0), (7800, 30 * DAY + 1), Some(7700));
        check((7700, 0), (7800, 60 * DAY), Some(7800));
    }

    #[test]
    fn what_can_not_be_is_not_learned() {
        assert_eq!(reported(None, 8001, 0), None);
        assert_eq!(reported(None, 0, 0), None);
        assert_eq!(reported(None, 8000, 0).unwrap().memory.0, 8000);
    }

    #[test]
    fn what_was_learned_holds_for_its_image_and_for_sixty_days() {
        let record = reported(None, 7700, 0).unwrap();
        let learned = |now| Learned::of([record.clone()], Timestamp::from_second(now).unwrap());
        let memory = |learned: &Learned, instance_type: &str, image: &str| {
            learned.memory(&instance_type.parse().unwrap(), &image.parse().unwrap())
        };
        assert_eq!(memory(&learned(60 * DAY - 1), "m5.large", "ami-1"), Some(LearnedMemory(7700)));
        assert_eq!(memory(&learned(60 * DAY), "m5.large", "ami-1"), None);
        assert_eq!(memory(&learned(0), "m5.large", "ami-2"), None);
        assert_eq!(memory(&learned(0), "m5.xlarge", "ami-1"), None);
    }
}
