//! The rights that AWS checks for each call of the adapters.
//!
//! Decides them for every call of the ports; an unknown call fails the recording. Sources: AWS's Service
//! Authorization Reference, "Actions, resources, and condition keys" of each service, and EC2's user guide on
//! resource-level permissions of RunInstances and on tagging at creation, read in November 2026.

use tenon_domain::tags;
use tenon_ec2::port::{
    CreateFleetRequest, CreateLaunchTemplate, InstanceProfileSpec, ReservationPreference, RunInstancesProbe,
    Tags, TargetCapacityType, without_selector,
};
use tenon_region::asked::AskedCall;
use tenon_region::ports::TaskSignal;
use tenon_table::action::{CommitForm, WriteEffect, form_of};
use tenon_table::{Commit, Key};

use crate::request::{
    ACCOUNT, CREATE_ACTION, INSTALLATION, LEADING_KEYS, OWNER, PASSED_TO, REGION, REQUEST_CLUSTER,
    REQUEST_TAG, RESOURCE_CLUSTER, RESOURCE_IDENTIFIER, RESOURCE_PRIVATE, RESOURCE_TAG, RESOURCE_TEAM,
    Request, SOURCE, TAG_KEYS, arn, public_arn,
};

/// The cluster of the scenarios.
const CLUSTER: &str = "demo";

/// Operations of the adapters, by AWS's names, with the actions that AWS checks for them. The adapters' sources are
/// compared with it.
pub const OPERATIONS: &[(&str, &[&str])] = &[
    ("arc-zonal-shift:GetManagedResource", &["arc-zonal-shift:GetManagedResource"]),
    ("dynamodb:BatchGetItem", &["dynamodb:BatchGetItem"]),
    ("dynamodb:DeleteItem", &["dynamodb:DeleteItem"]),
    ("dynamodb:GetItem", &["dynamodb:GetItem"]),
    ("dynamodb:PutItem", &["dynamodb:PutItem"]),
    ("dynamodb:Query", &["dynamodb:Query"]),
    (
        "dynamodb:TransactWriteItems",
        &["dynamodb:ConditionCheckItem", "dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem"],
    ),
    ("dynamodb:UpdateItem", &["dynamodb:UpdateItem"]),
    ("ec2:CreateFleet", &["ec2:CreateFleet", "ec2:CreateTags", "ec2:RunInstances"]),
    ("ec2:CreateLaunchTemplate", &["ec2:CreateLaunchTemplate", "ec2:CreateTags", "iam:PassRole"]),
    ("ec2:CreateTags", &["ec2:CreateTags"]),
    ("ec2:DeleteLaunchTemplate", &["ec2:DeleteLaunchTemplate"]),
    ("ec2:DescribeAvailabilityZones", &["ec2:DescribeAvailabilityZones"]),
    ("ec2:DescribeCapacityReservations", &["ec2:DescribeCapacityReservations"]),
    ("ec2:DescribeImages", &["ec2:DescribeImages"]),
    ("ec2:DescribeInstanceTypeOfferings", &["ec2:DescribeInstanceTypeOfferings"]),
    ("ec2:DescribeInstanceTypes", &["ec2:DescribeInstanceTypes"]),
    ("ec2:DescribeInstanceStatus", &["ec2:DescribeInstanceStatus"]),
    ("ec2:DescribeInstances", &["ec2:DescribeInstances"]),
    ("ec2:DescribeLaunchTemplates", &["ec2:DescribeLaunchTemplates"]),
    ("ec2:DescribePlacementGroups", &["ec2:DescribePlacementGroups"]),
    ("ec2:DescribeSecurityGroups", &["ec2:DescribeSecurityGroups"]),
    ("ec2:DescribeSnapshots", &["ec2:DescribeSnapshots"]),
    ("ec2:DescribeSpotPriceHistory", &["ec2:DescribeSpotPriceHistory"]),
    ("ec2:DescribeSubnets", &["ec2:DescribeSubnets"]),
    ("ec2:GetConsoleOutput", &["ec2:GetConsoleOutput"]),
    ("ec2:RunInstances", &["ec2:RunInstances"]),
    ("ec2:TerminateInstances", &["ec2:TerminateInstances"]),
    ("events:PutEvents", &["events:PutEvents"]),
    ("iam:GetInstanceProfile", &["iam:GetInstanceProfile"]),
    ("pricing:GetProducts", &["pricing:GetProducts"]),
    ("sqs:DeleteMessage", &["sqs:DeleteMessage"]),
    ("sqs:ReceiveMessage", &["sqs:ReceiveMessage"]),
    ("sqs:SendMessage", &["sqs:SendMessage"]),
    ("ssm:GetParameters", &["ssm:GetParameters"]),
    ("sts:AssumeRole", &["sts:AssumeRole"]),
    ("sts:DecodeAuthorizationMessage", &["sts:DecodeAuthorizationMessage"]),
];

