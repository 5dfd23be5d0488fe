//! What changed of a class: its new status, its record, and who must look again.
//!
//! Decides whether a status differs from the stored one, the words of its record, and whether planners are woken. It
//! doesn't decide the status.
//!
//! Invariants: an unchanged status is no change, unless its reservations are counted anew; free addresses alone make
//! no record and wake nobody; the rejection of an image is recorded once, until its reasons change.

use std::collections::BTreeSet;

use tenon_domain::api::Ec2NodeClass;
use tenon_domain::class_status::{
    ClassStatus, Condition, ConditionStatus, ConditionType, ImageFault, ImageVariant, RejectedImage,
    ResolvedImage,
};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::wake::FunctionName;
use tenon_domain::zonal_shift::ShiftedZone;
use tenon_ec2::port::ImageState;
use tenon_state::image_query::ClassImages;

use crate::plan::{NodeClassesInput, SelectedImages};

/// A class's change.
#[derive(Debug, Clone)]
pub struct ClassChange {
    /// Its status from now on.
    pub status: ClassStatus,
    /// The observed revision, if there was one.
    pub before: Option<u64>,
    /// Its queries for images.
    pub images: ClassImages,
    /// The decision's record; `None` if only free addresses changed, which wakes no function, or what is told of
    /// images.
    pub record: Option<JournalRecord>,
    /// Images that it rejects since this look, though EC2 launches them.
    pub rejections: Vec<ClassRejection>,
    /// Which functions must look again.
    pub reach: ChangeReach,
}

/// A class's rejection of an image.
#[derive(Debug, Clone)]
pub struct ClassRejection {
    /// The image, with the reasons.
    pub image: RejectedImage,
    /// The record.
    pub record: JournalRecord,
}

/// The functions that look again after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeReach {
    /// Planners: the change counts as a step.
    Planners,
    /// None: free addresses change with every launch.
    Nobody,
}

/// The change of a class to this status; `None` if the stored one is the same.
pub(crate) fn change(
    input: &NodeClassesInput,
    class: &Ec2NodeClass,
    images: &SelectedImages,
    previous: Option<&ClassStatus>,
    status: ClassStatus,
) -> Option<ClassChange> {
    // Launches after a query are subtracted from its counts, so each query has its own time.
    let stored = input.statuses.get(&class.name);
    let same = stored.is_some_and(|stored| stored.same_as(&status));
    if same && status.reservations.is_empty() {
        return None;
    }
    let only_counts =
        previous.is_some_and(|previous| without_counts(previous).same_as(&without_counts(&status)));
    let only_told =
        previous.is_some_and(|previous| without_told(previous, &status).same_as(&without_counts(&status)));
    let room = previous.is_some_and(|previous| previous.reservations != status.reservations);
    Some(ClassChange {
        before: previous.map(|previous| previous.revision),
        images: ClassImages { filters: images.filters.clone() },
        record: (!only_told).then(|| record(input, images, previous, &status)),
        rejections: rejections(input, previous, &status),
        reach: if room || !only_counts { ChangeReach::Planners } else { ChangeReach::Nobody },
        status,
    })
}

/// The status with equal free addresses for all subnets, and no room in reservations.
fn without_counts(status: &ClassStatus) -> ClassStatus {
    let mut status = status.clone();
    status.reservations = status.reservations.without_counts();
    for subnet in &mut status.subnets {
        subnet.free_addresses = 0;
    }
    status.subnets.sort();
    status
}

/// The previous status without counts, and with what another one tells of images.
fn without_told(previous: &ClassStatus, status: &ClassStatus) -> ClassStatus {
    let mut previous = without_counts(previous);
    previous.rejected_images.clone_from(&status.rejected_images);
    previous.refused_images.clone_from(&status.refused_images);
    let holds = |condition: &Condition| {
        (condition.condition, condition.status) == (ConditionType::AmisReady, ConditionStatus::True)
    };
    if let Some(told) = status.conditions.iter().find(|condition| holds(condition)) {
        for condition in previous.conditions.iter_mut().filter(|condition| holds(condition)) {
            condition.message.clone_from(&told.message);
        }
    }
    previous
}

/// The images that a class rejects and didn't before, or not for the same reasons. `images` tells of those that EC2
/// doesn't launch.
fn rejections(
    input: &NodeClassesInput,
    previous: Option<&ClassStatus>,
    status: &ClassStatus,
) -> Vec<ClassRejection> {
    let known = previous.map(|previous| previous.rejected_images.as_slice()).unwrap_or_default();
    let launched =
        |image: &RejectedImage| image.reasons.iter().any(|reason| reason.fault != ImageFault::NotAvailable);
    let new = status
        .rejected_images
        .iter()
        .filter(|image| launched(image) && known.iter().all(|known| !known.is_as(image)));
    new.map(|image| ClassRejection { image: image.clone(), record: rejection(input, status, image) })
        .collect()
}

