//! Lists: requests, paging, and reading of items.

use std::collections::BTreeMap;

use tenon_domain::api::node_class::PlacementGroupSelector;
use tenon_domain::catalog::describe::{Limits, facts};
use tenon_domain::catalog::facts::PlacementStrategy;
use tenon_domain::reservation::{MatchCriteria, ReservationKind};
use tenon_ec2::Ec2;
use tenon_ec2::port::{
    BootMode, CapacityReservationFilter, DisabledImages, EnaSupport, ImageArchitecture, ImageFacts,
    ImageFilter, ImagePlatform, ImageState, ImageVolume, InstanceFilter, InstanceState, InstanceStatusFilter,
    LocationType, PageToken, PlacementGroup, ResourceFilter, RootDeviceType, ScheduledEvent,
    ScheduledEventCode, SnapshotState, StatusCheck, TagFilter, TargetCapacityType,
};

use super::{block_on, check_form, ec2};

const TYPES: &str = r#"<DescribeInstanceTypesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>r</requestId>
  <instanceTypeSet>
    <item>
      <instanceType>inf1.xlarge</instanceType><bareMetal>false</bareMetal><currentGeneration>true</currentGeneration>
      <hypervisor>nitro</hypervisor><nitroEnclavesSupport>supported</nitroEnclavesSupport>
      <burstablePerformanceSupported>false</burstablePerformanceSupported>
      <supportedUsageClasses><item>on-demand</item><item>spot</item></supportedUsageClasses>
      <supportedVirtualizationTypes><item>hvm</item></supportedVirtualizationTypes>
      <vCpuInfo><defaultVCpus>4</defaultVCpus></vCpuInfo>
      <memoryInfo><sizeInMiB>8192</sizeInMiB></memoryInfo>
      <processorInfo>
        <supportedArchitectures><item>x86_64</item></supportedArchitectures>
        <sustainedClockSpeedInGhz>2.5</sustainedClockSpeedInGhz><manufacturer>Intel</manufacturer>
      </processorInfo>
      <inferenceAcceleratorInfo><accelerators>
        <member><count>1</count><name>Inferentia</name><manufacturer>AWS</manufacturer></member>
      </accelerators></inferenceAcceleratorInfo>
      <ebsInfo><ebsOptimizedSupport>default</ebsOptimizedSupport>
        <ebsOptimizedInfo><maximumBandwidthInMbps>4750</maximumBandwidthInMbps></ebsOptimizedInfo></ebsInfo>
      <networkInfo>
        <defaultNetworkCardIndex>0</defaultNetworkCardIndex><ipv4AddressesPerInterface>10</ipv4AddressesPerInterface>
        <enaSupport>required</enaSupport><encryptionInTransitSupported>true</encryptionInTransitSupported>
        <networkCards><item><networkCardIndex>0</networkCardIndex><maximumNetworkInterfaces>4</maximumNetworkInterfaces></item></networkCards>
      </networkInfo>
      <placementGroupInfo><supportedStrategies><item>cluster</item><item>spread</item></supportedStrategies></placementGroupInfo>
    </item>
    <item><instanceType>zz9.future</instanceType></item>
  </instanceTypeSet>
  <nextToken>more</nextToken>
</DescribeInstanceTypesResponse>"#;

#[test]
fn instance_types_are_read_field_by_field() {
    let (ec2, http) = ec2(&[(200, TYPES)]);
    let page = block_on(ec2.describe_instance_types(Some(PageToken("t".to_owned())))).unwrap();
    check_form(
        &http.sent()[0],
        &[("Action", "DescribeInstanceTypes"), ("MaxResults", "100"), ("NextToken", "t")],
    );
    assert_eq!(page.next, Some(PageToken("more".to_owned())));
    let facts = facts(&page.items[0], &Limits::default()).unwrap();
    assert_eq!((facts.vcpus, facts.memory_mib, facts.processor.clock_speed_mhz), (4, 8192, Some(2500)));
    assert_eq!(facts.inference_accelerators[0].name, "Inferentia");
    assert_eq!((facts.ebs.max_bandwidth_mbps, facts.network.ipv4_per_interface), (Some(4750), 10));
    assert_eq!(facts.usage_classes.len(), 2);
    assert_eq!(facts.placement_strategies.len(), 2);
    // A type with few fields that the SDK doesn't know: kept by its name.
    assert_eq!(page.items[1].instance_type.as_deref(), Some("zz9.future"));
}

