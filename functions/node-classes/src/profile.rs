//! The instance profile of a class's nodes, by IAM's answer and by what launches said.
//!
//! Decides the condition `InstanceProfileReady`. Without an answer of IAM only a launch can decide. It doesn't decide
//! which profiles a cluster may use (`resolve`).
//!
//! Invariants: a profile holds only if IAM returned it with an allowed role, or if IAM gives no answer and it held
//! before or a launch named it; every other state names the remedy and the time of the next look.

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::node_class::{InstanceProfile, NodeIdentity};
use tenon_domain::class_status::{ConditionReason, Seen, SeenProfile};
use tenon_domain::registry::Allowances;
use tenon_domain::wait::later;
use tenon_ec2::port::InstanceProfileFacts;
use tenon_ec2::{Ec2Error, right_of};
use tenon_runtime::error::chain;

/// How long EC2 may not know a new profile or its role. IAM is eventually consistent, and gives no bound
/// (docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html, "Changes that I make are not always immediately
/// visible"); a launch that EC2 refuses earlier is tried again.
pub const SPREADS_WITHIN: SignedDuration = SignedDuration::from_secs(15);

/// The interval of questions about a profile that no node can have.
pub const LOOK_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// That interval, in a message that stays the same from look to look.
const LOOKED_AGAIN: &str = "Tenon looks again every minute";

/// Everything that a profile is judged by.
#[derive(Debug, Clone, Copy)]
pub struct JudgedProfile<'a> {
    /// The profile, which the cluster's registry entry allows.
    pub profile: &'a InstanceProfile,
    /// The class's own words for it.
    pub identity: &'a NodeIdentity,
    /// The roles that the cluster allows.
    pub allowed: &'a Allowances,
    /// IAM's answer.
    pub answer: &'a Result<InstanceProfileFacts, Ec2Error>,
    /// What was known of the profile before.
    pub known: Option<&'a SeenProfile>,
    /// Whether it held for this spec before, or a launch of this spec succeeded.
    pub held: bool,
    /// The time.
    pub now: Timestamp,
}

/// What is known of a profile from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileVerdict {
    /// Whether nodes can have it.
    pub seen: Seen<()>,
    /// The pair of profile and role, as IAM returned it last.
    pub known: Option<SeenProfile>,
}

/// The name of a profile: the last part of an ARN.
#[must_use]
pub fn name_of(profile: &InstanceProfile) -> &str {
    match profile {
        InstanceProfile::Name(name) => name,
        InstanceProfile::Arn(arn) => arn.rsplit('/').next().unwrap_or(arn),
    }
}

/// Judges a profile.
#[must_use]
pub fn judge(judged: JudgedProfile<'_>) -> ProfileVerdict {
    match judged.answer {
        Ok(facts) => answered(judged, facts),
        Err(Ec2Error::NotFound { .. }) => ProfileVerdict {
            seen: missing(judged),
            known: Some(judged.known.filter(|known| known.arn.is_empty()).cloned().unwrap_or(SeenProfile {
                arn: String::new(),
                role: None,
                first_seen_at: judged.now,
            })),
        },
        Err(error) => ProfileVerdict { seen: unanswered(judged, error), known: judged.known.cloned() },
    }
}

fn answered(judged: JudgedProfile<'_>, facts: &InstanceProfileFacts) -> ProfileVerdict {
    let role = facts.roles.first().map(|arn| arn.rsplit('/').next().unwrap_or(arn).to_owned());
    let same = |known: &&SeenProfile| known.arn == facts.arn && known.role == role;
    let first_seen_at = match judged.known {
        Some(known) => Some(known).filter(same).map_or(judged.now, |known| known.first_seen_at),
        // Seen for the first time, it may be as old as the cluster.
        None => facts.created_at.unwrap_or(judged.now),
    };
    let seen = match &role {
        None => Seen::Refused {
            reason: ConditionReason::InstanceProfileWithoutRole,
            message: format!(
                "instance profile `{name}` has no role: add one by `aws iam add-role-to-instance-profile \
                 --instance-profile-name {name} --role-name ROLE`; {LOOKED_AGAIN}",
                name = facts.name,
            ),
        },
        Some(role) => judged_role(judged, facts, role, first_seen_at),
    };
    ProfileVerdict { seen, known: Some(SeenProfile { arn: facts.arn.clone(), role, first_seen_at }) }
}

fn judged_role(
    judged: JudgedProfile<'_>,
    facts: &InstanceProfileFacts,
    role: &str,
    first_seen_at: Timestamp,
) -> Seen<()> {
    let name = &facts.name;
    let wanted = match judged.identity {
        NodeIdentity::Role(wanted) if wanted != role => Some(format!("`spec.role` is `{wanted}`")),
        NodeIdentity::InstanceProfile(_) if !judged.allowed.node_roles.contains_key(role) => {
            Some("the cluster's stack doesn't allow it".to_owned())
        }
        NodeIdentity::Role(_) | NodeIdentity::InstanceProfile(_) => None,
    };
    if let Some(wanted) = wanted {
        let message = format!(
            "instance profile `{name}` has role `{role}`, but {wanted}: put the right role into the profile, or allow \
             this one in the cluster's stack; {LOOKED_AGAIN}"
        );
        return Seen::Refused { reason: ConditionReason::InstanceProfileRoleNotAllowed, message };
    }
    if let InstanceProfile::Arn(arn) = judged.profile
        && *arn != facts.arn
    {
        let message = format!(
            "`spec.instanceProfile` is `{arn}`, but the profile of this name is `{}`: correct the ARN, or give the name",
            facts.arn
        );
        return Seen::Refused { reason: ConditionReason::InstanceProfileNotFound, message };
    }
    let known_everywhere = later(first_seen_at, SPREADS_WITHIN);
    if known_everywhere > judged.now {
        let message = format!(
            "instance profile `{name}` with role `{role}` is new, and IAM may not have told EC2 yet: next look at \
             `{known_everywhere}`"
        );
        let reason = ConditionReason::InstanceProfileNotPropagated;
        return Seen::Unseen { reason, message, next_try: known_everywhere };
    }
    Seen::Holds(())
}

fn missing(judged: JudgedProfile<'_>) -> Seen<()> {
    let name = name_of(judged.profile);
    let remedy = match judged.identity {
        NodeIdentity::Role(role) => {
            format!("deploy the cluster's stack, which makes the profile of role `{role}`, again")
        }
        NodeIdentity::InstanceProfile(_) => {
            "create it with an allowed role, or correct `spec.instanceProfile`".to_owned()
        }
    };
    let message = format!("instance profile `{name}` doesn't exist: {remedy}; {LOOKED_AGAIN}");
    Seen::Refused { reason: ConditionReason::InstanceProfileNotFound, message }
}

/// Without IAM a profile that held still holds. Of one that never did, the first launch decides.
fn unanswered(judged: JudgedProfile<'_>, error: &Ec2Error) -> Seen<()> {
    if judged.held {
        return Seen::Holds(());
    }
    let remedy = if let Ec2Error::Unauthorized { action, .. } = error {
        format!("; allow function `node-classes` the action `{}`", right_of(action))
    } else {
        String::new()
    };
    let message = format!(
        "IAM gave no answer about instance profile `{}`, so the first launch decides ({}{remedy}); {LOOKED_AGAIN}",
        name_of(judged.profile),
        chain(error)
    );
    let next_try = later(judged.now, LOOK_EVERY);
    Seen::Unseen { reason: ConditionReason::InstanceProfileNotChecked, message, next_try }
}

#[cfg(test)]
mod tests;
