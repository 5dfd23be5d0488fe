//! Verdicts on a class's launches: EC2's answers to dry runs, and to launches.
//!
//! Decides which verdict counts for a request, how long it holds, and what it means to the launches of a NodePool. It
//! doesn't decide what to ask EC2, nor the words of its answers.
//!
//! Invariants: a class has at most one verdict for each architecture; a verdict on another request counts for nothing;
//! a denied dry run beside a recent launch denies nothing.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::catalog::facts::Architecture;
use crate::class_status::{ClassStatus, ConditionReason};
use crate::id::ImageId;
use crate::unavailable::RequestDigest;
use crate::wait::doubled;

/// How long EC2's consent holds. A policy that changes meanwhile shows at the next launch.
pub const ALLOWED_FOR: SignedDuration = SignedDuration::from_hours(12);
/// How long a warning holds: it keeps no launch, and its cause may last for ever.
pub const WARNED_FOR: SignedDuration = SignedDuration::from_hours(1);
/// The time until the first denied dry run is repeated; it doubles each time. Changes of IAM spread within seconds.
pub const FIRST_DENIAL: SignedDuration = SignedDuration::from_secs(30);
/// The longest time until a denied dry run is repeated: operators shouldn't wait longer after a repair.
pub const LONGEST_DENIAL: SignedDuration = SignedDuration::from_mins(5);
/// How long a class rests that no launch can be made from, such as one with malformed user data: it stays so until it
/// changes, which makes another request. What else is in the user data, such as labels of a NodePool, may change too.
pub const NO_LAUNCH_FOR: SignedDuration = SignedDuration::from_hours(1);
/// How long a launch speaks against a denied dry run.
pub const LAUNCH_COUNTS_FOR: SignedDuration = SignedDuration::from_hours(24);
/// How often a launch of a validated class is noted.
pub const LAUNCHES_NOTED_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// The annotation of an EC2NodeClass whose changed value asks EC2 again. Source: karpenter.sh/docs/troubleshooting.
pub const VALIDATION_REFRESH: &str = "karpenter.k8s.aws/validation-refresh";

/// How the message of a refusal begins for which EC2 isn't asked: the class's spec leaves nothing to ask.
pub const NO_LAUNCH: &str = "no launch can be made from the class";

/// What is told while the account lacks the role that spot launches need.
pub const NO_SPOT_ROLE: &str = "EC2 refuses spot launches, because the account has no service-linked role for them: \
    create it by `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`";

crate::words! {
    /// The question behind a verdict.
    pub enum VerdictSource {
        /// A dry run.
        DryRun = "dry-run",
        /// A launch.
        Launch = "launch",
    }
}

/// EC2's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerdictOutcome {
    /// Launches are allowed.
    Allowed,
    /// No NodePool takes nodes of this architecture from the class, so EC2 wasn't asked.
    Unused {
        /// The digest of the NodePools of the class: others may take some. Empty without any.
        pools: String,
    },
    /// Launches work, and something is to be told.
    Warned {
        /// A sentence with the remedy.
        message: String,
    },
    /// The dry run was denied by a policy that may allow launches: one launch decides.
    Doubted {
        /// A sentence with the remedy.
        message: String,
    },
    /// Launches are refused.
    Denied {
        /// The condition's reason.
        reason: ConditionReason,
        /// A sentence with the remedy.
        message: String,
        /// The image that EC2 refuses, if it is about one.
        image: Option<ImageId>,
    },
}

/// A verdict on launches of one architecture from a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchVerdict {
    /// The nodes' architecture.
    pub architecture: Architecture,
    /// The judged request.
    pub digest: RequestDigest,
    /// The value of the class's [`VALIDATION_REFRESH`] at that time.
    pub refresh: Option<String>,
    /// EC2's answer.
    pub outcome: VerdictOutcome,
    /// What EC2 answered.
    pub by: VerdictSource,
    /// When EC2 answered.
    pub at: Timestamp,
    /// When EC2 is asked again.
    pub until: Timestamp,
    /// The number of denials in a row.
    pub failures: u32,
    /// The last launch that is known to have succeeded.
    pub launched_at: Option<Timestamp>,
    /// The launch templates of the question, which the next one names again.
    pub templates: BTreeSet<String>,
}

/// The launch request of a class now.
#[derive(Debug, Clone, Copy)]
pub struct JudgedRequest<'a> {
    /// Its identity: the class's spec and images.
    pub digest: &'a RequestDigest,
    /// The value of the class's [`VALIDATION_REFRESH`].
    pub refresh: Option<&'a str>,
}

/// The verdicts on a class, by architecture.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassVerdicts(pub Vec<LaunchVerdict>);

