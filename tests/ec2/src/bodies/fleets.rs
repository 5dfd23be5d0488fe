//! CreateFleet.

use std::collections::BTreeSet;

use tenon_ec2::port::{FleetOverride, FleetResult, ImageState, TargetCapacityType};
use tenon_ec2::{Ec2, ErrorClass};
use tenon_twin::CapacityPool;

use super::{instances, launch};
use crate::difference::Difference;
use crate::server::Server;

/// Checks that exactly the requested instances exist: in the answer, and in EC2's list.
async fn launches<S: Server>(server: &S, capacity_type: TargetCapacityType) {
    let world = server.world();
    let from = world.launch("m5.large", 1);
    let result = launch(server, &world.fleet(capacity_type, 2, vec![from.clone()])).await.unwrap();
    assert_eq!(result.errors, []);
    let [group] = result.instances.as_slice() else { panic!("{result:?}") };
    assert_eq!((&group.from, &group.launch_template), (&from, &world.template().name));
    assert_eq!((group.ids.len(), group.capacity_type), (2, capacity_type));
    let found = instances(server).await;
    let ids: Vec<_> = found.iter().map(|instance| instance.id.clone()).collect();
    assert_eq!(ids, result.instance_ids());
    for instance in found {
        assert_eq!(instance.capacity_type, capacity_type);
        assert_eq!((&instance.instance_type, &instance.image), (&from.instance_type, &world.image()));
        assert_eq!((&instance.subnet, Some(&instance.zone)), (&from.subnet, from.zone.as_ref()));
        assert!(!instance.state.is_going());
        assert!(instance.private_ip.starts_with("10.0.1."), "{instance:?}");
        assert!(instance.private_dns_name.ends_with(".ec2.internal"), "{instance:?}");
        let fleet = (!server.differs(Difference::NoFleetTag)).then(|| result.fleet_id.clone());
        assert_eq!(instance.fleet, fleet);
        for (key, value) in world.tags() {
            assert_eq!(instance.tags.get(&key), Some(&value));
        }
        let in_group = instance.security_groups == [world.group.clone()];
        assert_eq!(in_group, !server.differs(Difference::NoFleetGroups), "{instance:?}");
    }
}

/// Two on-demand instances of one override.
pub async fn a_fleet_launches_what_it_was_asked_for<S: Server>(server: &S) {
    launches(server, TargetCapacityType::OnDemand).await;
}

/// Two spot instances of one override.
pub async fn a_spot_fleet_launches_spot<S: Server>(server: &S) {
    launches(server, TargetCapacityType::Spot).await;
}

fn types(result: &FleetResult) -> Vec<&str> {
    result.instances.iter().map(|group| group.instance_type.as_str()).collect()
}

/// The order of the request doesn't count.
pub async fn a_fleet_takes_the_cheapest_override_first<S: Server>(server: &S) {
    let world = server.world();
    let overrides = vec![world.launch("m5.large", 0), world.launch("t3.small", 1)];
    let request = world.fleet(TargetCapacityType::OnDemand, 1, overrides);
    let result = launch(server, &request).await.unwrap();
    let first = if server.differs(Difference::FirstOverrideOnly) { "m5.large" } else { "t3.small" };
    assert_eq!(types(&result), [first]);
}

/// A dry pool is skipped for the next override, and the answer names it.
pub async fn a_dry_pool_is_an_error_of_its_override<S: Server>(server: &S) {
    let world = server.world();
    let overrides = vec![world.launch("t3.small", 0), world.launch("m5.large", 1)];
    server.exhaust(CapacityPool {
        capacity_type: TargetCapacityType::OnDemand,
        instance_type: overrides[0].instance_type.clone(),
        zone: world.subnets[0].1.clone(),
    });
    let request = world.fleet(TargetCapacityType::OnDemand, 2, overrides.clone());
    let result = launch(server, &request).await.unwrap();
    if server.differs(Difference::NoCapacityErrors) {
        assert_eq!((types(&result), result.errors.len()), (vec!["t3.small"], 0));
        return;
    }
    assert_eq!(types(&result), ["m5.large"]);
    let [error] = result.errors.as_slice() else { panic!("{result:?}") };
    assert_eq!((error.class(), error.from.as_ref()), (ErrorClass::InsufficientCapacity, overrides.first()));
}

