//! Placement groups of classes, launches and instances, and their tenancy.
//!
//! Decides the partition and the tenancy that a launch asks for, and the labels of its nodes. `node-classes` decides which group a
//! class has. It doesn't decide in which partition EC2 puts an instance whose launch asks for none.
//!
//! Source: aws/karpenter-provider-aws `pkg/providers/instancetype/offering/placement_group_resolver.go`;
//! "Placement strategies for your placement groups" of the EC2 user guide (read November 2026).

use crate::catalog::facts::PlacementStrategy;
use crate::id::PlacementGroupId;
use crate::labels;
use crate::requirement::Requirements;

/// The most partitions of a group. Source: the EC2 user guide, partition placement groups.
const MAX_PARTITIONS: u32 = 7;

crate::words! {
    /// Whose hardware an instance runs on. Its words are EC2's, also the values of
    /// `karpenter.k8s.aws/instance-tenancy`.
    #[derive(Default)]
    pub enum Tenancy else Dedicated {
        /// Hardware that accounts share.
        #[default]
        Default = "default",
        /// Hardware of the account alone.
        Dedicated = "dedicated",
    }
}

impl Tenancy {
    /// The tenancy of a launch with these requirements: dedicated only if they rule out the other, as with the peer
    /// (aws/karpenter-provider-aws `pkg/providers/instance/instance.go`).
    #[must_use]
    pub fn of(requirements: &Requirements) -> Self {
        if requirements.allows(labels::INSTANCE_TENANCY, Self::Default.as_str()) {
            Self::Default
        } else {
            Self::Dedicated
        }
    }
}

/// The placement group that a class resolved to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedPlacementGroup {
    /// The group.
    pub id: PlacementGroupId,
    /// Its name.
    pub name: String,
    /// Its strategy.
    pub strategy: PlacementStrategy,
    /// How many partitions it has; only with the strategy `partition`.
    pub partitions: Option<u32>,
}

impl ResolvedPlacementGroup {
    /// The numbers of its partitions, as labels have them.
    pub fn partition_numbers(&self) -> impl Iterator<Item = u32> + use<> {
        let count = match self.strategy {
            PlacementStrategy::Partition => self.partitions.unwrap_or(0).min(MAX_PARTITIONS),
            PlacementStrategy::Cluster | PlacementStrategy::Spread => 0,
        };
        1..=count
    }

    /// The place of a launch with these requirements. It names the lowest partition that they allow; without a
    /// requirement on partitions it names none, and EC2 spreads the instances.
    #[must_use]
    pub fn place(&self, requirements: &Requirements) -> LaunchPlacement {
        let key = labels::PLACEMENT_GROUP_PARTITION;
        let asked = requirements.contains(key);
        let partition =
            self.partition_numbers().find(|number| asked && requirements.allows(key, &number.to_string()));
        LaunchPlacement { group: self.id.clone(), partition }
    }
}

/// The placement group that a launch names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchPlacement {
    /// The group.
    pub group: PlacementGroupId,
    /// The partition, if the launch names one.
    pub partition: Option<u32>,
}

impl LaunchPlacement {
    /// The labels of its nodes.
    pub fn labels(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let partition = self.partition.map(|number| (labels::PLACEMENT_GROUP_PARTITION, number.to_string()));
        std::iter::once((labels::PLACEMENT_GROUP_ID, self.group.to_string())).chain(partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirement::Requirement;

    fn check(strategy: PlacementStrategy, allowed: Option<&[&str]>, expected: Option<u32>) {
        let group = ResolvedPlacementGroup {
            id: PlacementGroupId::parse("pg-1").unwrap(),
            name: "near".to_owned(),
            strategy,
            partitions: Some(3),
        };
        let mut requirements = Requirements::new();
        if let Some(allowed) = allowed {
            requirements.add(Requirement::one_of(labels::PLACEMENT_GROUP_PARTITION, allowed.iter().copied()));
        }
        assert_eq!(group.place(&requirements).partition, expected, "{strategy} {allowed:?}");
    }

    #[test]
    fn a_launch_names_the_lowest_partition_that_it_may() {
        check(PlacementStrategy::Partition, None, None);
        check(PlacementStrategy::Partition, Some(&["3", "2"]), Some(2));
        check(PlacementStrategy::Partition, Some(&["4"]), None);
        check(PlacementStrategy::Spread, Some(&["2"]), None);
        check(PlacementStrategy::Cluster, None, None);
    }

    #[test]
    fn a_launch_is_dedicated_only_if_its_requirements_leave_nothing_else() {
        let check = |requirement: Option<Requirement>, expected| {
            let requirements: Requirements = requirement.into_iter().collect();
            assert_eq!(Tenancy::of(&requirements), expected, "{requirements:?}");
        };
        let key = labels::INSTANCE_TENANCY;
        check(None, Tenancy::Default);
        check(Some(Requirement::exists(key)), Tenancy::Default);
        check(Some(Requirement::one_of(key, ["default", "dedicated"])), Tenancy::Default);
        check(Some(Requirement::one_of(key, ["dedicated"])), Tenancy::Dedicated);
        check(Some(Requirement::none_of(key, ["default"])), Tenancy::Dedicated);
    }

    #[test]
    fn nodes_have_the_group_and_a_named_partition_as_labels() {
        let labels = |partition| -> Vec<String> {
            let group = PlacementGroupId::parse("pg-1").unwrap();
            let placed = LaunchPlacement { group, partition };
            placed.labels().map(|(key, value)| format!("{key}={value}")).collect()
        };
        assert_eq!(labels(None), ["karpenter.k8s.aws/placement-group-id=pg-1"]);
        assert_eq!(
            labels(Some(2)),
            ["karpenter.k8s.aws/placement-group-id=pg-1", "karpenter.k8s.aws/placement-group-partition=2"]
        );
    }
}
