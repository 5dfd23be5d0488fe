//! Changes of images, from one look at EC2 and the records.
//!
//! Decides each image's state, and whether to announce it. It doesn't decide whether a class may launch it.
//!
//! Invariants: an image is available only if EC2 returned it so in this look; an image that EC2 doesn't return by id
//! is deregistered; an unchanged world gives an empty plan for an hour; a change of a selectable attribute, such as a
//! tag, is announced.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::ImageId;
use tenon_domain::image::{ImageFacts, ImageRecord, ImageState};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::wake::FunctionName;
use tenon_ec2::port::Image;

/// How long a deregistered image is remembered: as long as the journal that names it.
pub const GONE_KEPT: SignedDuration = tenon_domain::journal::JOURNAL_KEPT;

/// How old the time of an unchanged image's last query gets in its record: a write for each sweep would cost more than
/// it tells.
pub const SEEN_WITHIN: SignedDuration = SignedDuration::from_hours(1);

/// The observations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagesInput {
    /// The time.
    pub now: Timestamp,
    /// The stored records of the images.
    pub known: BTreeMap<ImageId, ImageRecord>,
    /// EC2's answers, by id.
    pub seen: BTreeMap<ImageId, Image>,
    /// Ids with an answer, whether EC2 returned the image or not.
    pub asked: BTreeSet<ImageId>,
}

/// The writes and announcements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImagesPlan {
    /// Changes, by image.
    pub changes: Vec<ImageChange>,
}

/// One image's change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageChange {
    /// The revision of its observed record, if it had one.
    pub before: Option<u64>,
    /// Its new record.
    pub record: ImageRecord,
    /// Its state's change, if it has one: the decision's record.
    pub journal: Option<JournalRecord>,
    /// Its announcement on the bus.
    pub announcement: Option<Announcement>,
    /// When the item may be deleted.
    pub expires_at: Option<Timestamp>,
}

tenon_domain::words! {
    /// An announcement about an image. Its words are the event's `detail-type`.
    pub enum Announcement {
        /// It can be launched.
        Available = "Image Available",
        /// It can't be launched.
        Rejected = "Image Rejected",
    }
}

/// Whether the state is final: the image isn't queried by id again.
#[must_use]
pub const fn is_final(state: ImageState) -> bool {
    match state {
        ImageState::Deregistered | ImageState::Failed => true,
        ImageState::Pending | ImageState::Available | ImageState::Disabled | ImageState::Invalid => false,
    }
}

/// Plans the writes and announcements. It refuses nothing: an unusable state is a decision.
#[must_use]
pub fn plan(input: &ImagesInput) -> ImagesPlan {
    let mut plan = ImagesPlan::default();
    let mut looked: BTreeSet<&ImageId> = input.asked.iter().collect();
    looked.extend(input.seen.keys());
    for id in looked {
        let known = input.known.get(id);
        let record = match input.seen.get(id) {
            Some(image) => described(image, known, input.now),
            None => gone(id, known, input.now),
        };
        if let Some(change) = change(known, record, input.now) {
            plan.changes.push(change);
        }
    }
    plan
}

fn described(image: &Image, known: Option<&ImageRecord>, now: Timestamp) -> ImageRecord {
    ImageRecord {
        revision: next_revision(known),
        id: image.id.clone(),
        name: image.name.clone(),
        state: image.state,
        architecture: image.architecture.map(Into::into),
        created_at: image.created_at,
        owner: image.owner.clone(),
        owner_alias: image.owner_alias.clone(),
        tags: image.tags.clone(),
        deprecated_at: image.deprecated_at,
        facts: image.facts.clone(),
        first_seen_at: known.map_or(now, |known| known.first_seen_at),
        seen_at: now,
    }
}

fn next_revision(known: Option<&ImageRecord>) -> u64 {
    known.map_or(1, |known| known.revision.saturating_add(1))
}

/// An image that EC2 doesn't return: its record stays, except for the state. A failed image stays failed, which says
/// more.
fn gone(id: &ImageId, known: Option<&ImageRecord>, now: Timestamp) -> ImageRecord {
    let revision = next_revision(known);
    match known {
        Some(known) if known.state == ImageState::Failed => {
            ImageRecord { revision, seen_at: now, ..known.clone() }
        }
        Some(known) => {
            ImageRecord { revision, state: ImageState::Deregistered, seen_at: now, ..known.clone() }
        }
        None => ImageRecord {
            revision,
            id: id.clone(),
            name: String::new(),
            state: ImageState::Deregistered,
            architecture: None,
            created_at: None,
            owner: String::new(),
            owner_alias: None,
            tags: BTreeMap::new(),
            deprecated_at: None,
            facts: ImageFacts::default(),
            first_seen_at: now,
            seen_at: now,
        },
    }
}

