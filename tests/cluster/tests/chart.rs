//! The chart in Helm itself: what it refuses, what it renders, and that a real cluster accepts it.
//!
//! Run by `tests/servers/helm -- tests/servers/control-plane -- cargo test --workspace --test chart -- --ignored`,
//! after `infra/build host`.

#![expect(clippy::expect_used, clippy::panic, reason = "tests fail by them")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tenon_cluster_tests::{Cluster, agent_binary, definitions};
use tenon_domain::manifest;
use tenon_snapshot::object::{self, list, text};

/// The rights in the tests of the port.
const RBAC: &str = include_str!("../../../infra/chart/rbac.yaml");
/// The namespace of those.
const NAMESPACE: &str = "tenon-system";
/// The values that docs/agent.md requires.
const GIVEN: [&str; 4] = [
    "cluster=prod",
    "region=us-east-1",
    "queue=https://sqs.us-east-1.amazonaws.com/111122223333/tenon-agent-prod",
    "image.repository=example.com/tenon-agent",
];
/// Pods are made and run, on two busy cores.
const SOON: Duration = Duration::from_secs(60);

/// Runs Helm.
fn helm(arguments: &[&str]) -> Output {
    let program = std::env::var("TENON_HELM").expect("run it by tests/servers/helm");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command.output().expect("Helm can be run")
}

