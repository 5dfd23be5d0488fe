//! AWS's Service Authorization Reference about the stacks' actions: the kinds of resources of each, and its condition
//! keys.
//!
//! Decides nothing of its own. A key that AWS doesn't give with an action is absent, so a condition on it never
//! holds, or always, if it is of the wrong kind. `tests/iam/refresh` writes the data.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::request::Request;

#[derive(Deserialize)]
struct Reference {
    actions: BTreeMap<String, Action>,
}

#[derive(Deserialize)]
struct Action {
    keys: Vec<String>,
    resources: BTreeMap<String, Vec<String>>,
}

static REFERENCE: LazyLock<Reference> = LazyLock::new(|| {
    // Unreadable data has no action, and the tests fail on the first one.
    serde_json::from_str(include_str!("../reference.json")).unwrap_or(Reference { actions: BTreeMap::new() })
});

/// Whether the reference knows the action.
#[must_use]
pub fn knows(action: &str) -> bool {
    REFERENCE.actions.contains_key(action)
}

/// Actions on resources that the reference doesn't list, such as ARC's on EKS clusters; AWS's own policies name those by
/// a condition.
const UNLISTED: [&str; 1] = ["arc-zonal-shift:GetManagedResource"];

/// The action whose kinds of resources and keys these are. AWS's reference lists no security groups for CreateFleet;
/// Karpenter's policy allows them ("CloudFormation" in its reference, read November 2026), so they are as RunInstances's.
fn listed(action: &str, resource: &str) -> Option<&'static Action> {
    let as_launches = action == "ec2:CreateFleet" && resource.contains(":security-group/");
    REFERENCE.actions.get(if as_launches { "ec2:RunInstances" } else { action })
}

/// Whether the action can have that resource. An unknown action can.
#[must_use]
pub fn fits(action: &str, resource: &str) -> bool {
    listed(action, resource).is_none_or(|known| {
        if known.resources.is_empty() || (resource == "*" && UNLISTED.contains(&action)) {
            resource == "*"
        } else {
            of_resource(known, resource).next().is_some()
        }
    })
}

/// Keys that AWS gives with every request of its services, and with no other.
const OF_SERVICES: [&str; 2] = ["aws:SourceAccount", "aws:SourceArn"];

/// Whether only requests of AWS's services have the key: those that a role's trust or a resource's policy decides. A role's
/// own requests haven't.
#[must_use]
pub fn is_of_services(key: &str) -> bool {
    OF_SERVICES.iter().any(|of| of.eq_ignore_ascii_case(key))
}

/// A key of calls that a service makes for a caller, whatever is called: IAM's user guide, "AWS global condition context
/// keys".
const VIA: &str = "aws:CalledVia";

/// Claims of a token, as keys behind the issuer's name. The reference lists well-known issuers only; IAM's user guide,
/// "Available keys for AWS OIDC federation", has these for every issuer.
const CLAIMS: [&str; 2] = ["aud", "sub"];

fn is_claim(action: &str, key: &str) -> bool {
    action == "sts:AssumeRoleWithWebIdentity"
        && key.rsplit_once(':').is_some_and(|(_, claim)| CLAIMS.contains(&claim))
}

/// Whether AWS gives the key with the action on that resource. With one that isn't known here it gives all.
#[must_use]
pub fn gives(action: &str, resource: &str, key: &str) -> bool {
    is_of_services(key)
        || key.eq_ignore_ascii_case(VIA)
        || is_claim(action, key)
        || listed(action, resource).is_none_or(|known| {
            known.keys.iter().chain(of_resource(known, resource).flatten()).any(|given| is_key(given, key))
        })
}

/// The request as AWS would ask it: without the keys that it doesn't give.
#[must_use]
pub fn as_asked(request: &Request) -> Request {
    let mut asked = request.clone();
    asked.context.retain(|key, _| gives(&request.action, &request.resource, key));
    asked
}

fn of_resource<'a>(known: &'a Action, resource: &'a str) -> impl Iterator<Item = &'a Vec<String>> {
    known.resources.iter().filter(|(pattern, _)| is_arn(pattern, resource)).map(|(_, keys)| keys)
}

/// `aws:RequestTag/${TagKey}` is every tag's key. Names of keys don't know case.
fn is_key(given: &str, key: &str) -> bool {
    match given.split_once("${") {
        Some((prefix, _)) => key.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)),
        None => given.eq_ignore_ascii_case(key),
    }
}

/// Whether the ARN is of a form such as `arn:${Partition}:ec2:${Region}::image/${ImageId}`.
fn is_arn(form: &str, arn: &str) -> bool {
    let mut rest = arn;
    let mut open = false;
    for (index, piece) in form.split("${").enumerate() {
        let literal =
            if index == 0 { piece } else { piece.split_once('}').map_or("", |(_, literal)| literal) };
        let found = if open { rest.find(literal) } else { rest.starts_with(literal).then_some(0) };
        let Some(at) = found else { return false };
        rest = rest.get(at + literal.len()..).unwrap_or_default();
        open = true;
    }
    // The rest after the last variable belongs to it.
    form.ends_with('}') || rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arns_have_forms() {
        let image = "arn:${Partition}:ec2:${Region}::image/${ImageId}";
        assert!(is_arn(image, "arn:aws:ec2:us-east-1::image/ami-1"));
        assert!(!is_arn(image, "arn:aws:ec2:us-east-1:111122223333:subnet/subnet-1"));
        assert!(!is_arn("arn:${Partition}:sqs:${Region}:${Account}:${QueueName}", "arn:aws:sns:a:b:c"));
    }

    #[test]
    fn keys_come_with_actions() {
        let instance = "arn:aws:ec2:us-east-1:111122223333:instance/i-1";
        assert!(gives("ec2:TerminateInstances", instance, "aws:ResourceTag/tenon.dev/installation"));
        assert!(!gives("ec2:TerminateInstances", instance, "aws:RequestTag/tenon.dev/installation"));
        assert!(gives(
            "dynamodb:GetItem",
            "arn:aws:dynamodb:us-east-1:111122223333:table/t",
            "dynamodb:leadingkeys"
        ));
        let role = "arn:aws:iam::111122223333:role/one";
        assert!(gives("sts:AssumeRoleWithWebIdentity", role, "oidc.example.com/id/A:sub"));
        assert!(!gives("sts:AssumeRoleWithWebIdentity", role, "oidc.example.com/id/A:email"));
        assert!(!gives("sts:AssumeRole", role, "oidc.example.com/id/A:sub"));
        assert!(fits("ec2:DescribeImages", "*") && !fits("ec2:DescribeImages", instance));
        assert!(!fits("ec2:CreateFleet", "arn:aws:ec2:us-east-1:111122223333:vpc/vpc-1"));
        let group = "arn:aws:ec2:us-east-1:111122223333:security-group/sg-1";
        assert!(fits("ec2:CreateFleet", group) && gives("ec2:CreateFleet", group, "aws:ResourceTag/team"));
    }
}
