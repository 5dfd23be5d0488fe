//! The examples in the documents: scenarios that can be played, events that can be read.

use std::collections::BTreeSet;

use serde_json::Value;
use tenon_region::scenario::{Scenario, SetupOptions, build};
use tenon_structure_tests::read;

/// Fenced blocks of a language, each with its heading.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<(&'a str, String)> {
    let fence = format!("```{language}");
    let (mut heading, mut open, mut found): (&str, Option<String>, Vec<_>) = ("", None, Vec::new());
    for line in text.lines() {
        match &mut open {
            Some(block) if line == "```" => {
                found.push((heading, std::mem::take(block)));
                open = None;
            }
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
            None if line == fence => open = Some(String::new()),
            None if line.starts_with('#') => heading = line.trim_start_matches('#').trim(),
            None => {}
        }
    }
    found
}

#[test]
fn the_example_of_a_scenario_is_one() {
    let document = read("docs/scenarios.md");
    let examples = blocks(&document, "yaml");
    assert!(!examples.is_empty());
    for (_, example) in examples {
        let scenario = Scenario::parse(&example).unwrap();
        build(&scenario, &SetupOptions::default()).unwrap();
    }
}

#[test]
fn examples_of_events_are_read_and_stand_under_their_names() {
    let document = read("docs/events.md");
    let mut told = BTreeSet::new();
    for (heading, example) in blocks(&document, "json") {
        let event: Value =
            serde_json::from_str(&example).unwrap_or_else(|error| panic!("{heading}: {error}"));
        let wakes =
            tenon_runtime::events::parse(&example).unwrap_or_else(|error| panic!("{heading}: {error}"));
        assert!(!wakes.is_empty(), "{heading}: the example is no wake");
        let detail_type = event["detail-type"].as_str().unwrap().to_owned();
        let own_heading = !heading.starts_with("On ") && !heading.starts_with("An ");
        assert!(!own_heading || heading == detail_type, "{heading}: the example is a {detail_type}");
        told.insert(detail_type);
    }
    let template = read("template.yaml");
    let ours = template.lines().filter_map(|line| line.trim().strip_prefix("detail-type: ["));
    let ours = ours.flat_map(|list| list.trim_end_matches(']').split(", "));
    let missing: Vec<&str> =
        ours.filter(|name| !told.contains(*name) && !document.contains(&format!("| `{name}` |"))).collect();
    assert!(missing.is_empty(), "docs/events.md doesn't tell of {missing:?}");
}

#[test]
fn other_json_in_documents_is_json() {
    for path in ["docs/local.md", "README.md", "ARCHITECTURE.md"] {
        let document = read(path);
        for (heading, example) in blocks(&document, "json") {
            let read: Result<Value, _> = serde_json::from_str(&example);
            assert!(read.is_ok(), "{path}, {heading}: {read:?}");
        }
    }
}
