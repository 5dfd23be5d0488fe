//! Reading an item's attributes.
//!
//! Decides the error for a missing or malformed attribute, and how a word of a later release is read. It knows no kind of
//! item.
//!
//! A word of a later release is read in one of three ways. An enum that says what such a word is taken for reads all words
//! (`of_any_release` of `tenon_domain::words!`). What such a word describes is left out, if nobody misses it:
//! [`known_list`](Fields::known_list), [`known_map_if`](Fields::known_map_if), [`known_word_if`](Fields::known_word_if).
//! Otherwise the item can't be read.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{ResourceList, ResourceName};

use super::form::{FieldError, FieldProblem};
use crate::{Item, Number, Value};

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
    /// [`FieldProblem::Missing`].
    pub fn value(self, name: &str) -> Result<&'a Value, FieldError> {
        self.value_if(name).ok_or_else(|| FieldError::at(name, FieldProblem::Missing))
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
    /// # Errors If it is missing, not a text, or not a word of the list.
    pub fn word<T>(self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, FieldError> {
        let word = self.text(name)?;
        parse(word).ok_or_else(|| FieldError::at(name, FieldProblem::Unknown(format!("`{word}` is unknown"))))
    }

    /// A word, if there is one that is known.
    ///
    /// # Errors
    /// When it is no text.
    pub fn known_word_if<T>(
        self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, FieldError> {
        Ok(self.text_if(name)?.and_then(parse))
    }

    /// A text of some form.
    ///
    /// # Errors
    /// When it is missing, no text, or malformed.
    pub fn formed<T>(self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, FieldError> {
        let text = self.text(name)?;
        parse(text)
            .ok_or_else(|| FieldError::at(name, FieldProblem::Invalid(format!("`{text}` is malformed"))))
    }

    /// A text of some form that may be missing.
    ///
    /// # Errors
    /// When it is no text, or malformed.
    pub fn formed_if<T>(
        self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, FieldError> {
        self.value_if(name).map(|_| self.formed(name, parse)).transpose()
    }

    /// A word, if there is one.
    ///
    /// # Errors
    /// When it isn't one of the words.
    pub fn word_if<T>(self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, FieldError> {
        self.value_if(name).map(|_| self.word(name, parse)).transpose()
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
            FieldError::at(name, FieldProblem::Invalid(format!("`{number}` is more than 32 bits hold")))
        })
    }

    /// A whole number of 32 bits that may be missing.
    ///
    /// # Errors
    /// When it is no number, negative, not whole or too large.
    pub fn u32_if(self, name: &str) -> Result<Option<u32>, FieldError> {
        self.value_if(name).map(|_| self.u32(name)).transpose()
    }

    /// A truth value that may be missing.
    ///
    /// # Errors
    /// When it is none.
    pub fn truth_if(self, name: &str) -> Result<Option<bool>, FieldError> {
        let Some(value) = self.value_if(name) else { return Ok(None) };
        value.as_truth().map(Some).ok_or_else(|| FieldError::at(name, FieldProblem::NotA("a truth value")))
    }

    /// Bytes.
    ///
    /// # Errors
    /// When it is missing or not bytes.
    pub fn bytes(self, name: &str) -> Result<&'a [u8], FieldError> {
        self.value(name)?.as_bytes().ok_or_else(|| FieldError::at(name, FieldProblem::NotA("binary")))
    }

    /// A list of parsed texts; empty if missing.
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

    /// A list of parsed texts that may be missing.
    ///
    /// # Errors
    /// When it is no list, or a text can't be parsed.
    pub fn texts_if<T: FromStr<Err: fmt::Display>, C: FromIterator<T>>(
        self,
        name: &str,
    ) -> Result<Option<C>, FieldError> {
        self.value_if(name).map(|_| self.texts(name)).transpose()
    }

    /// A list of maps; empty if missing.
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

    /// A list of maps that may be missing: none then.
    ///
    /// # Errors
    /// When it is no list of maps, or one is malformed.
    pub fn list_if<T>(
        self,
        name: &str,
        read: impl Fn(Fields<'a>) -> Result<T, FieldError>,
    ) -> Result<Vec<T>, FieldError> {
        if self.value_if(name).is_some() { self.list(name, read) } else { Ok(Vec::new()) }
    }

    /// A list of maps, empty if missing, without those that have a word of a later release.
    ///
    /// # Errors
    /// When it is no list of maps, or one is malformed.
    pub fn known_list<T>(
        self,
        name: &str,
        read: impl Fn(Fields<'a>) -> Result<T, FieldError>,
    ) -> Result<Vec<T>, FieldError> {
        Ok(self.list(name, |from| known(read(from)))?.into_iter().flatten().collect())
    }

    /// A map of its own that may be missing, or have a word of a later release: none then.
    ///
    /// # Errors
    /// When it is no map, or malformed.
    pub fn known_map_if<T>(
        self,
        name: &str,
        read: impl FnOnce(Fields<'a>) -> Result<T, FieldError>,
    ) -> Result<Option<T>, FieldError> {
        Ok(self.map_if(name, |from| known(read(from)))?.flatten())
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

    /// A map of texts; empty if missing.
    ///
    /// # Errors
    /// When it is no map of texts.
    pub fn labels(self, name: &str) -> Result<BTreeMap<String, String>, FieldError> {
        self.entries(name, |value| as_text(value).map(str::to_owned))
    }

    /// A map of whole numbers; empty if missing.
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
            Quantity::parse(as_text(value)?).map_err(|error| FieldProblem::Invalid(error.to_string()))
        };
        let quantities = self.entries(name, quantity)?;
        let resource = |(resource, quantity): (String, Quantity)| {
            let resource = ResourceName::parse(resource)
                .map_err(|error| FieldError::at(name, FieldProblem::Invalid(error.to_string())))?;
            Ok((resource, quantity))
        };
        quantities.into_iter().map(resource).collect()
    }

    fn elements(self, name: &str) -> Result<&'a [Value], FieldError> {
        match self.value_if(name) {
            None => Ok(&[]),
            Some(Value::L(elements)) => Ok(elements),
            Some(Value::S(_) | Value::N(_) | Value::Bool(_) | Value::B(_) | Value::Null | Value::M(_)) => {
                Err(FieldError::at(name, FieldProblem::NotA("a list")))
            }
        }
    }

    fn entries<T>(
        self,
        name: &str,
        read: impl Fn(&'a Value) -> Result<T, FieldProblem>,
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

/// What was read, or nothing if a word of it isn't known.
fn known<T>(read: Result<T, FieldError>) -> Result<Option<T>, FieldError> {
    match read {
        Err(error) if error.is_unknown_word() => Ok(None),
        Err(error) => Err(error),
        Ok(found) => Ok(Some(found)),
    }
}

fn as_text(value: &Value) -> Result<&str, FieldProblem> {
    value.as_text().ok_or(FieldProblem::NotA("a text"))
}

fn as_u64(value: &Value) -> Result<u64, FieldProblem> {
    value.as_number().and_then(Number::to_u64).ok_or(FieldProblem::NotA("a whole number"))
}

fn as_map(value: &Value) -> Result<Fields<'_>, FieldProblem> {
    match value {
        Value::M(fields) => Ok(Fields(fields)),
        Value::S(_) | Value::N(_) | Value::Bool(_) | Value::B(_) | Value::Null | Value::L(_) => {
            Err(FieldProblem::NotA("a map"))
        }
    }
}

fn parse<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, FieldProblem> {
    text.parse().map_err(|error: T::Err| FieldProblem::Invalid(error.to_string()))
}
