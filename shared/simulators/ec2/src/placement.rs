//! Placement groups of the twin.
//!
//! Decides which launches a group takes: it must exist, have the named partition, and a spread group takes seven
//! instances a zone. It doesn't model racks, nor the capacity of a cluster group.
//!
//! Source: "Placement strategies for your placement groups" of the EC2 user guide (read November 2026).

use tenon_domain::api::node_class::PlacementGroupSelector;
use tenon_domain::catalog::facts::PlacementStrategy;
use tenon_domain::id::{InstanceId, Zone};
use tenon_domain::placement::LaunchPlacement;

use super::call::Call;
use super::fleet::OverrideError;
use super::random::draw;
use super::state::{TwinState, error};
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{InstanceState, PlacementGroup};

/// Running instances of a spread group in one zone.
const SPREAD_PER_ZONE: u32 = 7;

impl TwinState {
    pub(super) fn placement_groups_matching(
        &self,
        of: &PlacementGroupSelector,
    ) -> Result<Vec<PlacementGroup>, Ec2Error> {
        let matches = |group: &&PlacementGroup| match of {
            PlacementGroupSelector::Id(id) => group.id == *id,
            PlacementGroupSelector::Name(name) => group.name == *name,
        };
        let found: Vec<PlacementGroup> = self.placement_groups.values().filter(matches).cloned().collect();
        if found.is_empty() {
            let message = unknown(of.as_str());
            return Err(error(Call::DescribePlacementGroups, "InvalidPlacementGroup.Unknown", &message));
        }
        Ok(found)
    }

    /// Whether a launch may name this place.
    pub(super) fn check_placement(&self, place: Option<&LaunchPlacement>) -> Result<(), OverrideError> {
        let Some(LaunchPlacement { group: id, partition }) = place else { return Ok(()) };
        let Some(group) = self.placement_groups.get(id) else {
            return Err(("InvalidPlacementGroup.Unknown".to_owned(), unknown(id.as_str())));
        };
        let partitions = match group.strategy {
            PlacementStrategy::Partition => group.partition_count.unwrap_or(0),
            PlacementStrategy::Cluster | PlacementStrategy::Spread => 0,
        };
        if partition.is_some_and(|number| number == 0 || number > partitions) {
            let message = format!("The partition number is not valid for placement group '{id}'.");
            return Err(("InvalidParameterValue".to_owned(), message));
        }
        Ok(())
    }

    /// The partition of a new instance: the one that its launch names, or any.
    pub(super) fn partition(&self, place: Option<&LaunchPlacement>, id: &InstanceId) -> Option<u32> {
        let LaunchPlacement { group, partition } = place?;
        let any = || {
            let count = u64::from(self.placement_groups.get(group)?.partition_count?);
            let drawn = draw(self.config.seed, &["partition", id.as_str()]).checked_rem(count)?;
            u32::try_from(drawn.saturating_add(1)).ok()
        };
        partition.or_else(any)
    }

    /// How many instances more the place takes in a zone, and the error beyond.
    pub(super) fn placement_room(
        &self,
        place: Option<&LaunchPlacement>,
        zone: &Zone,
    ) -> Option<(u32, OverrideError)> {
        let place = place?;
        let group = self.placement_groups.get(&place.group)?;
        match group.strategy {
            PlacementStrategy::Spread => {}
            PlacementStrategy::Cluster | PlacementStrategy::Partition => return None,
        }
        let inside = self.instances.values().filter(|twin| {
            let record = &twin.record;
            record.placement.as_ref().is_some_and(|inside| inside.group == place.group)
                && record.instance.zone == *zone
                && record.instance.state != InstanceState::Terminated
        });
        let room = SPREAD_PER_ZONE.saturating_sub(u32::try_from(inside.count()).unwrap_or(u32::MAX));
        let message = format!(
            "You have reached the limit of {SPREAD_PER_ZONE} instances in the spread placement group '{}' in zone {zone}.",
            group.name
        );
        Some((room, ("InsufficientInstanceCapacity".to_owned(), message)))
    }
}

fn unknown(group: &str) -> String {
    format!("The Placement Group '{group}' is unknown.")
}
