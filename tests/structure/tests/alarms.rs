//! Alarms that can fire: each reads a metric that AWS publishes under exactly its dimensions, of a resource of the
//! stacks, with CloudFormation's names.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of an integration test fail as tests do"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;
use tenon_region::yaml;

const REGION: &str = "arn:aws:events:us-east-1:111122223333";

/// The kind of resource of a metric.
#[derive(Clone, Copy)]
enum Of {
    /// A queue: `QueueName` alone.
    Queue,
    /// A rule: `RuleName`, and on a bus that isn't the default one `EventBusName` as well.
    Rule,
}

/// The metrics of alarms. Sources: "Available CloudWatch metrics for Amazon SQS" (SQS Developer Guide) and
/// "Monitoring Amazon EventBridge" (EventBridge User Guide: "metrics that specify both the `EventBusName` and
/// `RuleName` dimensions refer to a custom event bus"), read 2026-11-23.
const PUBLISHED: [(&str, &str, Of); 4] = [
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible", Of::Queue),
    ("AWS/SQS", "ApproximateAgeOfOldestMessage", Of::Queue),
    ("AWS/SQS", "NumberOfMessagesDeleted", Of::Queue),
    ("AWS/Events", "TriggeredRules", Of::Rule),
];

/// A metric's dimensions, by name.
type Dimensions = BTreeMap<String, String>;

/// A template, worked out as CloudFormation does.
struct Stack {
    document: Value,
    parameters: BTreeMap<&'static str, &'static str>,
}

impl Stack {
    fn read(path: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let text = fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let parameters = BTreeMap::from([("Installation", "tenon"), ("Cluster", "prod")]);
        Self { document: yaml::parse(&text).unwrap(), parameters }
    }

    fn of_kind(&self, kind: &str) -> Vec<(&str, &Value)> {
        let resources = self.document["Resources"].as_object().unwrap().iter();
        let of = resources.filter(|(_, resource)| resource["Type"] == kind);
        of.map(|(name, resource)| (name.as_str(), &resource["Properties"])).collect()
    }

    /// A text with its intrinsic functions evaluated, as far as alarms use them.
    fn text(&self, value: &Value) -> String {
        let Some(fields) = value.as_object() else { return value.as_str().unwrap().to_owned() };
        let (function, argument) = fields.iter().next().unwrap();
        match (function.as_str(), argument) {
            ("Ref", name) => self.reference(name.as_str().unwrap()),
            ("Fn::GetAtt", name) => self.attribute(name.as_str().unwrap()),
            ("Fn::Sub", Value::String(text)) => {
                let given = |text: String, (name, value): (&&str, &&str)| {
                    text.replace(&format!("${{{name}}}"), value)
                };
                let done = self.parameters.iter().fold(text.clone(), given);
                assert!(!done.contains("${"), "{done}");
                done
            }
            ("Fn::Select", Value::Array(of)) => {
                let (separator, whole) = (&of[1]["Fn::Split"][0], &of[1]["Fn::Split"][1]);
                let whole = self.text(whole);
                let parts: Vec<&str> = whole.split(separator.as_str().unwrap()).collect();
                let place = usize::try_from(of[0].as_u64().unwrap()).unwrap();
                let part = parts.get(place).unwrap_or_else(|| panic!("`{whole}` has no part {place}"));
                (*part).to_owned()
            }
            _ => panic!("`{function}` isn't known here"),
        }
    }

    /// The value of `Ref`. A rule's is its name, and `<bus>|<rule>` on a custom bus:
    /// aws-cloudformation/cloudformation-coverage-roadmap#1131, read 2026-11-23.
    fn reference(&self, name: &str) -> String {
        if let Some(given) = self.parameters.get(name) {
            return (*given).to_owned();
        }
        let resource = &self.document["Resources"][name];
        let properties = &resource["Properties"];
        match resource["Type"].as_str() {
            Some("AWS::Events::EventBus") => self.text(&properties["Name"]),
            Some("AWS::Events::Rule") => self
                .bus(properties)
                .map_or_else(|| rule_name(name), |bus| format!("{bus}|{}", rule_name(name))),
            kind => panic!("`Ref` of {name}, of {kind:?}, isn't known here"),
        }
    }