fn change(known: Option<&ImageRecord>, record: ImageRecord, now: Timestamp) -> Option<ImageChange> {
    let revision = known.map(|known| known.revision);
    let same = |known: &&ImageRecord| {
        ImageRecord { revision: record.revision, seen_at: record.seen_at, ..(*known).clone() } == record
    };
    if let Some(known) = known.filter(same) {
        let recent = now.duration_since(known.seen_at) < SEEN_WITHIN;
        let keep = recent || is_final(record.state);
        let seen =
            || ImageChange { before: revision, record, journal: None, announcement: None, expires_at: None };
        return (!keep).then(seen);
    }
    let before = known.map(|known| known.state);
    let moved = before != Some(record.state);
    // A new tag, name or deprecation of an available image may make another class select it. Its facts and its owner
    // never change; records of older releases have no facts and no alias.
    let learned = |known: &ImageRecord| ImageRecord {
        revision: record.revision,
        owner_alias: record.owner_alias.clone(),
        facts: record.facts.clone(),
        seen_at: record.seen_at,
        ..known.clone()
    };
    let selectable = known.is_none_or(|known| learned(known) != record);
    let matters = moved || (selectable && record.state == ImageState::Available);
    Some(ImageChange {
        before: revision,
        journal: moved.then(|| journal(&record, before, now)),
        announcement: if matters { announcement(record.state) } else { None },
        expires_at: is_final(record.state).then(|| now.saturating_add(GONE_KEPT).unwrap_or(now)),
        record,
    })
}

const fn announcement(state: ImageState) -> Option<Announcement> {
    match state {
        ImageState::Pending => None,
        ImageState::Available => Some(Announcement::Available),
        ImageState::Failed | ImageState::Deregistered | ImageState::Disabled | ImageState::Invalid => {
            Some(Announcement::Rejected)
        }
    }
}

