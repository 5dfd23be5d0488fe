//! The stacks' resources, read.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::Value;
use tenon_domain::wake::FunctionName;

use super::pattern::EventPattern;
use super::{BusName, QueueKind, QueueSpec, RETRY_AFTER, Rule, Schedule, ScheduleTarget, Wiring};
use crate::yaml;

/// A part of a stack that can't be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource}: `{property}` {problem}")]
pub struct WiringError {
    /// The resource's logical id, or the file.
    pub resource: String,
    /// The property.
    pub property: String,
    /// The problem.
    pub problem: String,
}

pub(super) fn wrong(resource: &str, property: &str, problem: impl Into<String>) -> WiringError {
    WiringError { resource: resource.to_owned(), property: property.to_owned(), problem: problem.into() }
}

/// Reads the region's stack.
///
/// # Errors [`WiringError`] for a part that can't be simulated.
pub fn read_region(text: &str) -> Result<Wiring, WiringError> {
    let stack = Stack::parse("template.yaml", text, &[("Installation", "tenon")])?;
    let mut queues = FunctionQueues::new();
    // CloudFormation invokes `registry`; nothing in the simulation does.
    let woken = stack
        .of_kind("AWS::Serverless::Function")
        .filter(|(name, properties)| properties.get("Events").is_some() || named(name).is_some());
    for (name, properties) in woken {
        let (function, spec) = read_function(&stack, name, properties)?;
        queues.insert(function, spec);
    }
    for function in FunctionName::ALL {
        if !queues.contains_key(&function) {
            return Err(wrong("template.yaml", "Resources", format!("has no function `{function}`")));
        }
    }
    let rules = stack
        .of_kind("AWS::Events::Rule")
        .map(|(name, properties)| read_rule(name, properties, &queues))
        .collect::<Result<_, _>>()?;
    let schedules = read_schedules(&stack, &queues)?;
    Ok(Wiring { queues, rules, schedules })
}

/// Reads a cluster's stack, deployed with these parameters: its schedules.
///
/// # Errors [`WiringError`] for a part that can't be simulated.
pub fn read_cluster(text: &str, parameters: &[(&str, &str)]) -> Result<Vec<Schedule>, WiringError> {
    // A cluster's schedules put events on the bus.
    read_schedules(&Stack::parse("infra/cluster.yaml", text, parameters)?, &FunctionQueues::new())
}

/// Each function's queue.
type FunctionQueues = BTreeMap<FunctionName, QueueSpec>;

struct Stack {
    /// Logical id, type, properties; without resources whose condition is false.
    resources: Vec<(String, String, Value)>,
    parameters: BTreeMap<String, String>,
}

impl Stack {
    fn parse(file: &str, text: &str, parameters: &[(&str, &str)]) -> Result<Self, WiringError> {
        let document = yaml::parse(text).map_err(|problem| wrong(file, "document", problem))?;
        let resources = document
            .get("Resources")
            .and_then(Value::as_object)
            .ok_or_else(|| wrong(file, "Resources", "is missing"))?;
        let mut made = Vec::new();
        for (name, resource) in resources {
            let kind = resource.get("Type").and_then(Value::as_str).unwrap_or_default().to_owned();
            if is_made(&document, name, resource, parameters)? {
                let properties = resource.get("Properties").cloned().unwrap_or(Value::Null);
                made.push((name.clone(), kind, properties));
            }
        }
        let parameters = parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Ok(Self { resources: made, parameters })
    }

    fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.resources
            .iter()
            .filter(move |(_, k, _)| k == kind)
            .map(|(name, _, value)| (name.as_str(), value))
    }

    fn properties(&self, name: &str) -> Option<&Value> {
        self.resources.iter().find(|(n, _, _)| n == name).map(|(_, _, value)| value)
    }

    /// A string, or a `Fn::Sub` with the stack's parameters.
    fn string(&self, value: &Value) -> Option<String> {
        if let Some(text) = value.as_str() {
            return Some(text.to_owned());
        }
        let mut text = value.get("Fn::Sub")?.as_str()?.to_owned();
        for (name, replacement) in &self.parameters {
            text = text.replace(&format!("${{{name}}}"), replacement);
        }
        Some(text)
    }
}

/// Whether a resource's condition holds; one without is always made.
fn is_made(
    document: &Value,
    name: &str,
    resource: &Value,
    parameters: &[(&str, &str)],
) -> Result<bool, WiringError> {
    let Some(condition) = resource.get("Condition").and_then(Value::as_str) else { return Ok(true) };
    let stated = document.get("Conditions").and_then(|all| all.get(condition));
    stated.and_then(|stated| holds(document, stated, parameters)).ok_or_else(|| {
        wrong(name, "Condition", "isn't `!Equals` of a parameter and a text, or `!Not` or `!And` of such")
    })
}

