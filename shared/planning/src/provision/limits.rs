//! The limits on launches: a pool's own, and those of the cluster's stack, which all pools share.
//!
//! Decides what a node of a type charges against each limit, and what is left of it. It doesn't decide which types are
//! tried, or which nodes leave.
//!
//! Invariants: a claim charges each limit at most as much as the type that it is packed on, whichever of its types it
//! gets; the nodes of a pool that stay keep its limits, and with the leaving ones twice its limits; each node counts
//! against the cluster's limits until it is gone.

use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{ResourceList, ResourceName};

use super::input::PoolInput;
use super::trials::Spent;

/// A limit on the pool's launches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Limit {
    /// `spec.limits` of the pool.
    Pool(ResourceName),
    /// The nodes that the registry allows the cluster.
    ClusterNodes,
    /// The vCPUs that the registry allows the cluster.
    ClusterVcpus,
}

impl Limit {
    /// Whether each node takes as much of it as any other.
    pub(crate) fn counts_nodes(&self) -> bool {
        match self {
            Self::Pool(name) => *name == ResourceName::NODES,
            Self::ClusterNodes => true,
            Self::ClusterVcpus => false,
        }
    }
}

/// What some claims take of the cluster's limits, in nanos.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClusterUse {
    nodes: i128,
    vcpus: i128,
}

impl ClusterUse {
    /// Adds a claim whose largest type has this capacity.
    pub(crate) fn add(&mut self, capacity: &ResourceList) {
        self.nodes = self.nodes.saturating_add(one());
        self.vcpus = self.vcpus.saturating_add(capacity.get(&ResourceName::CPU).nanos());
    }

    /// Puts a claim on a larger type.
    pub(crate) fn grow(&mut self, from: &ResourceList, to: &ResourceList) {
        let vcpus = |capacity: &ResourceList| capacity.get(&ResourceName::CPU).nanos();
        self.vcpus = self.vcpus.saturating_add(vcpus(to)).saturating_sub(vcpus(from));
    }

    /// The rest of the limits of a pool's cluster; nothing where there is no limit.
    pub(crate) fn left(self, input: &PoolInput) -> Vec<(Limit, i128)> {
        let all = [(Limit::ClusterNodes, input.nodes_left), (Limit::ClusterVcpus, input.vcpus_left)];
        let left = |(limit, left): (Limit, Option<u32>)| {
            Some((limit, Quantity::from_integer(i64::from(left?)).nanos()))
        };
        self.lessened(&all.into_iter().filter_map(left).collect::<Vec<_>>())
    }

    /// Limits without what these claims take.
    pub(crate) fn lessened(self, limits: &[(Limit, i128)]) -> Vec<(Limit, i128)> {
        let taken = |limit: &Limit| match limit {
            Limit::Pool(_) => 0,
            Limit::ClusterNodes => self.nodes,
            Limit::ClusterVcpus => self.vcpus,
        };
        let rest = |(limit, left): &(Limit, i128)| (limit.clone(), left.saturating_sub(taken(limit)).max(0));
        limits.iter().map(rest).collect()
    }
}

/// The rest of the pool's limits, in nanos: its own, then the cluster's. Leaving nodes leave room for their replacements;
/// but nodes that can't drain don't let the pool grow for ever.
pub(crate) fn limits_left(input: &PoolInput, spent: &Spent) -> Vec<(Limit, i128)> {
    let (stays, all) = (spent.staying(input), spent.present(input));
    let left = |name: &ResourceName, limit: Quantity| {
        let with_leaving = limit.saturating_mul(2).saturating_sub(all.get(name));
        limit.saturating_sub(stays.get(name)).nanos().min(with_leaving.nanos())
    };
    let own = input.pool.limits.iter().map(|(name, limit)| (Limit::Pool(name.clone()), left(name, limit)));
    own.chain(spent.of_cluster().left(input)).collect()
}

/// The charge of a node of a type against a limit.
pub(crate) fn charge(option: &InstanceTypeOption, limit: &Limit) -> i128 {
    match limit {
        Limit::Pool(name) if *name != ResourceName::NODES => option.capacity.get(name).nanos(),
        Limit::Pool(_) | Limit::ClusterNodes => one(),
        Limit::ClusterVcpus => option.capacity.get(&ResourceName::CPU).nanos(),
    }
}

const fn one() -> i128 {
    Quantity::from_integer(1).nanos()
}
