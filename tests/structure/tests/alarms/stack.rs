//! A template as CloudFormation evaluates it, as far as alarms refer to resources.
//!
//! Decides what `Ref`, `GetAtt`, `Sub` and `Select` give. Doesn't decide what an alarm may look at.

use std::collections::BTreeMap;

use serde_json::Value;
use tenon_structure_tests::document;

const ACCOUNT: &str = "111122223333";
const REGION: &str = "us-east-1";

/// A stack of an installation named `tenon`, with a cluster named `prod`.
pub(crate) struct EvaluatedStack {
    pub(crate) path: &'static str,
    pub(crate) document: Value,
    parameters: BTreeMap<&'static str, &'static str>,
}

impl EvaluatedStack {
    pub(crate) fn read(path: &'static str) -> Self {
        let parameters = BTreeMap::from([("Installation", "tenon"), ("Cluster", "prod")]);
        Self { path, document: document(path), parameters }
    }

    /// Names and properties of the resources of a type.
    pub(crate) fn of_kind(&self, kind: &str) -> Vec<(&str, &Value)> {
        let resources = self.document["Resources"].as_object().unwrap().iter();
        let of = resources.filter(|(_, resource)| resource["Type"] == kind);
        of.map(|(name, resource)| (name.as_str(), &resource["Properties"])).collect()
    }

    /// A text with its intrinsic functions evaluated.
    pub(crate) fn text(&self, value: &Value) -> String {
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

    /// The value of `Ref`. A queue's is its URL, as the reference of `AWS::SQS::Queue` says. A rule's is its name, and
    /// `<bus>|<rule>` on a custom bus: aws-cloudformation/cloudformation-coverage-roadmap#1131. Both read 2026-11.
    fn reference(&self, name: &str) -> String {
        if let Some(given) = self.parameters.get(name) {
            return (*given).to_owned();
        }
        let resource = &self.document["Resources"][name];
        let properties = &resource["Properties"];
        match resource["Type"].as_str() {
            Some("AWS::SQS::Queue") => {
                format!(
                    "https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{}",
                    self.text(&properties["QueueName"])
                )
            }
            Some("AWS::Events::EventBus") => self.text(&properties["Name"]),
            Some("AWS::Serverless::Function") => self.text(&properties["FunctionName"]),
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
            (Some("AWS::SQS::Queue"), "Arn") => {
                format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{}", self.text(&properties["QueueName"]))
            }
            (Some("AWS::Serverless::Function"), "Arn") => {
                format!(
                    "arn:aws:lambda:{REGION}:{ACCOUNT}:function:{}",
                    self.text(&properties["FunctionName"])
                )
            }
            (Some("AWS::Events::Rule"), "Arn") => match self.bus(properties) {
                Some(bus) => format!("arn:aws:events:{REGION}:{ACCOUNT}:rule/{bus}/{}", rule_name(name)),
                None => format!("arn:aws:events:{REGION}:{ACCOUNT}:rule/{}", rule_name(name)),
            },
            (kind, _) => panic!("`GetAtt` of {text}, of {kind:?}, isn't known here"),
        }
    }

    /// The custom bus of a rule.
    pub(crate) fn bus(&self, rule: &Value) -> Option<String> {
        rule.get("EventBusName").map(|name| self.text(name))
    }

    /// The minutes between two runs of a schedule.
    pub(crate) fn rate(&self, schedule: &str) -> usize {
        let text = &self.document["Resources"][schedule]["Properties"]["ScheduleExpression"];
        let text = text.as_str().unwrap_or_else(|| panic!("{}: no schedule `{schedule}`", self.path));
        let rate = text.strip_prefix("rate(").and_then(|rest| rest.strip_suffix(')'));
        let (number, unit) = rate.and_then(|rate| rate.split_once(' ')).unwrap();
        let minutes = if unit.starts_with("hour") { 60 } else { 1 };
        number.parse::<usize>().unwrap() * minutes
    }
}

/// The name that CloudFormation makes for a rule without one.
pub(crate) fn rule_name(logical: &str) -> String {
    format!("stack-{logical}-1A2B3C4D5E6F")
}
