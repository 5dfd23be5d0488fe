//! The input of provisioning, from a cluster's view and its agent's snapshot.
//!
//! Combines the pods that claims count (`counted`), those of interrupted nodes (`displaced`) and of nodes that commands hold
//! (`moving`), claims of ephemeral volumes (`ephemeral`), pools (`classes`, `pools`) and nodes (`nodes`). It plans nothing.

mod classes;
mod compiled;
mod counted;
mod displaced;
mod ephemeral;
mod moving;
mod nodes;
mod pools;
mod reserved;
mod storage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenon_domain::catalog::find_option;

use crate::view::ClusterView;
use tenon_domain::Timestamp;
use tenon_domain::api::pod::{PodOrigin, SchedulingVerdict};
use tenon_domain::api::{Node, NodePool, Pod};
use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::catalog::facts::InstanceTypeFacts;
use tenon_domain::claim::Claim;
use tenon_domain::id::{ClaimName, ClusterName, InstanceId, NodeClassName, NodeName, NodePoolName, Uid};
use tenon_domain::registry::Registry;
use tenon_domain::snapshot::Snapshot;
use tenon_planning::provision::{DefaultSpread, ProvisionInput, Purpose, StepBudget, Storage};

use classes::JudgedPool;
use ephemeral::BoundClaims;

pub use classes::{ReadyClass, judged_request, refused_requests};
pub use compiled::CompiledClasses;
pub use displaced::AwaitedReport;

/// An observed cluster, indexed.
#[derive(Debug)]
pub struct ObservedCluster<'a> {
    view: &'a ClusterView,
    snapshot: &'a Snapshot,
    registry: &'a Registry,
    cluster: &'a ClusterName,
    /// Classes that launches can be made from.
    pub classes: BTreeMap<NodeClassName, ReadyClass>,
    /// Types of each dynamic pool, by name; none if the class or the catalogue isn't there.
    pub types: BTreeMap<NodePoolName, Arc<Vec<InstanceTypeOption>>>,
    judged: BTreeMap<NodePoolName, JudgedPool>,
    counted: BTreeMap<&'a Uid, &'a ClaimName>,
    /// Pods without a Node, and those that lose theirs.
    unbound: BTreeMap<&'a Uid, &'a Pod>,
    bound: BTreeMap<&'a NodeName, Vec<&'a Pod>>,
    by_instance: BTreeMap<&'a InstanceId, &'a Claim>,
    /// Pods that run, by the replacement on its way to which they move; none unless their room is kept.
    moving: BTreeMap<&'a ClaimName, Vec<&'a Pod>>,
    planned: BTreeSet<&'a Uid>,
    recount_at: Option<Timestamp>,
}

impl<'a> ObservedCluster<'a> {
    /// Indexes an observed cluster.
    #[must_use]
    pub fn new(
        cluster: &'a ClusterName,
        registry: &'a Registry,
        view: &'a ClusterView,
        snapshot: &'a Snapshot,
    ) -> Self {
        let mut bound: BTreeMap<&NodeName, Vec<&Pod>> = BTreeMap::new();
        for pod in snapshot.pods.iter().filter(|pod| !pod.is_finished()) {
            if let Some(node) = &pod.node {
                bound.entry(node).or_default().push(pod);
            }
        }
        let by_instance: BTreeMap<&InstanceId, &Claim> = view
            .claims
            .values()
            .filter_map(|claim| claim.state.instance().map(|instance| (&instance.id, claim)))
            .collect();
        let mut unbound: BTreeMap<&Uid, &Pod> =
            snapshot.pods.iter().filter(|pod| pod.is_unbound()).map(|pod| (&pod.uid, pod)).collect();
        let interrupted = displaced::interrupted(view, snapshot, &by_instance);
        let displaced = interrupted.iter().flat_map(|node| bound.get(*node).into_iter().flatten());
        unbound.extend(displaced.filter(|pod| pod.deleted_at.is_none()).map(|pod| (&pod.uid, *pod)));
        let mut world = Self {
            view,
            snapshot,
            registry,
            cluster,
            classes: BTreeMap::new(),
            types: BTreeMap::new(),
            judged: BTreeMap::new(),
            counted: BTreeMap::new(),
            unbound,
            bound,
            by_instance,
            moving: BTreeMap::new(),
            planned: view
                .launches
                .values()
                .flat_map(|launch| &launch.claims)
                .flat_map(|claim| &claim.pods)
                .collect(),
            recount_at: None,
        };
        world.count();
        world
    }

    /// When counted pods that are still pending become unplanned again.
    #[must_use]
    pub const fn recount_at(&self) -> Option<Timestamp> {
        self.recount_at
    }

