//! A serde deserializer over JSON values that tracks each value's place.
//!
//! Decides the messages for values of a wrong type, and what happens to unknown fields: it notes each of them with the
//! rule of its place ([`UnknownFields`]). It knows no kind of object. A struct of [`unread_fields`] has a rule of its
//! own: in files, its unknown fields are named or told unless they are listed there.
//!
//! serde stops at the first error. To report all errors of an object at once, the reader drops the wrong value and
//! reads the type again. A field that is missing only because a part of it was wrong isn't reported.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::Value;

pub(super) use super::place::{
    ManifestContext, ManifestSource, Place, UnknownField, UnknownFields, write_key,
};
use super::unread::{UnreadFields, unread_fields};
use crate::requirement::hints::nearest;

/// Separates a message from its remedy, because serde's custom errors carry one text.
const REMEDY: char = '\u{1f}';
/// The most errors that are reported for one object.
const MOST_ERRORS: usize = 100;
/// Names of the newtypes that set the rule for unknown fields below them; no Kubernetes type has these names.
const NAMED: &str = "tenon:named";
const KEPT: &str = "tenon:kept";
const WHOLE: &str = "tenon:whole";

/// The text of a custom error: what is wrong, and what to do.
pub(crate) fn told(message: impl fmt::Display, remedy: impl fmt::Display) -> String {
    format!("{message}{REMEDY}{remedy}")
}

/// Unknown fields below it are kept and named, because the user meant something by them.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(rename = "tenon:named")]
pub(super) struct NameUnknown<T>(pub(super) T);

/// Unknown fields below it are kept.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(rename = "tenon:kept")]
pub(super) struct KeepUnknown<T>(pub(super) T);

/// A field that is kept and not read.
#[derive(Debug, Clone, Copy, Default, serde::Deserialize)]
#[serde(rename = "tenon:whole")]
pub(super) struct Whole;

/// A value at its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'p, 'de> {
    pub(super) place: Place<'p>,
    pub(super) value: &'de Value,
    /// The known fields of the type around it.
    known: &'static [&'static str],
    /// Fields that the type around it has in Kubernetes, and that nobody reads.
    unread: &'static [&'static str],
    strangers: UnknownFields,
}

impl<'p, 'de> At<'p, 'de> {
    pub(super) fn root(value: &'de Value, context: &'p ManifestContext) -> Self {
        Self {
            place: Place::root(context),
            value,
            known: &[],
            unread: &[],
            strangers: UnknownFields::Dropped,
        }
    }

    /// The element of a list.
    pub(super) fn index<'c>(&'c self, index: usize, value: &'de Value) -> At<'c, 'de> {
        At { place: self.place.index(index), value, known: &[], unread: &[], strangers: self.strangers }
    }

    pub(super) fn key<'c>(&'c self, key: &'c str, value: &'de Value) -> At<'c, 'de> {
        At { place: self.place.key(key), value, known: &[], unread: &[], strangers: self.strangers }
    }

    /// Reads a type and reports all its errors.
    pub(super) fn read<T: Deserialize<'de>>(&self) -> Option<T> {
        let context = self.place.context;
        for _ in 0..MOST_ERRORS {
            let wrong = match T::deserialize(*self) {
                Ok(read) => return Some(read),
                Err(wrong) => wrong.at(self),
            };
            let Wrong { place, missing, message, remedy } = wrong;
            let place = place.unwrap_or_default();
            if !context.is_wrong_within(&place) {
                let dot = if place.is_empty() { "" } else { "." };
                let field = missing.map_or_else(|| place.clone(), |field| format!("{place}{dot}{field}"));
                let problem = context.problem(field, message, remedy);
                context.problems.borrow_mut().push(problem);
            }
            let whole = place == self.place.to_string();
            if !context.wrong.borrow_mut().insert(place) || whole {
                break;
            }
        }
        None
    }

    fn visit_map<V: Visitor<'de>>(self, fields: TypeFields, visitor: V) -> Result<V::Value, Wrong> {
        match self.value {
            Value::Object(given) => {
                visitor.visit_map(MapFields { at: self, fields, left: given.iter(), next: None })
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(de::Error::invalid_type(unexpected(self.value), &"a map"))
            }
        }
    }

    /// Notes this field as unknown to its type.
    fn note(&self) {
        let stranger = UnknownField {
            pointer: self.place.pointer(),
            known: self.known,
            unread: self.unread,
            fate: self.strangers,
        };
        self.place.context.strangers.borrow_mut().insert(self.place.to_string(), stranger);
    }
}

