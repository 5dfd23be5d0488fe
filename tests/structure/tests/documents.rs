//! Claims of the documents: links, paths, commands, tables and words.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of an integration test fail as tests do"
)]

use std::collections::BTreeSet;
use std::fs;

use cargo_metadata::MetadataCommand;
use tenon_structure_tests::{read, root};

/// Skipped: foreign files, and files that aren't text.
const SKIPPED: &[&str] = &["target", ".git", ".venv"];

/// All text files of the checkout, by path from its root.
fn texts() -> Vec<(String, String)> {
    let (root, mut found, mut open) = (root(), Vec::new(), vec![root()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if SKIPPED.contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                found.push((path.strip_prefix(&root).unwrap().to_string_lossy().into_owned(), text));
            }
        }
    }
    found.sort();
    found
}

fn documents() -> Vec<(String, String)> {
    texts().into_iter().filter(|(path, _)| path.ends_with(".md")).collect()
}

/// Lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    })
}

/// Lines inside of fenced blocks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fence && fenced
    })
}

/// Targets of links in a line of Markdown.
fn links(line: &str) -> Vec<&str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target)).collect()
}

/// The link target of a heading.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    words.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// Texts in backticks.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Cells of the rows of the table with this head.
fn rows<'a>(text: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let lines = text.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let row = |line: &'a str| line.trim_matches('|').split('|').map(str::trim).collect();
    let found: Vec<_> = lines.take_while(|line| line.starts_with('|')).map(row).collect();
    assert!(!found.is_empty(), "no table begins with `{head}`");
    found
}

/// Variants of an enum in a source file.
fn variants(source: &str, name: &str) -> Vec<String> {
    let body = source.split_once(&format!("enum {name} {{")).expect("the enum is there").1;
    let body = body.split_once("\n}").expect("the enum ends").0;
    let lines = body.lines().map(str::trim).filter(|line| line.starts_with(char::is_uppercase));
    lines.map(|line| line.chars().take_while(char::is_ascii_alphanumeric).collect()).collect()
}

