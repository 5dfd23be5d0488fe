//! Dry runs.

use tenon_ec2::port::{DryRunOutcome, RunInstancesProbe, Tags, TargetCapacityType};
use tenon_ec2::{Ec2, ErrorClass};
use tenon_twin::Call;

use super::instances;
use crate::difference::Difference;
use crate::server::{Server, ServerWorld};

/// A launch of the world's template.
#[must_use]
pub fn run_instances_probe(world: &ServerWorld) -> RunInstancesProbe {
    let request = world.fleet(TargetCapacityType::OnDemand, 1, vec![world.launch("m5.large", 0)]);
    RunInstancesProbe {
        launch_template: world.template().name,
        version: "$Latest".to_owned(),
        capacity_type: TargetCapacityType::OnDemand,
        with: world.launch("m5.large", 0),
        network_interface_tags: request.tags.instance.clone(),
        spot_request_tags: Tags::new(),
        tags: request.tags,
        metadata_options: None,
        network_interfaces: Vec::new(),
        security_groups: Vec::new(),
    }
}

/// An allowed call is one that would succeed; an invalid request is an error.
pub async fn a_dry_run_launches_nothing<S: Server>(server: &S) {
    let (ec2, world) = (server.ec2(), server.world());
    let request = world.fleet(TargetCapacityType::OnDemand, 1, vec![world.launch("m5.large", 0)]);
    let (fleet, run) = (
        ec2.dry_run_create_fleet(&request).await,
        ec2.dry_run_run_instances(&run_instances_probe(server.world())).await,
    );
    for without_template in [fleet, run] {
        if server.differs(Difference::DryRunsLookAtNothing) {
            assert_eq!(without_template.unwrap(), DryRunOutcome::WouldSucceed);
        } else {
            assert_eq!(without_template.unwrap_err().class(), ErrorClass::TemplateMissing);
        }
    }
    ec2.create_launch_template(&world.template()).await.unwrap();
    assert_eq!(ec2.dry_run_create_fleet(&request).await.unwrap(), DryRunOutcome::WouldSucceed);
    assert_eq!(
        ec2.dry_run_run_instances(&run_instances_probe(server.world())).await.unwrap(),
        DryRunOutcome::WouldSucceed
    );
    assert_eq!(instances(server).await, []);
}

/// A denied call is an outcome, not an error.
pub async fn a_dry_run_says_what_is_denied<S: Server>(server: &S) {
    let (ec2, world) = (server.ec2(), server.world());
    ec2.create_launch_template(&world.template()).await.unwrap();
    server.deny(Call::CreateFleet);
    let request = world.fleet(TargetCapacityType::OnDemand, 1, vec![world.launch("m5.large", 0)]);
    let outcome = ec2.dry_run_create_fleet(&request).await.unwrap();
    if server.differs(Difference::NothingIsDenied) {
        assert_eq!(outcome, DryRunOutcome::WouldSucceed);
        return;
    }
    let DryRunOutcome::Unauthorized { action, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(action, "CreateFleet");
    assert_eq!(ec2.create_fleet(&request).await.unwrap_err().class(), ErrorClass::Unauthorized);
    assert_eq!(
        ec2.dry_run_run_instances(&run_instances_probe(server.world())).await.unwrap(),
        DryRunOutcome::WouldSucceed
    );
}