#[test]
fn offerings_and_zones_are_those_of_the_account() {
    let offerings = r#"<DescribeInstanceTypeOfferingsResponse><instanceTypeOfferingSet>
        <item><instanceType>m5.large</instanceType><locationType>availability-zone-id</locationType><location>use1-az1</location></item>
      </instanceTypeOfferingSet></DescribeInstanceTypeOfferingsResponse>"#;
    let zones = r#"<DescribeAvailabilityZonesResponse><availabilityZoneInfo>
        <item><zoneName>us-east-1b</zoneName><zoneId>use1-az2</zoneId><zoneState>available</zoneState><optInStatus>opt-in-not-required</optInStatus></item>
        <item><zoneName>us-east-1a</zoneName><zoneId>use1-az1</zoneId><zoneState>available</zoneState><optInStatus>opt-in-not-required</optInStatus></item>
        <item><zoneName>us-east-1-bos-1a</zoneName><zoneId>use1-bos1-az1</zoneId><zoneState>available</zoneState><optInStatus>not-opted-in</optInStatus></item>
      </availabilityZoneInfo></DescribeAvailabilityZonesResponse>"#;
    let (ec2, http) = ec2(&[(200, offerings), (200, zones)]);
    let page =
        block_on(ec2.describe_instance_type_offerings(LocationType::AvailabilityZoneId, None)).unwrap();
    assert_eq!((page.items[0].location.as_str(), page.next), ("use1-az1", None));
    check_form(
        &http.sent()[0],
        &[
            ("Action", "DescribeInstanceTypeOfferings"),
            ("LocationType", "availability-zone-id"),
            ("MaxResults", "1000"),
        ],
    );
    let zones = block_on(ec2.describe_availability_zones()).unwrap();
    let names: Vec<&str> = zones.iter().map(|zone| zone.name.as_str()).collect();
    assert_eq!(names, ["us-east-1a", "us-east-1b"]);
}

fn image(id: &str, state: &str) -> String {
    format!(
        "<item><imageId>{id}</imageId><imageState>{state}</imageState><imageOwnerId>602401143452</imageOwnerId><imageOwnerAlias>amazon</imageOwnerAlias><name>node-{id}</name><architecture>arm64</architecture><creationDate>2026-05-04T03:02:01.000Z</creationDate><deprecationTime>2028-05-04T03:02:01.000Z</deprecationTime><platform>windows</platform><bootMode>uefi</bootMode><enaSupport>true</enaSupport><rootDeviceType>ebs</rootDeviceType><rootDeviceName>/dev/xvda</rootDeviceName><blockDeviceMapping><item><deviceName>/dev/xvda</deviceName><ebs><snapshotId>snap-1</snapshotId><volumeSize>20</volumeSize><encrypted>false</encrypted></ebs></item><item><deviceName>/dev/sdb</deviceName><virtualName>ephemeral0</virtualName></item></blockDeviceMapping><tagSet><item><key>k</key><value>v</value></item></tagSet></item>"
    )
}

