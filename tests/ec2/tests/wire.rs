//! The port's tests on the region twin through the adapter and the wire, with features that moto lacks.

#![expect(clippy::unwrap_used, reason = "helpers of an integration test fail as tests do")]

use std::collections::BTreeMap;

use tenon_domain::api::node_class::PlacementGroupSelector;
use tenon_domain::catalog::facts::PlacementStrategy;
use tenon_domain::catalog::settings::{ConnectionTracking, NestedVirtualization};
use tenon_domain::id::{ClusterName, ReservationId};
use tenon_domain::placement::{LaunchPlacement, Tenancy};
use tenon_domain::reservation::{MatchCriteria, ReservationKind};
use tenon_domain::tags;
use tenon_domain::zonal_shift::ShiftEnd;
use tenon_ec2::port::{
    BlockDeviceMapping, CapacityReservation, CapacityReservationFilter, DryRunOutcome, FleetTags,
    ImageArchitecture, ImageFilter, InstanceFilter, InstanceStatusFilter, InterfaceKind, LaunchRole,
    NetworkInterfaceSpec, PlacementGroup, PrimaryIpv6, ReservationPreference, ResourceFilter, SnapshotState,
    StatusCheck, Tags, TargetCapacityType, VolumeSnapshot,
};
use tenon_ec2::{
    AuthorizationMessages, Ec2, Ec2Error, ErrorClass, InstanceProfiles, LaunchRights, Parameters, Pricing,
    ZonalShift, encoded_message,
};
use tenon_ec2_tests::{Server, WireServer, edges, run, run_instances_probe};
use tenon_twin::{Call, Fault, FaultEffect, FaultWhen, HealthEvent, Impairment, NewImage};

edges!(WireServer::new().await);

/// A launch whose answer was lost, or that never arrived, looks the same; repeated under its token it happens once.
async fn launches_once(effect: FaultEffect) {
    let server = WireServer::new().await;
    let (ec2, world) = (server.ec2(), server.world());
    ec2.create_launch_template(&world.template()).await.unwrap();
    let request = world.fleet(TargetCapacityType::OnDemand, 2, vec![world.launch("m5.large", 0)]);
    server.twin().inject(Fault { call: Call::CreateFleet, effect, when: FaultWhen::Next(1) });
    let error = ec2.create_fleet(&request).await.unwrap_err();
    assert_eq!(error, Ec2Error::NoAnswer { action: "CreateFleet".to_owned() });
    let result = ec2.create_fleet(&request).await.unwrap();
    let found = ec2.describe_instances(&InstanceFilter::default(), None).await.unwrap().items;
    assert_eq!((result.instance_ids().len(), found.len()), (2, 2));
}

#[test]
fn a_launch_whose_answer_was_lost_is_done_once() {
    run(launches_once(FaultEffect::AnswerLost));
}

#[test]
fn a_launch_that_never_arrived_is_done_once() {
    run(launches_once(FaultEffect::RequestLost));
}

#[test]
fn a_throttled_call_is_throttled_and_not_asked_again() {
    run(async {
        let server = WireServer::new().await;
        let refused = Ec2Error::Throttled { action: "DescribeInstances".to_owned() };
        let effect = FaultEffect::Refused(refused);
        server.twin().inject(Fault { call: Call::DescribeInstances, effect, when: FaultWhen::Next(1) });
        let error = server.ec2().describe_instances(&InstanceFilter::default(), None).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Throttled);
        assert_eq!(server.twin().calls()[&Call::DescribeInstances].made, 1);
    });
}

