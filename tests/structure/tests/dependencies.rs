//! The direction of dependencies and the purity of the pure crates, from `cargo metadata`.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of an integration test fail as tests do"
)]

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// The layers, lowest first: a crate may depend on crates of lower layers, and on peers in its own layer if the entry
/// allows it.
const LAYERS: &[(&str, Peers, &[&str])] = &[
    ("domain", Peers::Apart, &["tenon-domain"]),
    ("planning", Peers::Apart, &["tenon-planning"]),
    ("ports", Peers::Together, &["tenon-table", "tenon-ec2", "tenon-snapshot", "tenon-runtime"]),
    ("state", Peers::Apart, &["tenon-state"]),
    ("adapters of services", Peers::Apart, &["tenon-aws", "tenon-dynamodb", "tenon-kube"]),
    ("runtimes", Peers::Apart, &["tenon-lambda"]),
    ("launching", Peers::Apart, &["tenon-launching"]),
    ("functions and agent", Peers::Apart, DEPLOYED),
    (
        "simulators",
        Peers::Together,
        &[
            "tenon-memory-table",
            "tenon-twin",
            "tenon-twin-wire",
            "tenon-simulated-cluster",
            "tenon-replay",
            "tenon-harness",
            "tenon-region",
            "tenon-testkit",
        ],
    ),
    (
        "tools",
        Peers::Apart,
        &[
            "tenon-cli",
            "tenon-backoff",
            "tenon-simulation",
            "tenon-structure-tests",
            "tenon-dynamodb-tests",
            "tenon-ec2-tests",
            "tenon-deploy-tests",
            "tenon-iam-tests",
            "tenon-cluster-tests",
        ],
    ),
];

/// The deployed crates: the functions and the agent.
const DEPLOYED: &[&str] = &[
    "tenon-catalog",
    "tenon-images",
    "tenon-node-classes",
    "tenon-provisioner",
    "tenon-lifecycle",
    "tenon-interruption",
    "tenon-disruption",
    "tenon-registry",
    "tenon-agent",
];

/// Where the simulators are.
const SIMULATORS: &str = "shared/simulators/";

#[derive(Clone, Copy, PartialEq)]
enum Peers {
    Apart,
    Together,
}

/// Crates that the pure crates must not depend on, at any depth.
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

/// Everything that a crate needs when it is built with no optional feature, with the path that leads there.
fn below(packages: &BTreeMap<String, Package>, name: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![(name.to_owned(), name.to_owned())];
    while let Some((name, path)) = open.pop() {
        if found.contains_key(&name) {
            continue;
        }
        if let Some(package) = packages.get(&name) {
            let needed =
                package.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal && !d.optional);
            open.extend(needed.map(|d| (d.name.clone(), format!("{path} -> {}", d.name))));
        }
        found.insert(name, path);
    }
    found
}

/// With every optional feature, so that none of them brings one in.
#[test]
fn what_is_deployed_holds_no_simulator() {
    let packages = packages();
    let simulators: BTreeSet<&str> = packages
        .iter()
        .filter(|(_, package)| package.manifest_path.as_str().contains(SIMULATORS))
        .map(|(name, _)| name.as_str())
        .collect();
    assert!(simulators.len() >= 7, "the simulators are in `{SIMULATORS}`: {simulators:?}");
    for deployed in DEPLOYED {
        let mut seen = BTreeSet::new();
        let mut open = vec![(*deployed, (*deployed).to_owned())];
        while let Some((name, path)) = open.pop() {
            assert!(!simulators.contains(name), "`{deployed}` is deployed with a simulator: {path}");
            let Some(package) = packages.get(name).filter(|_| seen.insert(name)) else { continue };
            open.extend(normal_dependencies(package).map(|below| (below, format!("{path} -> {below}"))));
        }
    }
}

#[test]
fn the_pure_crates_know_nothing_impure() {
    let packages = packages();
    for pure in ["tenon-domain", "tenon-planning"] {
        for (name, path) in below(&packages, pure) {
            assert!(
                !IMPURE.contains(&name.as_str()) && !name.starts_with("aws-"),
                "{pure} is pure, but reaches `{name}`: {path}"
            );
        }
    }
}

/// The dependencies of a crate's default build, at any depth, each with its path.
fn built_for(metadata: &Metadata, name: &str) -> BTreeMap<String, String> {
    let names: BTreeMap<_, _> =
        metadata.packages.iter().map(|package| (package.id.clone(), package.name.to_string())).collect();
    let resolve = metadata.resolve.as_ref().expect("cargo metadata resolves");
    let nodes: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (node.id.clone(), node)).collect();
    let first = names.iter().find(|(_, other)| *other == name).expect("a crate of the workspace").0;
    let mut seen = BTreeMap::new();
    let mut open = vec![(first.clone(), name.to_owned())];
    while let Some((id, path)) = open.pop() {
        if seen.insert(names[&id].clone(), path.clone()).is_some() {
            continue;
        }
        let needed = nodes[&id].deps.iter().filter(|dependency| {
            dependency.dep_kinds.iter().any(|kind| kind.kind != DependencyKind::Development)
        });
        open.extend(needed.map(|d| (d.pkg.clone(), format!("{path} -> {}", names[&d.pkg]))));
    }
    seen
}

/// Adapters depend on the ports; ports, planners and simulators don't depend on the adapters.
#[test]
fn without_aws_no_sdk_is_built() {
    let metadata = MetadataCommand::new().exec().expect("cargo metadata runs in a checkout");
    let apart =
        ["tenon-cli", "tenon-simulation", "tenon-testkit", "tenon-region", "tenon-agent", "tenon-table"];
    for name in apart {
        let built = built_for(&metadata, name);
        let aws = built.iter().find(|(name, _)| name.starts_with("aws-") || *name == "tenon-dynamodb");
        assert!(aws.is_none(), "`{name}` is built without AWS, but needs {aws:?}");
    }
    let adapter = built_for(&metadata, "tenon-dynamodb");
    assert!(adapter.contains_key("aws-sdk-dynamodb") && adapter.contains_key("tenon-table"), "{adapter:?}");
}

/// One TLS, and it comes with the process's client: an adapter that brings its own would bring a second.
#[test]
fn adapters_of_services_bring_no_tls() {
    let metadata = MetadataCommand::new().exec().expect("cargo metadata runs in a checkout");
    let names: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    for other in ["aws-lc-rs", "openssl", "native-tls", "s2n-tls"] {
        assert!(!names.contains(other), "TLS is rustls with ring, but something brings `{other}`");
    }
    let manifest = &packages()["tenon-dynamodb"];
    let direct: Vec<&str> = normal_dependencies(manifest).collect();
    assert!(!direct.contains(&"aws-smithy-http-client") && !direct.contains(&"rustls"), "{direct:?}");
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
