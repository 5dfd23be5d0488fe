//! Launch templates, tags and terminations.

use tenon_domain::catalog::settings::{ConnectionTracking, NestedVirtualization};
use tenon_domain::placement::{LaunchPlacement, Tenancy};
use tenon_ec2::Ec2;
use tenon_ec2::port::{
    BlockDeviceMapping, CreateLaunchTemplate, InstanceMetadataOptions, InstanceProfileSpec, InstanceState,
    InterfaceKind, LaunchTemplateData, LaunchTemplateFilter, MetadataTags, MetadataTokens, Monitoring,
    NetworkInterfaceSpec, PrimaryIpv6, ReservationPreference, Tags,
};

use super::{block_on, check_form, ec2, forms};

const MADE: &str = r#"<CreateLaunchTemplateResponse><launchTemplate>
    <launchTemplateId>lt-1</launchTemplateId><launchTemplateName>tenon-abc</launchTemplateName>
    <createTime>2026-05-04T03:02:01.000Z</createTime><createdBy>arn:aws:iam::111122223333:root</createdBy>
    <defaultVersionNumber>1</defaultVersionNumber><latestVersionNumber>1</latestVersionNumber>
    <tagSet><item><key>k</key><value>v</value></item></tagSet>
  </launchTemplate></CreateLaunchTemplateResponse>"#;

fn tags(key: &str) -> Tags {
    Tags::from([(key.to_owned(), "v".to_owned())])
}

fn template() -> CreateLaunchTemplate {
    CreateLaunchTemplate {
        name: "tenon-abc".to_owned(),
        data: LaunchTemplateData {
            image: "ami-1".parse().ok(),
            security_groups: vec!["sg-1".parse().unwrap()],
            instance_profile: Some(InstanceProfileSpec::Name("node".to_owned())),
            user_data: Some("dXNlcg==".to_owned()),
            block_devices: vec![BlockDeviceMapping {
                device_name: "/dev/xvda".to_owned(),
                volume_size_gib: Some(20),
                volume_type: Some("gp3".to_owned()),
                iops: Some(3000),
                throughput_mib: Some(125),
                encrypted: Some(true),
                kms_key_id: None,
                snapshot_id: Some("snap-1".to_owned()),
                initialization_rate_mib: Some(200),
                delete_on_termination: Some(true),
            }],
            metadata_options: Some(InstanceMetadataOptions {
                http_endpoint: "enabled".to_owned(),
                http_protocol_ipv6: "disabled".to_owned(),
                http_put_response_hop_limit: 1,
                http_tokens: MetadataTokens::Required,
                tags: MetadataTags::Disabled,
            }),
            monitoring: Some(Monitoring::Basic),
            network_interfaces: Vec::new(),
            nested_virtualization: Some(NestedVirtualization::Enabled),
            network_interface_tags: tags("n"),
            spot_request_tags: tags("s"),
            reservations: Some(ReservationPreference::Only("cr-1".parse().unwrap())),
            placement: Some(LaunchPlacement { group: "pg-1".parse().unwrap(), partition: Some(2) }),
            tenancy: Tenancy::Dedicated,
        },
        tags: tags("k"),
    }
}

