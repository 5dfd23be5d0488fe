//! A decoder that goes on after an error: a cursor over a tree that knows its path and collects what is wrong.
//!
//! Decides how a value of a wrong type is told. It doesn't know of any kind of object. A reader that returns nothing
//! has reported why, so that a file's errors come all together.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use jiff::Timestamp;

use super::error::Problem;
use super::priority::Priorities;
use super::shapes::Shapes;
use super::tree::{Entry, Tree, Value};
use crate::id::ParseIdError;
use crate::labels::{is_label_value, is_qualified_name};
use crate::quantity::Quantity;
use crate::requirement::hints::{UnknownWordError, nearest};
use crate::resources::{ResourceList, ResourceName};

/// What a reading shares: its problems, the shapes of pods, the priority classes.
#[derive(Debug, Default)]
pub(super) struct Context {
    pub(super) problems: RefCell<Vec<Problem>>,
    pub(super) warnings: RefCell<Vec<Problem>>,
    pub(super) shapes: RefCell<Shapes>,
    pub(super) priorities: Priorities,
    pub(super) errors: Cell<usize>,
}

/// Which fields a map may have.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fields<'a> {
    /// Any: those that aren't known are ignored.
    Any,
    /// These; others are errors, as the API server's strict validation says.
    Only(&'a [&'a str]),
}

/// A value at its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    tree: &'a Tree,
    line: Option<u32>,
    step: Step<'a>,
    parent: Option<&'a At<'a>>,
    context: &'a Context,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

/// `spec.limits[nvidia.com/gpu]`.
impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) if !is_plain_key(key) => write!(f, "[{key}]"),
            Step::Key(key) => {
                let first = self.parent.is_none_or(|parent| matches!(parent.step, Step::Root));
                write!(f, "{}{key}", if first { "" } else { "." })
            }
        }
    }
}

