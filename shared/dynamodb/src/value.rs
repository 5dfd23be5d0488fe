//! The port's values as the SDK's, and back.
//!
//! Decides only names: both sides have DynamoDB's types. Sets, which Tenon never writes, are read as lists of their
//! elements, so that one foreign attribute doesn't make a partition unreadable.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use std::collections::HashMap;
use tenon_table::number::NumberError;
use tenon_table::{Item, Key, Number, Value, key};

/// The SDK's form of attributes.
pub(crate) type SdkAttributes = HashMap<String, AttributeValue>;

/// An answer that isn't an item of the table.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    /// A key attribute is missing or no text.
    #[error(
        "an item's `{name}` is missing or not a string: the table's keys must be the strings `pk` and `sk`"
    )]
    Key {
        /// Which.
        name: &'static str,
    },
    /// A number that can't be one of DynamoDB's.
    #[error("attribute `{name}` isn't a DynamoDB number")]
    Number {
        /// The item's attribute.
        name: String,
        /// The problem.
        #[source]
        source: NumberError,
    },
    /// A type that this build of the SDK doesn't know.
    #[error("attribute `{name}` has an unknown type: build with a newer SDK")]
    Type {
        /// The item's attribute.
        name: String,
    },
}

/// Why a value is unreadable; the caller adds its place.
enum ValueError {
    Number(NumberError),
    Type,
}

/// A key as attributes.
pub(crate) fn key_attributes(key: &Key) -> SdkAttributes {
    SdkAttributes::from([
        (key::PK.to_owned(), AttributeValue::S(key.pk.clone())),
        (key::SK.to_owned(), AttributeValue::S(key.sk.clone())),
    ])
}

/// A whole item as attributes.
pub(crate) fn item_attributes(key: &Key, item: &Item) -> SdkAttributes {
    let mut attributes = key_attributes(key);
    attributes.extend(item.iter().map(|(name, value)| (name.clone(), attribute(value))));
    attributes
}

/// One value.
pub(crate) fn attribute(value: &Value) -> AttributeValue {
    match value {
        Value::S(text) => AttributeValue::S(text.clone()),
        Value::N(number) => AttributeValue::N(number.as_str().to_owned()),
        Value::Bool(truth) => AttributeValue::Bool(*truth),
        Value::B(bytes) => AttributeValue::B(Blob::new(bytes.as_slice())),
        Value::Null => AttributeValue::Null(true),
        Value::L(values) => AttributeValue::L(values.iter().map(attribute).collect()),
        Value::M(values) => {
            AttributeValue::M(values.iter().map(|(name, value)| (name.clone(), attribute(value))).collect())
        }
    }
}

/// The key that attributes hold.
pub(crate) fn key_of(attributes: &SdkAttributes) -> Result<Key, AnswerError> {
    let part = |name: &'static str| match attributes.get(name) {
        Some(AttributeValue::S(text)) => Ok(text.clone()),
        Some(_) | None => Err(AnswerError::Key { name }),
    };
    Ok(Key { pk: part(key::PK)?, sk: part(key::SK)? })
}

/// The item that attributes hold, and its key.
pub(crate) fn item_of(attributes: SdkAttributes) -> Result<(Key, Item), AnswerError> {
    let key = key_of(&attributes)?;
    let own = attributes.into_iter().filter(|(name, _)| name != key::PK && name != key::SK);
    let item = own.map(|(name, value)| match value_of(value) {
        Ok(value) => Ok((name, value)),
        Err(ValueError::Number(source)) => Err(AnswerError::Number { name, source }),
        Err(ValueError::Type) => Err(AnswerError::Type { name }),
    });
    Ok((key, item.collect::<Result<Item, _>>()?))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's `Unknown` can't be named outside of it")]
fn value_of(attribute: AttributeValue) -> Result<Value, ValueError> {
    let number = |text: String| Number::parse(&text).map(Value::N).map_err(ValueError::Number);
    Ok(match attribute {
        AttributeValue::S(text) => Value::S(text),
        AttributeValue::N(text) => number(text)?,
        AttributeValue::Bool(truth) => Value::Bool(truth),
        AttributeValue::B(bytes) => Value::B(bytes.into_inner()),
        AttributeValue::Null(_) => Value::Null,
        AttributeValue::L(values) => Value::L(values.into_iter().map(value_of).collect::<Result<_, _>>()?),
        AttributeValue::M(values) => {
            let values = values.into_iter().map(|(name, value)| Ok((name, value_of(value)?)));
            Value::M(values.collect::<Result<_, ValueError>>()?)
        }
        AttributeValue::Ss(texts) => Value::L(texts.into_iter().map(Value::S).collect()),
        AttributeValue::Ns(texts) => Value::L(texts.into_iter().map(number).collect::<Result<_, _>>()?),
        AttributeValue::Bs(blobs) => {
            Value::L(blobs.into_iter().map(|bytes| Value::B(bytes.into_inner())).collect())
        }
        // Unknown and future variants of the SDK.
        _ => return Err(ValueError::Type),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_back() {
        let number = |text| Value::N(Number::parse(text).unwrap());
        let map = Item::from([("a b".to_owned(), Value::Null)]);
        let item = Item::from([
            ("text".to_owned(), Value::text("")),
            ("number".to_owned(), number("1e-130")),
            ("bytes".to_owned(), Value::B(vec![0, 255])),
            ("list".to_owned(), Value::L(vec![Value::Bool(false), Value::M(map), number("12")])),
        ]);
        let key = Key::new("p", "s");
        assert_eq!(item_of(item_attributes(&key, &item)).unwrap(), (key, item));
    }

    fn check(attribute: AttributeValue, expected: Result<Value, &str>) {
        let mut attributes = key_attributes(&Key::new("p", "s"));
        attributes.insert("x".to_owned(), attribute);
        match (item_of(attributes), expected) {
            (Ok((_, item)), Ok(value)) => assert_eq!(item["x"], value),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, expected) => panic!("{found:?} isn't {expected:?}"),
        }
    }

    #[test]
    fn what_others_wrote_is_read_or_named() {
        let texts = || vec!["1".to_owned(), "2e0".to_owned()];
        check(AttributeValue::Ss(texts()), Ok(Value::L(vec![Value::text("1"), Value::text("2e0")])));
        check(AttributeValue::Ns(texts()), Ok(Value::L(vec![Value::number(1_u64), Value::number(2_u64)])));
        check(AttributeValue::Bs(vec![Blob::new([7])]), Ok(Value::L(vec![Value::B(vec![7])])));
        check(AttributeValue::N("NaN".to_owned()), Err("attribute `x` isn't a DynamoDB number"));
        let keys = |pk| SdkAttributes::from([("pk".to_owned(), pk)]);
        let missing = item_of(keys(AttributeValue::N("1".to_owned()))).unwrap_err();
        assert!(missing.to_string().contains("`pk` is missing or not a string"), "{missing}");
    }
}
