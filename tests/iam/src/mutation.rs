//! Statements with one part removed: narrower ones must deny a real request, wider ones must allow a forbidden one.
//!
//! Decides the removable parts of a statement.

use serde_json::{Value, json};

use crate::stack::list;

/// A changed policy, and the change.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The change.
    pub change: String,
    /// The statements.
    pub statements: Vec<Value>,
}

/// Policies that allow less: without a statement, an action, a resource, a value of a condition.
#[must_use]
pub fn narrower(statements: &[Value]) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for (at, statement) in statements.iter().enumerate() {
        let sid = name(statement);
        let mut without = statements.to_vec();
        without.remove(at);
        mutants.push(Mutant { change: format!("{sid} removed"), statements: without });
        for field in ["Action", "Resource"] {
            for (change, items) in shorter(&list(statement.get(field))) {
                mutants.push(changed(statements, at, &format!("{sid} without {change}"), &[field], items));
            }
        }
        for (operator, key, values) in conditions(statement) {
            for (change, values) in shorter(&values) {
                let path = ["Condition", operator.as_str(), key.as_str()];
                mutants.push(changed(
                    statements,
                    at,
                    &format!("{sid} without {key} {change}"),
                    &path,
                    values,
                ));
            }
        }
    }
    mutants
}

/// Policies that allow more: every action of the services, every resource, one condition less.
#[must_use]
pub fn wider(statements: &[Value]) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for (at, statement) in statements.iter().enumerate() {
        let sid = name(statement);
        let mut services: Vec<String> = list(statement.get("Action"))
            .iter()
            .filter_map(|action| action.as_str()?.split_once(':').map(|(service, _)| format!("{service}:*")))
            .collect();
        services.dedup();
        mutants.push(changed(
            statements,
            at,
            &format!("{sid} with every action"),
            &["Action"],
            json!(services),
        ));
        if list(statement.get("Resource")) != [json!("*")] {
            mutants.push(changed(statements, at, &format!("{sid} on everything"), &["Resource"], json!("*")));
        }
        for (operator, key, _) in conditions(statement) {
            let mut wider = statements.to_vec();
            let of = wider.get_mut(at).and_then(|s| s.pointer_mut(&format!("/Condition/{operator}")));
            if let Some(of) = of.and_then(Value::as_object_mut) {
                of.remove(&key);
            }
            mutants.push(Mutant { change: format!("{sid} without {operator} {key}"), statements: wider });
        }
    }
    mutants
}

/// The name of a statement.
#[must_use]
pub fn name(statement: &Value) -> String {
    statement.get("Sid").and_then(Value::as_str).unwrap_or("(without Sid)").to_owned()
}

/// Operators, keys and values of a statement's conditions.
#[must_use]
pub fn conditions(statement: &Value) -> Vec<(String, String, Vec<Value>)> {
    let operators = statement.get("Condition").and_then(Value::as_object).into_iter().flatten();
    operators
        .flat_map(|(operator, keys)| {
            let keys = keys.as_object().into_iter().flatten();
            keys.map(move |(key, values)| (operator.clone(), key.clone(), list(Some(values))))
        })
        .collect()
}

/// A list without each of its items, if it has several.
fn shorter(items: &[Value]) -> Vec<(String, Value)> {
    if items.len() < 2 {
        return Vec::new();
    }
    let without =
        |at: usize| items.iter().enumerate().filter(move |(i, _)| *i != at).map(|(_, item)| item.clone());
    items.iter().enumerate().map(|(at, item)| (item.to_string(), without(at).collect())).collect()
}

fn changed(statements: &[Value], at: usize, change: &str, path: &[&str], to: Value) -> Mutant {
    let mut statements = statements.to_vec();
    let mut place = statements.get_mut(at);
    for name in path {
        place = place.and_then(|value| value.get_mut(*name));
    }
    if let Some(place) = place {
        *place = to;
    }
    Mutant { change: change.to_owned(), statements }
}
