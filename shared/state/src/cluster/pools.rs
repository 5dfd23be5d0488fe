//! The pools of new claims, and the used part of their limits and of the cluster's.
//!
//! Invariants: a claim without a known type uses as much as the largest of its types; a claim that leaves counts against
//! no pool's limits as one that stays; each claim that holds a node counts against the cluster's limits, also one that
//! leaves, or whose pool or class is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::api::{Node, NodePool};
use tenon_domain::catalog::facts::InstanceTypeFacts;
use tenon_domain::catalog::{PartData, find_option};
use tenon_domain::claim::Claim;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::{InstanceType, LaunchId, NodeClassName, NodeName, NodePoolName};
use tenon_domain::labels;
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_ec2::port::CreateFleetRequest;
use tenon_planning::provision::{GuessedVcpus, PoolInput, Purpose};

use super::ObservedCluster;

impl ObservedCluster<'_> {
    /// The pools that claims are planned for. A doubt about a class's launches is for pending pods alone: replacements
    /// of its nodes launch a few at a time anyway.
    pub(super) fn pools(&self, purpose: &Purpose) -> Vec<PoolInput> {
        let allowed = &self.registry.allowed;
        let live = self.view.claims.values().filter(|claim| holds_node(claim)).count();
        let nodes_left =
            allowed.max_nodes.map(|most| most.saturating_sub(u32::try_from(live).unwrap_or(u32::MAX)));
        let (vcpus_left, vcpus_guessed) = match allowed.max_vcpus {
            Some(most) => {
                let UsedVcpus { vcpus, guessed } = self.used_vcpus();
                (Some(most.saturating_sub(vcpus)), guessed)
            }
            None => (None, None),
        };
        let dynamic = self.snapshot.node_pools.iter().filter(|pool| plans(pool));
        dynamic
            .filter_map(|pool| {
                let judged = self.judged.get(&pool.name)?;
                let CountedNodes { usage, leaving, charges } = self.counted_nodes(pool);
                Some(PoolInput {
                    pool: pool.clone(),
                    types: self.types.get(&pool.name).cloned().unwrap_or_default(),
                    usage,
                    leaving,
                    charges,
                    readiness: judged.readiness.clone(),
                    nodes_left,
                    vcpus_left,
                    vcpus_guessed: vcpus_guessed.clone(),
                    standing: match purpose {
                        Purpose::PendingPods => judged.standing.max(judged.doubt),
                        Purpose::Replacement(_) | Purpose::AskingReplacement(_) => judged.standing,
                    },
                    without: judged.without.clone(),
                })
            })
            .collect()
    }

    /// The names of static pools that aren't being deleted.
    pub(super) fn static_pools(&self) -> BTreeSet<NodePoolName> {
        let all = self.snapshot.node_pools.iter();
        let fixed = all.filter(|pool| pool.replicas.is_some() && pool.meta.deleted_at.is_none());
        fixed.map(|pool| pool.name.clone()).collect()
    }

    /// The names of pools that are being deleted.
    pub(super) fn leaving_pools(&self) -> BTreeSet<NodePoolName> {
        let leaving = self.snapshot.node_pools.iter().filter(|pool| pool.meta.deleted_at.is_some());
        leaving.map(|pool| pool.name.clone()).collect()
    }

    /// The pools with nodes of a class, in the order in which plans try them.
    #[must_use]
    pub fn pools_of(&self, class: &NodeClassName) -> Vec<PoolInput> {
        let mut pools = self.pools(&Purpose::PendingPods);
        pools.retain(|input| input.pool.template.node_class.means(class));
        pools.sort_by(|a, b| (b.pool.weight, &b.pool.name).cmp(&(a.pool.weight, &a.pool.name)));
        pools
    }

    /// Capacity of the pool's nodes and claims. A claim without a known type counts as the largest of its types.
    fn counted_nodes(&self, pool: &NodePool) -> CountedNodes {
        let mut counted = CountedNodes::default();
        let mut known: BTreeSet<&NodeName> = BTreeSet::new();
        for claim in self.view.claims.values().filter(|claim| claim.pool == pool.name && holds_node(claim)) {
            let node = self.node_of(claim);
            known.extend(node.map(|node| &node.name));
            let capacity = match node.filter(|node| !node.capacity.is_empty()) {
                Some(node) => node.capacity.clone(),
                None => self.capacity(claim),
            };
            counted.add(
                node,
                &capacity,
                if claim.phase().offers_room() { Going::Stays } else { Going::Leaves },
            );
        }
        let own = |node: &&Node| {
            node.meta.labels.get(labels::NODEPOOL).map(String::as_str) == Some(pool.name.as_str())
        };
        for node in self.snapshot.nodes.iter().filter(own).filter(|node| !known.contains(&node.name)) {
            let going = if node.meta.deleted_at.is_none() { Going::Stays } else { Going::Leaves };
            counted.add(Some(node), &node.capacity, going);
        }
        if pool.limits.is_empty() {
            counted.charges.clear();
        }
        counted
    }

    fn capacity(&self, claim: &Claim) -> ResourceList {
        let types = self.types.get(&claim.pool).map_or(&[][..], |types| types.as_slice());
        if let Some(instance) = claim.state.instance() {
            return find_option(types, &instance.instance_type)
                .map(|o| o.capacity.clone())
                .unwrap_or_default();
        }
        let mut most = ResourceList::new();
        for option in self.asked_types(claim).iter().filter_map(|name| find_option(types, name)) {
            most.raise(&option.capacity);
        }
        most
    }

    /// The types that the claim's launch asks for.
    fn asked_types(&self, claim: &Claim) -> BTreeSet<InstanceType> {
        let launch = self.view.launches.get(&claim.launch);
        let request = launch.and_then(|launch| CreateFleetRequest::from_stored(&launch.request).ok());
        let templates = request.into_iter().flat_map(|request| request.launch_templates);
        templates.flat_map(|template| template.overrides).map(|from| from.instance_type).collect()
    }

    /// The vCPUs of the cluster's nodes, whatever became of their pools. A claim counts as its type, else as Nodes report
    /// it, else as the largest that it may be of, so that the cluster's limit holds.
    fn used_vcpus(&self) -> UsedVcpus {
        let types = self.described();
        let of_type = |name: &InstanceType| types.and_then(|types| types.get(name)).map(|facts| facts.vcpus);
        let largest = types.into_iter().flat_map(BTreeMap::values).map(|facts| facts.vcpus).max();
        // A launch has many claims, and its request is long.
        let mut asked: BTreeMap<&LaunchId, Option<u32>> = BTreeMap::new();
        let mut used = UsedVcpus::default();
        for claim in self.view.claims.values().filter(|claim| holds_node(claim)) {
            let known = match claim.state.instance() {
                Some(instance) => of_type(&instance.instance_type)
                    .or_else(|| self.reported_vcpus(claim, &instance.instance_type)),
                None => *asked
                    .entry(&claim.launch)
                    .or_insert_with(|| self.asked_types(claim).iter().filter_map(of_type).max()),
            };
            match known {
                Some(vcpus) => used.vcpus = used.vcpus.saturating_add(vcpus),
                None => used.guess(claim, largest.unwrap_or_default()),
            }
        }
        used
    }

    /// The vCPUs that the claim's Node reports, else other Nodes of its type: EC2 may not describe the type any longer.
    fn reported_vcpus(&self, claim: &Claim, instance_type: &InstanceType) -> Option<u32> {
        let of_node = |node: &Node| {
            u32::try_from(node.capacity.get(&ResourceName::CPU).value_ceil()).ok().filter(|vcpus| *vcpus > 0)
        };
        let is_of_type = |node: &&Node| {
            node.meta.labels.get(labels::INSTANCE_TYPE).map(String::as_str) == Some(instance_type.as_str())
        };
        let own = self.node_of(claim).and_then(of_node);
        own.or_else(|| self.snapshot.nodes.iter().filter(is_of_type).filter_map(of_node).max())
    }

    /// The types that EC2 describes, as far as the catalogue ever had them: a type's vCPUs don't change.
    fn described(&self) -> Option<&BTreeMap<InstanceType, Arc<InstanceTypeFacts>>> {
        match &*self.view.parts.get(&CatalogPart::InstanceTypes)?.data {
            PartData::InstanceTypes(types) => Some(types),
            PartData::Offerings(_) | PartData::OnDemandPrices(_) | PartData::SpotPrices(_) => None,
        }
    }
}

