//! The images that a class launches with, and those that it rejects.
//!
//! Decides for each architecture and variant: the best image that the class accepts; if it accepts none, the one that
//! it has, while EC2 still launches it; otherwise none. It doesn't judge an image (`judge_image`).
//!
//! Invariants: at most one image for each architecture and variant, the best accepted one by [`ImageRank`]; only
//! available ones of allowed owners; an unreadable policy brings no image in.
//!
//! [`ImageRank`]: crate::resolve::ImageRank

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::class_status::{
    ConditionReason, ImageFault, ImageNotices, ImageRejection, ImageVariant, RejectedImage, ResolvedImage,
    Seen,
};
use tenon_domain::image_policy::{ImagePolicy, ImagePolicyError};
use tenon_domain::labels::IMAGE_POLICY;
use tenon_ec2::port::{Image, ImageState};

use crate::judge_image::{ImageVerdict, judge, old_enough_at, warning};
use crate::plan::SelectedImages;
use crate::resolve::{JudgedClass, named, not_allowed, owner_allowed, rank, refused};

/// The most rejected images that a status names.
const REJECTED_SHOWN: usize = 5;

/// The images of a class, and what else there is to know about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenImages {
    /// Its images.
    pub seen: Seen<Vec<ResolvedImage>>,
    /// What else there is to know.
    pub notices: ImageNotices,
}

