//! The direction of dependencies and the purity of the pure crates, from `cargo metadata`.

#![expect(clippy::expect_used, reason = "helpers of an integration test fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// The layers, lowest first: a crate may depend on crates of lower layers, and of its own where that says so.
const LAYERS: &[(&str, Peers, &[&str])] = &[
    ("domain", Peers::Apart, &["tenon-domain"]),
    ("scheduling", Peers::Apart, &["tenon-scheduling"]),
    (
        "adapters",
        Peers::Together,
        &["tenon-bound", "tenon-table", "tenon-cloud", "tenon-cluster", "tenon-entrypoint"],
    ),
    ("launching", Peers::Apart, &["tenon-launching"]),
    (
        "functions and agent",
        Peers::Apart,
        &[
            "tenon-catalog",
            "tenon-images",
            "tenon-node-classes",
            "tenon-provisioner",
            "tenon-lifecycle",
            "tenon-interruption",
            "tenon-disruption",
            "tenon-agent",
        ],
    ),
    ("a region on this machine", Peers::Apart, &["tenon-region"]),
    ("testkit", Peers::Apart, &["tenon-testkit"]),
    ("tools", Peers::Apart, &["tenon-cli", "tenon-simulation", "tenon-structure-tests"]),
];

#[derive(Clone, Copy, PartialEq)]
enum Peers {
    Apart,
    Together,
}

/// What the pure crates must not know, anywhere below them.
const IMPURE: &[&str] = &[
    "tokio",
    "async-std",
    "smol",
    "futures-executor",
    "rand",
    "rand_core",
    "rand_chacha",
    "getrandom",
    "log",
    "web-time",
    "instant",
    "tracing",
    "kube",
    "k8s-openapi",
    "lambda_runtime",
    "reqwest",
    "hyper",
    "ureq",
];

fn packages() -> BTreeMap<String, Package> {
    let metadata = MetadataCommand::new().exec().expect("cargo metadata runs in a checkout");
    metadata.packages.into_iter().map(|package| (package.name.to_string(), package)).collect()
}

fn normal_dependencies(package: &Package) -> impl Iterator<Item = &str> {
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind == DependencyKind::Normal)
        .map(|dependency| dependency.name.as_str())
}

fn layer_of(name: &str) -> Option<usize> {
    LAYERS.iter().position(|(_, _, crates)| crates.contains(&name))
}

#[test]
fn every_crate_of_ours_has_a_layer() {
    let ours: BTreeSet<String> = packages().into_keys().filter(|name| name.starts_with("tenon-")).collect();
    let unlayered: Vec<&String> = ours.iter().filter(|name| layer_of(name).is_none()).collect();
    assert!(unlayered.is_empty(), "give these crates a layer: {unlayered:?}");
}

#[test]
fn dependencies_point_downwards() {
    let packages = packages();
    let mut wrong = Vec::new();
    for (name, package) in packages.iter().filter(|(name, _)| name.starts_with("tenon-")) {
        let Some(layer) = layer_of(name) else { continue };
        for below in normal_dependencies(package).filter(|d| d.starts_with("tenon-")) {
            let Some(other) = layer_of(below) else { continue };
            let peers_allowed = LAYERS[layer].1 == Peers::Together;
            if other > layer || (other == layer && !peers_allowed) {
                wrong.push(format!("{name} -> {below}"));
            }
        }
    }
    assert!(wrong.is_empty(), "these dependencies point upwards or sideways: {wrong:#?}");
}

#[test]
fn the_pure_crates_know_nothing_impure() {
    let packages = packages();
    for pure in ["tenon-domain", "tenon-scheduling"] {
        let mut seen = BTreeSet::new();
        let mut open = vec![(pure.to_owned(), pure.to_owned())];
        while let Some((name, path)) = open.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            assert!(
                !IMPURE.contains(&name.as_str()) && !name.starts_with("aws-"),
                "{pure} is pure, but reaches `{name}`: {path}"
            );
            if let Some(package) = packages.get(&name) {
                open.extend(
                    package
                        .dependencies
                        .iter()
                        .filter(|d| d.kind == DependencyKind::Normal && !d.optional)
                        .map(|d| (d.name.clone(), format!("{path} -> {}", d.name))),
                );
            }
        }
    }
}

#[test]
fn the_command_line_needs_no_aws_sdk() {
    let packages = packages();
    let aws: Vec<&String> = packages.keys().filter(|name| name.starts_with("aws-sdk")).collect();
    let cli = &packages["tenon-cli"];
    let direct: Vec<&str> = normal_dependencies(cli).filter(|name| name.starts_with("aws-")).collect();
    assert!(
        direct.is_empty(),
        "the default build of the command line needs {direct:?}; the workspace has {aws:?}"
    );
}

#[test]
fn versions_are_declared_once_in_the_workspace() {
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo metadata runs in a checkout");
    let mut wrong = Vec::new();
    for package in metadata.packages {
        let manifest = std::fs::read_to_string(&package.manifest_path).expect("a member has a manifest");
        let mut in_dependencies = false;
        for line in manifest.lines() {
            if line.starts_with('[') {
                in_dependencies = line.contains("dependencies");
            } else if in_dependencies && line.contains('=') && !line.contains("workspace = true") {
                wrong.push(format!("{}: {line}", package.name));
            }
        }
    }
    assert!(wrong.is_empty(), "declare these in the workspace's Cargo.toml: {wrong:#?}");
}
