//! The checks of `tenon doctor`.
//!
//! Decides what each check makes of the facts, and the remedy. Pure: it asks nobody. A check without an answer is unknown,
//! never failed.

mod account;
mod cluster;
mod installation;
#[cfg(test)]
mod tests;

pub(super) use installation::{issuer, table_of_region};

use super::facts::{Answer, DoctorFacts, Unanswered};

/// A check, in the order of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DoctorCheck {
    Credentials,
    Region,
    OnDemandQuota,
    SpotQuota,
    SpotRole,
    Cluster,
    ClusterStatus,
    PodIdentity,
    Subnets,
    SecurityGroups,
    RegionStack,
    ClusterStack,
    Registration,
    NodeRoles,
    Agent,
    Halt,
    Karpenter,
    DeadLetters,
}

impl DoctorCheck {
    /// Its name in the output.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Credentials => "credentials",
            Self::Region => "region",
            Self::OnDemandQuota => "on-demand-quota",
            Self::SpotQuota => "spot-quota",
            Self::SpotRole => "spot-role",
            Self::Cluster => "cluster",
            Self::ClusterStatus => "cluster-status",
            Self::PodIdentity => "pod-identity",
            Self::Subnets => "subnets",
            Self::SecurityGroups => "security-groups",
            Self::RegionStack => "region-stack",
            Self::ClusterStack => "cluster-stack",
            Self::Registration => "registration",
            Self::NodeRoles => "node-roles",
            Self::Agent => "agent",
            Self::Halt => "halt",
            Self::Karpenter => "karpenter",
            Self::DeadLetters => "dead-letters",
        }
    }
}

/// What a check found. A remedy is a command, or a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judged {
    Passed {
        message: String,
    },
    /// It may hinder launches, and fails nothing.
    Warning {
        message: String,
        remedy: String,
    },
    Failed {
        message: String,
        remedy: String,
    },
    /// Nobody could be asked.
    Unknown {
        message: String,
        remedy: String,
    },
    /// There is nothing to check yet.
    NotApplicable {
        message: String,
    },
}

impl Judged {
    fn passed(message: impl Into<String>) -> Self {
        Self::Passed { message: message.into() }
    }

    fn warning(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Warning { message: message.into(), remedy: remedy.into() }
    }

    fn failed(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), remedy: remedy.into() }
    }

    fn unknown(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unknown { message: message.into(), remedy: remedy.into() }
    }

    fn not_applicable(message: impl Into<String>) -> Self {
        Self::NotApplicable { message: message.into() }
    }

    /// Its word in the output.
    pub(super) const fn status(&self) -> &'static str {
        match self {
            Self::Passed { .. } => "passed",
            Self::Warning { .. } => "warning",
            Self::Failed { .. } => "failed",
            Self::Unknown { .. } => "unknown",
            Self::NotApplicable { .. } => "notApplicable",
        }
    }

    /// What was found.
    pub(super) fn message(&self) -> &str {
        match self {
            Self::Passed { message }
            | Self::Warning { message, .. }
            | Self::Failed { message, .. }
            | Self::Unknown { message, .. }
            | Self::NotApplicable { message } => message,
        }
    }

    /// What to do.
    pub(super) fn remedy(&self) -> Option<&str> {
        match self {
            Self::Warning { remedy, .. } | Self::Failed { remedy, .. } | Self::Unknown { remedy, .. } => {
                Some(remedy)
            }
            Self::Passed { .. } | Self::NotApplicable { .. } => None,
        }
    }
}

/// All checks, each with what it found.
pub(super) fn judge(facts: &DoctorFacts) -> Vec<(DoctorCheck, Judged)> {
    vec![
        (DoctorCheck::Credentials, account::credentials(facts)),
        (DoctorCheck::Region, account::region(facts)),
        (DoctorCheck::OnDemandQuota, account::quota(facts, &account::ON_DEMAND)),
        (DoctorCheck::SpotQuota, account::quota(facts, &account::SPOT)),
        (DoctorCheck::SpotRole, account::spot_role(facts)),
        (DoctorCheck::Cluster, cluster::version(facts)),
        (DoctorCheck::ClusterStatus, cluster::status(facts)),
        (DoctorCheck::PodIdentity, cluster::pod_identity(facts)),
        (DoctorCheck::Subnets, cluster::subnets(facts)),
        (DoctorCheck::SecurityGroups, cluster::security_groups(facts)),
        (DoctorCheck::RegionStack, installation::region_stack(facts)),
        (DoctorCheck::ClusterStack, installation::cluster_stack(facts)),
        (DoctorCheck::Registration, installation::registration(facts)),
        (DoctorCheck::NodeRoles, cluster::node_roles(facts)),
        (DoctorCheck::Agent, installation::agent(facts)),
        (DoctorCheck::Halt, installation::halt(facts)),
        (DoctorCheck::Karpenter, installation::karpenter(facts)),
        (DoctorCheck::DeadLetters, installation::dead_letters(facts)),
    ]
}

/// Judges an answer; without one the check is unknown.
fn of<T>(answer: &Answer<T>, judge: impl FnOnce(&T) -> Judged) -> Judged {
    match answer {
        Ok(found) => judge(found),
        Err(unanswered) => unknown(unanswered),
    }
}

fn unknown(unanswered: &Unanswered) -> Judged {
    match unanswered {
        Unanswered::NotAsked => Judged::unknown("not asked: no credentials", "see `credentials`"),
        Unanswered::Denied { right } => {
            Judged::unknown(format!("not allowed: `{right}`"), format!("allow `{right}` to who runs this"))
        }
        Unanswered::Late { right } => Judged::unknown(
            format!("`{right}` didn't answer in time"),
            "try again; check the network and the service's endpoint",
        ),
        Unanswered::Failed { right, why } => Judged::unknown(format!("`{right}` failed: {why}"), "try again"),
    }
}
