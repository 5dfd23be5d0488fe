//! Forbidden requests: every real request with one change.
//!
//! Decides the possible changes: the action, the resource, each circumstance. The reader decides whether a changed
//! request is another real one.

use std::collections::BTreeSet;

use crate::request::{
    ACCOUNT, CREATE_ACTION, LEADING_KEYS, OWNER, PASSED_TO, REGION, REQUEST_CLUSTER, REQUEST_TAG,
    RESOURCE_CLUSTER, RESOURCE_IDENTIFIER, RESOURCE_TAG, RESOURCE_TEAM, Request, SOURCE, TAG_KEYS,
};

/// Partitions of all kinds, of this cluster and of others.
const PARTITIONS: [&str; 15] = [
    "REGION#us-east-1",
    "REGION#eu-west-1",
    "CLUSTER#demo",
    "CLUSTER#demo2",
    "CLUSTER#next",
    "AGENT#demo",
    "AGENT#demo2",
    "AGENT#next",
    "AGENT#*",
    "INSTANCE#i-1",
    "JOURNAL#demo#claim#a",
    "JOURNAL#next#claim#a",
    "JOURNAL#REGION#us-east-1#image#ami-1",
    "JOURNAL#REGION#eu-west-1#image#ami-1",
    "OTHER",
];
/// Sources of events.
const SOURCES: [&str; 6] =
    ["aws.ec2", "tenon", "tenon.agent.demo", "tenon.agent.next", "tenon.schedule", "ami.pipeline"];

/// What another account may share, as it may its images: reservations and placement groups, and the subnets and security
/// groups of a VPC. Their ARNs have the owner's account, so any account's are allowed, by their tags where rights ask for
/// tags.
const SHARED: [&str; 4] = [":capacity-reservation/", ":placement-group/", ":security-group/", ":subnet/"];

/// Other actions on the same thing in the same circumstances, by service.
const ACTIONS: [(&str, &[&str]); 11] = [
    ("arc-zonal-shift", &["CancelZonalShift", "StartPracticeRun", "StartZonalShift", "UpdateZonalShift"]),
    (
        "dynamodb",
        &[
            "BatchWriteItem",
            "BatchGetItem",
            "DeleteItem",
            "DeleteTable",
            "GetItem",
            "PartiQLDelete",
            "PartiQLInsert",
            "PartiQLSelect",
            "PartiQLUpdate",
            "PutItem",
            "Query",
            "Scan",
            "UpdateItem",
            "UpdateTable",
            "UpdateTimeToLive",
            "ExportTableToPointInTime",
        ],
    ),
    (
        "ec2",
        &[
            "CreateFleet",
            "CreateImage",
            "CreateLaunchTemplateVersion",
            "CreateTags",
            "DeleteFleets",
            "DeleteLaunchTemplate",
            "DeleteTags",
            "DescribeVpcs",
            "GetPasswordData",
            "ModifyInstanceAttribute",
            "ModifyLaunchTemplate",
            "RequestSpotFleet",
            "RunInstances",
            "StopInstances",
            "TerminateInstances",
        ],
    ),
    ("events", &["DeleteRule", "PutEvents", "PutPermission", "PutRule", "PutTargets"]),
    ("iam", &["AddRoleToInstanceProfile", "AttachRolePolicy", "CreateRole", "PassRole", "PutRolePolicy"]),
    ("logs", &["CreateLogGroup", "DeleteLogGroup", "GetLogEvents", "PutRetentionPolicy"]),
    ("pricing", &["GetAttributeValues"]),
    (
        "sqs",
        &[
            "ChangeMessageVisibility",
            "DeleteMessage",
            "PurgeQueue",
            "ReceiveMessage",
            "SendMessage",
            "SetQueueAttributes",
        ],
    ),
    ("ssm", &["DeleteParameter", "GetParameterHistory", "GetParametersByPath", "PutParameter"]),
    ("sts", &["AssumeRole", "GetCallerIdentity", "TagSession"]),
    ("lambda", &["DeleteFunction", "InvokeFunction", "UpdateFunctionCode"]),
];

/// The changed forms of a request.
#[must_use]
pub fn forge(request: &Request) -> Vec<Request> {
    let mut forged = actions(request);
    forged.extend(
        resources(&request.resource).into_iter().map(|resource| Request { resource, ..request.clone() }),
    );
    for (key, values) in &request.context {
        forged.push(request.clone().without(key));
        forged.extend(others(key, values).into_iter().map(|values| request.clone().with(key, values)));
    }
    forged.retain(|other| other != request);
    forged
}

