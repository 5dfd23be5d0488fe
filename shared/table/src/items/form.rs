//! Forms: how values are written to attributes and read back, by hand.
//!
//! Decides which versions a reader accepts, and the errors. It knows no kind of item.
//!
//! Invariants: an attribute that a form leaves out is removed from an older item; readers ignore unknown attributes;
//! every error names the attribute.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use tenon_domain::resources::ResourceList;

use crate::key::{EXPIRES_AT, VERSION};
use crate::{Item, Key, Number, Value, Write};

pub use super::fields::Fields;

/// The version that writers write. Readers accept one before and one after.
pub const VERSION_WRITTEN: u64 = 1;

/// A kind of item.
pub trait ItemForm: Sized {
    /// Writes all its attributes but the version.
    fn write(&self, to: &mut Attributes);

    /// Reads it.
    ///
    /// # Errors
    /// [`FieldError`] names the attribute.
    fn read(from: Fields<'_>) -> Result<Self, FieldError>;
}

/// An item that doesn't have its form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("item `{key}`")]
pub struct FormError {
    /// The item.
    pub key: Key,
    /// The attribute, and its problem.
    #[source]
    pub field: FieldError,
}

/// An attribute that doesn't match its form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("attribute `{path}`: {problem}")]
pub struct FieldError {
    /// Where in the item: names joined by dots, places in brackets.
    pub path: String,
    /// The problem.
    pub problem: FieldProblem,
}

/// The problem of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldProblem {
    /// It isn't there.
    Missing,
    /// It has another type.
    NotA(&'static str),
    /// Its content is malformed.
    Invalid(String),
    /// Its word isn't known: it may be of a later release.
    Unknown(String),
    /// The item's version is too far from this release's.
    Version(u64),
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("it is missing"),
            Self::NotA(what) => write!(f, "it isn't {what}"),
            Self::Invalid(message) | Self::Unknown(message) => f.write_str(message),
            Self::Version(found) => write!(
                f,
                "can't read version {found} of the form: expected at most {}; update this function first",
                VERSION_WRITTEN + 1
            ),
        }
    }
}

impl FieldError {
    /// An error at an attribute.
    #[must_use]
    pub fn at(name: &str, problem: FieldProblem) -> Self {
        Self { path: name.to_owned(), problem }
    }

    /// Whether only a word isn't known.
    pub(super) const fn is_unknown_word(&self) -> bool {
        matches!(self.problem, FieldProblem::Unknown(_))
    }

    /// The same, seen from the attribute that holds it.
    #[must_use]
    pub fn under(mut self, name: &str) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{name}{separator}{}", self.path);
        self
    }
}

/// The item of a value.
pub fn to_item<T: ItemForm>(value: &T) -> Item {
    attributes(value).set
}

/// The value of an item.
///
/// # Errors
/// [`FormError`] names the item and the attribute.
pub fn from_item<T: ItemForm>(key: &Key, item: &Item) -> Result<T, FormError> {
    let fields = Fields::of(item);
    let read = || {
        let version = fields.u64(VERSION)?;
        if version > VERSION_WRITTEN + 1 {
            return Err(FieldError::at(VERSION, FieldProblem::Version(version)));
        }
        T::read(fields)
    };
    read().map_err(|field| FormError { key: key.clone(), field })
}

/// All values of a query's items, in their order.
///
/// # Errors
/// [`FormError`] of the first that doesn't have its form.
pub fn from_items<'a, T: ItemForm>(
    items: impl IntoIterator<Item = &'a (Key, Item)>,
) -> Result<Vec<T>, FormError> {
    items.into_iter().map(|(key, item)| from_item(key, item)).collect()
}

/// The same without the items that can't be read for a word of a later release: what this release knows nothing of can't
/// concern it.
///
/// # Errors
/// [`FormError`] of the first that doesn't have its form.
pub fn from_known_items<'a, T: ItemForm>(
    items: impl IntoIterator<Item = &'a (Key, Item)>,
) -> Result<Vec<T>, FormError> {
    let read = items.into_iter().map(|(key, item)| from_item(key, item));
    read.filter(|read| !read.as_ref().is_err_and(|error: &FormError| error.field.is_unknown_word())).collect()
}

/// Writes a value over an item: unknown attributes stay, absent ones of the form are removed.
pub fn set<T: ItemForm>(key: Key, value: &T) -> Write {
    let Attributes { set, remove } = attributes(value);
    Write::Set { key, set, remove: remove.into_iter().map(str::to_owned).collect() }
}

/// The same, and DynamoDB may delete the item after a moment.
pub fn set_expiring<T: ItemForm>(key: Key, value: &T, expires_at: Timestamp) -> Write {
    let mut attributes = attributes(value);
    attributes.set.insert(EXPIRES_AT.to_owned(), seconds(expires_at));
    attributes.remove.retain(|name| *name != EXPIRES_AT);
    let Attributes { set, remove } = attributes;
    Write::Set { key, set, remove: remove.into_iter().map(str::to_owned).collect() }
}

/// Replaces an item by a value.
pub fn put<T: ItemForm>(key: Key, value: &T) -> Write {
    Write::Put { key, item: to_item(value) }
}