    /// The value of `GetAtt`. ARNs of rules: "Resource types defined by Amazon EventBridge" (Service Authorization
    /// Reference), `rule/[${EventBusName}/]${RuleName}`, read 2026-11-23.
    fn attribute(&self, text: &str) -> String {
        let (name, attribute) = text.split_once('.').unwrap();
        let resource = &self.document["Resources"][name];
        let properties = &resource["Properties"];
        match (resource["Type"].as_str(), attribute) {
            (Some("AWS::SQS::Queue"), "QueueName") => self.text(&properties["QueueName"]),
            (Some("AWS::Events::Rule"), "Arn") => match self.bus(properties) {
                Some(bus) => format!("{REGION}:rule/{bus}/{}", rule_name(name)),
                None => format!("{REGION}:rule/{}", rule_name(name)),
            },
            (kind, _) => panic!("`GetAtt` of {text}, of {kind:?}, isn't known here"),
        }
    }

    fn bus(&self, rule: &Value) -> Option<String> {
        rule.get("EventBusName").map(|name| self.text(name))
    }

    /// The dimensions under which AWS publishes a metric of this stack's resources.
    fn published(&self, of: Of) -> BTreeSet<Dimensions> {
        let dimension = |name: &str, value: String| (name.to_owned(), value);
        match of {
            Of::Queue => {
                let queues = self.of_kind("AWS::SQS::Queue").into_iter();
                let name =
                    |(_, queue): (&str, &Value)| dimension("QueueName", self.text(&queue["QueueName"]));
                queues.map(|queue| Dimensions::from([name(queue)])).collect()
            }
            Of::Rule => {
                let rules = self.of_kind("AWS::Events::Rule").into_iter();
                let of_rule = |(name, rule): (&str, &Value)| {
                    let bus = self.bus(rule).map(|bus| dimension("EventBusName", bus));
                    bus.into_iter().chain([dimension("RuleName", rule_name(name))]).collect()
                };
                rules.map(of_rule).collect()
            }
        }
    }
}

/// The name that CloudFormation makes for a rule without one.
fn rule_name(logical: &str) -> String {
    format!("stack-{logical}-1A2B3C4D5E6F")
}

#[test]
fn every_alarm_looks_at_a_metric_that_is_published() {
    // A cluster's alarms know its queues by their names.
    let region = Stack::read("template.yaml");
    for path in ["template.yaml", "infra/cluster.yaml"] {
        let stack = Stack::read(path);
        let alarms = stack.of_kind("AWS::CloudWatch::Alarm");
        assert!(!alarms.is_empty(), "{path}");
        for (name, alarm) in alarms {
            let metric = (alarm["Namespace"].as_str().unwrap(), alarm["MetricName"].as_str().unwrap());
            let known = PUBLISHED.iter().find(|(namespace, name, _)| (*namespace, *name) == metric);
            let (_, _, of) = known.unwrap_or_else(|| panic!("{path}, {name}: is {metric:?} published?"));
            let dimensions = alarm["Dimensions"].as_array().unwrap().iter();
            let looked_at: Dimensions = dimensions
                .map(|of| (of["Name"].as_str().unwrap().to_owned(), stack.text(&of["Value"])))
                .collect();
            let published = match of {
                Of::Queue => region.published(Of::Queue),
                Of::Rule => stack.published(Of::Rule),
            };
            assert!(published.contains(&looked_at), "{path}, {name}: nothing is published for {looked_at:?}");
        }
    }
}

/// A rule behind an alarm matches an event that is sent, of this cluster if it is a cluster's.
#[test]
fn what_an_alarm_counts_is_an_event_of_the_document() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let document = fs::read_to_string(root.join("docs/events.md")).unwrap();
    for path in ["template.yaml", "infra/cluster.yaml"] {
        let stack = Stack::read(path);
        let rules = stack.of_kind("AWS::Events::Rule").into_iter();
        for (name, rule) in rules.filter(|(_, rule)| rule.get("Targets").is_none()) {
            let pattern = &rule["EventPattern"];
            for kind in pattern["detail-type"].as_array().unwrap() {
                let heading = format!("### {}\n", kind.as_str().unwrap());
                assert!(document.contains(&heading), "{path}, {name}: no event {kind} in docs/events.md");
            }
            let of_cluster = pattern["detail"]["cluster"].as_array().map(|of| stack.text(&of[0]));
            let expected = (path == "infra/cluster.yaml").then(|| "prod".to_owned());
            assert_eq!(of_cluster, expected, "{path}, {name}");
        }
    }
}
