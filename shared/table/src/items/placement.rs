//! Placement groups in classes, launches and claims.
//!
//! Decides the attributes' names. Older items have none.

use tenon_domain::catalog::facts::PlacementStrategy;
use tenon_domain::placement::{LaunchPlacement, ResolvedPlacementGroup};

use super::form::{Attributes, FieldError, Fields};

const PLACEMENT_GROUP: &str = "placement_group";

pub(super) fn write_placement_group(group: Option<&ResolvedPlacementGroup>, to: &mut Attributes) {
    to.map_if(PLACEMENT_GROUP, group, |group, to| {
        to.text("id", &group.id);
        to.text("name", &group.name);
        to.text("strategy", group.strategy.as_str());
        to.number_if("partitions", group.partitions);
    });
}

pub(super) fn read_placement_group(from: Fields<'_>) -> Result<Option<ResolvedPlacementGroup>, FieldError> {
    from.map_if(PLACEMENT_GROUP, |from| {
        Ok(ResolvedPlacementGroup {
            id: from.parsed("id")?,
            name: from.string("name")?,
            strategy: from.word("strategy", PlacementStrategy::parse)?,
            partitions: from.u32_if("partitions")?,
        })
    })
}

pub(super) fn write_placement(placement: Option<&LaunchPlacement>, to: &mut Attributes) {
    to.map_if(PLACEMENT_GROUP, placement, |placement, to| {
        to.text("id", &placement.group);
        to.number_if("partition", placement.partition);
    });
}

pub(super) fn read_placement(from: Fields<'_>) -> Result<Option<LaunchPlacement>, FieldError> {
    from.map_if(PLACEMENT_GROUP, |from| {
        Ok(LaunchPlacement { group: from.parsed("id")?, partition: from.u32_if("partition")? })
    })
}
