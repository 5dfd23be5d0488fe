//! The place of a value, and the notes of a reading by place.
//!
//! Decides how places are written, and which errors are suppressed: those that follow from an error in a part. It reads
//! no value.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::error::ObjectProblem;
use super::priority::Priorities;
use super::shapes::ReadShapes;
use super::yaml::YamlLines;
use crate::requirement::hints::nearest;

/// What happens to unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnknownFields {
    /// They are dropped.
    Dropped,
    /// They are kept.
    Kept,
    /// They are kept and named.
    Named,
    /// They are dropped, with a warning.
    Told,
}

/// A field that its type doesn't know.
#[derive(Debug, Clone)]
pub(super) struct UnknownField {
    /// As a JSON pointer.
    pub(super) pointer: String,
    /// The type's known fields.
    pub(super) known: &'static [&'static str],
    /// Its fields that nobody reads.
    pub(super) unread: &'static [&'static str],
    /// What happens to it.
    pub(super) fate: UnknownFields,
}

impl UnknownField {
    /// The known field that it is probably meant to be.
    pub(super) fn nearest(&self) -> Option<&'static str> {
        let name = self.pointer.rsplit('/').next().unwrap_or_default();
        nearest(name, self.known.iter().chain(self.unread).copied())
    }
}

/// The origin of the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ManifestSource {
    /// A file.
    #[default]
    File,
    /// An API server, which accepted them.
    Server,
}

/// The state of a reading: errors, warnings, unknown fields, pod shapes, priority classes.
#[derive(Debug, Default)]
pub(super) struct ManifestContext {
    pub(super) source: ManifestSource,
    lines: YamlLines,
    pub(super) problems: RefCell<Vec<ObjectProblem>>,
    pub(super) warnings: RefCell<Vec<ObjectProblem>>,
    pub(super) strangers: RefCell<BTreeMap<String, UnknownField>>,
    pub(super) shapes: RefCell<ReadShapes>,
    pub(super) priorities: Priorities,
    /// Places of wrong values, which are read as absent.
    pub(super) wrong: RefCell<BTreeSet<String>>,
}

impl ManifestContext {
    pub(super) fn of_server() -> Self {
        Self { source: ManifestSource::Server, ..Self::default() }
    }

    pub(super) fn of_files(priorities: Priorities) -> Self {
        Self { priorities, ..Self::default() }
    }

    /// Begins another document.
    pub(super) fn begin(&mut self, lines: YamlLines) {
        self.lines = lines;
        self.strangers.take();
        self.wrong.take();
    }

    /// Places of unknown fields with a meaning.
    pub(super) fn named(&self) -> Vec<String> {
        let strangers = self.strangers.borrow();
        let named = strangers.iter().filter(|(_, stranger)| stranger.fate == UnknownFields::Named);
        named.map(|(place, _)| place.clone()).collect()
    }

