//! The refusals and waits of provisioning, with reasons.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use tenon_domain::catalog::Incompatibility;
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{NodeClassName, NodePoolName, Zone};
use tenon_domain::journal::{Subject, SubjectKind};
use tenon_domain::launch::CountedPod;
use tenon_domain::quantity::Quantity;
use tenon_domain::report::{self, Finding, WAITS};
use tenon_domain::requirement::Conflict;
use tenon_domain::resources::ResourceName;
use tenon_domain::taint::Taint;

use super::input::GuessedVcpus;

/// The most names that a message lists.
pub(crate) const MOST_NAMES: usize = 5;

/// The refusals of a plan, and its cost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct ProvisionReport {
    /// Pods that got no place, by pod.
    pub unschedulable: Vec<Unschedulable>,
    /// The waits of pools that pods could have used.
    pub waiting: Vec<Waiting>,
    /// Steps used.
    pub steps: u64,
    /// Whether the plan is finished.
    pub outcome: PlanCompletion,
}

/// Whether a plan is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanCompletion {
    /// It is.
    Complete,
    /// The steps ran out; the planned part is valid.
    BudgetExhausted,
}

/// A pod without a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unschedulable {
    /// The pod.
    pub pod: CountedPod,
    /// The reasons, never empty: one for the pod itself, or one for each pool in the order of trial.
    pub causes: Vec<UnschedulableCause>,
}

/// One cause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnschedulableCause {
    /// The pool that refused; none if the pod itself can't be placed.
    pub pool: Option<NodePoolName>,
    /// Why.
    pub reason: Reason,
}

/// Why a pod has no place, in the order of the checks of a pool: the last is the nearest to success. Its
/// name is stable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(const_into_str)]
pub enum Reason {
    /// There is no NodePool at all.
    NoNodePool,
    /// All NodePools are static.
    OnlyStaticNodePools {
        /// Their names.
        pools: Vec<NodePoolName>,
    },
    /// The pod has scheduling gates.
    SchedulingGated {
        /// Their names.
        gates: Vec<String>,
    },
    /// The pod has an unsupported constraint.
    UnsupportedConstraint {
        /// The field.
        field: String,
    },
    /// A PersistentVolumeClaim of the pod doesn't exist.
    VolumeClaimNotFound {
        /// Its name.
        claim: String,
    },
    /// A volume of the pod can't be used.
    VolumeUnusable {
        /// The volume.
        volume: UnusableVolume,
        /// Why, and what helps.
        why: String,
    },
    /// No domain of a label fulfils the pod's rules about other pods.
    NoDomain {
        /// The label.
        key: String,
        /// The rules, in words.
        rules: String,
        /// What is missing.
        lack: DomainLack,
    },
    /// The pool's node class doesn't exist.
    NodeClassNotFound {
        /// Its name.
        class: NodeClassName,
    },
    /// The pool names a kind of class that Tenon doesn't serve.
    NodeClassNotServed {
        /// `nodeClassRef.kind`.
        kind: String,
        /// `nodeClassRef.group`.
        group: String,
    },
    /// The pool's node class, or its evidence, isn't ready.
    NodeClassNotReady {
        /// The awaited evidence.
        waiting: Waiting,
    },
    /// The pod doesn't tolerate the pool's taints.
    TaintsNotTolerated {
        /// The taints that it doesn't tolerate.
        taints: Vec<Taint>,
    },
    /// The pod requires labels that the pool's nodes don't have.
    IncompatibleRequirements {
        /// Each key, with a hint if it is probably mistyped.
        conflicts: Vec<Conflict>,
    },
    /// No instance type has all the labels that the pod and the pool ask for together.
    NoInstanceType {
        /// Which requirements exclude all of them, and what helps.
        why: String,
    },
    /// No instance type with these labels is large enough.
    InsufficientResources {
        /// What the nearest type lacks.
        shortfall: Box<Shortfall>,
    },
    /// No type that is large enough may attach as many volumes.
    TooManyVolumes {
        /// Their CSI driver.
        driver: String,
        /// How many the pod has.
        volumes: u32,
        /// The most that a node of such a type attaches.
        most: u32,
    },
    /// A DaemonSet takes the pod's host ports on every type.
    HostPortsTaken,
    /// No type that fits is offered in the required zones and capacity types.
    NoOffering {
        /// What of the pool's node class the offered types can't do, if that alone is in the way.
        incompatible: Vec<Incompatibility>,
    },
    /// The cluster's stack doesn't allow the families of the types that fit and are offered.
    FamiliesNotAllowed {
        /// The families, never none.
        families: Vec<String>,
    },
    /// Every offering that fits is exhausted for now.
    AllOfferingsUnavailable {
        /// How many types fit.
        types: usize,
        /// The zones where they are offered.
        zones: Vec<Zone>,
        /// The time of the first probe, if it is known.
        until: Option<Timestamp>,
    },
    /// The cluster is shifted away from every zone that has an offering that fits.
    ZonesShifted {
        /// The zones.
        zones: Vec<Zone>,
    },
    /// Not enough different values of a key are possible.
    MinValuesNotSatisfied {
        /// The key.
        key: String,
        /// How many there must be.
        min_values: u32,
        /// How many there are.
        values: usize,
    },
    /// The pool's limits leave no room for any type that fits.
    LimitsExceeded {
        /// The limited resource.
        resource: ResourceName,
    },
    /// The cluster has as many nodes as its registry entry allows.
    MaxNodesReached,
    /// The cluster would have more vCPUs than its registry entry allows.
    MaxVcpusReached {
        /// What of the counted vCPUs is a guess.
        guessed: Option<GuessedVcpus>,
    },
    /// The plan's steps ran out first.
    StepBudgetExhausted,
}