/// What verdicts mean to the launches of a NodePool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchStanding<'a> {
    /// Nothing is against them.
    Trusted,
    /// One launch decides.
    Doubted,
    /// They were denied, and the time of the next question has come: one launch may ask.
    Due,
    /// They are denied until then.
    Denied(&'a LaunchVerdict),
}

impl LaunchVerdict {
    /// The verdict after EC2's answer to a dry run, or without a question for [`VerdictOutcome::Unused`].
    #[must_use]
    pub fn of_dry_run(
        before: Option<&Self>,
        request: JudgedRequest<'_>,
        architecture: &Architecture,
        answer: VerdictOutcome,
        now: Timestamp,
    ) -> Self {
        let before = before.filter(|before| before.digest == *request.digest);
        let launched_at = before.and_then(|before| before.launched_at);
        let launches = launched_at.is_some_and(|at| now.duration_since(at) <= LAUNCH_COUNTS_FOR);
        let outcome = match answer {
            VerdictOutcome::Doubted { message } | VerdictOutcome::Denied { message, .. } if launches => {
                VerdictOutcome::Warned { message: format!("{message}; launches succeed all the same") }
            }
            answer @ (VerdictOutcome::Allowed
            | VerdictOutcome::Unused { .. }
            | VerdictOutcome::Warned { .. }
            | VerdictOutcome::Doubted { .. }
            | VerdictOutcome::Denied { .. }) => answer,
        };
        let (failures, holds) = match &outcome {
            VerdictOutcome::Allowed | VerdictOutcome::Unused { .. } => (0, ALLOWED_FOR),
            VerdictOutcome::Warned { .. } | VerdictOutcome::Doubted { .. } => (0, WARNED_FOR),
            VerdictOutcome::Denied { message, .. } => {
                let failures = before.map_or(0, |before| before.failures).saturating_add(1);
                let holds = if message.starts_with(NO_LAUNCH) { NO_LAUNCH_FOR } else { denial(failures) };
                (failures, holds)
            }
        };
        Self {
            architecture: architecture.clone(),
            digest: request.digest.clone(),
            refresh: request.refresh.map(str::to_owned),
            outcome,
            by: VerdictSource::DryRun,
            at: now,
            until: now.saturating_add(holds).unwrap_or(now),
            failures,
            launched_at,
            templates: BTreeSet::new(),
        }
    }

    /// The verdict after a launch; `None` if it adds nothing.
    #[must_use]
    pub fn of_launch(
        before: Option<&Self>,
        request: JudgedRequest<'_>,
        architecture: &Architecture,
        now: Timestamp,
    ) -> Option<Self> {
        let noted = |before: &Self| {
            let launched = |at: Timestamp| now.duration_since(at) < LAUNCHES_NOTED_EVERY;
            before.counts_for(request)
                && before.outcome == VerdictOutcome::Allowed
                && now < before.until
                && before.launched_at.is_some_and(launched)
        };
        (!before.is_some_and(noted)).then(|| Self {
            architecture: architecture.clone(),
            digest: request.digest.clone(),
            refresh: request.refresh.map(str::to_owned),
            outcome: VerdictOutcome::Allowed,
            by: VerdictSource::Launch,
            at: now,
            until: now.saturating_add(ALLOWED_FOR).unwrap_or(now),
            failures: 0,
            launched_at: Some(now),
            templates: before.map_or_else(BTreeSet::new, |before| before.templates.clone()),
        })
    }

    /// The verdict after EC2 denied a launch, or parts of one. A denial holds as one of a dry run does; launches before it
    /// don't count against it any more.
    #[must_use]
    pub fn of_denied_launch(
        before: Option<&Self>,
        request: JudgedRequest<'_>,
        architecture: &Architecture,
        answer: VerdictOutcome,
        now: Timestamp,
    ) -> Self {
        let before = before.filter(|before| before.digest == *request.digest);
        let alone = before.map(|before| Self { launched_at: None, ..before.clone() });
        let next = Self::of_dry_run(alone.as_ref(), request, architecture, answer, now);
        let launched_at = match &next.outcome {
            VerdictOutcome::Denied { .. } => None,
            VerdictOutcome::Allowed
            | VerdictOutcome::Unused { .. }
            | VerdictOutcome::Warned { .. }
            | VerdictOutcome::Doubted { .. } => before.and_then(|before| before.launched_at),
        };
        let templates = before.map_or_else(BTreeSet::new, |before| before.templates.clone());
        Self { by: VerdictSource::Launch, launched_at, templates, ..next }
    }

