//! The template of a launch, and its stored form.

use super::*;
use crate::testing::{class, registry, status};
use std::collections::{BTreeMap, BTreeSet};
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::catalog::settings::ConnectionTracking;
use tenon_domain::registry::{GateName, Gates, Permission};
use tenon_domain::reservation::ReservationKind;

/// The template of a launch to this site, of a class and in a cluster as changed.
fn made_at(
    labels: &[(&str, &str)],
    site: LaunchSite<'_>,
    change: impl FnOnce(&mut Registry, &mut Ec2NodeClass),
) -> CreateLaunchTemplate {
    let (mut registry, mut class, status) = (registry("prod"), class("default"), status("default"));
    change(&mut registry, &mut class);
    let labels: BTreeMap<String, String> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let setup =
        NodeSetup { registry: &registry, class: &class, labels: &labels, taints: &[], max_pods: Some(29) };
    template(&setup, &status, &status.images[0].id, site).unwrap()
}

fn made(labels: &[(&str, &str)]) -> CreateLaunchTemplate {
    made_at(labels, LaunchSite::default(), |_, _| ())
}

fn made_of(change: impl FnOnce(&mut Ec2NodeClass)) -> CreateLaunchTemplate {
    made_at(&[], LaunchSite::default(), |_, class| change(class))
}

fn made_for(gate: FeatureGate, reservation: Option<&str>) -> CreateLaunchTemplate {
    let id = |id: &str| ReservationId::parse(id).unwrap();
    let into = reservation.map(|text| LaunchedInto { id: id(text), kind: ReservationKind::Default });
    let site = LaunchSite { reservation: into.as_ref(), ..LaunchSite::default() };
    made_at(&[], site, |registry, _| {
        registry.gates = Gates::default().with(GateName::ReservedCapacity, gate);
    })
}

/// The template of a class whose manifest asks for such a volume, in a cluster that may use these owners'
/// snapshots.
fn made_with_volume(ebs: &serde_json::Value, owners: &[&str]) -> CreateLaunchTemplate {
    let manifest = serde_json::json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "amiFamily": "AL2023",
            "role": "nodes",
            "amiSelectorTerms": [{"name": "nodes-*", "owner": "self"}],
            "subnetSelectorTerms": [{"tags": {"team": "web"}}],
            "securityGroupSelectorTerms": [{"tags": {"team": "web"}}],
            "blockDeviceMappings": [{"deviceName": "/dev/xvdb", "ebs": ebs}]
        }
    });
    let read = tenon_domain::manifest::node_class_from_value(&manifest).unwrap();
    made_at(&[], LaunchSite::default(), |registry, class| {
        registry.allowed.snapshot_owners = owners.iter().map(|owner| (*owner).to_owned()).collect();
        class.settings.block_devices = read.settings.block_devices;
    })
}

/// The cluster's entry may have lost the allowance since the class was validated.
#[test]
fn a_template_names_a_snapshot_only_by_the_stacks_allowance() {
    let named = |owners: &[&str]| {
        let made = made_with_volume(&serde_json::json!({"snapshotID": "snap-0secret"}), owners);
        made.data.block_devices[0].snapshot_id.clone()
    };
    assert_eq!(named(&[]), None);
    assert_eq!(named(&["111122223333"]).as_deref(), Some("snap-0secret"));
}

/// IAM asks for the owner of each snapshot that a template names. The stack may allow others than the image's.
#[test]
fn a_template_leaves_an_images_own_snapshot_to_ec2() {
    let named = |own: &[(&str, &str)]| {
        let own = own.iter().map(|(device, id)| ((*device).to_owned(), (*id).to_owned())).collect();
        let image = ResolvedImage { own_snapshots: own, ..status("default").images.remove(0) };
        let mut allowed = registry("prod").allowed;
        allowed.snapshot_owners = BTreeSet::from(["111122223333".to_owned()]);
        let mut of_class = class("default").settings;
        let ebs = settings::EbsVolume {
            snapshot_id: Some("snap-0own".to_owned()),
            ..settings::EbsVolume::default()
        };
        let device_name = Some("/dev/xvda".to_owned());
        of_class.block_devices =
            vec![settings::BlockDevice { device_name, ebs: Some(ebs), ..settings::BlockDevice::default() }];
        block_devices(&of_class, &allowed, Some(&image)).remove(0).snapshot_id
    };
    assert_eq!(named(&[("/dev/xvda", "snap-0own")]), None);
    for others in [&[("/dev/xvdb", "snap-0own")][..], &[("/dev/xvda", "snap-0before")], &[]] {
        assert_eq!(named(others).as_deref(), Some("snap-0own"), "{others:?}");
    }
}

