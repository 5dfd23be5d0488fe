//! An image pipeline beside a simulated world: it builds images, tests them, and tags them by the result.
//!
//! Decides when an image is built, how its tests end, when an approval is withdrawn, and when the newest image is
//! disabled or deregistered. Of half of its tags the pipeline sends its event; the others only a sweep can find.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::id::ImageId;
use tenon_region::engine::SimulatedRegion;
use tenon_runtime::BusEvent;

use crate::random::Dice;
use crate::world::image;

/// The tag that tells how far an image is.
pub(crate) const STAGE: &str = "stage";
/// Its value after the tests.
pub(crate) const APPROVED: &str = "approved";
/// Its value until then.
pub(crate) const BUILDING: &str = "building";
/// The beginning of the names of its images.
pub(crate) const BUILT: &str = "build-";

/// The pipeline.
pub(crate) struct Pipeline {
    dice: Dice,
    /// How long tests take at most, and how long an image stays disabled, in seconds.
    longest: u64,
    built: u64,
    /// Images under test, and when their tests end.
    under_test: Vec<TimedImage>,
    approved: Vec<ImageId>,
    /// Disabled images, and when they are enabled again.
    disabled: Vec<TimedImage>,
}

struct TimedImage {
    until: Timestamp,
    image: ImageId,
}

impl Pipeline {
    /// The pipeline of a seed.
    pub(crate) fn new(seed: u64, longest: u64) -> Self {
        Self {
            dice: Dice::new(seed, 13),
            longest,
            built: 0,
            under_test: Vec::new(),
            approved: Vec::new(),
            disabled: Vec::new(),
        }
    }

    /// Does what is due, and perhaps one thing more.
    pub(crate) fn act(&mut self, region: &mut SimulatedRegion) {
        for image in due(&mut self.under_test, region.now()) {
            if self.dice.permille(800) {
                self.tag(region, &image, APPROVED);
                self.approved.push(image);
            } else {
                self.tag(region, &image, "failed");
            }
        }
        for image in due(&mut self.disabled, region.now()) {
            let _ = region.twin().enable_image(&image);
            self.approved.push(image);
        }
        match self.dice.below(1000) {
            0..=24 => self.build(region),
            25..=32 => {
                if let Some(image) = self.approved.pop() {
                    self.tag(region, &image, "withdrawn");
                }
            }
            33..=42 => self.take_newest_back(region),
            _ => {}
        }
    }

    /// Ends all tests, without an event.
    pub(crate) fn finish(&mut self, region: &SimulatedRegion) {
        for test in self.under_test.drain(..) {
            let _ = region.twin().tag_image(&test.image, STAGE, APPROVED);
        }
    }

    fn build(&mut self, region: &mut SimulatedRegion) {
        self.built += 1;
        let mut form = image(&format!("{BUILT}{}", self.built));
        form.tags.insert(STAGE.to_owned(), BUILDING.to_owned());
        form.takes = Some(seconds(self.dice.between(1, 60)));
        let image = region.make_image(&form);
        let until = self.later(region);
        self.under_test.push(TimedImage { until, image });
    }

    /// Disables the newest of its images for a while, or deregisters it.
    fn take_newest_back(&mut self, region: &SimulatedRegion) {
        let Some(image) = self.approved.pop() else { return };
        if self.dice.permille(500) {
            let _ = region.twin().deregister_image(&image);
        } else if region.twin().disable_image(&image).is_ok() {
            let until = self.later(region);
            self.disabled.push(TimedImage { until, image });
        }
    }

    fn tag(&mut self, region: &mut SimulatedRegion, image: &ImageId, stage: &str) {
        let _ = region.twin().tag_image(image, STAGE, stage);
        if self.dice.permille(500) {
            region.publish(&BusEvent {
                source: "ami.pipeline".to_owned(),
                detail_type: "Image Tagged".to_owned(),
                detail: json!({"ImageId": image.as_str()}),
            });
        }
    }

    fn later(&mut self, region: &SimulatedRegion) -> Timestamp {
        let wait = seconds(self.dice.between(10, self.longest));
        region.now().checked_add(wait).unwrap_or(Timestamp::MAX)
    }
}

/// Takes out the images whose time has come.
fn due(waiting: &mut Vec<TimedImage>, now: Timestamp) -> Vec<ImageId> {
    waiting.extract_if(.., |timed| timed.until <= now).map(|timed| timed.image).collect()
}

fn seconds(number: u64) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(number).unwrap_or(60))
}