/// What is wrong with a value.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Wrong {
    place: Option<String>,
    missing: Option<&'static str>,
    message: String,
    remedy: String,
}

impl Wrong {
    fn new(message: String, remedy: String) -> Self {
        Self { place: None, missing: None, message, remedy }
    }

    /// The message and the remedy.
    pub(super) fn told(self) -> (String, String) {
        (self.message, self.remedy)
    }

    fn at(mut self, at: &At<'_, '_>) -> Self {
        self.place.get_or_insert_with(|| at.place.to_string());
        self
    }
}

impl de::Error for Wrong {
    fn custom<T: fmt::Display>(text: T) -> Self {
        let text = text.to_string();
        let (message, remedy) = text.rsplit_once(REMEDY).unwrap_or((&text, ""));
        Self::new(message.to_owned(), remedy.to_owned())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = plain(expected);
        let is_text = expected == "a string";
        let (found, remedy) = match found {
            Unexpected::Unit => ("nothing".to_owned(), Some("give it a value or leave it out".to_owned())),
            Unexpected::Bool(given) => {
                (format!("the boolean `{given}`"), is_text.then(|| "put it in quotes".to_owned()))
            }
            Unexpected::Str(text) => (format!("the string `{text}`"), None),
            Unexpected::Seq => ("a list".to_owned(), None),
            Unexpected::Map => ("a map".to_owned(), None),
            Unexpected::Unsigned(_)
            | Unexpected::Signed(_)
            | Unexpected::Float(_)
            | Unexpected::Char(_)
            | Unexpected::Bytes(_)
            | Unexpected::Option
            | Unexpected::NewtypeStruct
            | Unexpected::Enum
            | Unexpected::UnitVariant
            | Unexpected::NewtypeVariant
            | Unexpected::TupleVariant
            | Unexpected::StructVariant
            | Unexpected::Other(_) => {
                let number = digits(found);
                (format!("the number `{number}`"), is_text.then(|| format!("write `\"{number}\"`")))
            }
        };
        let remedy = remedy.unwrap_or_else(|| format!("write {expected}"));
        Self::new(format!("expected {expected}, found {found}"), remedy)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = plain(expected);
        Self::new(format!("expected {expected}, found `{}`", digits(found)), format!("write {expected}"))
    }

    fn missing_field(field: &'static str) -> Self {
        let message = "required, but not given".to_owned();
        Self { missing: Some(field), ..Self::new(message, format!("add `{field}`")) }
    }
}

/// A number as written; serde would call it "integer `3`".
fn digits(number: Unexpected<'_>) -> String {
    let text = number.to_string();
    text.split('`').nth(1).unwrap_or(&text).to_owned()
}

/// What a type expects, in the words of manifests.
fn plain(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "a boolean" => "`true` or `false`".to_owned(),
        "a sequence" => "a list".to_owned(),
        _ => text,
    }
}

pub(super) fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(given) => Unexpected::Bool(*given),
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(number), ..) => Unexpected::Unsigned(number),
            (None, Some(number), _) => Unexpected::Signed(number),
            (None, None, number) => Unexpected::Float(number.unwrap_or(f64::NAN)),
        },
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}

