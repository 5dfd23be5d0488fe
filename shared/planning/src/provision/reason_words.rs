//! The words of reasons why pods get no node.
//!
//! Decides the sentences alone: what is the matter, and what helps.

use std::fmt;

use jiff::Timestamp;
use tenon_domain::catalog::Incompatibility;
use tenon_domain::id::{NodePoolName, Zone};
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::ResourceName;

use super::input::GuessedVcpus;
use super::report::{DomainLack, Reason, Shortfall, UnusableVolume};

/// The most names that a message lists.
pub(crate) const MOST_NAMES: usize = 5;

/// What is the matter: what to do about it.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodePool => f.write_str("the cluster has no NodePool: create one"),
            Self::OnlyStaticNodePools { pools } => f.write_str(&only_static(pools)),
            Self::SchedulingGated { gates } => {
                write!(f, "the pod has scheduling gates: {}; whoever set them has to remove them", quoted(gates.iter()))
            }
            Self::UnsupportedConstraint { field } => {
                write!(f, "`{field}` isn't supported: remove it from the pod")
            }
            Self::VolumeClaimNotFound { claim } => {
                write!(f, "PersistentVolumeClaim `{claim}` doesn't exist: create it, or correct the pod's volume")
            }
            Self::NodeClassNotFound { class } => {
                write!(f, "EC2NodeClass `{class}` doesn't exist: create it, or correct `nodeClassRef`")
            }
            Self::NodeClassNotServed { kind, group } => f.write_str(&not_served(kind, group)),
            Self::NodeClassNotReady { waiting } => write!(f, "{waiting}"),
            Self::TaintsNotTolerated { taints } => {
                write!(f, "untolerated taints {}: add a toleration to the pod", quoted(taints.iter()))
            }
            Self::IncompatibleRequirements { conflicts } if conflicts.is_empty() => f.write_str(
                "all terms of the pod's required node affinity are empty, and an empty term matches no node: fill one, or \
                 remove the affinity",
            ),
            Self::IncompatibleRequirements { conflicts } => {
                let all: Vec<String> = conflicts.iter().map(ToString::to_string).collect();
                write!(f, "incompatible requirements: {}: change the pod's or the pool's", all.join("; "))
            }
            Self::NoInstanceType { why } => write!(f, "no instance type matches {why}"),
            Self::InsufficientResources { shortfall } => f.write_str(&short(shortfall)),
            Self::TooManyVolumes { driver, volumes, most } => write!(
                f,
                "no instance type attaches {volumes} volumes of `{driver}`, {most} at most: give the pod fewer volumes, or \
                 allow instance types that attach more"
            ),
            Self::HostPortsTaken => {
                f.write_str("a DaemonSet already uses the pod's host ports: give one of them another port")
            }
            Self::NoOffering { incompatible } => f.write_str(&not_offered(incompatible)),
            Self::FamiliesNotAllowed { families } => f.write_str(&not_allowed(families)),
            Self::AllOfferingsUnavailable { types, zones, until } => {
                f.write_str(&none_available(*types, zones, *until))
            }
            Self::ZonesShifted { zones } => {
                let zones = quoted(zones.iter());
                write!(f, "all matching offerings are in zones with a zonal shift: {zones}: end it, or allow others")
            }
            Self::MinValuesNotSatisfied { key, min_values, values } => {
                let are = if *values == 1 { "value is" } else { "values are" };
                write!(
                    f,
                    "`minValues` of `{key}` is {min_values}, but only {values} {are} available: lower it, or allow more"
                )
            }
            Self::LimitsExceeded { resource } => {
                write!(f, "the `{resource}` limit leaves no room for a matching instance type: raise `spec.limits`")
            }
            Self::MaxNodesReached => f.write_str(
                "the cluster has as many nodes as `MaxNodes` allows: raise it in the cluster's stack",
            ),
            Self::MaxVcpusReached { guessed } => f.write_str(&no_vcpus(guessed.as_ref())),
            Self::VolumeUnusable { volume, why } => write!(f, "{volume}: {why}"),
            Self::NoDomain { key, rules, lack } => f.write_str(&no_domain(key, rules, *lack)),
            Self::StepBudgetExhausted => f.write_str("planning isn't finished, the next pass continues"),
        }
    }
}

/// From so many cores on, `M` was written for `m`. Source: kubernetes-sigs/karpenter
/// `pkg/controllers/provisioning/scheduling/nodeclaim.go`.
const MISTAKEN_CORES: Quantity = Quantity::from_integer(1_000_000);

