//! Placement groups, and launch templates' words about them.

use aws_sdk_ec2::types as sdk;
use tenon_domain::catalog::facts::PlacementStrategy;
use tenon_domain::placement::{LaunchPlacement, Tenancy};
use tenon_ec2::port::PlacementGroup;

use crate::reading::{Malformed, number, parsed, required};
use crate::templates::{NumberTooLarge, whole};

pub(crate) fn placement_group(from: &sdk::PlacementGroup) -> Result<PlacementGroup, Malformed> {
    let strategy = required(from.strategy.as_ref(), "Strategy")?.as_str();
    let unknown = || Malformed::new("Strategy", format!("is `{strategy}`, which isn't known"));
    let count = from.partition_count.filter(|count| *count > 0);
    Ok(PlacementGroup {
        id: parsed(from.group_id.as_deref(), "GroupId")?,
        name: required(from.group_name.clone(), "GroupName")?,
        strategy: PlacementStrategy::parse(strategy).ok_or_else(unknown)?,
        partition_count: count.map(|count| number(Some(count), "PartitionCount")).transpose()?,
    })
}

/// The placement of a template; `None` if it says nothing of it.
pub(crate) fn specification(
    group: Option<&LaunchPlacement>,
    tenancy: Tenancy,
) -> Result<Option<sdk::LaunchTemplatePlacementRequest>, NumberTooLarge> {
    let tenancy = match tenancy {
        Tenancy::Default if group.is_none() => return Ok(None),
        Tenancy::Default => None,
        Tenancy::Dedicated => Some(sdk::Tenancy::Dedicated),
    };
    let partition = group.and_then(|of| of.partition);
    let partition = partition.map(|partition| whole(partition, "PartitionNumber")).transpose()?;
    Ok(Some(
        sdk::LaunchTemplatePlacementRequest::builder()
            .set_group_id(group.map(|of| of.group.to_string()))
            .set_partition_number(partition)
            .set_tenancy(tenancy)
            .build(),
    ))
}