#[test]
fn images_are_asked_for_with_the_filter_and_read_in_every_state() {
    let states = [
        ("pending", ImageState::Pending),
        ("available", ImageState::Available),
        ("failed", ImageState::Failed),
        ("deregistered", ImageState::Deregistered),
        ("disabled", ImageState::Disabled),
        ("invalid", ImageState::Invalid),
        ("transient", ImageState::Invalid),
        ("error", ImageState::Invalid),
        ("something-new", ImageState::Invalid),
    ];
    let items: String = states.iter().map(|(word, _)| image("ami-1", word)).collect();
    let body = format!("<DescribeImagesResponse><imagesSet>{items}</imagesSet></DescribeImagesResponse>");
    let (ec2, http) = ec2(&[(200, &body)]);
    let filter = ImageFilter {
        owners: vec!["self".to_owned()],
        names: vec!["node-*".to_owned()],
        tags: vec![TagFilter::equals("k", "v")],
        states: vec![ImageState::Pending],
        disabled: DisabledImages::Omit,
        ids: vec![],
    };
    let page = block_on(ec2.describe_images(&filter, None)).unwrap();
    let found: Vec<ImageState> = page.items.iter().map(|image| image.state).collect();
    assert_eq!(found, states.map(|(_, state)| state));
    let image = &page.items[0];
    assert_eq!((image.owner.as_str(), image.owner_alias.as_deref()), ("602401143452", Some("amazon")));
    assert_eq!(image.architecture, Some(ImageArchitecture::Arm64));
    assert_eq!(image.created_at.unwrap().to_string(), "2026-05-04T03:02:01Z");
    assert_eq!(image.deprecated_at.unwrap().to_string(), "2028-05-04T03:02:01Z");
    assert_eq!(image.tags["k"], "v");
    let root =
        ImageVolume { snapshot: Some("snap-1".to_owned()), size_gib: Some(20), encrypted: Some(false) };
    let facts = ImageFacts {
        boot_mode: Some(BootMode::Uefi),
        ena: Some(EnaSupport::Enabled),
        platform: Some(ImagePlatform::Windows),
        root_device_type: Some(RootDeviceType::Ebs),
        root_device_name: Some("/dev/xvda".to_owned()),
        volumes: BTreeMap::from([("/dev/xvda".to_owned(), root)]),
    };
    assert_eq!(image.facts, facts);
    check_form(
        &http.sent()[0],
        &[
            ("Action", "DescribeImages"),
            ("Filter.1.Name", "name"),
            ("Filter.1.Value.1", "node-*"),
            ("Filter.2.Name", "state"),
            ("Filter.2.Value.1", "pending"),
            ("Filter.3.Name", "tag:k"),
            ("Filter.3.Value.1", "v"),
            ("IncludeDeprecated", "true"),
            ("IncludeDisabled", "false"),
            ("MaxResults", "1000"),
            ("Owner.1", "self"),
        ],
    );
}

#[test]
fn images_by_id_come_whole_because_ec2_takes_no_page_size_there() {
    let (ec2, http) = ec2(&[(200, "<DescribeImagesResponse><imagesSet/></DescribeImagesResponse>")]);
    let filter = ImageFilter { ids: vec!["ami-1".parse().unwrap()], ..ImageFilter::default() };
    block_on(ec2.describe_images(&filter, None)).unwrap();
    check_form(
        &http.sent()[0],
        &[
            ("Action", "DescribeImages"),
            ("ImageId.1", "ami-1"),
            ("IncludeDeprecated", "true"),
            ("IncludeDisabled", "true"),
        ],
    );
}

fn subnets(id: &str, next: &str) -> String {
    format!(
        "<DescribeSubnetsResponse><subnetSet><item><subnetId>{id}</subnetId><vpcId>vpc-1</vpcId><cidrBlock>10.0.0.0/19</cidrBlock><availableIpAddressCount>8187</availableIpAddressCount><availabilityZone>us-east-1a</availabilityZone><availabilityZoneId>use1-az1</availabilityZoneId></item></subnetSet>{next}</DescribeSubnetsResponse>"
    )
}

#[test]
fn subnets_are_read_to_their_last_page() {
    let first = subnets("subnet-2", "<nextToken>n</nextToken>");
    let (ec2, http) = ec2(&[(200, &first), (200, &subnets("subnet-1", ""))]);
    let filter = ResourceFilter { tags: vec![TagFilter::exists("k")], ..ResourceFilter::default() };
    let found = block_on(ec2.describe_subnets(&filter)).unwrap();
    let ids: Vec<&str> = found.iter().map(|subnet| subnet.id.as_str()).collect();
    assert_eq!(ids, ["subnet-1", "subnet-2"]);
    assert_eq!((found[0].available_addresses, found[0].zone_id.as_str()), (8187, "use1-az1"));
    let forms = super::forms(&http);
    assert_eq!(forms[0].get("NextToken"), None);
    assert_eq!(forms[1]["NextToken"], "n");
    assert_eq!(forms[1]["MaxResults"], "1000");
}