/// Operations of the adapters that no function and no agent calls, so that no role may have them, with the reason why
/// the adapter has them.
pub const UNASKED: &[(&str, &str)] = &[];

/// The rights that AWS checks for a call.
///
/// # Errors The call, if this module doesn't know it.
pub fn requests(asked: AskedCall<'_>) -> Result<Vec<Request>, String> {
    Ok(match asked {
        AskedCall::Get(key) => vec![table("GetItem", [key])],
        AskedCall::BatchGet(keys) => vec![table("BatchGetItem", keys)],
        AskedCall::Query(query) => vec![table("Query", [&Key::new(query.pk.as_str(), "")])],
        AskedCall::Commit(commit) => writes(commit)?,
        AskedCall::CreateFleet(fleet) | AskedCall::DryRunFleet(fleet) => create_fleet(fleet),
        AskedCall::DryRunInstances(probe) => run_instances(probe),
        AskedCall::AssumeRole(role) => vec![Request::new("sts:AssumeRole", role.arn.as_str())],
        AskedCall::CreateLaunchTemplate(template) => create_template(template),
        AskedCall::TerminateInstances(ids) => ids
            .iter()
            .map(|id| {
                Request::new("ec2:TerminateInstances", arn("ec2", &format!("instance/{id}")))
                    .with(RESOURCE_TAG, [INSTALLATION])
            })
            .collect(),
        AskedCall::CreateTags(ids, tags) => ids
            .iter()
            .map(|id| {
                Request::new("ec2:CreateTags", arn("ec2", &format!("instance/{id}")))
                    .with(RESOURCE_TAG, [INSTALLATION])
                    .with(RESOURCE_CLUSTER, [CLUSTER])
                    .with(TAG_KEYS, tags.keys())
            })
            .collect(),
        AskedCall::GetParameters(names) => names.iter().map(|name| parameter(name)).collect(),
        AskedCall::GetInstanceProfile(name) => {
            let profile = format!("arn:aws:iam::{ACCOUNT}:instance-profile/{name}");
            vec![Request::new("iam:GetInstanceProfile", profile)]
        }
        AskedCall::Other("GetManagedResource") => {
            let cluster = arn("eks", "cluster/prod");
            vec![Request::new("arc-zonal-shift:GetManagedResource", "*").with(RESOURCE_IDENTIFIER, [cluster])]
        }
        AskedCall::Other("DeleteLaunchTemplate") => vec![
            Request::new("ec2:DeleteLaunchTemplate", arn("ec2", "launch-template/lt-1"))
                .with(RESOURCE_TAG, [INSTALLATION]),
        ],
        AskedCall::Other("GetConsoleOutput") => vec![
            Request::new("ec2:GetConsoleOutput", arn("ec2", "instance/i-1"))
                .with(RESOURCE_TAG, [INSTALLATION]),
        ],
        AskedCall::Other("DecodeAuthorizationMessage") => {
            vec![Request::new("sts:DecodeAuthorizationMessage", "*")]
        }
        AskedCall::Other("GetProducts") => vec![Request::new("pricing:GetProducts", "*")],
        AskedCall::Other(describe) if describe.starts_with("Describe") => {
            vec![Request::new(&format!("ec2:{describe}"), "*")]
        }
        AskedCall::Other(call) => {
            return Err(format!("`{call}`: say in tests/iam/src/calls.rs which rights it needs"));
        }
        AskedCall::Ring(signal) => vec![ring(signal)],
    })
}

/// A parameter by name or ARN. AWS's own have no account.
fn parameter(asked: &str) -> Request {
    let (asked, _) = without_selector(asked);
    let of = if asked.starts_with("/aws/service/") { "" } else { ACCOUNT };
    let path = asked.trim_start_matches('/');
    let named = format!("arn:aws:ssm:{REGION}:{of}:parameter/{path}");
    Request::new("ssm:GetParameters", if asked.starts_with("arn:") { asked.to_owned() } else { named })
}

fn table<'a>(action: &str, keys: impl IntoIterator<Item = &'a Key>) -> Request {
    let pks = keys.into_iter().map(|key| key.pk.as_str());
    Request::new(&format!("dynamodb:{action}"), arn("dynamodb", &format!("table/{INSTALLATION}")))
        .with(LEADING_KEYS, pks)
}

