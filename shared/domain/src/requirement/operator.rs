//! Operators and the written form of a requirement.

use std::borrow::Cow;

crate::words! {
    /// How a requirement's values are meant. Its words are Kubernetes'.
    #[derive(serde::Deserialize)]
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

/// The same, borrowed from what it is the written form of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenRequirement<'r> {
    /// The label's key.
    pub key: &'r str,
    /// How the values are meant.
    pub operator: Operator,
    /// In bytewise order.
    pub values: Vec<Cow<'r, str>>,
    /// The minimum number of different values that must remain possible.
    pub min_values: Option<u32>,
}

impl From<WrittenRequirement<'_>> for NodeSelectorRequirement {
    fn from(written: WrittenRequirement<'_>) -> Self {
        let WrittenRequirement { key, operator, values, min_values } = written;
        Self {
            key: key.to_owned(),
            operator,
            values: values.into_iter().map(Cow::into_owned).collect(),
            min_values,
        }
    }
}
