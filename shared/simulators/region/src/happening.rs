//! Happenings: the lines of `tenon local`.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

tenon_domain::words! {
    /// Kinds of lines; their names are the contract's.
    pub enum HappeningKind {
        /// An event on a bus.
        Event = "event",
        /// A decision: a journal record.
        Decision = "decision",
        /// An action of a function or the agent.
        Action = "action",
        /// A Node was created, changed or deleted.
        Node = "node",
        /// Pods changed.
        Pod = "pod",
        /// A note of the scenario.
        Note = "note",
    }
}

/// The audience of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Audience {
    /// Everybody.
    #[default]
    Everybody,
    /// Readers who want everything: for people, another line says the same, or it is the usual course.
    Scripts,
}

/// Whether the lines of events and decisions are read: wording them costs more than their subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Listeners {
    /// They are read.
    #[default]
    Some,
    /// They aren't, and aren't worded.
    None,
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Happening {
    /// When.
    pub at: Timestamp,
    /// Its kind.
    pub kind: HappeningKind,
    /// Its subject: an instance, a claim, a node, ….
    pub subject: String,
    /// One sentence.
    pub message: String,
    /// More, by name.
    pub details: Map<String, Value>,
    /// Its audience.
    pub audience: Audience,
}

impl Happening {
    /// A line without details.
    #[must_use]
    pub fn new(
        at: Timestamp,
        kind: HappeningKind,
        subject: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        let (subject, message) = (subject.into(), message.into());
        Self { at, kind, subject, message, details: Map::new(), audience: Audience::default() }
    }

    /// The same line for this audience.
    #[must_use]
    pub const fn told_to(mut self, audience: Audience) -> Self {
        self.audience = audience;
        self
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.details.insert(name.to_owned(), value);
        self
    }

    /// The line's object in `-o json`: `at` and `kind` first.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut line = json!({
            "at": self.at.to_string(),
            "kind": self.kind.as_str(),
            "subject": self.subject,
            "message": self.message,
        });
        if let (Some(line), false) = (line.as_object_mut(), self.details.is_empty()) {
            line.insert("details".to_owned(), Value::Object(self.details.clone()));
        }
        line
    }
}

/// Lines for people: lines for scripts are left out, and equal happenings of several subjects at one time are one
/// line with their names.
#[must_use]
pub fn for_people(happenings: impl IntoIterator<Item = Happening>) -> Vec<Happening> {
    let mut told: Vec<(Happening, Vec<String>)> = Vec::new();
    for happening in happenings.into_iter().filter(|happening| happening.audience == Audience::Everybody) {
        match told.last_mut() {
            Some((first, others)) if alike(first, &happening) => {
                others.push(name_of(&happening.subject).to_owned());
            }
            Some(_) | None => told.push((happening, Vec::new())),
        }
    }
    told.into_iter()
        .map(|(mut first, others)| {
            if !others.is_empty() {
                first.message = format!("{} (and so: {})", first.message, others.join(", "));
            }
            first
        })
        .collect()
}

/// Whether two lines differ in nothing but the name that they are about.
fn alike(a: &Happening, b: &Happening) -> bool {
    let named = |happening: &Happening| happening.message.replace(name_of(&happening.subject), "");
    (a.at, a.kind) == (b.at, b.kind)
        && a.kind != HappeningKind::Note
        && a.subject != b.subject
        && named(a) == named(b)
}

/// `claim/default-3k9x2` is about `default-3k9x2`; `pod/shop/web-0` about `shop/web-0`.
fn name_of(subject: &str) -> &str {
    subject.split_once('/').map_or(subject, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lines_of_several_subjects_are_one() {
        let line = |subject: &str, message: &str| {
            Happening::new(Timestamp::UNIX_EPOCH, HappeningKind::Decision, subject, message)
        };
        let told = for_people([
            line("claim/a-1", "NodeClaim `a-1` stays"),
            line("claim/a-2", "NodeClaim `a-2` stays"),
            line("tenon", "Catalog Refreshed").told_to(Audience::Scripts),
            line("claim/a-3", "NodeClaim `a-3` stays"),
            line("claim/a-3", "NodeClaim `a-3` goes"),
        ]);
        let told: Vec<&str> = told.iter().map(|line| line.message.as_str()).collect();
        assert_eq!(told, ["NodeClaim `a-1` stays (and so: a-2, a-3)", "NodeClaim `a-3` goes"]);
    }
}
