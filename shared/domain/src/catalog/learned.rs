//! Memory that kubelets reported, by type, image and cluster.
//!
//! Decides how long a report is kept, for which clusters it counts, and which reports apply to a class's nodes. It
//! doesn't decide whether a cluster uses learned memory.
//!
//! A cluster's own reports come first, with any value: its pods must fit its nodes. A report of another cluster
//! counts only between a little less than the estimate and EC2's stated memory, so forged Nodes of one cluster don't
//! change the plans of another.
//!
//! Invariants: learned memory never exceeds the type's stated memory, and applies to its image only; a cluster's
//! record is written from its own reports only.
//!
//! Source: aws/karpenter-provider-aws `pkg/controllers/providers/instancetype/capacity/controller.go`; the peer keeps
//! it in memory.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::catalog::facts::InstanceTypeFacts;
use crate::catalog::node_shape::{LearnedMemory, estimated_memory_bytes};
use crate::catalog::settings::{MIB, NodeSettings, PartsPerMillion};
use crate::class_status::{ResolvedImage, image_for};
use crate::id::{ClusterName, ImageId, InstanceType};
use crate::resources::{ResourceList, ResourceName};

/// How long a report is believed; the peer's.
pub const LEARNED_FOR: SignedDuration = SignedDuration::from_hours(60 * 24);
/// A report with an unchanged value renews a record older than this, so that a fleet of equal nodes writes once a
/// month.
pub const RENEWED_AFTER: SignedDuration = SignedDuration::from_hours(30 * 24);
/// So much less than the estimate another cluster's report may say: images of one type differ by less.
const LESS_THAN_ESTIMATED: PartsPerMillion = PartsPerMillion(20_000);

/// The memory that one cluster's kubelets reported for a type and an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedRecord {
    /// The type.
    pub instance_type: InstanceType,
    /// The image.
    pub image: ImageId,
    /// The count of writes; 0 without a stored count.
    pub revision: u64,
    /// The least reported value.
    pub memory: LearnedMemory,
    /// The time of the last report.
    pub seen_at: Timestamp,
    /// The cluster of the Nodes. Old records have none, and count as another cluster's.
    pub cluster: Option<ClusterName>,
}

/// A kubelet's memory at the registration of its Node.
#[derive(Debug, Clone, Copy)]
pub struct MemoryReport<'a> {
    /// The Node's type.
    pub instance_type: &'a InstanceType,
    /// Its image.
    pub image: &'a ImageId,
    /// `status.capacity` of the Node, in bytes.
    pub memory: LearnedMemory,
    /// The plausible bounds for the type.
    pub bounds: MemoryBounds,
    /// The Node's cluster.
    pub cluster: &'a ClusterName,
    /// When.
    pub now: Timestamp,
}

/// The plausible memory of a type's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBounds {
    /// The least that is believed of another cluster's nodes, in bytes.
    pub least_bytes: u64,
    /// The memory that EC2 states, in bytes.
    pub stated_bytes: u64,
}

/// The clusters for which a report counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All clusters of the region.
    Region,
    /// The cluster that reported it alone.
    OwnCluster,
    /// None: a node has some memory, and no more than EC2 states.
    Nobody,
}

impl MemoryBounds {
    /// The bounds for a type's estimated and stated memory, in bytes. The estimate uses Karpenter's default, not a
    /// cluster's setting, so that the bounds are equal for all clusters of a region.
    #[must_use]
    pub fn new(estimated_bytes: u64, stated_bytes: u64) -> Self {
        let less = LESS_THAN_ESTIMATED.of_rounded_up(estimated_bytes);
        Self { least_bytes: estimated_bytes.saturating_sub(less), stated_bytes }
    }

    /// The bounds of a type.
    #[must_use]
    pub fn of(facts: &InstanceTypeFacts) -> Self {
        Self::new(estimated_memory_bytes(facts, &NodeSettings::default()), stated_bytes(facts))
    }

