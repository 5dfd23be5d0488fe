//! Instance profiles, and launches that name them.

use super::*;
use crate::UnknownProfiles;

const ARN: &str = "arn:aws:iam::111122223333:instance-profile/nodes";

/// A world without any profile, with templates that name `nodes`: `by-name` and `by-arn`.
fn strict() -> TwinWorld {
    let world = TwinWorld::new(|config| config.unknown_profiles = UnknownProfiles::Missing);
    for (template, profile) in [
        ("by-name", InstanceProfileSpec::Name("nodes".to_owned())),
        ("by-arn", InstanceProfileSpec::Arn(ARN.to_owned())),
    ] {
        let data = LaunchTemplateData {
            image: Some(world.image.clone()),
            instance_profile: Some(profile),
            ..LaunchTemplateData::default()
        };
        let template = CreateLaunchTemplate { name: template.to_owned(), data, tags: Tags::new() };
        now(world.twin.create_launch_template(&template)).unwrap();
    }
    world
}

/// The answer to a launch from both templates: `launched`, or EC2's code and message.
fn launches(world: &TwinWorld, token: &str) -> [String; 2] {
    ["by-name", "by-arn"].map(|template| {
        let from = over("m5.large", "us-east-1a");
        let mut request = fleet(&format!("{token}-{template}"), 1, &[from]);
        request.launch_templates[0].name = template.to_owned();
        let result = world.launch(&request);
        match result.errors.first() {
            Some(error) => format!("{}: {}", error.code, error.message),
            None => "launched".to_owned(),
        }
    })
}

fn refused(name: &str, arn: &str) -> [String; 2] {
    let said = |value: &str, field: &str, why: &str| {
        format!(
            "InvalidParameterValue: Value ({value}) for parameter iamInstanceProfile.{field} is invalid. {why}"
        )
    };
    [said("nodes", "name", name), said(ARN, "arn", arn)]
}

fn unknown() -> [String; 2] {
    refused("Invalid IAM Instance Profile name", "Invalid IAM Instance Profile ARN")
}

#[test]
fn a_profile_is_usable_a_while_after_its_role() {
    let world = strict();
    assert_eq!(launches(&world, "missing"), unknown());
    world.twin.create_instance_profile("nodes").unwrap();
    assert!(world.twin.create_instance_profile("nodes").is_err());
    assert_eq!(launches(&world, "young"), unknown());
    world.pass(SignedDuration::from_secs(10));
    let roleless = format!("IAM Instance Profile \"{ARN}\" has no associated IAM Roles");
    assert_eq!(launches(&world, "empty"), refused(&roleless, &roleless));
    world.twin.add_role_to_instance_profile("nodes", "node").unwrap();
    assert!(world.twin.add_role_to_instance_profile("nodes", "other").is_err());
    assert_eq!(launches(&world, "changed"), unknown());
    world.pass(SignedDuration::from_secs(10));
    assert_eq!(launches(&world, "ready"), ["launched", "launched"]);
    world.twin.delete_instance_profile("nodes").unwrap();
    assert_eq!(launches(&world, "gone"), unknown());
    world.twin.add_instance_profile("nodes", "node");
    assert_eq!(launches(&world, "old"), ["launched", "launched"]);
}

#[test]
fn a_dry_run_says_what_is_wrong_with_a_profile() {
    let world = strict();
    let probe = RunInstancesProbe {
        launch_template: "by-name".to_owned(),
        version: "$Latest".to_owned(),
        with: over("m5.large", "us-east-1a"),
        capacity_type: tenon_ec2::port::TargetCapacityType::OnDemand,
        tags: FleetTags::default(),
        network_interface_tags: Tags::new(),
        spot_request_tags: Tags::new(),
        metadata_options: None,
        network_interfaces: Vec::new(),
        security_groups: Vec::new(),
    };
    let error = now(world.twin.dry_run_run_instances(&probe)).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Invalid);
    world.twin.add_instance_profile("nodes", "node");
    assert_eq!(now(world.twin.dry_run_run_instances(&probe)).unwrap(), DryRunOutcome::WouldSucceed);
}

#[test]
fn iam_tells_a_profile_with_its_role() {
    let world = strict();
    let error = now(world.twin.instance_profile("nodes")).unwrap_err();
    assert!(matches!(&error, Ec2Error::NotFound { code, .. } if code == "NoSuchEntity"), "{error}");
    world.twin.create_instance_profile("nodes").unwrap();
    let found = now(world.twin.instance_profile("nodes")).unwrap();
    assert_eq!((found.name.as_str(), found.arn.as_str(), found.roles.len()), ("nodes", ARN, 0));
    assert_eq!(found.created_at, Some(Timestamp::from_millisecond(START).unwrap()));
    world.twin.add_role_to_instance_profile("nodes", "node").unwrap();
    let found = now(world.twin.instance_profile("nodes")).unwrap();
    assert_eq!(found.roles, ["arn:aws:iam::111122223333:role/node"]);
    world.twin.remove_role_from_instance_profile("nodes").unwrap();
    assert!(world.twin.remove_role_from_instance_profile("nodes").is_err());
    assert_eq!(now(world.twin.instance_profile("nodes")).unwrap().roles, [""; 0]);
    let error = now(world.twin.instance_profile("team/nodes")).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Invalid);
    world.twin.deny(Call::GetInstanceProfile, "an explicit deny");
    assert_eq!(now(world.twin.instance_profile("nodes")).unwrap_err().class(), ErrorClass::Unauthorized);
}

#[test]
fn a_world_that_isnt_about_profiles_has_all_but_deleted_ones() {
    let world = TwinWorld::plain();
    let found = now(world.twin.instance_profile("any")).unwrap();
    assert_eq!(found.roles, ["arn:aws:iam::111122223333:role/any"]);
    world.twin.delete_instance_profile("any").unwrap();
    assert_eq!(now(world.twin.instance_profile("any")).unwrap_err().class(), ErrorClass::NotFound);
}
