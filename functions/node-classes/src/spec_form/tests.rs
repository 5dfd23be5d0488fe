use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::ObjectMeta;
use tenon_domain::catalog::settings::InterfaceType;
use tenon_domain::quantity::Quantity;

use super::*;

const GOLDEN: &str = include_str!("../../golden/class-spec-digests.v1.txt");

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("team".to_owned(), "web".to_owned())])
}

/// A minimal class.
fn plain() -> Ec2NodeClass {
    Ec2NodeClass {
        meta: ObjectMeta {
            name: "default".to_owned(),
            uid: Some("u-1".parse().unwrap()),
            generation: 1,
            ..ObjectMeta::default()
        },
        name: "default".parse().unwrap(),
        subnet_selector: vec![SubnetSelectorTerm::Tags(labels())],
        security_group_selector: vec![SecurityGroupSelectorTerm::Tags(labels())],
        ami_selector: vec![AmiSelectorTerm::Id("ami-1".parse().unwrap())],
        reservation_selector: vec![],
        settings: NodeSettings::default(),
        user_data: None,
        identity: NodeIdentity::Role("nodes".to_owned()),
        tags: BTreeMap::new(),
        metadata_options: MetadataOptions::default(),
        associate_public_ip: None,
        detailed_monitoring: false,
        context: None,
        status_subnets: vec![],
        unsupported: vec![],
    }
}

type Edit = fn(&mut Ec2NodeClass);

