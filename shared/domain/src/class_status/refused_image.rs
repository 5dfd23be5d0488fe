//! An image that EC2 refused to launch, though it describes it as available.
//!
//! Decides how long a class passes over the image. It doesn't decide which refusals are about an image.
//!
//! Invariant: each refusal in a row doubles the time, up to a day.

use jiff::{SignedDuration, Timestamp};

use crate::id::ImageId;
use crate::wait::{doubled, later};

/// How long an image is passed over after the first refusal. Its owner shares it or a person subscribes to it within
/// minutes, but each try makes nodes of the class drift to it.
const FIRST_HOLD: SignedDuration = SignedDuration::from_hours(1);
/// How long at most.
const LONGEST_HOLD: SignedDuration = SignedDuration::from_hours(24);
/// How long after the next try a refusal is remembered: EC2 has answered by then.
const REMEMBERED_FOR: SignedDuration = SignedDuration::from_hours(1);
/// How soon a refusal ends: the end is later than the refusal, though both may be seen at one time.
const ENDS_WITHIN: SignedDuration = SignedDuration::from_secs(1);

/// An image that EC2 refused to launch for a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedImage {
    /// The image.
    pub id: ImageId,
    /// Why, with EC2's words.
    pub message: String,
    /// Refusals in a row.
    pub times: u32,
    /// The value of the class's annotation `karpenter.k8s.aws/validation-refresh` then: another one tries at once.
    pub refresh: Option<String>,
    /// When the class takes it again.
    pub until: Timestamp,
}

/// EC2's refusal of an image.
#[derive(Debug, Clone, Copy)]
pub struct ImageRefusal<'a> {
    /// The image.
    pub id: &'a ImageId,
    /// Why, with EC2's words.
    pub message: &'a str,
    /// The value of the class's annotation.
    pub refresh: Option<&'a str>,
    /// When EC2 refused.
    pub at: Timestamp,
}

impl RefusedImage {
    /// After a refusal. One within the time of an earlier one is that one.
    #[must_use]
    pub fn after(before: Option<&Self>, refusal: &ImageRefusal<'_>) -> Self {
        let ImageRefusal { id, message, refresh, at } = *refusal;
        let before = before.filter(|before| before.refresh.as_deref() == refresh);
        if let Some(before) = before.filter(|before| at < before.until) {
            return before.clone();
        }
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        let hold = doubled(FIRST_HOLD, times.saturating_sub(1), LONGEST_HOLD);
        Self {
            id: id.clone(),
            message: message.to_owned(),
            times,
            refresh: refresh.map(str::to_owned),
            until: later(at, hold),
        }
    }

    /// Ends the time in which the class passes over the image. A further refusal is still one in a row.
    pub fn end(&mut self, now: Timestamp) {
        self.until = self.until.min(later(now, ENDS_WITHIN));
    }

    /// Whether the class passes over the image now.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        now < self.until
    }

    /// Whether it still matters: another value of the annotation or a long time without a refusal ends it.
    #[must_use]
    pub fn is_remembered(&self, refresh: Option<&str>, now: Timestamp) -> bool {
        self.refresh.as_deref() == refresh && now.duration_since(self.until) < REMEMBERED_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(hours * 3_600).unwrap()
    }

    #[test]
    fn each_refusal_in_a_row_doubles_the_time_up_to_a_day() {
        let id: ImageId = "ami-1".parse().unwrap();
        let refusal = |at| ImageRefusal { id: &id, message: "no", refresh: None, at };
        let (mut before, mut now) = (None, at(0));
        for hours in [1, 2, 4, 8, 16, 24, 24] {
            let refused = RefusedImage::after(before.as_ref(), &refusal(now));
            assert_eq!(refused.until.duration_since(now), SignedDuration::from_hours(hours));
            assert_eq!(RefusedImage::after(Some(&refused), &refusal(now)), refused, "told twice");
            now = refused.until;
            assert!(!refused.holds(now) && refused.is_remembered(None, now));
            before = Some(refused);
        }
        let refused = before.unwrap();
        assert!(!refused.is_remembered(Some("1"), at(0)));
        assert!(!refused.is_remembered(None, now.saturating_add(REMEMBERED_FOR).unwrap()));
        let asked_again = ImageRefusal { refresh: Some("1"), ..refusal(at(0)) };
        assert_eq!(RefusedImage::after(Some(&refused), &asked_again).times, 1);
    }

    #[test]
    fn a_refusal_that_ended_is_not_told_again_and_the_next_one_is_the_second() {
        let id: ImageId = "ami-1".parse().unwrap();
        let second = |second| Timestamp::from_second(second).unwrap();
        let refusal = |at| ImageRefusal { id: &id, message: "no", refresh: None, at: second(at) };
        for seen in [0, 60] {
            let mut refused = RefusedImage::after(None, &refusal(0));
            refused.end(second(seen));
            let ended = refused.clone();
            refused.end(second(seen + 30));
            assert_eq!(refused, ended, "seen twice");
            assert!(!refused.holds(second(seen + 1)) && refused.is_remembered(None, second(seen + 1)));
            assert_eq!(RefusedImage::after(Some(&refused), &refusal(0)), refused, "the same refusal");
            let next = RefusedImage::after(Some(&refused), &refusal(90));
            assert_eq!((next.times, next.holds(second(91))), (2, true));
        }
    }
}
