//! Denied calls, read: what EC2's words leave out, STS decodes.
//!
//! Decides when STS is asked: for a message whose words don't name the kind of policy, once; and what a denied launch
//! means to its class. `validate` decides what a denied dry run means.
//!
//! Invariant: of a decoded message only what [`Denial`] keeps leaves this module. Without an answer of STS the denial
//! says how a person decodes it.

use jiff::Timestamp;
use tenon_domain::class_status::ConditionReason;
use tenon_domain::launch_verdict::{LAUNCH_COUNTS_FOR, LaunchVerdict, VerdictOutcome};
use tenon_ec2::port::FleetItemError;
use tenon_ec2::{
    AuthorizationMessages, Denial, DenialCause, Ec2Error, ErrorClass, blame, classify, encoded_message,
    right_of,
};
use tenon_runtime::Ports;

use crate::settle::LaunchAnswer;

/// The denial of a call, by EC2's words.
pub(crate) async fn denial<P: Ports>(ports: &P, action: &str, words: &str) -> Denial {
    let plain = Denial::read(&right_of(action), words);
    let (DenialCause::Untold, Some(encoded)) = (plain.cause, encoded_message(words)) else { return plain };
    match ports.ec2().decoded_message(encoded).await {
        Ok(message) => plain.decoded(&message),
        // It isn't allowed, or STS isn't reached: it was worth one try.
        Err(_) => plain,
    }
}

/// A denial whose words are decoded already, or say enough.
pub(crate) fn known(action: &str, decoded: Option<&str>, words: &str) -> Denial {
    let right = right_of(action);
    let plain = Denial::read(&right, words);
    match decoded {
        Some(decoded) if plain.cause == DenialCause::Untold => Denial::read(&right, decoded),
        Some(_) | None => plain,
    }
}

/// What a denied launch says of its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeniedLaunch {
    /// The function can't take the cluster's launch role.
    WithoutRole {
        /// A sentence with the remedy.
        remedy: String,
    },
    /// EC2 denies a call.
    Call {
        /// The condition's reason.
        reason: ConditionReason,
        /// What EC2's words and STS tell of it.
        denial: Denial,
    },
}

impl DeniedLaunch {
    /// Reads an answer. `None` if EC2 launched an instance or refused anything for another reason, or if a part of the
    /// class is to blame: its mark tells that.
    pub(crate) fn read(told: &ToldAnswer) -> Option<Self> {
        let denial = told.denial.clone();
        match &told.answer {
            LaunchAnswer::Refused(error) => Self::of_call(error, denial),
            LaunchAnswer::Fleet(result) if result.instances.is_empty() => {
                let denial = denial.filter(|_| result.errors.iter().all(is_denied))?;
                Some(Self::Call { reason: ConditionReason::RunInstancesAuthCheckFailed, denial })
            }
            LaunchAnswer::Fleet(_) | LaunchAnswer::Found(_) => None,
        }
    }

    fn of_call(error: &Ec2Error, denial: Option<Denial>) -> Option<Self> {
        if let Some(remedy) = error.without_launch_role() {
            return Some(Self::WithoutRole { remedy: remedy.to_owned() });
        }
        let Ec2Error::Unauthorized { action, .. } = error else { return None };
        let denial = denial.filter(|_| blame(&error.to_string()).is_none())?;
        let reason = if action == MAKES_TEMPLATE {
            ConditionReason::CreateLaunchTemplateAuthCheckFailed
        } else if denial.action == right_of(LAUNCHES) {
            ConditionReason::RunInstancesAuthCheckFailed
        } else {
            ConditionReason::CreateFleetAuthCheckFailed
        };
        Some(Self::Call { reason, denial })
    }

    /// What it means to the class, beside the verdict before it. A policy that denies instances explicitly may be about
    /// some types, subnets or images, and others may be launched: it is a warning where launches are known to be allowed.
    /// It never makes a denied or doubted class a trusted one.
    pub(crate) fn outcome(&self, before: Option<&LaunchVerdict>, now: Timestamp) -> VerdictOutcome {
        let (reason, denial) = match self {
            Self::WithoutRole { remedy } => {
                let reason = ConditionReason::CreateLaunchTemplateAuthCheckFailed;
                return VerdictOutcome::Denied { reason, message: remedy.clone(), image: None };
            }
            Self::Call { reason, denial } => (*reason, denial),
        };
        let message = denial.to_string();
        let launched_at = before.and_then(|before| before.launched_at);
        let launches = launched_at.is_some_and(|at| now.duration_since(at) <= LAUNCH_COUNTS_FOR);
        let is_of_instances = reason == ConditionReason::RunInstancesAuthCheckFailed;
        if is_of_instances && launches {
            let message = format!("{message}; other launches from the class succeeded within the last day");
            return VerdictOutcome::Warned { message };
        }
        match denial.cause {
            DenialCause::Denied(_) if is_of_instances => match before.map(|before| &before.outcome) {
                Some(VerdictOutcome::Allowed | VerdictOutcome::Warned { .. }) => {
                    VerdictOutcome::Warned { message }
                }
                Some(VerdictOutcome::Doubted { .. } | VerdictOutcome::Unused { .. }) | None => {
                    VerdictOutcome::Doubted { message }
                }
                Some(VerdictOutcome::Denied { .. }) => {
                    VerdictOutcome::Denied { reason, message, image: None }
                }
            },
            DenialCause::Denied(_) | DenialCause::NotAllowed(_) | DenialCause::Untold => {
                VerdictOutcome::Denied { reason, message, image: None }
            }
        }
    }
}

