//! Why one pod can or can't have a new node: the types that fit with their prices, and what excludes the others.
//!
//! Decides words and counts, not placements. It looks at the pod alone, with what it requires: preferences, other pods
//! of the plan and rules about them are left to [`super::plan`].
//!
//! Invariant: in a pool without a refusal, every instance type of its class either fits or is excluded by one cause,
//! the first that the planner's checks meet.

use std::collections::BTreeMap;
use std::fmt;

use tenon_domain::api::Pod;
use tenon_domain::catalog::{
    Availability, CapacityType, InstanceTypeOption, Offering, PriceRank, Unavailability,
};
use tenon_domain::id::{InstanceType, NodePoolName, Zone};
use tenon_domain::labels;
use tenon_domain::money::UsdPerHour;
use tenon_domain::quantity::Quantity;
use tenon_domain::registry::{PlanPolicies, PreferencePolicy};
use tenon_domain::requirement::{Incompatible, Requirements, UndefinedKeys};
use tenon_domain::resources::{ResourceName, Shortage};

use super::attachments::VolumesExceeded;
use super::daemons::{TypeRooms, taken_from};
use super::diagnose;
use super::input::{ProvisionInput, Purpose};
use super::limits::Limit;
use super::needs::{self, Alternative, PodGroup, ports_conflict};
use super::pool::{Pool, Type};
use super::reason_words::daemon_sets_named;
use super::report::Reason;
use super::topology::census;
use super::{Scope, compiled, measures};

/// What each pool has for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodExplanation {
    /// Why the pod can't be planned for at all.
    pub refused: Option<Reason>,
    /// The pools in the order of trial; empty for a refused pod.
    pub pools: Vec<PoolExplanation>,
}

/// What one pool has for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolExplanation {
    /// The pool.
    pub pool: NodePoolName,
    /// Why the whole pool is no place for the pod.
    pub refused: Option<Reason>,
    /// The types that hold the pod, the cheapest first.
    pub fits: Vec<FittingType>,
    /// What excludes the other types, in the order of the planner's checks.
    pub excluded: Vec<ExcludedTypes>,
}

/// An instance type that holds the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittingType {
    /// Its name.
    pub instance_type: InstanceType,
    /// Its offerings for the pod, the cheapest first. Never empty.
    pub offerings: Vec<PricedOffering>,
}

/// An offering, and its price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PricedOffering {
    /// The zone.
    pub zone: Zone,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// The price, if known.
    pub price: Option<UsdPerHour>,
}

/// The types that one cause excludes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExcludedTypes {
    /// The cause.
    pub cause: ExclusionCause,
    /// The types, by name. Never empty.
    pub types: Vec<InstanceType>,
}

/// Why an instance type isn't for a pod, in the order of the checks. Its name is stable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(const_into_str)]
pub enum ExclusionCause {
    /// The NodePool's requirements exclude it.
    NodePoolRequirement {
        /// The label.
        key: String,
        /// The requirement, as text.
        requirement: String,
    },
    /// The pod's node selector, node affinity or volumes exclude it.
    PodRequirement {
        /// The label.
        key: String,
        /// The requirement, as text.
        requirement: String,
    },
    /// It has nothing of a requested resource, such as GPUs of a vendor.
    NoSuchResource {
        /// The resource.
        resource: ResourceName,
    },
    /// It is too small, after the overhead of DaemonSets.
    InsufficientResources {
        /// The resource of which it lacks most.
        resource: ResourceName,
        /// How much of it DaemonSets request there.
        taken: Quantity,
        /// Their names, where the pod would have room without them.
        in_the_way: Vec<String>,
    },
    /// Its nodes attach fewer volumes than the pod has.
    TooManyVolumes {
        /// The volumes' CSI driver.
        driver: String,
        /// How many a node attaches.
        most: u32,
    },
    /// A DaemonSet takes the pod's host ports on it.
    HostPortsTaken,
    /// The region doesn't offer it, or not in the required zones and capacity types.
    NoOffering,
    /// The cluster's stack doesn't allow its family.
    FamilyNotAllowed {
        /// The family.
        family: String,
    },
    /// It is offered, but unavailable.
    Unavailable {
        /// The reason of an offering.
        why: Unavailability,
    },
    /// It exceeds a limit of the NodePool.
    LimitsExceeded {
        /// The limited resource.
        resource: ResourceName,
    },
    /// The cluster has as many nodes as its registry entry allows.
    MaxNodesReached,
    /// With it, the cluster would have more vCPUs than its registry entry allows.
    MaxVcpusReached,
}

