//! Operators and the written form of a requirement.

use std::fmt;

use super::hints::{UnknownWordError, parse_word};

/// How a requirement's values are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(rename = "an operator")]
pub enum Operator {
    /// One of the values.
    In,
    /// Absent, or none of the values.
    NotIn,
    /// Any value.
    Exists,
    /// Absent.
    DoesNotExist,
    /// An integer above the value.
    Gt,
    /// An integer below the value.
    Lt,
    /// An integer, the value or above it.
    Gte,
    /// An integer, the value or below it.
    Lte,
}

impl Operator {
    /// All operators.
    pub const ALL: [Self; 8] =
        [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist, Self::Gt, Self::Lt, Self::Gte, Self::Lte];

    /// Kubernetes' word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }

    /// Parses Kubernetes' word.
    ///
    /// # Errors [`UnknownWordError`] names the nearest operator.
    pub fn parse(text: &str) -> Result<Self, UnknownWordError> {
        parse_word("an operator", text, &Self::ALL, Self::as_str)
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A requirement in the form of `spec.requirements` and of a pod's node affinity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSelectorRequirement {
    /// The label's key.
    pub key: String,
    /// How the values are meant.
    pub operator: Operator,
    /// In bytewise order when made by us.
    pub values: Vec<String>,
    /// The minimum number of different values that must remain possible.
    pub min_values: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_in_an_operator_names_the_nearest() {
        let error = Operator::parse("NotInn").unwrap_err().to_string();
        assert_eq!(
            error,
            "`NotInn` is not an operator: expected `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`, `Gte`, \
             `Lte`; did you mean `NotIn`?"
        );
        assert_eq!(Operator::parse("in").unwrap_err().nearest.as_deref(), Some("In"));
        for operator in Operator::ALL {
            assert_eq!(Operator::parse(operator.as_str()), Ok(operator));
        }
    }
}
