//! Subnets and security groups.

use tenon_ec2::port::ResourceFilter;
use tenon_ec2::{Ec2, ErrorClass};

use crate::server::Server;

/// By tag and by id; an unknown id is an error.
pub async fn subnets_are_found_by_tag_and_id<S: Server>(server: &S) {
    let world = server.world();
    let mut expected: Vec<_> = world.subnets.clone();
    expected.sort();
    let by_tag = ResourceFilter { tags: vec![world.filter()], ..ResourceFilter::default() };
    let found = server.ec2().describe_subnets(&by_tag).await.unwrap();
    let zones = server.ec2().describe_availability_zones().await.unwrap();
    for subnet in &found {
        assert_eq!((subnet.available_addresses, &subnet.tags), (251, &world.tags()));
        assert!(zones.iter().any(|zone| zone.name == subnet.zone && zone.id == subnet.zone_id), "{subnet:?}");
    }
    let pairs: Vec<_> = found.into_iter().map(|subnet| (subnet.id, subnet.zone)).collect();
    assert_eq!(pairs, expected);
    let by_id = ResourceFilter { ids: vec![expected[0].0.to_string()], ..ResourceFilter::default() };
    assert_eq!(server.ec2().describe_subnets(&by_id).await.unwrap()[0].id, expected[0].0);
    let unknown =
        ResourceFilter { ids: vec!["subnet-0000000000000dead".to_owned()], ..ResourceFilter::default() };
    assert_eq!(server.ec2().describe_subnets(&unknown).await.unwrap_err().class(), ErrorClass::NotFound);
}

/// By tag, by name with wildcards, and by id; an unknown id is an error.
pub async fn security_groups_are_found_by_tag_name_and_id<S: Server>(server: &S) {
    let world = server.world();
    let names = vec![format!("nod*-{}", world.name)];
    for filter in [
        ResourceFilter { tags: vec![world.filter()], ..ResourceFilter::default() },
        ResourceFilter { names, ..ResourceFilter::default() },
        ResourceFilter { ids: vec![world.group.to_string()], ..ResourceFilter::default() },
    ] {
        let found = server.ec2().describe_security_groups(&filter).await.unwrap();
        let [group] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((&group.id, &group.name), (&world.group, &format!("nodes-{}", world.name)));
        assert_eq!(group.tags, world.tags());
    }
    let unknown =
        ResourceFilter { ids: vec!["sg-0000000000000dead".to_owned()], ..ResourceFilter::default() };
    assert_eq!(
        server.ec2().describe_security_groups(&unknown).await.unwrap_err().class(),
        ErrorClass::NotFound
    );
}
