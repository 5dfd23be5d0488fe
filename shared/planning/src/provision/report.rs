//! The refusals and waits of provisioning, with reasons.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use tenon_domain::catalog::Incompatibility;
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{NamespacedName, NodeClassName, NodePoolName, Zone};
use tenon_domain::journal::{Subject, SubjectKind};
use tenon_domain::launch::CountedPod;
use tenon_domain::quantity::Quantity;
use tenon_domain::report::{self, Finding, WAITS};
use tenon_domain::requirement::Conflict;
use tenon_domain::resources::ResourceName;
use tenon_domain::taint::Taint;

use super::input::GuessedVcpus;
use super::steps::StepsRanOut;

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
    /// There is no NodePool that stays.
    NoNodePool {
        /// Those that are being deleted.
        leaving: Vec<NodePoolName>,
    },
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
        /// The known field that it is probably meant to be.
        meant: Option<&'static str>,
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
    /// Another pod uses a claim of the pod, or gets it first, and only one pod at a time may.
    VolumeClaimInUse {
        /// The claim's name.
        claim: String,
        /// The other pod.
        pod: NamespacedName,
    },
    /// No domain of a label fulfils the pod's rules about other pods.
    NoDomain {
        /// The label.
        key: String,
        /// The rules, in words.
        rules: Vec<String>,
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
        /// The keys of those that only the pod's volumes ask for.
        of_volumes: Vec<String>,
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
        /// Zones that would do, if the class had a subnet there.
        without_subnet: Vec<Zone>,
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
    /// The pool has a type for the pod alone, and not beside what else is planned or runs.
    NoRoomBesideOthers,
    /// The plan's steps ran out first.
    StepBudgetExhausted(StepsRanOut),
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DomainLack {
    /// The label: nothing has it.
    Label,
    /// Another value of the label.
    Value {
        /// The values, and what is in the way there.
        excluded: Vec<ExcludedDomains>,
        /// Whether values that nothing has yet would be for the pod.
        reach: DomainReach,
    },
    /// Pods that the pod could follow: none runs, none is planned, none waits.
    Peers,
    /// Pods that the pod could follow have a place: those that wait have none either.
    PeersWait {
        /// Some of them.
        pods: Vec<String>,
    },
    /// The same, and they wait for the pod in turn.
    PeersWaitBack {
        /// Some of them.
        pods: Vec<String>,
    },
    /// The label on the Nodes of the pods that the pod follows.
    LabelOfPeers,
    /// Room on the node that the pod has to share with pods of its kind.
    RoomWithPeers,
    /// A node with room that runs the pods which the pod has to follow.
    RoomWithOthers,
}

/// Which values of a label a pod may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DomainReach {
    /// Any.
    Any,
    /// Those that its node selector, its node affinity or its volumes name.
    Chosen,
}

/// Values of a label that are excluded for the same cause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExcludedDomains {
    /// The cause.
    pub why: DomainExclusion,
    /// The values. Never empty.
    pub domains: Vec<String>,
}

/// Why a value of a label isn't right for a pod. Of several causes the last counts: the others end with less.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DomainExclusion {
    /// It has so many more pods than the value with the least.
    Ahead {
        /// How many.
        pods: u32,
    },
    /// It is full while there are fewer values than the spread asks for.
    TooFewDomains {
        /// `minDomains`.
        min_domains: u32,
    },
    /// It has pods that avoid the pod.
    KeptOut,
    /// It has pods that the pod avoids.
    HoldsAvoided,
    /// It has none of the pods that the pod follows.
    NoneToFollow,
    /// The volume that the pod shares with others comes elsewhere.
    SharedVolumeElsewhere,
    /// New nodes have it, and not for what the pod selects.
    NotSelected,
    /// The pod's volumes can't be attached there.
    VolumesElsewhere,
    /// New nodes for the pod have it, and not where rules about other labels keep the pod.
    OtherRules {
        /// The values of these labels, in words.
        beside: String,
    },
    /// Rules about another label leave no new node that has it.
    OtherLabel {
        /// That label.
        key: String,
    },
    /// Its nodes with room run none of the pods that the pod needs on its node.
    NoNeighbour,
    /// Limits leave no room for a new node there.
    Limited,
    /// What new nodes there could be can't be had for now.
    Unavailable,
    /// Neither its nodes nor new ones have room.
    NoRoom,
    /// No NodePool offers it, and its nodes don't take the pod.
    NotOffered,
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
    /// Their names, where the pod would have room without them.
    pub in_the_way: Vec<String>,
    /// How much a node has before reserves.
    pub capacity: Quantity,
    /// How much the EC2NodeClass promises, where its Nodes joined with less.
    pub promised: Option<Quantity>,
}

impl Reason {
    /// The awaited evidence, if that is the reason.
    #[must_use]
    pub const fn waiting(&self) -> Option<&Waiting> {
        if let Self::NodeClassNotReady { waiting } = self { Some(waiting) } else { None }
    }

    /// Whether a limit is in the way, of the pool or of the cluster.
    #[must_use]
    pub const fn is_limit(&self) -> bool {
        matches!(self, Self::LimitsExceeded { .. } | Self::MaxNodesReached | Self::MaxVcpusReached { .. })
    }

    /// When it ends by itself, where that is known.
    #[must_use]
    pub fn ends_at(&self) -> Option<Timestamp> {
        if let Self::AllOfferingsUnavailable { until, .. } = self {
            return *until;
        }
        self.waiting().and_then(Waiting::ends_at)
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
            let found = Finding::refused(subject, reason.into_str(), sentence, refused.message())
                .next_try(refused.next_try());
            to.tell(found.condition(reason.waiting().and_then(Waiting::condition).unwrap_or_default()));
        }
    }
}

/// Stands for causes that a pod without a place always has.
const NO_CAUSE: &Reason = &Reason::NoNodePool { leaving: Vec::new() };

impl Unschedulable {
    /// The cause nearest to success, which represents the pod in reports and metrics.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        self.causes.iter().map(|cause| &cause.reason).max().unwrap_or(NO_CAUSE)
    }

    /// When a cause may end by itself, where that is known.
    #[must_use]
    pub fn next_try(&self) -> Option<Timestamp> {
        self.causes.iter().filter_map(|cause| cause.reason.ends_at()).min()
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