#[test]
fn snapshots_are_found_with_their_owner_and_images_name_theirs() {
    run(async {
        let server = WireServer::new().await;
        let (ec2, world) = (server.ec2(), server.world());
        let made = VolumeSnapshot {
            id: "snap-0123456789abcdef0".to_owned(),
            owner: "111122223333".to_owned(),
            owner_alias: Some("amazon".to_owned()),
            state: Some(SnapshotState::Pending),
            tags: world.tags(),
        };
        server.twin().add_snapshot(made.clone());
        let of = |id: &str| ResourceFilter { ids: vec![id.to_owned()], ..ResourceFilter::default() };
        assert_eq!(ec2.describe_snapshots(&of(&made.id)).await.unwrap(), [made]);
        let error = ec2.describe_snapshots(&of("snap-0000000000000dead")).await.unwrap_err();
        assert!(matches!(&error, Ec2Error::NotFound { ids, .. } if *ids == ["snap-0000000000000dead"]));
        let image = server.twin().add_image(NewImage::named("nodes-1", ImageArchitecture::X86_64));
        let filter = ImageFilter { ids: vec![image.clone()], ..ImageFilter::default() };
        let found = ec2.describe_images(&filter, None).await.unwrap().items;
        let own = image.as_str().replace("ami-", "snap-");
        let facts = &found.first().unwrap().facts;
        assert_eq!(facts.snapshot("/dev/xvda"), Some(own.as_str()));
        let mut expected = NewImage::named("nodes-1", ImageArchitecture::X86_64).facts;
        for volume in expected.volumes.values_mut() {
            volume.snapshot = Some(own.clone());
        }
        assert_eq!(*facts, expected);
        assert_eq!(ec2.describe_snapshots(&of(&own)).await.unwrap().len(), 1);
    });
}

#[test]
fn a_launch_role_launches_for_its_own_cluster_alone() {
    run(async {
        let server = WireServer::new().await;
        let (ec2, twin) = (server.ec2(), server.twin());
        let cluster: ClusterName = "prod".parse().unwrap();
        let arn = "arn:aws:iam::111122223333:role/tenon/us-east-1/tenon-prod-launch".to_owned();
        let role = LaunchRole { arn, cluster: cluster.clone() };
        assert_eq!(ec2.launching(&role).await.unwrap_err().class(), ErrorClass::Unauthorized);
        twin.add_launch_role(&role.arn, &cluster);
        let by_role = ec2.launching(&role).await.unwrap();
        let template = |name: &str, cluster: &str| {
            let mut template = server.world().template();
            template.name = name.to_owned();
            template.tags.insert(tags::CLUSTER.to_owned(), cluster.to_owned());
            template
        };
        by_role.create_launch_template(&template("own", "prod")).await.unwrap();
        let error = by_role.create_launch_template(&template("others", "next")).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Unauthorized);
        let error = ec2.create_launch_template(&template("by-nobody", "prod")).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Unauthorized);
        // A session is kept while it lasts.
        let asked = || twin.calls()[&Call::AssumeRole].made;
        let before = asked();
        ec2.launching(&role).await.unwrap();
        assert_eq!(asked(), before);
    });
}

/// As the stacks' policy does: each resource of the request has the cluster's tag.
#[test]
fn a_dry_run_by_a_launch_role_tags_the_network_interfaces() {
    run(async {
        let server = WireServer::new().await;
        let (ec2, twin) = (server.ec2(), server.twin());
        let cluster: ClusterName = "prod".parse().unwrap();
        let arn = "arn:aws:iam::111122223333:role/tenon/us-east-1/tenon-prod-launch".to_owned();
        let role = LaunchRole { arn, cluster: cluster.clone() };
        twin.add_launch_role(&role.arn, &cluster);
        let by_role = ec2.launching(&role).await.unwrap();
        let own = Tags::from([(tags::CLUSTER.to_owned(), "prod".to_owned())]);
        let mut template = server.world().template();
        template.tags.extend(own.clone());
        by_role.create_launch_template(&template).await.unwrap();
        let mut probe = run_instances_probe(server.world());
        probe.tags = FleetTags { instance: own.clone(), volume: own.clone(), ..FleetTags::default() };
        probe.network_interface_tags = own;
        assert_eq!(by_role.dry_run_run_instances(&probe).await.unwrap(), DryRunOutcome::WouldSucceed);
        probe.network_interface_tags = Tags::new();
        let denied = by_role.dry_run_run_instances(&probe).await.unwrap();
        assert!(matches!(denied, DryRunOutcome::Unauthorized { .. }), "{denied:?}");
    });
}

/// The wire refuses a parameter that it doesn't read.
#[test]
fn a_template_may_say_everything_of_a_volume() {
    run(async {
        let server = WireServer::new().await;
        let mut template = server.world().template();
        template.data.block_devices = vec![BlockDeviceMapping {
            device_name: "/dev/xvdb".to_owned(),
            volume_size_gib: Some(100),
            volume_type: Some("gp3".to_owned()),
            iops: Some(4000),
            throughput_mib: Some(250),
            encrypted: Some(true),
            kms_key_id: Some("alias/nodes".to_owned()),
            snapshot_id: Some("snap-0123456789abcdef0".to_owned()),
            initialization_rate_mib: Some(200),
            delete_on_termination: Some(false),
        }];
        server.ec2().create_launch_template(&template).await.unwrap();
    });
}