    /// The clusters for which a report counts.
    #[must_use]
    pub const fn reach(self, LearnedMemory(bytes): LearnedMemory) -> Reach {
        if bytes == 0 || bytes > self.stated_bytes {
            Reach::Nobody
        } else if bytes < self.least_bytes {
            Reach::OwnCluster
        } else {
            Reach::Region
        }
    }
}

impl LearnedMemory {
    /// The memory in a Node's `status.capacity`; `None` before its kubelet reports any.
    #[must_use]
    pub fn of_capacity(capacity: &ResourceList) -> Option<Self> {
        let bytes = u64::try_from(capacity.get(&ResourceName::MEMORY).value_ceil()).ok()?;
        (bytes > 0).then_some(Self(bytes))
    }
}

impl LearnedRecord {
    /// When the record expires, and its item may be deleted.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        self.seen_at.saturating_add(LEARNED_FOR).unwrap_or(Timestamp::MAX)
    }

    /// The cluster's record after a report of its own; `None` for a report that is implausible or changes nothing.
    #[must_use]
    pub fn reported(before: Option<&Self>, report: &MemoryReport<'_>) -> Option<Self> {
        let reach = report.bounds.reach(report.memory);
        if reach == Reach::Nobody {
            return None;
        }
        let known = before.filter(|known| report.now < known.expires_at());
        let fresh = known.is_some_and(|known| {
            report.memory >= known.memory && report.now.duration_since(known.seen_at) <= RENEWED_AFTER
        });
        // A value too low for other clusters isn't renewed by a higher report.
        let known =
            known.filter(|known| report.bounds.reach(known.memory) == reach || reach != Reach::Region);
        (!fresh).then(|| Self {
            instance_type: report.instance_type.clone(),
            image: report.image.clone(),
            revision: before.map_or(0, |before| before.revision).saturating_add(1),
            memory: known.map_or(report.memory, |known| known.memory.min(report.memory)),
            seen_at: report.now,
            cluster: Some(report.cluster.clone()),
        })
    }

    /// The record after an operator clears it: it has expired, and the next report starts a new one. `None` if it has
    /// already expired.
    #[must_use]
    pub fn cleared_by_operator(&self, now: Timestamp) -> Option<Self> {
        (now < self.expires_at()).then(|| Self {
            revision: self.revision.saturating_add(1),
            seen_at: now.saturating_sub(LEARNED_FOR).unwrap_or(Timestamp::MIN),
            ..self.clone()
        })
    }
}

/// Learned memory of a region, for one of its clusters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Learned(BTreeMap<InstanceType, BTreeMap<ImageId, KnownMemory>>);

/// The learned memory of a type and an image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct KnownMemory {
    /// The least that the cluster's own Nodes reported.
    own: Option<LearnedMemory>,
    /// Reports of other clusters' Nodes.
    others: BTreeSet<LearnedMemory>,
}

impl Learned {
    /// The region's records that haven't expired, for a cluster.
    #[must_use]
    pub fn of<'a>(
        records: impl IntoIterator<Item = &'a LearnedRecord>,
        cluster: &ClusterName,
        now: Timestamp,
    ) -> Self {
        let mut learned = Self::default();
        for record in records.into_iter().filter(|record| now < record.expires_at()) {
            if record.cluster.as_ref() == Some(cluster) {
                learned.note_own(&record.instance_type, &record.image, record.memory);
            } else {
                learned.known(&record.instance_type, &record.image).others.insert(record.memory);
            }
        }
        learned
    }

    /// Adds a report of the cluster's own Node; the least value counts.
    pub fn note_own(&mut self, instance_type: &InstanceType, image: &ImageId, memory: LearnedMemory) {
        let known = self.known(instance_type, image);
        known.own = Some(known.own.map_or(memory, |least| least.min(memory)));
    }

    /// The learned memory of a type with an image: the cluster's own, or the least plausible value of other clusters.
    #[must_use]
    pub fn memory(&self, facts: &InstanceTypeFacts, image: &ImageId) -> Option<LearnedMemory> {
        let known = self.0.get(&facts.name)?.get(image)?;
        let bounds = MemoryBounds::of(facts);
        let own = known.own.filter(|memory| bounds.reach(*memory) != Reach::Nobody);
        own.or_else(|| known.others.iter().copied().find(|memory| bounds.reach(*memory) == Reach::Region))
    }

    fn known(&mut self, instance_type: &InstanceType, image: &ImageId) -> &mut KnownMemory {
        self.0.entry(instance_type.clone()).or_default().entry(image.clone()).or_default()
    }
}

