//! Limits of launches: capacity pools and quotas.
//!
//! Decides how many more instances fit. Invariants: a pool without a setting has no limit; a terminated instance
//! returns its capacity.

use std::collections::BTreeMap;

use tenon_domain::id::{InstanceType, Zone};

use tenon_ec2::port::TargetCapacityType;

/// A capacity pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CapacityPool {
    /// Spot and on-demand are apart.
    pub capacity_type: TargetCapacityType,
    /// The type.
    pub instance_type: InstanceType,
    /// The zone's name.
    pub zone: Zone,
}

/// The families that share a vCPU quota ("Amazon EC2 service quotas", read November 2026).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaFamily {
    /// A, C, D, H, I, M, R, T, Z.
    Standard,
    /// DL.
    Dl,
    /// F.
    F,
    /// G and VT.
    GAndVt,
    /// HPC.
    Hpc,
    /// Inf.
    Inf,
    /// P.
    P,
    /// Trn.
    Trn,
    /// U, the high memory types.
    HighMemory,
    /// X.
    X,
}

impl QuotaFamily {
    /// The family of a type.
    #[must_use]
    pub fn of(instance_type: &InstanceType) -> Self {
        let name = instance_type.as_str();
        let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
        if starts(&["trn"]) {
            Self::Trn
        } else if starts(&["inf"]) {
            Self::Inf
        } else if starts(&["hpc"]) {
            Self::Hpc
        } else if starts(&["dl"]) {
            Self::Dl
        } else if starts(&["vt", "g"]) {
            Self::GAndVt
        } else if starts(&["u-", "u7"]) {
            Self::HighMemory
        } else if starts(&["p"]) {
            Self::P
        } else if starts(&["f"]) {
            Self::F
        } else if starts(&["x"]) {
            Self::X
        } else {
            Self::Standard
        }
    }
}

/// A quota of running vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quota {
    /// Spot and on-demand are apart.
    pub capacity_type: TargetCapacityType,
    /// The families that share it.
    pub family: QuotaFamily,
}

/// Why a pool gave fewer instances than requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolShortage {
    Pool,
    Quota,
}

#[derive(Debug, Default)]
pub(super) struct Capacity {
    /// The free capacity of each limited pool.
    pools: BTreeMap<CapacityPool, u32>,
    quotas: BTreeMap<Quota, u32>,
    vcpus: BTreeMap<Quota, u32>,
}

impl Capacity {
    /// Sets the free capacity of a pool; `None` removes the limit.
    pub(super) fn set(&mut self, pool: CapacityPool, left: Option<u32>) {
        match left {
            Some(left) => self.pools.insert(pool, left),
            None => self.pools.remove(&pool),
        };
    }

    /// Sets a quota, in vCPUs; `None` takes it away.
    pub(super) fn set_quota(&mut self, quota: Quota, vcpus: Option<u32>) {
        match vcpus {
            Some(vcpus) => self.quotas.insert(quota, vcpus),
            None => self.quotas.remove(&quota),
        };
    }

    /// The free capacity of a pool; `None` without a limit.
    pub(super) fn left(&self, pool: &CapacityPool) -> Option<u32> {
        self.pools.get(pool).copied()
    }

    /// How many of `wanted` fit, and the limit.
    pub(super) fn fit(&self, pool: &CapacityPool, vcpus: u32, wanted: u32) -> (u32, Option<PoolShortage>) {
        let in_pool = self.left(pool).unwrap_or(u32::MAX);
        let quota = quota_of(pool);
        let used = self.vcpus.get(&quota).copied().unwrap_or(0);
        let in_quota = self.quotas.get(&quota).map_or(u32::MAX, |q| q.saturating_sub(used) / vcpus.max(1));
        let fit = wanted.min(in_pool).min(in_quota);
        let shortage = match (fit < wanted, in_pool <= in_quota) {
            (false, _) => None,
            (true, true) => Some(PoolShortage::Pool),
            (true, false) => Some(PoolShortage::Quota),
        };
        (fit, shortage)
    }

    pub(super) fn take(&mut self, pool: &CapacityPool, vcpus: u32) {
        if let Some(left) = self.pools.get_mut(pool) {
            *left = left.saturating_sub(1);
        }
        let used = self.vcpus.entry(quota_of(pool)).or_default();
        *used = used.saturating_add(vcpus);
    }

    pub(super) fn give_back(&mut self, pool: &CapacityPool, vcpus: u32) {
        if let Some(left) = self.pools.get_mut(pool) {
            *left = left.saturating_add(1);
        }
        let used = self.vcpus.entry(quota_of(pool)).or_default();
        *used = used.saturating_sub(vcpus);
    }
}

fn quota_of(pool: &CapacityPool) -> Quota {
    Quota { capacity_type: pool.capacity_type, family: QuotaFamily::of(&pool.instance_type) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> CapacityPool {
        CapacityPool {
            capacity_type: TargetCapacityType::OnDemand,
            instance_type: InstanceType::parse("m5.large").unwrap(),
            zone: Zone::parse("us-east-1a").unwrap(),
        }
    }

    #[test]
    fn a_pool_runs_dry_and_gets_back_what_ends() {
        let mut capacity = Capacity::default();
        assert_eq!(capacity.fit(&pool(), 2, 500), (500, None));
        capacity.set(pool(), Some(2));
        assert_eq!(capacity.fit(&pool(), 2, 3), (2, Some(PoolShortage::Pool)));
        capacity.take(&pool(), 2);
        capacity.take(&pool(), 2);
        assert_eq!(capacity.fit(&pool(), 2, 1), (0, Some(PoolShortage::Pool)));
        capacity.give_back(&pool(), 2);
        assert_eq!(capacity.fit(&pool(), 2, 1), (1, None));
    }

    #[test]
    fn a_quota_counts_vcpus_of_its_family() {
        let mut capacity = Capacity::default();
        capacity.set_quota(quota_of(&pool()), Some(5));
        assert_eq!(capacity.fit(&pool(), 2, 3), (2, Some(PoolShortage::Quota)));
        assert_eq!(QuotaFamily::of(&InstanceType::parse("g5.xlarge").unwrap()), QuotaFamily::GAndVt);
        assert_eq!(QuotaFamily::of(&InstanceType::parse("p4d.24xlarge").unwrap()), QuotaFamily::P);
    }
}