/// A launch's answer with denials as they may be stored: without principals, ids and encoded messages.
#[derive(Debug)]
pub(crate) struct ToldAnswer {
    /// The answer.
    pub(crate) answer: LaunchAnswer,
    /// The denial of the call, or of the fleet's first denied item.
    denial: Option<Denial>,
}

impl ToldAnswer {
    /// Whether the whole call is denied because EC2 doesn't find a template of it.
    pub(crate) fn is_of_unseen_template(&self) -> bool {
        let denial = self.denial.as_ref().filter(|_| matches!(self.answer, LaunchAnswer::Refused(_)));
        denial.is_some_and(Denial::is_of_unseen_template)
    }

    /// The answer that EC2 gives whoever may use every template.
    pub(crate) fn of_missing_template() -> Self {
        let message = "EC2 doesn't have a launch template of the request";
        let error = Ec2Error::from_code("CreateFleet", TEMPLATE_MISSING, message);
        Self { answer: LaunchAnswer::Refused(error), denial: None }
    }
}

/// EC2's code of a template that doesn't exist.
const TEMPLATE_MISSING: &str = "InvalidLaunchTemplateName.NotFoundException";

/// Makes an answer fit to be stored. One message is decoded: the others are about the same right.
pub(crate) async fn told<P: Ports>(ports: &P, answer: LaunchAnswer) -> ToldAnswer {
    match answer {
        LaunchAnswer::Refused(Ec2Error::Unauthorized { action, decoded: None, message }) => {
            let denial = denial(ports, &action, &message).await;
            let decoded = says_more(&message).then(|| denial.to_string());
            let answer = LaunchAnswer::Refused(Ec2Error::Unauthorized { action, decoded, message });
            ToldAnswer { answer, denial: Some(denial) }
        }
        LaunchAnswer::Refused(Ec2Error::Unauthorized { action, decoded: Some(words), message }) => {
            let denial = known(&action, Some(&words), &message);
            let is_told = Denial::read("", &words).cause != DenialCause::Untold;
            let decoded = Some(if is_told { denial.to_string() } else { words });
            let answer = LaunchAnswer::Refused(Ec2Error::Unauthorized { action, decoded, message });
            ToldAnswer { answer, denial: Some(denial) }
        }
        LaunchAnswer::Fleet(mut result) => {
            let denial = told_items(ports, &mut result.errors).await;
            ToldAnswer { answer: LaunchAnswer::Fleet(result), denial }
        }
        answer @ (LaunchAnswer::Refused(_) | LaunchAnswer::Found(_)) => ToldAnswer { answer, denial: None },
    }
}

/// Writes each denial's own sentence. Returns the first one.
async fn told_items<P: Ports>(ports: &P, errors: &mut [FleetItemError]) -> Option<Denial> {
    let (mut first, mut decoded) = (None, None::<Denial>);
    for error in errors {
        let plain = Denial::read(&right_of(LAUNCHES), &error.message);
        let found = match (plain.cause, &decoded) {
            (DenialCause::Untold, Some(known)) if says_more(&error.message) => known.clone(),
            (DenialCause::Untold, None) if says_more(&error.message) => {
                let asked = denial(ports, LAUNCHES, &error.message).await;
                decoded.insert(asked).clone()
            }
            (DenialCause::Denied(_) | DenialCause::NotAllowed(_) | DenialCause::Untold, _) => plain,
        };
        if says_more(&error.message) {
            error.message = found.to_string();
        }
        if is_denied(error) {
            first.get_or_insert(found);
        }
    }
    first
}

/// Whether it is a denied call, and no part of the class is to blame.
fn is_denied(error: &FleetItemError) -> bool {
    classify(&error.code, &error.message) == ErrorClass::Unauthorized
        && blame(&format!("{}: {}", error.code, error.message)).is_none()
}

/// The call that makes a launch template.
const MAKES_TEMPLATE: &str = "CreateLaunchTemplate";

/// The call that a fleet makes for its items.
const LAUNCHES: &str = "RunInstances";