#[test]
fn a_template_may_say_everything_of_its_interfaces_and_processor() {
    run(async {
        let server = WireServer::new().await;
        let mut template = server.world().template();
        template.data.nested_virtualization = Some(NestedVirtualization::Enabled);
        template.data.tenancy = Tenancy::Dedicated;
        template.data.network_interfaces = vec![
            NetworkInterfaceSpec {
                card: Some(0),
                device: 0,
                kind: Some(InterfaceKind::Interface),
                associate_public_ip: Some(false),
                ipv4_prefix_count: Some(2),
                ipv6: Some(PrimaryIpv6 { prefix_count: Some(1) }),
                connection_tracking: Some(ConnectionTracking {
                    tcp_established_timeout_seconds: Some(350),
                    udp_stream_timeout_seconds: Some(120),
                    udp_timeout_seconds: Some(45),
                }),
                delete_on_termination: Some(true),
            },
            NetworkInterfaceSpec {
                card: Some(1),
                device: 1,
                kind: Some(InterfaceKind::EfaOnly),
                delete_on_termination: Some(true),
                ..NetworkInterfaceSpec::default()
            },
        ];
        server.ec2().create_launch_template(&template).await.unwrap();
        assert_eq!(server.twin().template_data(&template.name), Some(template.data));
    });
}

#[test]
fn placement_groups_are_found_and_launched_into() {
    run(async {
        let server = WireServer::new().await;
        let (ec2, world) = (server.ec2(), server.world());
        let made = PlacementGroup {
            id: "pg-0123456789abcdef0".parse().unwrap(),
            name: "apart".to_owned(),
            strategy: PlacementStrategy::Partition,
            partition_count: Some(3),
        };
        server.twin().create_placement_group(made.clone());
        let by_name = PlacementGroupSelector::Name(made.name.clone());
        assert_eq!(ec2.describe_placement_groups(&by_name).await.unwrap(), std::slice::from_ref(&made));
        let by_id = PlacementGroupSelector::Id(made.id.clone());
        assert_eq!(ec2.describe_placement_groups(&by_id).await.unwrap(), std::slice::from_ref(&made));
        let unknown = PlacementGroupSelector::Name("other".to_owned());
        let error = ec2.describe_placement_groups(&unknown).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::NotFound);
        let mut template = world.template();
        template.data.placement = Some(LaunchPlacement { group: made.id.clone(), partition: Some(2) });
        ec2.create_launch_template(&template).await.unwrap();
        let request = world.fleet(TargetCapacityType::OnDemand, 1, vec![world.launch("m5.large", 0)]);
        let result = ec2.create_fleet(&request).await.unwrap();
        let id = result.instance_ids().remove(0);
        assert_eq!(server.twin().instance(&id).unwrap().placement, template.data.placement);
    });
}

#[test]
fn reservations_are_found_and_launched_into() {
    run(async {
        let server = WireServer::new().await;
        let (ec2, world) = (server.ec2(), server.world());
        let id: ReservationId = "cr-0123456789abcdef0".parse().unwrap();
        let made = CapacityReservation {
            id: id.clone(),
            owner: "111122223333".to_owned(),
            instance_type: "m5.large".parse().unwrap(),
            zone: world.subnets.first().unwrap().1.clone(),
            match_criteria: MatchCriteria::Targeted,
            kind: ReservationKind::Default,
            ends_at: Some("2027-01-01T00:00:00Z".parse().unwrap()),
            available: 1,
            tags: world.tags(),
        };
        server.twin().add_reservation(made.clone()).unwrap();
        let filter = CapacityReservationFilter {
            owner: Some(made.owner.clone()),
            match_criteria: Some(MatchCriteria::Targeted),
            tags: vec![world.filter()],
            ..CapacityReservationFilter::default()
        };
        assert_eq!(ec2.describe_capacity_reservations(&filter).await.unwrap(), [made]);
        let unknown = CapacityReservationFilter {
            ids: vec!["cr-0000000000000dead".to_owned()],
            ..CapacityReservationFilter::default()
        };
        let error = ec2.describe_capacity_reservations(&unknown).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::NotFound);
        let mut template = world.template();
        template.data.reservations = Some(ReservationPreference::Only(id.clone()));
        ec2.create_launch_template(&template).await.unwrap();
        let request = world.fleet(TargetCapacityType::OnDemand, 2, vec![world.launch("m5.large", 0)]);
        let result = ec2.create_fleet(&request).await.unwrap();
        let found = ec2.describe_instances(&InstanceFilter::default(), None).await.unwrap().items;
        let reservations: Vec<_> = found.into_iter().map(|instance| instance.reservation).collect();
        assert_eq!(reservations, [Some(id)]);
        assert_eq!(result.errors.first().unwrap().class(), ErrorClass::ReservationFull);
        let left = ec2.describe_capacity_reservations(&filter).await.unwrap();
        assert_eq!(left.first().unwrap().available, 0);
    });
}

