//! What an image's first instances show, for one EC2NodeClass of a cluster: that their Nodes join, or why they don't.
//!
//! Decides which of EC2's reasons blame the image, how long a failure counts, and for which form of the class. The
//! instance's user data, volumes and network come from the class, so each class has its own record. It doesn't decide
//! when an instance counts as failed (`lifecycle`), nor what a class takes instead (`node-classes`).
//!
//! Invariants: a failure counts for one hour and for the class as it was; a Node that joins from a later launch clears
//! it.
//!
//! Sources of the reasons: docs.aws.amazon.com/AWSEC2/latest/APIReference `API_StateReason.html`;
//! aws/karpenter-provider-aws issues 1407 (the message has another code than the reason) and 5039 (a key in a wrong
//! state); read November 2026.

use jiff::{SignedDuration, Timestamp};

use crate::id::{ClusterName, ImageId, InstanceId, NodeClassName};

/// What to check where an instance runs and no Node joins, beside its boot.
pub const JOIN_CHECKS: &str = "whether the cluster lets its role join (an access entry or `aws-auth`: docs/join.md), its user \
     data, its security groups and the way to the API server";

/// How long an image isn't launched after a failure.
pub const TRIED_AGAIN_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// How long a record is kept: as long as learned memory.
pub const BOOT_KEPT: SignedDuration = SignedDuration::from_hours(60 * 24);
/// A joining Node renews a record older than this, so that a fleet of equal nodes writes once a month.
pub const JOIN_RENEWED_AFTER: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The beginnings of EC2's codes for the end of an instance that its image, or a key or snapshot of its volumes, causes.
/// Codes of the server are about capacity and hosts, `Client.VolumeLimitExceeded` is about the account, and the others are
/// a user's own calls.
const IMAGE_CODES: [&str; 3] = ["Client.InternalError", "Client.InvalidKMSKey.", "Client.InvalidSnapshot."];

/// The code in EC2's reason for an instance's end that blames its image, if one does. Some messages begin with a code of
/// their own.
#[must_use]
pub fn blames_image<'a>(code: &'a str, message: &'a str) -> Option<&'a str> {
    let own = message.split(':').next().unwrap_or_default();
    [code, own].into_iter().find(|code| IMAGE_CODES.iter().any(|begin| code.starts_with(begin)))
}

crate::words! {
    /// How an image failed. The message beside a word of a later release says how.
    pub enum BootFault else NeverJoined {
        /// EC2 ended its instance before a Node joined.
        LaunchFailed,
        /// Its instance ran, and no Node joined within the registration timeout.
        NeverJoined,
    }
}

/// What instances of an image showed, for a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootRecord {
    /// The cluster.
    pub cluster: ClusterName,
    /// Its EC2NodeClass.
    pub class: NodeClassName,
    /// The image.
    pub image: ImageId,
    /// The count of writes.
    pub revision: u64,
    /// When a Node joined, if one ever did; at most a month before the last one.
    pub joined_at: Option<Timestamp>,
    /// The last failure, unless a Node of a later launch joined.
    pub failure: Option<BootFailure>,
}

/// An image's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootFailure {
    /// How.
    pub fault: BootFault,
    /// EC2's code, where EC2 ended the instance.
    pub code: Option<String>,
    /// EC2's words, or ours.
    pub message: String,
    /// The instance.
    pub instance: InstanceId,
    /// When it was noticed.
    pub at: Timestamp,
    /// The class as it was.
    pub form: BootForm,
}

/// The form of a class that a failure counts for: a user who changes either one asks for another try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootForm {
    /// The digest of its spec.
    pub spec_digest: String,
    /// Its annotation `karpenter.k8s.aws/validation-refresh`.
    pub refresh: Option<String>,
}

impl BootFailure {
    /// When the image may be launched again.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        self.at.saturating_add(TRIED_AGAIN_AFTER).unwrap_or(Timestamp::MAX)
    }

    /// Whether the image isn't launched for a class of this form now.
    #[must_use]
    pub fn counts(&self, form: &BootForm, now: Timestamp) -> bool {
        now < self.until() && self.form == *form
    }
}

impl BootRecord {
    /// The record of an image without one.
    #[must_use]
    pub const fn new(cluster: ClusterName, class: NodeClassName, image: ImageId) -> Self {
        Self { cluster, class, image, revision: 0, joined_at: None, failure: None }
    }

