//! The dashboard: each of its metrics is one that AWS publishes for a resource of the stacks, no such resource is left
//! out, and its queries read the functions' logs.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of an integration test fail as tests do"
)]

use std::collections::BTreeSet;

use serde_json::Value;
use tenon_structure_tests::{document, read};

const DASHBOARD: &str = "infra/dashboard.yaml";
const INSTALLATION: &str = "tenon";
const REGION: &str = "us-east-1";
/// The columns of a dashboard. Source: CloudWatch API Reference, "Dashboard body structure and syntax", read 2026-11.
const COLUMNS: u64 = 24;

/// The metrics of the dashboard, with their one dimension. Sources: "Types of metrics for Lambda functions", "Available
/// CloudWatch metrics for Amazon SQS", "DynamoDB metrics and dimensions", and "Monitoring Amazon EventBridge Scheduler
/// with Amazon CloudWatch" in the services' guides, read 2026-11.
const PUBLISHED: [(&str, &str, &str); 17] = [
    ("AWS/DynamoDB", "ConditionalCheckFailedRequests", "TableName"),
    ("AWS/DynamoDB", "ConsumedReadCapacityUnits", "TableName"),
    ("AWS/DynamoDB", "ConsumedWriteCapacityUnits", "TableName"),
    ("AWS/DynamoDB", "ReadThrottleEvents", "TableName"),
    ("AWS/DynamoDB", "TransactionConflict", "TableName"),
    ("AWS/DynamoDB", "WriteThrottleEvents", "TableName"),
    ("AWS/Lambda", "Duration", "FunctionName"),
    ("AWS/Lambda", "Errors", "FunctionName"),
    ("AWS/Lambda", "Invocations", "FunctionName"),
    ("AWS/Lambda", "Throttles", "FunctionName"),
    ("AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName"),
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName"),
    ("AWS/SQS", "NumberOfMessagesDeleted", "QueueName"),
    ("AWS/Scheduler", "InvocationAttemptCount", "ScheduleGroup"),
    ("AWS/Scheduler", "InvocationDroppedCount", "ScheduleGroup"),
    ("AWS/Scheduler", "InvocationsSentToDeadLetterCount", "ScheduleGroup"),
    ("AWS/Scheduler", "TargetErrorCount", "ScheduleGroup"),
];

/// Fields of log lines that queries name, by the source that writes them.
const FIELDS: [(&str, &[&str]); 2] = [
    ("shared/lambda/src/log.rs", &["decision", "error_type", "reason", "subject"]),
    ("shared/lambda/src/ports.rs", &["action", "code"]),
];

/// A property of a stack's resources of a type, with the installation's id.
fn names(stack: &Value, kind: &str, property: &str) -> BTreeSet<String> {
    let resources = stack["Resources"].as_object().unwrap().values();
    let of_kind = resources.filter(|resource| resource["Type"] == kind);
    of_kind.map(|resource| text(&resource["Properties"][property])).collect()
}

fn text(value: &Value) -> String {
    if value["Ref"] == "Installation" {
        return INSTALLATION.to_owned();
    }
    let text = value["Fn::Sub"].as_str().unwrap_or_else(|| panic!("{value} isn't known here"));
    let done = text.replace("${Installation}", INSTALLATION).replace("${TableSuffix}", "");
    let done = done.replace("${AWS::Region}", REGION);
    assert!(!done.contains("${"), "{done}");
    done
}

/// The resources that a metric with this dimension may be of.
fn resources(dimension: &str) -> BTreeSet<String> {
    let stack = document("template.yaml");
    match dimension {
        "FunctionName" => names(&stack, "AWS::Serverless::Function", dimension),
        "QueueName" => names(&stack, "AWS::SQS::Queue", dimension),
        "TableName" => names(&stack, "AWS::DynamoDB::Table", dimension),
        "ScheduleGroup" => BTreeSet::from(["default".to_owned()]),
        other => panic!("`{other}` isn't known here"),
    }
}

fn body() -> Value {
    let body = text(&document(DASHBOARD)["Resources"]["Dashboard"]["Properties"]["DashboardBody"]);
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{DASHBOARD}: {error}"))
}

/// The properties of the widgets of a type.
fn widgets<'a>(body: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = body["widgets"].as_array().unwrap().iter();
    let found: Vec<&Value> = all.filter(|one| one["type"] == kind).map(|one| &one["properties"]).collect();
    assert!(!found.is_empty(), "no widget of type {kind}");
    found
}

