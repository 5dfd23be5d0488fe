//! Operators and the written form of a requirement.

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