fn is_plain_key(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

impl Context {
    /// How many errors there are so far: a reader that must know whether its parts were in order compares.
    pub(super) fn errors(&self) -> usize {
        self.errors.get()
    }
}

impl<'a> At<'a> {
    pub(super) fn root(tree: &'a Tree, context: &'a Context) -> Self {
        Self { tree, line: tree.line, step: Step::Root, parent: None, context }
    }

    pub(super) fn context(&self) -> &'a Context {
        self.context
    }

    pub(super) fn tree(&self) -> &'a Tree {
        self.tree
    }

    /// The field of a map; absent if it is null or not there.
    pub(super) fn field(&'a self, key: &'a str) -> Option<At<'a>> {
        let entry = self.tree.get(key)?;
        (entry.value.value != Value::Null).then(|| self.child(entry))
    }

    fn child(&'a self, entry: &'a Entry) -> At<'a> {
        let (tree, step) = (&entry.value, Step::Key(&entry.key));
        At { tree, line: entry.line, step, parent: Some(self), context: self.context }
    }

    /// The field of a map, which has to be a map itself and to have no other fields than those.
    pub(super) fn object(&'a self, key: &'a str, fields: Fields<'_>) -> Option<At<'a>> {
        self.field(key).filter(|at| at.check_map(fields))
    }

    /// Like [`At::object`], for fields that have to be there.
    pub(super) fn required_object(&'a self, key: &'a str, fields: Fields<'_>) -> Option<At<'a>> {
        if self.field(key).is_none() {
            self.missing(key, "a map");
        }
        self.object(key, fields)
    }

    /// Whether this is a map with no other fields than those; says what is wrong.
    pub(super) fn check_map(&self, fields: Fields<'_>) -> bool {
        let Value::Map(entries) = &self.tree.value else {
            self.wrong_type("a map");
            return false;
        };
        if let Fields::Only(known) = fields {
            for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
                let remedy = match nearest(&entry.key, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("leave it out; known fields are {}", quoted(known)),
                };
                self.child(entry).error("unknown field", remedy);
            }
        }
        true
    }

    /// The field of a map, which has to be a list; empty lists count as absent.
    pub(super) fn list(&'a self, key: &'a str) -> Option<At<'a>> {
        let at = self.field(key)?;
        match &at.tree.value {
            Value::List(items) => (!items.is_empty()).then_some(at),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::Map(_) => {
                at.wrong_type("a list");
                None
            }
        }
    }

    /// The items of a list.
    pub(super) fn items(&'a self) -> impl Iterator<Item = At<'a>> {
        let items: &[Tree] = match &self.tree.value {
            Value::List(items) => items,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::Map(_) => &[],
        };
        items.iter().enumerate().map(move |(index, tree)| At {
            tree,
            line: tree.line,
            step: Step::Index(index),
            parent: Some(self),
            context: self.context,
        })
    }

    /// The entries of a map.
    pub(super) fn entries(&'a self) -> impl Iterator<Item = (&'a str, At<'a>)> {
        let entries: &[Entry] = match &self.tree.value {
            Value::Map(entries) => entries,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => &[],
        };
        entries.iter().map(move |entry| (entry.key.as_str(), self.child(entry)))
    }

    /// Whether a field is there and not null.
    pub(super) fn has(&self, key: &str) -> bool {
        self.tree.get(key).is_some_and(|entry| entry.value.value != Value::Null)
    }

    /// Whether a field is there and says something: not null, no empty list.
    pub(super) fn says(&self, key: &str) -> bool {
        self.has(key) && self.tree.get(key).is_some_and(|entry| entry.value.value != Value::List(Vec::new()))
    }

    pub(super) fn error(&self, message: impl Into<String>, remedy: impl Into<String>) {
        self.context.errors.set(self.context.errors.get().saturating_add(1));
        self.context.problems.borrow_mut().push(self.problem(message, remedy));
    }

    pub(super) fn warn(&self, message: impl Into<String>, remedy: impl Into<String>) {
        self.context.warnings.borrow_mut().push(self.problem(message, remedy));
    }

    fn problem(&self, message: impl Into<String>, remedy: impl Into<String>) -> Problem {
        let (message, remedy) = (message.into(), remedy.into());
        Problem { line: self.line, field: self.to_string(), message, remedy }
    }

    /// Says that a field has to be there.
    pub(super) fn missing(&self, key: &str, expected: &str) {
        let path = self.to_string();
        let field = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        let mut problem = self.problem("required, but not given", format!("add {expected}"));
        problem.field = field;
        self.context.errors.set(self.context.errors.get().saturating_add(1));
        self.context.problems.borrow_mut().push(problem);
    }

    fn wrong_type(&self, expected: &str) {
        let wants_text = expected == "a string";
        let (found, remedy) = match &self.tree.value {
            Value::Null => ("nothing".to_owned(), "give it a value or leave it out".to_owned()),
            Value::Bool(given) if wants_text => {
                (format!("the boolean `{given}`"), "put it in quotes".to_owned())
            }
            Value::Number(text) if wants_text => {
                (format!("the number `{text}`"), format!("write `\"{text}\"`"))
            }
            Value::Bool(given) => (format!("the boolean `{given}`"), format!("write {expected}")),
            Value::Number(text) => (format!("the number `{text}`"), format!("write {expected}")),
            Value::Text(text) => (format!("the string `{text}`"), format!("write {expected}")),
            Value::List(_) => ("a list".to_owned(), format!("write {expected}")),
            Value::Map(_) => ("a map".to_owned(), format!("write {expected}")),
        };
        self.error(format!("expected {expected}, found {found}"), remedy);
    }

    /// This as a string.
    pub(super) fn text(&self) -> Option<&'a str> {
        match &self.tree.value {
            Value::Text(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => {
                self.wrong_type("a string");
                None
            }
        }
    }

    /// A field as a string.
    pub(super) fn text_of(&self, key: &str) -> Option<String> {
        self.field(key).and_then(|at| at.text()).map(str::to_owned)
    }

    /// A field as a string that has to be there and not to be empty.
    pub(super) fn required_text(&self, key: &str, expected: &str) -> Option<String> {
        match self.field(key) {
            None => {
                self.missing(key, expected);
                None
            }
            Some(at) => {
                let text = at.text()?;
                if text.is_empty() {
                    at.error("must not be empty", format!("write {expected}"));
                    return None;
                }
                Some(text.to_owned())
            }
        }
    }

    /// A field as a boolean.
    pub(super) fn boolean(&self, key: &str) -> Option<bool> {
        let at = self.field(key)?;
        match &at.tree.value {
            Value::Bool(given) => Some(*given),
            Value::Null | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
                at.wrong_type("`true` or `false`");
                None
            }
        }
    }

    /// This as an integer within a range.
    pub(super) fn integer<T: TryFrom<i64>>(&self, range: RangeInclusive<i64>) -> Option<T> {
        let Value::Number(text) = &self.tree.value else {
            self.wrong_type("an integer");
            return None;
        };
        let value = text.parse::<i64>().ok().filter(|value| range.contains(value));
        let converted = value.and_then(|value| T::try_from(value).ok());
        if converted.is_none() {
            let (low, high) = (range.start(), range.end());
            let wide = *high >= i64::from(i32::MAX);
            let expected = if wide {
                format!("an integer from {low}")
            } else {
                format!("an integer from {low} to {high}")
            };
            self.error(format!("expected {expected}, found `{text}`"), format!("write {expected}"));
        }
        converted
    }

    /// A field as an integer within a range.
    pub(super) fn integer_of<T: TryFrom<i64>>(&self, key: &str, range: RangeInclusive<i64>) -> Option<T> {
        self.field(key).and_then(|at| at.integer(range))
    }

    /// This as a point in time, RFC 3339.
    pub(super) fn timestamp(&self, key: &str) -> Option<Timestamp> {
        let at = self.field(key)?;
        let text = at.text()?;
        let time = text.parse().ok();
        if time.is_none() {
            at.error(format!("`{text}` is not a time"), "write RFC 3339, such as `2026-01-01T00:00:00Z`");
        }
        time
    }

    /// This as an identifier.
    pub(super) fn id<T>(&self, parse: impl FnOnce(String) -> Result<T, ParseIdError>) -> Option<T> {
        parse(self.text()?.to_owned()).map_err(|error| self.report_id(&error)).ok()
    }

    pub(super) fn report_id(&self, error: &ParseIdError) {
        let ParseIdError { kind, value, expected } = error;
        self.error(format!("`{value}` is not a valid {kind}"), format!("write {expected}"));
    }

    /// Reports a word that isn't of a list.
    pub(super) fn report_word(&self, error: &UnknownWordError) {
        let UnknownWordError { kind, value, expected, nearest } = error;
        let remedy =
            nearest.as_ref().map_or("use one of these".to_owned(), |near| format!("did you mean `{near}`?"));
        self.error(format!("`{value}` is not {kind}: expected {expected}"), remedy);
    }

    /// This as one of some words.
    pub(super) fn word<T>(&self, parse: impl FnOnce(&str) -> Result<T, UnknownWordError>) -> Option<T> {
        parse(self.text()?).map_err(|error| self.report_word(&error)).ok()
    }

    /// This as one of some texts.
    pub(super) fn one_of(&self, kind: &'static str, words: &[&str]) -> Option<&'a str> {
        let text = self.text()?;
        if words.contains(&text) {
            return Some(text);
        }
        let expected = quoted(words);
        let near = nearest(text, words.iter().copied()).map(str::to_owned);
        self.report_word(&UnknownWordError { kind, value: text.to_owned(), expected, nearest: near });
        None
    }

    /// This as a quantity; numbers are quantities too.
    pub(super) fn quantity(&self) -> Option<Quantity> {
        let text = match &self.tree.value {
            Value::Text(text) | Value::Number(text) => text,
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Map(_) => {
                self.wrong_type("a quantity such as `500m` or `1.5Gi`");
                return None;
            }
        };
        match Quantity::parse(text) {
            Ok(quantity) => Some(quantity),
            Err(error) => {
                self.error(
                    format!("`{}` is not a quantity: {}", error.value, error.problem),
                    "write a number with an optional suffix, such as `500m` or `1.5Gi`",
                );
                None
            }
        }
    }

    /// A field as quantities by resource; empty if it is absent.
    pub(super) fn resources(&self, key: &str) -> ResourceList {
        let mut list = ResourceList::new();
        let Some(at) = self.object(key, Fields::Any) else { return list };
        for (name, value) in at.entries() {
            let parsed = ResourceName::parse(name).map_err(|error| value.report_id(&error));
            if let (Ok(name), Some(quantity)) = (parsed, value.quantity()) {
                if quantity.is_negative() {
                    value.error(format!("`{quantity}` is negative"), "write zero or more");
                }
                list.insert(name, quantity);
            }
        }
        list
    }

    /// A field as strings by string; empty if it is absent.
    pub(super) fn text_map(&self, key: &str) -> BTreeMap<String, String> {
        let Some(at) = self.object(key, Fields::Any) else { return BTreeMap::new() };
        at.entries()
            .filter_map(|(key, value)| {
                // A null is an empty string to the API server.
                let text = if value.tree.value == Value::Null { "" } else { value.text()? };
                Some((key.to_owned(), text.to_owned()))
            })
            .collect()
    }

    /// A field as labels: keys are qualified names, values are labels' values.
    pub(super) fn labels(&self, key: &str) -> BTreeMap<String, String> {
        let labels = self.text_map(key);
        if let Some(at) = self.field(key) {
            for (key, value) in at.entries() {
                value.check_label_key(key);
                if let Some(text) = labels.get(key) {
                    value.check_label_value(text);
                }
            }
        }
        labels
    }

    /// Whether a text is a label's key; says so if it isn't.
    pub(super) fn check_label_key(&self, key: &str) {
        if !is_qualified_name(key) {
            self.error(
                format!("`{key}` is not a label key"),
                "write `[domain/]name`: a lower-case DNS domain, and at most 63 letters, digits, `-`, `_` and `.` \
                 that begin and end with a letter or digit",
            );
        }
    }

    /// Whether a text is a label's value; says so if it isn't.
    pub(super) fn check_label_value(&self, text: &str) {
        if !is_label_value(text) {
            self.error(
                format!("`{text}` is not a label value"),
                "write at most 63 letters, digits, `-`, `_` and `.` that begin and end with a letter or digit",
            );
        }
    }

    /// A field as a list of strings; empty if it is absent.
    pub(super) fn texts(&self, key: &str) -> Vec<String> {
        let Some(at) = self.list(key) else { return Vec::new() };
        at.items().filter_map(|item| item.text().map(str::to_owned)).collect()
    }

    /// Like [`At::texts`], where what is wrong has been said.
    pub(super) fn texts_quietly(&self, key: &str) -> Vec<String> {
        let Some(at) = self.field(key) else { return Vec::new() };
        at.items()
            .filter_map(|item| match &item.tree.value {
                Value::Text(text) => Some(text.clone()),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => None,
            })
            .collect()
    }
}

/// The words in backticks, separated by commas.
pub(super) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
