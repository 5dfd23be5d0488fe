//! The images of a class, as a look at it sees them.
//!
//! Decides what EC2's and SSM's answers or their absence mean, and when the class is looked at again for an image that
//! is too young. It doesn't decide which of the answered images the class takes (`choose`).
//!
//! Invariant: without an answer the images and what is told of them stay.

use jiff::SignedDuration;
use tenon_domain::class_status::{
    ClassStatus, ConditionReason, ConditionType, ImageNotices, ResolvedImage, Seen,
};
use tenon_domain::image_policy::ImagePolicy;

use super::{ClassLook, PartCondition};
use crate::choose::KnownImages;
use crate::failed_image::FailedImages;
use crate::plan::{Answers, LOOK_EVERY};
use crate::refused_image::{end_of_unavailable, refused_images};
use crate::resolve::JudgedClass;
use crate::{alias, choose, spec_form};

const CONDITION: ConditionType = ConditionType::AmisReady;

impl ClassLook<'_> {
    /// The class's images, and what else there is to know about them.
    pub(super) fn images(
        &mut self,
        judged: JudgedClass<'_>,
        answers: &Answers,
    ) -> (Seen<Vec<ResolvedImage>>, ImageNotices) {
        let class = self.class;
        let unreadable = ImagePolicy::of(class).err().map(|error| error.to_string());
        if let Err(error) = alias::parameters(&class.ami_selector, &judged.registry.kubernetes_version) {
            let message = error.to_string();
            let seen = Seen::Refused { reason: ConditionReason::UnsupportedAlias, message };
            return (seen, ImageNotices { unreadable, ..ImageNotices::default() });
        }
        let known = self.previous.filter(|known| spec_form::is_of_spec(known, class));
        let previous = known.map(|known| known.images.as_slice()).unwrap_or_default();
        let told = known.and_then(|known| known.condition(CONDITION));
        let told = told.map(|told| told.message.as_str()).unwrap_or_default();
        let mut refused = known.map(|known| refused_images(self, known)).unwrap_or_default();
        if let Ok(found) = &answers.images.answer {
            end_of_unavailable(&mut refused, found, self.input.now);
        }
        let failed = FailedImages::of(&self.input.boots, class, self.input.now);
        let unfinished = &self.input.unfinished;
        let images = KnownImages { previous, told, refused: &refused, failed: &failed, unfinished };
        let mut notices = ImageNotices::default();
        let seen = self.part(
            PartCondition { condition: CONDITION, reason: ConditionReason::AmiResolutionFailed },
            &answers.images.answer,
            known.map(|known| known.images.clone()),
            |found| {
                let chosen = choose::images(judged, &answers.images, found, images);
                notices = chosen.notices;
                chosen.seen
            },
        );
        if self.kept.contains(&CONDITION) {
            notices = known.map(|known| self.as_told(known)).unwrap_or_default();
        }
        notices.refused = refused;
        // Later looks see it in time.
        let until = notices.next_try.map(|at| at.duration_since(self.input.now));
        if let Some(by) = until.filter(|by| *by <= LOOK_EVERY) {
            self.look_in(by.max(SignedDuration::ZERO));
        }
        (seen, ImageNotices { unreadable, ..notices })
    }

    fn as_told(&self, known: &ClassStatus) -> ImageNotices {
        let told = known.condition(CONDITION);
        ImageNotices {
            rejected: known.rejected_images.clone(),
            refused: Vec::new(),
            message: told.map(|told| told.message.clone()).unwrap_or_default(),
            unreadable: None,
            next_try: told.and_then(|told| told.next_try).filter(|at| *at > self.input.now),
        }
    }
}