    /// When the record expires, and its item may be deleted.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        let last = self.joined_at.max(self.failure.as_ref().map(|failure| failure.at));
        last.and_then(|at| at.saturating_add(BOOT_KEPT).ok()).unwrap_or(Timestamp::MAX)
    }

    /// The record after a Node of an instance joined that was launched then; `None` if nothing is new.
    #[must_use]
    pub fn joined(&self, launched_at: Timestamp, now: Timestamp) -> Option<Self> {
        let fresh = self.joined_at.is_some_and(|at| now.duration_since(at) <= JOIN_RENEWED_AFTER);
        let failure = self.failure.as_ref().filter(|failure| launched_at <= failure.at);
        (!fresh || failure != self.failure.as_ref()).then(|| Self {
            revision: self.revision.saturating_add(1),
            joined_at: Some(if fresh { self.joined_at.unwrap_or(now) } else { now }),
            failure: failure.cloned(),
            ..self.clone()
        })
    }

    /// The record after a failure; `None` if one counts already.
    #[must_use]
    pub fn failed(&self, failure: &BootFailure) -> Option<Self> {
        let known = self.failure.as_ref().is_some_and(|known| known.counts(&failure.form, failure.at));
        (!known).then(|| Self {
            revision: self.revision.saturating_add(1),
            failure: Some(failure.clone()),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(minutes * 60).unwrap()
    }

    fn form(spec: &str, refresh: Option<&str>) -> BootForm {
        BootForm { spec_digest: spec.to_owned(), refresh: refresh.map(str::to_owned) }
    }

    fn failure(minutes: i64, form: BootForm) -> BootFailure {
        BootFailure {
            fault: BootFault::LaunchFailed,
            code: Some("Client.InternalError".to_owned()),
            message: "Client.InternalError: Client error on launch".to_owned(),
            instance: "i-1".parse().unwrap(),
            at: at(minutes),
            form,
        }
    }

    fn record() -> BootRecord {
        BootRecord::new("prod".parse().unwrap(), "default".parse().unwrap(), "ami-1".parse().unwrap())
    }

    #[test]
    fn a_failure_counts_for_an_hour_and_for_the_class_as_it_was() {
        let failed = failure(0, form("a", None));
        let check = |spec: &str, refresh: Option<&str>, minutes: i64, expected: bool| {
            assert_eq!(failed.counts(&form(spec, refresh), at(minutes)), expected);
        };
        check("a", None, 0, true);
        check("a", None, 59, true);
        check("a", None, 60, false);
        check("b", None, 1, false);
        check("a", Some("again"), 1, false);
    }

    #[test]
    fn a_failure_is_written_once_an_hour_and_again_for_another_class_form() {
        let first = record().failed(&failure(0, form("a", None))).unwrap();
        assert_eq!((first.revision, first.joined_at), (1, None));
        assert_eq!(first.failed(&failure(30, form("a", None))), None);
        assert_eq!(first.failed(&failure(30, form("b", None))).unwrap().revision, 2);
        assert_eq!(first.failed(&failure(60, form("a", None))).unwrap().failure.unwrap().at, at(60));
    }

    #[test]
    fn a_node_of_a_later_launch_clears_a_failure_and_one_of_an_earlier_launch_does_not() {
        let joined = record().joined(at(0), at(1)).unwrap();
        assert_eq!((joined.joined_at, joined.joined(at(0), at(2))), (Some(at(1)), None));
        let failed = joined.failed(&failure(10, form("a", None))).unwrap();
        assert_eq!(failed.joined(at(9), at(11)), None);
        let again = failed.joined(at(11), at(12)).unwrap();
        assert_eq!((again.revision, again.failure, again.joined_at), (3, None, Some(at(1))));
        assert_eq!(record().joined(at(0), at(1)).unwrap().expires_at(), at(1 + 60 * 24 * 60));
    }

    #[test]
    fn only_reasons_of_the_image_or_its_volumes_blame_it() {
        let check = |code: &str, message: &str, expected: Option<&str>| {
            assert_eq!(blames_image(code, message), expected, "{code} {message}");
        };
        let key = "Client.InternalError";
        check(key, "Client.InternalError: Client error on launch", Some(key));
        check("Server.InternalError", "Client.InternalError: Client error on launch", Some(key));
        let state = "Client.InvalidKMSKey.InvalidState";
        check(state, "", Some(state));
        let snapshot = "Client.InvalidSnapshot.NotFound";
        check(snapshot, "", Some(snapshot));
        check("Server.InternalError", "Server.InternalError: Internal error on launch", None);
        check("Server.SpotInstanceTermination", "", None);
        check("Client.UserInitiatedShutdown", "User initiated shutdown", None);
        check("Client.VolumeLimitExceeded", "Volume limit exceeded", None);
    }
}