    /// The known field that the first of them is probably meant to be.
    pub(super) fn meant(&self) -> Option<&'static str> {
        let strangers = self.strangers.borrow();
        let mut named = strangers.values().filter(|stranger| stranger.fate == UnknownFields::Named);
        named.next().and_then(UnknownField::nearest)
    }

    /// The warnings of the object, as sentences.
    pub(super) fn warned(&self) -> Vec<String> {
        let warnings = self.warnings.borrow();
        warnings.iter().map(|problem| problem.clone().of("").to_string()).collect()
    }

    /// JSON pointers of dropped fields.
    pub(super) fn dropped(&self) -> Vec<String> {
        let strangers = self.strangers.borrow();
        let dropped = strangers.values().filter(|stranger| stranger.fate == UnknownFields::Dropped);
        dropped.map(|stranger| stranger.pointer.clone()).collect()
    }

    pub(super) fn report(&self, field: &str, message: &str, remedy: String) {
        let problem = self.problem(field.to_owned(), message, remedy);
        self.problems.borrow_mut().push(problem);
    }

    pub(super) fn caution(&self, field: &str, message: &str, remedy: String) {
        let problem = self.problem(field.to_owned(), message, remedy);
        self.warnings.borrow_mut().push(problem);
    }

    /// The number of errors so far.
    pub(super) fn errors(&self) -> usize {
        self.problems.borrow().len()
    }

    /// Whether a value at or below a place was wrong.
    pub(super) fn is_wrong_within(&self, place: &str) -> bool {
        let below = |wrong: &String| {
            let rest = wrong.strip_prefix(place);
            rest.is_some_and(|rest| place.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.wrong.borrow().iter().any(below)
    }

    pub(super) fn is_wrong(&self, place: &Place<'_>) -> bool {
        let wrong = self.wrong.borrow();
        !wrong.is_empty() && wrong.contains(&place.to_string())
    }

    pub(super) fn problem(
        &self,
        field: String,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ObjectProblem {
        ObjectProblem { line: self.lines.of(&field), field, message: message.into(), remedy: remedy.into() }
    }
}

/// The place of a value: `spec.limits[nvidia.com/gpu]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'p> {
    pub(super) context: &'p ManifestContext,
    parent: Option<&'p Place<'p>>,
    step: PlaceStep<'p>,
}

#[derive(Debug, Clone, Copy)]
enum PlaceStep<'p> {
    Root,
    Key(&'p str),
    Index(usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.step {
            PlaceStep::Root => Ok(()),
            PlaceStep::Index(index) => write!(f, "[{index}]"),
            PlaceStep::Key(key) => {
                let first = self.parent.is_none_or(|parent| matches!(parent.step, PlaceStep::Root));
                write_key(f, if first { "" } else { "." }, key)
            }
        }
    }
}

/// Writes the step to a field; `dot` separates it from the place before it.
pub(super) fn write_key(f: &mut impl fmt::Write, dot: &str, key: &str) -> fmt::Result {
    let is_plain =
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if is_plain { write!(f, "{dot}{key}") } else { write!(f, "[{key}]") }
}

impl<'p> Place<'p> {
    pub(super) fn root(context: &'p ManifestContext) -> Self {
        Self { context, parent: None, step: PlaceStep::Root }
    }

    pub(super) fn context(&self) -> &'p ManifestContext {
        self.context
    }

    pub(super) fn key<'c>(&'c self, key: &'c str) -> Place<'c> {
        Place { context: self.context, parent: Some(self), step: PlaceStep::Key(key) }
    }

    pub(super) fn index(&self, index: usize) -> Place<'_> {
        Place { context: self.context, parent: Some(self), step: PlaceStep::Index(index) }
    }

    /// Reports an error, unless a part of the value was wrong: then the error may only follow from that.
    pub(super) fn error(&self, message: impl Into<String>, remedy: impl Into<String>) {
        if !self.is_unsure() {
            let problem = self.context.problem(self.to_string(), message, remedy);
            self.context.problems.borrow_mut().push(problem);
        }
    }

    /// Whether a part of the value was wrong, or a part of a list around it: dropping that element shifts the indexes.
    fn is_unsure(&self) -> bool {
        if self.context.wrong.borrow().is_empty() {
            return false;
        }
        let mut within = Some(self);
        while let Some(place) = within {
            let list = place.parent.filter(|_| matches!(place.step, PlaceStep::Index(_)));
            if list.is_some_and(|list| self.context.is_wrong_within(&list.to_string())) {
                return true;
            }
            within = place.parent;
        }
        self.context.is_wrong_within(&self.to_string())
    }

    pub(super) fn warn(&self, message: impl Into<String>, remedy: impl Into<String>) {
        let problem = self.context.problem(self.to_string(), message, remedy);
        self.context.warnings.borrow_mut().push(problem);
    }

    /// Reports a missing field.
    pub(super) fn missing(&self, key: &str, expected: &str) {
        self.key(key).error("required, but not given", format!("add {expected}"));
    }

    pub(super) fn pointer(&self) -> String {
        let before = self.parent.map(Place::pointer).unwrap_or_default();
        match self.step {
            PlaceStep::Root => before,
            PlaceStep::Index(index) => format!("{before}/{index}"),
            PlaceStep::Key(key) => format!("{before}/{}", key.replace('~', "~0").replace('/', "~1")),
        }
    }
}
