//! NodePools of the manifests, and what they say of their classes.
//!
//! Decides which pools are planned with: dynamic ones that stay, of classes that are ready. A class's readiness is what its
//! files say, with a running cluster's reasons; a class without conditions is ready. It resolves nothing.

use std::collections::BTreeMap;

use tenon_domain::api::{Ec2NodeClass, Node, NodePool};
use tenon_domain::catalog::CapacityType;
use tenon_domain::evidence::{CLASS_DELETED, Waiting};
use tenon_domain::id::NodeClassName;
use tenon_domain::labels;
use tenon_domain::manifest::{Manifests, StatedReadiness, StatedStatuses};
use tenon_domain::quantity::Quantity;
use tenon_domain::reservation::ReservedCapacity;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_planning::provision::{PoolInput, PoolReadiness, PoolStanding};

use super::SchedulingSettings;
use super::reservations::{ReservingClass, requirements, warn_of_closed_gate};
use super::types::SimulatedTypes;
use crate::catalogue::{ASSUMED_SPOT_PERCENT, RegionCatalog, SpotOrigin};
use crate::errors::Failure;

/// The pools to plan with.
///
/// # Errors [`Failure`] for a class whose subnets aren't in the region.
pub(super) fn pools(
    manifests: &Manifests,
    catalog: &RegionCatalog,
    settings: &SchedulingSettings,
    warnings: &mut Vec<String>,
) -> Result<Vec<PoolInput>, Failure> {
    let statuses = &manifests.stated;
    let mut classes: BTreeMap<&NodeClassName, ReservingClass<'_>> = BTreeMap::new();
    for class in &manifests.node_classes {
        let of = ReservingClass::of(class, statuses);
        // A class of another region is a mistake, with a pool or without.
        catalog.subnets_of(class)?;
        warn_of_class(of, catalog, settings, warnings);
        classes.insert(&class.name, of);
    }
    let mut compiled = SimulatedTypes::new(catalog, settings);
    let mut pools = Vec::new();
    for pool in &manifests.node_pools {
        if let Some(why) = ignored(pool) {
            warnings.push(format!("ignoring NodePool `{}`: {why}", pool.name));
            continue;
        }
        let wanted = &pool.template.node_class;
        let found = classes.get(&wanted.name).copied().filter(|_| wanted.is_served());
        let readiness = readiness(pool, found.map(|of| of.class), statuses);
        warnings.extend(obstacle(pool, &readiness, statuses));
        pools.push(PoolInput {
            pool: pool.clone(),
            types: found.map(|of| compiled.of_class(of)).transpose()?.unwrap_or_default(),
            usage: usage(pool, manifests),
            leaving: ResourceList::new(),
            charges: BTreeMap::new(),
            readiness,
            nodes_left: None,
            vcpus_left: None,
            vcpus_guessed: None,
            standing: PoolStanding::Trusted,
            without: None,
        });
    }
    if ReservedCapacity::behind(&settings.gates).is_none() {
        let planned = pools.iter().map(|input| &input.pool);
        warn_of_closed_gate(planned, statuses, &manifests.node_classes, warnings);
    }
    Ok(pools)
}

/// Why a pool isn't planned with, as in a cluster.
fn ignored(pool: &NodePool) -> Option<&'static str> {
    if pool.meta.deleted_at.is_some() {
        Some("it is being deleted")
    } else if pool.replicas.is_some() {
        Some("it is static (`spec.replicas`)")
    } else {
        None
    }
}

/// Whether claims can be made of a pool. Its own `Ready` counts only where its class says nothing: in a cluster it is
/// made from the class's, and launches don't ask it.
fn readiness(pool: &NodePool, class: Option<&Ec2NodeClass>, statuses: &StatedStatuses) -> PoolReadiness {
    let name = &pool.template.node_class.name;
    let Some(class) = class else { return PoolReadiness::NodeClassNotFound(name.clone()) };
    let not_ready = |reason: &str| {
        let (class, reason) = (name.to_string(), reason.to_owned());
        PoolReadiness::NotReady(Waiting::NodeClassNotReady { class, reason })
    };
    if class.meta.deleted_at.is_some() {
        return not_ready(CLASS_DELETED);
    }
    if let Some(problem) = &class.settings.kubelet.problem {
        return not_ready(problem.reason().as_str());
    }
    match (&statuses.node_class(name).readiness, statuses.node_pool(&pool.name)) {
        (StatedReadiness::NotReady { reason, .. }, _) => not_ready(reason),
        (StatedReadiness::Unstated, StatedReadiness::NotReady { reason, message }) => {
            let (pool, reason, message) = (pool.name.to_string(), reason.clone(), message.clone());
            PoolReadiness::NotReady(Waiting::NodePoolNotReady { pool, reason, message })
        }
        (StatedReadiness::Ready | StatedReadiness::LeftToLaunch | StatedReadiness::Unstated, _) => {
            PoolReadiness::Ready
        }
    }
}

