//! Placement groups: who is launched into which.

use super::*;
use tenon_domain::api::node_class::PlacementGroupSelector;
use tenon_domain::catalog::facts::PlacementStrategy;
use tenon_domain::placement::LaunchPlacement;

fn group(id: &str, strategy: PlacementStrategy) -> PlacementGroup {
    let partition_count = (strategy == PlacementStrategy::Partition).then_some(3);
    PlacementGroup { id: id.parse().unwrap(), name: format!("named-{id}"), strategy, partition_count }
}

impl TwinWorld {
    /// A fleet from a template of that name with this placement.
    fn launch_at(&self, name: &str, group: &str, partition: Option<u32>, count: u32) -> FleetResult {
        let placement = Some(LaunchPlacement { group: group.parse().unwrap(), partition });
        let data = LaunchTemplateData {
            image: Some(self.image.clone()),
            placement,
            ..LaunchTemplateData::default()
        };
        let template = CreateLaunchTemplate { name: name.to_owned(), data, tags: Tags::new() };
        now(self.twin.create_launch_template(&template)).unwrap();
        let mut request = fleet(name, count, &[over("m5.large", "us-east-1a")]);
        request.launch_templates[0].name = name.to_owned();
        self.launch(&request)
    }
}

#[test]
fn a_spread_group_takes_seven_instances_in_a_zone() {
    let world = TwinWorld::plain();
    world.twin.create_placement_group(group("pg-1", PlacementStrategy::Spread));
    let result = world.launch_at("first", "pg-1", None, 8);
    assert_eq!(result.instance_ids().len(), 7);
    let class = result.errors.first().unwrap().class();
    assert_eq!(class, ErrorClass::PlacementGroup);
    let last = result.instance_ids().remove(0);
    now(world.twin.terminate_instances(&[last])).unwrap();
    world.pass(MINUTE);
    assert_eq!(world.launch_at("second", "pg-1", None, 2).instance_ids().len(), 1);
}

#[test]
fn a_group_must_exist_and_have_the_partition() {
    let world = TwinWorld::plain();
    world.twin.create_placement_group(group("pg-1", PlacementStrategy::Partition));
    world.twin.create_placement_group(group("pg-2", PlacementStrategy::Cluster));
    assert_eq!(world.launch_at("inside", "pg-1", Some(3), 2).instance_ids().len(), 2);
    assert_eq!(codes_of(&world.launch_at("beyond", "pg-1", Some(4), 1)), ["InvalidParameterValue"]);
    assert_eq!(codes_of(&world.launch_at("none", "pg-2", Some(1), 1)), ["InvalidParameterValue"]);
    assert_eq!(world.launch_at("near", "pg-2", None, 9).instance_ids().len(), 9);
    world.twin.delete_placement_group(&"pg-2".parse().unwrap());
    assert_eq!(codes_of(&world.launch_at("gone", "pg-2", None, 1)), ["InvalidPlacementGroup.Unknown"]);
}

#[test]
fn a_group_is_found_by_id_and_by_name() {
    let world = TwinWorld::plain();
    let made = group("pg-1", PlacementStrategy::Spread);
    world.twin.create_placement_group(made.clone());
    let find = |of| now(world.twin.describe_placement_groups(&of));
    assert_eq!(
        find(PlacementGroupSelector::Name("named-pg-1".to_owned())).unwrap(),
        std::slice::from_ref(&made)
    );
    assert_eq!(find(PlacementGroupSelector::Id(made.id.clone())).unwrap(), [made]);
    let error = find(PlacementGroupSelector::Name("other".to_owned())).unwrap_err();
    assert_eq!(error.class(), ErrorClass::NotFound);
}