fn with<'a>(arguments: &[&'a str], values: &[&'a str]) -> Vec<&'a str> {
    arguments.iter().copied().chain(values.iter().flat_map(|value| ["--set", value])).collect()
}

/// Helm's output on success.
fn said(arguments: &[&str]) -> String {
    let output = helm(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "helm {arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("Helm writes UTF-8")
}

/// The objects of the chart.
fn rendered(namespace: &str, values: &[&str]) -> Vec<Value> {
    let values: Vec<&str> = GIVEN.iter().chain(values).copied().collect();
    let template = ["template", "tenon", "infra/chart", "--namespace", namespace, "--kube-version", "1.35"];
    manifest::objects("chart", &said(&with(&template, &values)))
}

fn find<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects
        .iter()
        .find(|one| text(one, "/kind") == Some(kind))
        .unwrap_or_else(|| panic!("there is no {kind}"))
}

/// Roles and bindings, by kind, namespace and name.
fn rights(objects: Vec<Value>) -> BTreeMap<(String, String, String), Value> {
    let api = |one: &Value| text(one, "/apiVersion") == Some("rbac.authorization.k8s.io/v1");
    let key = |one: &Value| {
        let kind = text(one, "/kind").unwrap_or_default().to_owned();
        (kind, object::namespace(one).to_owned(), object::name(one).to_owned())
    };
    objects.into_iter().filter(api).map(|one| (key(&one), one)).collect()
}

#[test]
#[ignore = "needs tests/servers/helm"]
fn lint_finds_nothing() {
    said(&["lint", "--strict", "infra/chart"]);
    said(&with(&["lint", "--strict", "infra/chart"], &GIVEN));
}

#[test]
#[ignore = "needs tests/servers/helm"]
fn wrong_values_are_refused_with_what_is_wrong() {
    let refused = |values: &[&str]| {
        let output = helm(&with(&["template", "tenon", "infra/chart"], values));
        assert!(!output.status.success(), "{values:?} is taken");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (value, told) in [
        ("replicas=two", "'/replicas': got string, want integer"),
        ("queue=tenon-agent-prod", "'/queue': 'tenon-agent-prod' does not match pattern '^(https?://.+)?$'"),
        ("region=Ireland", "'/region': 'Ireland' does not match"),
        ("cluster=a b", "'/cluster': 'a b' does not match"),
        ("image.tag=110", "'/image/tag': got number, want string"),
        ("image.name=x", "'/image': additional properties 'name' not allowed"),
        ("replica=3", "additional properties 'replica' not allowed"),
        ("log=", "'/log'"),
    ] {
        let values: Vec<&str> = GIVEN.into_iter().chain([value]).collect();
        let message = refused(&values);
        println!("{message}");
        assert!(message.contains(told), "{value}: {message}");
    }
    for (missing, told) in [
        ("cluster=", "cluster: the cluster's name"),
        ("region=", "region: the region of the stacks"),
        ("queue=", "queue: the output AgentQueueUrl"),
        ("image.repository=", "image.repository: where the agent's image is"),
    ] {
        let name = missing.trim_end_matches('=');
        let others = GIVEN.into_iter().filter(|value| !value.starts_with(name));
        let message = refused(&others.collect::<Vec<_>>());
        assert!(message.contains(told), "without {name}: {message}");
    }
}

#[test]
#[ignore = "needs tests/servers/helm"]
fn rights_are_those_that_the_port_is_tested_with() {
    let tested = rights(manifest::objects("rbac.yaml", RBAC));
    assert_eq!(rights(rendered(NAMESPACE, &[])), tested);
    for namespace in ["platform", "kube-system"] {
        let rendered = rights(rendered(namespace, &[]));
        assert_eq!(rendered.len(), tested.len(), "in {namespace} none takes another's place");
        for ((kind, of, name), object) in &tested {
            let of = if of == NAMESPACE { namespace } else { of };
            let there = rendered.get(&(kind.clone(), of.to_owned(), name.clone()));
            let there = there.unwrap_or_else(|| panic!("there is no {kind} {of}/{name}"));
            assert_eq!(there.get("rules"), object.get("rules"), "{kind} {of}/{name}");
            for subject in list(there, "/subjects") {
                assert_eq!(text(subject, "/namespace"), Some(namespace), "{kind} {of}/{name}");
            }
        }
    }
}

#[test]
#[ignore = "needs tests/servers/helm"]
fn the_binary_is_told_all_that_it_needs() {
    let objects = rendered(NAMESPACE, &["installation=two", "table=arn:aws:dynamodb:us-east-1:1:table/t"]);
    let deployment = find(&objects, "Deployment");
    let container = "/spec/template/spec/containers/0";
    let value = |entry: &Value| {
        let field = text(entry, "/valueFrom/fieldRef/fieldPath").map(|path| match path {
            "metadata.name" => "tenon-agent-0".to_owned(),
            "metadata.namespace" => NAMESPACE.to_owned(),
            other => panic!("nobody asked for `{other}`"),
        });
        text(entry, "/value").map(str::to_owned).or(field).expect("a variable has a value")
    };
    let entries = list(deployment, &format!("{container}/env"));
    let name = |entry: &Value| text(entry, "/name").expect("a variable has a name").to_owned();
    let env: BTreeMap<String, String> = entries.iter().map(|entry| (name(entry), value(entry))).collect();
    let told = |name: &str| env.get(name).map(String::as_str);
    assert_eq!(told("TENON_TABLE"), Some("arn:aws:dynamodb:us-east-1:1:table/t"));
    assert_eq!((told("TENON_BUS"), told("TENON_INSTALLATION")), (Some("two"), Some("two")));
    let run = |env: &BTreeMap<String, String>| {
        // An empty environment, so that no cluster is found; the agent looks for one after reading its configuration.
        let mut command = Command::new(agent_binary());
        let output = command.env_clear().envs(env).env("TENON_LISTEN", "127.0.0.1:0").output();
        let output = output.expect("the binary runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("it logs UTF-8"))
    };
    let (status, log) = run(&env);
    assert!(status == Some(1) && log.contains(r#""error_type":"Start""#), "{status:?}: {log}");
    for name in env.keys().filter(|name| *name != "RUST_LOG") {
        let mut fewer = env.clone();
        fewer.remove(name);
        let (status, log) = run(&fewer);
        assert!(status == Some(2) && log.contains(&format!("`{name}` is missing")), "{status:?}: {log}");
    }
}

async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            println!("{what}: after {:.1?}", began.elapsed());
            return found;
        }
        assert!(began.elapsed() < SOON, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
#[ignore = "needs tests/servers/helm and tests/servers/control-plane"]
async fn a_real_cluster_takes_it_and_lets_it_go() {
    let admin = Cluster::admin().await;
    let namespace = admin.namespace("chart").await;
    for object in rendered(
        &namespace,
        &["serviceAccount.annotations.eks\\.amazonaws\\.com/role-arn=arn:aws:iam::1:role/a"],
    ) {
        let created = admin.try_create(&object).await;
        created.unwrap_or_else(|status| panic!("{status}\n{object:#}"));
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": namespace},
        "spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"},
            "capacity": {"cpu": "2", "memory": "4Gi", "pods": "10"}}});
    admin.create_node(&node.to_string()).await;
    // As docs/agent.md installs it.
    let install =
        ["install", "tenon", "infra/chart", "--namespace", namespace.as_str(), "--create-namespace"];
    said(&with(&install, &GIVEN));
    for definition in definitions() {
        let name = object::name(&definition.object);
        let api = admin.api_of(&definition.object).await;
        assert!(api.get_opt(name).await.expect("it answers").is_some(), "{name} isn't installed");
    }
    let deployments: Api<Deployment> = Api::namespaced(admin.client(), &namespace);
    // Both run on an unregistered node: they are what registers it.
    until("two replicas are ready", async || {
        let found = deployments.get("tenon-agent").await.expect("it is installed");
        (found.status?.ready_replicas == Some(2)).then_some(())
    })
    .await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(admin.client(), &namespace);
    until("one of them may be evicted", async || {
        let found = budgets.get("tenon-agent").await.expect("it is installed");
        (found.status?.disruptions_allowed == 1).then_some(())
    })
    .await;
    let upgrade = ["upgrade", "tenon", "infra/chart", "--namespace", namespace.as_str(), "--reuse-values"];
    said(&with(&upgrade, &["replicas=1"]));
    until("one replica is left", async || {
        let found = deployments.get("tenon-agent").await.expect("it is installed");
        (found.status?.replicas == Some(1)).then_some(())
    })
    .await;
    said(&["uninstall", "tenon", "--namespace", namespace.as_str()]);
    assert_eq!(deployments.list(&ListParams::default()).await.expect("it answers").items.len(), 0);
    for definition in definitions() {
        let name = object::name(&definition.object);
        let api = admin.api_of(&definition.object).await;
        assert!(api.get_opt(name).await.expect("it answers").is_some(), "{name} and the users' objects stay");
    }
    admin.delete(&node).await;
}
