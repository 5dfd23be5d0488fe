//! Denied calls, read: what EC2's words leave out, STS decodes.
//!
//! Decides when STS is asked: for a message whose words don't name the kind of policy, once; and what a denied launch
//! means to its class. `validate` decides what a denied dry run means.
//!
//! Invariant: of a decoded message only what [`Denial`] keeps leaves this module. Without an answer of STS the denial
//! says how a person decodes it.

use jiff::Timestamp;
use tenon_domain::class_status::ConditionReason;
use tenon_domain::launch_verdict::{LAUNCH_COUNTS_FOR, VerdictOutcome};
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
pub(crate) struct DeniedLaunch {
    /// The denied call.
    reason: ConditionReason,
    /// A sentence with the remedy.
    message: String,
}

impl DeniedLaunch {
    /// Reads an answer that is [`told`]. `None` if EC2 launched an instance or refused anything for another reason, or
    /// if a part of the class is to blame: its mark tells that.
    pub(crate) fn read(answer: &LaunchAnswer) -> Option<Self> {
        match answer {
            LaunchAnswer::Refused(error) => Self::of_call(error),
            LaunchAnswer::Fleet(result) if result.instances.is_empty() => Self::of_items(&result.errors),
            LaunchAnswer::Fleet(_) | LaunchAnswer::Found(_) => None,
        }
    }

    fn of_call(error: &Ec2Error) -> Option<Self> {
        if let Some(remedy) = error.without_launch_role() {
            let reason = ConditionReason::CreateLaunchTemplateAuthCheckFailed;
            return Some(Self { reason, message: remedy.to_owned() });
        }
        let Ec2Error::Unauthorized { action, decoded, message } = error else { return None };
        if blame(&error.to_string()).is_some() {
            return None;
        }
        let denial = known(action, decoded.as_deref(), message);
        let message = match decoded {
            // It is a denial's own sentence already.
            Some(told) if told.starts_with(DENIES) => told.clone(),
            Some(_) | None => denial.to_string(),
        };
        let reason = if action == MAKES_TEMPLATE {
            ConditionReason::CreateLaunchTemplateAuthCheckFailed
        } else if message.contains(RIGHT_TO_LAUNCH) {
            ConditionReason::RunInstancesAuthCheckFailed
        } else {
            ConditionReason::CreateFleetAuthCheckFailed
        };
        Some(Self { reason, message })
    }

    fn of_items(errors: &[FleetItemError]) -> Option<Self> {
        let is_denied = |error: &FleetItemError| {
            classify(&error.code, &error.message) == ErrorClass::Unauthorized
                && blame(&format!("{}: {}", error.code, error.message)).is_none()
        };
        let first = errors.first().filter(|_| errors.iter().all(is_denied))?;
        let message = if first.message.starts_with(DENIES) {
            first.message.clone()
        } else {
            Denial::read(&right_of(LAUNCHES), &first.message).to_string()
        };
        Some(Self { reason: ConditionReason::RunInstancesAuthCheckFailed, message })
    }

    /// What it means to the class. A policy that denies instances may be about some types, subnets or images: where it
    /// denies them explicitly, or others were launched lately, it is a warning.
    pub(crate) fn outcome(&self, launched_at: Option<Timestamp>, now: Timestamp) -> VerdictOutcome {
        let launches = launched_at.is_some_and(|at| now.duration_since(at) <= LAUNCH_COUNTS_FOR);
        let Self { reason, message } = self;
        if *reason != ConditionReason::RunInstancesAuthCheckFailed {
            return VerdictOutcome::Denied { reason: *reason, message: message.clone(), image: None };
        }
        if launches {
            let message = format!("{message}; other launches from the class succeeded within the last day");
            VerdictOutcome::Warned { message }
        } else if message.contains(EXPLICITLY) {
            VerdictOutcome::Warned { message: message.clone() }
        } else {
            VerdictOutcome::Denied { reason: *reason, message: message.clone(), image: None }
        }
    }
}

