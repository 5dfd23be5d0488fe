//! Roles and policies from the real templates, with their parameters and intrinsic functions evaluated.
//!
//! Decides nothing about rights. An unknown intrinsic function is an error, never an empty text.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenon_region::yaml;

use crate::request::{ACCOUNT, INSTALLATION, REGION, Serves};

/// A role with all that it may do.
#[derive(Debug, Clone)]
pub struct Role {
    /// The partitions that it serves.
    pub serves: Serves,
    /// Its trust policy.
    pub trust: Vec<Value>,
    /// The statements of its policies, in order.
    pub statements: Vec<Value>,
}

/// A stack, worked out.
#[derive(Debug)]
pub struct Stack {
    document: Value,
    parameters: Map<String, Value>,
}

/// The region's stack and those of clusters, as one account.
#[derive(Debug, Default)]
pub struct Account {
    /// Roles, by the name of the function, `agent of <cluster>`, `launch of <cluster>`, `scheduler`, `scheduler of
    /// <cluster>`.
    pub roles: BTreeMap<String, Role>,
    /// Policies of resources.
    pub resource_policies: Vec<Value>,
}

impl Account {
    /// Adds the region's stack.
    ///
    /// # Errors An expression that can't be evaluated.
    pub fn add_region(&mut self, stack: &Stack) -> Result<(), String> {
        for (name, properties) in stack.of_kind("AWS::IAM::Role")? {
            self.roles.insert(kebab(name.trim_end_matches("Role")), role(&properties, Serves::Region)?);
        }
        for kind in ["AWS::SQS::QueuePolicy", "AWS::Events::EventBusPolicy"] {
            self.resource_policies.extend(stack.of_kind(kind)?.into_iter().map(|(_, properties)| properties));
        }
        Ok(())
    }

    /// Adds a cluster's stack: its roles, and their policies.
    ///
    /// # Errors An expression that can't be evaluated.
    pub fn add_cluster(&mut self, cluster: &str, stack: &Stack) -> Result<(), String> {
        let named = |logical: &str| format!("{} of {cluster}", kebab(logical.trim_end_matches("Role")));
        for (name, properties) in stack.of_kind("AWS::IAM::Role")? {
            self.roles.insert(named(&name), role(&properties, Serves::Cluster)?);
        }
        for (name, properties) in stack.of_kind("AWS::IAM::Policy")? {
            for of in list(properties.get("Roles")) {
                // The name of a role of the stack is its logical id here.
                let owner = self.roles.get_mut(&named(of.as_str().unwrap_or_default()));
                let owner = owner.ok_or_else(|| format!("{name}: the stack has no role {of}"))?;
                owner.statements.extend(document(properties.get("PolicyDocument"))?);
            }
        }
        Ok(())
    }
}

fn role(properties: &Value, serves: Serves) -> Result<Role, String> {
    let mut all = Vec::new();
    for policy in list(properties.get("Policies")) {
        all.extend(document(policy.get("PolicyDocument"))?);
    }
    if properties.get("ManagedPolicyArns").is_some() {
        return Err("a managed policy: write its statements out, so that they are judged".to_owned());
    }
    Ok(Role { serves, trust: document(properties.get("AssumeRolePolicyDocument"))?, statements: all })
}

/// The statements of a policy, which is a JSON text where its keys are computed.
///
/// # Errors A malformed text.
pub fn document(policy: Option<&Value>) -> Result<Vec<Value>, String> {
    let Some(text) = policy.and_then(Value::as_str) else { return Ok(statements(policy)) };
    let read: Value = serde_json::from_str(text).map_err(|error| format!("a policy: {error}"))?;
    Ok(statements(Some(&read)))
}

/// A document's statements.
#[must_use]
pub fn statements(document: Option<&Value>) -> Vec<Value> {
    list(document.and_then(|document| document.get("Statement")))
}

/// A single value or a list, as a list.
#[must_use]
pub fn list(value: Option<&Value>) -> Vec<Value> {
    match value {
        None => Vec::new(),
        Some(Value::Array(items)) => items.clone(),
        Some(
            one @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)),
        ) => {
            vec![one.clone()]
        }
    }
}

