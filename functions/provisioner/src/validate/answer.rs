//! What EC2's answer to a dry run means to a class.
//!
//! Decides the condition's reason and words, and which answers are none. It doesn't decide how long a verdict holds.
//!
//! Invariant: of a denial only the action, the kinds of resource and policy are kept (`tenon_ec2::Denial`).

use std::collections::BTreeSet;

use tenon_domain::class_status::ConditionReason;
use tenon_domain::id::ImageId;
use tenon_domain::launch_verdict::{NO_SPOT_ROLE, VerdictOutcome};
use tenon_ec2::port::DryRunOutcome;
use tenon_ec2::{ClassPart, Denial, Ec2Error, ErrorClass, blame, blamed_image};

use crate::denials::known;
use crate::settle::MESSAGE_CHARS;

/// EC2's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DryRunAnswer {
    /// The call is allowed.
    Consent,
    /// Launches are refused, or something is to be told of them.
    Verdict(VerdictOutcome),
    /// None: throttling, or a failure of EC2.
    None,
    /// EC2 doesn't have the launch template.
    TemplateMissing,
    /// EC2 doesn't show the launch template yet.
    TemplateUnseen,
    /// It wasn't asked, because something else changed the cluster.
    Lost,
}

/// Reads the result of a dry run; `denial` is what its words and STS tell of one.
pub(super) fn read(
    result: Result<DryRunOutcome, Ec2Error>,
    reason: ConditionReason,
    images: &BTreeSet<ImageId>,
    denial: Option<Denial>,
) -> DryRunAnswer {
    match result {
        Ok(DryRunOutcome::WouldSucceed) => DryRunAnswer::Consent,
        Ok(DryRunOutcome::Unauthorized { action, decoded, message }) => {
            let denial = denial.unwrap_or_else(|| known(&action, decoded.as_deref(), &message));
            DryRunAnswer::Verdict(denied(&denial, reason))
        }
        Err(error) => of_error(&error, reason, images, denial),
    }
}

/// Reads the error of a call; `denial` is what its words and STS tell of one.
pub(super) fn of_error(
    error: &Ec2Error,
    reason: ConditionReason,
    images: &BTreeSet<ImageId>,
    denial: Option<Denial>,
) -> DryRunAnswer {
    if let Some(message) = error.without_launch_role() {
        return DryRunAnswer::Verdict(VerdictOutcome::Denied {
            reason,
            message: message.to_owned(),
            image: None,
        });
    }
    if let Ec2Error::Unauthorized { action, decoded, message } = error {
        let denial = denial.unwrap_or_else(|| known(action, decoded.as_deref(), message));
        return DryRunAnswer::Verdict(denied(&denial, reason));
    }
    match error.class() {
        ErrorClass::Throttled | ErrorClass::Server => DryRunAnswer::None,
        ErrorClass::TemplateMissing => DryRunAnswer::TemplateMissing,
        ErrorClass::ServiceLinkedRoleMissing => {
            DryRunAnswer::Verdict(VerdictOutcome::Warned { message: NO_SPOT_ROLE.to_owned() })
        }
        // What is exhausted is allowed.
        ErrorClass::InsufficientCapacity
        | ErrorClass::Quota
        | ErrorClass::FleetCount
        | ErrorClass::AccountLimit
        | ErrorClass::PlacementGroup
        | ErrorClass::Unsupported
        | ErrorClass::SubnetFull
        | ErrorClass::ReservationFull => DryRunAnswer::Consent,
        ErrorClass::ImageUnavailable
        | ErrorClass::Unauthorized
        | ErrorClass::NotFound
        | ErrorClass::AlreadyExists
        | ErrorClass::TokenMismatch
        | ErrorClass::Invalid
        | ErrorClass::Unknown => DryRunAnswer::Verdict(refused(error, images)),
    }
}

/// A denied call. A service control policy may deny RunInstances and allow it through CreateFleet, so one launch
/// decides.
fn denied(denial: &Denial, reason: ConditionReason) -> VerdictOutcome {
    let message = denial.to_string();
    if reason == ConditionReason::RunInstancesAuthCheckFailed && denial.may_be_by_service_control_policy() {
        VerdictOutcome::Doubted { message }
    } else {
        VerdictOutcome::Denied { reason, message, image: None }
    }
}

