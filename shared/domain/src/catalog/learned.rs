//! Memory that kubelets really reported, by type and image.
//!
//! Decides what of a report is kept and for how long, and what of it holds for the nodes of a class. It doesn't decide
//! whether a cluster uses it.
//!
//! Invariants: what is learned is never more than EC2 states for the type, and holds for no other image.
//!
//! Source: KARPENTER.md 2.1, the discovered capacity, which the peer keeps in memory.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::catalog::facts::InstanceTypeFacts;
use crate::catalog::node_shape::LearnedMemory;
use crate::catalog::settings::MIB;
use crate::class_status::{ResolvedImage, image_for};
use crate::id::{ClusterName, ImageId, InstanceType};
use crate::resources::{ResourceList, ResourceName};

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

impl LearnedMemory {
    /// What a Node says in `status.capacity`; nothing before its kubelet says anything of memory.
    #[must_use]
    pub fn of_capacity(capacity: &ResourceList) -> Option<Self> {
        let bytes = u64::try_from(capacity.get(&ResourceName::MEMORY).value_ceil()).ok()?;
        (bytes > 0).then_some(Self(bytes))
    }
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
            learned.note(record.instance_type, record.image, record.memory);
        }
        learned
    }

    /// Learns what a Node reports; the least counts.
    pub fn note(&mut self, instance_type: InstanceType, image: ImageId, memory: LearnedMemory) {
        let of_type = self.0.entry(instance_type).or_default();
        of_type.entry(image).and_modify(|least| *least = memory.min(*least)).or_insert(memory);
    }

    /// What was learned of nodes of the type with the image.
    #[must_use]
    pub fn memory(&self, instance_type: &InstanceType, image: &ImageId) -> Option<LearnedMemory> {
        self.0.get(instance_type)?.get(image).copied()
    }
}

/// What was learned, for nodes that boot a class's images.
#[derive(Debug, Clone, Copy)]
pub struct LearnedOf<'a> {
    /// All that was learned.
    pub learned: &'a Learned,
    /// The class's images, as its status has them.
    pub images: &'a [ResolvedImage],
}

impl LearnedOf<'static> {
    /// Nothing was learned: every type has the memory that is estimated.
    pub const NOTHING: Self = Self { learned: &Learned(BTreeMap::new()), images: &[] };
}

impl LearnedOf<'_> {
    /// What was learned of the image that nodes of the type boot. A report of more than EC2 states is none.
    #[must_use]
    pub fn memory(&self, facts: &InstanceTypeFacts) -> Option<LearnedMemory> {
        let image = image_for(self.images, facts)?;
        let LearnedMemory(bytes) = self.learned.memory(&facts.name, &image.id)?;
        (1..=stated_bytes(facts)).contains(&bytes).then_some(LearnedMemory(bytes))
    }
}

/// The memory that EC2 states for a type, in bytes.
#[must_use]
pub const fn stated_bytes(facts: &InstanceTypeFacts) -> u64 {
    facts.memory_mib.saturating_mul(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::describe::{InstanceTypeInfo, Limits};
    use crate::catalog::facts::Architecture;

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

    #[test]
    fn the_least_of_several_reports_counts() {
        let mut learned = Learned::default();
        let (instance_type, image) = ("m5.large".parse().unwrap(), "ami-1".parse().unwrap());
        for bytes in [7700, 7600, 7800] {
            learned.note(InstanceType::clone(&instance_type), ImageId::clone(&image), LearnedMemory(bytes));
        }
        assert_eq!(learned.memory(&instance_type, &image), Some(LearnedMemory(7600)));
    }

    #[test]
    fn a_class_uses_what_was_learned_of_the_image_that_its_nodes_boot() {
        let facts = facts();
        let check = |bytes: u64, image: &str, images: &[(&str, Architecture)], expected: Option<u64>| {
            let mut learned = Learned::default();
            learned.note(facts.name.clone(), image.parse().unwrap(), LearnedMemory(bytes));
            let images: Vec<ResolvedImage> = images.iter().map(|(id, of)| resolved(id, of.clone())).collect();
            let of_class = LearnedOf { learned: &learned, images: &images };
            assert_eq!(of_class.memory(&facts), expected.map(LearnedMemory), "{bytes} {image} {images:?}");
        };
        let (x86, arm) = (|id| (id, Architecture::X86_64), |id| (id, Architecture::Arm64));
        check(7700 * MIB, "ami-1", &[x86("ami-1")], Some(7700 * MIB));
        check(8192 * MIB, "ami-1", &[x86("ami-1")], Some(8192 * MIB));
        check(8192 * MIB + 1, "ami-1", &[x86("ami-1")], None);
        check(0, "ami-1", &[x86("ami-1")], None);
        // Its nodes boot the newest image of their architecture: what is known of another says nothing of them.
        check(7700 * MIB, "ami-1", &[x86("ami-2"), x86("ami-1")], None);
        check(7700 * MIB, "ami-1", &[arm("ami-2"), x86("ami-1")], Some(7700 * MIB));
        check(7700 * MIB, "ami-1", &[arm("ami-1")], None);
        check(7700 * MIB, "ami-1", &[], None);
        assert_eq!(LearnedOf::NOTHING.memory(&facts), None);
    }

    /// m5.large.
    fn facts() -> InstanceTypeFacts {
        let info: InstanceTypeInfo = serde_json::from_value(serde_json::json!({
            "InstanceType": "m5.large",
            "VCpuInfo": {"DefaultVCpus": 2},
            "MemoryInfo": {"SizeInMiB": 8192},
            "ProcessorInfo": {"Manufacturer": "Intel", "SupportedArchitectures": ["x86_64"]},
            "SupportedUsageClasses": ["on-demand"],
            "SupportedVirtualizationTypes": ["hvm"],
            "NetworkInfo": {
                "NetworkCards": [{"NetworkCardIndex": 0, "MaximumNetworkInterfaces": 3}],
                "Ipv4AddressesPerInterface": 10
            }
        }))
        .unwrap();
        crate::catalog::describe::facts(&info, &Limits::default()).unwrap()
    }

    fn resolved(id: &str, architecture: Architecture) -> ResolvedImage {
        let created_at = Timestamp::UNIX_EPOCH;
        ResolvedImage { id: id.parse().unwrap(), name: id.to_owned(), architecture, created_at }
    }
}