fn holds(document: &Value, condition: &Value, parameters: &[(&str, &str)]) -> Option<bool> {
    if let Some(negated) = condition.get("Fn::Not") {
        return holds(document, negated.get(0)?, parameters).map(|holds| !holds);
    }
    if let Some(all) = condition.get("Fn::And").and_then(Value::as_array) {
        return all.iter().try_fold(true, |hold, one| Some(holds(document, one, parameters)? && hold));
    }
    let sides = condition.get("Fn::Equals")?;
    let (parameter, text) = (sides.get(0)?.get("Ref")?.as_str()?, sides.get(1)?.as_str()?);
    let given = parameters.iter().find(|(name, _)| *name == parameter).map(|(_, value)| *value);
    let default = || document.get("Parameters")?.get(parameter)?.get("Default")?.as_str();
    Some(given.or_else(default)? == text)
}

/// The function of a queue's ARN: `!GetAtt LifecycleQueue.Arn`.
fn queue_of(arn: &Value) -> Option<FunctionName> {
    arn.get("Fn::GetAtt")?.as_str()?.strip_suffix("Queue.Arn").and_then(function_of)
}

/// The function of a target: its queue, or itself if it has none.
fn target_of(
    resource: &str,
    property: &str,
    arn: Option<&Value>,
    queues: &FunctionQueues,
) -> Result<FunctionName, WiringError> {
    let attribute = arn.and_then(|arn| arn.get("Fn::GetAtt")).and_then(Value::as_str).unwrap_or_default();
    let invoked = attribute.strip_suffix(".Arn").and_then(named);
    let (function, kind) = match arn.and_then(queue_of) {
        Some(function) => (Some(function), QueueKind::Polled),
        None => (invoked, QueueKind::Invocations),
    };
    function.filter(|function| queues.get(function).is_some_and(|queue| queue.kind == kind)).ok_or_else(
        || wrong(resource, property, "isn't `!GetAtt` of a function's queue, or of a function without one"),
    )
}

/// The function of a logical id: `ImagesFunction`.
fn named(logical: &str) -> Option<FunctionName> {
    logical.strip_suffix("Function").and_then(function_of)
}

/// `NodeClasses` is `node-classes`.
fn function_of(logical: &str) -> Option<FunctionName> {
    let mut kebab = String::new();
    for c in logical.chars() {
        if c.is_ascii_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push(c.to_ascii_lowercase());
    }
    FunctionName::parse(&kebab)
}

fn seconds(resource: &str, property: &str, value: Option<&Value>) -> Result<SignedDuration, WiringError> {
    value
        .and_then(Value::as_i64)
        .map(SignedDuration::from_secs)
        .ok_or_else(|| wrong(resource, property, "isn't a number of seconds"))
}

fn read_function(
    stack: &Stack,
    name: &str,
    properties: &Value,
) -> Result<(FunctionName, QueueSpec), WiringError> {
    let function = named(name)
        .ok_or_else(|| wrong(name, "logical id", "isn't `<function>Function` of a function here"))?;
    let spec = match properties.get("Events") {
        Some(_) => read_polled(stack, name, function, properties)?,
        None => read_invoked(name, function, properties)?,
    };
    Ok((function, spec))
}

/// The queue of SQS that is a function's event source.
fn read_polled(
    stack: &Stack,
    name: &str,
    function: FunctionName,
    properties: &Value,
) -> Result<QueueSpec, WiringError> {
    let source = properties
        .pointer("/Events/Queue/Properties")
        .ok_or_else(|| wrong(name, "Events.Queue", "is missing"))?;
    if source.get("Queue").and_then(queue_of) != Some(function) {
        return Err(wrong(name, "Events.Queue.Queue", "isn't the function's queue"));
    }
    let queue_name = format!("{}Queue", name.trim_end_matches("Function"));
    let queue =
        stack.properties(&queue_name).ok_or_else(|| wrong(&queue_name, "Resources", "has no such queue"))?;
    let max_receive_count = queue
        .pointer("/RedrivePolicy/maxReceiveCount")
        .and_then(Value::as_u64)
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| wrong(&queue_name, "RedrivePolicy.maxReceiveCount", "isn't a number"))?;
    let number = |pointer: &str, field: &'static str| {
        let number = source.pointer(pointer).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        number.ok_or_else(|| wrong(name, field, "isn't a number"))
    };
    let batch_size = number("/BatchSize", "Events.Queue.BatchSize")?;
    let at_once = match source.get("ScalingConfig") {
        None => usize::MAX,
        Some(_) => number("/ScalingConfig/MaximumConcurrency", "Events.Queue.ScalingConfig")?,
    };
    let batch_window = match source.get("MaximumBatchingWindowInSeconds") {
        None => SignedDuration::ZERO,
        window => seconds(name, "Events.Queue.MaximumBatchingWindowInSeconds", window)?,
    };
    let visibility_timeout = seconds(&queue_name, "VisibilityTimeout", queue.get("VisibilityTimeout"))?;
    let memory_mb = memory_mb(name, properties)?;
    Ok(QueueSpec {
        function,
        kind: QueueKind::Polled,
        visibility_timeout,
        max_receive_count,
        batch_size,
        batch_window,
        at_once,
        memory_mb,
    })
}