impl ExclusionCause {
    /// What helps.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::NodePoolRequirement { key, .. } => {
                format!("allow more values of `{key}` in the NodePool's requirements")
            }
            Self::PodRequirement { key, .. } if key == labels::ZONE => {
                "allow more zones in the pod's node selector and affinity; its volumes may bind it to a zone"
                    .to_owned()
            }
            Self::PodRequirement { key, .. } => {
                format!("allow more values of `{key}` in the pod's node selector and affinity")
            }
            Self::NoSuchResource { resource } => {
                format!("allow instance types that have `{resource}`, if EC2 has any")
            }
            Self::InsufficientResources { resource, .. } if *resource == ResourceName::EPHEMERAL_STORAGE => {
                "request less, or give nodes more by `blockDeviceMappings` or `instanceStorePolicy: RAID0` of the \
                 EC2NodeClass"
                    .to_owned()
            }
            Self::InsufficientResources { resource, .. } => {
                format!("request less `{resource}`, or reduce the requests of DaemonSets")
            }
            Self::TooManyVolumes { driver, .. } => format!("give the pod fewer volumes of `{driver}`"),
            Self::HostPortsTaken => "use another host port in the pod or in the DaemonSet".to_owned(),
            Self::NoOffering => "allow more zones and capacity types in the pod and the NodePool".to_owned(),
            Self::FamilyNotAllowed { .. } => {
                "allow other families in the NodePool, or this one in the cluster's stack".to_owned()
            }
            Self::Unavailable { why: Unavailability::NoSubnet } => {
                "give the EC2NodeClass a subnet in the zone".to_owned()
            }
            Self::Unavailable { why: Unavailability::Incompatible(_) } => {
                "change the EC2NodeClass, or leave the type out".to_owned()
            }
            Self::Unavailable { why: Unavailability::PriceUnknown } => "give the prices".to_owned(),
            Self::Unavailable { .. } => "wait, or allow other types, zones and capacity types".to_owned(),
            Self::LimitsExceeded { resource } => {
                format!("raise the limit of `{resource}` in the NodePool's `spec.limits`")
            }
            Self::MaxNodesReached => "raise `MaxNodes` in the cluster's stack".to_owned(),
            Self::MaxVcpusReached => "raise `MaxVcpus` in the cluster's stack".to_owned(),
        }
    }
}

impl fmt::Display for ExclusionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodePoolRequirement { requirement, .. } => {
                write!(f, "the NodePool requires `{requirement}`")
            }
            Self::PodRequirement { requirement, .. } => write!(f, "the pod requires `{requirement}`"),
            Self::NoSuchResource { resource } => write!(f, "no `{resource}` at all"),
            Self::InsufficientResources { resource, in_the_way, .. } if in_the_way.is_empty() => {
                write!(f, "not enough `{resource}`")
            }
            Self::InsufficientResources { resource, taken, in_the_way } => {
                let (who, _) = daemon_sets_named(in_the_way);
                write!(f, "not enough `{resource}` beside `{taken}` of {who}")
            }
            Self::TooManyVolumes { driver, most } => write!(f, "only {most} volumes of `{driver}` a node"),
            Self::HostPortsTaken => f.write_str("a DaemonSet already uses the pod's host ports"),
            Self::NoOffering => f.write_str("not offered in the allowed zones and capacity types"),
            Self::FamilyNotAllowed { family } => {
                write!(f, "family `{family}` isn't among `AllowedFamilies` of the cluster's stack")
            }
            Self::Unavailable { why } => write!(f, "unavailable: {why}"),
            Self::LimitsExceeded { resource } => write!(f, "the `{resource}` limit leaves no room"),
            Self::MaxNodesReached => f.write_str("the cluster has as many nodes as `MaxNodes` allows"),
            Self::MaxVcpusReached => f.write_str("the cluster has as many vCPUs as `MaxVcpus` allows"),
        }
    }
}

