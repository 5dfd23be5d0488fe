//! The images that a class launches with, and those that it rejects.
//!
//! Decides for each architecture and variant: the best image that the class accepts; if it accepts none, the one that
//! it has, while EC2 still launches it and it hasn't failed; otherwise none. It doesn't judge an image (`judge_image`,
//! `failed_image`).
//!
//! Invariants: at most one image for each architecture and variant, the best accepted one by [`ImageRank`]; only
//! available ones of allowed owners; an unreadable policy brings no image in.
//!
//! [`ImageRank`]: crate::resolve::ImageRank

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::boot::BootFailure;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::class_status::{
    ConditionReason, ImageFault, ImageNotices, ImageRejection, ImageVariant, RefusedImage, RejectedImage,
    ResolvedImage, Seen,
};
use tenon_domain::image::BootMode;
use tenon_domain::image_policy::{ImagePolicy, ImagePolicyError};
use tenon_domain::labels::IMAGE_POLICY;
use tenon_domain::wait::later;
use tenon_ec2::port::{Image, ImageState};

use crate::failed_image::{self, FailedImages};
use crate::image_snapshots::UnfinishedSnapshots;
use crate::judge_image::{ImageVerdict, judge, old_enough_at, warning};
use crate::plan::SelectedImages;
use crate::resolve::{JudgedClass, named, not_allowed, owner_allowed, owner_of, rank, refused};
use crate::spec;

/// The most rejected images that a status names.
const REJECTED_SHOWN: usize = 5;

/// How the message begins that says which images went.
const GONE: &str = "no image matches `spec.amiSelectorTerms` any more";
/// How the message begins and ends that says which images aren't available, and why.
const NONE_AVAILABLE: &str = "no image that matches `spec.amiSelectorTerms` is available: ";
const TAKEN_ONCE: &str = "; the class takes an image once it is available";

/// How often pending snapshots are looked at.
const SNAPSHOTS_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// The images of a class, and what else there is to know about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenImages {
    /// Its images.
    pub seen: Seen<Vec<ResolvedImage>>,
    /// What else there is to know.
    pub notices: ImageNotices,
}

/// What is known of a spec's images from before.
#[derive(Debug, Clone, Copy)]
pub struct KnownImages<'a> {
    /// The images that it resolved to.
    pub previous: &'a [ResolvedImage],
    /// The last message about them.
    pub told: &'a str,
    /// Those that EC2 refused to launch.
    pub refused: &'a [RefusedImage],
    /// Those whose instances failed.
    pub failed: &'a FailedImages,
    /// Snapshots that aren't whole.
    pub unfinished: &'a UnfinishedSnapshots,
}

/// An architecture, in EC2's word, and a variant.
type Slot = (&'static str, ImageVariant);

/// The images of each architecture and variant, best first.
type Slots<'a> = BTreeMap<Slot, Vec<&'a Image>>;

impl<'a> KnownImages<'a> {
    /// EC2's refusal of an image, while it holds.
    pub(crate) fn refusal(self, image: &Image, now: Timestamp) -> Option<&'a RefusedImage> {
        self.refused.iter().find(|refused| refused.id == image.id && refused.holds(now))
    }
}

/// A class's images, of those that its terms select.
#[must_use]
pub fn images(
    judged: JudgedClass<'_>,
    selected: &SelectedImages,
    found: &[Image],
    known: KnownImages<'_>,
) -> ChosenImages {
    if let Some(seen) = without_candidates(judged, selected, found, known) {
        return ChosenImages { seen, notices: ImageNotices::default() };
    }
    let slots = slots(judged, selected, found);
    match ImagePolicy::of(judged.class) {
        Ok(policy) => by_policy(judged, &policy, &slots, known),
        Err(error) => as_before(judged, &slots, known, &error),
    }
}