#[test]
fn relative_links_lead_somewhere() {
    let mut broken = Vec::new();
    for (path, text) in documents() {
        for target in prose(&text).flat_map(links).filter(|target| !target.contains("://")) {
            let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
            let folder = root().join(&path).parent().unwrap().to_owned();
            let there = if file.is_empty() { root().join(&path) } else { folder.join(file) };
            if !there.exists() {
                broken.push(format!("{path}: {target}"));
            } else if !fragment.is_empty() {
                let other = fs::read_to_string(&there).unwrap();
                let mut headings = prose(&other).filter(|line| line.starts_with('#'));
                if !headings.any(|heading| anchor(heading) == fragment) {
                    broken.push(format!("{path}: {target}: no such heading"));
                }
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

#[test]
fn the_layout_of_the_readme_is_there() {
    let readme = read("README.md");
    let rows = rows(&readme, "| path |");
    let listed: BTreeSet<&str> = rows.iter().flat_map(|row| links(row[0])).collect();
    let missing: Vec<_> = listed.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "paths of README's layout that aren't there: {missing:?}");
    let folders = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    let folders = folders.filter(|path| path.is_dir());
    let names = folders.map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
    let unlisted: Vec<String> =
        names.filter(|n| !n.starts_with('.') && n != "target" && !listed.contains(n.as_str())).collect();
    assert!(unlisted.is_empty(), "folders that README's layout doesn't name: {unlisted:?}");
}

#[test]
fn commands_in_documents_exist() {
    let known: BTreeSet<String> =
        variants(&read("cli/src/args.rs"), "CliCommand").iter().map(|name| name.to_lowercase()).collect();
    assert!(known.contains("simulate"), "{known:?}");
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        for line in code(&text) {
            let line = line.trim_start_matches("$ ");
            for part in line.split(" | ") {
                let words: Vec<&str> = part.split_whitespace().collect();
                let command = match words.as_slice() {
                    ["tenon" | "target/release/tenon", command, ..] => command,
                    ["cargo", "run", "--release", "--bin", "tenon", "--", command, ..] => command,
                    _ => continue,
                };
                if !known.contains(*command) {
                    wrong.push(format!("{path}: {line}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "commands that `tenon` doesn't have: {wrong:#?}");
}

#[test]
fn packages_in_commands_exist() {
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo metadata runs in a checkout");
    let names: BTreeSet<String> = metadata.packages.iter().map(|p| p.name.to_string()).collect();
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        for line in code(&text).filter(|line| line.contains("cargo ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let named = words.iter().zip(words.iter().skip(1)).find(|(flag, _)| **flag == "-p");
            if let Some((_, package)) = named.filter(|(_, package)| !names.contains(**package)) {
                wrong.push(format!("{path}: {package}"));
            }
        }
    }
    assert!(wrong.is_empty(), "packages that aren't there: {wrong:?}");
}

#[test]
fn architecture_lists_every_crate() {
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo metadata runs in a checkout");
    let root = root();
    let members: BTreeSet<(String, String)> = metadata
        .packages
        .iter()
        .map(|package| {
            let folder = package.manifest_path.parent().unwrap().as_std_path();
            let folder = folder.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
            (package.name.to_string(), folder)
        })
        .collect();
    let architecture = read("ARCHITECTURE.md");
    let listed: BTreeSet<(String, String)> = rows(&architecture, "| crate |")
        .iter()
        .map(|row| (row[0].trim_matches('`').to_owned(), links(row[1])[0].to_owned()))
        .collect();
    assert_eq!(listed, members);
}

#[test]
fn the_matrix_of_architecture_is_the_codes() {
    let architecture = read("ARCHITECTURE.md");
    let snapshot = read(
        "shared/domain/src/claim/snapshots/tenon_domain__claim__phase__tests__the_matrix_of_transitions.snap",
    );
    let mut told = BTreeSet::new();
    let mut lines = architecture.lines().skip_while(|line| !line.starts_with("from \\ to"));
    let head = lines.next().expect("ARCHITECTURE.md has the matrix");
    for line in lines.take_while(|line| !line.starts_with("```")) {
        let from = line.split_whitespace().next().unwrap();
        for (place, _) in line.match_indices(" x").map(|(place, x)| (place + 1, x)) {
            told.insert((from.to_owned(), column(head, place)));
        }
    }
    let mut real = BTreeSet::new();
    let mut lines = snapshot.lines().skip_while(|line| !line.starts_with("from \\ to"));
    let names: Vec<&str> = lines.next().unwrap().split_whitespace().skip(3).collect();
    for line in lines {
        let mut cells = line.split_whitespace();
        let from = cells.next().unwrap();
        let yes = names.iter().zip(cells).filter(|(_, cell)| *cell == "yes");
        real.extend(yes.map(|(to, _)| (from.to_owned(), (*to).to_owned())));
    }
    assert_eq!(told, real);
}

/// The word of the head above a place.
fn column(head: &str, place: usize) -> String {
    let start = head[..=place].rfind(' ').expect("a word stands there") + 1;
    head[start..].split_whitespace().next().unwrap().to_owned()
}

#[test]
fn the_glossary_is_sorted() {
    let architecture = read("ARCHITECTURE.md");
    let glossary = architecture.split_once("\n# Glossary\n").expect("ARCHITECTURE.md has a glossary").1;
    let words: Vec<&str> = glossary
        .lines()
        .filter_map(|line| line.strip_prefix("- **")?.split_once("**").map(|(w, _)| w))
        .collect();
    assert!(words.len() > 20, "{words:?}");
    let mut sorted = words.clone();
    sorted.sort_by_key(|word| word.to_lowercase());
    assert_eq!(words, sorted);
}

#[test]
fn every_decision_says_why_and_is_in_the_index() {
    let index = read("docs/decisions/README.md");
    let mut pages = 0;
    for entry in fs::read_dir(root().join("docs/decisions")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name == "README.md" {
            continue;
        }
        let page = read(&format!("docs/decisions/{name}"));
        let found: Vec<&str> = page.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(found, ["## Context", "## Decision", "## Rejected"], "{name}");
        let said = page.split("\n## ").skip(1).map(|part| part.lines().skip(1).map(str::len).sum::<usize>());
        assert!(said.min() >= Some(20), "{name} leaves a part empty");
        assert!(index.contains(&format!("]({name})")), "the index doesn't name {name}");
        pages += 1;
    }
    assert!(pages > 40, "{pages} pages");
}

#[test]
fn the_architecture_is_read_in_one_sitting() {
    let lines = read("ARCHITECTURE.md").lines().count();
    assert!(lines <= 300, "ARCHITECTURE.md has {lines} lines: decisions belong to docs/decisions");
}

#[test]
fn the_tables_document_names_every_prefix_and_attribute() {
    let document = read("docs/table.md");
    let mut told: BTreeSet<String> = BTreeSet::new();
    for text in quoted(&document) {
        told.insert(text.trim_end_matches('?').to_owned());
        told.extend(text.split_once('#').map(|(prefix, _)| format!("{prefix}#")));
    }
    let keys = read("shared/table/src/items/keys.rs");
    let constants = keys.lines().filter(|line| line.starts_with("pub const ") && line.contains("&str"));
    let prefixes = constants.filter_map(|line| line.split('"').nth(1)).map(str::to_owned);
    let forms = read(
        "shared/table/src/items/tests/snapshots/tenon_table__items__tests__every_kind_has_its_golden_form_and_reads_back.snap",
    );
    let attributes = forms.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(": "));
    let attributes = attributes.map(|(name, _)| name.to_owned());
    let missing: BTreeSet<String> = prefixes.chain(attributes).filter(|name| !told.contains(name)).collect();
    assert!(missing.is_empty(), "docs/table.md doesn't name {missing:?}");
}

#[test]
fn the_simulations_document_names_every_invariant_and_sabotage() {
    let document = read("docs/simulation.md");
    let told = quoted(&document);
    let invariants = variants(&read("shared/simulators/testkit/src/invariants.rs"), "Invariant");
    let sabotages = variants(&read("shared/simulators/testkit/src/sabotage.rs"), "Sabotage");
    let missing: Vec<&String> =
        invariants.iter().chain(&sabotages).filter(|name| !told.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "docs/simulation.md doesn't name {missing:?}");
}

#[test]
fn the_servers_document_names_every_difference() {
    let document = read("docs/servers.md");
    let rows = rows(&document, "| difference |");
    let told: Vec<String> = rows.iter().map(|row| row[0].trim_matches('`').to_owned()).collect();
    assert_eq!(told, variants(&read("tests/ec2/src/difference.rs"), "Difference"));
}

/// Alarms key on error types, so the document names exactly those of the code.
#[test]
fn the_functions_document_names_every_error_type() {
    let mut real = BTreeSet::new();
    for path in [
        "shared/runtime/src/error.rs",
        "shared/lambda/src/invocation.rs",
        "shared/lambda/src/log.rs",
        "shared/lambda/src/runtime.rs",
        "shared/lambda/src/signals.rs",
        "functions/registry/src/respond.rs",
    ] {
        let source = read(path);
        let marks = [
            "=> \"",
            "error_type: \"",
            "error_type = \"",
            "const ERROR_TYPE: &str = \"",
            "const DEADLINE: &str = \"",
            "const SET_ASIDE: &str = \"",
        ];
        let named = source.lines().filter_map(|line| {
            let rest = marks.iter().find_map(|mark| line.split_once(mark))?.1;
            rest.split_once('"').map(|(name, _)| name.to_owned())
        });
        real.extend(named);
    }
    let document = read("docs/functions.md");
    let rows = rows(&document, "| `error_type` |");
    let told: BTreeSet<String> = rows.iter().flat_map(|row| quoted(row[0])).map(str::to_owned).collect();
    assert_eq!(told, real);
}

/// The texts name no place of their writing: no machine's paths, no registries' hosts.
#[test]
fn no_file_tells_where_it_was_written() {
    let folders = ["work", "root", "home", "tmp"].map(|folder| format!("/{folder}/"));
    let hosts = ["index.crates", "static.crates", "files.pythonhosted", "registry.npmjs", "proxy.golang"];
    let hosts = hosts.map(|host| format!("{host}."));
    let mut wrong = Vec::new();
    for (path, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            let told = folders.iter().chain(&hosts).find(|word| line.contains(word.as_str()));
            wrong.extend(told.map(|word| format!("{path}:{}: `{word}`", number + 1)));
        }
    }
    assert!(wrong.is_empty(), "words that don't belong here: {wrong:#?}");
}
