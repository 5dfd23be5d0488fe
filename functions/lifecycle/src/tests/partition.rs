//! Nodes of placement groups with partitions: registered once EC2 told the partition.

use tenon_domain::catalog::facts::PlacementStrategy;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::placement::{LaunchPlacement, ResolvedPlacementGroup};

use super::pool_status::class;
use super::*;

/// A claim whose launch named this partition of a group of that strategy, and what EC2 tells of its instance.
fn check(
    strategy: PlacementStrategy,
    named: Option<u32>,
    told: Option<Option<u32>>,
    expected: Option<Option<&str>>,
) {
    let instance_of = LaunchedInstance {
        placement: Some(LaunchPlacement { group: "pg-1".parse().unwrap(), partition: named }),
        ..held(0)
    };
    let state = ClaimState::Launched { instance: instance_of, at: minutes(1) };
    let mut seen = input(minutes(2), vec![claim(0, state)], vec![not_ready(1)]);
    let group = ResolvedPlacementGroup {
        id: "pg-1".parse().unwrap(),
        name: "near".to_owned(),
        strategy,
        partitions: Some(3),
    };
    let class = ClassStatus { placement_group: Some(group), ..class(&[]) };
    seen.classes.insert(class.name.clone(), class);
    if let Some(partition) = told {
        let found = Instance { partition, ..instance(0, InstanceState::Running, minutes(1)) };
        seen = with_ec2(seen, vec![found]);
    }
    let plan = planned(&seen).0;
    let label = plan
        .actions
        .first()
        .map(|(_, action)| action.labels.get(labels::PLACEMENT_GROUP_PARTITION).map(String::as_str));
    assert_eq!(label, expected, "{strategy} {named:?} {told:?}");
    assert_eq!(plan.asks_ec2, expected.is_none(), "{strategy} {named:?} {told:?}");
}

#[test]
fn a_node_waits_for_the_partition_that_ec2_chose() {
    let partition = PlacementStrategy::Partition;
    check(partition, None, None, None);
    check(partition, None, Some(None), None);
    check(partition, None, Some(Some(3)), Some(Some("3")));
    check(partition, Some(2), None, Some(Some("2")));
    check(PlacementStrategy::Spread, None, None, Some(None));
    check(PlacementStrategy::Cluster, None, None, Some(None));
}
