//! Requests in a role's name outside the recorded code: by Lambda, by Scheduler, by the agent's polling, and those
//! that no scenario reaches.
//!
//! Decides the list, each with its reason.

use serde_json::Value;
use tenon_domain::tags;
use tenon_ec2::port::{BlockDeviceMapping, CreateLaunchTemplate, LaunchTemplateData, Tags};
use tenon_region::asked::AskedCall;
use tenon_region::gated_ec2::BY_LAUNCH_ROLE;

use crate::calls;
use crate::request::{INSTALLATION, Request, SOURCE, arn};
use crate::stack::{Account, Stack};

/// The requests of a role beside the recorded ones.
///
/// # Errors An expression of the stack that can't be evaluated.
pub fn requests(role: &str, stacks: &[Stack]) -> Result<Vec<Request>, String> {
    if role.starts_with("scheduler") {
        return scheduled(role, stacks);
    }
    if let Some(cluster) = role.strip_prefix("agent of ") {
        // Rung through a queue, which the recorded agent has in memory.
        let own = format!("agent-{cluster}");
        return Ok(["sqs:ReceiveMessage", "sqs:DeleteMessage"]
            .map(|action| calls::queue(action, &own))
            .to_vec());
    }
    if role.starts_with("launch of ") {
        return unplayed();
    }
    // Lambda writes a function's log, and keeps its failed invocations, in the function's role.
    let log = arn("logs", &format!("log-group:/aws/lambda/{INSTALLATION}-{role}:log-stream:one"));
    let mut asked: Vec<Request> = ["logs:CreateLogStream", "logs:PutLogEvents"]
        .map(|action| Request::new(action, log.clone()))
        .to_vec();
    let function = function(role, stacks)?;
    let kept = function.pointer("/EventInvokeConfig/DestinationConfig/OnFailure/Destination");
    asked.extend(kept.and_then(Value::as_str).map(|queue| Request::new("sqs:SendMessage", queue)));
    if function.get("Events").is_some() {
        // Lambda polls a function's queue as the function.
        let actions = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"];
        asked.extend(actions.map(|action| calls::queue(action, role)));
    }
    if role == "provisioner" {
        asked.extend(calls::requests(AskedCall::Other("DecodeAuthorizationMessage"))?);
    }
    if role == "node-classes" {
        asked.extend(calls::requests(AskedCall::Other("DescribeSnapshots"))?);
    }
    Ok(asked)
}

/// The function with this role: its properties.
fn function(role: &str, stacks: &[Stack]) -> Result<Value, String> {
    let name = format!("{INSTALLATION}-{role}");
    for stack in stacks {
        for (_, properties) in stack.of_kind("AWS::Serverless::Function")? {
            if properties.get("FunctionName").and_then(Value::as_str) == Some(name.as_str()) {
                return Ok(properties);
            }
        }
    }
    Err(format!("no function has the role `{role}`"))
}

/// A class with a volume from a snapshot, which no scenario has.
fn unplayed() -> Result<Vec<Request>, String> {
    let device =
        BlockDeviceMapping { snapshot_id: Some("snap-1".to_owned()), ..BlockDeviceMapping::default() };
    let ours = [(tags::INSTALLATION, INSTALLATION), (tags::CLUSTER, "demo")];
    let ours: Tags = ours.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let data = LaunchTemplateData {
        block_devices: vec![device],
        network_interface_tags: ours.clone(),
        ..LaunchTemplateData::default()
    };
    let template = CreateLaunchTemplate { name: "tenon-tenon-1".to_owned(), data, tags: ours };
    calls::requests(AskedCall::CreateLaunchTemplate(&template))
}

/// The requests of the role's schedules, and their dead letters.
fn scheduled(role: &str, stacks: &[Stack]) -> Result<Vec<Request>, String> {
    let mut asked = Vec::new();
    for stack in stacks {
        for (_, schedule) in stack.of_kind("AWS::Scheduler::Schedule")? {
            let text = |pointer: &str| schedule.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let input: Value =
                serde_json::from_str(text("/Target/Input")).map_err(|error| error.to_string())?;
            let of = match input.get("cluster").and_then(Value::as_str) {
                Some(cluster) => format!("scheduler of {cluster}"),
                None => "scheduler".to_owned(),
            };
            if of != role {
                continue;
            }
            let target = text("/Target/Arn");
            asked.push(match text("/Target/EventBridgeParameters/Source") {
                "" if target.starts_with("arn:aws:lambda:") => Request::new("lambda:InvokeFunction", target),
                "" => Request::new("sqs:SendMessage", target),
                source => Request::new("events:PutEvents", target).with(SOURCE, [source]),
            });
            let dead_letters = text("/Target/DeadLetterConfig/Arn");
            if !dead_letters.is_empty() {
                asked.push(Request::new("sqs:SendMessage", dead_letters));
            }
        }
    }
    Ok(asked)
}

/// What rules send to queues, those of their dead letters among them.
///
/// # Errors An expression of the stack that can't be evaluated.
pub fn delivered(stack: &Stack) -> Result<Vec<Request>, String> {
    let mut asked = Vec::new();
    for (name, rule) in stack.of_kind("AWS::Events::Rule")? {
        let of = stack.attribute(&format!("{name}.Arn"))?;
        for target in crate::stack::list(rule.get("Targets")) {
            let arns = [target.pointer("/Arn"), target.pointer("/DeadLetterConfig/Arn")];
            // A function has a policy of its own.
            let arns =
                arns.into_iter().flatten().filter_map(Value::as_str).filter(|arn| arn.contains(":sqs:"));
            let sent = |arn| Request::new("sqs:SendMessage", arn).with("aws:SourceArn", [of.clone()]);
            asked.extend(arns.map(sent));
        }
    }
    Ok(asked)
}

/// The roles whose calls are recorded under another name.
#[must_use]
pub fn recorded_as(role: &str, account: &Account) -> Option<&'static str> {
    let tasks = [
        "catalog",
        "images",
        "node-classes",
        "provisioner",
        "lifecycle",
        "interruption",
        "disruption",
        "registry",
    ];
    let found = tasks.into_iter().find(|task| *task == role);
    // The scenarios' cluster; another cluster's agent and launch role are judged by the same requests.
    let of_cluster = match role {
        "agent of demo" => Some("agent"),
        "launch of demo" => Some(BY_LAUNCH_ROLE),
        _ => None,
    };
    found.or(of_cluster.filter(|_| account.roles.contains_key(role)))
}