/// Without an allowance too: the image's own snapshot, which EC2 takes then, may be read as fast.
#[test]
fn a_manifests_volume_is_asked_for_field_by_field() {
    let ebs = serde_json::json!({
        "volumeSize": "100Gi", "volumeType": "gp3", "iops": 4000, "throughput": 250, "encrypted": true,
        "kmsKeyID": "alias/nodes", "snapshotID": "snap-0web", "volumeInitializationRate": 200,
        "deleteOnTermination": false
    });
    let cases: [(&[&str], Option<&str>); 2] = [(&["111122223333"], Some("snap-0web")), (&[], None)];
    for (owners, snapshot) in cases {
        let made = made_with_volume(&ebs, owners);
        let expected = BlockDeviceMapping {
            device_name: "/dev/xvdb".to_owned(),
            volume_size_gib: Some(100),
            volume_type: Some("gp3".to_owned()),
            iops: Some(4000),
            throughput_mib: Some(250),
            encrypted: Some(true),
            kms_key_id: Some("alias/nodes".to_owned()),
            snapshot_id: snapshot.map(str::to_owned),
            initialization_rate_mib: Some(200),
            delete_on_termination: Some(false),
        };
        assert_eq!(made.data.block_devices, [expected]);
        assert_eq!(from_stored(&to_stored(&made)).unwrap(), made);
    }
}

#[test]
fn another_rate_of_initialization_is_another_template_and_none_is_stored_as_before() {
    let made = |rate: Option<u32>| {
        let mut ebs = serde_json::json!({"snapshotID": "snap-0web"});
        ebs["volumeInitializationRate"] = serde_json::json!(rate);
        made_with_volume(&ebs, &["111122223333"])
    };
    let none = made(None);
    assert_ne!(made(Some(100)).name, none.name);
    assert_ne!(made(Some(100)).name, made(Some(300)).name);
    assert!(!to_stored(&none).contains("initialization_rate"), "{}", to_stored(&none));
    assert_eq!(from_stored(&to_stored(&none)).unwrap(), none);
}

/// A launch role of an earlier stack may not tag spot requests, and EC2 refuses such tags in a launch on demand.
#[test]
fn only_spot_launches_of_a_role_that_may_tag_spot_requests_do() {
    let made = |capacity_type, gate, role: Option<&str>| {
        let site = LaunchSite { capacity_type, ..LaunchSite::default() };
        made_at(&[], site, |registry, _| {
            registry.settings.spot_request_tags = gate;
            registry.launch_role = role.map(str::to_owned);
        })
    };
    let (enabled, disabled) = (FeatureGate::Enabled, FeatureGate::Disabled);
    let role = Some("arn:aws:iam::1:role/launch");
    let tagged = made(Some(CapacityType::Spot), enabled, role);
    assert_eq!(tagged.data.spot_request_tags, tagged.data.network_interface_tags);
    assert!(tagged.data.spot_request_tags.contains_key(tags::CLUSTER));
    assert_eq!(from_stored(&to_stored(&tagged)).unwrap(), tagged);
    let plain = made_of(|_| ());
    assert!(!to_stored(&plain).contains("spot_request"), "templates of before keep their name");
    assert_ne!(tagged.name, plain.name);
    assert_eq!(made(Some(CapacityType::OnDemand), enabled, role), plain);
    assert_eq!(made(Some(CapacityType::Reserved), enabled, role), plain);
    assert_eq!(made(Some(CapacityType::Spot), disabled, role), plain);
    assert_eq!(made(Some(CapacityType::Spot), enabled, None), plain);
}

/// A subnet may give public addresses by default.
#[test]
fn a_stack_that_denies_public_addresses_makes_launches_ask_for_none() {
    let made = |permission| {
        made_at(&[], LaunchSite::default(), |registry, _| registry.allowed.public_addresses = permission)
    };
    let (allowed, denied) = (made(Permission::Allowed), made(Permission::Denied));
    assert_eq!(allowed, made_of(|_| ()), "templates of before keep their name");
    assert_eq!(denied, made_of(|class| class.associate_public_ip = Some(false)));
    assert_eq!(from_stored(&to_stored(&denied)).unwrap(), denied);
}