/// Explains what each pool has for a pod, before any other pod of the plan gets a node.
#[must_use]
pub fn explain(input: &ProvisionInput, pod: &Pod) -> PodExplanation {
    let alone = alone(input, pod);
    let (scope, measures) = (Scope::of(&alone), measures(&alone, &alone.pods));
    let selectors = census::selectors(&alone, &scope);
    let residents = census::residents(&alone, &scope, &selectors);
    let (groups, refused) = needs::groups(&alone, &scope, &measures, (&selectors, &residents));
    let pools = compiled(&alone, &measures);
    PodExplanation {
        refused: refused.first().map(|one| one.reason().clone()),
        pools: groups
            .first()
            .map(|group| pools.iter().map(|pool| of_pool(pool, group)).collect())
            .unwrap_or_default(),
    }
}

/// The input with one pod, and what it requires.
fn alone(input: &ProvisionInput, pod: &Pod) -> ProvisionInput {
    ProvisionInput {
        now: input.now,
        cluster: input.cluster.clone(),
        pods: vec![pod.clone()],
        nodes: Vec::new(),
        pools: input.pools.clone(),
        static_pools: input.static_pools.clone(),
        leaving_pools: input.leaving_pools.clone(),
        daemon_sets: input.daemon_sets.clone(),
        storage: input.storage.clone(),
        namespaces: input.namespaces.clone(),
        default_spread: input.default_spread.clone(),
        taken_names: input.taken_names.clone(),
        policies: PlanPolicies { preferences: PreferencePolicy::Ignore, ..input.policies },
        steps: input.steps,
        purpose: Purpose::PendingPods,
    }
}

/// What pool and pod ask for together, with the room of the pool's types then.
struct MergedRoom {
    merged: Requirements,
    rooms: TypeRooms,
}

impl MergedRoom {
    fn of(pool: &Pool<'_>, asked: &Requirements) -> Self {
        let merged = pool.offered.clone().and(asked);
        Self { rooms: pool.rooms(&merged), merged }
    }
}

fn of_pool(pool: &Pool<'_>, group: &PodGroup<'_>) -> PoolExplanation {
    let mut found = PoolExplanation {
        pool: pool.input.pool.name.clone(),
        refused: refusal(pool, group),
        fits: Vec::new(),
        excluded: Vec::new(),
    };
    if found.refused.is_some() {
        return found;
    }
    let asked: Vec<Requirements> = group
        .alternatives
        .iter()
        .filter_map(Alternative::for_new_node)
        .filter(|asked| offers(pool, asked))
        .collect();
    let merged: Vec<MergedRoom> = asked.iter().map(|asked| MergedRoom::of(pool, asked)).collect();
    let beside = asked.iter().flat_map(|asked| pool.beside_daemons(asked));
    let beside: Vec<MergedRoom> = beside.map(|asked| MergedRoom::of(pool, &asked)).collect();
    let mut excluded: BTreeMap<ExclusionCause, Vec<InstanceType>> = BTreeMap::new();
    let by_name: BTreeMap<&InstanceType, usize> =
        pool.types.iter().enumerate().map(|(index, one)| (&one.option.facts.name, index)).collect();
    let mut fitting: Vec<&Type<'_>> = Vec::new();
    for option in pool.input.types.iter() {
        let name = option.facts.name.clone();
        let index = by_name.get(&name).copied();
        let whole = of_type(pool, group, &merged, option, index);
        // As the planner does, with fewer DaemonSets where there is no room beside all.
        match whole.or_else(|cause| of_type(pool, group, &beside, option, index).map_err(|_| cause)) {
            Ok((one, offerings)) => {
                fitting.push(one);
                found.fits.push(FittingType { instance_type: name, offerings });
            }
            Err(cause) => excluded.entry(cause).or_default().push(name),
        }
    }
    found.fits.sort_by(|a, b| rank(a).cmp(&rank(b)));
    found.excluded = excluded
        .into_iter()
        .map(|(cause, mut types)| {
            types.sort();
            ExcludedTypes { cause, types }
        })
        .collect();
    found.refused = unmet(pool, &merged, &fitting).filter(|_| !found.fits.is_empty());
    found
}

