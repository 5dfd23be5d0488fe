//! Attribute values, items, their sizes, and the bridge to serde.
//!
//! Decides the types of attributes, and their sizes. The items' forms decide which attributes exist. There are no
//! sets: a map or a list serves as well, and every reader understands it.

use crate::key::{self, Key};
use crate::limits;
use crate::number::{Number, NumberError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// The attributes of an item, without `pk` and `sk`.
pub type Item = BTreeMap<String, Value>;

/// One attribute's value, in DynamoDB's types.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// Text.
    S(String),
    /// A decimal number, exact.
    N(Number),
    /// A truth value.
    Bool(bool),
    /// Bytes.
    B(Vec<u8>),
    /// An explicit null.
    Null,
    /// A list.
    L(Vec<Value>),
    /// A map.
    M(BTreeMap<String, Value>),
}

impl Value {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::S(text.into())
    }

    /// A whole number.
    pub fn number(number: impl Into<Number>) -> Self {
        Self::N(number.into())
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::S(text) => Some(text),
            Self::N(_) | Self::Bool(_) | Self::B(_) | Self::Null | Self::L(_) | Self::M(_) => None,
        }
    }

    /// The truth value, if it is one.
    #[must_use]
    pub const fn as_truth(&self) -> Option<bool> {
        match self {
            Self::Bool(truth) => Some(*truth),
            Self::S(_) | Self::N(_) | Self::B(_) | Self::Null | Self::L(_) | Self::M(_) => None,
        }
    }

    /// The number, if it is one.
    #[must_use]
    pub fn as_number(&self) -> Option<&Number> {
        match self {
            Self::N(number) => Some(number),
            Self::S(_) | Self::Bool(_) | Self::B(_) | Self::Null | Self::L(_) | Self::M(_) => None,
        }
    }

    /// The bytes, where it holds some.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::B(bytes) => Some(bytes),
            Self::S(_) | Self::N(_) | Self::Bool(_) | Self::Null | Self::L(_) | Self::M(_) => None,
        }
    }

    /// The value's bytes by DynamoDB's rules, without its attribute's name.
    #[must_use]
    pub fn size(&self) -> u64 {
        /// Of every list and map.
        const CONTAINER: u64 = 3;
        /// Of every element of one.
        const ELEMENT: u64 = 1;
        match self {
            Self::S(text) => text.len() as u64,
            Self::N(number) => number.size(),
            Self::Bool(_) | Self::Null => 1,
            Self::B(bytes) => bytes.len() as u64,
            Self::L(values) => CONTAINER + values.iter().map(|value| ELEMENT + value.size()).sum::<u64>(),
            Self::M(values) => {
                let entry = |(name, value): (&String, &Self)| ELEMENT + name.len() as u64 + value.size();
                CONTAINER + values.iter().map(entry).sum::<u64>()
            }
        }
    }

    /// The names in maps obey an attribute's rules, but may be those of the key.
    fn check_names(&self) -> Result<(), String> {
        match self {
            Self::S(_) | Self::N(_) | Self::Bool(_) | Self::B(_) | Self::Null => Ok(()),
            Self::L(values) => values.iter().try_for_each(Self::check_names),
            Self::M(values) => values.iter().try_for_each(|(name, value)| {
                check_name_bytes(name)?;
                value.check_names()
            }),
        }
    }

    fn depth(&self) -> usize {
        match self {
            Self::S(_) | Self::N(_) | Self::Bool(_) | Self::B(_) | Self::Null => 0,
            Self::L(values) => 1 + values.iter().map(Self::depth).max().unwrap_or(0),
            Self::M(values) => 1 + values.values().map(Self::depth).max().unwrap_or(0),
        }
    }
}

/// The item's bytes by DynamoDB's rules: names, values and key.
#[must_use]
pub fn item_size(key: &Key, item: &Item) -> u64 {
    key.size() + attributes_size(item)
}

/// The attributes' bytes by DynamoDB's rules, without the key.
#[must_use]
pub fn attributes_size(item: &Item) -> u64 {
    item.iter().map(|(name, value)| name.len() as u64 + value.size()).sum()
}

/// Checks the attributes against DynamoDB's limits, except their size.
///
/// # Errors A sentence with the attribute and the remedy.
pub(crate) fn check_attributes(item: &Item) -> Result<(), String> {
    for (name, value) in item {
        check_name(name)?;
        value.check_names().map_err(|message| format!("in attribute `{name}`: {message}"))?;
        let depth = value.depth();
        if depth > limits::DEPTH {
            return Err(format!(
                "attribute `{name}` nests {depth} levels: DynamoDB takes at most {}, flatten it",
                limits::DEPTH
            ));
        }
    }
    Ok(())
}

