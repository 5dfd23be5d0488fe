//! Every real request is allowed, every forbidden one is denied.

use tenon_iam_tests::judge::Policy;
use tenon_iam_tests::mutation::{conditions, name};
use tenon_iam_tests::reference;
use tenon_iam_tests::request::{
    CREATE_ACTION, LEADING_KEYS, PASSED_TO, REQUEST_TAG, RESOURCE_TAG, Request, SOURCE, arn,
};
use tenon_iam_tests::stack::{cluster_stack, list, statements};

use crate::{Known, WORLD};

fn allows(role: &str, request: &Request) -> bool {
    let role = WORLD.account.roles.get(role).unwrap_or_else(|| panic!("no role `{role}`"));
    Policy::new(&role.statements).unwrap().allows(request).unwrap()
}

#[test]
fn every_call_of_the_code_is_allowed() {
    let mut denied = Vec::new();
    for (name, role) in &WORLD.account.roles {
        let policy = Policy::new(&role.statements).unwrap();
        let asked = WORLD.asked[name].iter().filter(|request| !policy.allows(request).unwrap());
        denied.extend(asked.map(|request| format!("{name}: {request}")));
    }
    assert!(denied.is_empty(), "the stacks deny what is asked: {denied:#?}");
}

#[test]
fn nothing_is_allowed_that_no_call_asks_for() {
    let mut allowed = Vec::new();
    for (name, role) in &WORLD.account.roles {
        let policy = Policy::new(&role.statements).unwrap();
        let known = Known::of(role, &WORLD.asked[name]);
        let strangers = WORLD.asked.values().flatten().chain(&WORLD.forged);
        let strangers = strangers.filter(|request| !known.covers(role, request));
        let strangers = strangers.filter(|request| policy.allows(request).unwrap());
        allowed.extend(strangers.map(|request| format!("{name}: {request}")));
    }
    assert!(
        allowed.is_empty(),
        "the stacks allow what nobody asks for: {} such as {:#?}",
        allowed.len(),
        &allowed[..allowed.len().min(40)]
    );
}