/// Why no type of the pool can hold the pod, whatever its size.
fn refusal(pool: &Pool<'_>, group: &PodGroup<'_>) -> Option<Reason> {
    diagnose::not_ready(pool.input).or_else(|| diagnose::untolerated(pool, group)).or_else(|| {
        let mut conflicts = Vec::new();
        for alternative in group.alternatives.iter() {
            match alternative.for_new_node() {
                Some(asked) => match pool.offered.compatible(&asked, UndefinedKeys::WellKnownAreOpen) {
                    Ok(()) => return None,
                    Err(found) => conflicts.extend(found.conflicts),
                },
                None => conflicts.extend(diagnose::name_conflicts(pool, alternative)),
            }
        }
        conflicts.sort();
        conflicts.dedup();
        Some(diagnose::incompatible(pool, group, conflicts))
    })
}

fn offers(pool: &Pool<'_>, asked: &Requirements) -> bool {
    pool.offered.is_compatible(asked, UndefinedKeys::WellKnownAreOpen)
}

/// A type's offerings for the pod, or why it has none: of several ways to satisfy the pod, the nearest to success.
fn of_type<'t, 'a>(
    pool: &'t Pool<'a>,
    group: &PodGroup<'_>,
    merged: &'t [MergedRoom],
    option: &InstanceTypeOption,
    index: Option<usize>,
) -> Result<(&'t Type<'a>, Vec<PricedOffering>), ExclusionCause> {
    let Some((index, one)) = index.and_then(|index| Some((index, pool.types.get(index)?))) else {
        let conflict = option.labels.intersects(&pool.offered).err();
        return Err(conflict.and_then(|found| named(&found)).map_or(ExclusionCause::NoOffering, |named| {
            ExclusionCause::NodePoolRequirement { key: named.0, requirement: named.1 }
        }));
    };
    let mut cause = None;
    let mut offerings: Vec<&Offering> = Vec::new();
    for merged in merged {
        match of_alternative(pool, group, merged, index, one) {
            Ok(found) => offerings.extend(found),
            Err(found) => cause = cause.max(Some(found)),
        }
    }
    if offerings.is_empty() {
        return Err(cause.unwrap_or(ExclusionCause::NoOffering));
    }
    offerings.sort_by(|a, b| by_price(a).cmp(&by_price(b)));
    offerings.dedup_by(|a, b| by_price(a) == by_price(b));
    let priced = offerings.into_iter().map(|offering| PricedOffering {
        zone: offering.zone.clone(),
        capacity_type: offering.capacity_type,
        price: offering.price,
    });
    Ok((one, priced.collect()))
}

