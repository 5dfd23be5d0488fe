//! Subnets and security groups of the twin.
//!
//! Decides which address an instance gets. Invariants: an address is held by one instance; the first four and the
//! last of a block are AWS's.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use tenon_domain::id::{Region, SecurityGroupId, SubnetId};

use super::call::Call;
use super::state::{TwinState, error};
use super::{NotPossible, refuse};
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{ResourceFilter, SecurityGroup, Subnet, Tags, wildcard_matches};

/// Addresses of a block that AWS keeps: network, router, DNS, one in reserve, and broadcast.
const RESERVED_ADDRESSES: u32 = 5;

#[derive(Debug)]
pub(super) struct TwinSubnet {
    subnet: Subnet,
    base: u32,
    size: u32,
    next: u32,
    in_use: BTreeSet<u32>,
    /// Addresses that something else holds.
    held: u32,
}

impl TwinSubnet {
    /// A subnet of the block in `subnet.cidr`; its free addresses are counted from it.
    fn new(subnet: Subnet) -> Option<Self> {
        let (base, bits) = subnet.cidr.split_once('/')?;
        let base = u32::from(base.parse::<Ipv4Addr>().ok()?);
        let bits: u32 = bits.parse().ok().filter(|bits| (16..=28).contains(bits))?;
        let size = 1u32.checked_shl(32 - bits)?;
        Some(Self { subnet, base, size, next: 4, in_use: BTreeSet::new(), held: 0 })
    }

    pub(super) fn free(&self) -> u32 {
        let used = u32::try_from(self.in_use.len()).unwrap_or(u32::MAX);
        self.size.saturating_sub(RESERVED_ADDRESSES).saturating_sub(used).saturating_sub(self.held)
    }

    pub(super) fn view(&self) -> Subnet {
        Subnet { available_addresses: self.free(), ..self.subnet.clone() }
    }

    /// The next free address. The search goes round, so that a freed address, and its node's name, isn't reused at
    /// once.
    pub(super) fn take(&mut self) -> Option<Ipv4Addr> {
        if self.free() == 0 {
            return None;
        }
        loop {
            let offset = self.next;
            self.next = if offset.saturating_add(2) >= self.size { 4 } else { offset.saturating_add(1) };
            if self.in_use.insert(offset) {
                return Some(Ipv4Addr::from(self.base.saturating_add(offset)));
            }
        }
    }

    pub(super) fn give_back(&mut self, address: &str) {
        if let Ok(address) = address.parse::<Ipv4Addr>() {
            self.in_use.remove(&u32::from(address).saturating_sub(self.base));
        }
    }
}

/// The private DNS name that EC2 gives to an address ("Amazon EC2 instance hostnames and domains").
pub(super) fn private_dns_name(address: Ipv4Addr, region: &Region) -> String {
    let host = address.to_string().replace('.', "-");
    match region.as_str() {
        "us-east-1" => format!("ip-{host}.ec2.internal"),
        other => format!("ip-{host}.{other}.compute.internal"),
    }
}

impl TwinState {
    pub(super) fn add_subnet(&mut self, subnet: Subnet) -> Result<(), NotPossible> {
        let id = subnet.id.clone();
        if !self.zones.iter().any(|z| z.name == subnet.zone) {
            return refuse(format!("subnet `{id}`: zone `{}` isn't one of this region", subnet.zone));
        }
        let Some(twin) = TwinSubnet::new(subnet) else {
            return refuse(format!(
                "subnet `{id}`: expected an IPv4 block such as `10.0.0.0/19`, from /16 to /28"
            ));
        };
        self.subnets.insert(id, twin);
        Ok(())
    }

    /// A subnet in each zone and a security group for them, all with these tags.
    pub(super) fn add_network(&mut self, tags: &Tags) -> Result<(), NotPossible> {
        let zones = self.zones.clone();
        // A region may have several networks; each has a block of addresses of its own.
        let subnets = self.subnets.len();
        let network = subnets / zones.len().max(1);
        for (n, zone) in zones.into_iter().enumerate() {
            let subnet = Subnet {
                id: SubnetId::parse(format!("subnet-{:017x}", subnets + n + 1))
                    .map_err(|e| NotPossible(e.to_string()))?,
                vpc: "vpc-00000000000000001".to_owned(),
                zone: zone.name,
                zone_id: zone.id,
                cidr: format!("10.{network}.{}.0/19", n * 32),
                available_addresses: 0,
                tags: tags.clone(),
            };
            self.add_subnet(subnet)?;
        }
        let id = SecurityGroupId::parse(format!("sg-{:017x}", network + 1))
            .map_err(|e| NotPossible(e.to_string()))?;
        let group = SecurityGroup {
            id: id.clone(),
            name: "nodes".to_owned(),
            vpc: "vpc-00000000000000001".to_owned(),
            tags: tags.clone(),
        };
        self.groups.insert(id, group);
        Ok(())
    }

    /// Leaves a subnet with so many free addresses, as if something else held the rest.
    pub(super) fn set_free_addresses(&mut self, id: &SubnetId, free: u32) -> Result<(), NotPossible> {
        let Some(subnet) = self.subnets.get_mut(id) else {
            return refuse(format!("subnet `{id}` doesn't exist"));
        };
        subnet.held = 0;
        subnet.held = subnet.free().saturating_sub(free);
        Ok(())
    }

    pub(super) fn subnets_matching(&self, filter: &ResourceFilter) -> Result<Vec<Subnet>, Ec2Error> {
        let all: Vec<_> = self.subnets.values().map(TwinSubnet::view).collect();
        missing(filter, |id| all.iter().any(|s| s.id.as_str() == id)).map_or(Ok(()), |id| {
            let message = format!("The subnet ID '{id}' does not exist");
            Err(error(Call::DescribeSubnets, "InvalidSubnetID.NotFound", &message))
        })?;
        Ok(all.into_iter().filter(|s| matches(filter, s.id.as_str(), None, &s.tags)).collect())
    }

    pub(super) fn groups_matching(&self, filter: &ResourceFilter) -> Result<Vec<SecurityGroup>, Ec2Error> {
        missing(filter, |id| self.groups.keys().any(|g| g.as_str() == id)).map_or(Ok(()), |id| {
            let message = format!("The security group '{id}' does not exist");
            Err(error(Call::DescribeSecurityGroups, "InvalidGroup.NotFound", &message))
        })?;
        let matching =
            self.groups.values().filter(|g| matches(filter, g.id.as_str(), Some(&g.name), &g.tags));
        Ok(matching.cloned().collect())
    }
}

fn missing(filter: &ResourceFilter, exists: impl Fn(&str) -> bool) -> Option<&String> {
    filter.ids.iter().find(|id| !exists(id))
}

fn matches(filter: &ResourceFilter, id: &str, name: Option<&str>, tags: &Tags) -> bool {
    (filter.ids.is_empty() || filter.ids.iter().any(|i| i == id))
        && (filter.names.is_empty()
            || name.is_some_and(|n| filter.names.iter().any(|p| wildcard_matches(p, n))))
        && filter.tags.iter().all(|t| t.matches(tags))
}
