//! Subnets and security groups.

use aws_sdk_ec2::types as sdk;
use tenon_ec2::port::{SecurityGroup, Subnet};

use crate::reading::{Malformed, number, parsed, required, tags};

pub(crate) fn subnet(from: &sdk::Subnet) -> Result<Subnet, Malformed> {
    Ok(Subnet {
        id: parsed(from.subnet_id.as_deref(), "SubnetId")?,
        vpc: required(from.vpc_id.clone(), "VpcId")?,
        zone: parsed(from.availability_zone.as_deref(), "AvailabilityZone")?,
        zone_id: parsed(from.availability_zone_id.as_deref(), "AvailabilityZoneId")?,
        // A subnet that has IPv6 alone has none.
        cidr: from.cidr_block.clone().unwrap_or_default(),
        available_addresses: number(from.available_ip_address_count, "AvailableIpAddressCount")?,
        tags: tags(from.tags()),
    })
}

pub(crate) fn security_group(from: &sdk::SecurityGroup) -> Result<SecurityGroup, Malformed> {
    Ok(SecurityGroup {
        id: parsed(from.group_id.as_deref(), "GroupId")?,
        name: required(from.group_name.clone(), "GroupName")?,
        vpc: from.vpc_id.clone().unwrap_or_default(),
        tags: tags(from.tags()),
    })
}
