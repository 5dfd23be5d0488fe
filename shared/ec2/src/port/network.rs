//! Subnets, security groups and placement groups as EC2 returns them.

use tenon_domain::catalog::facts::PlacementStrategy;
use tenon_domain::id::{PlacementGroupId, SecurityGroupId, SubnetId, Zone, ZoneId};

use super::{TagFilter, Tags};

/// Resources by id, name and tag. Criteria are ANDed; empty ones don't restrict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ResourceFilter {
    /// Any of these ids; an unknown one is `NotFound`.
    pub ids: Vec<String>,
    /// Any of these group names (security groups only), wildcards allowed.
    pub names: Vec<String>,
    /// All of these.
    pub tags: Vec<TagFilter>,
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subnet {
    /// Its id.
    pub id: SubnetId,
    /// Its VPC's id.
    pub vpc: String,
    /// The zone's name.
    pub zone: Zone,
    /// The zone's id.
    pub zone_id: ZoneId,
    /// Its IPv4 block, such as `10.0.0.0/19`.
    pub cidr: String,
    /// Free IPv4 addresses at the moment of the answer.
    pub available_addresses: u32,
    /// Its tags.
    pub tags: Tags,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecurityGroup {
    /// Its id.
    pub id: SecurityGroupId,
    /// Its name.
    pub name: String,
    /// Its VPC's id.
    pub vpc: String,
    /// Its tags.
    pub tags: Tags,
}

/// An available placement group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementGroup {
    /// Its id.
    pub id: PlacementGroupId,
    /// Its name.
    pub name: String,
    /// Its strategy.
    pub strategy: PlacementStrategy,
    /// How many partitions it has; only with the strategy `partition`.
    pub partition_count: Option<u32>,
}