    /// Whether it is the verdict on this request.
    #[must_use]
    pub fn counts_for(&self, request: JudgedRequest<'_>) -> bool {
        self.digest == *request.digest && self.refresh.as_deref() == request.refresh
    }
}

impl ClassVerdicts {
    /// The verdict on a request, for an architecture.
    #[must_use]
    pub fn on(&self, request: JudgedRequest<'_>, architecture: &Architecture) -> Option<&LaunchVerdict> {
        self.of(architecture).filter(|verdict| verdict.counts_for(request))
    }

    /// The last verdict for an architecture, on any request.
    #[must_use]
    pub fn of(&self, architecture: &Architecture) -> Option<&LaunchVerdict> {
        self.0.iter().find(|verdict| verdict.architecture == *architecture)
    }

    /// With a new verdict. Those on other requests are dropped.
    #[must_use]
    pub fn with(&self, verdict: LaunchVerdict) -> Self {
        let others = self
            .0
            .iter()
            .filter(|other| other.digest == verdict.digest && other.architecture != verdict.architecture);
        let mut all: Vec<LaunchVerdict> = others.cloned().collect();
        all.push(verdict);
        all.sort_by(|a, b| a.architecture.as_str().cmp(b.architecture.as_str()));
        Self(all)
    }

    /// What they mean to launches of a NodePool that takes these architectures. One that isn't denied is enough.
    #[must_use]
    pub fn standing<'a>(
        &'a self,
        request: JudgedRequest<'_>,
        architectures: &BTreeSet<Architecture>,
        now: Timestamp,
    ) -> LaunchStanding<'a> {
        let mut denied = Vec::new();
        let (mut doubted, mut trusted) = (false, false);
        for architecture in architectures {
            match self.on(request, architecture).map(|verdict| (verdict, &verdict.outcome)) {
                Some((verdict, VerdictOutcome::Denied { .. })) => denied.push(verdict),
                Some((_, VerdictOutcome::Doubted { .. })) => doubted = true,
                Some((
                    _,
                    VerdictOutcome::Allowed | VerdictOutcome::Unused { .. } | VerdictOutcome::Warned { .. },
                ))
                | None => trusted = true,
            }
        }
        match denied.into_iter().min_by_key(|verdict| verdict.until) {
            _ if doubted => LaunchStanding::Doubted,
            Some(first) if !trusted && first.until <= now => LaunchStanding::Due,
            Some(first) if !trusted => LaunchStanding::Denied(first),
            Some(_) | None => LaunchStanding::Trusted,
        }
    }
}

/// The architectures of a class's images.
#[must_use]
pub fn architectures(status: &ClassStatus) -> BTreeSet<Architecture> {
    status.images.iter().map(|image| image.architecture.clone()).collect()
}

