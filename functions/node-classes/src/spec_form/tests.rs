use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::api::ObjectMeta;
use tenon_domain::api::node_class::{MetadataOptions, NodeIdentity, ResolvedSubnet};
use tenon_domain::catalog::NodeSettings;
use tenon_domain::class_hash::SpecHash;
use tenon_domain::labels::IMAGE_POLICY;
use tenon_domain::reservation::ClassReservations;

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
        warnings: vec![],
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

/// An annotation raises no generation, and this one changes what the class resolves to.
#[test]
fn a_policy_on_images_changes_the_digest_and_not_the_spec() {
    let with = |policy: &str| {
        let mut class = plain();
        class.meta.annotations.insert(IMAGE_POLICY.to_owned(), policy.to_owned());
        class
    };
    let [one, other] = [r#"{"minimumAge":"2h"}"#, "{}"].map(with);
    let all = BTreeSet::from([digest(&plain()), digest(&one), digest(&other)]);
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all.iter().all(|found| found.starts_with(&digest(&plain()))), "{all:?}");
    let status = |class: &Ec2NodeClass| ClassStatus { spec_digest: digest(class), ..resolved() };
    for class in [plain(), one.clone(), other.clone()] {
        assert_eq!(is_of(&status(&one), &class), class == one);
        assert!(is_of_spec(&status(&class), &one));
    }
    let edited = Ec2NodeClass { meta: ObjectMeta { generation: 2, ..one.meta.clone() }, ..one.clone() };
    assert!(!is_of_spec(&status(&one), &edited));
}

fn resolved() -> ClassStatus {
    ClassStatus {
        name: "default".parse().unwrap(),
        revision: 1,
        generation: 1,
        uid: None,
        spec_digest: String::new(),
        subnets: vec![],
        security_groups: vec![],
        images: vec![],
        rejected_images: vec![],
        refused_images: vec![],
        hash: None,
        reservations: ClassReservations::default(),
        placement_group: None,
        instance_profile: None,
        profile_seen: None,
        conditions: vec![],
        resolved_at: Timestamp::UNIX_EPOCH,
    }
}
