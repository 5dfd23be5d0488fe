//! Parameters and instance profiles.

use tenon_ec2::port::Parameter;
use tenon_ec2::{Ec2Error, InstanceProfiles, Parameters};

use crate::server::Server;

/// By name, by ARN and by version, in the order of the request; what doesn't exist is left out.
pub async fn parameters_are_found_by_name_version_and_arn<S: Server>(server: &S) {
    let world = server.world();
    let (name, arn) = (world.parameter(), world.parameter_arn.clone());
    let (first, gone, second) = (format!("{name}:1"), format!("{name}/gone"), format!("{arn}:2"));
    let asked = [first.clone(), gone, arn.clone(), second.clone(), name.clone(), format!("{name}:7")];
    let found = server.beside().parameters(&asked).await.unwrap();
    let of = |name: &str, value: &str| Parameter { name: name.to_owned(), value: value.to_owned() };
    assert_eq!(found, [of(&first, "ami-1"), of(&arn, "ami-2"), of(&second, "ami-2"), of(&name, "ami-2")]);
    let unknown = server.beside().parameters(&["/gone".to_owned()]).await.unwrap();
    assert_eq!(unknown, []);
    let error = server.beside().parameters(&vec![name; 11]).await.unwrap_err();
    assert!(matches!(error, Ec2Error::Invalid { .. }), "{error:?}");
}

/// With its role, without one, and not at all.
pub async fn an_instance_profile_is_told_with_its_role<S: Server>(server: &S) {
    let (world, iam) = (server.world(), server.beside());
    let found = iam.instance_profile(&world.profile()).await.unwrap();
    assert_eq!(found.name, world.profile());
    assert!(found.arn.starts_with("arn:aws:iam::"), "{}", found.arn);
    assert!(found.arn.ends_with(&format!(":instance-profile/{}", world.profile())), "{}", found.arn);
    let [role] = found.roles.as_slice() else { panic!("{:?}", found.roles) };
    assert!(role.ends_with(&format!(":role/{}", world.profile())), "{role}");
    assert!(found.created_at.is_some());
    let empty = iam.instance_profile(&world.profile_without_role()).await.unwrap();
    assert_eq!(empty.roles, [""; 0]);
    let error = iam.instance_profile(&format!("gone-{}", world.name)).await.unwrap_err();
    assert!(matches!(&error, Ec2Error::NotFound { code, .. } if code == "NoSuchEntity"), "{error:?}");
}