/// `NodeClasses` is `node-classes`.
fn kebab(logical: &str) -> String {
    let mut name = String::new();
    for c in logical.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

impl Stack {
    /// Reads a template. Absent parameters have their defaults.
    ///
    /// # Errors A malformed template, or a parameter without a value.
    pub fn read(text: &str, given: &[(&str, &str)]) -> Result<Self, String> {
        let document = yaml::parse(text)?;
        let mut parameters = Map::new();
        for (name, parameter) in object(document.get("Parameters")) {
            let value = given.iter().find(|(of, _)| *of == name).map(|(_, value)| json!(value));
            let value = value.or_else(|| parameter.get("Default").cloned());
            let value = value.ok_or_else(|| format!("parameter `{name}` has no value"))?;
            let of_list = parameter.get("Type").and_then(Value::as_str) == Some("CommaDelimitedList");
            let value = if of_list {
                json!(value.as_str().unwrap_or_default().split(',').collect::<Vec<_>>())
            } else {
                value
            };
            parameters.insert(name, value);
        }
        for (name, value) in [
            ("AWS::Partition", json!("aws")),
            ("AWS::Region", json!(REGION)),
            ("AWS::AccountId", json!(ACCOUNT)),
            ("AWS::URLSuffix", json!("amazonaws.com")),
        ] {
            parameters.insert(name.to_owned(), value);
        }
        Ok(Self { document, parameters })
    }

    /// The same stack in another partition, with the end of its host names. ARNs of its own resources stay as they are.
    #[must_use]
    pub fn in_partition(mut self, name: &str, url_suffix: &str) -> Self {
        for (parameter, value) in [("AWS::Partition", name), ("AWS::URLSuffix", url_suffix)] {
            self.parameters.insert(parameter.to_owned(), json!(value));
        }
        self
    }

    /// The same stack with another value of a list of its parameters.
    #[must_use]
    pub fn with(mut self, parameter: &str, values: &[&str]) -> Self {
        self.parameters.insert(parameter.to_owned(), json!(values));
        self
    }

    /// The resources of a type: logical id and evaluated properties.
    ///
    /// # Errors An expression that can't be evaluated.
    pub fn of_kind(&self, kind: &str) -> Result<Vec<(String, Value)>, String> {
        let of_kind = |resource: &Value| resource.get("Type").and_then(Value::as_str) == Some(kind);
        let resources = object(self.document.get("Resources")).into_iter().filter(|(_, r)| of_kind(r));
        resources
            .map(|(name, resource)| {
                let properties = resource.get("Properties").cloned().unwrap_or(Value::Null);
                let worked_out = self.work_out(&properties).map_err(|error| format!("{name}: {error}"))?;
                Ok((name, worked_out.unwrap_or(Value::Null)))
            })
            .collect()
    }

    /// Nothing for `AWS::NoValue`.
    fn work_out(&self, value: &Value) -> Result<Option<Value>, String> {
        Ok(Some(match value {
            Value::Array(items) => {
                let items: Result<Vec<_>, String> = items.iter().map(|item| self.work_out(item)).collect();
                Value::Array(items?.into_iter().flatten().collect())
            }
            Value::Object(fields) => match fields.iter().next() {
                Some((function, argument))
                    if fields.len() == 1 && (function == "Ref" || function.starts_with("Fn::")) =>
                {
                    return self.call(function, argument);
                }
                _ => {
                    let mut done = Map::new();
                    for (name, field) in fields {
                        if let Some(field) = self.work_out(field)? {
                            done.insert(name.clone(), field);
                        }
                    }
                    Value::Object(done)
                }
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }))
    }

    fn call(&self, function: &str, argument: &Value) -> Result<Option<Value>, String> {
        let text = argument.as_str().unwrap_or_default();
        Ok(Some(match function {
            "Ref" if text == "AWS::NoValue" => return Ok(None),
            "Ref" => self.reference(text)?,
            "Fn::GetAtt" => json!(self.attribute(text)?),
            "Fn::Sub" => json!(self.substitute_with(argument)?),
            "Fn::Join" => {
                let (by, joined) = self.separated(argument)?;
                let texts = list(Some(&joined));
                json!(texts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(&by))
            }
            "Fn::Split" => {
                let (by, text) = self.separated(argument)?;
                json!(text.as_str().unwrap_or_default().split(by.as_str()).collect::<Vec<_>>())
            }
            "Fn::ImportValue" => self.work_out(argument)?.unwrap_or(Value::Null),
            "Fn::If" => {
                let [condition, yes, no] = argument.as_array().map(Vec::as_slice).unwrap_or_default() else {
                    return Err(format!("`Fn::If` of {argument}"));
                };
                let holds = self.holds(condition.as_str().unwrap_or_default())?;
                return self.work_out(if holds { yes } else { no });
            }
            other => return Err(format!("`{other}` isn't known here")),
        }))
    }

    /// A separator, and what is joined or split by it.
    fn separated(&self, argument: &Value) -> Result<(String, Value), String> {
        let [by, of] = argument.as_array().map(Vec::as_slice).unwrap_or_default() else {
            return Err(format!("a separator and a value are expected instead of {argument}"));
        };
        let of = self.work_out(of)?.unwrap_or(Value::Null);
        Ok((by.as_str().unwrap_or_default().to_owned(), of))
    }

    /// A text, or a text with variables of its own.
    fn substitute_with(&self, argument: &Value) -> Result<String, String> {
        let Some([text, own]) = argument.as_array().map(Vec::as_slice) else {
            return self.substitute(argument.as_str().unwrap_or_default());
        };
        let mut text = text.as_str().unwrap_or_default().to_owned();
        for (name, value) in object(Some(own)) {
            let value = self.work_out(&value)?.unwrap_or(Value::Null);
            let value = value.as_str().ok_or_else(|| format!("`{name}` in `Fn::Sub` isn't a text"))?;
            text = text.replace(&format!("${{{name}}}"), value);
        }
        self.substitute(&text)
    }

    fn holds(&self, condition: &str) -> Result<bool, String> {
        let stated = self.document.pointer(&format!("/Conditions/{condition}/Fn::Not/0/Fn::Equals"));
        let [left, right] = stated.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default() else {
            return Err(format!("condition `{condition}` isn't `!Not [!Equals [a, b]]`"));
        };
        Ok(self.work_out(left)? != self.work_out(right)?)
    }

    fn reference(&self, name: &str) -> Result<Value, String> {
        if let Some(value) = self.parameters.get(name) {
            return Ok(value.clone());
        }
        let (_, properties) = self.resource(name)?;
        for property in ["QueueName", "TableName", "Name", "LogGroupName", "FunctionName"] {
            if let Some(value) = properties.get(property) {
                return Ok(self.work_out(value)?.unwrap_or(Value::Null));
            }
        }
        Ok(json!(name))
    }

    fn resource(&self, name: &str) -> Result<(&str, &Value), String> {
        let resource = self.document.pointer(&format!("/Resources/{name}"));
        let resource = resource.ok_or_else(|| format!("nothing is called `{name}`"))?;
        let kind = resource.get("Type").and_then(Value::as_str).unwrap_or_default();
        Ok((kind, resource.get("Properties").unwrap_or(&Value::Null)))
    }

    pub(crate) fn attribute(&self, path: &str) -> Result<String, String> {
        let (name, attribute) = path.split_once('.').ok_or_else(|| format!("`Fn::GetAtt` of `{path}`"))?;
        let (kind, properties) = self.resource(name)?;
        let physical = self.reference(name)?;
        let physical = physical.as_str().unwrap_or_default();
        let arn = |service: &str, of: &str| crate::request::arn(service, &format!("{of}{physical}"));
        Ok(match (kind, attribute) {
            ("AWS::SQS::Queue", "Arn") => arn("sqs", ""),
            ("AWS::SQS::Queue", "QueueName") => physical.to_owned(),
            ("AWS::Serverless::Function", "Arn") => arn("lambda", "function:"),
            ("AWS::DynamoDB::Table", "Arn") => arn("dynamodb", "table/"),
            ("AWS::Events::EventBus", "Arn") => arn("events", "event-bus/"),
            ("AWS::Events::Rule", "Arn") => match self.bus_of(properties)? {
                Some(bus) => arn("events", &format!("rule/{bus}/")),
                None => arn("events", "rule/"),
            },
            ("AWS::Logs::LogGroup", "Arn") => arn("logs", "log-group:") + ":*",
            ("AWS::IAM::Role", "Arn") => format!("arn:aws:iam::{ACCOUNT}:role/{physical}"),
            (kind, attribute) => return Err(format!("attribute `{attribute}` of {kind} isn't known here")),
        })
    }

    /// The bus of a rule, if it isn't the default one.
    fn bus_of(&self, rule: &Value) -> Result<Option<String>, String> {
        let bus = rule.get("EventBusName").map(|bus| self.work_out(bus)).transpose()?.flatten();
        Ok(bus.and_then(|bus| bus.as_str().map(str::to_owned)))
    }

    fn substitute(&self, text: &str) -> Result<String, String> {
        let mut done = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').ok_or_else(|| format!("`Fn::Sub` of `{text}`"))?;
            done.push_str(before);
            let value = if name.contains('.') { json!(self.attribute(name)?) } else { self.reference(name)? };
            done.push_str(value.as_str().ok_or_else(|| format!("`{name}` in `{text}` isn't a text"))?);
            rest = after;
        }
        done.push_str(rest);
        Ok(done)
    }
}

fn object(value: Option<&Value>) -> Map<String, Value> {
    value.and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The stacks of the checkout: the region's, and those of two clusters.
///
/// # Errors A stack that can't be read or evaluated.
pub fn account() -> Result<(Account, Vec<Stack>), String> {
    let region = Stack::read(include_str!("../../../template.yaml"), &[("Installation", INSTALLATION)])?;
    let mut account = Account::default();
    account.add_region(&region)?;
    let mut stacks = vec![region];
    for cluster in CLUSTERS {
        let stack = cluster_stack(cluster)?;
        account.add_cluster(cluster, &stack)?;
        stacks.push(stack);
    }
    Ok((account, stacks))
}

/// The stack of a cluster of the checkout.
///
/// # Errors A stack that can't be read.
pub fn cluster_stack(cluster: &str) -> Result<Stack, String> {
    let role = format!("{cluster}-node");
    let guides = format!("KarpenterNodeRole-{cluster}");
    let tags = format!("team={cluster},private=*");
    let (snapshots, provider) =
        if cluster == "next" { (SNAPSHOTS_OF_NEXT, OIDC_PROVIDER_OF_NEXT) } else { (ACCOUNT, "") };
    Stack::read(
        include_str!("../../../infra/cluster.yaml"),
        &[
            ("Cluster", cluster),
            ("Endpoint", "https://example.com"),
            ("CertificateAuthority", "LS0t"),
            ("KubernetesVersion", "1.35"),
            ("ServiceCidr", "10.100.0.0/16"),
            ("MaxNodes", "100"),
            ("NodeRole1", &role),
            ("NodeRole1Profile", &role),
            ("NodeRole2", &guides),
            ("NodeRole2Profile", &guides),
            ("SnapshotOwners", snapshots),
            ("OidcProvider", provider),
            ("SubnetTags", &tags),
            ("SecurityGroupTags", &tags),
        ],
    )
}

/// The owner of the second cluster's allowed snapshots; the first may use its own account's.
pub const SNAPSHOTS_OF_NEXT: &str = "555566667777";

/// The issuer of the second cluster's tokens; the first cluster's stack names none.
pub const OIDC_PROVIDER_OF_NEXT: &str =
    "oidc.eks.us-east-1.amazonaws.com/id/EXAMPLED539D4633E53DE1B71EXAMPLE";

/// The clusters that have stacks: the scenarios', and one beside it.
pub const CLUSTERS: [&str; 2] = ["demo", "next"];