/// What keeps a pool from nodes, even if its pods find a place elsewhere.
fn obstacle(pool: &NodePool, readiness: &PoolReadiness, statuses: &StatedStatuses) -> Option<String> {
    let class = &pool.template.node_class.name;
    match readiness {
        PoolReadiness::Ready => match (&statuses.node_class(class).readiness, statuses.node_pool(&pool.name))
        {
            (StatedReadiness::Ready, StatedReadiness::NotReady { reason, .. }) => Some(format!(
                "NodePool `{}` gets new nodes, though its own `Ready` isn't True ({reason}): EC2NodeClass `{class}` is ready",
                pool.name
            )),
            (
                StatedReadiness::Ready
                | StatedReadiness::NotReady { .. }
                | StatedReadiness::LeftToLaunch
                | StatedReadiness::Unstated,
                _,
            ) => None,
        },
        PoolReadiness::NotReady(waiting) => {
            Some(format!("NodePool `{}` gets no new nodes: {waiting}", pool.name))
        }
        // The pods' own messages name the class.
        PoolReadiness::NodeClassNotFound(_) => None,
    }
}

/// Says what a plan assumes of a class, and goes without.
fn warn_of_class(
    of: ReservingClass<'_>,
    catalog: &RegionCatalog,
    settings: &SchedulingSettings,
    warnings: &mut Vec<String>,
) {
    let class = of.class;
    if class.status_subnets.is_empty() {
        warnings.push(format!(
            "EC2NodeClass `{}` has no `status.subnets`: planning in all zones of region `{}`",
            class.name, catalog.region
        ));
    }
    warn_of_fields(class, warnings);
    if ReservedCapacity::behind(&settings.gates).is_some() {
        of.warn(warnings);
    }
}

/// Says which parts of a class a plan goes without.
fn warn_of_fields(class: &Ec2NodeClass, warnings: &mut Vec<String>) {
    // With a problem of its kubelet, the class isn't ready.
    let problem = class.settings.kubelet.problem.as_ref();
    // A simulation resolves no images.
    let ignored = class.unsupported.iter().filter(|field| {
        !field.starts_with("spec.amiSelectorTerms")
            && (problem.is_none() || !field.starts_with("spec.kubelet"))
    });
    let ignored: Vec<&str> = ignored.map(String::as_str).collect();
    if !ignored.is_empty() {
        let fields = ignored.join("`, `");
        warnings.push(format!("EC2NodeClass `{}`: unsupported, so ignored: `{fields}`", class.name));
    }
    warnings.extend(problem.map(|problem| format!("EC2NodeClass `{}`: {}", class.name, problem.message())));
    if class.placement_group.is_some() {
        warnings.push(format!(
            "EC2NodeClass `{}`: a simulation resolves no placement group: planning without `spec.placementGroupSelector`",
            class.name
        ));
    }
}

/// Whether a pool's nodes may be spot instances.
fn allows_spot(pool: &NodePool) -> bool {
    requirements(pool).allows(labels::CAPACITY_TYPE, CapacityType::Spot.as_str())
}

/// Says which pools are planned with assumed spot prices.
pub(super) fn warn_of_assumed(pools: &[PoolInput], catalog: &RegionCatalog, warnings: &mut Vec<String>) {
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
    let of_pool =
        |node: &&Node| node.meta.labels.get(labels::NODEPOOL).is_some_and(|name| name == pool.name.as_str());
    let nodes: Vec<_> = manifests.nodes.iter().filter(of_pool).collect();
    let count = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
    let capacity = ResourceList::sum(nodes.iter().map(|node| &node.capacity));
    capacity.with(ResourceName::NODES, Quantity::from_integer(count))
}