#[test]
fn each_word_about_interfaces_or_the_processor_makes_another_template() {
    let plain = made_of(|_| ());
    assert!(plain.data.network_interfaces.is_empty());
    let stored = to_stored(&plain);
    assert!(stored.contains(r#""associate_public_ip":null"#), "{stored}");
    for added in ["network_interfaces", "nested_virtualization"] {
        assert!(!stored.contains(added), "{stored}");
    }
    let public = made_of(|class| class.associate_public_ip = Some(false));
    let stored = to_stored(&public);
    assert!(stored.contains(r#""associate_public_ip":false"#), "{stored}");
    assert!(!stored.contains("network_interfaces"), "{stored}");
    let others = [
        public,
        made_of(|class| class.ip_prefix_count = Some(1)),
        made_of(|class| class.ip_prefix_count = Some(2)),
        made_of(|class| class.settings.connection_tracking = Some(ConnectionTracking::default())),
        made_of(|class| class.settings.nested_virtualization = Some(NestedVirtualization::Enabled)),
        made_of(|class| class.settings.nested_virtualization = Some(NestedVirtualization::Disabled)),
    ];
    let names: BTreeSet<&str> = others.iter().chain([&plain]).map(|made| made.name.as_str()).collect();
    assert_eq!(names.len(), 1 + others.len());
    for made in &others {
        assert_eq!(from_stored(&to_stored(made)).unwrap(), *made);
    }
}

#[test]
fn monitoring_metadata_and_the_public_address_reach_the_template() {
    let made = made_of(|class| {
        class.detailed_monitoring = true;
        class.associate_public_ip = Some(true);
        class.metadata_options.http_tokens = "optional".to_owned();
        class.metadata_options.http_put_response_hop_limit = 2;
    });
    assert_eq!(made.data.monitoring, Some(Monitoring::Detailed));
    assert_eq!(made.data.network_interfaces[0].associate_public_ip, Some(true));
    let options = made.data.metadata_options.unwrap();
    assert_eq!((options.http_tokens, options.http_put_response_hop_limit), (MetadataTokens::Optional, 2));
}

/// An account may enable tags in metadata by default, and its launches would fail for the slashes in our keys.
#[test]
fn a_template_keeps_tags_out_of_metadata_and_one_of_an_earlier_release_says_nothing_of_them() {
    let made = made(&[]);
    let tags = |made: &CreateLaunchTemplate| made.data.metadata_options.as_ref().unwrap().tags;
    assert_eq!(tags(&made), MetadataTags::Disabled);
    assert_eq!(from_stored(&to_stored(&made)).unwrap(), made);
    let earlier = to_stored(&made).replace(r#","tags":"disabled""#, "");
    assert_ne!(earlier, to_stored(&made));
    let earlier_read = from_stored(&earlier).unwrap();
    assert_eq!(tags(&earlier_read), MetadataTags::AccountDefault);
    assert_eq!(to_stored(&earlier_read), earlier);
}

#[test]
fn a_template_is_named_by_its_content() {
    let one = made(&[("team", "a")]);
    assert_eq!(one, made(&[("team", "a")]));
    assert_ne!(one.name, made(&[("team", "b")]).name);
    assert!(one.name.starts_with("tenon-tenon-"), "{}", one.name);
    assert_eq!(one.data.block_devices[0].volume_size_gib, Some(20));
    assert_eq!(one.tags["kubernetes.io/cluster/prod"], "owned");
}

#[test]
fn with_the_gate_off_a_template_says_nothing_of_reservations_whatever_was_planned() {
    let plain = made(&[]);
    assert_eq!(plain.data.reservations, None);
    assert_eq!(made_for(FeatureGate::Disabled, Some("cr-1")), plain);
    assert!(!to_stored(&plain).contains("reservation"), "{}", to_stored(&plain));
    let none = made_for(FeatureGate::Enabled, None);
    assert_eq!(none.data.reservations, Some(ReservationPreference::None));
    let one = made_for(FeatureGate::Enabled, Some("cr-1"));
    assert_eq!(one.data.reservations, Some(ReservationPreference::Only("cr-1".parse().unwrap())));
    for template in [none, one] {
        assert_ne!(template.name, plain.name);
        assert_eq!(from_stored(&to_stored(&template)).unwrap(), template);
    }
}

#[test]
fn a_template_names_its_placement_group_and_is_stored_as_before_without_one() {
    let made = |placement: Option<LaunchPlacement>| {
        let site = LaunchSite { placement: placement.as_ref(), ..LaunchSite::default() };
        made_at(&[], site, |_, _| ())
    };
    let placed = |partition| LaunchPlacement { group: "pg-1".parse().unwrap(), partition };
    let plain = made(None);
    assert!(!to_stored(&plain).contains("placement"), "{}", to_stored(&plain));
    let (anywhere, second) = (made(Some(placed(None))), made(Some(placed(Some(2)))));
    assert_eq!(second.data.placement, Some(placed(Some(2))));
    let names = BTreeSet::from([&plain.name, &anywhere.name, &second.name]);
    assert_eq!(names.len(), 3);
    for made in [&plain, &anywhere, &second] {
        assert_eq!(from_stored(&to_stored(made)).unwrap(), *made);
    }
}

#[test]
fn a_template_names_a_dedicated_tenancy_and_is_stored_as_before_without_one() {
    let made = |tenancy| made_at(&[], LaunchSite { tenancy, ..LaunchSite::default() }, |_, _| ());
    let (plain, dedicated) = (made(Tenancy::Default), made(Tenancy::Dedicated));
    assert!(!to_stored(&plain).contains("tenancy"), "{}", to_stored(&plain));
    assert_eq!(dedicated.data.tenancy, Tenancy::Dedicated);
    assert_ne!(dedicated.name, plain.name);
    for made in [&plain, &dedicated] {
        assert_eq!(from_stored(&to_stored(made)).unwrap(), *made);
    }
}

#[test]
fn a_stored_template_reads_back() {
    let one = made(&[("team", "a")]);
    assert_eq!(from_stored(&to_stored(&one)).unwrap(), one);
    assert!(matches!(from_stored("{}"), Err(StoredTemplateError::Form(_))));
}