/// An architecture, in EC2's word, and a variant.
type Slot = (&'static str, ImageVariant);

/// The images of each architecture and variant, best first.
type Slots<'a> = BTreeMap<Slot, Vec<&'a Image>>;

/// A class's images, of those that its terms select. `previous` are the images that the same spec resolved to before.
#[must_use]
pub fn images(
    judged: JudgedClass<'_>,
    selected: &SelectedImages,
    found: &[Image],
    previous: &[ResolvedImage],
) -> ChosenImages {
    if let Some(seen) = without_candidates(judged, selected, found, previous) {
        return ChosenImages { seen, notices: ImageNotices::default() };
    }
    let slots = slots(judged, selected, found);
    match ImagePolicy::of(judged.class) {
        Ok(policy) => by_policy(judged, &policy, &slots, previous),
        Err(error) => as_before(&slots, previous, &error),
    }
}

/// The refusal of a class without an image that is available and allowed.
fn without_candidates(
    judged: JudgedClass<'_>,
    selected: &SelectedImages,
    found: &[Image],
    previous: &[ResolvedImage],
) -> Option<Seen<Vec<ResolvedImage>>> {
    let (available, not): (Vec<&Image>, Vec<&Image>) =
        found.iter().filter(|i| i.architecture.is_some()).partition(|i| i.state == ImageState::Available);
    if available.is_empty() {
        let message = none_available(judged, selected, &not, previous);
        return Some(refused(ConditionReason::AmiNotFound, &message));
    }
    if available.iter().any(|image| owner_allowed(judged, image)) {
        return None;
    }
    let names = named(available.iter().map(|image| format!("{} of owner {}", image.id, image.owner)));
    let owners = named(judged.registry.allowed.image_owners.iter().cloned());
    Some(not_allowed(judged, &format!("images {names}"), &format!("owners {owners}")))
}

fn none_available(
    judged: JudgedClass<'_>,
    selected: &SelectedImages,
    not: &[&Image],
    previous: &[ResolvedImage],
) -> String {
    let states = not.iter().map(|image| format!("{} is {}", image.id, image.state.as_str()));
    if let (0, Some(first)) = (states.len(), selected.nameless.first()) {
        return format!(
            "no image for Kubernetes {}: SSM has no parameter `{first}` with an image's id{}; correct \
             `spec.amiSelectorTerms`",
            judged.registry.kubernetes_version,
            match selected.nameless.len().saturating_sub(1) {
                0 => String::new(),
                more => format!(", nor {more} more"),
            }
        );
    }
    if states.len() > 0 {
        return format!("no image that matches `spec.amiSelectorTerms` is available: {}", named(states));
    }
    if previous.is_empty() {
        return "no image matches `spec.amiSelectorTerms`: correct the terms, or share the image".to_owned();
    }
    let gone: Vec<String> = previous.iter().map(|image| image.id.to_string()).collect();
    format!(
        "no image matches `spec.amiSelectorTerms` any more: EC2 doesn't return {}; make another image, or correct the \
         terms",
        named(gone.into_iter())
    )
}

/// The allowed images. A pending one isn't judged before EC2 has made it.
fn slots<'a>(judged: JudgedClass<'_>, selected: &SelectedImages, found: &'a [Image]) -> Slots<'a> {
    let any = BTreeSet::from([ImageVariant::Any]);
    let mut slots = Slots::new();
    let made = found.iter().filter(|image| image.state != ImageState::Pending);
    for image in made.filter(|image| owner_allowed(judged, image)) {
        let Some(architecture) = image.architecture else { continue };
        for variant in selected.variants.get(&image.id).unwrap_or(&any) {
            slots.entry((architecture.as_str(), *variant)).or_default().push(image);
        }
    }
    for images in slots.values_mut() {
        images.sort_by_key(|image| Reverse(rank(image, judged.now)));
    }
    slots
}

/// The choice of all slots, while it is made.
#[derive(Default)]
struct ImageChoice {
    resolved: Vec<ResolvedImage>,
    told: Vec<String>,
    /// Rejected images with their places in their slots.
    rejected: Vec<(usize, RejectedImage)>,
    next_try: Option<Timestamp>,
}

fn by_policy(
    judged: JudgedClass<'_>,
    policy: &ImagePolicy,
    slots: &Slots<'_>,
    previous: &[ResolvedImage],
) -> ChosenImages {
    let mut choice = ImageChoice::default();
    for (slot, images) in slots {
        let mut rejected: Vec<(&Image, Vec<ImageRejection>)> = Vec::new();
        let mut taken = None;
        for image in images {
            match judge(judged, policy, image) {
                ImageVerdict::Accepted => {
                    taken = Some(*image);
                    break;
                }
                ImageVerdict::Rejected(reasons) => rejected.push((image, reasons)),
            }
        }
        choice.retry(judged.now, policy, &rejected);
        if taken.is_none() {
            taken = kept(*slot, images, previous);
            choice.tell_kept(taken, &mut rejected);
        }
        if let Some(image) = taken {
            if let Some(warning) = warning(judged.class, image) {
                choice.tell(warning);
            }
            choice.resolved.push(resolved(*slot, image));
        } else {
            // Nobody asks for an architecture of which no image is available.
            rejected.retain(|(image, _)| image.state == ImageState::Available);
        }
        choice.reject(rejected);
    }
    choice.end()
}

impl ImageChoice {
    /// Looks again when one of the images is old enough, if nothing else is against it.
    fn retry(&mut self, now: Timestamp, policy: &ImagePolicy, rejected: &[(&Image, Vec<ImageRejection>)]) {
        let young =
            |reasons: &[ImageRejection]| reasons.iter().all(|reason| reason.fault == ImageFault::TooYoung);
        let waits = rejected.iter().filter(|(_, reasons)| young(reasons));
        let times = waits.filter_map(|(image, _)| old_enough_at(policy, image)).filter(|at| *at > now);
        self.next_try = times.chain(self.next_try).min();
    }

    /// Tells why an image that isn't accepted stays.
    fn tell_kept(&mut self, kept: Option<&Image>, rejected: &mut Vec<(&Image, Vec<ImageRejection>)>) {
        let Some(kept) = kept else { return };
        let Some(at) = rejected.iter().position(|(image, _)| image.id == kept.id) else { return };
        let (image, reasons) = rejected.remove(at);
        // The others are no better than the one that stays.
        rejected.truncate(at);
        self.tell(format!(
            "keeping image `{}`, because no other is accepted, though it {}",
            image.id,
            as_rejected(image, reasons).why()
        ));
    }

    /// An image may be in several slots.
    fn tell(&mut self, message: String) {
        if !self.told.contains(&message) {
            self.told.push(message);
        }
    }

    fn reject(&mut self, rejected: Vec<(&Image, Vec<ImageRejection>)>) {
        let rejected = rejected.into_iter().map(|(image, reasons)| as_rejected(image, reasons));
        self.rejected.extend(rejected.enumerate());
    }

    fn end(self) -> ChosenImages {
        let Self { resolved, mut told, mut rejected, next_try } = self;
        rejected.sort_by_key(|(place, _)| *place);
        let mut shown: Vec<RejectedImage> = Vec::new();
        for (_, image) in rejected {
            // An image may be in several slots.
            if shown.len() < REJECTED_SHOWN && shown.iter().all(|other| other.id != image.id) {
                shown.push(image);
            }
        }
        let named: Vec<String> =
            shown.iter().map(|image| format!("`{}` (`{}`) {}", image.id, image.name, image.why())).collect();
        if resolved.is_empty() {
            let message = format!(
                "no image that matches `spec.amiSelectorTerms` is accepted: {}; make an image that is, or change the \
                 class or its annotation `{IMAGE_POLICY}`",
                named.join("; ")
            );
            let notices = ImageNotices { rejected: shown, next_try, ..ImageNotices::default() };
            return ChosenImages { seen: refused(ConditionReason::ImagesRejected, &message), notices };
        }
        if !named.is_empty() {
            told.insert(0, format!("not taking: {}", named.join("; ")));
        }
        let message = told.join("; ");
        let notices = ImageNotices { rejected: shown, message, next_try, ..ImageNotices::default() };
        ChosenImages { seen: Seen::Holds(resolved), notices }
    }
}

/// The images that the class has, because nothing says which others it wants.
fn as_before(slots: &Slots<'_>, previous: &[ResolvedImage], error: &ImagePolicyError) -> ChosenImages {
    let kept =
        slots.iter().filter_map(|(slot, images)| Some(resolved(*slot, kept(*slot, images, previous)?)));
    let kept: Vec<ResolvedImage> = kept.collect();
    if kept.is_empty() {
        let message = format!("{error}; correct the annotation, or remove it");
        let seen = refused(ConditionReason::ImagePolicyInvalid, &message);
        return ChosenImages { seen, notices: ImageNotices::default() };
    }
    let message = format!("keeping the images: {error}; correct the annotation, or remove it");
    ChosenImages { seen: Seen::Holds(kept), notices: ImageNotices { message, ..ImageNotices::default() } }
}

/// The image that the class has for a slot, if EC2 still launches it.
fn kept<'a>(slot: Slot, images: &[&'a Image], previous: &[ResolvedImage]) -> Option<&'a Image> {
    let (architecture, variant) = slot;
    let architecture = Architecture::from_ec2(architecture);
    let held = previous.iter().find(|held| held.architecture == architecture && held.variant == variant)?;
    images.iter().copied().find(|image| image.id == held.id && image.state == ImageState::Available)
}

fn resolved(slot: Slot, image: &Image) -> ResolvedImage {
    let (architecture, variant) = slot;
    ResolvedImage {
        id: image.id.clone(),
        name: image.name.clone(),
        architecture: Architecture::from_ec2(architecture),
        variant,
        created_at: image.created_at.unwrap_or(Timestamp::UNIX_EPOCH),
    }
}

fn as_rejected(image: &Image, reasons: Vec<ImageRejection>) -> RejectedImage {
    RejectedImage { id: image.id.clone(), name: image.name.clone(), reasons }
}
