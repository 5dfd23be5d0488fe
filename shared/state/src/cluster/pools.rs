//! The pools of new claims, and the used part of their limits.
//!
//! Invariant: a claim without a known type uses as much as the largest of its types.

use std::collections::BTreeSet;
use tenon_domain::catalog::find_option;

use tenon_domain::api::{Node, NodePool};
use tenon_domain::claim::Claim;
use tenon_domain::id::{NodeClassName, NodeName};
use tenon_domain::labels;
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_ec2::port::CreateFleetRequest;
use tenon_planning::provision::{PoolInput, Purpose};

use super::ObservedCluster;

impl ObservedCluster<'_> {
    /// The pools that claims are planned for. A doubt about a class's launches is for pending pods alone: replacements
    /// of its nodes launch a few at a time anyway.
    pub(super) fn pools(&self, purpose: &Purpose) -> Vec<PoolInput> {
        let live = self.view.claims.values().filter(|claim| holds_node(claim)).count();
        let nodes_left = self
            .registry
            .allowed
            .max_nodes
            .map(|most| most.saturating_sub(u32::try_from(live).unwrap_or(u32::MAX)));
        let dynamic = self.snapshot.node_pools.iter().filter(|pool| plans(pool));
        dynamic
            .filter_map(|pool| {
                let judged = self.judged.get(&pool.name)?;
                Some(PoolInput {
                    pool: pool.clone(),
                    types: self.types.get(&pool.name).cloned().unwrap_or_default(),
                    usage: self.usage(pool),
                    readiness: judged.readiness.clone(),
                    nodes_left,
                    standing: match purpose {
                        Purpose::PendingPods => judged.standing.max(judged.doubt),
                        Purpose::Replacement(_) => judged.standing,
                    },
                    without: judged.without.clone(),
                })
            })
            .collect()
    }

    /// The pools with nodes of a class, in the order in which plans try them.
    #[must_use]
    pub fn pools_of(&self, class: &NodeClassName) -> Vec<PoolInput> {
        let mut pools = self.pools(&Purpose::PendingPods);
        pools.retain(|input| input.pool.template.node_class.name == *class);
        pools.sort_by(|a, b| (b.pool.weight, &b.pool.name).cmp(&(a.pool.weight, &a.pool.name)));
        pools
    }

    /// Capacity of the pool's nodes and claims. A claim without a known type counts as the largest of its types.
    fn usage(&self, pool: &NodePool) -> ResourceList {
        let mut usage = ResourceList::new();
        let mut nodes = 0_i64;
        let mut known: BTreeSet<&NodeName> = BTreeSet::new();
        for claim in self.view.claims.values().filter(|claim| claim.pool == pool.name && holds_node(claim)) {
            nodes += 1;
            let node = self.node_of(claim);
            known.extend(node.map(|node| &node.name));
            match node.filter(|node| !node.capacity.is_empty()) {
                Some(node) => usage.add(&node.capacity),
                None => usage.add(&self.capacity(claim)),
            }
        }
        let own = |node: &&Node| {
            node.meta.labels.get(labels::NODEPOOL).map(String::as_str) == Some(pool.name.as_str())
        };
        for node in self.snapshot.nodes.iter().filter(own).filter(|node| !known.contains(&node.name)) {
            nodes += 1;
            usage.add(&node.capacity);
        }
        usage.with(ResourceName::NODES, Quantity::from_integer(nodes))
    }

    fn capacity(&self, claim: &Claim) -> ResourceList {
        let types = self.types.get(&claim.pool).map_or(&[][..], |types| types.as_slice());
        if let Some(instance) = claim.state.instance() {
            return find_option(types, &instance.instance_type)
                .map(|o| o.capacity.clone())
                .unwrap_or_default();
        }
        let request = self
            .view
            .launches
            .get(&claim.launch)
            .and_then(|l| CreateFleetRequest::from_stored(&l.request).ok());
        let overrides =
            request.iter().flat_map(|request| &request.launch_templates).flat_map(|t| &t.overrides);
        let mut most = ResourceList::new();
        for option in overrides.filter_map(|from| find_option(types, &from.instance_type)) {
            most.raise(&option.capacity);
        }
        most
    }
}

/// Whether claims are planned for a pool: a dynamic one that isn't being deleted.
pub(super) fn plans(pool: &NodePool) -> bool {
    pool.replicas.is_none() && pool.meta.deleted_at.is_none()
}

/// Whether there is, or will be, a node for the claim.
const fn holds_node(claim: &Claim) -> bool {
    !claim.phase().is_final()
}