/// The same request again is the same fleet; another one under its token is refused.
pub async fn a_client_token_launches_once<S: Server>(server: &S) {
    let world = server.world();
    let request = world.fleet(TargetCapacityType::OnDemand, 1, vec![world.launch("m5.large", 0)]);
    let first = launch(server, &request).await.unwrap();
    let again = server.ec2().create_fleet(&request).await.unwrap();
    let mut other = request.clone();
    other.target_capacity = 2;
    let other = server.ec2().create_fleet(&other).await;
    let ids: BTreeSet<_> = instances(server).await.into_iter().map(|instance| instance.id).collect();
    if server.differs(Difference::NoClientTokens) {
        assert_ne!(first, again);
        assert_eq!((other.unwrap().instance_ids().len(), ids.len()), (2, 4));
        return;
    }
    assert_eq!(first, again);
    assert_eq!(other.unwrap_err().class(), ErrorClass::TokenMismatch);
    assert_eq!(ids, first.instance_ids().into_iter().collect());
}

/// Checks that an override gives nothing but an error of this class.
async fn gives_nothing<S: Server>(server: &S, from: FleetOverride, class: ErrorClass) {
    let request = server.world().fleet(TargetCapacityType::OnDemand, 1, vec![from.clone()]);
    let result = launch(server, &request).await.unwrap();
    if server.differs(Difference::EveryImageLaunches) {
        assert_eq!(result.instance_ids().len(), 1);
        return;
    }
    assert_eq!(result.instances, []);
    let [error] = result.errors.as_slice() else { panic!("{result:?}") };
    assert_eq!((error.class(), error.from.as_ref()), (class, Some(&from)));
    assert_eq!(instances(server).await, []);
}

/// Neither one that is being made nor one that doesn't exist.
pub async fn an_image_that_is_not_available_is_not_launched<S: Server>(server: &S) {
    let world = server.world();
    let pending = world.images.get(&ImageState::Pending).cloned();
    let from = FleetOverride { image: pending, ..world.launch("m5.large", 0) };
    gives_nothing(server, from, ErrorClass::ImageUnavailable).await;
    let unknown = "ami-0000000000000dead".parse().ok();
    let from = FleetOverride { image: unknown, ..world.launch("m5.large", 0) };
    let mut request = world.fleet(TargetCapacityType::OnDemand, 1, vec![from]);
    request.client_token = format!("unknown-{}", world.name).parse().unwrap();
    let answer = server.ec2().create_fleet(&request).await;
    if server.differs(Difference::ItemErrorsRefuseTheFleet) {
        assert_eq!(answer.unwrap_err().class(), ErrorClass::ImageUnavailable);
        return;
    }
    let result = answer.unwrap();
    assert_eq!((result.instances.len(), result.errors[0].class()), (0, ErrorClass::ImageUnavailable));
}

/// An arm64 image isn't launched on an x86_64 type.
pub async fn an_image_of_another_architecture_is_not_launched<S: Server>(server: &S) {
    let world = server.world();
    let from = FleetOverride { image: Some(world.arm_image.clone()), ..world.launch("m5.large", 0) };
    gives_nothing(server, from, ErrorClass::Invalid).await;
}

/// The error asks for a new template.
pub async fn a_fleet_without_its_template_is_refused<S: Server>(server: &S) {
    let world = server.world();
    let request = world.fleet(TargetCapacityType::OnDemand, 1, vec![world.launch("m5.large", 0)]);
    let error = server.ec2().create_fleet(&request).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::TemplateMissing);
    assert_eq!(instances(server).await, []);
}