/// Lambda's own queue of a function's asynchronous invocations.
fn read_invoked(name: &str, function: FunctionName, properties: &Value) -> Result<QueueSpec, WiringError> {
    let settings = properties.get("EventInvokeConfig").unwrap_or(&Value::Null);
    let retries = settings
        .get("MaximumRetryAttempts")
        .and_then(Value::as_u64)
        .and_then(|retries| u32::try_from(retries).ok())
        .ok_or_else(|| wrong(name, "EventInvokeConfig.MaximumRetryAttempts", "isn't a number"))?;
    let waits = usize::try_from(retries).ok().and_then(|retries| RETRY_AFTER.get(..retries));
    let waits = waits.ok_or_else(|| {
        wrong(name, "EventInvokeConfig.MaximumRetryAttempts", "is more than Lambda retries")
    })?;
    let timeout = seconds(name, "Timeout", properties.get("Timeout"))?;
    let age = "MaximumEventAgeInSeconds";
    let event_age = seconds(name, age, settings.get(age))?;
    let last = waits.iter().fold(timeout, |last, wait| last.saturating_add(*wait).saturating_add(timeout));
    if event_age < last {
        return Err(wrong(name, age, "drops an event before its last retry, which isn't simulated"));
    }
    let at_once = match properties.get("ReservedConcurrentExecutions") {
        None => usize::MAX,
        Some(reserved) => reserved
            .as_u64()
            .and_then(|reserved| usize::try_from(reserved).ok())
            .ok_or_else(|| wrong(name, "ReservedConcurrentExecutions", "isn't a number"))?,
    };
    Ok(QueueSpec {
        function,
        kind: QueueKind::Invocations,
        visibility_timeout: timeout,
        max_receive_count: retries.saturating_add(1),
        batch_size: 1,
        batch_window: SignedDuration::ZERO,
        at_once,
        memory_mb: memory_mb(name, properties)?,
    })
}

fn memory_mb(name: &str, properties: &Value) -> Result<u64, WiringError> {
    let memory = properties.get("MemorySize").and_then(Value::as_u64);
    memory.ok_or_else(|| wrong(name, "MemorySize", "isn't a number"))
}

fn read_rule(name: &str, properties: &Value, queues: &FunctionQueues) -> Result<Rule, WiringError> {
    let bus = match properties.get("EventBusName") {
        None => BusName::Default,
        Some(bus) if bus.get("Ref").and_then(Value::as_str) == Some("Bus") => BusName::Tenon,
        Some(_) => return Err(wrong(name, "EventBusName", "isn't `!Ref Bus`")),
    };
    let pattern = properties.get("EventPattern").ok_or_else(|| wrong(name, "EventPattern", "is missing"))?;
    let pattern =
        EventPattern::parse(pattern).map_err(|error| wrong(name, "EventPattern", error.to_string()))?;
    // A rule without targets counts events for an alarm.
    let no_targets = Value::Array(Vec::new());
    let targets = properties
        .get("Targets")
        .unwrap_or(&no_targets)
        .as_array()
        .ok_or_else(|| wrong(name, "Targets", "isn't a list"))?
        .iter()
        .map(|target| target_of(name, "Targets[].Arn", target.get("Arn"), queues))
        .collect::<Result<_, _>>()?;
    Ok(Rule { name: name.to_owned(), bus, pattern, targets })
}

fn read_schedules(stack: &Stack, queues: &FunctionQueues) -> Result<Vec<Schedule>, WiringError> {
    stack.of_kind("AWS::Scheduler::Schedule").map(|(name, p)| read_schedule(stack, name, p, queues)).collect()
}