/// Larger types are no remedy where no node has any, nor for storage, which the class decides.
fn short(shortfall: &Shortfall) -> String {
    let Shortfall { resource, requested, allocatable, daemon_sets, capacity, promised } = shortfall;
    let overdrawn = daemon_sets > allocatable;
    // Types without any pods at all are those that the class allows none.
    if allocatable.is_zero() && (!capacity.is_zero() || *resource == ResourceName::PODS) {
        return format!(
            "`spec.kubelet` of the EC2NodeClass leaves pods no `{resource}` on any instance type, `{requested}` is \
             requested: correct it, or allow larger types"
        );
    }
    if allocatable.is_zero() && !overdrawn {
        return format!(
            "no instance type offers pods any `{resource}`, `{requested}` is requested: allow types that have it, if EC2 \
             has any"
        );
    }
    let daemons =
        if daemon_sets.is_zero() { String::new() } else { format!(" less `{daemon_sets}` of DaemonSets") };
    let remedy = if *resource == ResourceName::CPU && is_mistaken(*requested) {
        "`M` is a million cores, write `m` for a thousandth"
    } else if let Some(promised) = promised {
        return format!(
            "no instance type is large enough: `{requested}` of `{resource}` is requested, `{allocatable}`{daemons} is \
             available at most: nodes of the EC2NodeClass joined with `{capacity}` instead of `{promised}`: correct its \
             `blockDeviceMappings`, `instanceStorePolicy` or `userData` to what its image mounts, or request less"
        );
    } else if *resource == ResourceName::EPHEMERAL_STORAGE {
        "request less, or give nodes more by `blockDeviceMappings` or `instanceStorePolicy: RAID0` of the EC2NodeClass"
    } else if overdrawn {
        "lower the requests of DaemonSets, or allow larger types"
    } else {
        "request less, or allow larger types"
    };
    format!(
        "no instance type is large enough: `{requested}` of `{resource}` is requested, `{allocatable}`{daemons} is available \
         at most: {remedy}"
    )
}

/// Whether so many cores were written with `M` or more.
fn is_mistaken(cores: Quantity) -> bool {
    cores >= MISTAKEN_CORES && cores.to_string().ends_with(['M', 'G', 'T', 'P'])
}

fn not_served(kind: &str, group: &str) -> String {
    format!(
        "its `nodeClassRef` is kind `{kind}` of group `{group}`, and Tenon serves kind `EC2NodeClass` of group \
         `karpenter.k8s.aws`: correct it"
    )
}

fn no_vcpus(guessed: Option<&GuessedVcpus>) -> String {
    let guessed = guessed.map(|guessed| format!(", {guessed}")).unwrap_or_default();
    format!("the cluster has as many vCPUs as `MaxVcpus` allows{guessed}: raise it in the cluster's stack")
}

fn not_offered(incompatible: &[Incompatibility]) -> String {
    if incompatible.is_empty() {
        return "no matching instance type is offered in the requested zones and capacity types: allow others"
            .to_owned();
    }
    let all: Vec<String> = incompatible.iter().map(ToString::to_string).collect();
    format!(
        "no matching instance type suits the EC2NodeClass: {}: change the class, or allow other instance types",
        all.join("; ")
    )
}

fn no_domain(key: &str, rules: &str, lack: DomainLack) -> String {
    match lack {
        DomainLack::Value => format!(
            "{rules} leaves no value of `{key}` for the pod: let a NodePool offer another one, or relax the rule"
        ),
        DomainLack::RoomWithPeers => format!(
            "{rules} keeps the pod on the node of its peers, which is full: allow larger instance types, request less, or \
             relax the rule"
        ),
        DomainLack::RoomWithOthers => format!(
            "{rules} leaves no node for the pod: no node has room and runs the pods that it follows: make room beside \
             them, or relax the rule"
        ),
    }
}

fn only_static(pools: &[NodePoolName]) -> String {
    let (noun, are, it) =
        if pools.len() == 1 { ("NodePool", "is", "it") } else { ("NodePools", "are", "them") };
    format!(
        "{noun} {} {are} static (`spec.replicas`), which Tenon doesn't support yet, so that pods get no node from {it}: create \
         a NodePool without `spec.replicas`",
        quoted(pools.iter())
    )
}

fn not_allowed(families: &[String]) -> String {
    let (noun, verb) = if families.len() == 1 { ("family", "isn't") } else { ("families", "aren't") };
    let told = few(families.iter());
    format!(
        "{noun} {told} {verb} among `AllowedFamilies` of the cluster's stack: add to them, or allow other instance types"
    )
}

fn none_available(types: usize, zones: &[Zone], until: Option<Timestamp>) -> String {
    let fit = if types == 1 { "type fits" } else { "types fit" };
    let again = until.map(|until| format!("; next try at `{until}`")).unwrap_or_default();
    format!(
        "{types} instance {fit}, none is available now in {}{again}: allow other instance types, zones or capacity types",
        quoted(zones.iter())
    )
}

/// What is counted, and how long.
impl fmt::Display for GuessedVcpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, more, each } = self;
        match more {
            0 => write!(f, "NodeClaim `{first}` of unknown size counted as {each}")?,
            more => write!(f, "NodeClaim `{first}` and {more} more of unknown size counted as {each} each")?,
        }
        f.write_str(", the largest instance type, until their Nodes report")
    }
}

fn quoted(items: impl Iterator<Item = impl fmt::Display>) -> String {
    items.map(|item| format!("`{item}`")).collect::<Vec<_>>().join(", ")
}

/// The first names, and how many more there are.
pub(crate) fn few(names: impl ExactSizeIterator<Item = impl fmt::Display>) -> String {
    let more = match names.len().saturating_sub(MOST_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", quoted(names.take(MOST_NAMES)))
}

impl fmt::Display for UnusableVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(name) => write!(f, "PersistentVolumeClaim `{name}`"),
            Self::Template(name) => write!(f, "the claim template of volume `{name}`"),
        }
    }
}