/// The refusal of a class without an image that is available and allowed.
fn without_candidates(
    judged: JudgedClass<'_>,
    selected: &SelectedImages,
    found: &[Image],
    known: KnownImages<'_>,
) -> Option<Seen<Vec<ResolvedImage>>> {
    let (available, not): (Vec<&Image>, Vec<&Image>) =
        found.iter().filter(|i| i.architecture.is_some()).partition(|i| i.state == ImageState::Available);
    if available.is_empty() {
        let message = none_available(judged, selected, &not, known);
        return Some(refused(ConditionReason::AmiNotFound, &message));
    }
    if available.iter().any(|image| owner_allowed(judged, image)) {
        return None;
    }
    let names = named(available.iter().map(|image| format!("{} of owner {}", image.id, owner_of(image))));
    let owners = named(judged.registry.allowed.image_owners.iter().cloned());
    Some(not_allowed(judged, &format!("images {names}"), &format!("owners {owners}")))
}

fn none_available(
    judged: JudgedClass<'_>,
    selected: &SelectedImages,
    not: &[&Image],
    known: KnownImages<'_>,
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
        return format!("{NONE_AVAILABLE}{}{TAKEN_ONCE}", named(states));
    }
    // A class whose images went has none at the next look, and still says which they were.
    if known.previous.is_empty() && known.told.starts_with(GONE) {
        return known.told.to_owned();
    }
    if let Some(lost) = known.previous.is_empty().then(|| lost_unavailable(known.told)).flatten() {
        return gone(&lost);
    }
    if known.previous.is_empty() {
        return "no image matches `spec.amiSelectorTerms`: correct the terms, or share the image".to_owned();
    }
    let ids: Vec<String> = known.previous.iter().map(|image| image.id.to_string()).collect();
    gone(&named(ids.into_iter()))
}

fn gone(images: &str) -> String {
    format!("{GONE}: EC2 doesn't return {images}; make another image, or correct the terms")
}

/// The images that were told as unavailable, each with its last state: an image may be disabled first and deregistered
/// later, when the class has resolved to none for long.
fn lost_unavailable(told: &str) -> Option<String> {
    let states = told.strip_prefix(NONE_AVAILABLE)?.strip_suffix(TAKEN_ONCE)?;
    let lost = states.split(", ").map(|one| {
        let (id, state) = one.split_once(" is ")?;
        let (state, more) = state.split_once('`')?;
        Some(format!("{id}` (was {state}){more}"))
    });
    Some(lost.collect::<Option<Vec<_>>>()?.join(", "))
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
    known: KnownImages<'_>,
) -> ChosenImages {
    let mut choice = ImageChoice::default();
    for (slot, images) in slots {
        let mut rejected: Vec<(&Image, Vec<ImageRejection>)> = Vec::new();
        let mut taken = None;
        for image in images {
            match known.failed.add_to(judge(judged, policy, image, known), image) {
                ImageVerdict::Accepted => {
                    taken = Some(*image);
                    break;
                }
                ImageVerdict::Rejected(reasons) => rejected.push((image, reasons)),
            }
        }
        choice.retry(judged.now, policy, known.failed, &rejected);
        choice.try_again(judged.now, known, &rejected);
        if taken.is_none() {
            taken = kept(*slot, images, known);
            choice.tell_kept(taken, &mut rejected);
        }
        if let Some(image) = taken {
            if let Some(warning) = warning(judged.class, image) {
                choice.tell(warning);
            }
            choice.resolved.push(resolved(judged.class, *slot, image));
        } else {
            // Nobody asks for an architecture of which no image is available.
            rejected.retain(|(image, _)| image.state == ImageState::Available);
        }
        choice.reject(rejected);
    }
    choice.end()
}

impl ImageChoice {
    /// Looks again when one of the images is old enough and may be tried again, if nothing else is against it.
    fn retry(
        &mut self,
        now: Timestamp,
        policy: &ImagePolicy,
        failed: &FailedImages,
        rejected: &[(&Image, Vec<ImageRejection>)],
    ) {
        let passes = |fault: ImageFault| fault == ImageFault::TooYoung || fault.is_of_instance();
        let waits = rejected.iter().filter(|(_, reasons)| reasons.iter().all(|reason| passes(reason.fault)));
        let times = waits.filter_map(|(image, _)| {
            let tried_at = failed.get(&image.id).map(BootFailure::until);
            old_enough_at(policy, image).into_iter().chain(tried_at).filter(|at| *at > now).max()
        });
        self.next_try = times.chain(self.next_try).min();
    }

