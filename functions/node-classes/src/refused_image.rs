//! Images that EC2 refuses to launch, though it describes them as available: their owner took the permission back, or
//! wants a subscription.
//!
//! Decides which refusal is about which image: a verdict of `provisioner` names it, a refused launch by EC2's words; and
//! that it ends with the availability of its image, whose owner may have disabled it. It doesn't decide what the class
//! takes instead (`choose`), nor how long it passes over the image (`RefusedImage`).
//!
//! Invariant: a refusal counts for the spec that it was told for.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenon_domain::class_status::{ClassStatus, ImageRefusal, RefusedImage};
use tenon_domain::id::ImageId;
use tenon_domain::launch_verdict::{VALIDATION_REFRESH, VerdictOutcome};
use tenon_domain::unavailable::{Mark, RequestDigest};
use tenon_ec2::blamed_image;
use tenon_ec2::port::{Image, ImageState};

use crate::look::ClassLook;

/// The refused images of a class, whose status of this spec is known.
pub(crate) fn refused_images(look: &ClassLook<'_>, known: &ClassStatus) -> Vec<RefusedImage> {
    let input = look.input;
    let refresh = look.class.meta.annotations.get(VALIDATION_REFRESH).map(String::as_str);
    let remembered = known.refused_images.iter().filter(|image| image.is_remembered(refresh, input.now));
    let mut all: Vec<RefusedImage> = remembered.cloned().collect();
    let digest = RequestDigest::of_class(&input.cluster, known);
    let verdicts = input.verdicts.get(&look.class.name).map(|verdicts| verdicts.0.as_slice());
    for verdict in verdicts.unwrap_or_default().iter().filter(|verdict| verdict.digest == digest) {
        let VerdictOutcome::Denied { image: Some(id), message, .. } = &verdict.outcome else { continue };
        if verdict.refresh.as_deref() == refresh {
            add(&mut all, &ImageRefusal { id, message, refresh, at: verdict.at });
        }
    }
    if let Some(mark) = input.refused.get(&look.class.name)
        && let Some(id) = blamed(mark, known)
    {
        let message = mark_words(mark);
        add(&mut all, &ImageRefusal { id, message, refresh, at: mark.asked_at });
    }
    all
}

/// Ends the refusals of images that EC2 describes as unavailable now: once such an image is available again, it is another
/// matter than when EC2 refused it.
pub(crate) fn end_of_unavailable(refused: &mut [RefusedImage], found: &[Image], now: Timestamp) {
    let unavailable: BTreeSet<&ImageId> =
        found.iter().filter(|image| image.state != ImageState::Available).map(|image| &image.id).collect();
    refused.iter_mut().filter(|image| unavailable.contains(&image.id)).for_each(|image| image.end(now));
}

fn add(all: &mut Vec<RefusedImage>, refusal: &ImageRefusal<'_>) {
    let before = all.iter().position(|image| image.id == *refusal.id).map(|at| all.swap_remove(at));
    all.push(RefusedImage::after(before.as_ref(), refusal));
    all.sort_by(|a, b| a.id.cmp(&b.id));
}

/// The image that EC2's words about a refused launch name; the only one of the class, if they name none.
fn blamed<'a>(mark: &Mark, known: &'a ClassStatus) -> Option<&'a ImageId> {
    let words = mark_words(mark);
    let ids: BTreeSet<&ImageId> = known.images.iter().map(|image| &image.id).collect();
    blamed_image(&format!("{}: {words}", mark.code), &ids)
}

/// Whether a refused launch is about an image that the class takes again since: its refusal's time is over, so that launch
/// says nothing of the next one.
pub(crate) fn is_over(mark: &Mark, known: &ClassStatus, now: Timestamp) -> bool {
    let over = |image: &RefusedImage| mark.asked_at < image.until && !image.holds(now);
    let of_mark = blamed(mark, known);
    known.refused_images.iter().any(|image| of_mark == Some(&image.id) && over(image))
}

fn mark_words(mark: &Mark) -> &str {
    mark.message.as_deref().unwrap_or(&mark.code)
}
