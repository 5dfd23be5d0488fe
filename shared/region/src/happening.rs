//! What happens, as it happens: the lines of `tenon local`.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Kinds of lines; their names are the contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HappeningKind {
    /// An event on a bus.
    Event,
    /// A decision: a journal record.
    Decision,
    /// What a function or the agent did.
    Action,
    /// A Node came, changed or went.
    Node,
    /// Pods changed.
    Pod,
    /// What the scenario says.
    Note,
}

impl HappeningKind {
    /// The kind in `-o json`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Decision => "decision",
            Self::Action => "action",
            Self::Node => "node",
            Self::Pod => "pod",
            Self::Note => "note",
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Happening {
    /// When.
    pub at: Timestamp,
    /// What kind.
    pub kind: HappeningKind,
    /// What it is about: an instance, a claim, a node, ….
    pub subject: String,
    /// One sentence.
    pub message: String,
    /// More, by name.
    pub details: Map<String, Value>,
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
        Self { at, kind, subject: subject.into(), message: message.into(), details: Map::new() }
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