/// Learned memory for nodes with a class's images.
#[derive(Debug, Clone, Copy)]
pub struct LearnedOf<'a> {
    /// Learned memory for the class's cluster.
    pub learned: &'a Learned,
    /// The class's images, as its status has them.
    pub images: &'a [ResolvedImage],
}

impl LearnedOf<'static> {
    /// No learned memory: every type has its estimate.
    pub const NOTHING: Self = Self { learned: &Learned(BTreeMap::new()), images: &[] };
}

impl LearnedOf<'_> {
    /// The learned memory of the type with its image.
    #[must_use]
    pub fn memory(&self, facts: &InstanceTypeFacts) -> Option<LearnedMemory> {
        self.learned.memory(facts, &image_for(self.images, facts)?.id)
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
    use crate::class_status::ImageVariant;

    const DAY: i64 = 24 * 3600;
    /// Of an m5.large: 8192 MiB are stated, 7577 are estimated, and 2 % less is the least that others are believed.
    const STATED: u64 = 8192 * MIB;
    const LEAST: u64 = 7_786_159_144;

    fn reported(before: Option<&LearnedRecord>, bytes: u64, now: i64) -> Option<LearnedRecord> {
        let report = MemoryReport {
            instance_type: &"m5.large".parse().unwrap(),
            image: &"ami-1".parse().unwrap(),
            memory: LearnedMemory(bytes),
            bounds: MemoryBounds { least_bytes: 7000, stated_bytes: 8000 },
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
    fn what_can_not_be_is_not_learned_and_what_is_too_little_is_not_renewed() {
        assert_eq!(reported(None, 8001, 0), None);
        assert_eq!(reported(None, 0, 0), None);
        assert_eq!(reported(None, 8000, 0).unwrap().memory.0, 8000);
        check((7700, 0), (1, 1), Some(1));
        check((1, 0), (7700, 1), None);
        check((1, 0), (1, 30 * DAY + 1), Some(1));
        check((1, 0), (7700, 30 * DAY + 1), Some(7700));
    }

    /// Checks the value that counts for `prod`, given reports by cluster; an empty cluster name is an old record.
    fn counts(reports: &[(&str, u64)], expected: Option<u64>) {
        let records: Vec<LearnedRecord> = reports
            .iter()
            .map(|(cluster, bytes)| LearnedRecord {
                cluster: (!cluster.is_empty()).then(|| cluster.parse().unwrap()),
                memory: LearnedMemory(*bytes),
                ..reported(None, 7000, 0).unwrap()
            })
            .collect();
        let learned = Learned::of(&records, &"prod".parse().unwrap(), Timestamp::UNIX_EPOCH);
        let found = learned.memory(&facts(), &"ami-1".parse().unwrap());
        assert_eq!(found, expected.map(LearnedMemory), "{reports:?}");
    }

    #[test]
    fn a_clusters_own_reports_come_first_and_others_count_where_they_can_be_true() {
        assert_eq!(MemoryBounds::of(&facts()), MemoryBounds { least_bytes: LEAST, stated_bytes: STATED });
        counts(&[("other", 7700 * MIB)], Some(7700 * MIB));
        counts(&[("other", 7600 * MIB), ("third", 7700 * MIB)], Some(7600 * MIB));
        counts(&[("prod", 7700 * MIB), ("other", 7600 * MIB)], Some(7700 * MIB));
        // A forged report doesn't affect other clusters; its own cluster's pods see their own nodes.
        counts(&[("other", 1)], None);
        counts(&[("other", 1), ("third", 7700 * MIB)], Some(7700 * MIB));
        counts(&[("prod", 1), ("other", 7700 * MIB)], Some(1));
        counts(&[("other", LEAST)], Some(LEAST));
        counts(&[("other", LEAST - 1)], None);
        counts(&[("other", STATED)], Some(STATED));
        counts(&[("other", STATED + 1)], None);
        // A record without a cluster counts as another's.
        counts(&[("", 1)], None);
        counts(&[("", 7600 * MIB)], Some(7600 * MIB));
        counts(&[("", 7600 * MIB), ("prod", 7700 * MIB)], Some(7700 * MIB));
    }

    #[test]
    fn what_was_learned_holds_for_its_image_and_for_sixty_days_or_until_it_is_cleared() {
        let record = LearnedRecord { memory: LearnedMemory(7700 * MIB), ..reported(None, 7700, 0).unwrap() };
        let memory = |record: &LearnedRecord, now: i64, image: &str| {
            let now = Timestamp::from_second(now).unwrap();
            Learned::of([record], &"prod".parse().unwrap(), now).memory(&facts(), &image.parse().unwrap())
        };
        assert_eq!(memory(&record, 60 * DAY - 1, "ami-1"), Some(LearnedMemory(7700 * MIB)));
        assert_eq!(memory(&record, 60 * DAY, "ami-1"), None);
        assert_eq!(memory(&record, 0, "ami-2"), None);
        let now = Timestamp::from_second(DAY).unwrap();
        let cleared = record.cleared_by_operator(now).unwrap();
        assert_eq!((memory(&cleared, DAY, "ami-1"), cleared.revision), (None, 2));
        assert_eq!(cleared.cleared_by_operator(now), None);
        assert_eq!(reported(Some(&cleared), 7800, DAY).unwrap().memory.0, 7800);
    }

    #[test]
    fn the_least_of_several_reports_of_its_own_counts() {
        let mut learned = Learned::default();
        let image: ImageId = "ami-1".parse().unwrap();
        for mebibytes in [7700, 7600, 7800] {
            learned.note_own(&facts().name, &image, LearnedMemory(mebibytes * MIB));
        }
        assert_eq!(learned.memory(&facts(), &image), Some(LearnedMemory(7600 * MIB)));
    }

    #[test]
    fn a_class_uses_what_was_learned_of_the_image_that_its_nodes_boot() {
        let facts = facts();
        let check = |bytes: u64, image: &str, images: &[(&str, Architecture)], expected: Option<u64>| {
            let mut learned = Learned::default();
            learned.note_own(&facts.name, &image.parse().unwrap(), LearnedMemory(bytes));
            let images: Vec<ResolvedImage> = images.iter().map(|(id, of)| resolved(id, of.clone())).collect();
            let of_class = LearnedOf { learned: &learned, images: &images };
            assert_eq!(of_class.memory(&facts), expected.map(LearnedMemory), "{bytes} {image} {images:?}");
        };
        let (x86, arm) = (|id| (id, Architecture::X86_64), |id| (id, Architecture::Arm64));
        check(7700 * MIB, "ami-1", &[x86("ami-1")], Some(7700 * MIB));
        check(8192 * MIB, "ami-1", &[x86("ami-1")], Some(8192 * MIB));
        check(8192 * MIB + 1, "ami-1", &[x86("ami-1")], None);
        check(0, "ami-1", &[x86("ami-1")], None);
        // Nodes boot the newest image of their architecture, so reports with an older image don't apply.
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
        let variant = ImageVariant::Any;
        ResolvedImage {
            id: id.parse().unwrap(),
            name: id.to_owned(),
            architecture,
            variant,
            boot_mode: None,
            created_at,
            own_snapshots: BTreeMap::new(),
        }
    }
}
