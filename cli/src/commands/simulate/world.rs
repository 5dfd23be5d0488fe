//! Manifests as the planner's input.
//!
//! Decides which pods count: not finished, not of a DaemonSet, and without a node or on one that is being deleted.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::Timestamp;
use tenon_domain::api::{NodePool, OwnerReference, Pod};
use tenon_domain::id::{ClusterName, NodeName};
use tenon_domain::manifest::{Manifests, expand_workloads};
use tenon_planning::provision::{DefaultSpread, ProvisionInput, Purpose, StepBudget, Storage};

use super::pools::{pools, warn_of_assumed};
use super::{SchedulingSettings, namespaces, nodes};
use crate::catalogue::{PriceOrigin, RegionCatalog};
use crate::errors::{Failure, Problem};

/// Kubernetes' own limit for a cluster. Without a limit, a few lines of YAML are billions of pods.
/// Source: kubernetes.io/docs/setup/best-practices/cluster-large, read in November 2026.
const MAX_PODS: u64 = 150_000;

/// By whole name, why pods of the manifests aren't planned for.
pub(super) type PodsAside = BTreeMap<String, String>;

/// The planner's input, and the pods that aren't in it.
///
/// # Errors [`Failure`] for a class whose subnets aren't in the region, and for more pods than a cluster can have.
pub(super) fn input(
    manifests: Manifests,
    catalog: &RegionCatalog,
    settings: &SchedulingSettings,
    warnings: &mut Vec<String>,
) -> Result<(ProvisionInput, PodsAside), Failure> {
    bounded(&manifests)?;
    let mut all_pods = expand_workloads(&manifests);
    all_pods.extend(manifests.pods.iter().cloned());
    let leaving = nodes::leaving(&manifests);
    let (others, pods): (Vec<Pod>, Vec<Pod>) = all_pods
        .iter()
        .filter_map(|pod| to_place(pod, &leaving))
        .partition(|pod| pod.shape.is_of_other_scheduler());
    warn_of_other_schedulers(&others, warnings);
    let own = catalog.of_account(&manifests.node_classes);
    let catalog: &RegionCatalog = &own;
    let pools = pools(&manifests, catalog, settings, warnings)?;
    let is_fixed = |pool: &&NodePool| pool.replicas.is_some() && pool.meta.deleted_at.is_none();
    let fixed = manifests.node_pools.iter().filter(is_fixed);
    let static_pools = fixed.map(|pool| pool.name.clone()).collect();
    let leaving_pools = manifests.node_pools.iter().filter(|pool| pool.meta.deleted_at.is_some());
    let leaving_pools = leaving_pools.map(|pool| pool.name.clone()).collect();
    warn_of_assumed(&pools, catalog, warnings);
    if catalog.origin == PriceOrigin::Borrowed && !pools.is_empty() {
        warnings.push(format!(
            "no prices of region `{}` in this build: ordering instance types by those of us-east-1, and printing no prices; \
             give them with `--catalog`",
            catalog.region
        ));
    }
    let nodes = nodes::existing(&manifests, &all_pods, &leaving);
    let without_node = manifests.node_claims.iter().filter(|claim| claim.node_name.is_none());
    warnings.extend(without_node.map(|one| format!("ignoring NodeClaim `{}`: it has no Node yet", one.name)));
    let cluster = ClusterName::parse("simulated")
        .map_err(|error| Problem::new(error.to_string(), "report this: it is a defect of this program"))?;
    let input = ProvisionInput {
        // No decision of a simulation depends on the time: nothing is exhausted and nothing grows old.
        now: Timestamp::UNIX_EPOCH,
        cluster,
        pods,
        nodes,
        pools,
        static_pools,
        leaving_pools,
        daemon_sets: manifests.daemon_sets.iter().map(|set| set.as_it_runs(&manifests.pods)).collect(),
        storage: Storage {
            volumes: manifests.persistent_volumes,
            claims: manifests.persistent_volume_claims,
            classes: manifests.storage_classes,
            nodes: manifests.csi_nodes,
            attachments: manifests.volume_attachments,
        },
        namespaces: namespaces::labelled(manifests.namespaces, &all_pods, warnings),
        default_spread: DefaultSpread {
            constraints: settings.default_spread.clone(),
            services: manifests.services,
        },
        taken_names: manifests.node_claims.into_iter().map(|claim| claim.name).collect(),
        policies: settings.policies,
        steps: StepBudget::default(),
        purpose: Purpose::PendingPods,
    };
    Ok((input, aside(&all_pods, &leaving)))
}

/// Why pods aren't planned for.
fn aside(pods: &[Pod], leaving: &BTreeSet<NodeName>) -> PodsAside {
    let why = |pod: &Pod| {
        let of_other = pod.shape.is_of_other_scheduler();
        let scheduler = || format!("scheduler `{}` places it", pod.shape.scheduler_name);
        if needs_place(pod, leaving) {
            return of_other.then(scheduler);
        }
        if pod.is_finished() {
            return Some("it has ended".to_owned());
        }
        if pod.deleted_at.is_some() {
            return Some("it is being deleted".to_owned());
        }
        let follows = || "it follows the nodes of its DaemonSet".to_owned();
        Some(pod.node.as_ref().map_or_else(follows, |node| format!("it runs on node `{node}`")))
    };
    pods.iter().filter_map(|pod| Some((pod.name.to_string(), why(pod)?))).collect()
}

/// Refuses controllers of more pods than a cluster can have.
fn bounded(manifests: &Manifests) -> Result<(), Failure> {
    let all: u64 = manifests.workloads.iter().map(|workload| u64::from(workload.replicas)).sum();
    let most = manifests.workloads.iter().max_by_key(|workload| workload.replicas);
    match most.filter(|_| all > MAX_PODS) {
        None => Ok(()),
        Some(most) => {
            let message = format!(
                "controllers ask for {all} pods, {} `{}/{}` for {} of them: a cluster has at most {MAX_PODS}",
                most.kind.as_str(),
                most.meta.namespace,
                most.meta.name,
                most.replicas
            );
            Err(Problem::new(message, "lower `spec.replicas`, or `spec.parallelism` of a Job").into())
        }
    }
}

/// The pod as a plan gives it a place, if it needs one.
fn to_place(pod: &Pod, leaving: &BTreeSet<NodeName>) -> Option<Pod> {
    needs_place(pod, leaving).then(|| Pod { node: None, ..pod.clone() })
}

/// Whether a pod needs a place: a DaemonSet's and a static pod follow their nodes.
fn needs_place(pod: &Pod, leaving: &BTreeSet<NodeName>) -> bool {
    let follows = |owner: &OwnerReference| matches!(owner.kind.as_str(), "DaemonSet" | "Node");
    let moves = pod.node.as_ref().is_some_and(|node| leaving.contains(node))
        && !pod.is_finished()
        && pod.deleted_at.is_none();
    (pod.is_unbound() || moves) && !pod.shape.owner.as_ref().is_some_and(follows)
}

fn warn_of_other_schedulers(pods: &[Pod], warnings: &mut Vec<String>) {
    let mut schedulers: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pods {
        *schedulers.entry(&pod.shape.scheduler_name).or_default() += 1;
    }
    for (scheduler, count) in schedulers {
        warnings.push(format!("ignoring the pods of scheduler `{scheduler}`, which places them: {count}"));
    }
}