/// Checks an attribute's name against the limits of DynamoDB and the port.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if name == key::PK || name == key::SK {
        return Err(format!("attribute `{name}` belongs to the key: leave it out of the item"));
    }
    check_name_bytes(name)
}

fn check_name_bytes(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > limits::NAME_BYTES {
        return Err(format!(
            "an attribute's name has {} bytes: expected 1 to {}",
            name.len(),
            limits::NAME_BYTES
        ));
    }
    Ok(())
}

/// A form that can't become an item, or an item that isn't of the form.
#[derive(Debug, thiserror::Error)]
pub enum ItemError {
    /// The form isn't a struct or a map with text keys.
    #[error("only a struct or a map can be an item, this is {found}")]
    NotAMap {
        /// Its actual type.
        found: &'static str,
    },
    /// A number that DynamoDB doesn't keep.
    #[error("attribute `{path}` doesn't fit a number of DynamoDB")]
    Number {
        /// Where in the item.
        path: String,
        /// The problem.
        #[source]
        source: NumberError,
    },
    /// A number of the table that the form's types can't hold exactly.
    #[error("attribute `{path}` holds `{number}`, which neither 64 bits nor a double hold exactly")]
    Inexact {
        /// Where in the item.
        path: String,
        /// The number.
        number: Number,
    },
    /// serde can't write the form, or the item isn't of the form.
    #[error("the item and its form don't agree")]
    Form(#[source] serde_json::Error),
}

/// An item from a form. Null fields are left out, numbers are exact, byte sequences become lists of numbers (put long
/// ones into [`Value::B`] by hand).
///
/// # Errors [`ItemError`] if the form isn't a map, or has a number that DynamoDB can't store.
pub fn to_item<T: Serialize>(form: &T) -> Result<Item, ItemError> {
    match serde_json::to_value(form).map_err(ItemError::Form)? {
        Json::Object(fields) => map_from_json(fields),
        Json::Null => Err(ItemError::NotAMap { found: "null" }),
        Json::Bool(_) => Err(ItemError::NotAMap { found: "a boolean" }),
        Json::Number(_) => Err(ItemError::NotAMap { found: "a number" }),
        Json::String(_) => Err(ItemError::NotAMap { found: "a string" }),
        Json::Array(_) => Err(ItemError::NotAMap { found: "a list" }),
    }
}

/// A form from an item. Unknown attributes are ignored unless the form denies them.
///
/// # Errors [`ItemError`] if an attribute is missing, of another type, or a number doesn't fit.
pub fn from_item<T: DeserializeOwned>(item: &Item) -> Result<T, ItemError> {
    serde_json::from_value(map_to_json(item)?).map_err(ItemError::Form)
}

impl ItemError {
    /// The error with the attribute that it is in before its path, which is only put together where there is one.
    fn within(mut self, outer: &str) -> Self {
        if let Self::Number { path, .. } | Self::Inexact { path, .. } = &mut self {
            let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
            *path = format!("{outer}{dot}{path}");
        }
        self
    }
}

fn map_from_json(fields: serde_json::Map<String, Json>) -> Result<Item, ItemError> {
    let present = fields.into_iter().filter(|(_, value)| !value.is_null());
    present
        .map(|(name, value)| match value_from_json(value) {
            Ok(value) => Ok((name, value)),
            Err(error) => Err(error.within(&name)),
        })
        .collect()
}

fn value_from_json(json: Json) -> Result<Value, ItemError> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::Bool(truth),
        Json::String(text) => Value::S(text),
        Json::Number(number) => {
            let wrong = |source| ItemError::Number { path: String::new(), source };
            Value::N(Number::parse(&number.to_string()).map_err(wrong)?)
        }
        Json::Array(values) => {
            let element =
                |(n, value)| value_from_json(value).map_err(|error| error.within(&format!("[{n}]")));
            Value::L(values.into_iter().enumerate().map(element).collect::<Result<_, _>>()?)
        }
        Json::Object(fields) => Value::M(map_from_json(fields)?),
    })
}

fn map_to_json(item: &Item) -> Result<Json, ItemError> {
    let field = |(name, value): (&String, &Value)| {
        Ok((name.clone(), value_to_json(value).map_err(|error| error.within(name))?))
    };
    Ok(Json::Object(item.iter().map(field).collect::<Result<_, ItemError>>()?))
}

