//! Priorities of pods by their class, as the API server's admission fills them in.

use std::collections::BTreeMap;

use super::tree::{Tree, Value};

/// The classes that every cluster has (Kubernetes, `scheduling.SystemPriorityClasses`).
const SYSTEM: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Priority classes that are known.
#[derive(Debug, Clone, Default)]
pub(super) struct Priorities {
    classes: BTreeMap<String, i32>,
    default: i32,
    /// Whether all classes of the cluster are known: a file has those that it names, an API server fills priorities in
    /// itself.
    complete: Completeness,
}

/// Whether an unknown class is worth a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Completeness {
    #[default]
    Unknown,
    Files,
}

impl Priorities {
    /// Those of files: read ahead of everything else, since a class may follow the pods that name it.
    pub(super) fn of_files() -> Self {
        Self { complete: Completeness::Files, ..Self::default() }
    }

    /// Adds a PriorityClass, if this is one whose value can be read.
    pub(super) fn add(&mut self, tree: &Tree) {
        if tree.text("kind") != Some("PriorityClass") {
            return;
        }
        let name = tree.get("metadata").and_then(|meta| meta.value.text("name"));
        let value = tree.get("value").and_then(|entry| match &entry.value.value {
            Value::Number(text) => text.parse().ok(),
            Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => None,
        });
        let (Some(name), Some(value)) = (name, value) else { return };
        self.classes.insert(name.to_owned(), value);
        if tree.get("globalDefault").is_some_and(|entry| entry.value.value == Value::Bool(true)) {
            self.default = value;
        }
    }

    /// The priority of a class (empty for none); `None` if there is no such class.
    pub(super) fn of(&self, class: &str) -> Option<i32> {
        if class.is_empty() {
            return Some(self.default);
        }
        let system = || SYSTEM.iter().find(|(name, _)| *name == class).map(|(_, value)| *value);
        self.classes.get(class).copied().or_else(system)
    }

    /// Whether an unknown class is worth a warning.
    pub(super) fn completeness(&self) -> Completeness {
        self.complete
    }
}