fn rejection(input: &NodeClassesInput, status: &ClassStatus, image: &RejectedImage) -> JournalRecord {
    let subject = Subject { kind: SubjectKind::Image, name: image.id.to_string() };
    let message = format!(
        "EC2NodeClass `{}` doesn't take image `{}` (`{}`): it {}",
        status.name,
        image.id,
        image.name,
        image.why()
    );
    let faults: Vec<&str> = image.reasons.iter().map(|reason| reason.fault.as_str()).collect();
    let by = FunctionName::NodeClasses.as_str();
    JournalRecord::new(subject, input.now, by, Decision::ImageRejected, message)
        .detail("class", &status.name)
        .detail("reasons", faults.join(", "))
        .evidence("snapshot", input.snapshot)
}

/// Images that the class had and EC2 doesn't launch any longer, each with its state.
fn lost_images(images: &SelectedImages, previous: Option<&ClassStatus>, status: &ClassStatus) -> Vec<String> {
    let (Some(previous), Ok(found)) = (previous, &images.answer) else { return Vec::new() };
    if previous.spec_digest != status.spec_digest {
        return Vec::new();
    }
    let lost = |had: &ResolvedImage| {
        if status.images.iter().any(|image| image.id == had.id) {
            return None;
        }
        match found.iter().find(|image| image.id == had.id).map(|image| image.state) {
            None => Some(format!("{} (EC2 doesn't return it)", had.id)),
            Some(ImageState::Available) => None,
            Some(state) => Some(format!("{} ({state})", had.id)),
        }
    };
    previous.images.iter().filter_map(lost).collect()
}

/// The shifted zones of a class, for people.
fn shifted_words(status: &ClassStatus, shifts: &BTreeSet<ShiftedZone>) -> String {
    let name = |zone: &ShiftedZone| {
        let in_zone = status.subnets.iter().find(|subnet| subnet.zone_id == zone.zone_id);
        in_zone.map(|subnet| &subnet.zone)
    };
    shifts.iter().map(|zone| zone.words(name(zone))).collect::<Vec<_>>().join(", ")
}

fn record(
    input: &NodeClassesInput,
    selected: &SelectedImages,
    previous: Option<&ClassStatus>,
    status: &ClassStatus,
) -> JournalRecord {
    let subject = Subject { kind: SubjectKind::Class, name: status.name.to_string() };
    let by = FunctionName::NodeClasses.as_str();
    let images: Vec<String> = status.images.iter().map(image_text).collect();
    let lost = lost_images(selected, previous, status);
    let (before, shifts) = (previous.map(ClassStatus::shifts).unwrap_or_default(), status.shifts());
    let away: Vec<String> = shifts.iter().map(|zone| format!("{} {}", zone.zone_id, zone.end)).collect();
    let in_service = status
        .condition(ConditionType::ZonesInService)
        .is_some_and(|told| told.status == ConditionStatus::True);
    let record = match status.obstacle() {
        _ if before != shifts && !shifts.is_empty() => {
            let message = format!(
                "not launching for EC2NodeClass `{}` in zones with a zonal shift of cluster `{}`: {}",
                status.name,
                input.cluster,
                shifted_words(status, &shifts)
            );
            JournalRecord::new(subject, input.now, by, Decision::ZonalShiftActive, message)
        }
        None if before != shifts && in_service => {
            let message = format!("all zones of EC2NodeClass `{}` are in service again", status.name);
            JournalRecord::new(subject, input.now, by, Decision::ZonalShiftCleared, message)
        }
        None => {
            let instead = if lost.is_empty() { "" } else { ", instead of " };
            let message = format!(
                "EC2NodeClass `{}` is ready: it resolves to {}{instead}{}",
                status.name,
                images.join(", "),
                lost.join(", ")
            );
            JournalRecord::new(subject, input.now, by, Decision::Resolved, message)
        }
        Some(obstacle) => {
            let message = format!(
                "EC2NodeClass `{}` isn't ready: {}: {}",
                status.name,
                obstacle.reason_text(),
                obstacle.message
            );
            JournalRecord::new(subject, input.now, by, Decision::NotReady, message)
                .detail("reason", obstacle.reason_text())
        }
    };
    let subnets: Vec<&str> = status.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
    let record = if away.is_empty() { record } else { record.detail("shifted", away.join(", ")) };
    let record = if lost.is_empty() { record } else { record.detail("lost_images", lost.join(", ")) };
    let record = match &status.placement_group {
        Some(group) => record.detail("placement_group", &group.id),
        None => record,
    };
    record
        .detail("images", images.join(", "))
        .detail("subnets", subnets.join(", "))
        .detail("generation", status.generation)
        .evidence("snapshot", input.snapshot)
}

/// An image with the types that it is for.
fn image_text(image: &ResolvedImage) -> String {
    let architecture = image.architecture.as_str();
    match image.variant {
        ImageVariant::Any => format!("{} ({architecture})", image.id),
        variant @ (ImageVariant::Standard | ImageVariant::Nvidia | ImageVariant::Neuron) => {
            format!("{} ({architecture} {variant})", image.id)
        }
    }
}