#[test]
fn a_list_that_never_ends_is_an_error() {
    let page = subnets("subnet-1", "<nextToken>n</nextToken>");
    let (ec2, _) = ec2(&vec![(200, page.as_str()); 30]);
    let error = block_on(ec2.describe_subnets(&ResourceFilter::default())).unwrap_err();
    assert!(error.to_string().contains("more than 25 pages"), "{error}");
}

#[test]
fn active_reservations_are_asked_for_with_their_kinds() {
    let item = |more: &str| {
        format!(
            "<item><capacityReservationId>cr-1</capacityReservationId><ownerId>111122223333</ownerId>\
             <instanceType>m5.large</instanceType><availabilityZone>us-east-1a</availabilityZone>\
             <instanceMatchCriteria>targeted</instanceMatchCriteria><state>active</state>\
             <availableInstanceCount>3</availableInstanceCount>{more}</item>"
        )
    };
    let items = [
        item(""),
        item("<reservationType>default</reservationType><interruptible>true</interruptible>"),
        item("<reservationType>capacity-block</reservationType><endDate>2026-05-04T03:02:01.000Z</endDate>"),
    ]
    .concat();
    let body = format!(
        "<DescribeCapacityReservationsResponse><capacityReservationSet>{items}</capacityReservationSet>\
         </DescribeCapacityReservationsResponse>"
    );
    let (ec2, http) = ec2(&[(200, body.as_str())]);
    let filter = CapacityReservationFilter {
        owner: Some("111122223333".to_owned()),
        match_criteria: Some(MatchCriteria::Targeted),
        tags: vec![TagFilter::equals("team", "ml")],
        ..CapacityReservationFilter::default()
    };
    let found = block_on(ec2.describe_capacity_reservations(&filter)).unwrap();
    let kinds: Vec<(ReservationKind, u32)> = found.iter().map(|one| (one.kind, one.available)).collect();
    assert_eq!(
        kinds,
        [
            (ReservationKind::Default, 3),
            (ReservationKind::CapacityBlock, 3),
            (ReservationKind::Interruptible, 3)
        ]
    );
    assert_eq!(found[1].ends_at.unwrap().to_string(), "2026-05-04T03:02:01Z");
    check_form(
        &http.sent()[0],
        &[
            ("Action", "DescribeCapacityReservations"),
            ("Filter.1.Name", "state"),
            ("Filter.1.Value.1", "active"),
            ("Filter.2.Name", "owner-id"),
            ("Filter.2.Value.1", "111122223333"),
            ("Filter.3.Name", "instance-match-criteria"),
            ("Filter.3.Value.1", "targeted"),
            ("Filter.4.Name", "tag:team"),
            ("Filter.4.Value.1", "ml"),
            ("MaxResults", "1000"),
        ],
    );
}

#[test]
fn snapshots_are_asked_for_by_id_with_their_owner_and_tags() {
    let body = "<DescribeSnapshotsResponse><snapshotSet><item><snapshotId>snap-1</snapshotId><ownerId>111122223333</ownerId><status>pending</status><tagSet><item><key>team</key><value>web</value></item></tagSet></item><item><snapshotId>snap-2</snapshotId><ownerId>999999999999</ownerId><ownerAlias>amazon</ownerAlias></item></snapshotSet></DescribeSnapshotsResponse>";
    let (ec2, http) = ec2(&[(200, body)]);
    let ids = vec!["snap-1".to_owned(), "snap-2".to_owned()];
    let found =
        block_on(ec2.describe_snapshots(&ResourceFilter { ids, ..ResourceFilter::default() })).unwrap();
    assert_eq!((found[0].id.as_str(), found[0].owner.as_str()), ("snap-1", "111122223333"));
    assert_eq!(found[0].tags["team"], "web");
    assert_eq!([found[0].state, found[1].state], [Some(SnapshotState::Pending), None]);
    assert_eq!(found[1].owner_alias.as_deref(), Some("amazon"));
    check_form(
        &http.sent()[0],
        &[("Action", "DescribeSnapshots"), ("SnapshotId.1", "snap-1"), ("SnapshotId.2", "snap-2")],
    );
}

