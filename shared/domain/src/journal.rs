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

crate::words! {
    /// Kinds of subjects: those that `tenon why` takes. Keys and the command line have its word.
    pub enum SubjectKind {
        /// A NodeClaim.
        Claim = "claim",
        /// A pod, or the first of a group of equal ones.
        Pod = "pod",
        /// A NodePool.
        Pool = "pool",
        /// An EC2NodeClass.
        Class = "class",
        /// An image.
        Image = "image",
        /// An EC2 instance that no claim owns.
        Instance = "instance",
        /// A disruption command.
        Command = "command",
        /// Another object of Kubernetes, as `<kind>/<name>`.
        Object = "object",
        /// A part of the region's catalogue.
        Catalog = "catalog",
    }
}

impl SubjectKind {
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
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

crate::words! {
    /// The decision; stable CamelCase names. A word of a later release is no error: the sentence beside it is what people
    /// read.
    pub enum Decision else Unknown {
        /// A claim is planned, with its launch.
        Planned,
        /// The launch's answer: an instance.
        Launched,
        /// The launch's answer: none.
        LaunchFailed,
        /// Pods join a claim that is on its way.
        Placed,
        /// The Node joined.
        Registered,
        /// The Node is ready for pods.
        Initialized,
        /// The claim drifted.
        Drifted,
        /// The claim's Node is empty or underutilised, or no longer.
        Consolidatable,
        /// EC2 announced something about its instance.
        Announced,
        /// A disruption command takes it.
        Disrupting,
        /// A disruption command gives it back.
        Kept,
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
        /// A class rejects an image that it would take otherwise.
        ImageRejected,
        /// A refusal: pods without a node, a disruption out of budget, a withheld termination.
        Refused,
        /// Something waits for evidence.
        Waiting,
        /// Tenon terminates an instance that no claim owns.
        OrphanTerminated,
        /// Tenon deletes launch templates that nothing needs.
        TemplatesDeleted,
        /// A later release decided it: the record's sentence says what. Only readers make it.
        Unknown,
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
