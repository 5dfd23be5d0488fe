//! The stacks' resources, read.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::Value;
use tenon_domain::wake::FunctionName;

use super::pattern::EventPattern;
use super::stack::{Stack, WiringError, wrong};
use super::{BusName, QueueKind, QueueSpec, RETRY_AFTER, Rule, Schedule, ScheduleTarget, Wiring};

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
mod tests;
