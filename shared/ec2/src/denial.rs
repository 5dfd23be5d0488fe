//! What EC2 says when it denies a call: the action, the kind of resource, and the kind of policy.
//!
//! Decides what is kept of the words. They also hold principals, ids and conditions, which nobody but the account's
//! operators should see; none of that is kept. It doesn't decide what a denial means to a class.
//!
//! Source: "Troubleshoot access denied error messages" of the IAM User Guide, which has the forms of the words (read
//! November 2026).

use std::fmt;

tenon_domain::words! {
    /// A kind of policy, in IAM's words.
    pub enum PolicyKind {
        /// Of the caller.
        Identity = "identity-based policy",
        /// Of a resource.
        Resource = "resource-based policy",
        /// Of the organisation, for its accounts.
        ServiceControl = "service control policy",
        /// Of the organisation, for its resources.
        ResourceControl = "resource control policy",
        /// Of the role.
        PermissionsBoundary = "permissions boundary",
        /// Of the session.
        Session = "session policy",
        /// Of the VPC endpoint.
        VpcEndpoint = "VPC endpoint policy",
    }
}

/// Why a call is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialCause {
    /// A policy denies it explicitly.
    Denied(PolicyKind),
    /// No policy of that kind allows it.
    NotAllowed(PolicyKind),
    /// EC2's words don't tell.
    Untold,
}

/// A denied call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The missing action, such as `ec2:RunInstances`.
    pub action: String,
    /// The service and type of the resource, such as `ec2` and `instance`.
    pub resource: Option<(String, String)>,
    /// Why.
    pub cause: DenialCause,
}

impl Denial {
    /// Reads EC2's words about a call; `action` is the missing action if they don't name one.
    #[must_use]
    pub fn read(action: &str, words: &str) -> Self {
        let named = words.split_once("is not authorized to perform: ").and_then(|(_, rest)| first_word(rest));
        let resource = words.split_once(" on resource: ").and_then(|(_, rest)| first_word(rest));
        let named = named.filter(|text| is_action(text));
        Self {
            action: named.unwrap_or(action).to_owned(),
            resource: resource.and_then(resource_type),
            cause: cause(words),
        }
    }

    /// Whether a service control policy denies the call explicitly.
    #[must_use]
    pub fn is_by_service_control_policy(&self) -> bool {
        self.cause == DenialCause::Denied(PolicyKind::ServiceControl)
    }
}

/// A sentence with the remedy.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, resource, cause } = self;
        write!(f, "EC2 denies function `provisioner` the action `{action}`")?;
        if let Some((_, kind)) = resource {
            write!(f, " on resource `{kind}`")?;
        }
        match cause {
            DenialCause::Denied(kind) => write!(f, ": a {kind} denies it explicitly; change that policy"),
            DenialCause::NotAllowed(kind) => {
                let arn = resource.as_ref().map_or_else(
                    || "*".to_owned(),
                    |(service, kind)| format!("arn:*:{service}:*:*:{kind}/*"),
                );
                write!(
                    f,
                    ": no {kind} allows it; add the statement \
                     `{{\"Effect\":\"Allow\",\"Action\":\"{action}\",\"Resource\":\"{arn}\"}}`"
                )
            }
            DenialCause::Untold => {
                let call = action.split_once(':').map_or(action.as_str(), |(_, call)| call);
                write!(
                    f,
                    ", and doesn't say why: take the message of the call `{call}` from CloudTrail, and decode it with \
                     `aws sts decode-authorization-message`"
                )
            }
        }
    }
}

fn first_word(text: &str) -> Option<&str> {
    text.split_whitespace().next().map(|word| word.trim_end_matches('.'))
}

fn is_action(text: &str) -> bool {
    let word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    text.split_once(':').is_some_and(|(service, call)| word(service) && word(call))
}

/// The service and type of an ARN such as `arn:aws:ec2:us-east-1:111122223333:instance/*`.
fn resource_type(arn: &str) -> Option<(String, String)> {
    let mut parts = arn.splitn(6, ':');
    let (scheme, service) = (parts.next()?, parts.nth(1)?);
    let kind = parts.nth(2)?.split(['/', ':']).next()?;
    let plain = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    (scheme == "arn" && plain(service) && plain(kind)).then(|| (service.to_owned(), kind.to_owned()))
}

fn cause(words: &str) -> DenialCause {
    let kind = |rest: &str| PolicyKind::ALL.into_iter().find(|kind| rest.starts_with(kind.as_str()));
    let after = |text: &str| words.split_once(text).and_then(|(_, rest)| kind(rest));
    let denied = after("explicit deny in a ").or_else(|| after("explicit deny in an "));
    let not_allowed = after("because no ");
    match (denied, not_allowed) {
        (Some(kind), _) => DenialCause::Denied(kind),
        (None, Some(kind)) => DenialCause::NotAllowed(kind),
        (None, None) => DenialCause::Untold,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = "You are not authorized to perform this operation. User: \
        arn:aws:sts::111122223333:assumed-role/secret/session is not authorized to perform: ";

    fn check(words: &str, expected: &str) {
        let told = Denial::read("ec2:CreateFleet", words).to_string();
        assert_eq!(told, format!("EC2 denies function `provisioner` the action {expected}"));
        assert!(!told.contains("111122223333") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn the_action_the_kind_of_resource_and_the_policy_are_kept_and_nothing_else() {
        let resource = "ec2:RunInstances on resource: arn:aws:ec2:us-east-1:111122223333:volume/* ";
        check(
            &format!(
                "{USER}{resource}because no identity-based policy allows the ec2:RunInstances action. Encoded …"
            ),
            "`ec2:RunInstances` on resource `volume`: no identity-based policy allows it; add the statement \
             `{\"Effect\":\"Allow\",\"Action\":\"ec2:RunInstances\",\"Resource\":\"arn:*:ec2:*:*:volume/*\"}`",
        );
        check(
            &format!("{USER}{resource}with an explicit deny in a service control policy. Encoded …"),
            "`ec2:RunInstances` on resource `volume`: a service control policy denies it explicitly; change that policy",
        );
        check(
            &format!(
                "{USER}iam:PassRole on resource: arn:aws:iam::111122223333:role/secret because no permissions \
                      boundary allows the iam:PassRole action"
            ),
            "`iam:PassRole` on resource `role`: no permissions boundary allows it; add the statement \
             `{\"Effect\":\"Allow\",\"Action\":\"iam:PassRole\",\"Resource\":\"arn:*:iam:*:*:role/*\"}`",
        );
        check(
            "You are not authorized to perform this operation. Encoded authorization failure message: 9x8y",
            "`ec2:CreateFleet`, and doesn't say why: take the message of the call `CreateFleet` from CloudTrail, and \
             decode it with `aws sts decode-authorization-message`",
        );
    }

    #[test]
    fn only_a_service_control_policys_explicit_deny_is_one() {
        let check = |words: &str, expected| {
            assert_eq!(Denial::read("ec2:RunInstances", words).is_by_service_control_policy(), expected);
        };
        check("with an explicit deny in a service control policy", true);
        check("with an explicit deny in an identity-based policy", false);
        check("because no service control policy allows the ec2:RunInstances action", false);
    }
}