fn refused(error: &Ec2Error, images: &BTreeSet<ImageId>) -> VerdictOutcome {
    let words: String = error.to_string().chars().take(MESSAGE_CHARS).collect();
    let part = blame(&words);
    let remedy = part.map_or("check the class's spec", ClassPart::remedy);
    let image = blamed_image(&words, &images.iter().collect()).cloned();
    let message = format!("EC2 refuses launches from this class ({words}); {remedy}");
    VerdictOutcome::Denied { reason: ConditionReason::LaunchRefused, message, image }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(result: Result<DryRunOutcome, Ec2Error>, expected: &str) {
        let images = ["ami-1", "ami-2"].map(|id| id.parse().unwrap()).into();
        let told = match read(result, ConditionReason::RunInstancesAuthCheckFailed, &images, None) {
            DryRunAnswer::Verdict(VerdictOutcome::Denied { reason, message, image }) => {
                let image = image.map(|image| format!("{image} ")).unwrap_or_default();
                format!("{image}{reason} {message}")
            }
            DryRunAnswer::Verdict(VerdictOutcome::Doubted { .. }) => "doubted".to_owned(),
            DryRunAnswer::Verdict(VerdictOutcome::Warned { .. }) => "warned".to_owned(),
            DryRunAnswer::Verdict(VerdictOutcome::Allowed | VerdictOutcome::Unused { .. }) => String::new(),
            DryRunAnswer::Consent => "consent".to_owned(),
            DryRunAnswer::None => "none".to_owned(),
            DryRunAnswer::TemplateMissing => "no template".to_owned(),
            DryRunAnswer::TemplateUnseen => "no template yet".to_owned(),
            DryRunAnswer::Lost => "lost".to_owned(),
        };
        assert!(told.starts_with(expected), "{told}");
    }

    fn unauthorized(words: &str) -> Result<DryRunOutcome, Ec2Error> {
        let (action, message) = ("RunInstances".to_owned(), words.to_owned());
        Ok(DryRunOutcome::Unauthorized { action, decoded: None, message })
    }

    fn error(code: &str, message: &str) -> Result<DryRunOutcome, Ec2Error> {
        Err(Ec2Error::from_code("RunInstances", code, message))
    }

    #[test]
    fn every_answer_has_its_meaning() {
        check(Ok(DryRunOutcome::WouldSucceed), "consent");
        check(unauthorized("with an explicit deny in a service control policy"), "doubted");
        let words = "because no identity-based policy allows the ec2:RunInstances action";
        check(
            unauthorized(words),
            "RunInstancesAuthCheckFailed EC2 denies function `provisioner` the action",
        );
        check(error("UnauthorizedOperation", words), "RunInstancesAuthCheckFailed");
        check(error("RequestLimitExceeded", ""), "none");
        check(error("InternalError", ""), "none");
        check(Err(Ec2Error::NoAnswer { action: "RunInstances".to_owned() }), "none");
        check(error("InsufficientInstanceCapacity", ""), "consent");
        check(error("AuthFailure.ServiceLinkedRoleCreationNotPermitted", ""), "warned");
        check(error("InvalidLaunchTemplateName.NotFoundException", ""), "no template");
        let profile = "Value (nodes) for parameter iamInstanceProfile.name is invalid";
        check(
            error("InvalidAMIID.NotFound", "The image id '[ami-2]' does not exist"),
            "ami-2 LaunchRefused EC2 refuses launches from this class",
        );
        check(error("AuthFailure", "Not authorized for images: [ami-1]"), "ami-1 LaunchRefused");
        check(error("InvalidParameterValue", profile), "LaunchRefused EC2 refuses launches from this class");
    }

    #[test]
    fn a_denied_fleet_is_no_matter_of_doubt() {
        let words = "with an explicit deny in a service control policy";
        let denial = known("CreateFleet", None, words);
        let outcome = denied(&denial, ConditionReason::CreateFleetAuthCheckFailed);
        assert!(matches!(outcome, VerdictOutcome::Denied { .. }), "{outcome:?}");
    }
}