/// A launch's answer with denials as they may be stored: without principals, ids and encoded messages. One message is
/// decoded: the others are about the same right.
pub(crate) async fn told<P: Ports>(ports: &P, answer: LaunchAnswer) -> LaunchAnswer {
    match answer {
        LaunchAnswer::Refused(Ec2Error::Unauthorized { action, decoded: None, message })
            if says_more(&message) =>
        {
            let decoded = Some(denial(ports, &action, &message).await.to_string());
            LaunchAnswer::Refused(Ec2Error::Unauthorized { action, decoded, message })
        }
        LaunchAnswer::Refused(Ec2Error::Unauthorized { action, decoded: Some(words), message })
            if Denial::read("", &words).cause != DenialCause::Untold =>
        {
            let decoded = Some(known(&action, Some(&words), &message).to_string());
            LaunchAnswer::Refused(Ec2Error::Unauthorized { action, decoded, message })
        }
        LaunchAnswer::Fleet(mut result) => {
            let mut encoded: Option<String> = None;
            for error in result.errors.iter_mut().filter(|error| says_more(&error.message)) {
                let plain = Denial::read(&right_of(LAUNCHES), &error.message);
                error.message = match (plain.cause, &encoded) {
                    (DenialCause::Denied(_) | DenialCause::NotAllowed(_), _) => plain.to_string(),
                    (DenialCause::Untold, Some(told)) => told.clone(),
                    (DenialCause::Untold, None) => {
                        let told = denial(ports, LAUNCHES, &error.message).await.to_string();
                        encoded.insert(told).clone()
                    }
                };
            }
            LaunchAnswer::Fleet(result)
        }
        answer @ (LaunchAnswer::Refused(_) | LaunchAnswer::Found(_)) => answer,
    }
}

/// The call that makes a launch template.
const MAKES_TEMPLATE: &str = "CreateLaunchTemplate";
/// The right to launch instances, in the sentence of a [`Denial`].
const RIGHT_TO_LAUNCH: &str = "`ec2:RunInstances`";
/// How the sentence of a [`Denial`] begins.
const DENIES: &str = "EC2 denies function";
/// The words of a [`Denial`] by a policy that denies it.
const EXPLICITLY: &str = "denies it explicitly";

/// The call that a fleet makes for its items.
const LAUNCHES: &str = "RunInstances";

/// Whether EC2's words are about a denied call, and have more than that.
fn says_more(words: &str) -> bool {
    words.contains("authorized to perform")
        && (encoded_message(words).is_some() || Denial::read("", words).cause != DenialCause::Untold)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(error: &Ec2Error, launched_at: Option<Timestamp>) -> String {
        let Some(denied) = DeniedLaunch::read(&LaunchAnswer::Refused(error.clone())) else {
            return "nothing".to_owned();
        };
        match denied.outcome(launched_at, Timestamp::UNIX_EPOCH) {
            VerdictOutcome::Denied { reason, .. } => reason.as_str().to_owned(),
            VerdictOutcome::Warned { message } => format!("warned: {message}"),
            VerdictOutcome::Allowed | VerdictOutcome::Unused { .. } | VerdictOutcome::Doubted { .. } => {
                "allowed".to_owned()
            }
        }
    }

    fn check(call: &str, words: &str, expected: &str) {
        let told = outcome(&Ec2Error::from_code(call, "UnauthorizedOperation", words), None);
        assert!(told.starts_with(expected), "{told}");
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

    /// It may be about some types, or some subnets.
    #[test]
    fn a_policy_on_instances_condemns_no_class_that_may_launch_others() {
        let explicit = format!("{INSTANCES}with an explicit deny in a service control policy");
        check("CreateFleet", &explicit, "warned: EC2 denies function");
        let words = format!("{INSTANCES}because no identity-based policy allows it");
        let error = Ec2Error::from_code("CreateFleet", "UnauthorizedOperation", &words);
        let told = outcome(&error, Some(Timestamp::UNIX_EPOCH));
        assert!(told.ends_with("other launches from the class succeeded within the last day"), "{told}");
    }
}