/// Whether EC2's words are about a denied call, and have more than that.
fn says_more(words: &str) -> bool {
    words.contains("authorized to perform")
        && (encoded_message(words).is_some() || Denial::read("", words).cause != DenialCause::Untold)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tenon_domain::catalog::facts::Architecture;
    use tenon_domain::launch_verdict::VerdictSource;
    use tenon_domain::unavailable::RequestDigest;
    use tenon_harness::{FunctionWorld, WorldConfig};
    use tenon_memory_table::block_on;

    use super::*;

    fn read(error: &Ec2Error) -> Option<DeniedLaunch> {
        let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
        DeniedLaunch::read(&block_on(told(&world, LaunchAnswer::Refused(error.clone()))))
    }

    fn outcome(error: &Ec2Error, before: Option<&LaunchVerdict>) -> String {
        let Some(denied) = read(error) else { return "nothing".to_owned() };
        match denied.outcome(before, Timestamp::UNIX_EPOCH) {
            VerdictOutcome::Denied { reason, .. } => reason.as_str().to_owned(),
            VerdictOutcome::Warned { message } => format!("warned: {message}"),
            VerdictOutcome::Doubted { message } => format!("doubted: {message}"),
            VerdictOutcome::Allowed | VerdictOutcome::Unused { .. } => "allowed".to_owned(),
        }
    }

    fn check(call: &str, words: &str, expected: &str) {
        let told = outcome(&Ec2Error::from_code(call, "UnauthorizedOperation", words), None);
        assert!(told.starts_with(expected), "{told}");
    }

    /// A verdict of the launch's request before it.
    fn before(outcome: VerdictOutcome, launched_at: Option<Timestamp>) -> LaunchVerdict {
        LaunchVerdict {
            architecture: Architecture::X86_64,
            digest: RequestDigest::of(["spec"]),
            refresh: None,
            outcome,
            by: VerdictSource::DryRun,
            at: Timestamp::UNIX_EPOCH,
            until: Timestamp::UNIX_EPOCH,
            failures: 0,
            launched_at,
            templates: BTreeSet::new(),
        }
    }

    const INSTANCES: &str =
        "User: x is not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:r:1:instance/* ";

    #[test]
    fn a_denied_launch_tells_its_class_which_call_is_denied() {
        let because = "because no identity-based policy allows it";
        check("CreateFleet", because, "CreateFleetAuthCheckFailed");
        check("CreateLaunchTemplate", because, "CreateLaunchTemplateAuthCheckFailed");
        check("CreateFleet", &format!("{INSTANCES}{because}"), "RunInstancesAuthCheckFailed");
        // The class's mark tells it.
        let decoded = Some("EC2 denies function `provisioner` the action `iam:PassRole`".to_owned());
        let (action, message) = ("CreateFleet".to_owned(), String::new());
        assert_eq!(outcome(&Ec2Error::Unauthorized { action, decoded, message }, None), "nothing");
    }

    /// It may be about some types, or some subnets; and it is no word for a class that was denied or doubted before.
    #[test]
    fn a_policy_on_instances_warns_a_class_that_may_launch_others_and_trusts_none_anew() {
        let words = format!("{INSTANCES}with an explicit deny in a service control policy");
        let error = Ec2Error::from_code("CreateFleet", "UnauthorizedOperation", &words);
        let check = |was: Option<VerdictOutcome>, expected: &str| {
            let was = was.map(|outcome| before(outcome, None));
            let told = outcome(&error, was.as_ref());
            assert!(told.starts_with(expected), "{was:?} {told}");
        };
        let message = || "no".to_owned();
        let reason = ConditionReason::RunInstancesAuthCheckFailed;
        check(Some(VerdictOutcome::Allowed), "warned: EC2 denies function");
        check(Some(VerdictOutcome::Warned { message: message() }), "warned: EC2 denies function");
        check(Some(VerdictOutcome::Doubted { message: message() }), "doubted: EC2 denies function");
        check(
            Some(VerdictOutcome::Denied { reason, message: message(), image: None }),
            "RunInstancesAuthCheckFailed",
        );
        check(Some(VerdictOutcome::Unused { pools: String::new() }), "doubted: EC2 denies function");
        check(None, "doubted: EC2 denies function");
    }

    #[test]
    fn a_launch_of_the_last_day_makes_a_warning_of_a_denial() {
        let words = format!("{INSTANCES}because no identity-based policy allows it");
        let error = Ec2Error::from_code("CreateFleet", "UnauthorizedOperation", &words);
        let was = before(VerdictOutcome::Allowed, Some(Timestamp::UNIX_EPOCH));
        let told = outcome(&error, Some(&was));
        assert!(told.ends_with("other launches from the class succeeded within the last day"), "{told}");
    }
}
