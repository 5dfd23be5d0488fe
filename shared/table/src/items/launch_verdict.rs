//! The verdicts of a class, in `NODECLASS#` beside its status; and `DRYRUN`, the time of the region's next dry run.
//!
//! `provisioner` writes the verdicts, on the condition of the class's revision, which it doesn't raise: `node-classes`
//! writes the status, and each keeps the other's attributes. So planners have both by one read, and the verdicts go
//! with the class.

use tenon_domain::Timestamp;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::class_status::ConditionReason;
use tenon_domain::id::ClusterName;
use tenon_domain::launch_verdict::{ClassVerdicts, LaunchVerdict, VerdictOutcome, VerdictSource};
use tenon_domain::unavailable::RequestDigest;

use super::form::{Attributes, FieldError, FieldProblem, Fields, ItemForm};
use crate::key::REVISION;

impl ItemForm for ClassVerdicts {
    fn write(&self, to: &mut Attributes) {
        to.list_if("verdicts", (!self.0.is_empty()).then_some(&self.0), |verdict, to| {
            to.text("architecture", verdict.architecture.as_str());
            to.text("digest", verdict.digest.to_string());
            to.text_if("refresh", verdict.refresh.as_ref());
            let (outcome, reason, message) = match &verdict.outcome {
                VerdictOutcome::Allowed => (ALLOWED, None, None),
                VerdictOutcome::Unused { .. } => (UNUSED, None, None),
                VerdictOutcome::Warned { message } => (WARNED, None, Some(message)),
                VerdictOutcome::Doubted { message } => (DOUBTED, None, Some(message)),
                VerdictOutcome::Denied { reason, message, .. } => {
                    (DENIED, Some(reason.as_str()), Some(message))
                }
            };
            to.text("outcome", outcome);
            to.text_if("reason", reason);
            to.text_if("message", message);
            if let VerdictOutcome::Unused { pools } = &verdict.outcome {
                to.text("pools", pools);
            }
            if let VerdictOutcome::Denied { image, .. } = &verdict.outcome {
                to.text_if("image", image.as_ref());
            }
            to.text("by", verdict.by.as_str());
            to.time("at", verdict.at);
            to.time("until", verdict.until);
            to.number("failures", verdict.failures);
            to.time_if("launched_at", verdict.launched_at);
            to.texts("templates", &verdict.templates);
        });
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        // EC2 is asked again where a word isn't known.
        Ok(Self(from.known_list("verdicts", |from| {
            Ok(LaunchVerdict {
                architecture: Architecture::from_ec2(from.text("architecture")?),
                digest: from.formed("digest", RequestDigest::parse)?,
                refresh: from.string_if("refresh")?,
                outcome: read_outcome(from)?,
                by: from.word("by", VerdictSource::parse)?,
                at: from.time("at")?,
                until: from.time("until")?,
                failures: from.u32("failures")?,
                launched_at: from.time_if("launched_at")?,
                templates: from.texts("templates")?,
            })
        })?))
    }
}

const ALLOWED: &str = "Allowed";
const UNUSED: &str = "Unused";
const WARNED: &str = "Warned";
const DOUBTED: &str = "Doubted";
const DENIED: &str = "Denied";

/// A reason of a later release is no error: EC2 refuses the launch whatever the word is, and its message stays.
fn read_reason(from: Fields<'_>) -> Result<ConditionReason, FieldError> {
    Ok(ConditionReason::parse(from.text("reason")?).unwrap_or(ConditionReason::LaunchRefused))
}

fn read_outcome(from: Fields<'_>) -> Result<VerdictOutcome, FieldError> {
    Ok(match from.text("outcome")? {
        ALLOWED => VerdictOutcome::Allowed,
        UNUSED => VerdictOutcome::Unused { pools: from.string("pools")? },
        WARNED => VerdictOutcome::Warned { message: from.string("message")? },
        DOUBTED => VerdictOutcome::Doubted { message: from.string("message")? },
        DENIED => VerdictOutcome::Denied {
            reason: read_reason(from)?,
            message: from.string("message")?,
            image: from.parsed_if("image")?,
        },
        other => {
            let problem = FieldProblem::Unknown(format!("`{other}` is unknown"));
            return Err(FieldError::at("outcome", problem));
        }
    })
}

/// The right to ask EC2 by a dry run of RunInstances: all clusters of a region share its request rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRunLease {
    /// The count of dry runs; the next one is conditional on it.
    pub revision: u64,
    /// When the next one may be asked.
    pub free_at: Timestamp,
    /// For which cluster the last one was asked.
    pub cluster: ClusterName,
    /// The first cluster that found it taken since, and goes first.
    pub waiting: Option<ClusterName>,
}

impl ItemForm for DryRunLease {
    fn write(&self, to: &mut Attributes) {
        to.number(REVISION, self.revision);
        to.time("free_at", self.free_at);
        to.text("cluster", &self.cluster);
        to.text_if("waiting", self.waiting.as_ref());
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            revision: from.u64(REVISION)?,
            free_at: from.time("free_at")?,
            cluster: from.parsed("cluster")?,
            waiting: from.parsed_if("waiting")?,
        })
    }
}
