//! Parameters: this account's, and those that AWS publishes.

use super::*;
use crate::{PublishedFamily, Throttling};

const RECOMMENDED: &str =
    "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/recommended/image_id";

fn values(world: &TwinWorld, names: &[&str]) -> Vec<String> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let found = now(world.twin.parameters(&names)).unwrap();
    found.into_iter().map(|parameter| format!("{}={}", parameter.name, parameter.value)).collect()
}

fn amazons(world: &TwinWorld) -> Vec<Image> {
    let filter = ImageFilter { owners: vec!["amazon".to_owned()], ..ImageFilter::default() };
    now(world.twin.describe_images(&filter, None)).unwrap().items
}

#[test]
fn an_own_parameter_is_found_by_name_version_and_arn() {
    let world = TwinWorld::plain();
    world.twin.put_parameter("/golden/ami", "ami-1");
    world.twin.put_parameter("/golden/ami", "ami-2");
    let arn = "arn:aws:ssm:us-east-1:111122223333:parameter/golden/ami";
    assert_eq!(world.twin.parameter_arn("/golden/ami"), arn);
    let first = format!("{arn}:1");
    assert_eq!(
        values(&world, &["/golden/ami:1", arn, "/gone", "/golden/ami", &first, "/golden/ami:3"]),
        [
            "/golden/ami:1=ami-1".to_owned(),
            format!("{arn}=ami-2"),
            "/golden/ami=ami-2".to_owned(),
            format!("{first}=ami-1")
        ]
    );
    let foreign = "arn:aws:ssm:us-east-1:444455556666:parameter/golden/ami";
    assert_eq!(values(&world, &[foreign]), [""; 0]);
    world.twin.delete_parameter("/golden/ami").unwrap();
    assert_eq!(values(&world, &["/golden/ami"]), [""; 0]);
    assert!(world.twin.delete_parameter("/golden/ami").is_err());
}

#[test]
fn a_call_takes_one_to_ten_well_formed_names() {
    let world = TwinWorld::plain();
    let check = |names: &[String]| {
        let error = now(world.twin.parameters(names)).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Invalid, "{error}");
    };
    check(&[]);
    check(&vec!["/a".to_owned(); PARAMETERS_PER_CALL + 1]);
    check(&["/a".to_owned(), "/b c".to_owned()]);
}

#[test]
fn a_published_image_is_there_once_it_was_asked_for() {
    let world = TwinWorld::plain();
    assert_eq!(amazons(&world), []);
    let named = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/amazon-eks-node-al2023-x86_64-standard-1.35-v20251210/image_id";
    let arn = world.twin.parameter_arn(RECOMMENDED);
    assert!(arn.starts_with("arn:aws:ssm:us-east-1::parameter/aws/service/"), "{arn}");
    let found = amazons_behind(&world, &[RECOMMENDED, named, &arn]);
    assert_eq!(found.len(), 1, "{found:?}");
    let images = amazons(&world);
    let image = images.first().unwrap();
    assert_eq!(image.id.as_str(), found.first().unwrap());
    assert_eq!(image.name, "amazon-eks-node-al2023-x86_64-standard-1.35-v20251210");
    assert_eq!(image.state, ImageState::Available);
    assert_eq!(image.facts.root_device_name.as_deref(), Some("/dev/xvda"));
    assert!(image.created_at.unwrap() < Timestamp::from_millisecond(START).unwrap());
    assert!(image.facts.snapshot("/dev/xvda").unwrap().starts_with("snap-"));
}

/// The different values behind parameters.
fn amazons_behind(world: &TwinWorld, names: &[&str]) -> BTreeSet<String> {
    let found = values(world, names);
    assert_eq!(found.len(), names.len());
    found.iter().map(|pair| pair.split_once('=').unwrap().1.to_owned()).collect()
}

#[test]
fn a_question_about_parameters_changes_no_other_id() {
    let (asked, silent) = (TwinWorld::plain(), TwinWorld::plain());
    values(&asked, &[RECOMMENDED]);
    let next = |world: &TwinWorld| world.twin.add_image(NewImage::named("next", ImageArchitecture::X86_64));
    assert_eq!(next(&asked), next(&silent));
    assert_eq!(asked.one(), silent.one());
}

#[test]
fn a_release_is_the_recommended_one_from_then_on() {
    let world = TwinWorld::plain();
    let before = values(&world, &[RECOMMENDED]);
    world.pass(MINUTE);
    world.twin.release_images(PublishedFamily::AmazonLinux2023, "v20260901");
    assert_ne!(values(&world, &[RECOMMENDED]), before);
    let newest = amazons(&world).into_iter().find(|image| image.name.ends_with("-v20260901")).unwrap();
    assert_eq!(newest.created_at, Some(Timestamp::from_millisecond(START).unwrap() + MINUTE));
    world.twin.put_parameter(RECOMMENDED, "ami-other");
    assert_eq!(values(&world, &[RECOMMENDED]), [format!("{RECOMMENDED}=ami-other")]);
    world.twin.delete_parameter(RECOMMENDED).unwrap();
    assert_eq!(values(&world, &[RECOMMENDED]), [""; 0]);
}

#[test]
fn parameters_are_throttled_and_denied() {
    let world = TwinWorld::new(|config| config.throttling = Throttling::Enforced);
    for n in 0..40 {
        assert!(now(world.twin.parameters(&["/a".to_owned()])).is_ok(), "{n}");
    }
    let error = now(world.twin.parameters(&["/a".to_owned()])).unwrap_err();
    assert_eq!(error, Ec2Error::Throttled { action: "GetParameters".to_owned() });
    world.pass(MINUTE);
    world.twin.deny(Call::GetParameters, "an explicit deny");
    let error = now(world.twin.parameters(&["/a".to_owned()])).unwrap_err();
    assert!(matches!(&error, Ec2Error::Unauthorized { action, .. } if action == "GetParameters"), "{error}");
}