impl<'de> Deserializer<'de> for At<'_, 'de> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(given) => visitor.visit_bool(*given),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (None, Some(number), _) => visitor.visit_i64(number),
                (None, None, number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(elements) => {
                visitor.visit_seq(Elements { at: self, left: elements.iter().enumerate() })
            }
            Value::Object(_) => self.visit_map(TypeFields::default(), visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        self.visit_map(TypeFields { known, unread: unread_fields(name) }, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let strangers = match name {
            NAMED => UnknownFields::Named,
            KEPT => UnknownFields::Kept,
            _ => self.strangers,
        };
        visitor.visit_newtype_struct(Self { strangers, ..self })
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        if name == WHOLE { visitor.visit_unit() } else { self.deserialize_any(visitor) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let Value::String(text) = self.value else {
            return Err(de::Error::invalid_type(unexpected(self.value), &"a string"));
        };
        if !words.contains(&text.as_str()) {
            return Err(de::Error::custom(not_a_word(text, name, words)));
        }
        visitor.visit_enum(IntoDeserializer::<Wrong>::into_deserializer(text.as_str()))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.note();
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit seq tuple
        tuple_struct map identifier
    }
}

/// Reads a type from a value that the caller has already inspected.
pub(super) fn reread<T: de::DeserializeOwned, E: de::Error>(value: &Value) -> Result<T, E> {
    let context = ManifestContext::default();
    T::deserialize(At::root(value, &context))
        .map_err(|Wrong { message, remedy, .. }| E::custom(told(message, remedy)))
}

/// The error for a text that isn't one of `words`; `kind` names them with an article, such as `an operator`.
pub(super) fn not_a_word(text: &str, kind: &str, words: &[&str]) -> String {
    let near = nearest(text, words.iter().copied());
    let remedy = near.map_or("use one of these".to_owned(), |near| format!("did you mean `{near}`?"));
    told(format!("`{text}` is not {kind}: expected {}", quoted(words)), remedy)
}

/// The fields that a type has.
#[derive(Clone, Copy, Default)]
struct TypeFields {
    known: &'static [&'static str],
    /// [`unread_fields`]; `None` if the rule of the place holds for all others.
    unread: Option<UnreadFields>,
}

impl TypeFields {
    /// What happens to this field of `at` if the type doesn't know it. A typo can only stand in a file: an API server
    /// drops it, or is newer than this program, and then all its pods may have the field.
    fn fate(&self, at: &At<'_, '_>, key: &str) -> UnknownFields {
        let in_file = at.place.context.source == ManifestSource::File;
        match self.unread {
            Some(unread) if in_file && !unread.fields.contains(&key) => unread.others,
            Some(_) | None => at.strangers,
        }
    }
}

/// The fields of a map; null counts as absent.
struct MapFields<'p, 'de> {
    at: At<'p, 'de>,
    fields: TypeFields,
    left: serde_json::map::Iter<'de>,
    next: Option<(&'de String, &'de Value)>,
}

impl<'de> MapAccess<'de> for MapFields<'_, 'de> {
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Wrong> {
        for (key, value) in self.left.by_ref() {
            let child = self.at.key(key, value);
            let absent = value.is_null() && self.fields.known.contains(&key.as_str());
            if absent || child.place.context.is_wrong(&child.place) {
                continue;
            }
            self.next = Some((key, value));
            let text: StrDeserializer<'_, Wrong> = key.as_str().into_deserializer();
            return seed.deserialize(text).map(Some).map_err(|wrong| wrong.at(&child));
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Wrong> {
        let (key, value) = self.next.take().ok_or_else(|| de::Error::custom("a value without a key"))?;
        let TypeFields { known, unread } = self.fields;
        let unread_here = unread.map_or(&[][..], |unread| unread.fields);
        let mut child = At { known, unread: unread_here, ..self.at.key(key, value) };
        if unread.is_some() && !known.contains(&key.as_str()) {
            child.strangers = self.fields.fate(&self.at, key);
        }
        seed.deserialize(child).map_err(|wrong| wrong.at(&child))
    }
}

/// The elements of a list.
struct Elements<'p, 'de> {
    at: At<'p, 'de>,
    left: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        for (index, value) in self.left.by_ref() {
            let child = self.at.index(index, value);
            if !child.place.context.is_wrong(&child.place) {
                return seed.deserialize(child).map(Some).map_err(|wrong| wrong.at(&child));
            }
        }
        Ok(None)
    }
}

/// The words in backticks, separated by commas.
pub(super) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
