//! CreateFleet's request and answer.

use tenon_ec2::port::{
    CreateFleetRequest, FleetOverride, FleetTags, InstanceMetadataOptions, MetadataTags, MetadataTokens,
    NetworkInterfaceSpec, OnDemandAllocation, RunInstancesProbe, Tags, TargetCapacityType,
};
use tenon_ec2::{Ec2, ErrorClass};

use super::{block_on, check_form, ec2};

const STORED: &str = include_str!("../../../ec2/golden/create-fleet-request.v1.json");
const LAUNCHED: &str = r#"<CreateFleetResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>r</requestId>
  <fleetId>fleet-0a1b</fleetId>
  <errorSet>
    <item>
      <errorCode>InsufficientInstanceCapacity</errorCode>
      <errorMessage>We currently do not have sufficient m5.large capacity in the Availability Zone you requested (us-east-1a).</errorMessage>
      <launchTemplateAndOverrides>
        <launchTemplateSpecification><launchTemplateId>lt-1</launchTemplateId><version>1</version></launchTemplateSpecification>
        <overrides><instanceType>m5.large</instanceType><subnetId>subnet-1</subnetId><availabilityZone>us-east-1a</availabilityZone><imageId>ami-1</imageId></overrides>
      </launchTemplateAndOverrides>
      <lifecycle>spot</lifecycle>
    </item>
  </errorSet>
  <fleetInstanceSet>
    <item>
      <launchTemplateAndOverrides>
        <launchTemplateSpecification><launchTemplateId>lt-1</launchTemplateId><version>1</version></launchTemplateSpecification>
        <overrides><instanceType>c5.large</instanceType><subnetId>subnet-2</subnetId><availabilityZone>us-east-1b</availabilityZone><imageId>ami-1</imageId></overrides>
      </launchTemplateAndOverrides>
      <lifecycle>spot</lifecycle>
      <instanceIds><item>i-0b</item><item>i-0a</item></instanceIds>
      <instanceType>c5.large</instanceType>
    </item>
  </fleetInstanceSet>
</CreateFleetResponse>"#;

fn request() -> CreateFleetRequest {
    CreateFleetRequest::from_stored(STORED).unwrap()
}

/// The stored request with a second way to launch.
fn request_of_two() -> CreateFleetRequest {
    let mut request = request();
    let second = FleetOverride {
        instance_type: "c5.large".parse().unwrap(),
        subnet: "subnet-2".parse().ok(),
        zone: None,
        image: "ami-1".parse().ok(),
        priority: Some(3),
    };
    request.launch_templates[0].overrides.push(second);
    request
}

#[test]
fn a_stored_request_is_sent_as_it_was_committed() {
    let (ec2, http) = ec2(&[(200, LAUNCHED)]);
    block_on(ec2.create_fleet(&request())).unwrap();
    check_form(
        &http.sent()[0],
        &[
            ("Action", "CreateFleet"),
            ("ClientToken", "token-1"),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", "tenon-abc"),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version", "$Latest"),
            ("LaunchTemplateConfigs.1.Overrides.1.AvailabilityZone", "us-east-1a"),
            ("LaunchTemplateConfigs.1.Overrides.1.ImageId", "ami-1"),
            ("LaunchTemplateConfigs.1.Overrides.1.InstanceType", "m5.large"),
            ("LaunchTemplateConfigs.1.Overrides.1.SubnetId", "subnet-1"),
            ("SpotOptions.AllocationStrategy", "price-capacity-optimized"),
            ("TagSpecification.1.ResourceType", "instance"),
            ("TagSpecification.1.Tag.1.Key", "a"),
            ("TagSpecification.1.Tag.1.Value", "1"),
            ("TagSpecification.1.Tag.2.Key", "b"),
            ("TagSpecification.1.Tag.2.Value", "2"),
            ("TargetCapacitySpecification.DefaultTargetCapacityType", "spot"),
            ("TargetCapacitySpecification.TotalTargetCapacity", "2"),
            ("Type", "instant"),
        ],
    );
}

#[test]
fn a_replay_is_the_same_bytes() {
    let bodies: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let (ec2, http) = ec2(&[(200, LAUNCHED)]);
            block_on(ec2.create_fleet(&request_of_two())).unwrap();
            http.sent().remove(0).body
        })
        .collect();
    assert_eq!(bodies[0], bodies[1]);
}