#[test]
fn security_groups_are_asked_for_by_name_and_tag() {
    let body = "<DescribeSecurityGroupsResponse><securityGroupInfo><item><groupId>sg-1</groupId><groupName>nodes</groupName><vpcId>vpc-1</vpcId></item></securityGroupInfo></DescribeSecurityGroupsResponse>";
    let (ec2, http) = ec2(&[(200, body)]);
    let filter = ResourceFilter {
        names: vec!["nod*".to_owned()],
        tags: vec![TagFilter::exists("k")],
        ..ResourceFilter::default()
    };
    let found = block_on(ec2.describe_security_groups(&filter)).unwrap();
    assert_eq!((found[0].id.as_str(), found[0].name.as_str()), ("sg-1", "nodes"));
    check_form(
        &http.sent()[0],
        &[
            ("Action", "DescribeSecurityGroups"),
            ("Filter.1.Name", "group-name"),
            ("Filter.1.Value.1", "nod*"),
            ("Filter.2.Name", "tag-key"),
            ("Filter.2.Value.1", "k"),
            ("MaxResults", "1000"),
        ],
    );
}

const INSTANCES: &str = r#"<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <reservationSet>
    <item><reservationId>r-1</reservationId><instancesSet><item>
      <instanceId>i-1</instanceId><imageId>ami-1</imageId><instanceState><code>16</code><name>running</name></instanceState>
      <privateDnsName>ip-10-0-0-4.ec2.internal</privateDnsName><instanceType>m5.large</instanceType>
      <launchTime>2026-05-04T03:02:01.000Z</launchTime>
      <placement><availabilityZone>us-east-1a</availabilityZone><availabilityZoneId>use1-az1</availabilityZoneId></placement>
      <subnetId>subnet-1</subnetId><vpcId>vpc-1</vpcId><privateIpAddress>10.0.0.4</privateIpAddress>
      <groupSet><item><groupId>sg-1</groupId><groupName>nodes</groupName></item></groupSet>
      <architecture>x86_64</architecture><instanceLifecycle>spot</instanceLifecycle><clientToken>token-1</clientToken>
      <tagSet><item><key>aws:ec2:fleet-id</key><value>fleet-1</value></item><item><key>empty</key><value/></item></tagSet>
    </item></instancesSet></item>
    <item><reservationId>r-2</reservationId><instancesSet><item>
      <instanceId>i-2</instanceId><imageId>ami-1</imageId><instanceState><code>48</code><name>terminated</name></instanceState>
      <privateDnsName/><reason>User initiated</reason><instanceType>m6g.large</instanceType>
      <launchTime>2026-05-04T03:02:01.000Z</launchTime>
      <placement><availabilityZone>us-east-1b</availabilityZone></placement><groupSet/>
      <stateReason><code>Client.UserInitiatedShutdown</code><message>Client.UserInitiatedShutdown: User initiated shutdown</message></stateReason>
      <architecture>arm64</architecture><clientToken/>
    </item></instancesSet></item>
  </reservationSet>
</DescribeInstancesResponse>"#;