fn actions(request: &Request) -> Vec<Request> {
    let service = request.action.split(':').next().unwrap_or_default();
    let of = ACTIONS.iter().filter(|(name, _)| *name == service).flat_map(|(_, actions)| actions.iter());
    of.map(|action| Request { action: format!("{service}:{action}"), ..request.clone() }).collect()
}

fn resources(arn: &str) -> Vec<String> {
    if arn == "*" {
        return Vec::new();
    }
    let mut others = vec![arn.replace(&format!(":{REGION}:"), ":eu-west-1:")];
    if !SHARED.iter().any(|kind| arn.contains(kind)) {
        others.push(arn.replace(ACCOUNT, "444455556666"));
    }
    let head = |parts: usize| arn.splitn(parts + 1, ':').take(parts).collect::<Vec<_>>().join(":");
    let name = arn.splitn(6, ':').nth(5).unwrap_or_default();
    let names: Vec<String> = match arn.split(':').nth(2).unwrap_or_default() {
        "dynamodb" => vec!["table/other".to_owned(), "table/tenon2".to_owned()],
        "sqs" => ["other", "tenon-disruption", "tenon-delivery-dead-letters", "tenon2-agent-demo"]
            .into_iter()
            .chain([
                "tenon-agent-demo",
                "tenon-agent-next",
                "tenon-provisioner",
                "tenon-lifecycle",
                "tenon-dead-letters",
            ])
            .chain(["tenon-node-classes", "tenon-interruption", "tenon-execution-dead-letters"])
            .map(str::to_owned)
            .collect(),
        "lambda" => ["other", "tenon-provisioner", "tenon-registry", "tenon2-images"]
            .map(|name| format!("function:{name}"))
            .to_vec(),
        "events" => vec!["event-bus/default".to_owned(), "event-bus/tenon2".to_owned()],
        "logs" => vec![
            "log-group:/aws/lambda/other:log-stream:one".to_owned(),
            "log-group:/aws/lambda/tenon-catalog:log-stream:one".to_owned(),
            "log-group:/aws/lambda/tenon-registry:log-stream:one".to_owned(),
        ],
        "iam" => {
            let others = ["role/admin", "role/next-node", "role/next-node2", "role/tenon/other/us-east-1/a"];
            let of_region = ["role/tenon/tenon/eu-west-1/a".to_owned(), format!("{name}2")];
            others.map(str::to_owned).into_iter().chain(of_region).collect()
        }
        "ec2" => ["vpc/vpc-1", "key-pair/k", "dedicated-host/h-1"].map(str::to_owned).to_vec(),
        _ => Vec::new(),
    };
    others.extend(names.into_iter().map(|name| format!("{}:{name}", head(5))));
    others
}

/// Other values of a key.
fn others(key: &str, own: &BTreeSet<String>) -> Vec<BTreeSet<String>> {
    let alone = |values: &[&str]| {
        values.iter().map(|value| BTreeSet::from([(*value).to_owned()])).collect::<Vec<_>>()
    };
    // One of our own among them makes no difference.
    let beside = |values: &[&str]| {
        let with = |value: &&str| own.iter().cloned().chain([(*value).to_owned()]).collect();
        values.iter().map(with).collect::<Vec<BTreeSet<String>>>()
    };
    match key {
        LEADING_KEYS => [alone(&PARTITIONS), beside(&PARTITIONS)].concat(),
        SOURCE => [alone(&SOURCES), beside(&SOURCES)].concat(),
        REQUEST_TAG | RESOURCE_TAG => alone(&["other", "tenon2", ""]),
        REQUEST_CLUSTER | RESOURCE_CLUSTER | RESOURCE_TEAM => alone(&["demo", "demo2", "next", ""]),
        OWNER => alone(&["444455556666", "amazon", "aws-marketplace", ""]),
        CREATE_ACTION => alone(&["RunScheduledInstances", "CreateVpc"]),
        TAG_KEYS => beside(&["tenon.dev/installation", "kubernetes.io/cluster/next"]),
        RESOURCE_IDENTIFIER => alone(&[
            "arn:aws:eks:us-east-1:111122223333:nodegroup/prod",
            "arn:aws:eks:us-east-1:444455556666:cluster/prod",
            "arn:aws:eks:eu-west-1:111122223333:cluster/prod",
        ]),
        PASSED_TO => alone(&["lambda.amazonaws.com", "ecs.amazonaws.com"]),
        _ => Vec::new(),
    }
}
