//! Reading the fields of AWS's answers.
//!
//! Decides the error of an absent or malformed field: it names the field.

use std::fmt::Display;
use std::str::FromStr;

use aws_sdk_ec2::types::Tag;
use aws_smithy_types::DateTime;
use tenon_domain::Timestamp;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{MALFORMED_ANSWER, PageToken, Tags};

/// An answer that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer's `{field}` {problem}")]
pub(crate) struct Malformed {
    field: &'static str,
    problem: String,
}

impl Malformed {
    pub(crate) fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }

    /// The port's error: AWS's answer is wrong, and the call may have taken effect.
    pub(crate) fn into_error(self, action: &str) -> Ec2Error {
        Ec2Error::ServerError {
            action: action.to_owned(),
            code: MALFORMED_ANSWER.to_owned(),
            message: self.to_string(),
        }
    }
}

/// A field that must be there.
pub(crate) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, Malformed> {
    value.ok_or_else(|| Malformed::new(field, "is missing"))
}

/// A text that must be there and be of a form.
pub(crate) fn parsed<T: FromStr>(text: Option<&str>, field: &'static str) -> Result<T, Malformed>
where
    T::Err: Display,
{
    optional(text, field)?.ok_or_else(|| Malformed::new(field, "is missing"))
}

/// A text that must be of a form where it is there; EC2 writes some missing texts as empty ones.
pub(crate) fn optional<T: FromStr>(text: Option<&str>, field: &'static str) -> Result<Option<T>, Malformed>
where
    T::Err: Display,
{
    text.filter(|text| !text.is_empty())
        .map(|text| text.parse().map_err(|error| Malformed::new(field, format!("can't be read: {error}"))))
        .transpose()
}

/// A number that must be there and fit.
pub(crate) fn number<T, N>(value: Option<N>, field: &'static str) -> Result<T, Malformed>
where
    N: Copy + Display,
    T: TryFrom<N>,
{
    let value = required(value, field)?;
    T::try_from(value).map_err(|_| Malformed::new(field, format!("is out of range: {value}")))
}

/// A moment that must be there.
pub(crate) fn moment(value: Option<&DateTime>, field: &'static str) -> Result<Timestamp, Malformed> {
    required(optional_moment(value, field)?, field)
}

/// A moment that must be readable where it is there.
pub(crate) fn optional_moment(
    value: Option<&DateTime>,
    field: &'static str,
) -> Result<Option<Timestamp>, Malformed> {
    let read = |value: &DateTime| {
        let nanos = i32::try_from(value.subsec_nanos()).unwrap_or_default();
        Timestamp::new(value.secs(), nanos)
            .map_err(|error| Malformed::new(field, format!("can't be read: {error}")))
    };
    value.map(read).transpose()
}

/// Tags by key; a tag without a value has an empty one.
pub(crate) fn tags(tags: &[Tag]) -> Tags {
    let pair = |tag: &Tag| Some((tag.key.clone()?, tag.value.clone().unwrap_or_default()));
    tags.iter().filter_map(pair).collect()
}

/// The position of the next page; EC2 ends some lists with an empty token.
pub(crate) fn next(token: Option<&str>) -> Option<PageToken> {
    token.filter(|token| !token.is_empty()).map(|token| PageToken(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_cannot_be_read_is_named() {
        let error = parsed::<u32>(Some("x"), "Count").unwrap_err();
        assert_eq!(error.to_string(), "the answer's `Count` can't be read: invalid digit found in string");
        let error = number::<u32, i32>(Some(-1), "Count").unwrap_err().into_error("DescribeSubnets");
        assert_eq!(
            error.to_string(),
            "`DescribeSubnets` failed inside EC2: the answer's `Count` is out of range: -1 (`MalformedAnswer`)"
        );
    }

    #[test]
    fn an_empty_text_is_a_missing_one() {
        assert_eq!(optional::<u32>(Some(""), "Count").unwrap(), None);
        assert_eq!(
            parsed::<u32>(Some(""), "Count").unwrap_err().to_string(),
            "the answer's `Count` is missing"
        );
        assert_eq!(next(Some("")), None);
    }
}
