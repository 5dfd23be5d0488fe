//! The decisions of provisioning: claims to launch, and pods that fit on existing nodes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::catalog::{CapacityType, InstanceTypeOption, OfferedReservation, Offering};
use tenon_domain::claim::{MinValuesState, Terms};
use tenon_domain::class_hash::{FieldDigests, PoolHash};
use tenon_domain::id::{ClaimName, InstanceType, NodeClassName, NodePoolName, Zone, ZoneId};
use tenon_domain::launch::CountedPod;
use tenon_domain::money::UsdPerHour;
use tenon_domain::requirement::Requirements;
use tenon_domain::resources::ResourceList;
use tenon_domain::taint::Taint;

use super::shared::{ClaimOfferings, Shared};

/// A plan. A second plan, of the world in which the first is carried out, is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProvisionPlan {
    /// Claims to launch, by pool, then name.
    pub claims: Vec<PlannedClaim>,
    /// Pods that fit where room is already, by pod.
    pub placements: Vec<Placement>,
    /// The time of the next look, even without a change.
    pub wake_at: Option<Timestamp>,
}

/// A pod that has room already.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement {
    /// The pod.
    pub pod: CountedPod,
    /// [`super::ExistingNode::name`].
    pub node: String,
}

/// A claim to launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedClaim {
    /// `<pool>-<five characters>` of the plan's digest and the claim's content, independent of the input's order.
    pub name: ClaimName,
    /// Its pool.
    pub pool: NodePoolName,
    /// The hash of its pool's template.
    pub pool_hash: PoolHash,
    /// Digests of the fields of its pool's template.
    pub pool_fields: FieldDigests,
    /// Its node class.
    pub class: NodeClassName,
    /// `spec.requirements` of the NodeClaim.
    pub requirements: Shared<Requirements>,
    /// Labels that its Node gets, besides those that the instance type and its offering give.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pool's template.
    pub annotations: BTreeMap<String, String>,
    /// Taints of its Node.
    pub taints: Vec<Taint>,
    /// Taints that its Node starts with and that something else takes away.
    pub startup_taints: Vec<Taint>,
    /// The terms that it keeps of the pool's template.
    pub terms: Terms,
    /// Instance types that it may be of: by lowest price over `offerings`, then name. Each holds all its pods.
    pub instance_types: Shared<Vec<InstanceType>>,
    /// Every way to have it: by the place of its type in `instance_types`, then zone, then capacity type.
    pub offerings: ClaimOfferings,
    /// The zones of `offerings`.
    pub zones: BTreeSet<Zone>,
    /// The capacity types of `offerings`.
    pub capacity_types: BTreeSet<CapacityType>,
    /// Whether it has its pool's `minValues`.
    pub min_values: MinValuesState,
    /// Its pods, by name.
    pub pods: Vec<CountedPod>,
    /// Requests of its pods and of the DaemonSets that run on any of its types, `pods` among them.
    pub requests: ResourceList,
    /// The price of the offering that its launch would buy first (module `purchase`), among available offerings if there
    /// are any.
    pub price: Option<UsdPerHour>,
}

/// One way to have a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsableOffering {
    /// The type.
    pub instance_type: InstanceType,
    /// The zone's name.
    pub zone: Zone,
    /// The zone's id.
    pub zone_id: ZoneId,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// The reservation, for `reserved`.
    pub reservation: Option<OfferedReservation>,
    /// The price, if known.
    pub price: Option<UsdPerHour>,
    /// The reason for asking EC2.
    pub asked: AskReason,
}

impl UsableOffering {
    /// An offering of a type, as claims have it.
    pub(crate) fn of(option: &InstanceTypeOption, offering: &Offering, asked: AskReason) -> Self {
        Self {
            instance_type: option.facts.name.clone(),
            zone: offering.zone.clone(),
            zone_id: offering.zone_id.clone(),
            capacity_type: offering.capacity_type,
            reservation: offering.reservation.clone(),
            price: offering.price,
            asked,
        }
    }
}

/// The reason for asking EC2 for an offering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AskReason {
    /// It is available, as far as is known.
    Available,
    /// EC2 refused it earlier; one launch at a time asks again.
    Probe,
}

impl PlannedClaim {
    /// Whether it has nothing but probes.
    #[must_use]
    pub fn asks_only(&self) -> bool {
        self.offerings.iter().all(|offering| offering.asked == AskReason::Probe)
    }
}

impl ProvisionPlan {
    /// Whether nothing is to be done now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.placements.is_empty()
    }

    /// The exact sum of the claims' prices; claims without one count as nothing.
    #[must_use]
    pub fn price(&self) -> UsdPerHour {
        self.claims.iter().filter_map(|claim| claim.price).sum()
    }
}