/// A volume that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnusableVolume {
    /// The PersistentVolumeClaim of this name.
    Claim(String),
    /// The pod's volume of this name, whose claim is made from a template.
    Template(String),
}

/// What is missing where no domain of a label is right for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DomainLack {
    /// Another value of the label.
    Value,
    /// Room on the node that the pod has to share with pods of its kind.
    RoomWithPeers,
    /// A node with room that runs the pods which the pod has to follow.
    RoomWithOthers,
}

/// How much of a resource an instance type lacks for a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shortfall {
    /// The resource.
    pub resource: ResourceName,
    /// How much the pod requests.
    pub requested: Quantity,
    /// How much a node has for all its pods.
    pub allocatable: Quantity,
    /// How much of that DaemonSets request.
    pub daemon_sets: Quantity,
}

impl Reason {
    /// The awaited evidence, if that is the reason.
    #[must_use]
    pub const fn waiting(&self) -> Option<&Waiting> {
        if let Self::NodeClassNotReady { waiting } = self { Some(waiting) } else { None }
    }

    /// When it ends by itself, where that is known.
    #[must_use]
    pub const fn ends_at(&self) -> Option<Timestamp> {
        if let Self::AllOfferingsUnavailable { until, .. } = self { *until } else { None }
    }
}

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
            Self::NodeClassNotServed { kind, group } => write!(
                f,
                "its `nodeClassRef` is kind `{kind}` of group `{group}`, and Tenon serves kind `EC2NodeClass` of group \
                 `karpenter.k8s.aws`: correct it"
            ),
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
            Self::MaxVcpusReached { guessed } => {
                f.write_str("the cluster has as many vCPUs as `MaxVcpus` allows")?;
                guessed.as_ref().map_or(Ok(()), |guessed| write!(f, ", {guessed}"))?;
                f.write_str(": raise it in the cluster's stack")
            }
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
    let Shortfall { resource, requested, allocatable, daemon_sets } = shortfall;
    let overdrawn = daemon_sets > allocatable;
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

impl fmt::Display for UnschedulableCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pool {
            Some(pool) if self.reason.waiting().is_none() => write!(f, "NodePool `{pool}`: {}", self.reason),
            // The wait names its own object.
            Some(_) | None => write!(f, "{}", self.reason),
        }
    }
}

impl ProvisionReport {
    /// Adds the findings to a report. The number of steps isn't told: a finished plan doesn't need it, and each
    /// refused pod of an unfinished plan names it as the reason.
    pub fn tell(self, to: &mut report::Report) {
        let Self { unschedulable, waiting, steps: _, outcome: _ } = self;
        for waiting in &waiting {
            to.wait(waiting);
        }
        for refused in &unschedulable {
            let subject = Subject { kind: SubjectKind::Pod, name: refused.pod.name.to_string() };
            let reason = refused.reason();
            let sentence = if reason.waiting().is_some() { WAITS } else { "no node for {}" };
            let found = Finding::refused(subject, reason.into_str(), sentence, refused.message());
            to.tell(found.condition(reason.waiting().and_then(Waiting::condition).unwrap_or_default()));
        }
    }
}

impl Unschedulable {
    /// The cause nearest to success, which represents the pod in reports and metrics.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        self.causes.iter().map(|cause| &cause.reason).max().unwrap_or(&Reason::NoNodePool)
    }

    /// One sentence for each cause.
    #[must_use]
    pub fn message(&self) -> String {
        let mut seen = BTreeSet::new();
        let all: Vec<String> =
            self.causes.iter().map(ToString::to_string).filter(|text| seen.insert(text.clone())).collect();
        all.join(". ")
    }
}
