//! How a form is written and read: attributes by hand, no detour over another format.
//!
//! Decides which versions a reader accepts and what an error says. It doesn't know any kind of item.
//!
//! Invariants: what a form leaves out is removed when it is set over an older one; attributes that a reader doesn't
//! know are ignored; every error names the attribute.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{ResourceList, ResourceName};

use crate::key::{EXPIRES_AT, VERSION};
use crate::{Item, Key, Number, Value, Write};

/// The version that writers write. Readers accept one before and one after.
pub const VERSION_WRITTEN: u64 = 1;

/// A kind of item.
pub trait Form: Sized {
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
    /// The attribute, and what is wrong with it.
    #[source]
    pub field: FieldError,
}

/// An attribute that isn't as its form says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("attribute `{path}`: {problem}")]
pub struct FieldError {
    /// Where in the item: names joined by dots, places in brackets.
    pub path: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// It isn't there.
    Missing,
    /// It has another type.
    NotA(&'static str),
    /// Its content isn't what is expected.
    Invalid(String),
    /// The item was written by a version that is too far from this one.
    Version(u64),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("it is missing"),
            Self::NotA(what) => write!(f, "it isn't {what}"),
            Self::Invalid(message) => f.write_str(message),
            Self::Version(found) => write!(
                f,
                "version {found} of the form can't be read: expected at most {}, update this function first",
                VERSION_WRITTEN + 1
            ),
        }
    }
}

impl FieldError {
    /// An error at an attribute.
    #[must_use]
    pub fn at(name: &str, problem: Problem) -> Self {
        Self { path: name.to_owned(), problem }
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
pub fn to_item<T: Form>(value: &T) -> Item {
    attributes(value).set
}

/// The value of an item.
///
/// # Errors
/// [`FormError`] names the item and the attribute.
pub fn from_item<T: Form>(key: &Key, item: &Item) -> Result<T, FormError> {
    let fields = Fields(item);
    let read = || {
        let version = fields.u64(VERSION)?;
        if version > VERSION_WRITTEN + 1 {
            return Err(FieldError::at(VERSION, Problem::Version(version)));
        }
        T::read(fields)
    };
    read().map_err(|field| FormError { key: key.clone(), field })
}

/// All values of a query's items, in their order.
///
/// # Errors
/// [`FormError`] of the first that doesn't have its form.
pub fn from_items<'a, T: Form>(
    items: impl IntoIterator<Item = &'a (Key, Item)>,
) -> Result<Vec<T>, FormError> {
    items.into_iter().map(|(key, item)| from_item(key, item)).collect()
}

/// Writes a value over what was there: attributes that its form doesn't know stay, those that it leaves out go.
pub fn set<T: Form>(key: Key, value: &T) -> Write {
    let Attributes { set, remove } = attributes(value);
    Write::Set { key, set, remove: remove.into_iter().map(str::to_owned).collect() }
}

/// The same, and DynamoDB may delete the item after a moment.
pub fn set_expiring<T: Form>(key: Key, value: &T, expires_at: Timestamp) -> Write {
    let mut attributes = attributes(value);
    attributes.set.insert(EXPIRES_AT.to_owned(), seconds(expires_at));
    attributes.remove.retain(|name| *name != EXPIRES_AT);
    let Attributes { set, remove } = attributes;
    Write::Set { key, set, remove: remove.into_iter().map(str::to_owned).collect() }
}

/// Puts a value in place of whatever was there.
pub fn put<T: Form>(key: Key, value: &T) -> Write {
    Write::Put { key, item: to_item(value) }
}

fn attributes<T: Form>(value: &T) -> Attributes {
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
    let mut attributes = Attributes::default();
    write(&mut attributes);
    Value::M(attributes.set)
}

/// Attributes being read.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a>(&'a BTreeMap<String, Value>);

impl<'a> Fields<'a> {
    /// The fields of a whole item, to read one attribute of an item that has no form of its own, such as a counter.
    #[must_use]
    pub const fn of(item: &'a Item) -> Self {
        Self(item)
    }

    /// Any value that is there.
    ///
    /// # Errors
    /// [`Problem::Missing`].
    pub fn value(self, name: &str) -> Result<&'a Value, FieldError> {
        self.value_if(name).ok_or_else(|| FieldError::at(name, Problem::Missing))
    }

