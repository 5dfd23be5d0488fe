//! Launch templates.

use tenon_ec2::port::LaunchTemplateFilter;
use tenon_ec2::{Ec2, Ec2Error, ErrorClass};

use super::pages;
use crate::difference::Difference;
use crate::server::Server;

/// A template is found by name and tags until it is deleted; its name is unique.
pub async fn templates_are_made_found_and_deleted<S: Server>(server: &S) {
    let (ec2, world) = (server.ec2(), server.world());
    let template = world.template();
    let made = ec2.create_launch_template(&template).await.unwrap();
    assert_eq!((&made.name, made.version, &made.tags), (&template.name, 1, &world.tags()));
    let again = ec2.create_launch_template(&template).await.unwrap_err();
    assert!(matches!(again, Ec2Error::AlreadyExists { .. }), "{again:?}");
    let by_name = LaunchTemplateFilter { names: vec![template.name.clone()], tags: vec![] };
    let by_tag = LaunchTemplateFilter { names: vec![], tags: vec![world.filter()] };
    for filter in [&by_name, &by_tag] {
        let found = pages(|page| ec2.describe_launch_templates(filter, page)).await.concat();
        assert_eq!(found, std::slice::from_ref(&made));
    }
    ec2.delete_launch_template(&template.name).await.unwrap();
    let gone = ec2.describe_launch_templates(&by_name, None).await.unwrap_err();
    assert_eq!(gone.class(), ErrorClass::TemplateMissing);
    assert_eq!(ec2.describe_launch_templates(&by_tag, None).await.unwrap().items, []);
    let deleted = ec2.delete_launch_template(&template.name).await.unwrap_err();
    let invalid = server.differs(Difference::DeletingUnknownTemplatesIsInvalid);
    let expected = if invalid { ErrorClass::Invalid } else { ErrorClass::TemplateMissing };
    assert_eq!(deleted.class(), expected);
}