fn of_alternative<'t>(
    pool: &'t Pool<'_>,
    group: &PodGroup<'_>,
    MergedRoom { merged, rooms }: &'t MergedRoom,
    index: usize,
    one: &'t Type<'_>,
) -> Result<Vec<&'t Offering>, ExclusionCause> {
    if let Err(found) = one.option.labels.intersects(merged)
        && let Some((key, requirement)) = named(&found)
    {
        return Err(ExclusionCause::PodRequirement { key, requirement });
    }
    let mut requested = group.requests.iter().filter(|(_, amount)| !amount.is_zero());
    if let Some((name, _)) = requested.find(|(name, _)| one.option.capacity.get(name).is_zero()) {
        return Err(ExclusionCause::NoSuchResource { resource: name.clone() });
    }
    let Some(room) = rooms.get(index) else { return Err(ExclusionCause::NoOffering) };
    if let Some(shortage) = group.requests.shortage(&taken_from(&one.option.allocatable, &room.overhead)) {
        let Shortage { resource, requested, available: _ } = shortage;
        let in_the_way = match requested <= one.option.allocatable.get(&resource) {
            true => pool.daemons.requesting(one, merged, &resource),
            false => Vec::new(),
        };
        let taken = room.overhead.get(&resource);
        return Err(ExclusionCause::InsufficientResources { resource, taken, in_the_way });
    }
    if let Some(VolumesExceeded { driver, most, .. }) = pool.exceeded_volumes(room, group) {
        return Err(ExclusionCause::TooManyVolumes { driver: driver.to_string(), most });
    }
    if ports_conflict(group.host_ports, &room.host_ports) {
        return Err(ExclusionCause::HostPortsTaken);
    }
    let open: Vec<&Offering> = pool.offerings(one, merged, pool.open).collect();
    if open.is_empty() {
        return Err(unavailable(one, merged));
    }
    match pool.limits.iter().zip(&one.charges).find(|((_, left), charge)| *charge > left) {
        Some(((Limit::Pool(resource), _), _)) => {
            Err(ExclusionCause::LimitsExceeded { resource: resource.clone() })
        }
        Some(((Limit::ClusterNodes, _), _)) => Err(ExclusionCause::MaxNodesReached),
        Some(((Limit::ClusterVcpus, _), _)) => Err(ExclusionCause::MaxVcpusReached),
        None => Ok(open),
    }
}

/// Why none of a type's offerings is open.
fn unavailable(one: &Type<'_>, merged: &Requirements) -> ExclusionCause {
    let compatible = one.option.offerings.iter().filter(|offering| offering.goes_with(merged));
    let whys = compatible.filter_map(|offering| match &offering.availability {
        Availability::Available | Availability::Unavailable(Unavailability::NotOffered) => None,
        Availability::Unavailable(why) => Some(why.clone()),
    });
    match whys.max() {
        None => ExclusionCause::NoOffering,
        Some(Unavailability::FamilyNotAllowed) => {
            ExclusionCause::FamilyNotAllowed { family: one.option.facts.name.family().to_owned() }
        }
        Some(why) => ExclusionCause::Unavailable { why },
    }
}

/// The key and the text of the first requirement on which two sides disagree.
fn named(found: &Incompatible) -> Option<(String, String)> {
    found.conflicts.first().map(|conflict| match conflict {
        tenon_domain::requirement::Conflict::Undefined { key, .. } => (key.clone(), key.clone()),
        tenon_domain::requirement::Conflict::NoCommonValue { pod, .. } => {
            (pod.key().to_owned(), pod.to_string())
        }
    })
}

/// The `minValues` that the fitting types don't satisfy in any way.
fn unmet(pool: &Pool<'_>, merged: &[MergedRoom], types: &[&Type<'_>]) -> Option<Reason> {
    let mut first = None;
    for MergedRoom { merged, .. } in merged {
        let refusal = pool.min_values_refusal(merged, types)?;
        first = first.or(Some(refusal));
    }
    first
}

fn by_price(offering: &Offering) -> (PriceRank, CapacityType, &Zone) {
    (PriceRank::of(offering.price), offering.capacity_type, &offering.zone)
}

fn rank(one: &FittingType) -> (Option<PriceRank>, &InstanceType) {
    (one.offerings.first().map(|offering| PriceRank::of(offering.price)), &one.instance_type)
}
