//! Learned memory: the memory that kubelets report at registration, by type and image.
//!
//! Decides which reports count: those of Nodes that register in this pass, of a known type. [`LearnedRecord`] decides
//! what is new and for which clusters; planners decide the use.
//!
//! Invariant: an implausible report is told once in the region's journal, which is shown with every cluster's: with
//! its record, or with the registration if there is none.

use std::collections::BTreeMap;

use tenon_domain::catalog::settings::MIB;
use tenon_domain::catalog::{LearnedMemory, LearnedRecord, MemoryBounds, MemoryReport, Reach};
use tenon_domain::id::{ClaimName, ImageId, InstanceType};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::labels;
use tenon_domain::resources::ResourceName;

use crate::NAME;
use crate::input::LifecycleInput;
use crate::plan::ClaimStep;

/// New memory of a type and an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lesson {
    /// The record under its next revision; `None` if the report isn't stored.
    pub record: Option<LearnedRecord>,
    /// Why the report doesn't count for all clusters, where it doesn't.
    pub refused: Option<JournalRecord>,
}

/// The least report of a type with an image, and the claim of that node.
type Least<'a> = BTreeMap<(&'a InstanceType, &'a ImageId), (LearnedMemory, &'a ClaimName)>;

/// The changes.
pub(crate) fn learned(steps: &[ClaimStep], input: &LifecycleInput) -> Vec<Lesson> {
    let mut least: Least<'_> = BTreeMap::new();
    for (key, found) in steps.iter().filter_map(|step| report(step, input)) {
        least.entry(key).and_modify(|known| *known = found.min(*known)).or_insert(found);
    }
    let lessons = least.into_iter().filter_map(|((instance_type, image), (memory, claim))| {
        let report = MemoryReport {
            instance_type,
            image,
            memory,
            bounds: bounds(instance_type, input)?,
            cluster: &input.cluster,
            now: input.now,
        };
        lesson(&report, claim, input)
    });
    lessons.collect()
}

fn lesson(report: &MemoryReport<'_>, claim: &ClaimName, input: &LifecycleInput) -> Option<Lesson> {
    let before = input.learned.get(&(report.instance_type.clone(), report.image.clone()));
    let record = LearnedRecord::reported(before, report);
    let MemoryReport { instance_type, image, cluster, .. } = report;
    let LearnedMemory(bytes) = report.memory;
    let MemoryBounds { least_bytes, stated_bytes } = report.bounds;
    let told = match report.bounds.reach(report.memory) {
        Reach::Region => None,
        Reach::OwnCluster => record.as_ref().map(|_| {
            format!(
                "planning `{instance_type}` with image `{image}` with {bytes} bytes of memory in cluster `{cluster}` only: the \
                 Node of NodeClaim `{claim}` reports less than the expected {least_bytes} bytes; check the Node, or clear \
                 this with `tenon clear learned {instance_type} {image}`"
            )
        }),
        Reach::Nobody => Some(format!(
            "ignoring the memory of `{instance_type}` with image `{image}`: the Node of NodeClaim `{claim}` in cluster \
             `{cluster}` reports {bytes} bytes, and EC2 states {stated_bytes}; check the Node"
        )),
    };
    let refused = told.map(|message| {
        let subject = Subject { kind: SubjectKind::Image, name: image.to_string() };
        JournalRecord::new(subject, input.now, NAME, Decision::Refused, message)
            .detail("cluster", cluster)
            .detail("claim", claim)
            .detail("instanceType", instance_type)
            .detail("memoryBytes", bytes)
    });
    (record.is_some() || refused.is_some()).then_some(Lesson { record, refused })
}

/// A Node's report: its type and image, its memory and its claim.
type ReportedMemory<'a> = ((&'a InstanceType, &'a ImageId), (LearnedMemory, &'a ClaimName));

/// The report of a claim's Node that registers.
fn report<'a>(step: &'a ClaimStep, input: &LifecycleInput) -> Option<ReportedMemory<'a>> {
    if !step.decisions().any(|decision| decision == Decision::Registered) {
        return None;
    }
    let instance = step.after.state.instance()?;
    let node = input.node_of(instance, step.before.created_at).node()?;
    let memory = LearnedMemory::of_capacity(&node.capacity)?;
    Some(((&instance.instance_type, &instance.image), (memory, &step.before.name)))
}

/// The plausible memory of the type; `None` without the catalogue's item, and then nothing is learned.
fn bounds(instance_type: &InstanceType, input: &LifecycleInput) -> Option<MemoryBounds> {
    let record = input.types.get(instance_type)?;
    let mebibytes: u64 = record.labels.get(labels::INSTANCE_MEMORY)?.parse().ok()?;
    let estimated = u64::try_from(record.capacity.get(&ResourceName::MEMORY).value_ceil()).ok()?;
    Some(MemoryBounds::new(estimated, mebibytes.checked_mul(MIB)?))
}
