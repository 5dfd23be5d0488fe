//! House rules about the whole workspace; see `tests/`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tenon_region::yaml;

/// The workspace's folder.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The text of a file of the workspace.
#[must_use]
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A YAML document of the workspace, such as a stack.
#[must_use]
pub fn document(path: &str) -> Value {
    yaml::parse(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
