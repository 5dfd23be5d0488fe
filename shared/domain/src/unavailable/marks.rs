//! All marks of a region, and their combined effect on an offering.
//!
//! Decides which marks concern an offering; the latest end counts. Marks without effect stay, because their next
//! write is conditional on their revision.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::key::{UnavailableKey, WantedOffering};
use super::mark::{Mark, MarkState};

/// All marks of a region, by subject.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks {
    marks: BTreeMap<UnavailableKey, Mark>,
    /// Keys about types of a family, so that an offering is compared with few of them.
    by_family: BTreeMap<String, Vec<UnavailableKey>>,
    /// Keys about no type.
    wide: Vec<UnavailableKey>,
}

/// The effect of marks on an offering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocking {
    /// The end of the block; after it, a launch with the leases of all `keys` may ask.
    pub until: Timestamp,
    /// The time from which it may be probed as the last resort.
    pub last_resort_at: Timestamp,
    /// The marks.
    pub keys: Vec<UnavailableKey>,
}

impl Blocking {
    /// Whether a probe may ask for it.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.until <= now
    }

    fn of<'a>(marks: impl IntoIterator<Item = &'a Mark>, now: Timestamp) -> Option<Self> {
        let mut blocking: Option<Self> = None;
        for mark in marks.into_iter().filter(|mark| mark.state(now) != MarkState::Forgotten) {
            let (until, last_resort_at) = (mark.blocked_until(), mark.last_resort_at());
            let all = blocking.get_or_insert(Self { until, last_resort_at, keys: Vec::new() });
            all.until = all.until.max(until);
            all.last_resort_at = all.last_resort_at.max(last_resort_at);
            all.keys.push(mark.key.clone());
        }
        blocking
    }
}

impl FromIterator<Mark> for Marks {
    fn from_iter<I: IntoIterator<Item = Mark>>(marks: I) -> Self {
        let mut all = Self {
            marks: marks.into_iter().map(|mark| (mark.key.clone(), mark)).collect(),
            ..Self::default()
        };
        for key in all.marks.keys() {
            match key.family() {
                Some(family) => all.by_family.entry(family.to_owned()).or_default().push(key.clone()),
                None => all.wide.push(key.clone()),
            }
        }
        all
    }
}

impl Marks {
    /// Whether there is none, not even one without effect.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// The mark of exactly this key, even without effect.
    #[must_use]
    pub fn get(&self, key: &UnavailableKey) -> Option<&Mark> {
        self.marks.get(key)
    }

    /// Marks that concern an offering, even without effect.
    pub fn concerning<'a>(&'a self, wanted: &'a WantedOffering<'_>) -> impl Iterator<Item = &'a Mark> {
        let of_family = self.by_family.get(wanted.offering.instance_type.family());
        let keys = of_family.into_iter().flatten().chain(&self.wide);
        keys.filter_map(|key| self.marks.get(key)).filter(|mark| mark.concerns(wanted))
    }

    /// The marks' effect on an offering; `None` without any.
    #[must_use]
    pub fn blocking(&self, wanted: &WantedOffering<'_>, now: Timestamp) -> Option<Blocking> {
        Blocking::of(self.concerning(wanted), now)
    }

    /// The same for one key, such as a subnet.
    #[must_use]
    pub fn blocking_key(&self, key: &UnavailableKey, now: Timestamp) -> Option<Blocking> {
        Blocking::of(self.get(key), now)
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = &Mark> {
        self.marks.values()
    }
}
