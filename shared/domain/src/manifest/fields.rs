//! Types of fields: integers within bounds, quantities, labels, times, identifiers and words.
//!
//! Decides which values are well-formed, and the remedy for others. It doesn't know a field's object.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

use super::decode::{not_a_word, told, unexpected};
use super::duration;
use crate::id::ParseIdError;
use crate::labels::{is_label_value, is_qualified_name};
use crate::quantity::Quantity;
use crate::resources::{ResourceList, ResourceName};

/// The largest value of Kubernetes' int32 fields.
pub(crate) const MOST: i64 = i32::MAX as i64;
/// The largest seconds, and the like.
pub(crate) const WIDEST: i64 = u32::MAX as i64;

/// An integer within bounds.
pub(crate) fn integer<'de, const LOW: i64, const HIGH: i64, D: Deserializer<'de>, T: TryFrom<i64>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let given = Value::deserialize(deserializer)?;
    let Value::Number(number) = &given else {
        return Err(Error::invalid_type(unexpected(&given), &"an integer"));
    };
    let fits = number.as_i64().filter(|integer| (LOW..=HIGH).contains(integer));
    // Bounds of the type itself only matter to numbers beyond them.
    let beyond = number.as_i64().map_or(number.is_u64(), |integer| integer > HIGH);
    let most = if HIGH >= MOST && !beyond { String::new() } else { format!(" to {HIGH}") };
    let expected = format!("an integer from {LOW}{most}");
    let wrong = || Error::invalid_value(unexpected(&given), &expected.as_str());
    fits.and_then(|integer| T::try_from(integer).ok()).ok_or_else(wrong)
}

/// An integer within bounds that may be absent.
pub(crate) fn within<'de, const LOW: i64, const HIGH: i64, D: Deserializer<'de>, T: TryFrom<i64>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    integer::<LOW, HIGH, D, T>(deserializer).map(Some)
}

/// A text that isn't empty.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Err(Error::custom(told("must not be empty", "write it"))) } else { Ok(text) }
}

/// An API group, without a version.
pub(crate) fn api_group<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let group = text(deserializer)?;
    match group.split_once('/') {
        Some((name, _)) => Err(Error::custom(told(
            format_args!("`{group}` is not an API group: it has a version"),
            format_args!("write `{name}`"),
        ))),
        None => Ok(group),
    }
}

/// A text that a parser accepts.
pub(crate) fn parsed<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: impl FnOnce(String) -> Result<T, ParseIdError>,
) -> Result<T, D::Error> {
    parse(text(deserializer)?).map_err(|ParseIdError { kind, value, expected }| {
        Error::custom(told(format_args!("`{value}` is not a valid {kind}"), format_args!("write {expected}")))
    })
}

/// One of several words; `kind` names them with an article, such as `a volume type`.
pub(crate) fn one_of<'de, D: Deserializer<'de>>(
    deserializer: D,
    kind: &str,
    words: &[&str],
) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if words.contains(&text.as_str()) { Ok(text) } else { Err(Error::custom(not_a_word(&text, kind, words))) }
}

/// A point in time, RFC 3339.
pub(super) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let wrong = |_| {
        Error::custom(told(
            format_args!("`{text}` is not a time"),
            "write RFC 3339, such as `2026-01-01T00:00:00Z`",
        ))
    };
    text.parse().map(Some).map_err(wrong)
}

/// A map of strings. The API server reads null as an empty string.
pub(super) fn texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let texts = BTreeMap::<String, Option<String>>::deserialize(deserializer)?;
    Ok(texts.into_iter().map(|(key, text)| (key, text.unwrap_or_default())).collect())
}

/// Labels: qualified names and label values.
pub(super) fn labels<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let labels = BTreeMap::<LabelKey, LabelValue>::deserialize(deserializer)?;
    Ok(labels.into_iter().map(|(key, value)| (key.0, value.0)).collect())
}

/// The key of a label or taint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LabelKey(pub(super) String);

impl<'de> Deserialize<'de> for LabelKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let key = text(deserializer)?;
        if is_qualified_name(&key) {
            return Ok(Self(key));
        }
        Err(Error::custom(told(
            format_args!("`{key}` is not a label key"),
            "write `[domain/]name`: a lower-case DNS domain, and at most 63 letters, digits, `-`, `_` and `.` that \
             begin and end with a letter or digit",
        )))
    }
}

/// The value of a label or taint.
#[derive(Debug, Clone, Default)]
pub(super) struct LabelValue(pub(super) String);

impl<'de> Deserialize<'de> for LabelValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        if is_label_value(&value) {
            return Ok(Self(value));
        }
        Err(Error::custom(told(
            format_args!("`{value}` is not a label value"),
            "write at most 63 letters, digits, `-`, `_` and `.` that begin and end with a letter or digit",
        )))
    }
}

/// Numbers are quantities too.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(deserializer)? {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            given @ (Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                let expected = "a quantity such as `500m` or `1.5Gi`";
                return Err(Error::invalid_type(unexpected(&given), &expected));
            }
        };
        Self::parse(&text).map_err(|error| {
            let remedy = "write a number with an optional suffix, such as `500m` or `1.5Gi`";
            let message = format_args!("`{}` is not a quantity: {}", error.value, error.problem);
            Error::custom(told(message, remedy))
        })
    }
}

/// A quantity of zero or more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Positive(pub(super) Quantity);

impl<'de> Deserialize<'de> for Positive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let quantity = Quantity::deserialize(deserializer)?;
        if quantity.is_negative() {
            return Err(Error::custom(told(format_args!("`{quantity}` is negative"), "write zero or more")));
        }
        Ok(Self(quantity))
    }
}

impl<'de> Deserialize<'de> for ResourceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, Self::parse)
    }
}

impl<'de> Deserialize<'de> for ResourceList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = BTreeMap::<ResourceName, Positive>::deserialize(deserializer)?;
        Ok(list.into_iter().map(|(name, quantity)| (name, quantity.0)).collect())
    }
}

/// A duration of Karpenter's resources: whole hours, minutes and seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlainDuration(pub(super) SignedDuration);

/// A duration; `None` is `Never`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lapse(pub(super) Option<SignedDuration>);

impl<'de> Deserialize<'de> for PlainDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        plain(&String::deserialize(deserializer)?, "such as `48h` or `1h30m`").map(Self)
    }
}

impl<'de> Deserialize<'de> for Lapse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "Never" => Ok(Self(None)),
            text => plain(text, "such as `720h` or `1h30m`, or `Never`").map(|after| Self(Some(after))),
        }
    }
}

fn plain<E: Error>(text: &str, such: &str) -> Result<SignedDuration, E> {
    let message = format_args!("`{text}` is not a duration");
    let wrong = || E::custom(told(message, format_args!("write hours, minutes and seconds, {such}")));
    duration::parse_plain(text).ok_or_else(wrong)
}
