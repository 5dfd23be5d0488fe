//! What EC2 says when it denies a call: the action, the kind of resource, and the kind of policy.
//!
//! Decides what is kept of the words. They also hold principals, ids and conditions, which nobody but the account's
//! operators should see; none of that is kept. It doesn't decide what a denial means to a class.
//!
//! Sources: "Troubleshoot access denied error messages" of the IAM User Guide, which has the forms of the words, and
//! `DecodeAuthorizationMessage` of the STS API Reference (read November 2026). A decoded message tells an explicit deny
//! from a missing right, but not the kind of policy.

use std::fmt;

use serde::Deserialize;

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
    /// A policy denies it explicitly; a decoded message doesn't tell its kind.
    Denied(Option<PolicyKind>),
    /// No policy of that kind allows it, or none at all.
    NotAllowed(Option<PolicyKind>),
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
    /// Whether the words name no resource of that type, as in `launch-template/*`.
    pub names_none: bool,
    /// Why.
    pub cause: DenialCause,
}

/// The longest message that STS decodes.
const ENCODED_CHARS: usize = 10_240;

/// The encoded message in EC2's words about a denied call.
#[must_use]
pub fn encoded_message(words: &str) -> Option<&str> {
    let (_, rest) = words.split_once("ncoded authorization failure message: ")?;
    first_word(rest).filter(|encoded| (1..=ENCODED_CHARS).contains(&encoded.len()))
}

/// A decoded message. It has principals and conditions, so only [`Denial::decoded`] reads it, and nothing shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct DecodedMessage(String);

impl DecodedMessage {
    /// The message with this content.
    #[must_use]
    pub const fn new(content: String) -> Self {
        Self(content)
    }

    /// The content, for a server that stands in for STS.
    #[must_use]
    pub fn content(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for DecodedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecodedMessage(..)")
    }
}

/// What is read of a decoded message.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    allowed: bool,
    explicit_deny: bool,
    #[serde(default)]
    context: ToldContext,
}

/// The call that a decoded message is about.
#[derive(Default, Deserialize)]
struct ToldContext {
    action: Option<String>,
    resource: Option<String>,
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
            names_none: resource.is_some_and(names_none),
            cause: cause(words),
        }
    }

    /// The denial with what a decoded message says; unchanged if that isn't a denial.
    #[must_use]
    pub fn decoded(self, message: &DecodedMessage) -> Self {
        let Ok(told) = serde_json::from_str::<Told>(&message.0) else { return self };
        if told.allowed {
            return self;
        }
        let service = self.action.split_once(':').map_or("ec2", |(service, _)| service);
        let named = told
            .context
            .action
            .map(|action| if action.contains(':') { action } else { format!("{service}:{action}") });
        let arn = told.context.resource.as_deref();
        let resource = arn.and_then(resource_type);
        Self {
            action: named.filter(|action| is_action(action)).unwrap_or(self.action),
            names_none: if resource.is_some() { arn.is_some_and(names_none) } else { self.names_none },
            resource: resource.or(self.resource),
            cause: if told.explicit_deny { DenialCause::Denied(None) } else { DenialCause::NotAllowed(None) },
        }
    }

    /// Whether the call is denied because EC2 doesn't find its launch template: then IAM has no tags of it to compare, and
    /// the words name none. Source: kubernetes-sigs/karpenter#2813, read November 2026.
    #[must_use]
    pub fn is_of_unseen_template(&self) -> bool {
        let launches = ["ec2:CreateFleet", "ec2:RunInstances"].contains(&self.action.as_str());
        let of_templates = self
            .resource
            .as_ref()
            .is_some_and(|(service, kind)| service == "ec2" && kind == "launch-template");
        match self.cause {
            DenialCause::Denied(_) => false,
            DenialCause::NotAllowed(_) | DenialCause::Untold => launches && of_templates && self.names_none,
        }
    }

    /// Whether a policy denies the call explicitly that may be a service control policy.
    #[must_use]
    pub fn may_be_by_service_control_policy(&self) -> bool {
        match self.cause {
            DenialCause::Denied(kind) => kind.is_none_or(|kind| kind == PolicyKind::ServiceControl),
            DenialCause::NotAllowed(_) | DenialCause::Untold => false,
        }
    }
}