fn attributes<T: ItemForm>(value: &T) -> Attributes {
    let mut attributes = Attributes::default();
    attributes.set.insert(VERSION.to_owned(), Value::number(VERSION_WRITTEN));
    value.write(&mut attributes);
    attributes
}

/// A moment as `expires_at` holds it.
#[must_use]
pub fn seconds(at: Timestamp) -> Value {
    Value::number(at.as_second())
}

/// Attributes being written.
#[derive(Debug, Default)]
pub struct Attributes {
    set: Item,
    remove: Vec<&'static str>,
}

impl Attributes {
    /// The attributes, without a version.
    pub(crate) fn written(write: impl FnOnce(&mut Self)) -> Item {
        let mut attributes = Self::default();
        write(&mut attributes);
        attributes.set
    }

    /// A text.
    pub fn text(&mut self, name: &'static str, text: impl AsRef<str>) {
        self.value(name, Value::text(text.as_ref()));
    }

    /// A text, if there is one.
    pub fn text_if(&mut self, name: &'static str, text: Option<impl AsRef<str>>) {
        self.value_if(name, text.map(|text| Value::text(text.as_ref())));
    }

    /// A whole number.
    pub fn number(&mut self, name: &'static str, number: impl Into<Number>) {
        self.value(name, Value::number(number));
    }

    /// A whole number, if there is one.
    pub fn number_if(&mut self, name: &'static str, number: Option<impl Into<Number>>) {
        self.value_if(name, number.map(Value::number));
    }

    /// A truth value, if there is one.
    pub fn truth_if(&mut self, name: &'static str, truth: Option<bool>) {
        self.value_if(name, truth.map(Value::Bool));
    }

    /// A moment, as RFC 3339 in UTC.
    pub fn time(&mut self, name: &'static str, at: Timestamp) {
        self.value(name, Value::text(at.to_string()));
    }

    /// A moment, if there is one.
    pub fn time_if(&mut self, name: &'static str, at: Option<Timestamp>) {
        self.value_if(name, at.map(|at| Value::text(at.to_string())));
    }

    /// A list of texts.
    pub fn texts<T: AsRef<str>>(&mut self, name: &'static str, texts: impl IntoIterator<Item = T>) {
        self.value(name, Value::L(texts.into_iter().map(|text| Value::text(text.as_ref())).collect()));
    }

    /// A list of texts, if there is one.
    pub fn texts_if<T: AsRef<str>>(
        &mut self,
        name: &'static str,
        texts: Option<impl IntoIterator<Item = T>>,
    ) {
        match texts {
            Some(texts) => self.texts(name, texts),
            None => self.remove.push(name),
        }
    }

    /// A map of texts.
    pub fn labels(&mut self, name: &'static str, labels: &BTreeMap<String, String>) {
        let labels = labels.iter().map(|(key, value)| (key.clone(), Value::text(value)));
        self.value(name, Value::M(labels.collect()));
    }

    /// A map of numbers.
    pub fn numbers(&mut self, name: &'static str, numbers: &BTreeMap<String, u64>) {
        let numbers = numbers.iter().map(|(key, number)| (key.clone(), Value::number(*number)));
        self.value(name, Value::M(numbers.collect()));
    }

    /// Quantities by resource.
    pub fn resources(&mut self, name: &'static str, list: &ResourceList) {
        let list =
            list.iter().map(|(name, quantity)| (name.as_str().to_owned(), Value::text(quantity.to_string())));
        self.value(name, Value::M(list.collect()));
    }

    /// A list of maps.
    pub fn list<T>(
        &mut self,
        name: &'static str,
        elements: impl IntoIterator<Item = T>,
        write: impl Fn(&T, &mut Self),
    ) {
        let elements = elements.into_iter().map(|element| map(|to| write(&element, to)));
        self.value(name, Value::L(elements.collect()));
    }

    /// A list of maps, if there is one.
    pub fn list_if<T>(
        &mut self,
        name: &'static str,
        elements: Option<impl IntoIterator<Item = T>>,
        write: impl Fn(&T, &mut Self),
    ) {
        match elements {
            Some(elements) => self.list(name, elements, write),
            None => self.remove.push(name),
        }
    }

    /// A map of its own.
    pub fn map(&mut self, name: &'static str, write: impl FnOnce(&mut Self)) {
        self.value(name, map(write));
    }

    /// A map of its own, if there is something in it.
    pub fn map_if<T>(&mut self, name: &'static str, value: Option<T>, write: impl FnOnce(T, &mut Self)) {
        self.value_if(name, value.map(|value| map(|to| write(value, to))));
    }

    /// Any value.
    pub fn value(&mut self, name: &'static str, value: Value) {
        self.set.insert(name.to_owned(), value);
    }

    fn value_if(&mut self, name: &'static str, value: Option<Value>) {
        match value {
            Some(value) => self.value(name, value),
            None => self.remove.push(name),
        }
    }
}

/// A map's value.
fn map(write: impl FnOnce(&mut Attributes)) -> Value {
    Value::M(Attributes::written(write))
}
