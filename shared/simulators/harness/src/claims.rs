//! Claims for tests of handlers: the n-th of the cluster `prod`, with its instance and its Node.
//!
//! Decides nothing. Each test changes the values that matter to it.

#![expect(clippy::unwrap_used, reason = "the ids are made in this file, and valid")]

use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{Claim, ClaimState, LaunchedInstance};
use tenon_domain::id::{ClaimName, ClusterName, InstanceId, NodeName};
use tenon_domain::unavailable::OfferingKey;
use tenon_memory_table::block_on;
use tenon_table::Table;
use tenon_table::items::{InstanceOwner, keys, put};

use super::{EPOCH, FunctionWorld, WorldConfig};
use tenon_table::content_commit;

/// The cluster.
#[must_use]
pub fn cluster() -> ClusterName {
    ClusterName::parse("prod").unwrap()
}

/// The n-th instance's id.
#[must_use]
pub fn instance_id(n: usize) -> InstanceId {
    InstanceId::parse(format!("i-{n:017}")).unwrap()
}

/// The n-th claim's name.
#[must_use]
pub fn claim_name(n: usize) -> ClaimName {
    ClaimName::parse(format!("default-{n:05}")).unwrap()
}

/// The n-th Node's name.
#[must_use]
pub fn node_name(n: usize) -> NodeName {
    NodeName::parse(format!("node-{n}")).unwrap()
}

/// The n-th instance, on-demand.
#[must_use]
pub fn instance(n: usize) -> LaunchedInstance {
    LaunchedInstance {
        id: instance_id(n),
        instance_type: "m5.large".parse().unwrap(),
        zone: "us-east-1a".parse().unwrap(),
        subnet: Some("subnet-00000000000000001".parse().unwrap()),
        reservation: None,
        placement: None,
        capacity_type: CapacityType::OnDemand,
        image: "ami-1".parse().unwrap(),
    }
}

/// The offering of such an instance.
#[must_use]
pub fn offering_of(held: &LaunchedInstance) -> OfferingKey {
    OfferingKey {
        capacity_type: held.capacity_type,
        zone_id: "use1-az1".parse().unwrap(),
        instance_type: held.instance_type.clone(),
    }
}

/// The n-th claim, of `launch-1`, in a state.
#[must_use]
pub fn claim(n: usize, state: ClaimState) -> Claim {
    Claim {
        revision: 3,
        state,
        ..Claim::planned(
            claim_name(n),
            ("default".parse().unwrap(), "default".parse().unwrap()),
            "launch-1".parse().unwrap(),
            EPOCH,
        )
    }
}

/// A world whose table holds these claims, with the owners of their instances.
#[must_use]
pub fn world_with(claims: &[Claim]) -> FunctionWorld {
    world_of(&WorldConfig::default(), claims)
}

/// The same in another world.
#[must_use]
pub fn world_of(config: &WorldConfig, claims: &[Claim]) -> FunctionWorld {
    let world = FunctionWorld::new(config).unwrap();
    for claim in claims {
        let mut writes = vec![put(keys::claim(&cluster(), &claim.name), claim)];
        writes.extend(claim.state.instance().map(|held| {
            let (instance, claim) = (held.id.clone(), claim.name.clone());
            let offering = Some(offering_of(held));
            put(keys::instance(&held.id), &InstanceOwner { instance, cluster: cluster(), claim, offering })
        }));
        block_on(world.table.commit(&content_commit(vec![], writes))).unwrap();
    }
    world
}