fn denial(failures: u32) -> SignedDuration {
    doubled(FIRST_DENIAL, failures.saturating_sub(1), LONGEST_DENIAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn digest(of: &str) -> RequestDigest {
        RequestDigest::of([of])
    }

    fn denied() -> VerdictOutcome {
        let reason = ConditionReason::RunInstancesAuthCheckFailed;
        VerdictOutcome::Denied { reason, message: "no".to_owned(), image: None }
    }

    fn doubted() -> VerdictOutcome {
        VerdictOutcome::Doubted { message: "no".to_owned() }
    }

    fn dry_run(before: Option<&LaunchVerdict>, answer: VerdictOutcome, seconds: i64) -> LaunchVerdict {
        let request = JudgedRequest { digest: &digest("spec"), refresh: None };
        LaunchVerdict::of_dry_run(before, request, &Architecture::Arm64, answer, at(seconds))
    }

    fn launch(before: Option<&LaunchVerdict>, seconds: i64) -> Option<LaunchVerdict> {
        let request = JudgedRequest { digest: &digest("spec"), refresh: None };
        LaunchVerdict::of_launch(before, request, &Architecture::Arm64, at(seconds))
    }

    #[test]
    fn consent_holds_for_hours_and_a_denial_is_asked_about_again_soon() {
        let check = |answer: VerdictOutcome, expected: &[i64]| {
            let mut before: Option<LaunchVerdict> = None;
            for seconds in expected {
                let now = before.as_ref().map_or(0, |before| before.until.as_second());
                let verdict = dry_run(before.as_ref(), answer.clone(), now);
                assert_eq!(verdict.until.as_second() - now, *seconds, "{answer:?}");
                before = Some(verdict);
            }
        };
        check(VerdictOutcome::Allowed, &[43_200, 43_200]);
        check(VerdictOutcome::Unused { pools: String::new() }, &[43_200]);
        check(doubted(), &[3_600, 3_600]);
        check(denied(), &[30, 60, 120, 240, 300, 300]);
        let (reason, message) = (ConditionReason::LaunchRefused, format!("{NO_LAUNCH}: malformed"));
        check(VerdictOutcome::Denied { reason, message, image: None }, &[3_600, 3_600]);
    }

    #[test]
    fn a_launch_replaces_a_denial_and_is_noted_once_an_hour() {
        let first = dry_run(None, denied(), 0);
        let launched = launch(Some(&first), 10).unwrap();
        assert_eq!((&launched.outcome, launched.by), (&VerdictOutcome::Allowed, VerdictSource::Launch));
        assert_eq!(launch(Some(&launched), 3_609), None);
        assert!(launch(Some(&launched), 3_610).is_some());
        let asked = dry_run(None, VerdictOutcome::Allowed, 0);
        assert!(launch(Some(&asked), 1).is_some(), "that it launches is news");
    }

    #[test]
    fn a_recent_launch_makes_a_warning_of_a_denial() {
        let launched = launch(None, 0).unwrap();
        for answer in [denied(), doubted()] {
            let day = LAUNCH_COUNTS_FOR.as_secs();
            let warned = dry_run(Some(&launched), answer.clone(), day);
            let message = "no; launches succeed all the same".to_owned();
            assert_eq!(warned.outcome, VerdictOutcome::Warned { message });
            assert_eq!(dry_run(Some(&launched), answer.clone(), day + 1).outcome, answer);
        }
    }

    #[test]
    fn a_denied_launch_holds_as_a_denied_dry_run_whatever_was_launched_before() {
        let request = JudgedRequest { digest: &digest("spec"), refresh: None };
        let deny = |before: &LaunchVerdict, answer: VerdictOutcome| {
            LaunchVerdict::of_denied_launch(Some(before), request, &Architecture::Arm64, answer, at(10))
        };
        let launched = launch(None, 0).unwrap();
        let first = deny(&launched, denied());
        assert_eq!((&first.outcome, first.by), (&denied(), VerdictSource::Launch));
        assert_eq!((first.failures, first.until, first.launched_at), (1, at(40), None));
        assert_eq!(deny(&first, denied()).until, at(70));
        let warned = deny(&launched, VerdictOutcome::Warned { message: "some".to_owned() });
        assert_eq!((warned.failures, warned.launched_at), (0, Some(at(0))));
    }

    #[test]
    fn another_request_has_no_verdict() {
        let kept = ClassVerdicts::default().with(dry_run(None, denied(), 0));
        let on = |of: &str, refresh: Option<&str>| {
            kept.on(JudgedRequest { digest: &digest(of), refresh }, &Architecture::Arm64).is_some()
        };
        assert_eq!([on("spec", None), on("spec", Some("1")), on("other", None)], [true, false, false]);
        let other = JudgedRequest { digest: &digest("other"), refresh: None };
        let next = LaunchVerdict::of_dry_run(kept.0.first(), other, &Architecture::X86_64, denied(), at(9));
        assert_eq!(next.failures, 1, "the denials of another request don't count");
        let kept = kept.with(next);
        assert_eq!(kept.0.len(), 1);
    }

    #[test]
    fn a_pool_launches_what_isnt_denied() {
        let request = JudgedRequest { digest: &digest("spec"), refresh: None };
        let both = BTreeSet::from([Architecture::X86_64, Architecture::Arm64]);
        let verdict = |architecture: &Architecture, answer: VerdictOutcome| {
            LaunchVerdict::of_dry_run(None, request, architecture, answer, at(0))
        };
        let check = |x86: Option<VerdictOutcome>, arm: Option<VerdictOutcome>, expected: [&str; 2]| {
            let mut kept = ClassVerdicts::default();
            for (architecture, answer) in [(Architecture::X86_64, x86), (Architecture::Arm64, arm)] {
                kept = answer.map(|answer| kept.with(verdict(&architecture, answer))).unwrap_or(kept);
            }
            let found = [at(29), at(30)].map(|now| match kept.standing(request, &both, now) {
                LaunchStanding::Trusted => "trusted",
                LaunchStanding::Doubted => "doubted",
                LaunchStanding::Due => "due",
                LaunchStanding::Denied(_) => "denied",
            });
            assert_eq!(found, expected, "{kept:?}");
        };
        check(None, None, ["trusted"; 2]);
        check(Some(VerdictOutcome::Allowed), Some(denied()), ["trusted"; 2]);
        check(None, Some(denied()), ["trusted"; 2]);
        check(Some(denied()), Some(denied()), ["denied", "due"]);
        check(Some(VerdictOutcome::Allowed), Some(doubted()), ["doubted"; 2]);
    }
}