/// The nodes of a pool, as its limits count them.
#[derive(Default)]
struct CountedNodes {
    usage: ResourceList,
    leaving: ResourceList,
    charges: BTreeMap<String, ResourceList>,
}

/// Whether a node leaves.
#[derive(Clone, Copy)]
enum Going {
    Stays,
    Leaves,
}

impl CountedNodes {
    fn add(&mut self, node: Option<&Node>, capacity: &ResourceList, going: Going) {
        let one = capacity.clone().with(ResourceName::NODES, Quantity::from_integer(1));
        match going {
            Going::Leaves => self.leaving.add(&one),
            Going::Stays => {
                self.usage.add(&one);
                self.charges.extend(node.map(|node| (node.name.to_string(), one)));
            }
        }
    }
}

/// The vCPUs that count against the cluster's limit.
#[derive(Default)]
struct UsedVcpus {
    vcpus: u32,
    /// The claims of which nothing tells the size.
    guessed: Option<GuessedVcpus>,
}

impl UsedVcpus {
    fn guess(&mut self, claim: &Claim, each: u32) {
        self.vcpus = self.vcpus.saturating_add(each);
        match &mut self.guessed {
            Some(guessed) => guessed.more = guessed.more.saturating_add(1),
            None => self.guessed = Some(GuessedVcpus { first: claim.name.clone(), more: 0, each }),
        }
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