#[test]
fn on_demand_fleets_say_their_own_order_and_all_tags() {
    let mut request = request();
    request.capacity_type = TargetCapacityType::OnDemand;
    request.on_demand_allocation = OnDemandAllocation::Prioritized;
    request.launch_templates[0].overrides[0].priority = Some(7);
    request.context = Some("cr".to_owned());
    request.tags = FleetTags {
        instance: Tags::new(),
        volume: Tags::from([("v".to_owned(), "1".to_owned())]),
        fleet: Tags::from([("f".to_owned(), "1".to_owned())]),
    };
    let (ec2, http) = ec2(&[(200, LAUNCHED)]);
    block_on(ec2.create_fleet(&request)).unwrap();
    let form = &super::forms(&http)[0];
    for (key, value) in [
        ("OnDemandOptions.AllocationStrategy", "prioritized"),
        ("TargetCapacitySpecification.DefaultTargetCapacityType", "on-demand"),
        ("LaunchTemplateConfigs.1.Overrides.1.Priority", "7.0"),
        ("TagSpecification.1.ResourceType", "volume"),
        ("TagSpecification.2.ResourceType", "fleet"),
        ("Context", "cr"),
    ] {
        assert_eq!(form.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert!(!form.contains_key("SpotOptions.AllocationStrategy"));
}

#[test]
fn what_was_launched_and_what_was_not_names_its_override() {
    let request = request_of_two();
    let (ec2, _) = ec2(&[(200, LAUNCHED)]);
    let result = block_on(ec2.create_fleet(&request)).unwrap();
    assert_eq!(result.fleet_id.as_str(), "fleet-0a1b");
    let [launched] = result.instances.as_slice() else { panic!("{result:?}") };
    let ids: Vec<&str> = launched.ids.iter().map(AsRef::as_ref).collect();
    assert_eq!(ids, ["i-0a", "i-0b"]);
    assert_eq!(launched.capacity_type, TargetCapacityType::Spot);
    // As in the request: without the zone that EC2 added, and with its priority.
    assert_eq!(launched.from, request.launch_templates[0].overrides[1]);
    assert_eq!(launched.launch_template, "tenon-abc");
    let [error] = result.errors.as_slice() else { panic!("{result:?}") };
    assert_eq!(error.from.as_ref(), request.launch_templates[0].overrides.first());
    assert_eq!(error.class(), ErrorClass::InsufficientCapacity);
}

#[test]
fn an_item_about_no_override_of_the_request_is_told_as_ec2_tells_it() {
    let (ec2, _) = ec2(&[(200, LAUNCHED)]);
    let result = block_on(ec2.create_fleet(&request())).unwrap();
    let from = &result.instances[0].from;
    assert_eq!(
        (from.instance_type.as_str(), from.zone.as_ref().unwrap().as_str()),
        ("c5.large", "us-east-1b")
    );
}

#[test]
fn an_error_blames_an_override_only_where_it_names_it() {
    let mut request = request_of_two();
    let first = request.launch_templates[0].overrides[0].clone();
    let elsewhere =
        FleetOverride { subnet: "subnet-2".parse().ok(), zone: "us-east-1b".parse().ok(), ..first.clone() };
    request.launch_templates[0].overrides.push(elsewhere);
    let check = |overrides: &str, expected: Option<FleetOverride>| {
        let body = format!(
            "<CreateFleetResponse><fleetId>fleet-1</fleetId><errorSet><item>\
             <errorCode>MaxFleetCountExceeded</errorCode>{overrides}</item></errorSet></CreateFleetResponse>"
        );
        let (ec2, _) = ec2(&[(200, &body)]);
        let result = block_on(ec2.create_fleet(&request)).unwrap();
        assert_eq!(result.errors[0].from, expected, "{overrides}");
    };
    let with = |overrides: &str| {
        format!("<launchTemplateAndOverrides><overrides>{overrides}</overrides></launchTemplateAndOverrides>")
    };
    check("", None);
    check(&with(""), None);
    check(&with("<subnetId>subnet-1</subnetId>"), None);
    check(
        &with("<instanceType>m5.large</instanceType><availabilityZone>us-east-1a</availabilityZone>"),
        Some(first.clone()),
    );
    // Both zones have the type.
    let either = FleetOverride { subnet: None, zone: None, image: None, priority: None, ..first };
    check(&with("<instanceType>m5.large</instanceType>"), Some(either));
}

#[test]
fn instances_of_one_override_are_one_item() {
    let one = |id: &str| {
        format!(
            "<item><lifecycle>spot</lifecycle><instanceIds><item>{id}</item></instanceIds><instanceType>m5.large</instanceType></item>"
        )
    };
    let body = format!(
        "<CreateFleetResponse><fleetId>fleet-1</fleetId><fleetInstanceSet>{}{}</fleetInstanceSet></CreateFleetResponse>",
        one("i-2"),
        one("i-1")
    );
    let (ec2, _) = ec2(&[(200, &body)]);
    let result = block_on(ec2.create_fleet(&request())).unwrap();
    assert_eq!(result.instances.len(), 1);
    assert_eq!(result.instances[0].ids, result.instance_ids());
}

#[test]
fn a_probe_asks_for_one_instance_that_is_not_launched() {
    let probe = RunInstancesProbe {
        launch_template: "tenon-abc".to_owned(),
        version: "$Latest".to_owned(),
        with: request().launch_templates[0].overrides[0].clone(),
        capacity_type: TargetCapacityType::OnDemand,
        tags: FleetTags { fleet: Tags::from([("f".to_owned(), "1".to_owned())]), ..FleetTags::default() },
        network_interface_tags: Tags::new(),
        spot_request_tags: Tags::new(),
        metadata_options: None,
        network_interfaces: Vec::new(),
        security_groups: Vec::new(),
    };
    let allowed = "<Response><Errors><Error><Code>DryRunOperation</Code><Message>m</Message></Error></Errors></Response>";
    let (ec2, http) = ec2(&[(412, allowed), (412, allowed)]);
    block_on(ec2.dry_run_run_instances(&probe)).unwrap();
    let with_options = RunInstancesProbe {
        capacity_type: TargetCapacityType::Spot,
        network_interface_tags: Tags::from([("n".to_owned(), "1".to_owned())]),
        spot_request_tags: Tags::from([("s".to_owned(), "1".to_owned())]),
        metadata_options: Some(InstanceMetadataOptions {
            http_endpoint: "enabled".to_owned(),
            http_protocol_ipv6: "disabled".to_owned(),
            http_put_response_hop_limit: 1,
            http_tokens: MetadataTokens::Required,
            tags: MetadataTags::Disabled,
        }),
        network_interfaces: vec![NetworkInterfaceSpec::default()],
        ..probe.clone()
    };
    block_on(ec2.dry_run_run_instances(&with_options)).unwrap();
    let optional = super::forms(&http).remove(1);
    assert_eq!(optional["InstanceMarketOptions.MarketType"], "spot");
    assert_eq!(optional["MetadataOptions.HttpTokens"], "required");
    assert_eq!(optional["MetadataOptions.InstanceMetadataTags"], "disabled");
    assert_eq!(optional["NetworkInterface.1.SubnetId"], "subnet-1");
    assert_eq!(optional["TagSpecification.1.ResourceType"], "network-interface");
    assert_eq!(optional["TagSpecification.1.Tag.1.Key"], "n");
    assert_eq!(optional["TagSpecification.2.ResourceType"], "spot-instances-request");
    assert_eq!(optional["TagSpecification.2.Tag.1.Key"], "s");
    assert!(!optional.contains_key("SubnetId"), "{optional:?}");
    let mut form = super::forms(&http).remove(0);
    // RunInstances' own token: of a dry run nothing can be replayed.
    form.remove("ClientToken");
    let expected = [
        ("Action", "RunInstances"),
        ("DryRun", "true"),
        ("ImageId", "ami-1"),
        ("InstanceType", "m5.large"),
        ("LaunchTemplate.LaunchTemplateName", "tenon-abc"),
        ("LaunchTemplate.Version", "$Latest"),
        ("MaxCount", "1"),
        ("MinCount", "1"),
        ("Placement.AvailabilityZone", "us-east-1a"),
        ("SubnetId", "subnet-1"),
        ("Version", "2016-11-15"),
    ];
    assert_eq!(form, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
}