fn value_to_json(value: &Value) -> Result<Json, ItemError> {
    Ok(match value {
        Value::S(text) => Json::String(text.clone()),
        Value::N(number) => Json::Number(number_to_json(number)?),
        Value::Bool(truth) => Json::Bool(*truth),
        Value::B(bytes) => Json::Array(bytes.iter().map(|byte| Json::from(*byte)).collect()),
        Value::Null => Json::Null,
        Value::L(values) => {
            let element = |(n, value)| value_to_json(value).map_err(|error| error.within(&format!("[{n}]")));
            Json::Array(values.iter().enumerate().map(element).collect::<Result<_, _>>()?)
        }
        Value::M(fields) => map_to_json(fields)?,
    })
}

fn number_to_json(number: &Number) -> Result<serde_json::Number, ItemError> {
    if let Some(whole) = number.to_u64() {
        return Ok(whole.into());
    }
    if let Some(whole) = number.to_i64() {
        return Ok(whole.into());
    }
    let double = number.as_str().parse::<f64>().ok().and_then(serde_json::Number::from_f64);
    double
        .filter(|double| Number::parse(&double.to_string()).as_ref() == Ok(number))
        .ok_or_else(|| ItemError::Inexact { path: String::new(), number: number.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Form {
        v: u32,
        name: String,
        price: f64,
        large: u64,
        below: i64,
        absent: Option<String>,
        zones: Vec<Option<String>>,
        nested: BTreeMap<String, Option<bool>>,
    }

    fn form() -> Form {
        Form {
            v: 1,
            name: String::new(),
            price: 0.153,
            large: u64::MAX,
            below: i64::MIN,
            absent: None,
            zones: vec![Some("us-east-1a".to_owned()), None],
            nested: BTreeMap::from([("yes".to_owned(), Some(true)), ("gone".to_owned(), None)]),
        }
    }

    #[test]
    fn a_form_becomes_native_attributes_and_comes_back() {
        let item = to_item(&form()).unwrap();
        assert_eq!(item["large"], Value::number(u64::MAX));
        assert_eq!(item["below"], Value::number(i64::MIN));
        assert_eq!(item["price"], Value::N(Number::parse("0.153").unwrap()));
        assert!(!item.contains_key("absent"));
        assert_eq!(item["zones"], Value::L(vec![Value::text("us-east-1a"), Value::Null]));
        assert_eq!(item["nested"], Value::M(BTreeMap::from([("yes".to_owned(), Value::Bool(true))])));
        let mut expected = form();
        expected.nested.remove("gone");
        assert_eq!(from_item::<Form>(&item).unwrap(), expected);
    }

    #[test]
    fn bytes_are_read_and_numbers_are_never_rounded() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Packed {
            data: Vec<u8>,
        }
        let item = Item::from([("data".to_owned(), Value::B(vec![0, 255]))]);
        assert_eq!(from_item::<Packed>(&item).unwrap(), Packed { data: vec![0, 255] });
        let exact = Number::parse("0.1234567890123456789012345").unwrap();
        let item = Item::from([("price".to_owned(), Value::N(exact))]);
        let error = from_item::<BTreeMap<String, f64>>(&item).unwrap_err();
        assert_eq!(
            error.to_string(),
            "attribute `price` holds `0.1234567890123456789012345`, which neither 64 bits nor a double hold exactly"
        );
    }

    #[test]
    fn an_error_names_its_place() {
        let exact = Value::N(Number::parse("0.1234567890123456789012345").unwrap());
        let zone = Value::M(BTreeMap::from([("usd".to_owned(), exact)]));
        let item = Item::from([("prices".to_owned(), Value::L(vec![Value::Null, Value::L(vec![zone])]))]);
        let error = from_item::<Json>(&item).unwrap_err();
        assert!(error.to_string().starts_with("attribute `prices[1][0].usd` holds"), "{error}");
    }

    #[test]
    fn only_maps_are_items() {
        assert_eq!(
            to_item(&3).unwrap_err().to_string(),
            "only a struct or a map can be an item, this is a number"
        );
    }

    #[test]
    fn sizes_are_dynamodbs() {
        let check = |value: Value, expected: u64| assert_eq!(value.size(), expected, "{value:?}");
        check(Value::text("grün"), 5);
        check(Value::Null, 1);
        check(Value::B(vec![0; 10]), 10);
        check(Value::L(vec![]), 3);
        check(Value::L(vec![Value::text("ab"), Value::Bool(true)]), 3 + 1 + 2 + 1 + 1);
        check(Value::M(BTreeMap::from([("key".to_owned(), Value::text("ab"))])), 3 + 1 + 3 + 2);
        let item = Item::from([("name".to_owned(), Value::text("abc"))]);
        assert_eq!(item_size(&Key::new("p", "s"), &item), 2 + 1 + 2 + 1 + 4 + 3);
    }
}