    /// The input of provisioning for these pods. Nodes of `leaving` claims have no room.
    #[must_use]
    pub fn input(&self, pods: Vec<Pod>, purpose: Purpose, leaving: &BTreeSet<ClaimName>) -> ProvisionInput {
        let snapshot = self.snapshot;
        ProvisionInput {
            now: self.view.now,
            cluster: self.cluster.clone(),
            pods,
            nodes: self.nodes(leaving),
            pools: self.pools(&purpose),
            static_pools: self.static_pools(),
            leaving_pools: self.leaving_pools(),
            daemon_sets: {
                let running: Vec<&Pod> =
                    snapshot.pods.iter().filter(|pod| pod.shape.is_of_daemon_set()).collect();
                let sets = snapshot.daemon_sets.iter();
                sets.map(|set| set.as_it_runs(running.iter().copied())).collect()
            },
            storage: Storage {
                volumes: snapshot.persistent_volumes.clone(),
                claims: snapshot.persistent_volume_claims.clone(),
                classes: snapshot.storage_classes.clone(),
                nodes: snapshot.csi_nodes.clone(),
                attachments: snapshot.volume_attachments.clone(),
            },
            namespaces: snapshot.namespaces.clone(),
            default_spread: DefaultSpread {
                constraints: self.registry.settings.default_spread.clone(),
                services: snapshot.services.clone(),
            },
            taken_names: self.view.claims.keys().cloned().collect(),
            policies: self.registry.settings.policies,
            steps: StepBudget::default(),
            purpose,
        }
    }

    /// Pending pods that no claim counts, among them those of interrupted nodes.
    #[must_use]
    pub fn pending(&self) -> Vec<Pod> {
        let bound = BoundClaims::of(&self.snapshot.persistent_volume_claims);
        let wanting = self.unbound.values().filter(|pod| self.wants_node(pod));
        let asked = |pod: &&Pod| match pod.node {
            None => bound.named_by((*pod).clone()),
            Some(_) => Pod { node: None, ..(*pod).clone() },
        };
        wanting.map(asked).collect()
    }

    /// The interrupted nodes that pods leave, by the pods. They are among [`Self::pending`].
    #[must_use]
    pub fn displaced(&self) -> BTreeMap<Uid, NodeName> {
        let leaves = |(uid, pod): (&&Uid, &&Pod)| Some(((*uid).clone(), pod.node.clone()?));
        self.unbound.iter().filter_map(leaves).collect()
    }

    /// Pending pods that another scheduler places. A DaemonSet's pods follow their nodes anyway.
    pub fn left_alone(&self) -> impl Iterator<Item = &'a Pod> {
        let others = |pod: &&Pod| pod.shape.is_of_other_scheduler() && !pod.shape.is_of_daemon_set();
        self.unbound.values().copied().filter(others)
    }

    /// The pods that claims with room count, with their claims.
    #[must_use]
    pub fn counted(&self) -> BTreeMap<Uid, ClaimName> {
        self.counted.iter().map(|(uid, claim)| ((*uid).clone(), (*claim).clone())).collect()
    }

    /// The pods that are bound to a Node and haven't ended.
    #[must_use]
    pub fn bound_to(&self, node: &NodeName) -> Vec<Pod> {
        self.bound.get(node).into_iter().flatten().map(|pod| (*pod).clone()).collect()
    }

    /// The facts of the instance type of a claim.
    #[must_use]
    pub fn facts(&self, claim: &Claim) -> Option<Arc<InstanceTypeFacts>> {
        Some(Arc::clone(&self.option(claim)?.facts))
    }

    /// The claim's Node, where it joined.
    #[must_use]
    pub fn node_of(&self, claim: &Claim) -> Option<&'a Node> {
        let instance = &claim.state.instance()?.id;
        self.snapshot
            .nodes
            .iter()
            .find(|node| node.provider_id.as_ref().is_some_and(|id| id.instance == *instance))
    }

    fn wants_node(&self, pod: &Pod) -> bool {
        let nominated = match pod.scheduling {
            SchedulingVerdict::Nominated => true,
            SchedulingVerdict::None | SchedulingVerdict::Unschedulable | SchedulingVerdict::Gated => false,
        };
        // Some other pod is being preempted for it. A planned pod may also be nominated for its own Node.
        let preempts = nominated && !self.planned.contains(&pod.uid);
        !preempts
            && !pod.shape.is_of_daemon_set()
            && !pod.shape.is_of_other_scheduler()
            && !pod.shape.avoids_node_pools()
            && pod.shape.origin == PodOrigin::Api
            && !self.counted.contains_key(&pod.uid)
    }

    fn pool(&self, claim: &Claim) -> Option<&'a NodePool> {
        self.snapshot.node_pools.iter().find(|pool| pool.name == claim.pool)
    }

    fn option(&self, claim: &Claim) -> Option<&InstanceTypeOption> {
        find_option(self.types.get(&claim.pool)?, &claim.state.instance()?.instance_type)
    }
}