#[test]
fn failing_checks_and_scheduled_events_are_told_of_running_instances() {
    run(async {
        let server = WireServer::new().await;
        let (ec2, world, twin) = (server.ec2(), server.world(), server.twin());
        ec2.create_launch_template(&world.template()).await.unwrap();
        let request = world.fleet(TargetCapacityType::OnDemand, 2, vec![world.launch("m5.large", 0)]);
        let ids = ec2.create_fleet(&request).await.unwrap().instance_ids();
        let (first, second) = (ids.first().unwrap(), ids.last().unwrap());
        twin.set_status_check(first, StatusCheck::System, Impairment::Fails).unwrap_err();
        assert_eq!(ec2.console_output(first).await, Ok(None));
        server.pass(120);
        assert!(ec2.console_output(first).await.unwrap().unwrap().contains("nodeadm"));
        assert!(ec2.console_output(&"i-0000000000000dead".parse().unwrap()).await.is_err());
        twin.set_status_check(first, StatusCheck::System, Impairment::Fails).unwrap();
        let announced = HealthEvent {
            event_type_code: "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED".to_owned(),
            event_type_category: "scheduledChange".to_owned(),
            starts_at: "2030-01-01T00:00:00Z".parse().unwrap(),
            instances: vec![second.clone()],
        };
        twin.announce(&announced).unwrap();
        let told = async |filter| {
            let found = ec2.describe_instance_status(filter, None).await.unwrap().items;
            found.into_iter().map(|status| (status.id, status.impaired, status.events)).collect::<Vec<_>>()
        };
        let [(id, impaired, events)] =
            told(InstanceStatusFilter::Impaired(StatusCheck::System)).await.try_into().unwrap();
        assert_eq!((&id, impaired.len(), events), (first, 1, vec![]));
        assert!(impaired.values().all(Option::is_some), "{impaired:?}");
        assert_eq!(told(InstanceStatusFilter::Impaired(StatusCheck::Instance)).await, []);
        let [(id, _, events)] = told(InstanceStatusFilter::ScheduledEvents).await.try_into().unwrap();
        assert_eq!((&id, events.first().unwrap().starts_at), (second, Some(announced.starts_at)));
        twin.set_status_check(first, StatusCheck::System, Impairment::Passes).unwrap();
        assert_eq!(told(InstanceStatusFilter::Impaired(StatusCheck::System)).await, []);
    });
}

async fn all_prices<P: Pricing>(pricing: &P) -> BTreeMap<String, String> {
    let (mut found, mut next) = (BTreeMap::new(), None);
    loop {
        let page = pricing.on_demand_prices(next).await.unwrap();
        found.extend(page.items.into_iter().map(|p| (p.instance_type.to_string(), p.price.to_string())));
        next = page.next;
        if next.is_none() {
            return found;
        }
    }
}

#[test]
fn the_price_list_says_what_the_twin_says() {
    run(async {
        let server = WireServer::new().await;
        let (over_the_wire, of_the_twin) =
            (all_prices(server.pricing()).await, all_prices(server.twin()).await);
        assert_eq!(over_the_wire, of_the_twin);
        assert!(
            over_the_wire.len() > 500 && over_the_wire.contains_key("m5.metal"),
            "{}",
            over_the_wire.len()
        );
    });
}