/// A sentence with the remedy.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, resource, cause, names_none: _ } = self;
        write!(f, "EC2 denies function `provisioner` the action `{action}`")?;
        if let Some((_, kind)) = resource {
            write!(f, " on resource `{kind}`")?;
        }
        match cause {
            DenialCause::Denied(Some(kind)) => {
                write!(f, ": a {kind} denies it explicitly; change that policy")
            }
            DenialCause::Denied(None) => write!(
                f,
                ": a policy denies it explicitly; change that policy, of the role or of the organisation"
            ),
            DenialCause::NotAllowed(kind) => {
                let arn = resource.as_ref().map_or_else(
                    || "*".to_owned(),
                    |(service, kind)| format!("arn:*:{service}:*:*:{kind}/*"),
                );
                let kind = kind.map_or("policy", PolicyKind::as_str);
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

fn names_none(arn: &str) -> bool {
    arn.ends_with("/*")
}

fn cause(words: &str) -> DenialCause {
    let kind = |rest: &str| PolicyKind::ALL.into_iter().find(|kind| rest.starts_with(kind.as_str()));
    let after = |text: &str| words.split_once(text).and_then(|(_, rest)| kind(rest));
    let denied = after("explicit deny in a ").or_else(|| after("explicit deny in an "));
    let not_allowed = after("because no ");
    match (denied, not_allowed) {
        (Some(kind), _) => DenialCause::Denied(Some(kind)),
        (None, Some(kind)) => DenialCause::NotAllowed(Some(kind)),
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
    fn a_template_that_ec2_doesnt_find_is_told_by_a_denial_that_names_none() {
        let check = |action: &str, name: &str, why: &str, expected: bool| {
            let arn = format!("arn:aws:ec2:us-east-1:111122223333:{name}");
            let plain = Denial::read("ec2:CreateFleet", &format!("{USER}{action} on resource: {arn} {why}"));
            assert_eq!(plain.is_of_unseen_template(), expected, "{action} {name} {why}");
        };
        let no = "because no identity-based policy allows it";
        check("ec2:CreateFleet", "launch-template/*", no, true);
        check("ec2:RunInstances", "launch-template/*", no, true);
        check("ec2:CreateFleet", "launch-template/lt-1", no, false);
        check(
            "ec2:CreateFleet",
            "launch-template/*",
            "with an explicit deny in a service control policy",
            false,
        );
        check("ec2:CreateFleet", "fleet/*", no, false);
        check("ec2:CreateLaunchTemplate", "launch-template/*", no, false);
        let told = |name: &str| {
            let arn = format!("arn:aws:ec2:us-east-1:111122223333:launch-template/{name}");
            let content = format!(
                r#"{{"allowed":false,"explicitDeny":false,"context":{{"action":"ec2:CreateFleet","resource":"{arn}"}}}}"#
            );
            let untold = Denial::read("ec2:CreateFleet", "You are not authorized to perform this operation.");
            untold.decoded(&DecodedMessage::new(content)).is_of_unseen_template()
        };
        assert_eq!([told("*"), told("lt-1")], [true, false]);
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
            assert_eq!(Denial::read("ec2:RunInstances", words).may_be_by_service_control_policy(), expected);
        };
        check("with an explicit deny in a service control policy", true);
        check("with an explicit deny in an identity-based policy", false);
        check("because no service control policy allows the ec2:RunInstances action", false);
    }

    #[test]
    fn a_decoded_message_gives_the_action_the_resource_and_whether_a_policy_denies() {
        let words =
            "You are not authorized to perform this operation. Encoded authorization failure message: 9x-8y_";
        assert_eq!(encoded_message(words), Some("9x-8y_"));
        assert_eq!(encoded_message("You are not authorized to perform this operation."), None);
        let check = |content: &str, expected: &str| {
            let message = DecodedMessage::new(content.to_owned());
            let denial = Denial::read("ec2:RunInstances", words).decoded(&message);
            let told = denial.to_string();
            assert!(told.ends_with(expected), "{told}");
            assert!(!told.contains("111122223333") && !told.contains("secret"), "{told}");
            assert_eq!(format!("{message:?}"), "DecodedMessage(..)");
            denial.may_be_by_service_control_policy()
        };
        let content = |deny: bool| {
            format!(
                r#"{{"allowed":false,"explicitDeny":{deny},"matchedStatements":{{"items":[]}},"failures":{{"items":[]}},
                "context":{{"principal":{{"id":"AROAEXAMPLE:secret","arn":"arn:aws:sts::111122223333:assumed-role/secret"}},
                "action":"ec2:RunInstances","resource":"arn:aws:ec2:us-east-1:111122223333:network-interface/*",
                "conditions":{{"items":[{{"key":"aws:Region","values":{{"items":[{{"value":"us-east-1"}}]}}}}]}}}}}}"#
            )
        };
        let by_organisation = check(
            &content(false),
            "`ec2:RunInstances` on resource `network-interface`: no policy allows it; add the statement \
             `{\"Effect\":\"Allow\",\"Action\":\"ec2:RunInstances\",\"Resource\":\"arn:*:ec2:*:*:network-interface/*\"}`",
        );
        assert!(!by_organisation);
        let denies = "`network-interface`: a policy denies it explicitly; change that policy, of the role or of the \
                      organisation";
        assert!(check(&content(true), denies), "a launch through a fleet may be allowed");
        check("no JSON", "decode it with `aws sts decode-authorization-message`");
        check(
            r#"{"allowed":true,"explicitDeny":false}"#,
            "decode it with `aws sts decode-authorization-message`",
        );
        check(
            r#"{"allowed":false,"explicitDeny":false,"context":{"action":"RunInstances","resource":"secret"}}"#,
            "`ec2:RunInstances`: no policy allows it; add the statement \
             `{\"Effect\":\"Allow\",\"Action\":\"ec2:RunInstances\",\"Resource\":\"*\"}`",
        );
    }
}
