//! Tables that DescribeInstanceTypes lacks: network interfaces and bandwidth by type.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Interfaces of one type, as AWS publishes them for the VPC resource controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EniLimits {
    /// Interfaces over all cards.
    pub interfaces: u32,
    /// IPv4 addresses of each.
    pub ipv4_per_interface: u32,
    /// Interfaces for security groups of pods.
    pub branch_interfaces: u32,
    /// The card of the primary interface.
    pub default_card: u32,
    /// Whether the type can trunk, without which branch interfaces don't count.
    pub trunking: bool,
}

/// The tables that DescribeInstanceTypes doesn't serve. A type that is missing in one has no branch interfaces, or no
/// known bandwidth.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// Interfaces by type.
    pub eni: BTreeMap<String, EniLimits>,
    /// Baseline network bandwidth in Mbps by type.
    pub bandwidth_mbps: BTreeMap<String, u32>,
}

/// A table of limits that isn't of the expected form.
#[derive(Debug, thiserror::Error)]
#[error("the table of `{table}` is not a map from instance type to its limits")]
pub struct LimitsError {
    /// Which of the two tables.
    pub table: &'static str,
    /// The parser's error.
    #[source]
    pub source: serde_json::Error,
}

impl Limits {
    /// Reads both tables, each a JSON object with instance types as keys.
    ///
    /// # Errors
    /// [`LimitsError`] naming the table that isn't of that form.
    pub fn parse(eni_json: &str, bandwidth_json: &str) -> Result<Self, LimitsError> {
        let eni = serde_json::from_str(eni_json)
            .map_err(|source| LimitsError { table: "network interfaces", source })?;
        let bandwidth_mbps = serde_json::from_str(bandwidth_json)
            .map_err(|source| LimitsError { table: "network bandwidth", source })?;
        Ok(Self { eni, bandwidth_mbps })
    }
}