fn read_schedule(
    stack: &Stack,
    name: &str,
    properties: &Value,
    queues: &FunctionQueues,
) -> Result<Schedule, WiringError> {
    let expression = properties.get("ScheduleExpression").and_then(Value::as_str).unwrap_or_default();
    let every = parse_rate(expression)
        .ok_or_else(|| wrong(name, "ScheduleExpression", "isn't `rate(<n> minutes|hours|days)`"))?;
    let target = properties.get("Target").ok_or_else(|| wrong(name, "Target", "is missing"))?;
    let input = target
        .get("Input")
        .and_then(|input| stack.string(input))
        .ok_or_else(|| wrong(name, "Target.Input", "isn't a string"))?;
    let parameter =
        |name: &str| target.pointer(&format!("/EventBridgeParameters/{name}")).and_then(Value::as_str);
    let target = match (parameter("Source"), parameter("DetailType")) {
        (Some(source), Some(detail_type)) => ScheduleTarget::Event {
            source: source.to_owned(),
            detail_type: detail_type.to_owned(),
            detail: serde_json::from_str(&input).map_err(|e| wrong(name, "Target.Input", e.to_string()))?,
        },
        _ => ScheduleTarget::Function {
            function: target_of(name, "Target.Arn", target.get("Arn"), queues)?,
            body: input,
        },
    };
    Ok(Schedule { name: name.to_owned(), every, target })
}

