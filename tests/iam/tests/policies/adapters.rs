//! The adapters' operations, from their sources, against the table of calls.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tenon_iam_tests::calls::{OPERATIONS, UNASKED};

use crate::{WORLD, root};

/// Where adapters send from, with the service of each client there.
const ADAPTERS: &[(&str, &str)] = &[
    ("shared/aws/src", "arc-zonal-shift ec2 iam pricing ssm sts"),
    ("shared/dynamodb/src", "dynamodb"),
    ("shared/lambda/src", "sqs events"),
    ("agent/src", "sqs events"),
];

/// The operation of a client's method, if the service has one.
fn operation(services: &str, method: &str) -> Option<String> {
    let camel: String = method.split('_').map(capital).collect();
    OPERATIONS
        .iter()
        .map(|(operation, _)| *operation)
        .find(|operation| {
            operation
                .split_once(':')
                .is_some_and(|(s, o)| services.split(' ').any(|of| of == s) && o == camel)
        })
        .map(str::to_owned)
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Methods that are called on a client, and builders that a client sends.
fn methods(source: &str) -> BTreeSet<String> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let source: String = code.flat_map(str::split_whitespace).collect();
    // Clients are called so, or by their service's name.
    let called = ["client.", "client().", "reads.", "sqs.", "events."]
        .into_iter()
        .flat_map(|name| source.split(name).skip(1));
    let called = called
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect::<String>());
    let built = source.split("InputBuilder::default").filter_map(|before| {
        let name: String = before.chars().rev().take_while(char::is_ascii_alphanumeric).collect();
        let name: String = name.chars().rev().collect();
        let snake = name.chars().fold(String::new(), |mut snake, c| {
            if c.is_ascii_uppercase() && !snake.is_empty() {
                snake.push('_');
            }
            snake.push(c.to_ascii_lowercase());
            snake
        });
        (!snake.is_empty()).then_some(snake)
    });
    called.chain(built).collect()
}

fn sources(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            texts.extend(sources(&path));
        } else if name.ends_with(".rs") && !name.starts_with("fake_") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            // Tests stand at a file's end.
            texts.push(text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned());
        }
    }
    texts
}

/// A client's methods that are no operations.
const NO_OPERATIONS: &[&str] = &["build", "clone", "config", "iter"];

#[test]
fn every_operation_of_the_adapters_has_its_rights() {
    let (mut found, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    for (folder, services) in ADAPTERS {
        for method in sources(&root().join(folder)).iter().flat_map(|source| methods(source)) {
            if method.is_empty() || NO_OPERATIONS.contains(&method.as_str()) {
                continue;
            }
            match operation(services, &method) {
                Some(operation) => drop(found.insert(operation)),
                None => drop(unknown.insert(format!("{folder}: `{method}`"))),
            }
        }
    }
    assert!(unknown.is_empty(), "tests/iam/src/calls.rs doesn't say which rights these need: {unknown:#?}");
    let told: BTreeSet<String> = OPERATIONS.iter().map(|(operation, _)| (*operation).to_owned()).collect();
    // Lambda and the agent listen to queues.
    let listening = ["sqs:DeleteMessage", "sqs:ReceiveMessage"];
    let gone = told.difference(&found).filter(|operation| !listening.contains(&operation.as_str()));
    let gone: BTreeSet<&String> = gone.collect();
    assert!(gone.is_empty(), "no adapter has these any more: {gone:#?}");
}

#[test]
fn every_operation_is_asked_for_or_its_reason_is_told() {
    let asked: BTreeSet<&str> =
        WORLD.asked.values().flatten().map(|request| request.action.as_str()).collect();
    let unasked: BTreeSet<&str> = UNASKED.iter().map(|(operation, _)| *operation).collect();
    for (operation, actions) in OPERATIONS {
        let needed = actions.iter().any(|action| asked.contains(action));
        assert!(
            needed || unasked.contains(operation),
            "the recorded calls lack `{operation}`: add its reason to `UNASKED`"
        );
    }
}
