//! What CloudWatch bills of the stacks: the metrics of alarms, and how functions' logs are kept.
//!
//! Decides nothing of its own: what has no price in the bill is an error. An alarm under a condition counts.

use serde_json::Value;

use super::stack::{WiringError, wrong};
use crate::yaml;

/// How the functions' logs are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    /// The class of the log groups.
    pub class: LogClass,
    /// For how many days.
    pub kept_days: u64,
    /// Lambda's own lines.
    pub platform: PlatformLines,
}

/// A log group's class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogClass {
    /// `STANDARD`.
    Standard,
    /// `INFREQUENT_ACCESS`.
    InfrequentAccess,
}

/// Whether Lambda writes lines of its own about an invocation that succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlatformLines {
    /// `SystemLogLevel` is `INFO`, as where it isn't set.
    Written,
    /// `SystemLogLevel` is `WARN`.
    Unwritten,
}

/// The metrics of a stack's alarms.
///
/// # Errors
/// [`WiringError`] for an alarm with another price than an alarm of standard resolution.
pub fn alarm_metrics(file: &str, text: &str) -> Result<u64, WiringError> {
    let document = parse(file, text)?;
    if let Some((name, _)) = of_kind(&document, "AWS::CloudWatch::CompositeAlarm").next() {
        return Err(wrong(name, "Type", "has a price that isn't known here"));
    }
    of_kind(&document, "AWS::CloudWatch::Alarm").map(|(name, alarm)| metrics_of(name, alarm)).sum()
}

/// How the logs of the region's stack are kept.
///
/// # Errors
/// [`WiringError`] for settings that differ between functions, or aren't known here.
pub fn log_settings(file: &str, text: &str) -> Result<LogSettings, WiringError> {
    let document = parse(file, text)?;
    let groups = || of_kind(&document, "AWS::Logs::LogGroup");
    let functions = of_kind(&document, "AWS::Serverless::Function");
    Ok(LogSettings {
        class: the_same(file, "LogGroupClass", groups().map(|(name, group)| class(name, group)))?,
        kept_days: the_same(
            file,
            "RetentionInDays",
            groups().map(|(name, group)| kept_days(&document, name, group)),
        )?,
        platform: the_same(
            file,
            "LoggingConfig.SystemLogLevel",
            functions.map(|(name, function)| platform_lines(&document, name, function)),
        )?,
    })
}

fn parse(file: &str, text: &str) -> Result<Value, WiringError> {
    yaml::parse(text).map_err(|problem| wrong(file, "document", problem))
}

/// Names and properties of the resources of a type.
fn of_kind<'a>(document: &'a Value, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let resources = document.get("Resources").and_then(Value::as_object);
    resources.into_iter().flatten().filter_map(move |(name, resource)| {
        let of_it = resource.get("Type").and_then(Value::as_str) == Some(kind);
        of_it.then(|| (name.as_str(), resource.get("Properties").unwrap_or(&Value::Null)))
    })
}

/// An alarm of an expression is billed for each metric that the expression reads.
fn metrics_of(name: &str, alarm: &Value) -> Result<u64, WiringError> {
    let Some(metrics) = alarm.get("Metrics").and_then(Value::as_array) else {
        return is_standard(name, alarm).map(|()| 1);
    };
    metrics
        .iter()
        .filter_map(|metric| metric.get("MetricStat"))
        .map(|of| is_standard(name, of).map(|()| 1))
        .sum()
}

/// A period of seconds has another price.
fn is_standard(name: &str, metric: &Value) -> Result<(), WiringError> {
    let period = metric.get("Period").and_then(Value::as_u64);
    if period.is_some_and(|seconds| seconds > 0 && seconds.is_multiple_of(60)) {
        return Ok(());
    }
    Err(wrong(name, "Period", "isn't minutes, which alone have the price of the standard resolution"))
}

fn class(name: &str, group: &Value) -> Result<LogClass, WiringError> {
    match group.get("LogGroupClass").map(Value::as_str) {
        None | Some(Some("STANDARD")) => Ok(LogClass::Standard),
        Some(Some("INFREQUENT_ACCESS")) => Ok(LogClass::InfrequentAccess),
        Some(_) => Err(wrong(name, "LogGroupClass", "has a price that isn't known here")),
    }
}

