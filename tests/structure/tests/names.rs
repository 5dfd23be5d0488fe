//! A type's name stands for one type: no two crates, and no two modules, declare the same.

#![expect(clippy::unwrap_used, reason = "helpers of an integration test fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Where types are declared that somebody reads in one sitting.
const TREES: [&str; 4] = ["agent", "cli", "functions", "shared"];
/// Folders without declarations of the product.
const SKIPPED: [&str; 4] = ["tests", "benches", "examples", "target"];
/// Associated types of a trait that has this name as well.
const ASSOCIATED: [&str; 3] = ["Ports", "Signals", "Table"];
/// Words that may stand before a declaration.
const VISIBILITIES: [&str; 4] = ["pub", "pub(crate)", "pub(super)", "pub(in"];

#[test]
fn a_name_means_one_type() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut declared: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for tree in TREES {
        for file in sources(&root.join(tree)) {
            let text = fs::read_to_string(&file).unwrap();
            for name in declarations(&text) {
                declared.entry(name).or_default().insert(file.clone());
            }
        }
    }
    assert!(declared.len() > 500, "only {} types are found", declared.len());
    declared.retain(|name, files| files.len() > 1 && !ASSOCIATED.contains(&name.as_str()));
    assert!(declared.is_empty(), "give each of these a name of its own: {declared:#?}");
}

/// Rust files below a folder, without tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() && !SKIPPED.contains(&name.as_str()) {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") && name != "tests.rs" && !name.ends_with("_tests.rs") {
            found.push(path);
        }
    }
    found
}

/// Names of the types that a file declares before its unit tests.
fn declarations(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let name = |line: &str| {
        let mut words =
            line.split_whitespace().skip_while(|word| VISIBILITIES.iter().any(|v| word.starts_with(v)));
        let kind = words.next()?;
        let name: String = words.next()?.chars().take_while(|c| c.is_alphanumeric()).collect();
        let declares = ["struct", "enum", "trait"].contains(&kind);
        (declares && name.starts_with(char::is_uppercase)).then_some(name)
    };
    code.lines().filter_map(name).collect()
}