/// A condition on a key that AWS doesn't give never holds, or always: it looks like one and is none.
#[test]
fn every_condition_is_on_a_key_that_aws_gives() {
    let mut wrong = Vec::new();
    for (of, role) in &WORLD.account.roles {
        for statement in &role.statements {
            for action in list(statement.get("Action")) {
                let action = action.as_str().unwrap();
                if !reference::knows(action) {
                    wrong.push(format!("{of}, {}: `{action}` isn't in reference.json", name(statement)));
                }
                let resources = list(statement.get("Resource"));
                let resources = resources
                    .iter()
                    .map(|r| r.as_str().unwrap().replace(":*", ":log-stream:x").replace('*', "x"));
                let resources: Vec<String> =
                    resources.map(|r| if r == "x" { "*".to_owned() } else { r }).collect();
                let fitting: Vec<&String> = resources.iter().filter(|r| reference::fits(action, r)).collect();
                if fitting.is_empty() {
                    wrong.push(format!("{of}, {}: `{action}` isn't asked of {resources:?}", name(statement)));
                }
                for (_, key, _) in conditions(statement) {
                    let missing = fitting.iter().filter(|resource| !reference::gives(action, resource, &key));
                    wrong.extend(
                        missing
                            .map(|r| format!("{of}, {}: `{action}` on {r} has no `{key}`", name(statement))),
                    );
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn table(action: &str, partition: Option<&str>) -> Request {
    let asked = Request::new(&format!("dynamodb:{action}"), arn("dynamodb", "table/tenon"));
    match partition {
        Some(partition) => asked.with(LEADING_KEYS, [partition]),
        None => asked,
    }
}

#[test]
fn an_agent_reaches_its_own_partitions_alone() {
    for (own, other) in [("demo", "next"), ("next", "demo")] {
        let agent = format!("agent of {own}");
        let of = |kind: &str, cluster: &str| format!("{kind}#{cluster}");
        assert!(allows(&agent, &table("PutItem", Some(&of("AGENT", own)))));
        assert!(allows(&agent, &table("Query", Some(&of("CLUSTER", own)))));
        assert!(!allows(&agent, &table("PutItem", Some(&of("CLUSTER", own)))));
        for action in [
            "BatchGetItem",
            "BatchWriteItem",
            "ConditionCheckItem",
            "DeleteItem",
            "GetItem",
            "PutItem",
            "Query",
            "UpdateItem",
        ] {
            for kind in ["AGENT", "CLUSTER"] {
                assert!(!allows(&agent, &table(action, Some(&of(kind, other)))), "{action} {kind}");
            }
            assert!(!allows(&agent, &table(action, Some("REGION#us-east-1"))), "{action}");
            assert!(!allows(&agent, &table(action, None)), "{action}");
            let both = table(action, None).with(LEADING_KEYS, [of("AGENT", own), of("AGENT", other)]);
            assert!(!allows(&agent, &both), "{action}");
        }
        let around = [
            "Scan",
            "PartiQLSelect",
            "PartiQLInsert",
            "PartiQLUpdate",
            "PartiQLDelete",
            "ExportTableToPointInTime",
        ];
        for action in around {
            assert!(!allows(&agent, &table(action, None)), "{action}");
            assert!(!allows(&agent, &table(action, Some(&of("AGENT", own)))), "{action}");
        }
    }
}

#[test]
fn an_agent_speaks_in_its_own_name_alone() {
    let put = |sources: &[&str]| {
        Request::new("events:PutEvents", arn("events", "event-bus/tenon"))
            .with(SOURCE, sources.iter().copied())
    };
    assert!(allows("agent of demo", &put(&["tenon.agent.demo"])));
    for sources in [
        &["tenon.agent.next"][..],
        &["tenon"],
        &["tenon.schedule"],
        &["ami.pipeline"],
        &["tenon.agent.demo", "tenon.agent.next"],
    ] {
        assert!(!allows("agent of demo", &put(sources)), "{sources:?}");
    }
    assert!(!allows("agent of demo", &put(&["tenon.agent.demo"]).without(SOURCE)));
}

#[test]
fn an_agent_has_no_right_in_ec2() {
    let of_ec2 =
        |request: &&Request| request.action.starts_with("ec2:") || request.action.starts_with("iam:");
    for request in WORLD.asked.values().flatten().chain(&WORLD.forged).filter(of_ec2) {
        assert!(!allows("agent of demo", request), "{request}");
    }
}

#[test]
fn only_the_provisioner_launches_and_only_lifecycle_terminates() {
    let ours = |action: &str| {
        Request::new(action, arn("ec2", "instance/i-1"))
            .with(RESOURCE_TAG, ["tenon"])
            .with(REQUEST_TAG, ["tenon"])
    };
    for role in WORLD.account.roles.keys() {
        assert_eq!(allows(role, &ours("ec2:RunInstances")), role == "provisioner", "{role} launches");
        assert_eq!(allows(role, &ours("ec2:CreateFleet")), role == "provisioner", "{role} launches");
        assert_eq!(allows(role, &ours("ec2:TerminateInstances")), role == "lifecycle", "{role} terminates");
    }
    let foreign = ours("ec2:TerminateInstances").with(RESOURCE_TAG, ["other"]);
    assert!(!allows("lifecycle", &foreign) && !allows("lifecycle", &foreign.without(RESOURCE_TAG)));
}

#[test]
fn roles_are_passed_as_registered_and_to_ec2_alone() {
    let pass = |role: &str, to: &str| {
        Request::new("iam:PassRole", format!("arn:aws:iam::111122223333:role/{role}")).with(PASSED_TO, [to])
    };
    for role in WORLD.account.roles.keys() {
        assert_eq!(allows(role, &pass("demo-node", "ec2.amazonaws.com")), role == "provisioner", "{role}");
    }
    assert!(allows("provisioner", &pass("next-node", "ec2.amazonaws.com")));
    assert!(!allows("provisioner", &pass("admin", "ec2.amazonaws.com")));
    assert!(!allows("provisioner", &pass("demo-node", "lambda.amazonaws.com")));
    assert!(!allows("provisioner", &pass("demo-node", "ec2.amazonaws.com").without(PASSED_TO)));
}

/// Its name as a service has the end of the partition's host names. Source: aws/karpenter-provider-aws#6843 and
/// terraform-aws-modules/terraform-aws-eks#3057, launches in China, read 2026-11.
#[test]
fn roles_are_passed_to_the_ec2_of_their_partition() {
    let ends = [("aws", "amazonaws.com"), ("aws-cn", "amazonaws.com.cn"), ("aws-us-gov", "amazonaws.com")];
    for (partition, end) in ends {
        let stack = cluster_stack("demo").unwrap().in_partition(partition, end);
        let policies = stack.of_kind("AWS::IAM::Policy").unwrap();
        let (_, pass) = policies.iter().find(|(name, _)| name == "PassNodeRoles").unwrap();
        let policy = Policy::new(&statements(pass.get("PolicyDocument"))).unwrap();
        let role = format!("arn:{partition}:iam::111122223333:role/demo-node");
        for service in ["ec2.amazonaws.com", "ec2.amazonaws.com.cn", "lambda.amazonaws.com"] {
            let asked = Request::new("iam:PassRole", role.clone()).with(PASSED_TO, [service]);
            let expected = service == format!("ec2.{end}");
            assert_eq!(policy.allows(&asked).unwrap(), expected, "{partition}: {service}");
        }
    }
}

#[test]
fn nobody_takes_what_isnt_ours_by_a_tag() {
    let tag = |on: &str| {
        Request::new("ec2:CreateTags", arn("ec2", on)).with("aws:TagKeys", ["tenon.dev/installation"])
    };
    for role in WORLD.account.roles.keys() {
        let foreign = tag("instance/i-1").with(REQUEST_TAG, ["tenon"]);
        assert!(!allows(role, &foreign), "{role}");
        assert!(!allows(role, &foreign.clone().with(RESOURCE_TAG, ["tenon"])), "{role}");
        assert!(!allows(role, &foreign.with(CREATE_ACTION, ["StartInstances"])), "{role}");
    }
}