    /// Any value; an explicit null is none.
    #[must_use]
    pub fn value_if(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !matches!(value, Value::Null))
    }

    /// A text.
    ///
    /// # Errors
    /// When it is missing or no text.
    pub fn text(self, name: &str) -> Result<&'a str, FieldError> {
        as_text(self.value(name)?).map_err(|problem| FieldError::at(name, problem))
    }

    /// A text that may be missing.
    ///
    /// # Errors
    /// When it is no text.
    pub fn text_if(self, name: &str) -> Result<Option<&'a str>, FieldError> {
        self.value_if(name).map(|_| self.text(name)).transpose()
    }

    /// A text that may be missing.
    ///
    /// # Errors
    /// When it is no text.
    pub fn string_if(self, name: &str) -> Result<Option<String>, FieldError> {
        Ok(self.text_if(name)?.map(str::to_owned))
    }

    /// A text.
    ///
    /// # Errors
    /// When it is missing or no text.
    pub fn string(self, name: &str) -> Result<String, FieldError> {
        Ok(self.text(name)?.to_owned())
    }

    /// A text that parses: an id, a moment.
    ///
    /// # Errors
    /// When it is missing, no text, or malformed.
    pub fn parsed<T: FromStr<Err: fmt::Display>>(self, name: &str) -> Result<T, FieldError> {
        parse(self.text(name)?).map_err(|problem| FieldError::at(name, problem))
    }

    /// A text that parses and may be missing.
    ///
    /// # Errors
    /// When it is no text, or malformed.
    pub fn parsed_if<T: FromStr<Err: fmt::Display>>(self, name: &str) -> Result<Option<T>, FieldError> {
        self.value_if(name).map(|_| self.parsed(name)).transpose()
    }

    /// One word of a list.
    ///
    /// # Errors
    /// When it is missing, no text, or no word of the list.
    pub fn word<T>(self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, FieldError> {
        let word = self.text(name)?;
        parse(word).ok_or_else(|| {
            FieldError::at(name, Problem::Invalid(format!("`{word}` isn't a word of its list")))
        })
    }

    /// A moment.
    ///
    /// # Errors
    /// When it is missing or not RFC 3339.
    pub fn time(self, name: &str) -> Result<Timestamp, FieldError> {
        self.parsed(name)
    }

    /// A moment that may be missing.
    ///
    /// # Errors
    /// When it isn't RFC 3339.
    pub fn time_if(self, name: &str) -> Result<Option<Timestamp>, FieldError> {
        self.parsed_if(name)
    }

    /// A whole number.
    ///
    /// # Errors
    /// When it is missing, no number, negative or not whole.
    pub fn u64(self, name: &str) -> Result<u64, FieldError> {
        as_u64(self.value(name)?).map_err(|problem| FieldError::at(name, problem))
    }

    /// A whole number that may be missing.
    ///
    /// # Errors
    /// When it is no number, negative or not whole.
    pub fn u64_if(self, name: &str) -> Result<Option<u64>, FieldError> {
        self.value_if(name).map(|_| self.u64(name)).transpose()
    }

    /// A whole number of 32 bits.
    ///
    /// # Errors
    /// When it is missing, no number, negative, not whole or too large.
    pub fn u32(self, name: &str) -> Result<u32, FieldError> {
        let number = self.u64(name)?;
        u32::try_from(number).map_err(|_| {
            FieldError::at(name, Problem::Invalid(format!("`{number}` is more than 32 bits hold")))
        })
    }

    /// A whole number of 32 bits that may be missing.
    ///
    /// # Errors
    /// When it is no number, negative, not whole or too large.
    pub fn u32_if(self, name: &str) -> Result<Option<u32>, FieldError> {
        self.value_if(name).map(|_| self.u32(name)).transpose()
    }

    /// A duration in whole milliseconds.
    ///
    /// # Errors
    /// When it is missing or not a whole number.
    pub fn milliseconds(self, name: &str) -> Result<SignedDuration, FieldError> {
        let number = self.u64(name)?;
        let too_large = || FieldError::at(name, Problem::Invalid(format!("`{number}` is too long a time")));
        Ok(SignedDuration::from_millis(i64::try_from(number).map_err(|_| too_large())?))
    }

    /// Bytes.
    ///
    /// # Errors
    /// When it is missing or not bytes.
    pub fn bytes(self, name: &str) -> Result<&'a [u8], FieldError> {
        self.value(name)?.as_bytes().ok_or_else(|| FieldError::at(name, Problem::NotA("binary")))
    }

    /// A list of parsed texts; one that is missing is empty.
    ///
    /// # Errors
    /// When it is no list, or an element is malformed.
    pub fn texts<T: FromStr<Err: fmt::Display>, C: FromIterator<T>>(
        self,
        name: &str,
    ) -> Result<C, FieldError> {
        let element = |(n, value): (usize, &Value)| {
            as_text(value).and_then(parse).map_err(|problem| FieldError::at(&format!("{name}[{n}]"), problem))
        };
        self.elements(name)?.iter().enumerate().map(element).collect()
    }

    /// A list of maps; one that is missing is empty.
    ///
    /// # Errors
    /// When it is no list of maps, or an element is malformed.
    pub fn list<T>(
        self,
        name: &str,
        read: impl Fn(Fields<'a>) -> Result<T, FieldError>,
    ) -> Result<Vec<T>, FieldError> {
        let element = |(n, value): (usize, &'a Value)| {
            as_map(value)
                .map_err(|problem| FieldError::at("", problem))
                .and_then(&read)
                .map_err(|error| error.under(&format!("{name}[{n}]")))
        };
        self.elements(name)?.iter().enumerate().map(element).collect()
    }

    /// A map of its own.
    ///
    /// # Errors
    /// When it is missing, no map, or malformed.
    pub fn map<T>(
        self,
        name: &str,
        read: impl FnOnce(Fields<'a>) -> Result<T, FieldError>,
    ) -> Result<T, FieldError> {
        let fields = as_map(self.value(name)?).map_err(|problem| FieldError::at(name, problem))?;
        read(fields).map_err(|error| error.under(name))
    }

    /// A map of its own that may be missing.
    ///
    /// # Errors
    /// When it is no map, or malformed.
    pub fn map_if<T>(
        self,
        name: &str,
        read: impl FnOnce(Fields<'a>) -> Result<T, FieldError>,
    ) -> Result<Option<T>, FieldError> {
        if self.value_if(name).is_some() { self.map(name, read).map(Some) } else { Ok(None) }
    }

    /// A map of texts; one that is missing is empty.
    ///
    /// # Errors
    /// When it is no map of texts.
    pub fn labels(self, name: &str) -> Result<BTreeMap<String, String>, FieldError> {
        self.entries(name, |value| as_text(value).map(str::to_owned))
    }

    /// A map of whole numbers; one that is missing is empty.
    ///
    /// # Errors
    /// When it is no map of whole numbers.
    pub fn numbers(self, name: &str) -> Result<BTreeMap<String, u64>, FieldError> {
        self.entries(name, as_u64)
    }

    /// Quantities by resource; a list that is missing is empty.
    ///
    /// # Errors
    /// When it is no map of quantities.
    pub fn resources(self, name: &str) -> Result<ResourceList, FieldError> {
        let quantity = |value: &Value| {
            Quantity::parse(as_text(value)?).map_err(|error| Problem::Invalid(error.to_string()))
        };
        let quantities = self.entries(name, quantity)?;
        let resource = |(resource, quantity): (String, Quantity)| {
            let resource = ResourceName::parse(resource)
                .map_err(|error| FieldError::at(name, Problem::Invalid(error.to_string())))?;
            Ok((resource, quantity))
        };
        quantities.into_iter().map(resource).collect()
    }

    fn elements(self, name: &str) -> Result<&'a [Value], FieldError> {
        match self.value_if(name) {
            None => Ok(&[]),
            Some(Value::L(elements)) => Ok(elements),
            Some(Value::S(_) | Value::N(_) | Value::Bool(_) | Value::B(_) | Value::Null | Value::M(_)) => {
                Err(FieldError::at(name, Problem::NotA("a list")))
            }
        }
    }

    fn entries<T>(
        self,
        name: &str,
        read: impl Fn(&'a Value) -> Result<T, Problem>,
    ) -> Result<BTreeMap<String, T>, FieldError> {
        let Some(value) = self.value_if(name) else { return Ok(BTreeMap::new()) };
        let fields = as_map(value).map_err(|problem| FieldError::at(name, problem))?;
        let entry = |(key, value): (&String, &'a Value)| {
            let value = read(value).map_err(|problem| FieldError::at(&format!("{name}.{key}"), problem))?;
            Ok((key.clone(), value))
        };
        fields.0.iter().map(entry).collect()
    }
}

fn as_text(value: &Value) -> Result<&str, Problem> {
    value.as_text().ok_or(Problem::NotA("a text"))
}

fn as_u64(value: &Value) -> Result<u64, Problem> {
    value.as_number().and_then(Number::to_u64).ok_or(Problem::NotA("a whole number"))
}

fn as_map(value: &Value) -> Result<Fields<'_>, Problem> {
    match value {
        Value::M(fields) => Ok(Fields(fields)),
        Value::S(_) | Value::N(_) | Value::Bool(_) | Value::B(_) | Value::Null | Value::L(_) => {
            Err(Problem::NotA("a map"))
        }
    }
}

fn parse<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: T::Err| Problem::Invalid(error.to_string()))
}
