use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::ObjectMeta;
use tenon_domain::api::node_class::{MetadataOptions, NodeIdentity, ResolvedSubnet};
use tenon_domain::catalog::NodeSettings;
use tenon_domain::class_hash::SpecHash;

use super::*;

const GOLDEN: &str = include_str!("../../golden/class-spec-digests.v2.txt");

/// A class of generation 1.
fn plain() -> Ec2NodeClass {
    Ec2NodeClass {
        meta: ObjectMeta {
            name: "default".to_owned(),
            uid: Some("u-1".parse().unwrap()),
            generation: 1,
            ..ObjectMeta::default()
        },
        name: "default".parse().unwrap(),
        subnet_selector: vec![],
        security_group_selector: vec![],
        ami_selector: vec![],
        reservation_selector: vec![],
        placement_group: None,
        settings: NodeSettings::default(),
        user_data: None,
        identity: NodeIdentity::Role("nodes".to_owned()),
        tags: BTreeMap::new(),
        metadata_options: MetadataOptions::default(),
        associate_public_ip: None,
        ip_prefix_count: None,
        detailed_monitoring: false,
        context: None,
        spec_hash: SpecHash::default(),
        status_subnets: vec![],
        unsupported: vec![],
    }
}

type Edit = fn(&mut Ec2NodeClass);

const EDITS: [(&str, Edit); 5] = [
    ("nothing", |_| ()),
    ("uid", |c| c.meta.uid = Some("u-2".parse().unwrap())),
    ("no uid", |c| c.meta.uid = None),
    ("name", |c| c.name = "other".parse().unwrap()),
    ("generation", |c| c.meta.generation = 2),
];

fn edited(edit: Edit) -> String {
    let mut class = plain();
    edit(&mut class);
    digest(&class)
}

#[test]
fn every_edit_has_the_digest_of_the_golden_file() {
    let digests: Vec<(String, &str)> = EDITS.into_iter().map(|(name, edit)| (edited(edit), name)).collect();
    let each: BTreeSet<&String> = digests.iter().map(|(digest, _)| digest).collect();
    assert_eq!(each.len(), digests.len(), "{digests:?}");
    let lines: Vec<String> = digests.iter().map(|(digest, name)| format!("{digest} {name}\n")).collect();
    assert_eq!(format!("{FORM}\n{}", lines.concat()), GOLDEN);
}

/// Kubernetes raises the generation with a change of the spec, and not with one of the status or of a label.
#[test]
fn what_raises_no_generation_changes_no_digest() {
    let subnet = ResolvedSubnet {
        id: "subnet-1".parse().unwrap(),
        zone: "us-east-1a".parse().unwrap(),
        zone_id: None,
    };
    assert_eq!(
        edited(|c| c.meta.labels = BTreeMap::from([("team".to_owned(), "web".to_owned())])),
        digest(&plain())
    );
    let resolved = Ec2NodeClass { status_subnets: vec![subnet], ..plain() };
    assert_eq!(digest(&resolved), digest(&plain()));
}
