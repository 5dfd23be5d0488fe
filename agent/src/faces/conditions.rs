//! Conditions in Kubernetes' form.
//!
//! Decides the form, and the transition time of conditions that only the object records.

use jiff::Timestamp;
use serde_json::{Value, json};
use tenon_snapshot::object::{self, text};

/// A condition to be shown.
pub(super) struct ShownCondition<'a> {
    pub(super) kind: &'a str,
    pub(super) status: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    pub(super) since: Timestamp,
    pub(super) generation: u64,
}

/// `metav1.Condition`.
pub(super) fn form(shown: ShownCondition<'_>) -> Value {
    let ShownCondition { kind, status, reason, message, since, generation } = shown;
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": seconds(since), "observedGeneration": generation})
}

/// A time as `metav1.Time` has it: whole seconds.
pub(super) fn seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// The condition of an object.
pub(super) fn known<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object::list(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == Some(kind))
}

/// Whether a condition of a status is True.
pub(super) fn holds(object: &Value, kind: &str) -> bool {
    known(object, kind).is_some_and(|condition| text(condition, "/status") == Some("True"))
}

/// The condition's transition time from the object, if its status is unchanged.
pub(super) fn since(object: &Value, kind: &str, status: &str, otherwise: Timestamp) -> Timestamp {
    known(object, kind)
        .filter(|condition| text(condition, "/status") == Some(status))
        .and_then(|condition| object::time(condition, "/lastTransitionTime"))
        .unwrap_or(otherwise)
}
