//! The release: one version everywhere, and a workflow that releases nothing else.

#![expect(clippy::unwrap_used, reason = "helpers of an integration test fail as tests do")]

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use cargo_metadata::MetadataCommand;
use serde_json::Value;
use tenon_structure_tests::{document, read, root};

/// The workspace's version, which every crate has: a crate inherits it.
fn release() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

fn version_script(arguments: &[&str]) -> Output {
    Command::new(root().join("infra/version")).args(arguments).output().unwrap()
}

/// Texts of a workflow's field, in all steps of a job.
fn of_steps<'a>(job: &'a Value, field: &str) -> Vec<&'a str> {
    let steps = job["steps"].as_array().unwrap().iter();
    steps.filter_map(|step| step[field].as_str()).collect()
}

/// The jobs that a job waits for; GitHub takes one name or a list.
fn needs(job: &Value) -> BTreeSet<&str> {
    let (name, list) = (job["needs"].as_str(), job["needs"].as_array());
    name.into_iter().chain(list.into_iter().flatten().filter_map(Value::as_str)).collect()
}

#[test]
fn every_crate_has_the_release() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let other = metadata.packages.iter().filter(|package| package.version.to_string() != release());
    let other: Vec<String> = other.map(|package| format!("{} {}", package.name, package.version)).collect();
    assert!(other.is_empty(), "crates with a version of their own: {other:?}");
}

#[test]
fn the_chart_has_the_release_and_installs_its_image() {
    let chart = document("infra/chart/Chart.yaml");
    assert_eq!(chart["version"], release());
    assert_eq!(chart["appVersion"], release());
    let values = document("infra/chart/values.yaml");
    assert_eq!(values["image"]["tag"], "", "a tag here hides the chart's release");
    let agent = read("infra/chart/templates/agent.yaml");
    assert!(agent.contains("{{ .Values.image.tag | default .Chart.AppVersion }}"));
}

#[test]
fn scripts_have_the_release_and_refuse_another_tag() {
    let (release, printed) = (release(), version_script(&[]));
    assert!(printed.status.success(), "{printed:?}");
    assert_eq!(String::from_utf8_lossy(&printed.stdout).trim(), release);
    let tag = format!("v{release}");
    assert!(version_script(&[tag.as_str()]).status.success());
    for tag in ["v999.0.0", release.as_str(), ""] {
        let refused = version_script(&[tag]);
        assert!(!refused.status.success(), "`{tag}` is no tag of this release: {refused:?}");
    }
}

#[test]
fn a_release_begins_with_the_check_of_its_tag() {
    let workflow = document(".github/workflows/release.yml");
    assert_eq!(workflow["on"]["push"]["tags"][0], "v*.*.*");
    let jobs = workflow["jobs"].as_object().unwrap();
    let checks = of_steps(&jobs["version"], "run");
    assert!(checks.iter().any(|run| run.contains(r#"infra/version "$GITHUB_REF_NAME""#)), "{checks:?}");
    for (name, job) in jobs.iter().filter(|(name, _)| *name != "version") {
        assert!(needs(job).contains("version"), "the job `{name}` doesn't wait for the check");
    }
    let others: BTreeSet<&str> = jobs.keys().map(String::as_str).filter(|name| *name != "release").collect();
    assert_eq!(needs(&jobs["release"]), others, "a release waits for all that it is made of");
}

#[test]
fn workflows_pin_actions_by_commit() {
    for entry in fs::read_dir(root().join(".github/workflows")).unwrap() {
        let path = format!(".github/workflows/{}", entry.unwrap().file_name().to_string_lossy());
        let workflow = document(&path);
        for action in workflow["jobs"].as_object().unwrap().values().flat_map(|job| of_steps(job, "uses")) {
            let commit = action.split_once('@').unwrap().1;
            let pinned = commit.len() == 40 && commit.chars().all(|digit| digit.is_ascii_hexdigit());
            assert!(pinned, "{path}: `{action}` isn't pinned by a commit");
        }
    }
}