/// `rate(10 minutes)`: the one form of schedule that the stacks use.
fn parse_rate(expression: &str) -> Option<SignedDuration> {
    let (number, unit) = expression.strip_prefix("rate(")?.strip_suffix(')')?.split_once(' ')?;
    let number: i64 = number.parse().ok().filter(|n| *n > 0)?;
    match unit.trim_end_matches('s') {
        "minute" => Some(SignedDuration::from_mins(number)),
        "hour" => Some(SignedDuration::from_hours(number)),
        "day" => Some(SignedDuration::from_hours(number.checked_mul(24)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::cluster_schedules;
    use super::*;
    use serde_json::json;
    use tenon_domain::registry::FeatureGate;

    fn routed(bus: BusName, event: &Value) -> Vec<&'static str> {
        let wiring = Wiring::built_in().unwrap();
        wiring.route(bus, event).into_iter().map(FunctionName::as_str).collect()
    }

    #[test]
    fn every_function_has_its_queue_or_is_invoked() {
        let wiring = Wiring::built_in().unwrap();
        assert_eq!(wiring.queues.len(), FunctionName::ALL.len());
        let lifecycle = &wiring.queues[&FunctionName::Lifecycle];
        assert_eq!(lifecycle.batch_window, SignedDuration::from_secs(1));
        assert_eq!((lifecycle.max_receive_count, lifecycle.at_once), (5, 10));
        assert_eq!(wiring.queues[&FunctionName::Provisioner].batch_window, SignedDuration::ZERO);
        assert_eq!(wiring.queues[&FunctionName::Interruption].batch_window, SignedDuration::ZERO);
        let invoked = wiring.queues.values().filter(|queue| queue.kind == QueueKind::Invocations);
        let invoked: Vec<_> =
            invoked.map(|queue| (queue.function.as_str(), queue.max_receive_count)).collect();
        assert_eq!(invoked, [("catalog", 3), ("images", 3)]);
    }

    #[test]
    fn a_target_is_the_queue_of_a_function_that_has_one_and_the_function_otherwise() {
        let queues = Wiring::built_in().unwrap().queues;
        let check = |arn: &str, expected: Option<FunctionName>| {
            let found = target_of("Rule", "Targets[].Arn", Some(&json!({ "Fn::GetAtt": arn })), &queues);
            assert_eq!(found.ok(), expected, "{arn}");
        };
        check("LifecycleQueue.Arn", Some(FunctionName::Lifecycle));
        check("ImagesFunction.Arn", Some(FunctionName::Images));
        // The function would read the event as its batch's, and another one's queue isn't there.
        check("LifecycleFunction.Arn", None);
        check("ImagesQueue.Arn", None);
        check("RegistryFunction.Arn", None);
    }

    #[test]
    fn an_invocation_that_lambda_drops_between_its_retries_is_an_error() {
        let check = |age: u64, retries: u64, expected: Option<u32>| {
            let properties = json!({"Timeout": 60, "MemorySize": 128, "EventInvokeConfig":
                {"MaximumEventAgeInSeconds": age, "MaximumRetryAttempts": retries}});
            let found = read_invoked("ImagesFunction", FunctionName::Images, &properties);
            assert_eq!(
                found.ok().map(|queue| queue.max_receive_count),
                expected,
                "{age} s, {retries} retries"
            );
        };
        check(360, 2, Some(3));
        check(359, 2, None);
        check(60, 0, Some(1));
        check(3_600, 3, None);
    }

    #[test]
    fn aws_events_reach_the_functions_that_the_design_names() {
        let state = |state: &str| json!({"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "detail": {"state": state}});
        assert_eq!(routed(BusName::Default, &state("terminated")), ["lifecycle"]);
        assert!(routed(BusName::Default, &state("running")).is_empty());
        let image = json!({"source": "aws.ec2", "detail-type": "EC2 AMI State Change", "detail": {"State": "available"}});
        assert_eq!(routed(BusName::Default, &image), ["images"]);
        assert!(routed(BusName::Tenon, &image).is_empty());
        let shift =
            json!({"source": "aws.arc-zonal-shift", "detail-type": "Autoshift In Progress", "detail": {}});
        assert_eq!(routed(BusName::Default, &shift), ["node-classes"]);
    }

    #[test]
    fn an_agent_wakes_only_whom_its_change_concerns() {
        let event = |changed: &[&str], pending: u32| json!({"source": "tenon.agent.prod", "detail-type": "Snapshot Changed", "detail": {"changed": changed, "pending_pods": pending}});
        assert_eq!(routed(BusName::Tenon, &event(&["pods"], 3)), ["provisioner"]);
        assert!(routed(BusName::Tenon, &event(&["pods"], 0)).is_empty());
        assert_eq!(routed(BusName::Tenon, &event(&["nodes"], 0)), ["lifecycle"]);
        let freed = json!({"source": "tenon.agent.prod", "detail-type": "Snapshot Changed",
            "detail": {"changed": ["pods"], "pending_pods": 0, "deletions": 0, "freed": 1}});
        assert_eq!(routed(BusName::Tenon, &freed), ["disruption"]);
    }

    #[test]
    fn what_people_delete_or_edit_wakes_who_acts_on_it() {
        let event = |changed: &str, deletions: u32| {
            json!({"source": "tenon.agent.prod", "detail-type": "Snapshot Changed",
            "detail": {"changed": [changed], "pending_pods": 0, "deletions": deletions}})
        };
        let check = |changed, deletions, expected: &[&str]| {
            let mut woken = routed(BusName::Tenon, &event(changed, deletions));
            woken.sort_unstable();
            woken.dedup();
            assert_eq!(woken, expected, "{changed}, {deletions} deletions");
        };
        check("nodeclaims", 1, &["lifecycle"]);
        check("nodes", 1, &["lifecycle"]);
        check("nodepools", 2, &["disruption", "lifecycle", "provisioner"]);
        // Edited.
        check("nodepools", 0, &["disruption", "lifecycle", "provisioner"]);
        check("nodeclasses", 0, &["node-classes"]);
        // A NodeClaim changes with every step of its claim, and the function that decided it knows.
        check("nodeclaims", 0, &[]);
    }

    #[test]
    fn schedules_have_their_periods() {
        let wiring = Wiring::built_in().unwrap();
        let spot = wiring.schedules.iter().find(|s| s.name == "SpotPricesSchedule").unwrap();
        assert_eq!(spot.every, SignedDuration::from_mins(10));
        let sweeps = cluster_schedules("tenon", "prod", FeatureGate::Disabled).unwrap();
        let ScheduleTarget::Event { detail, .. } = &sweeps[0].target else { panic!("{sweeps:?}") };
        assert_eq!(detail["cluster"], "prod");
    }

    #[test]
    fn only_a_cluster_that_leaves_shifted_zones_alone_looks_for_them_every_minute() {
        let periods = |gate| {
            let sweeps = cluster_schedules("tenon", "prod", gate).unwrap();
            sweeps.iter().map(|sweep| sweep.every.as_secs()).collect::<BTreeSet<_>>()
        };
        assert_eq!(periods(FeatureGate::Disabled), BTreeSet::from([180, 300]));
        assert_eq!(periods(FeatureGate::Enabled), BTreeSet::from([60, 180, 300]));
    }

    #[test]
    fn a_condition_that_cant_be_played_is_named() {
        let stack = "Conditions:\n  Odd: !Or [a, b]\nResources:\n  X: {Type: T, Condition: Odd}\n";
        let error = read_cluster(stack, &[]).unwrap_err();
        assert_eq!((error.resource.as_str(), error.property.as_str()), ("X", "Condition"));
    }

    #[test]
    fn what_cant_be_played_is_an_error() {
        let check = |expression: &str| parse_rate(expression);
        assert_eq!(check("rate(1 minute)"), Some(SignedDuration::from_mins(1)));
        assert_eq!(check("cron(0 1 * * ? *)"), None);
        assert_eq!(check("rate(0 minutes)"), None);
    }
}
