//! Events about objects (`events.k8s.io/v1`), for people.
//!
//! Decides their form, and how often an equal one is sent: dashboards count events by reason, and the API server
//! keeps each for an hour.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::object::ObjectKey;

/// How long an equal event isn't sent again. Source: kubernetes-sigs/karpenter `pkg/events/recorder.go`.
pub const TOLD_AGAIN_AFTER: SignedDuration = SignedDuration::from_mins(2);

/// An event about an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// Of which.
    pub about: ObjectKey,
    /// Its UID; empty where it isn't known.
    pub uid: String,
    /// Whether it is a warning.
    pub kind: NoteKind,
    /// A CamelCase reason; the peer's where it has one.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

tenon_domain::words! {
    /// `Event.type`.
    pub enum NoteKind {
        /// All is as it should be.
        Normal,
        /// It isn't.
        Warning,
    }
}

/// The events that were sent recently.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToldNotes(BTreeMap<(ObjectKey, String), Timestamp>);

impl ToldNotes {
    /// Whether to send an event now; if so, records it as sent.
    pub fn tells(&mut self, note: &Note, now: Timestamp) -> bool {
        self.0.retain(|_, at| now.duration_since(*at) < TOLD_AGAIN_AFTER);
        let key = (note.about.clone(), note.reason.clone());
        if self.0.contains_key(&key) {
            return false;
        }
        self.0.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_every_two_minutes() {
        let note = |reason: &str| Note {
            about: ObjectKey::node("a"),
            uid: String::new(),
            kind: NoteKind::Warning,
            reason: reason.to_owned(),
            message: String::new(),
        };
        let mut told = ToldNotes::default();
        let mut check = |reason: &str, second: i64, expected: bool| {
            assert_eq!(told.tells(&note(reason), Timestamp::from_second(second).unwrap()), expected);
        };
        check("FailedDraining", 0, true);
        check("FailedDraining", 119, false);
        check("Draining", 119, true);
        check("FailedDraining", 120, true);
    }
}
