//! The metrics that AWS publishes, copied from its reference, and whether an alarm looks at one of them.
//!
//! Decides about names, dimensions, statistics and periods. Doesn't decide when an alarm rings.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::stack::{EvaluatedStack, rule_name};

/// The kind of resource of a metric.
#[derive(Clone, Copy)]
enum MetricOf {
    /// A queue: `QueueName` alone.
    Queue,
    /// A rule: `RuleName`, and on a bus that isn't the default one `EventBusName` as well.
    Rule,
    /// A function: `FunctionName` alone, for all of its versions.
    Function,
}

/// What the values of a metric are.
#[derive(Clone, Copy)]
enum Measures {
    /// The level at a moment: values of a period must not be added.
    Level,
    /// A number of things in a period: only a sum counts them, because a sample isn't a thing.
    Count,
}

/// A metric of AWS's reference.
struct PublishedMetric {
    namespace: &'static str,
    name: &'static str,
    of: MetricOf,
    measures: Measures,
}

const fn queue(name: &'static str, measures: Measures) -> PublishedMetric {
    PublishedMetric { namespace: "AWS/SQS", name, of: MetricOf::Queue, measures }
}

/// The metrics of alarms, read 2026-11. Sources:
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html> (queues
/// have the dimension `QueueName` alone), <https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-monitoring.html> (with
/// both dimensions a rule is one of a bus of its own),
/// <https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html> (throttled requests aren't invocations).
const PUBLISHED: [PublishedMetric; 5] = [
    queue("ApproximateNumberOfMessagesVisible", Measures::Level),
    queue("ApproximateAgeOfOldestMessage", Measures::Level),
    queue("NumberOfMessagesDeleted", Measures::Count),
    PublishedMetric {
        namespace: "AWS/Events",
        name: "TriggeredRules",
        of: MetricOf::Rule,
        measures: Measures::Count,
    },
    PublishedMetric {
        namespace: "AWS/Lambda",
        name: "Invocations",
        of: MetricOf::Function,
        measures: Measures::Count,
    },
];

/// The services publish every minute; a shorter period has no data most of the time.
const RESOLUTION_SECONDS: u64 = 60;
/// "For alarms with a period of less than one hour, the total evaluation period can't be longer than one day", otherwise
/// seven days.
/// Source: <https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html>, read 2026-11.
const HOUR_SECONDS: u64 = 3_600;
const DAY_SECONDS: u64 = 86_400;

/// A metric's dimensions, by name.
type MetricDimensions = BTreeMap<String, String>;

/// The dimensions under which AWS publishes a metric of a stack's resources.
fn published(stack: &EvaluatedStack, of: MetricOf) -> BTreeSet<MetricDimensions> {
    let dimension = |name: &str, value: String| (name.to_owned(), value);
    match of {
        MetricOf::Queue => {
            let queues = stack.of_kind("AWS::SQS::Queue").into_iter();
            let named = queues.map(|(_, queue)| dimension("QueueName", stack.text(&queue["QueueName"])));
            named.map(|name| MetricDimensions::from([name])).collect()
        }
        MetricOf::Rule => {
            let rules = stack.of_kind("AWS::Events::Rule").into_iter();
            let of_rule = |(name, rule): (&str, &Value)| {
                let bus = stack.bus(rule).map(|bus| dimension("EventBusName", bus));
                bus.into_iter().chain([dimension("RuleName", rule_name(name))]).collect()
            };
            rules.map(of_rule).collect()
        }
        MetricOf::Function => {
            let functions = stack.of_kind("AWS::Serverless::Function").into_iter();
            let named = functions
                .map(|(_, function)| dimension("FunctionName", stack.text(&function["FunctionName"])));
            named.map(|name| MetricDimensions::from([name])).collect()
        }
    }
}

/// What is wrong with the metric of an alarm, which is of its own stack's resources.
pub(crate) fn problems(stack: &EvaluatedStack, alarm: &Value) -> Vec<String> {
    let (namespace, metric) = (alarm["Namespace"].as_str(), alarm["MetricName"].as_str());
    let found = PUBLISHED.iter().find(|one| Some(one.namespace) == namespace && Some(one.name) == metric);
    let Some(found) = found else { return vec![format!("is {namespace:?} {metric:?} published?")] };
    let mut problems = Vec::new();
    let dimensions = alarm["Dimensions"].as_array().unwrap().iter();
    let looked_at: MetricDimensions =
        dimensions.map(|of| (of["Name"].as_str().unwrap().to_owned(), stack.text(&of["Value"]))).collect();
    if !published(stack, found.of).contains(&looked_at) {
        problems.push(format!("nothing is published for {looked_at:?}"));
    }
    let statistic = match found.measures {
        Measures::Level => "Maximum",
        Measures::Count => "Sum",
    };
    if alarm["Statistic"] != statistic {
        problems.push(format!("`{}` needs the statistic {statistic}: {}", found.name, alarm["Statistic"]));
    }
    problems.extend(period_problem(alarm));
    problems
}

fn period_problem(alarm: &Value) -> Option<String> {
    let (period, periods) = (alarm["Period"].as_u64()?, alarm["EvaluationPeriods"].as_u64()?);
    let most = if period < HOUR_SECONDS { DAY_SECONDS } else { 7 * DAY_SECONDS };
    let fits = period > 0 && period.is_multiple_of(RESOLUTION_SECONDS) && period * periods <= most;
    (!fits).then(|| format!("CloudWatch takes no {periods} periods of {period} s of this metric"))
}
