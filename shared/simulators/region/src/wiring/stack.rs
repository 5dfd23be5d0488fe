//! A stack's resources as CloudFormation makes them: without those whose condition is false.
//!
//! Decides which resources there are, and the text of a string with parameters. It doesn't decide what a resource means. A
//! condition of another form is an error.

use std::collections::BTreeMap;

use serde_json::Value;

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

pub(super) struct Stack {
    /// Logical id, type, properties; without resources whose condition is false.
    resources: Vec<(String, String, Value)>,
    parameters: BTreeMap<String, String>,
}

impl Stack {
    pub(super) fn parse(file: &str, text: &str, parameters: &[(&str, &str)]) -> Result<Self, WiringError> {
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

    pub(super) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.resources
            .iter()
            .filter(move |(_, k, _)| k == kind)
            .map(|(name, _, value)| (name.as_str(), value))
    }

    pub(super) fn properties(&self, name: &str) -> Option<&Value> {
        self.resources.iter().find(|(n, _, _)| n == name).map(|(_, _, value)| value)
    }

    /// A string, or a `Fn::Sub` with the stack's parameters.
    pub(super) fn string(&self, value: &Value) -> Option<String> {
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