/// A number, or a parameter's default.
fn kept_days(document: &Value, name: &str, group: &Value) -> Result<u64, WiringError> {
    let days = group.get("RetentionInDays");
    let parameter = days.and_then(|days| days.get("Ref")).and_then(Value::as_str);
    let days = match parameter {
        Some(parameter) => document.pointer(&format!("/Parameters/{parameter}/Default")),
        None => days,
    };
    days.and_then(Value::as_u64).ok_or_else(|| wrong(name, "RetentionInDays", "isn't a number of days"))
}

/// By the function's own level, or that of all functions.
fn platform_lines(document: &Value, name: &str, function: &Value) -> Result<PlatformLines, WiringError> {
    const LEVEL: &str = "/LoggingConfig/SystemLogLevel";
    let of_all = || document.pointer("/Globals/Function").and_then(|all| all.pointer(LEVEL));
    match function.pointer(LEVEL).or_else(of_all).map(Value::as_str) {
        None | Some(Some("INFO")) => Ok(PlatformLines::Written),
        Some(Some("WARN")) => Ok(PlatformLines::Unwritten),
        Some(_) => {
            Err(wrong(name, "LoggingConfig.SystemLogLevel", "has lines whose bytes aren't known here"))
        }
    }
}

fn the_same<T: PartialEq>(
    file: &str,
    property: &str,
    mut all: impl Iterator<Item = Result<T, WiringError>>,
) -> Result<T, WiringError> {
    let first = all.next().ok_or_else(|| wrong(file, property, "is nowhere"))??;
    for next in all {
        if next? != first {
            return Err(wrong(file, property, "differs between functions"));
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarms(resources: &str) -> Option<u64> {
        alarm_metrics("stack.yaml", &format!("Resources:\n{resources}")).ok()
    }

    #[test]
    fn each_metric_of_an_alarm_is_billed() {
        let check = |properties: &str, expected: Option<u64>| {
            let alarm = format!("  A: {{Type: AWS::CloudWatch::Alarm, Properties: {properties}}}\n");
            assert_eq!(alarms(&alarm), expected, "{properties}");
        };
        check("{Period: 300}", Some(1));
        check(
            "{Metrics: [{MetricStat: {Period: 60}}, {MetricStat: {Period: 60}}, {Expression: a / b}]}",
            Some(2),
        );
        check("{Period: 10}", None);
        check("{Metrics: [{MetricStat: {Period: 10}}]}", None);
        assert_eq!(alarms("  A: {Type: AWS::CloudWatch::CompositeAlarm}\n"), None);
        assert_eq!(alarms("  A: {Type: AWS::SQS::Queue}\n"), Some(0));
    }

    #[test]
    fn logs_are_kept_as_all_functions_say() {
        let check = |level: &str, classes: [&str; 2], expected: Option<(LogClass, PlatformLines)>| {
            let text = format!(
                "Parameters: {{Days: {{Default: 14}}}}\n\
                 Globals: {{Function: {{LoggingConfig: {{LogFormat: JSON}}}}}}\n\
                 Resources:\n  F: {{Type: AWS::Serverless::Function, Properties: {{LoggingConfig: {level}}}}}\n  \
                 A: {{Type: AWS::Logs::LogGroup, Properties: {{RetentionInDays: !Ref Days{}}}}}\n  \
                 B: {{Type: AWS::Logs::LogGroup, Properties: {{RetentionInDays: 14{}}}}}\n",
                classes[0], classes[1]
            );
            let found = log_settings("stack.yaml", &text);
            let expected = expected.map(|(class, platform)| LogSettings { class, kept_days: 14, platform });
            assert_eq!(found.as_ref().ok(), expected.as_ref(), "{found:?}");
        };
        let seldom = ", LogGroupClass: INFREQUENT_ACCESS";
        check("{LogFormat: JSON}", ["", ""], Some((LogClass::Standard, PlatformLines::Written)));
        check(
            "{SystemLogLevel: WARN}",
            [seldom, seldom],
            Some((LogClass::InfrequentAccess, PlatformLines::Unwritten)),
        );
        check("{SystemLogLevel: DEBUG}", ["", ""], None);
        check("{LogFormat: JSON}", ["", seldom], None);
    }
}