const EXPECTED: &[(&str, &str)] = &[
    ("Action", "CreateLaunchTemplate"),
    ("LaunchTemplateData.BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
    ("LaunchTemplateData.BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"),
    ("LaunchTemplateData.BlockDeviceMapping.1.Ebs.Encrypted", "true"),
    ("LaunchTemplateData.BlockDeviceMapping.1.Ebs.Iops", "3000"),
    ("LaunchTemplateData.BlockDeviceMapping.1.Ebs.SnapshotId", "snap-1"),
    ("LaunchTemplateData.BlockDeviceMapping.1.Ebs.Throughput", "125"),
    ("LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeInitializationRate", "200"),
    ("LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize", "20"),
    ("LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeType", "gp3"),
    (
        "LaunchTemplateData.CapacityReservationSpecification.CapacityReservationPreference",
        "capacity-reservations-only",
    ),
    (
        "LaunchTemplateData.CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
        "cr-1",
    ),
    ("LaunchTemplateData.CpuOptions.NestedVirtualization", "enabled"),
    ("LaunchTemplateData.IamInstanceProfile.Name", "node"),
    ("LaunchTemplateData.ImageId", "ami-1"),
    ("LaunchTemplateData.MetadataOptions.HttpEndpoint", "enabled"),
    ("LaunchTemplateData.MetadataOptions.HttpProtocolIpv6", "disabled"),
    ("LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit", "1"),
    ("LaunchTemplateData.MetadataOptions.HttpTokens", "required"),
    ("LaunchTemplateData.MetadataOptions.InstanceMetadataTags", "disabled"),
    ("LaunchTemplateData.Monitoring.Enabled", "false"),
    ("LaunchTemplateData.Placement.GroupId", "pg-1"),
    ("LaunchTemplateData.Placement.PartitionNumber", "2"),
    ("LaunchTemplateData.Placement.Tenancy", "dedicated"),
    ("LaunchTemplateData.SecurityGroupId.1", "sg-1"),
    ("LaunchTemplateData.TagSpecification.1.ResourceType", "network-interface"),
    ("LaunchTemplateData.TagSpecification.1.Tag.1.Key", "n"),
    ("LaunchTemplateData.TagSpecification.1.Tag.1.Value", "v"),
    ("LaunchTemplateData.TagSpecification.2.ResourceType", "spot-instances-request"),
    ("LaunchTemplateData.TagSpecification.2.Tag.1.Key", "s"),
    ("LaunchTemplateData.TagSpecification.2.Tag.1.Value", "v"),
    ("LaunchTemplateData.UserData", "dXNlcg=="),
    ("LaunchTemplateName", "tenon-abc"),
    ("TagSpecification.1.ResourceType", "launch-template"),
    ("TagSpecification.1.Tag.1.Key", "k"),
    ("TagSpecification.1.Tag.1.Value", "v"),
    ("Version", "2016-11-15"),
];

/// The request for a template, apart from its token: a name is used once, so nothing is replayed.
fn written(template: &CreateLaunchTemplate) -> std::collections::BTreeMap<String, String> {
    let (ec2, http) = ec2(&[(200, MADE)]);
    let made = block_on(ec2.create_launch_template(template)).unwrap();
    assert_eq!((made.id.as_str(), made.name.as_str(), made.version), ("lt-1", "tenon-abc", 1));
    assert_eq!(
        (made.created_at.to_string().as_str(), made.tags["k"].as_str()),
        ("2026-05-04T03:02:01Z", "v")
    );
    let mut form = forms(&http).remove(0);
    form.remove("ClientToken");
    form
}

#[test]
fn a_template_is_written_field_by_field() {
    let expected = EXPECTED.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    assert_eq!(written(&template()), expected);
}

#[test]
fn a_template_of_no_reservation_says_so_and_one_may_say_nothing() {
    let preference = "LaunchTemplateData.CapacityReservationSpecification.CapacityReservationPreference";
    let mut template = template();
    template.data.reservations = Some(ReservationPreference::None);
    let form = written(&template);
    let said: Vec<(&str, &str)> = form
        .iter()
        .filter(|(key, _)| key.contains("CapacityReservation"))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(said, [(preference, "none")]);
    template.data.reservations = None;
    assert!(written(&template).keys().all(|key| !key.contains("CapacityReservation")));
}

#[test]
fn groups_move_to_the_interfaces_that_a_template_has() {
    let mut template = template();
    template.data.network_interfaces = vec![
        NetworkInterfaceSpec {
            card: None,
            device: 0,
            kind: None,
            associate_public_ip: Some(false),
            ipv4_prefix_count: Some(2),
            ipv6: Some(PrimaryIpv6 { prefix_count: Some(1) }),
            connection_tracking: Some(ConnectionTracking {
                tcp_established_timeout_seconds: Some(350),
                udp_stream_timeout_seconds: Some(120),
                udp_timeout_seconds: None,
            }),
            delete_on_termination: None,
        },
        NetworkInterfaceSpec {
            card: Some(1),
            device: 1,
            kind: Some(InterfaceKind::EfaOnly),
            delete_on_termination: Some(true),
            ..NetworkInterfaceSpec::default()
        },
    ];
    template.data.instance_profile = Some(InstanceProfileSpec::Arn("arn:x".to_owned()));
    let form = written(&template);
    let of_interfaces: Vec<(&str, &str)> = form
        .iter()
        .filter_map(|(key, value)| {
            Some((key.strip_prefix("LaunchTemplateData.NetworkInterface.")?, value.as_str()))
        })
        .collect();
    assert_eq!(
        of_interfaces,
        [
            ("1.AssociatePublicIpAddress", "false"),
            ("1.ConnectionTrackingSpecification.TcpEstablishedTimeout", "350"),
            ("1.ConnectionTrackingSpecification.UdpStreamTimeout", "120"),
            ("1.DeviceIndex", "0"),
            ("1.Ipv4PrefixCount", "2"),
            ("1.Ipv6AddressCount", "1"),
            ("1.Ipv6PrefixCount", "1"),
            ("1.PrimaryIpv6", "true"),
            ("1.SecurityGroupId.1", "sg-1"),
            ("2.DeleteOnTermination", "true"),
            ("2.DeviceIndex", "1"),
            ("2.InterfaceType", "efa-only"),
            ("2.NetworkCardIndex", "1"),
            ("2.SecurityGroupId.1", "sg-1"),
        ]
    );
    assert_eq!(form["LaunchTemplateData.IamInstanceProfile.Arn"], "arn:x");
    assert!(!form.contains_key("LaunchTemplateData.SecurityGroupId.1"));
}

#[test]
fn a_number_that_ec2_has_no_room_for_is_refused_unsent() {
    let mut template = template();
    template.data.block_devices[0].volume_size_gib = Some(u32::MAX);
    let (ec2, http) = ec2(&[]);
    let error = block_on(ec2.create_launch_template(&template)).unwrap_err();
    assert!(error.to_string().contains("`VolumeSize` is 4294967295"), "{error}");
    assert_eq!(http.sent().len(), 0);
}

#[test]
fn templates_are_found_and_deleted_by_name() {
    let listed = MADE
        .replace("CreateLaunchTemplateResponse", "DescribeLaunchTemplatesResponse")
        .replace("<launchTemplate>", "<launchTemplates><item>")
        .replace("</launchTemplate>", "</item></launchTemplates>");
    let (ec2, http) = ec2(&[(200, &listed), (200, "<DeleteLaunchTemplateResponse/>")]);
    let filter = LaunchTemplateFilter { names: vec!["tenon-abc".to_owned()], tags: vec![] };
    let page = block_on(ec2.describe_launch_templates(&filter, None)).unwrap();
    assert_eq!(page.items[0].name, "tenon-abc");
    block_on(ec2.delete_launch_template("tenon-abc")).unwrap();
    let requests = http.sent();
    check_form(&requests[0], &[("Action", "DescribeLaunchTemplates"), ("LaunchTemplateName.1", "tenon-abc")]);
    check_form(&requests[1], &[("Action", "DeleteLaunchTemplate"), ("LaunchTemplateName", "tenon-abc")]);
}

#[test]
fn terminations_and_tags_name_their_instances() {
    let terminated = "<TerminateInstancesResponse><instancesSet><item><instanceId>i-1</instanceId><currentState><code>32</code><name>shutting-down</name></currentState><previousState><code>16</code><name>running</name></previousState></item></instancesSet></TerminateInstancesResponse>";
    let (ec2, http) =
        ec2(&[(200, terminated), (200, "<CreateTagsResponse><return>true</return></CreateTagsResponse>")]);
    let ids = ["i-1".parse().unwrap()];
    let changes = block_on(ec2.terminate_instances(&ids)).unwrap();
    assert_eq!(
        (changes[0].previous, changes[0].current),
        (InstanceState::Running, InstanceState::ShuttingDown)
    );
    block_on(ec2.create_tags(&ids, &tags("k"))).unwrap();
    let requests = http.sent();
    check_form(&requests[0], &[("Action", "TerminateInstances"), ("InstanceId.1", "i-1")]);
    check_form(
        &requests[1],
        &[("Action", "CreateTags"), ("ResourceId.1", "i-1"), ("Tag.1.Key", "k"), ("Tag.1.Value", "v")],
    );
}