#[test]
fn instances_are_read_and_so_are_those_that_are_gone() {
    let (ec2, http) = ec2(&[(200, INSTANCES)]);
    let filter = InstanceFilter {
        tags: vec![TagFilter::equals("tenon.dev/launch", "launch-1")],
        states: vec![InstanceState::Running, InstanceState::ShuttingDown],
        ids: vec![],
    };
    let page = block_on(ec2.describe_instances(&filter, None)).unwrap();
    check_form(
        &http.sent()[0],
        &[
            ("Action", "DescribeInstances"),
            ("Filter.1.Name", "instance-state-name"),
            ("Filter.1.Value.1", "running"),
            ("Filter.1.Value.2", "shutting-down"),
            ("Filter.2.Name", "tag:tenon.dev/launch"),
            ("Filter.2.Value.1", "launch-1"),
            ("MaxResults", "1000"),
        ],
    );
    let [running, gone] = page.items.as_slice() else { panic!("{page:?}") };
    assert_eq!((running.state, running.capacity_type), (InstanceState::Running, TargetCapacityType::Spot));
    assert_eq!(running.zone_id.as_ref().unwrap().as_str(), "use1-az1");
    assert_eq!(running.fleet.as_ref().unwrap().as_str(), "fleet-1");
    assert_eq!(running.client_token.as_ref().unwrap().as_str(), "token-1");
    assert_eq!(running.security_groups[0].as_str(), "sg-1");
    assert_eq!(running.tags["empty"], "");
    assert_eq!(running.launched_at.to_string(), "2026-05-04T03:02:01Z");
    // EC2 drops a terminated instance's subnet.
    assert_eq!((gone.state, &gone.subnet, &gone.client_token), (InstanceState::Terminated, &None, &None));
    assert_eq!((gone.private_ip.as_str(), gone.private_dns_name.as_str()), ("", ""));
    assert_eq!(gone.state_reason.as_ref().unwrap().code, "Client.UserInitiatedShutdown");
}

#[test]
fn a_field_that_ec2_left_out_is_named() {
    let body = INSTANCES.replace("<imageId>ami-1</imageId>", "");
    let (ec2, _) = ec2(&[(200, &body)]);
    let error = block_on(ec2.describe_instances(&InstanceFilter::default(), None)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`DescribeInstances` failed inside EC2: the answer's `ImageId` is missing (`MalformedAnswer`)"
    );
}

#[test]
fn available_placement_groups_are_asked_for_by_id_or_name() {
    let body = "<DescribePlacementGroupsResponse><placementGroupSet><item><groupName>apart</groupName><state>available</state><strategy>partition</strategy><partitionCount>3</partitionCount><groupId>pg-1</groupId></item></placementGroupSet></DescribePlacementGroupsResponse>";
    let near = "<DescribePlacementGroupsResponse><placementGroupSet><item><groupName>near</groupName><state>available</state><strategy>cluster</strategy><groupId>pg-2</groupId></item></placementGroupSet></DescribePlacementGroupsResponse>";
    let (ec2, http) = ec2(&[(200, body), (200, near)]);
    let by_name = PlacementGroupSelector::Name("apart".to_owned());
    let found = block_on(ec2.describe_placement_groups(&by_name)).unwrap();
    let expected = PlacementGroup {
        id: "pg-1".parse().unwrap(),
        name: "apart".to_owned(),
        strategy: PlacementStrategy::Partition,
        partition_count: Some(3),
    };
    assert_eq!(found, [expected]);
    let by_id = PlacementGroupSelector::Id("pg-2".parse().unwrap());
    let found = block_on(ec2.describe_placement_groups(&by_id)).unwrap();
    assert_eq!((found[0].strategy, found[0].partition_count), (PlacementStrategy::Cluster, None));
    let requests = http.sent();
    let available = [("Filter.1.Name", "state"), ("Filter.1.Value.1", "available")];
    let asked = |own| [&[("Action", "DescribePlacementGroups"), own], &available[..]].concat();
    check_form(&requests[0], &asked(("GroupName.1", "apart")));
    check_form(&requests[1], &asked(("GroupId.1", "pg-2")));
}