/// The metrics that are named, each with its dimension and that one's value.
fn metrics(body: &Value) -> BTreeSet<[String; 4]> {
    let rows = widgets(body, "metric").into_iter().flat_map(|of| of["metrics"].as_array().unwrap());
    let named = rows.filter(|row| row[0].is_string());
    named
        .map(|row| {
            let parts = row.as_array().unwrap().iter().map(|part| part.as_str().unwrap().to_owned());
            let parts: Vec<String> = parts.collect();
            parts.try_into().unwrap_or_else(|parts| panic!("{parts:?}: expected one dimension"))
        })
        .collect()
}

/// Each of them is there, and nothing else: a new function or queue belongs on the dashboard too.
#[test]
fn the_dashboard_shows_what_is_published_for_each_resource() {
    let mut expected = BTreeSet::new();
    for (namespace, name, dimension) in PUBLISHED {
        for resource in resources(dimension) {
            // A dead-letter queue is looked at for what is in it, another one for what goes through it.
            let dead = resource.ends_with("-dead-letters");
            if dimension != "QueueName" || dead == (name == "ApproximateNumberOfMessagesVisible") {
                expected.insert([namespace, name, dimension, resource.as_str()].map(str::to_owned));
            }
        }
    }
    let shown = metrics(&body());
    let missing: Vec<_> = expected.difference(&shown).collect();
    let unknown: Vec<_> = shown.difference(&expected).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "not shown: {missing:#?}; not published: {unknown:#?}");
}

/// CloudFormation makes the names of rules, so they are searched for by their bus.
#[test]
fn the_dashboard_finds_the_rules_of_the_bus() {
    let bus = names(&document("template.yaml"), "AWS::Events::EventBus", "Name");
    let bus = bus.first().unwrap();
    let expected = format!(
        "SEARCH('{{AWS/Events,EventBusName,RuleName}} MetricName=\"TriggeredRules\" EventBusName=\"{bus}\"', 'Sum', 300)"
    );
    let body = body();
    let rows = widgets(&body, "metric").into_iter().flat_map(|of| of["metrics"].as_array().unwrap());
    let searched: Vec<&str> = rows.filter_map(|row| row[0]["expression"].as_str()).collect();
    assert_eq!(searched, [expected]);
}

/// The dashboard's schedules are those of the group that the stacks' schedules are in.
#[test]
fn schedules_have_no_group_of_their_own() {
    for path in ["template.yaml", "infra/cluster.yaml"] {
        let stack = document(path);
        let resources = stack["Resources"].as_object().unwrap().iter();
        for (name, schedule) in resources.filter(|(_, one)| one["Type"] == "AWS::Scheduler::Schedule") {
            assert!(schedule["Properties"]["GroupName"].is_null(), "{path}, {name}");
        }
    }
}

#[test]
fn queries_read_the_logs_of_all_functions() {
    let groups = names(&document("template.yaml"), "AWS::Logs::LogGroup", "LogGroupName");
    let body = body();
    let queries: Vec<&str> =
        widgets(&body, "log").into_iter().map(|of| of["query"].as_str().unwrap()).collect();
    for query in &queries {
        let source = |part: &str| part.strip_prefix("SOURCE '")?.strip_suffix('\'').map(str::to_owned);
        let read: BTreeSet<String> = query.split(" | ").filter_map(source).collect();
        assert_eq!(read, groups, "{query}");
        assert!(query.split(" | ").any(|part| part.starts_with("limit ")), "{query}");
    }
    for (path, fields) in FIELDS {
        let source = read(path);
        for field in fields {
            assert!(source.contains(field), "{path} doesn't write `{field}`");
            assert!(queries.iter().any(|query| query.contains(field)), "no query reads `{field}`");
        }
    }
}

#[test]
fn widgets_are_of_this_region_and_beside_each_other() {
    let body = body();
    let all = body["widgets"].as_array().unwrap();
    for one in all.iter().filter(|one| one["type"] != "text") {
        assert_eq!(one["properties"]["region"], REGION, "{one}");
    }
    let number = |one: &Value, name: &str| one[name].as_u64().unwrap();
    let mut taken = BTreeSet::new();
    for one in all {
        let (x, y) = (number(one, "x"), number(one, "y"));
        assert!(x + number(one, "width") <= COLUMNS, "{one}");
        for column in x..x + number(one, "width") {
            for row in y..y + number(one, "height") {
                assert!(taken.insert((column, row)), "{one} covers another widget");
            }
        }
    }
}

#[test]
fn the_dashboard_takes_the_installation_as_the_regions_stack_does() {
    let parameter = |path: &str| {
        let mut parameter = document(path)["Parameters"]["Installation"].clone();
        assert!(parameter.as_object_mut().unwrap().remove("Description").is_some(), "{path}");
        parameter
    };
    assert_eq!(parameter(DASHBOARD), parameter("template.yaml"));
}
