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