#[test]
fn a_consoles_text_is_read_from_base64_in_lines() {
    let answer = |output: &str| {
        format!(
            r#"<GetConsoleOutputResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId>
  <instanceId>i-0a</instanceId><timestamp>2026-05-04T03:02:01.000Z</timestamp>{output}</GetConsoleOutputResponse>"#
        )
    };
    let answers =
        [answer("<output>bm9kZWFk\nbTogZmFpbGVk</output>"), answer(""), answer("<output>%</output>")];
    let (ec2, http) = ec2(&answers.each_ref().map(|answer| (200, answer.as_str())));
    let id = "i-0a".parse().unwrap();
    assert_eq!(block_on(ec2.console_output(&id)), Ok(Some("nodeadm: failed".to_owned())));
    assert_eq!(block_on(ec2.console_output(&id)), Ok(None));
    assert!(matches!(block_on(ec2.console_output(&id)), Err(tenon_ec2::Ec2Error::ServerError { .. })));
    check_form(&http.sent()[0], &[("Action", "GetConsoleOutput"), ("InstanceId", "i-0a")]);
}

const STATUSES: &str = r#"<DescribeInstanceStatusResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId>
  <instanceStatusSet>
    <item><instanceId>i-0a</instanceId><availabilityZone>us-east-1a</availabilityZone>
      <instanceState><code>16</code><name>running</name></instanceState>
      <systemStatus><status>impaired</status><details>
        <item><name>reachability</name><status>failed</status><impairedSince>2026-05-04T03:02:01.000Z</impairedSince></item>
      </details></systemStatus>
      <instanceStatus><status>impaired</status><details>
        <item><name>reachability</name><status>failed</status></item>
      </details></instanceStatus>
      <attachedEbsStatus><status>impaired</status></attachedEbsStatus>
    </item>
    <item><instanceId>i-0b</instanceId>
      <eventsSet>
        <item><instanceEventId>instance-event-1</instanceEventId><code>instance-retirement</code>
          <description>The instance is running on degraded hardware</description><notBefore>2026-06-01T00:00:00.000Z</notBefore></item>
        <item><code>system-reboot</code><description>[Completed] scheduled reboot</description><notBefore>2026-05-01T00:00:00.000Z</notBefore></item>
        <item><code>instance-stop</code><description>[Canceled] The instance is running on degraded hardware</description></item>
        <item><code>something-new</code></item>
      </eventsSet>
      <systemStatus><status>ok</status></systemStatus><instanceStatus><status>insufficient-data</status></instanceStatus>
    </item>
  </instanceStatusSet>
</DescribeInstanceStatusResponse>"#;

#[test]
fn failing_checks_and_coming_events_are_read_each_by_a_filter_of_its_own() {
    let (ec2, http) = ec2(&[(200, STATUSES), (200, STATUSES)]);
    let impaired = InstanceStatusFilter::Impaired(StatusCheck::System);
    let page = block_on(ec2.describe_instance_status(impaired, None)).unwrap();
    let _ = block_on(ec2.describe_instance_status(InstanceStatusFilter::ScheduledEvents, None)).unwrap();
    let [failing, retired] = page.items.as_slice() else { panic!("{page:?}") };
    let since = Some("2026-05-04T03:02:01Z".parse().unwrap());
    let checks = BTreeMap::from([(StatusCheck::Instance, None), (StatusCheck::System, since)]);
    assert_eq!((failing.id.as_str(), &failing.impaired, failing.events.len()), ("i-0a", &checks, 0));
    let code = ScheduledEventCode::InstanceRetirement;
    let event = ScheduledEvent { code, starts_at: Some("2026-06-01T00:00:00Z".parse().unwrap()) };
    assert_eq!((&retired.impaired, retired.events.as_slice()), (&BTreeMap::new(), &[event][..]));
    check_form(
        &http.sent()[0],
        &[
            ("Action", "DescribeInstanceStatus"),
            ("Filter.1.Name", "system-status.status"),
            ("Filter.1.Value.1", "impaired"),
            ("MaxResults", "1000"),
        ],
    );
    check_form(
        &http.sent()[1],
        &[
            ("Action", "DescribeInstanceStatus"),
            ("Filter.1.Name", "event.code"),
            ("Filter.1.Value.1", "instance-reboot"),
            ("Filter.1.Value.2", "system-reboot"),
            ("Filter.1.Value.3", "system-maintenance"),
            ("Filter.1.Value.4", "instance-retirement"),
            ("Filter.1.Value.5", "instance-stop"),
            ("MaxResults", "1000"),
        ],
    );
}
