//! Trials: plans for the same cluster with a small change each, such as a node less.
//!
//! Decides nothing of its own. Pools are compiled once; a trial changes nothing that the next one sees, unless its plan
//! is taken. What is taken takes room on nodes, of the pools' limits and of reservations, and names of claims.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::Pod;
use tenon_domain::id::{ClaimName, NodePoolName, ReservationId, Uid};
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{ResourceList, ResourceName};

use super::input::{ExistingNode, NodeKind, PoolInput, ProvisionInput, Purpose};
use super::limits::ClusterUse;
use super::output::{PlannedClaim, ProvisionPlan};
use super::pool::Pool;
use super::report::ProvisionReport;
use super::{InputMeasures, Scope, measures, plan_scope};

/// What taken plans have used of the limits of pools and of the cluster, and of reservations.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    of_cluster: ClusterUse,
    by_pool: BTreeMap<NodePoolName, ResourceList>,
    reserved: BTreeMap<ReservationId, u32>,
    /// The nodes that they take away.
    gone: BTreeSet<String>,
    /// The nodes that the plan that is tried takes away.
    without: BTreeSet<String>,
}

impl Spent {
    /// The capacity of the pool's nodes and claims that stay.
    pub(crate) fn staying(&self, pool: &PoolInput) -> ResourceList {
        let mut usage = pool.usage.clone();
        for charge in self.gone.union(&self.without).filter_map(|node| pool.charges.get(node)) {
            usage.subtract(charge);
        }
        if let Some(more) = self.by_pool.get(&pool.pool.name) {
            usage.add(more);
        }
        usage
    }

    /// The capacity of all of the pool's nodes and claims: a node that leaves is there for some time.
    pub(crate) fn present(&self, pool: &PoolInput) -> ResourceList {
        let mut usage = pool.usage.clone().plus(&pool.leaving);
        if let Some(more) = self.by_pool.get(&pool.pool.name) {
            usage.add(more);
        }
        usage
    }

    /// What they take of the cluster's limits.
    pub(crate) const fn of_cluster(&self) -> ClusterUse {
        self.of_cluster
    }

    /// How many claims use each reservation.
    pub(crate) const fn reserved(&self) -> &BTreeMap<ReservationId, u32> {
        &self.reserved
    }

    /// A pool with limits charges every type of a claim at most what the first type charges.
    fn add(&mut self, claim: &PlannedClaim, pool: &PoolInput) {
        let one = ResourceList::new().with(ResourceName::NODES, Quantity::from_integer(1));
        let types = pool.types.iter().filter(|option| claim.instance_types.contains(&option.facts.name));
        let largest = types.fold(ResourceList::new(), |most, option| most.max(&option.capacity));
        self.of_cluster.add(&largest);
        self.by_pool.entry(claim.pool.clone()).or_default().add(&largest.plus(&one));
        // All reserved offerings of a claim are of one reservation.
        if let Some(into) = claim.offerings.iter().find_map(|offering| offering.reservation.as_ref()) {
            let claims = self.reserved.entry(into.id.clone()).or_default();
            *claims = claims.saturating_add(1);
        }
    }
}

/// A cluster on which plans are tried.
#[expect(missing_debug_implementations, reason = "thousands of compiled types say nothing")]
pub struct PlanTrials<'a> {
    input: &'a ProvisionInput,
    measures: InputMeasures<'a>,
    pools: Vec<Pool<'a>>,
    nodes: Vec<ExistingNode>,
    taken_names: BTreeSet<ClaimName>,
}

impl<'a> PlanTrials<'a> {
    /// The input's cluster with those of its nodes that `stays` names. `pods` are all that trials may place.
    pub fn new(
        input: &'a ProvisionInput,
        stays: impl Fn(&ExistingNode) -> bool,
        pods: impl IntoIterator<Item = &'a Pod>,
    ) -> Self {
        Self {
            input,
            measures: measures(input, pods),
            pools: Vec::new(),
            nodes: input.nodes.iter().filter(|node| stays(node)).cloned().collect(),
            taken_names: input.taken_names.clone(),
        }
    }

    /// Where the pods would go without some of the nodes, which count against the limits of no pool. It takes no room.
    pub fn plan(
        &mut self,
        purpose: &Purpose,
        without: &BTreeSet<&str>,
        pods: &[Pod],
    ) -> (ProvisionPlan, ProvisionReport) {
        self.measures.spent.without = without.iter().map(|node| (*node).to_owned()).collect();
        let scope = Scope {
            pods,
            nodes: self.nodes.iter().filter(|node| !without.contains(node.name.as_str())).collect(),
            taken_names: &self.taken_names,
            purpose,
        };
        plan_scope(self.input, &scope, &self.measures, &mut self.pools)
    }

    /// Keeps pods of replaced nodes from these nodes, as if they were still starting.
    pub fn close(&mut self, nodes: &BTreeSet<&str>) {
        for node in self.nodes.iter_mut().filter(|node| nodes.contains(node.name.as_str())) {
            node.kind = NodeKind::Starting;
        }
    }

    /// Where the pods would go on the nodes alone that are named, while they count the pods of all.
    pub fn place(&self, pods: &[Pod], to: impl Fn(&str) -> bool) -> ProvisionPlan {
        let nodes = self.nodes.iter().map(|node| {
            let mut node = node.clone();
            if !to(&node.name) {
                node.allocatable = ResourceList::new();
            }
            node
        });
        let nodes_only = ProvisionInput {
            pods: pods.to_vec(),
            nodes: nodes.collect(),
            pools: Vec::new(),
            ..self.input.clone()
        };
        super::plan(&nodes_only).0
    }

    /// Takes a plan's room, and some nodes away.
    pub fn take(&mut self, without: &BTreeSet<&str>, plan: &ProvisionPlan, pods: &[Pod]) {
        self.nodes.retain(|node| !without.contains(node.name.as_str()));
        self.measures.spent.gone.extend(without.iter().map(|node| (*node).to_owned()));
        let by_uid: BTreeMap<&Uid, &Pod> = pods.iter().map(|pod| (&pod.uid, pod)).collect();
        let mut placed: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        for placement in &plan.placements {
            let pod = by_uid.get(&placement.pod.uid).copied();
            placed.entry(placement.node.as_str()).or_default().extend(pod);
        }
        for node in &mut self.nodes {
            node.occupancy.extend(placed.get(node.name.as_str()).into_iter().flatten().copied());
        }
        for claim in &plan.claims {
            self.taken_names.insert(claim.name.clone());
            if let Some(pool) = self.input.pools.iter().find(|pool| pool.pool.name == claim.pool) {
                self.measures.spent.add(claim, pool);
            }
        }
    }
}
