//! Priorities of pods by their class, as the API server's admission sets them.

use std::collections::BTreeMap;

use serde_json::Value;

/// The classes that every cluster has (Kubernetes, `scheduling.SystemPriorityClasses`).
const SYSTEM: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// The known priority classes.
#[derive(Debug, Clone, Default)]
pub(super) struct Priorities {
    classes: BTreeMap<String, i32>,
    default: i32,
    /// Whether an unknown class gets a warning: files should hold the classes that pods name, while an API server sets
    /// the priorities itself.
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
    /// The classes of files. They are read before all other objects, because a class may follow the pods that name it.
    pub(super) fn of_files() -> Self {
        Self { complete: Completeness::Files, ..Self::default() }
    }

    /// Adds the object, if it is a PriorityClass with a valid value.
    pub(super) fn add(&mut self, object: &Value, listed: Option<&str>) {
        if object.get("kind").and_then(Value::as_str).or(listed) != Some("PriorityClass") {
            return;
        }
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        let value = object.get("value").and_then(Value::as_i64).and_then(|value| i32::try_from(value).ok());
        let (Some(name), Some(value)) = (name, value) else { return };
        self.classes.insert(name.to_owned(), value);
        if object.get("globalDefault") == Some(&Value::Bool(true)) {
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