/// A transaction is checked action by action, by the names of single writes.
fn writes(commit: &Commit) -> Result<Vec<Request>, String> {
    let actions = commit.actions().map_err(|error| error.to_string())?;
    match form_of(&actions) {
        CommitForm::Single | CommitForm::Transaction => {}
    }
    let name = |effect: WriteEffect<'_>| match effect {
        WriteEffect::Check => "ConditionCheckItem",
        WriteEffect::Put(_) => "PutItem",
        WriteEffect::BumpRevision { .. } | WriteEffect::Set { .. } | WriteEffect::Add { .. } => "UpdateItem",
        WriteEffect::Delete => "DeleteItem",
    };
    Ok(actions.iter().map(|action| table(name(action.effect), [&action.key])).collect())
}

fn ring(signal: &TaskSignal) -> Request {
    match signal {
        TaskSignal::Publish(event) => {
            Request::new("events:PutEvents", arn("events", &format!("event-bus/{INSTALLATION}")))
                .with(SOURCE, [event.source.as_str()])
        }
        TaskSignal::RingAgent(cluster) => queue("sqs:SendMessage", &format!("agent-{cluster}")),
        TaskSignal::Wake { function, .. } => queue("sqs:SendMessage", function.as_str()),
    }
}

/// An action on a queue of the installation.
#[must_use]
pub fn queue(action: &str, name: &str) -> Request {
    Request::new(action, arn("sqs", &format!("{INSTALLATION}-{name}")))
}

/// A request that sets tags.
fn owned(request: Request, made: &Tags) -> Request {
    [(tags::INSTALLATION, REQUEST_TAG), (tags::CLUSTER, REQUEST_CLUSTER)].into_iter().fold(
        request,
        |request, (tag, key)| match made.get(tag) {
            Some(value) => request.with(key, [value.as_str()]),
            None => request,
        },
    )
}

/// A subnet or a security group of the scenarios' cluster, with the tags that its stack asks for.
fn in_network(request: Request) -> Request {
    request.with(RESOURCE_TEAM, [CLUSTER]).with(RESOURCE_PRIVATE, ["1"])
}

/// An image by each owner that the stacks allow: which one the scenario's image has makes no difference.
fn by_owner(request: &Request) -> [Request; 2] {
    [ACCOUNT, "amazon"].map(|owner| request.clone().with(OWNER, [owner]))
}

/// EC2 checks CreateFleet, then each of its launches as RunInstances by the same caller, then the tags at creation.
fn create_fleet(fleet: &CreateFleetRequest) -> Vec<Request> {
    let mut asked = Vec::new();
    let tags = &fleet.tags;
    let resource = |name: &str| arn("ec2", name);
    let made = [("fleet/*", &tags.fleet), ("instance/*", &tags.instance), ("volume/*", &tags.volume)];
    asked.extend(made.map(|(name, tags)| owned(Request::new("ec2:CreateFleet", resource(name)), tags)));
    let run = [("instance/*", &tags.instance), ("volume/*", &tags.volume)];
    asked.extend(run.map(|(name, tags)| owned(Request::new("ec2:RunInstances", resource(name)), tags)));
    for action in ["CreateFleet", "RunInstances"] {
        let of = if action == "CreateFleet" { &made[..] } else { &run[..] };
        asked.extend(of.iter().map(|(name, tags)| {
            owned(Request::new("ec2:CreateTags", resource(name)), tags).with(CREATE_ACTION, [action])
        }));
    }
    for template in &fleet.launch_templates {
        let templates = resource(&format!("launch-template/{}", template.name));
        for action in ["ec2:CreateFleet", "ec2:RunInstances"] {
            // A template is ours by its tags at creation.
            let owned = Request::new(action, templates.clone()).with(RESOURCE_TAG, [INSTALLATION]);
            asked.push(owned.with(RESOURCE_CLUSTER, [CLUSTER]));
            for with in &template.overrides {
                let image = with.image.as_ref().map(|id| public_arn(&format!("image/{id}")));
                asked.extend(image.iter().flat_map(|image| by_owner(&Request::new(action, image.as_str()))));
                let subnet = with.subnet.as_ref().map(|id| resource(&format!("subnet/{id}")));
                asked.extend(subnet.map(|subnet| in_network(Request::new(action, subnet))));
            }
        }
    }
    if fleet.capacity_type == TargetCapacityType::Spot {
        asked.push(Request::new("ec2:RunInstances", resource("spot-instances-request/*")));
    }
    asked
}