#[expect(clippy::too_many_lines, reason = "a table: a line for each field")]
fn edits() -> Vec<(&'static str, Edit)> {
    vec![
        ("nothing", |_| ()),
        ("uid", |c| c.meta.uid = Some("u-2".parse().unwrap())),
        ("generation", |c| c.meta.generation = 2),
        ("name", |c| c.name = "other".parse().unwrap()),
        ("subnet by id", |c| {
            c.subnet_selector = vec![SubnetSelectorTerm::Id("subnet-1".parse().unwrap())];
        }),
        ("another subnet", |c| c.subnet_selector.push(SubnetSelectorTerm::Id("subnet-1".parse().unwrap()))),
        ("group by id", |c| {
            c.security_group_selector = vec![SecurityGroupSelectorTerm::Id("sg-1".parse().unwrap())];
        }),
        ("group by name", |c| {
            c.security_group_selector = vec![SecurityGroupSelectorTerm::Name("sg-1".to_owned())];
        }),
        ("image by name", |c| {
            let name = Some("nodes-*".to_owned());
            c.ami_selector = vec![AmiSelectorTerm::Match { name, tags: BTreeMap::new(), owner: None }];
        }),
        ("image by owner", |c| {
            let owner = Some("nodes-*".to_owned());
            c.ami_selector = vec![AmiSelectorTerm::Match { name: None, tags: BTreeMap::new(), owner }];
        }),
        ("alias", |c| {
            let (family, version) = ("al2023".to_owned(), "latest".to_owned());
            c.ami_selector = vec![AmiSelectorTerm::Alias { family, version }];
        }),
        ("parameter", |c| c.ami_selector = vec![AmiSelectorTerm::SsmParameter("ami-1".to_owned())]),
        ("reservation by id", |c| {
            c.reservation_selector = vec![ReservationSelectorTerm::Id("cr-1".parse().unwrap())];
        }),
        ("reservation by tag", |c| {
            let (tags, owner, match_criteria) = (labels(), None, None);
            c.reservation_selector = vec![ReservationSelectorTerm::Match { tags, owner, match_criteria }];
        }),
        ("family", |c| c.settings.ami_family = tenon_domain::catalog::AmiFamily::Custom),
        ("pods", |c| c.settings.kubelet.max_pods = Some(10)),
        ("pods per core", |c| c.settings.kubelet.pods_per_core = Some(10)),
        ("kube reserved", |c| c.settings.kubelet.kube_reserved.cpu = Some(Quantity::from_integer(1))),
        ("system reserved", |c| c.settings.kubelet.system_reserved.cpu = Some(Quantity::from_integer(1))),
        ("memory reserved", |c| c.settings.kubelet.system_reserved.memory = Some(Quantity::from_integer(1))),
        ("eviction share", |c| {
            c.settings.kubelet.eviction_memory = Some(EvictionThreshold::Share(PartsPerMillion(1)));
        }),
        ("eviction quantity", |c| {
            c.settings.kubelet.eviction_memory = Some(EvictionThreshold::Quantity(Quantity::from_integer(1)));
        }),
        ("eviction of the disk", |c| {
            c.settings.kubelet.eviction_nodefs = Some(EvictionThreshold::Share(PartsPerMillion(1)));
        }),
        ("dns", |c| c.settings.kubelet.cluster_dns = vec!["10.0.0.10".to_owned()]),
        ("document", |c| c.settings.kubelet.document = Some("{}".to_owned())),
        ("device", |c| c.settings.block_devices = vec![BlockDevice::default()]),
        ("root device", |c| {
            c.settings.block_devices = vec![BlockDevice { root_volume: true, ..BlockDevice::default() }];
        }),
        ("volume", |c| {
            let ebs = Some(EbsVolume { iops: Some(3000), ..EbsVolume::default() });
            c.settings.block_devices = vec![BlockDevice { ebs, ..BlockDevice::default() }];
        }),
        ("instance store", |c| c.settings.instance_store_policy = Some(InstanceStorePolicy::Raid0)),
        ("interface", |c| {
            c.settings.network_interfaces = vec![NetworkInterface {
                network_card_index: 0,
                device_index: 1,
                interface_type: InterfaceType::EfaOnly,
            }];
        }),
        ("tracking", |c| c.settings.connection_tracking = Some(ConnectionTracking::default())),
        ("nested", |c| c.settings.nested_virtualization = Some(NestedVirtualization::Enabled)),
        ("interfaces", |c| c.settings.reserved_enis = 1),
        ("overhead", |c| c.settings.vm_memory_overhead = PartsPerMillion(1)),
        ("user data", |c| c.user_data = Some("#!/bin/sh".to_owned())),
        ("profile", |c| {
            c.identity = NodeIdentity::InstanceProfile(InstanceProfile::Name("nodes".to_owned()));
        }),
        ("profile by arn", |c| {
            c.identity = NodeIdentity::InstanceProfile(InstanceProfile::Arn("nodes".to_owned()));
        }),
        ("tags", |c| c.tags = labels()),
        ("metadata", |c| c.metadata_options.http_put_response_hop_limit = 2),
        ("public", |c| c.associate_public_ip = Some(true)),
        ("private", |c| c.associate_public_ip = Some(false)),
        ("monitoring", |c| c.detailed_monitoring = true),
        ("context", |c| c.context = Some("context".to_owned())),
        ("unsupported", |c| c.unsupported = vec!["spec.other".to_owned()]),
    ]
}

fn edited(edit: Edit) -> String {
    let mut class = plain();
    edit(&mut class);
    digest(&class)
}

#[test]
fn every_edit_has_the_digest_of_the_golden_file() {
    let digests: Vec<(String, &str)> = edits().into_iter().map(|(name, edit)| (edited(edit), name)).collect();
    let each: BTreeSet<&String> = digests.iter().map(|(digest, _)| digest).collect();
    assert_eq!(each.len(), digests.len(), "{digests:?}");
    let lines: Vec<String> = digests.iter().map(|(digest, name)| format!("{digest} {name}\n")).collect();
    assert_eq!(format!("{FORM}\n{}", lines.concat()), GOLDEN);
}

#[test]
fn what_a_class_resolved_to_is_no_word_of_its_user() {
    let subnet = tenon_domain::api::node_class::ResolvedSubnet {
        id: "subnet-1".parse().unwrap(),
        zone: "us-east-1a".parse().unwrap(),
        zone_id: None,
    };
    let resolved = Ec2NodeClass { status_subnets: vec![subnet], ..plain() };
    assert_eq!(digest(&resolved), digest(&plain()));
}
