//! Manifests as the planner's input.
//!
//! Decides which pods count (no node, not finished, not of a DaemonSet), and the zones of each pool's nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenon_domain::Timestamp;
use tenon_domain::api::{Ec2NodeClass, NodePool, Pod};
use tenon_domain::catalog::{CapacityType, Exhaustion, InstanceTypeOption, Places};
use tenon_domain::id::{ClusterName, NodeClassName};
use tenon_domain::labels;
use tenon_domain::manifest::{Manifests, expand_workloads};
use tenon_domain::requirement::Requirements;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::unavailable::Marks;
use tenon_planning::provision::{
    DefaultSpread, PoolInput, PoolReadiness, PoolStanding, ProvisionInput, Purpose, StepBudget, Storage,
};

use super::{SchedulingSettings, nodes};
use crate::catalogue::{ASSUMED_SPOT_PERCENT, PriceOrigin, RegionCatalog, SpotOrigin};
use crate::errors::{Failure, Problem};

/// Kubernetes' own limit for a cluster. Without a limit, a few lines of YAML are billions of pods.
/// Source: kubernetes.io/docs/setup/best-practices/cluster-large, read in November 2026.
const MAX_PODS: u64 = 150_000;

/// The planner's input.
///
/// # Errors [`Failure`] for a class whose subnets aren't in the region, and for more pods than a cluster can have.
pub(super) fn input(
    manifests: Manifests,
    catalog: &RegionCatalog,
    settings: &SchedulingSettings,
    warnings: &mut Vec<String>,
) -> Result<ProvisionInput, Failure> {
    bounded(&manifests)?;
    let mut all_pods = expand_workloads(&manifests);
    all_pods.extend(manifests.pods.iter().cloned());
    let (others, pods): (Vec<Pod>, Vec<Pod>) =
        all_pods.iter().filter(|pod| counts(pod)).cloned().partition(|pod| pod.shape.is_of_other_scheduler());
    warn_of_other_schedulers(&others, warnings);
    let pools = pools(&manifests, catalog, settings, warnings)?;
    let is_fixed = |pool: &&NodePool| pool.replicas.is_some() && pool.meta.deleted_at.is_none();
    let fixed = manifests.node_pools.iter().filter(is_fixed);
    let static_pools = fixed.map(|pool| pool.name.clone()).collect();
    warn_of_assumed(&pools, catalog, warnings);
    if catalog.origin == PriceOrigin::Borrowed && !pools.is_empty() {
        warnings.push(format!(
            "no prices of region `{}` in this build: ordering instance types by those of us-east-1, and printing no prices; \
             give them with `--catalog`",
            catalog.region
        ));
    }
    let nodes = nodes::existing(&manifests, &all_pods);
    for claim in manifests.node_claims.iter().filter(|claim| claim.node_name.is_none()) {
        warnings.push(format!("ignoring NodeClaim `{}`: it has no Node yet", claim.name));
    }
    let cluster = ClusterName::parse("simulated")
        .map_err(|error| Problem::new(error.to_string(), "report this: it is a defect of this program"))?;
    Ok(ProvisionInput {
        // No decision of a simulation depends on the time: nothing is exhausted and nothing grows old.
        now: Timestamp::UNIX_EPOCH,
        cluster,
        pods,
        nodes,
        pools,
        static_pools,
        daemon_sets: manifests.daemon_sets.iter().map(|set| set.as_it_runs(&manifests.pods)).collect(),
        storage: Storage {
            volumes: manifests.persistent_volumes,
            claims: manifests.persistent_volume_claims,
            classes: manifests.storage_classes,
            nodes: manifests.csi_nodes,
            attachments: manifests.volume_attachments,
        },
        namespaces: manifests.namespaces.into_iter().map(|meta| (meta.name, meta.labels)).collect(),
        default_spread: DefaultSpread {
            constraints: settings.default_spread.clone(),
            services: manifests.services,
        },
        taken_names: manifests.node_claims.into_iter().map(|claim| claim.name).collect(),
        policies: settings.policies,
        steps: StepBudget::default(),
        purpose: Purpose::PendingPods,
    })
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

/// Whether a pod needs a place that a plan gives: a DaemonSet's and a static pod follow their nodes.
fn counts(pod: &Pod) -> bool {
    let follows =
        |owner: &tenon_domain::api::OwnerReference| matches!(owner.kind.as_str(), "DaemonSet" | "Node");
    pod.is_unbound() && !pod.shape.owner.as_ref().is_some_and(follows)
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

fn pools(
    manifests: &Manifests,
    catalog: &RegionCatalog,
    settings: &SchedulingSettings,
    warnings: &mut Vec<String>,
) -> Result<Vec<PoolInput>, Failure> {
    let mut types: BTreeMap<&NodeClassName, Arc<Vec<InstanceTypeOption>>> = BTreeMap::new();
    for class in &manifests.node_classes {
        let mut options = options(class, catalog, warnings)?;
        let barred = options.iter_mut().filter(|option| !settings.allowed.allows_type(&option.facts.name));
        barred.for_each(InstanceTypeOption::disallow_family);
        types.insert(&class.name, Arc::new(options));
    }
    let mut pools = Vec::new();
    for pool in manifests.node_pools.iter().filter(|pool| pool.meta.deleted_at.is_none()) {
        if pool.replicas.is_some() {
            warnings.push(format!("ignoring NodePool `{}`: it is static (`spec.replicas`)", pool.name));
            continue;
        }
        let wanted = &pool.template.node_class;
        let class = &wanted.name;
        let known = types.get(class).filter(|_| wanted.is_served()).cloned();
        let readiness = if known.is_some() {
            PoolReadiness::Ready
        } else {
            PoolReadiness::NodeClassNotFound(class.clone())
        };
        pools.push(PoolInput {
            pool: pool.clone(),
            types: known.unwrap_or_default(),
            usage: usage(pool, manifests),
            readiness,
            nodes_left: None,
            vcpus_left: None,
            vcpus_guessed: None,
            standing: PoolStanding::Trusted,
            without: None,
        });
    }
    Ok(pools)
}

/// The instance types as nodes of a class would be.
fn options(
    class: &Ec2NodeClass,
    catalog: &RegionCatalog,
    warnings: &mut Vec<String>,
) -> Result<Vec<InstanceTypeOption>, Failure> {
    let subnets = catalog.subnets_of(class)?;
    if subnets.is_none() {
        warnings.push(format!(
            "EC2NodeClass `{}` has no `status.subnets`: planning in all zones of region `{}`",
            class.name, catalog.region
        ));
    }
    // A simulation resolves no images.
    let ignored = class.unsupported.iter().filter(|field| !field.starts_with("spec.amiSelectorTerms"));
    let ignored: Vec<&str> = ignored.map(String::as_str).collect();
    if !ignored.is_empty() {
        let fields = ignored.join("`, `");
        warnings.push(format!("EC2NodeClass `{}`: unsupported, so ignored: `{fields}`", class.name));
    }
    if class.placement_group.is_some() {
        warnings.push(format!(
            "EC2NodeClass `{}`: a simulation resolves no placement group: planning without `spec.placementGroupSelector`",
            class.name
        ));
    }
    let places = subnets.as_deref().map_or(Places::AllZones, Places::Subnets);
    let marks = Marks::default();
    let exhaustion = Exhaustion { marks: &marks, requests: &[], now: Timestamp::UNIX_EPOCH };
    Ok(catalog.view()?.options(&class.settings, places, exhaustion))
}

/// Whether a pool's nodes may be spot instances.
fn allows_spot(pool: &NodePool) -> bool {
    let template = &pool.template;
    let given = template.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let asked = Requirements::from_labels(given).and(&template.requirements);
    asked.allows(labels::CAPACITY_TYPE, CapacityType::Spot.as_str())
}

/// Says which pools are planned with assumed spot prices.
fn warn_of_assumed(pools: &[PoolInput], catalog: &RegionCatalog, warnings: &mut Vec<String>) {
    let buying: Vec<&str> =
        pools.iter().filter(|one| allows_spot(&one.pool)).map(|one| one.pool.name.as_str()).collect();
    if catalog.spot_origin == SpotOrigin::Assumed && !buying.is_empty() {
        warnings.push(format!(
            "no spot prices: assuming {ASSUMED_SPOT_PERCENT} % of the on-demand price, a guess, for NodePool `{}`; give \
             spot prices with `--catalog`",
            buying.join("`, `")
        ));
    }
}

/// The capacity of a pool's nodes, with their number, as charged to its limits.
fn usage(pool: &NodePool, manifests: &Manifests) -> ResourceList {
    let of_pool = |node: &&tenon_domain::api::Node| {
        node.meta.labels.get(labels::NODEPOOL).is_some_and(|name| name == pool.name.as_str())
    };
    let nodes: Vec<_> = manifests.nodes.iter().filter(of_pool).collect();
    let count = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
    let capacity = ResourceList::sum(nodes.iter().map(|node| &node.capacity));
    capacity.with(ResourceName::NODES, tenon_domain::quantity::Quantity::from_integer(count))
}
