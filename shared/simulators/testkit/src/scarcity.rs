//! Scarcity of a simulated world, and its end: capacity of pools, quotas, addresses of subnets, and types that a
//! request can't get.

use std::collections::BTreeSet;

use tenon_domain::id::{ClusterName, InstanceType, SubnetId, Zone};
use tenon_ec2::port::{InstanceState, TargetCapacityType};
use tenon_region::engine::SimulatedRegion;
use tenon_twin::{CapacityPool, Quota, QuotaFamily};

use crate::random::Dice;
use crate::world::TYPES;

/// The current scarcity.
#[derive(Default)]
pub(crate) struct Scarcity {
    dry: BTreeSet<CapacityPool>,
    failing: BTreeSet<CapacityPool>,
    quotas: BTreeSet<Quota>,
    subnets: BTreeSet<SubnetId>,
}

impl Scarcity {
    /// A used pool runs dry, except for one instance at most.
    pub(crate) fn dry_up(&mut self, region: &SimulatedRegion, dice: &mut Dice) {
        let used = used(region);
        let Some((instance_type, zone)) = dice.pick(&used).cloned() else { return };
        let pool = CapacityPool { capacity_type: capacity_type(dice), instance_type, zone };
        region.twin().set_capacity(pool.clone(), Some(u32::try_from(dice.below(2)).unwrap_or(0)));
        self.dry.insert(pool);
    }

    /// Several pools run dry at once: those of one zone, or all, of one capacity type.
    pub(crate) fn dry_up_many(&mut self, region: &SimulatedRegion, dice: &mut Dice) {
        let capacity_type = capacity_type(dice);
        let only = if dice.permille(500) { dice.pick(&region.zones()).cloned() } else { None };
        for pool in pools(region, capacity_type) {
            if only.as_ref().is_none_or(|zone| *zone == pool.zone) && dice.permille(800) {
                region.twin().set_capacity(pool.clone(), Some(0));
                self.dry.insert(pool);
            }
        }
    }

    /// All pools run dry.
    pub(crate) fn dry_up_all(&mut self, region: &SimulatedRegion) {
        for capacity_type in [TargetCapacityType::Spot, TargetCapacityType::OnDemand] {
            for pool in pools(region, capacity_type) {
                region.twin().set_capacity(pool.clone(), Some(0));
                self.dry.insert(pool);
            }
        }
    }

    /// Pools get capacity again: all that are dry, or one of them.
    pub(crate) fn refill(&mut self, region: &SimulatedRegion, dice: &mut Dice) {
        if dice.permille(300) {
            self.end(region);
            return;
        }
        let dry: Vec<CapacityPool> = self.dry.iter().cloned().collect();
        if let Some(pool) = dice.pick(&dry) {
            self.dry.remove(pool);
            region.twin().set_capacity(pool.clone(), None);
        }
    }

    /// A quota of vCPUs is set near or below the current use.
    pub(crate) fn limit(&mut self, region: &SimulatedRegion, dice: &mut Dice) {
        let quota = Quota { capacity_type: capacity_type(dice), family: QuotaFamily::Standard };
        region.twin().set_quota(quota, Some(u32::try_from(dice.between(2, 24)).unwrap_or(2)));
        self.quotas.insert(quota);
    }

    /// A subnet has no free address left, or one.
    pub(crate) fn fill_subnet(&mut self, region: &SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
        let subnets: Vec<SubnetId> = region
            .classes(cluster)
            .into_iter()
            .flat_map(|class| class.subnets)
            .map(|subnet| subnet.id)
            .collect();
        let Some(subnet) = dice.pick(&subnets) else { return };
        let free = u32::try_from(dice.below(2)).unwrap_or(0);
        if region.twin().set_free_addresses(subnet, free).is_ok() {
            self.subnets.insert(subnet.clone());
        }
    }

    /// A pool refuses the request itself, such as its tenancy.
    pub(crate) fn refuse(&mut self, region: &SimulatedRegion, dice: &mut Dice) {
        let all = pools(region, capacity_type(dice));
        let Some(pool) = dice.pick(&all).cloned() else { return };
        let error =
            ("Unsupported".to_owned(), "The requested configuration is currently not supported.".to_owned());
        region.twin().fail_pool(pool.clone(), Some(error));
        self.failing.insert(pool);
    }

    /// Ends all scarcity.
    pub(crate) fn end(&mut self, region: &SimulatedRegion) {
        let Self { dry, failing, quotas, subnets } = std::mem::take(self);
        dry.into_iter().for_each(|pool| region.twin().set_capacity(pool, None));
        failing.into_iter().for_each(|pool| region.twin().fail_pool(pool, None));
        quotas.into_iter().for_each(|quota| region.twin().set_quota(quota, None));
        for subnet in subnets {
            let _ = region.twin().set_free_addresses(&subnet, u32::MAX);
        }
    }
}

fn capacity_type(dice: &mut Dice) -> TargetCapacityType {
    if dice.permille(500) { TargetCapacityType::Spot } else { TargetCapacityType::OnDemand }
}

fn pools(region: &SimulatedRegion, capacity_type: TargetCapacityType) -> Vec<CapacityPool> {
    let zones = region.zones();
    let types = TYPES.into_iter().filter_map(|name| InstanceType::parse(name).ok());
    let of = |instance_type: InstanceType| {
        let pool = move |zone: &Zone| CapacityPool {
            capacity_type,
            instance_type: instance_type.clone(),
            zone: zone.clone(),
        };
        zones.iter().map(pool).collect::<Vec<_>>()
    };
    types.flat_map(of).collect()
}

/// The types and zones of running instances.
fn used(region: &SimulatedRegion) -> Vec<(InstanceType, Zone)> {
    let records = region.twin().instances().into_iter();
    let running = records.filter(|record| record.instance.state == InstanceState::Running);
    running.map(|record| (record.instance.instance_type.clone(), record.instance.zone.clone())).collect()
}