fn journal(record: &ImageRecord, before: Option<ImageState>, now: Timestamp) -> JournalRecord {
    let subject = Subject { kind: SubjectKind::Image, name: record.id.to_string() };
    let state = record.state.as_str();
    let consequence = match record.state {
        ImageState::Pending => "no EC2NodeClass uses it yet",
        ImageState::Available => "EC2NodeClasses that select it can use it",
        ImageState::Failed | ImageState::Deregistered | ImageState::Disabled | ImageState::Invalid => {
            "no EC2NodeClass uses it"
        }
    };
    let message = match before {
        Some(before) => {
            format!("image `{}` changed from {} to {state}: {consequence}", record.id, before.as_str())
        }
        // Nobody saw it, so it may as well be of another account, or of none.
        None if record.state == ImageState::Deregistered && record.owner.is_empty() => format!(
            "EC2 doesn't return image `{}`, so {consequence}: check the id, or have it shared with this account",
            record.id
        ),
        None => format!("image `{}` is {state}: {consequence}", record.id),
    };
    JournalRecord::new(subject, now, FunctionName::Images.as_str(), Decision::ImageState, message)
        .detail("state", state)
        .detail("name", &record.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn id() -> ImageId {
        ImageId::parse("ami-1").unwrap()
    }

    fn image(state: ImageState) -> Image {
        Image {
            id: id(),
            name: "nodes-1".to_owned(),
            owner: "111122223333".to_owned(),
            owner_alias: None,
            architecture: Some(tenon_ec2::port::ImageArchitecture::Arm64),
            state,
            created_at: Some(at(1)),
            deprecated_at: None,
            facts: ImageFacts::default(),
            tags: BTreeMap::new(),
        }
    }

    fn look(known: Option<ImageState>, seen: Option<ImageState>) -> ImagesPlan {
        let known =
            known.map(|state| ImageRecord { state, ..described(&image(ImageState::Pending), None, at(2)) });
        plan(&ImagesInput {
            now: at(9),
            known: known.into_iter().map(|record| (record.id.clone(), record)).collect(),
            seen: seen.map(|state| (id(), image(state))).into_iter().collect(),
            asked: BTreeSet::from([id()]),
        })
    }

    fn check(
        known: Option<ImageState>,
        seen: Option<ImageState>,
        expected: Option<(ImageState, Option<Announcement>)>,
    ) {
        let found = look(known, seen).changes.pop().map(|change| (change.record.state, change.announcement));
        assert_eq!(found, expected, "{known:?} {seen:?}");
    }

    #[test]
    fn a_change_of_state_is_said_unless_nobody_can_act_on_it() {
        use ImageState as Ec2;
        let (available, rejected) = (Some(Announcement::Available), Some(Announcement::Rejected));
        check(None, Some(Ec2::Pending), Some((ImageState::Pending, None)));
        check(None, Some(Ec2::Available), Some((ImageState::Available, available)));
        check(Some(ImageState::Pending), Some(Ec2::Available), Some((ImageState::Available, available)));
        check(Some(ImageState::Pending), Some(Ec2::Failed), Some((ImageState::Failed, rejected)));
        check(Some(ImageState::Available), Some(Ec2::Disabled), Some((ImageState::Disabled, rejected)));
        check(Some(ImageState::Disabled), Some(Ec2::Available), Some((ImageState::Available, available)));
        check(Some(ImageState::Available), None, Some((ImageState::Deregistered, rejected)));
        check(None, None, Some((ImageState::Deregistered, rejected)));
    }

    #[test]
    fn an_image_that_was_never_seen_is_not_called_deregistered() {
        let check = |known: Option<ImageState>, expected: &str| {
            let change = look(known, None).changes.pop().unwrap();
            assert_eq!(change.journal.unwrap().message, expected);
        };
        check(
            None,
            "EC2 doesn't return image `ami-1`, so no EC2NodeClass uses it: check the id, or have it shared with this account",
        );
        check(
            Some(ImageState::Available),
            "image `ami-1` changed from available to deregistered: no EC2NodeClass uses it",
        );
    }

    #[test]
    fn an_unchanged_world_gives_an_empty_plan() {
        check(Some(ImageState::Available), Some(ImageState::Available), None);
        check(Some(ImageState::Pending), Some(ImageState::Pending), None);
        check(Some(ImageState::Deregistered), None, None);
        check(Some(ImageState::Failed), None, None);
    }

    #[test]
    fn an_available_image_that_is_tagged_is_said_and_a_pending_one_waits_for_its_state() {
        let check = |state: ImageState, expected: Option<Announcement>| {
            let known = ImageRecord { state, ..described(&image(state), None, at(2)) };
            let tags = BTreeMap::from([("channel".to_owned(), "stable".to_owned())]);
            let plan = plan(&ImagesInput {
                now: at(9),
                known: BTreeMap::from([(id(), known)]),
                seen: BTreeMap::from([(id(), Image { tags: tags.clone(), ..image(state) })]),
                asked: BTreeSet::from([id()]),
            });
            let change = plan.changes.first().unwrap();
            assert_eq!((change.announcement, &change.record.tags), (expected, &tags), "{state:?}");
        };
        check(ImageState::Available, Some(Announcement::Available));
        check(ImageState::Pending, None);
        check(ImageState::Disabled, None);
    }

    #[test]
    fn a_record_of_an_older_release_gets_its_facts_without_an_announcement() {
        let known = described(&image(ImageState::Available), None, at(2));
        let known = ImageRecord { revision: 0, ..known };
        let facts = ImageFacts { root_device_name: Some("/dev/xvda".to_owned()), ..ImageFacts::default() };
        let owner_alias = Some("amazon".to_owned());
        let described = Image { facts: facts.clone(), owner_alias, ..image(ImageState::Available) };
        let plan = plan(&ImagesInput {
            now: at(9),
            known: BTreeMap::from([(id(), known)]),
            seen: BTreeMap::from([(id(), described)]),
            asked: BTreeSet::from([id()]),
        });
        let change = plan.changes.first().unwrap();
        assert_eq!((change.announcement, &change.record.facts), (None, &facts));
        assert_eq!((change.before, change.record.revision), (Some(0), 1));
    }

    #[test]
    fn an_unchanged_image_is_recorded_as_seen_once_an_hour_and_not_announced() {
        let known = described(&image(ImageState::Available), None, at(2));
        let check = |now: i64, expected: Option<(i64, i64)>| {
            let plan = plan(&ImagesInput {
                now: at(now),
                known: BTreeMap::from([(id(), known.clone())]),
                seen: BTreeMap::from([(id(), image(ImageState::Available))]),
                asked: BTreeSet::from([id()]),
            });
            let told = |change: &ImageChange| {
                assert_eq!((&change.journal, change.announcement), (&None, None));
                (change.record.first_seen_at.as_second(), change.record.seen_at.as_second())
            };
            assert_eq!(plan.changes.first().map(told), expected);
        };
        check(3601, None);
        check(3602, Some((2, 3602)));
    }

    #[test]
    fn what_ec2_did_not_answer_stays_as_it_was() {
        let known = described(&image(ImageState::Available), None, at(2));
        let input = ImagesInput {
            now: at(9),
            known: BTreeMap::from([(id(), known)]),
            seen: BTreeMap::new(),
            asked: BTreeSet::new(),
        };
        let plan = plan(&input);
        assert_eq!(plan.changes.len(), 0);
    }
}