/// EC2 checks the resources that the request names, with the tags of the request: a kind that only the template tags may
/// be without them.
fn run_instances(probe: &RunInstancesProbe) -> Vec<Request> {
    let resource = |name: &str| arn("ec2", name);
    let run = |on: String| Request::new("ec2:RunInstances", on);
    let mut made = vec![
        ("instance/*", &probe.tags.instance),
        ("volume/*", &probe.tags.volume),
        ("network-interface/*", &probe.network_interface_tags),
    ];
    if probe.capacity_type == TargetCapacityType::Spot {
        made.push(("spot-instances-request/*", &probe.spot_request_tags));
    }
    let mut asked = Vec::new();
    for (name, tags) in made {
        asked.push(owned(run(resource(name)), tags));
        if !tags.is_empty() {
            let tag = Request::new("ec2:CreateTags", resource(name)).with(CREATE_ACTION, ["RunInstances"]);
            asked.push(owned(tag, tags));
        }
    }
    let template = run(resource(&format!("launch-template/{}", probe.launch_template)));
    asked.push(template.with(RESOURCE_TAG, [INSTALLATION]).with(RESOURCE_CLUSTER, [CLUSTER]));
    let image = probe.with.image.as_ref().map(|id| run(public_arn(&format!("image/{id}"))));
    asked.extend(image.iter().flat_map(by_owner));
    let subnet = probe.with.subnet.as_ref().map(|id| run(resource(&format!("subnet/{id}"))));
    asked.extend(subnet.map(in_network));
    let groups = probe.security_groups.iter().map(|id| run(resource(&format!("security-group/{id}"))));
    asked.extend(groups.map(in_network));
    asked
}

/// A template's content is checked at a launch from it, for the caller of the launch; its role already at creation.
fn create_template(template: &CreateLaunchTemplate) -> Vec<Request> {
    let data = &template.data;
    let resource = arn("ec2", "launch-template/*");
    let mut asked = vec![
        owned(Request::new("ec2:CreateLaunchTemplate", resource.clone()), &template.tags),
        owned(Request::new("ec2:CreateTags", resource), &template.tags)
            .with(CREATE_ACTION, ["CreateLaunchTemplate"]),
    ];
    let interfaces = arn("ec2", "network-interface/*");
    asked.push(owned(Request::new("ec2:RunInstances", interfaces.clone()), &data.network_interface_tags));
    if !data.network_interface_tags.is_empty() {
        asked.push(
            owned(Request::new("ec2:CreateTags", interfaces), &data.network_interface_tags)
                .with(CREATE_ACTION, ["RunInstances"]),
        );
    }
    if !data.spot_request_tags.is_empty() {
        let requests = arn("ec2", "spot-instances-request/*");
        asked.push(owned(Request::new("ec2:RunInstances", requests.clone()), &data.spot_request_tags));
        asked.push(
            owned(Request::new("ec2:CreateTags", requests), &data.spot_request_tags)
                .with(CREATE_ACTION, ["RunInstances"]),
        );
    }
    let group = |id: &dyn std::fmt::Display| arn("ec2", &format!("security-group/{id}"));
    let groups = data.security_groups.iter();
    // EC2 may check them for the fleet as well.
    asked.extend(groups.flat_map(|id| {
        ["ec2:CreateFleet", "ec2:RunInstances"].map(|action| in_network(Request::new(action, group(id))))
    }));
    let snapshots = data.block_devices.iter().filter_map(|device| device.snapshot_id.as_ref());
    let snapshot = |id: &String| {
        Request::new("ec2:RunInstances", public_arn(&format!("snapshot/{id}"))).with(OWNER, [ACCOUNT])
    };
    asked.extend(snapshots.map(snapshot));
    if let Some(ReservationPreference::Only(id)) = &data.reservations {
        let reservation = arn("ec2", &format!("capacity-reservation/{id}"));
        asked.extend(
            ["ec2:CreateFleet", "ec2:RunInstances"].map(|action| Request::new(action, reservation.clone())),
        );
    }
    if let Some(placement) = &data.placement {
        // By its name, which the template doesn't say.
        let group = arn("ec2", &format!("placement-group/{}", placement.group));
        asked.extend(
            ["ec2:CreateFleet", "ec2:RunInstances"].map(|action| Request::new(action, group.clone())),
        );
    }
    // The scenarios' profiles are named like their roles, as the cluster's stack makes them.
    let role = data.instance_profile.as_ref().map(|profile| match profile {
        InstanceProfileSpec::Name(name) | InstanceProfileSpec::Arn(name) => {
            name.rsplit('/').next().unwrap_or(name)
        }
    });
    asked.extend(role.map(|role| {
        Request::new("iam:PassRole", format!("arn:aws:iam::{ACCOUNT}:role/{role}"))
            .with(PASSED_TO, ["ec2.amazonaws.com"])
    }));
    asked
}
