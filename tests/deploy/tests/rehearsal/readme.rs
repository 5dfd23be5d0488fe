//! The README's queries, in the AWS CLI's syntax, print the output shown below them.
//!
//! In the expected output `…` stands for any characters, and as a line of its own for any further lines; the number
//! of blanks between words doesn't count.

use crate::images::{becomes, state_change};
use crate::launches::launch;
use crate::marks::mark;
use crate::network::make_image;
use crate::tools::{root, shell};
use crate::world::rehearse;

/// The section with the queries.
const SECTION: &str = "## Queries";

/// A command, and the lines that it prints.
#[derive(Debug, PartialEq)]
struct Example {
    command: String,
    expected: Vec<String>,
}

/// The examples in a section's blocks.
fn examples(readme: &str) -> Vec<Example> {
    let section = readme.split_once(SECTION).expect("the README has the section").1;
    let section = section.split("\n## ").next().unwrap();
    let mut found: Vec<Example> = Vec::new();
    for block in section.split("```console\n").skip(1) {
        let mut continued = false;
        for line in block.split("```").next().unwrap().lines() {
            match (line.strip_prefix("$ "), continued) {
                (Some(command), _) => {
                    found.push(Example { command: command.to_owned(), expected: Vec::new() })
                }
                (None, true) => found.last_mut().unwrap().command += &format!("\n{line}"),
                (None, false) => found.last_mut().unwrap().expected.push(line.to_owned()),
            }
            continued = line.ends_with('\\');
        }
    }
    found
}

fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a line is as expected.
fn matches(expected: &str, line: &str) -> bool {
    let (expected, line) = (words(expected), words(line));
    let parts: Vec<&str> = expected.split('…').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return expected == line };
    let Some(mut rest) = line.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    true
}

fn check(example: &Example, printed: &str) {
    let (mut lines, command) = (printed.lines(), &example.command);
    for expected in &example.expected {
        if expected.trim() == "…" {
            return;
        }
        let line =
            lines.next().unwrap_or_else(|| panic!("`{expected}` is missing below\n{command}\n{printed}"));
        assert!(matches(expected, line), "`{expected}` isn't what is printed below\n{command}\n{printed}");
    }
    assert_eq!(lines.next(), None, "more than what is expected below\n{command}");
}

#[test]
fn an_example_is_a_command_and_its_lines() {
    let readme =
        "## Queries\n\n```console\n$ aws a \\\n    b\nx  y\n$ aws c\n```\n\n## Next\n```console\n$ no\n```\n";
    let example = |command: &str, expected: &[&str]| Example {
        command: command.to_owned(),
        expected: expected.iter().map(|line| (*line).to_owned()).collect(),
    };
    assert_eq!(examples(readme), [example("aws a \\\n    b", &["x  y"]), example("aws c", &[])]);
    assert!(matches("a  …c", "a\tbc") && matches("…", "x") && matches("a…b…c", "a1b2c"));
    assert!(!matches("a …", "b c") && !matches("a", "ab") && !matches("a…b…c", "a1c"));
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn the_readmes_queries_print_what_it_says() {
    rehearse(|world| async {
        launch(world).await;
        let image = make_image(&world.account.ec2, "node-2026-11").await;
        world.account.send("images", &state_change(&image, "available").to_string()).await;
        becomes(&world.account, &image, "available").await;
        world.account.settled().await;
        mark(&world.account, "offering#spot#use1-az2#m7i.large").await;
        let readme = std::fs::read_to_string(root().join("README.md")).expect("a README");
        let examples = examples(&readme);
        assert!(examples.len() >= 7, "{examples:?}");
        for example in &examples {
            let printed = shell(&example.command).await.well(&example.command);
            check(example, &printed);
        }
    });
}