#[test]
fn arc_says_which_zones_a_cluster_is_shifted_away_from() {
    run(async {
        let server = WireServer::new().await;
        let (arc, twin) = (server.zonal_shift(), server.twin());
        let arn = "arn:aws:eks:us-east-1:111122223333:cluster/prod";
        assert_eq!(arc.shifted_zones(arn).await.unwrap_err().class(), ErrorClass::NotFound);
        twin.manage(arn);
        assert_eq!(arc.shifted_zones(arn).await.unwrap(), []);
        let end = ShiftEnd::At("2100-01-01T00:00:00Z".parse().unwrap());
        twin.shift_zone(arn, &"use1-az1".parse().unwrap(), end).unwrap();
        twin.shift_zone(arn, &"use1-az2".parse().unwrap(), ShiftEnd::Open).unwrap();
        assert_eq!(arc.shifted_zones(arn).await.unwrap(), twin.shifted_zones(arn).await.unwrap());
        twin.deny(Call::GetManagedResource, "denied");
        assert_eq!(arc.shifted_zones(arn).await.unwrap_err().class(), ErrorClass::Unauthorized);
    });
}

#[test]
fn the_images_that_aws_publishes_are_found_by_their_parameters() {
    run(async {
        let server = WireServer::new().await;
        let (ssm, twin) = (server.beside(), server.twin());
        let name =
            "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/arm64/standard/recommended/image_id";
        let asked = [name.to_owned(), twin.parameter_arn(name), name.replace("1.35", "1.3")];
        let found = ssm.parameters(&asked).await.unwrap();
        assert_eq!(found, twin.parameters(&asked).await.unwrap());
        assert_eq!(found.len(), 2);
        let filter = ImageFilter {
            ids: vec![found.first().unwrap().value.parse().unwrap()],
            ..ImageFilter::default()
        };
        let images = server.ec2().describe_images(&filter, None).await.unwrap().items;
        let image = images.first().unwrap();
        assert_eq!(image.name, "amazon-eks-node-al2023-arm64-standard-1.35-v20251210");
        assert_eq!(image.owner_alias.as_deref(), Some("amazon"));
    });
}

#[test]
fn parameters_and_profiles_are_throttled_denied_and_lost_as_calls_of_ec2_are() {
    run(async {
        let server = WireServer::new().await;
        let (account, world) = (server.beside(), server.world());
        let names = [world.parameter()];
        let profile = world.profile();
        let next = |call: Call, effect: FaultEffect| {
            server.twin().inject(Fault { call, effect, when: FaultWhen::Next(1) });
        };
        for call in [Call::GetParameters, Call::GetInstanceProfile] {
            let action = || call.as_str().to_owned();
            let ask = async || {
                if call == Call::GetParameters {
                    account.parameters(&names).await.map(drop)
                } else {
                    account.instance_profile(&profile).await.map(drop)
                }
            };
            next(call, FaultEffect::Refused(Ec2Error::Throttled { action: action() }));
            assert_eq!(ask().await, Err(Ec2Error::Throttled { action: action() }));
            next(call, FaultEffect::RequestLost);
            assert_eq!(ask().await, Err(Ec2Error::NoAnswer { action: action() }));
            assert_eq!(ask().await, Ok(()));
            server.twin().deny(call, "denied");
            let denied = ask().await.unwrap_err();
            assert!(
                matches!(&denied, Ec2Error::Unauthorized { action: of, .. } if *of == action()),
                "{denied}"
            );
        }
    });
}

#[test]
fn an_encoded_denial_is_decoded_by_sts() {
    run(async {
        let server = WireServer::new().await;
        let content =
            r#"{"allowed":false,"explicitDeny":true,"context":{"action":"ec2:CreateLaunchTemplate"}}"#;
        server.twin().deny_encoded(Call::CreateLaunchTemplate, content);
        let denied = server.ec2().create_launch_template(&server.world().template()).await.unwrap_err();
        let Ec2Error::Unauthorized { message, decoded: None, .. } = &denied else { panic!("{denied:?}") };
        let encoded = encoded_message(message).unwrap();
        let account = server.beside();
        assert_eq!(account.decoded_message(encoded).await.unwrap().content(), content);
        let unknown = account.decoded_message("other").await.unwrap_err();
        assert_eq!(unknown.class(), ErrorClass::Invalid);
        server.twin().deny(Call::DecodeAuthorizationMessage, "denied");
        let denied = account.decoded_message(encoded).await.unwrap_err();
        assert!(matches!(denied, Ec2Error::Unauthorized { .. }), "{denied:?}");
    });
}