    /// Looks again when EC2 may be asked about a refused image once more, or when a snapshot may be whole.
    fn try_again(
        &mut self,
        now: Timestamp,
        known: KnownImages<'_>,
        rejected: &[(&Image, Vec<ImageRejection>)],
    ) {
        let refused = rejected.iter().filter_map(|(image, _)| Some(known.refusal(image, now)?.until));
        let waits = |reasons: &[ImageRejection]| {
            reasons.iter().any(|reason| reason.fault == ImageFault::SnapshotPending)
        };
        let pending = rejected.iter().any(|(_, reasons)| waits(reasons));
        let pending = pending.then(|| later(now, SNAPSHOTS_EVERY));
        self.next_try = refused.chain(pending).chain(self.next_try).min();
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
            let of_instance = failed_image::reason(&shown);
            let named = named.join("; ");
            let message = match of_instance {
                Some(_) => format!("no image that matches `spec.amiSelectorTerms` can be launched: {named}"),
                None => format!(
                    "no image that matches `spec.amiSelectorTerms` is accepted: {named}; make an image that is, or \
                     change the class or its annotation `{IMAGE_POLICY}`"
                ),
            };
            let reason = of_instance.unwrap_or(ConditionReason::ImagesRejected);
            let notices = ImageNotices { rejected: shown, next_try, ..ImageNotices::default() };
            return ChosenImages { seen: refused(reason, &message), notices };
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
fn as_before(
    judged: JudgedClass<'_>,
    slots: &Slots<'_>,
    known: KnownImages<'_>,
    error: &ImagePolicyError,
) -> ChosenImages {
    let kept = slots.iter().filter_map(|(slot, images)| {
        let image = kept(*slot, images, known)?;
        Some(resolved(judged.class, *slot, image))
    });
    let kept: Vec<ResolvedImage> = kept.collect();
    if kept.is_empty() {
        let message = format!("{error}; correct the annotation, or remove it");
        let seen = refused(ConditionReason::ImagePolicyInvalid, &message);
        return ChosenImages { seen, notices: ImageNotices::default() };
    }
    let message = format!("keeping the images: {error}; correct the annotation, or remove it");
    ChosenImages { seen: Seen::Holds(kept), notices: ImageNotices { message, ..ImageNotices::default() } }
}

/// The image that the class has for a slot, if EC2 still launches it and it hasn't failed.
fn kept<'a>(slot: Slot, images: &[&'a Image], known: KnownImages<'_>) -> Option<&'a Image> {
    let (architecture, variant) = slot;
    let architecture = Architecture::from_ec2(architecture);
    let held = known.previous.iter();
    let held = held.filter(|held| held.architecture == architecture && held.variant == variant);
    let held = held.map(|held| &held.id).find(|id| known.failed.get(id).is_none())?;
    images.iter().copied().find(|image| image.id == *held && image.state == ImageState::Available)
}

fn resolved(class: &Ec2NodeClass, slot: Slot, image: &Image) -> ResolvedImage {
    let (architecture, variant) = slot;
    let named = spec::named_snapshots(class).into_iter();
    let own = named.filter(|(device, id)| image.facts.snapshot(device) == Some(*id));
    ResolvedImage {
        id: image.id.clone(),
        name: image.name.clone(),
        architecture: Architecture::from_ec2(architecture),
        variant,
        boot_mode: image.facts.boot_mode.filter(|mode| *mode != BootMode::UefiPreferred),
        created_at: image.created_at.unwrap_or(Timestamp::UNIX_EPOCH),
        own_snapshots: own.map(|(device, id)| (device.to_owned(), id.to_owned())).collect(),
    }
}

fn as_rejected(image: &Image, reasons: Vec<ImageRejection>) -> RejectedImage {
    RejectedImage { id: image.id.clone(), name: image.name.clone(), reasons }
}
