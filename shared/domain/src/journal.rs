//! Records of decisions by subject: the decision, its evidence, the choice and the rejected options.
//!
//! A record is written in the transaction of its decision, so every launch and every termination has one.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

/// How long records are kept.
pub const JOURNAL_KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The subject of a decision.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Its kind.
    pub kind: SubjectKind,
    /// Its name; `<namespace>/<name>` for pods.
    pub name: String,
}

/// Kinds of subjects: those that `tenon why` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubjectKind {
    /// A NodeClaim.
    Claim,
    /// A pod, or the first of a group of equal ones.
    Pod,
    /// A NodePool.
    Pool,
    /// An EC2NodeClass.
    Class,
    /// An image.
    Image,
    /// An EC2 instance that no claim owns.
    Instance,
    /// A disruption command.
    Command,
    /// Another object of Kubernetes, as `<kind>/<name>`.
    Object,
    /// A part of the region's catalogue.
    Catalog,
}

impl SubjectKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Claim,
        Self::Pod,
        Self::Pool,
        Self::Class,
        Self::Image,
        Self::Instance,
        Self::Command,
        Self::Object,
        Self::Catalog,
    ];

    /// The kind in keys and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Pod => "pod",
            Self::Pool => "pool",
            Self::Class => "class",
            Self::Image => "image",
            Self::Instance => "instance",
            Self::Command => "command",
            Self::Object => "object",
            Self::Catalog => "catalog",
        }
    }

    /// The kind as people call one of it.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Claim => "NodeClaim",
            Self::Pool => "NodePool",
            Self::Class => "EC2NodeClass",
            Self::Catalog => "catalogue part",
            Self::Pod | Self::Image | Self::Instance | Self::Command | Self::Object => self.as_str(),
        }
    }

    /// The kind as people call several of it.
    #[must_use]
    pub const fn nouns(self) -> &'static str {
        match self {
            Self::Claim => "NodeClaims",
            Self::Pod => "pods",
            Self::Pool => "NodePools",
            Self::Class => "EC2NodeClasses",
            Self::Image => "images",
            Self::Instance => "instances",
            Self::Command => "commands",
            Self::Object => "objects",
            Self::Catalog => "catalogue parts",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

/// The decision; stable CamelCase names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// A claim is planned, with its launch.
    Planned,
    /// The launch's answer: an instance.
    Launched,
    /// The launch's answer: none.
    LaunchFailed,
    /// The Node joined.
    Registered,
    /// The Node is ready for pods.
    Initialized,
    /// The claim drifted.
    Drifted,
    /// A disruption command takes it.
    Disrupting,
    /// The drain began.
    Draining,
    /// The drain is done.
    Drained,
    /// Tenon terminates the instance.
    Terminating,
    /// The instance doesn't exist any longer.
    Terminated,
    /// The node class resolved to something new, or became ready.
    Resolved,
    /// The node class isn't ready.
    NotReady,
    /// The cluster is shifted away from a zone of the node class.
    ZonalShiftActive,
    /// The node class's zones are in service again.
    ZonalShiftCleared,
    /// EC2 reports a new state of an image.
    ImageState,
    /// A refusal: pods without a node, a disruption out of budget, a withheld termination.
    Refused,
    /// Something waits for evidence.
    Waiting,
    /// Tenon terminates an instance that no claim owns.
    OrphanTerminated,
}

impl Decision {
    /// All decisions.
    pub const ALL: [Self; 19] = [
        Self::Planned,
        Self::Launched,
        Self::LaunchFailed,
        Self::Registered,
        Self::Initialized,
        Self::Drifted,
        Self::Disrupting,
        Self::Draining,
        Self::Drained,
        Self::Terminating,
        Self::Terminated,
        Self::Resolved,
        Self::NotReady,
        Self::ZonalShiftActive,
        Self::ZonalShiftCleared,
        Self::ImageState,
        Self::Refused,
        Self::Waiting,
        Self::OrphanTerminated,
    ];

    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "Planned",
            Self::Launched => "Launched",
            Self::LaunchFailed => "LaunchFailed",
            Self::Registered => "Registered",
            Self::Initialized => "Initialized",
            Self::Drifted => "Drifted",
            Self::Disrupting => "Disrupting",
            Self::Draining => "Draining",
            Self::Drained => "Drained",
            Self::Terminating => "Terminating",
            Self::Terminated => "Terminated",
            Self::Resolved => "Resolved",
            Self::NotReady => "NotReady",
            Self::ZonalShiftActive => "ZonalShiftActive",
            Self::ZonalShiftCleared => "ZonalShiftCleared",
            Self::ImageState => "ImageState",
            Self::Refused => "Refused",
            Self::Waiting => "Waiting",
            Self::OrphanTerminated => "OrphanTerminated",
        }
    }

    /// The decision of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|decision| decision.as_str() == text)
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalRecord {
    /// Its subject.
    pub subject: Subject,
    /// The time of the decision.
    pub at: Timestamp,
    /// The function that decided.
    pub by: String,
    /// The decision.
    pub decision: Decision,
    /// One sentence that a person reads.
    pub message: String,
    /// Choices and rejected options by name: `launch`, `instance`, `image`, `pods`, `price`, `reason`, ….
    pub details: BTreeMap<String, String>,
    /// The evidence: generation or revision by name (`snapshot`, `revision`, `instance-types`, ….).
    pub evidence: BTreeMap<String, u64>,
}

impl JournalRecord {
    /// A record with nothing but its sentence; the rest is added with [`Self::detail`] and [`Self::evidence`].
    #[must_use]
    pub fn new(
        subject: Subject,
        at: Timestamp,
        by: &str,
        decision: Decision,
        message: impl Into<String>,
    ) -> Self {
        Self {
            subject,
            at,
            by: by.to_owned(),
            decision,
            message: message.into(),
            details: BTreeMap::new(),
            evidence: BTreeMap::new(),
        }
    }

    /// Adds a choice or a rejected option.
    #[must_use]
    pub fn detail(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.details.insert(name.to_owned(), value.to_string());
        self
    }

    /// Adds a generation of the decision's evidence.
    #[must_use]
    pub fn evidence(mut self, name: &str, generation: u64) -> Self {
        self.evidence.insert(name.to_owned(), generation);
        self
    }
}
