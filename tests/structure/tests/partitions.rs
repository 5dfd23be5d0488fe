//! AWS's partitions: stacks and code write out nothing that differs between the commercial regions, China and GovCloud.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of an integration test fail as tests do")]

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tenon_structure_tests::{document, read, root};

/// Names of services that every partition has as they are, and the audience of service accounts' tokens. EC2's is one of
/// two in China, so [`roles_are_passed_to_ec2_by_its_name_in_the_partition`]. Sources: `aws-cdk-lib`'s region-info;
/// eksctl-io/eksctl#1910 for the audience; read 2026-11.
const NAMES: [&str; 6] = [
    "ec2.amazonaws.com",
    "events.amazonaws.com",
    "lambda.amazonaws.com",
    "pods.eks.amazonaws.com",
    "scheduler.amazonaws.com",
    "sts.amazonaws.com",
];
/// What begins a word of the code that looks like a host and is none: labels, a driver, a service-linked role's service.
const LABELS: [&str; 3] = ["vpc.amazonaws.com/", "ebs.csi.eks.amazonaws.com", "spot.amazonaws.com"];
/// The module that knows the partitions.
const PARTITIONS: &str = "shared/domain/src/partition.rs";
/// Texts for people.
const DESCRIPTIONS: [&str; 3] = ["AlarmDescription", "ConstraintDescription", "Description"];
/// Code that may run in an account.
const TREES: [&str; 4] = ["agent", "cli", "functions", "shared"];
/// Folders without such code.
const SKIPPED: [&str; 5] = ["benches", "examples", "simulators", "target", "tests"];

/// The templates, by path from the root.
fn stacks() -> Vec<String> {
    let files = fs::read_dir(root().join("infra")).unwrap().map(|entry| entry.unwrap().file_name());
    let files = files.map(|name| format!("infra/{}", name.to_string_lossy()));
    let files = files.filter(|path| Path::new(path).extension().is_some_and(|end| end == "yaml"));
    let stacks: Vec<String> = files.chain(["template.yaml".to_owned()]).collect();
    assert!(stacks.len() > 5, "{stacks:?}");
    stacks
}

/// All texts of a document, names of fields among them, without those for people.
fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(name, _)| !DESCRIPTIONS.contains(&name.as_str())) {
                found.push(name.clone());
                texts(field, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Words that are bound to a partition: an ARN with one, or a name below AWS's domain.
fn bound(text: &str) -> impl Iterator<Item = &str> {
    let of_word = |c: char| c.is_ascii_alphanumeric() || "-._:/*{}$".contains(c);
    text.split(move |c: char| !of_word(c))
        .filter(|word| word.contains("arn:aws") || word.contains("amazonaws."))
}

/// Rust files below a folder that may run in an account.
fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let of_tests = name.starts_with("fake_") || name == "tests.rs" || name.ends_with("_tests.rs");
        if path.is_dir() && !SKIPPED.contains(&name.as_str()) {
            sources(&path, found);
        } else if name.ends_with(".rs") && !of_tests {
            found.push(path.strip_prefix(root()).unwrap().to_string_lossy().into_owned());
        }
    }
}

#[test]
fn a_word_is_bound_to_a_partition_by_its_arn_or_its_domain() {
    let of = |text: &str| bound(text).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(of("\"Service\": \"ec2.amazonaws.com\","), ["ec2.amazonaws.com"]);
    assert_eq!(of("!Sub 'arn:aws:sqs:${AWS::Region}:a'"), ["arn:aws:sqs:${AWS::Region}:a"]);
    assert_eq!(of("arn:${AWS::Partition}:sqs:a https://sqs.${AWS::URLSuffix}/"), [""; 0]);
}

#[test]
fn no_stack_is_bound_to_a_partition() {
    let mut wrong = Vec::new();
    for path in stacks() {
        let mut found = Vec::new();
        texts(&document(&path), &mut found);
        let words = found.iter().flat_map(|text| bound(text)).filter(|word| !NAMES.contains(word));
        wrong.extend(words.map(|word| format!("{path}: `{word}`")));
    }
    assert!(wrong.is_empty(), "write AWS::Partition and AWS::URLSuffix: {wrong:#?}");
}

/// The one service whose name differs is written with the partition's end; in China beside its name elsewhere.
#[test]
fn roles_are_passed_to_ec2_by_its_name_in_the_partition() {
    let stack = document("infra/cluster.yaml");
    let policies = &stack["Resources"]["LaunchRole"]["Properties"]["Policies"];
    let service =
        &policies[0]["PolicyDocument"]["Statement"][0]["Condition"]["StringEquals"]["iam:PassedToService"];
    let own = json!({"Fn::Sub": "ec2.${AWS::URLSuffix}"});
    assert_eq!(service["Fn::If"], json!(["IsOutsideChina", own, ["ec2.amazonaws.com", own]]));
}

#[test]
fn no_code_is_bound_to_a_partition() {
    let mut files = Vec::new();
    for tree in TREES {
        sources(&root().join(tree), &mut files);
    }
    assert!(files.len() > 300 && files.iter().any(|path| path == PARTITIONS), "{} files", files.len());
    let mut wrong = Vec::new();
    for path in files.iter().filter(|path| *path != PARTITIONS) {
        let text = read(path);
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let words = bound(line).filter(|word| !LABELS.iter().any(|label| word.starts_with(label)));
            wrong.extend(words.map(|word| format!("{path}: `{word}`")));
        }
    }
    assert!(wrong.is_empty(), "take the name or the end from AwsPartition: {wrong:#?}");
}
