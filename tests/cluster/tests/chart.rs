//! The chart in Helm itself: what it refuses, what it renders, and that a real cluster accepts it.
//!
//! Run by `tests/servers/helm -- tests/servers/control-plane -- cargo test --workspace --test chart -- --ignored`,
//! after `infra/build host`.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of an integration test fail as tests do")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams, Patch, PatchParams};
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
        ("runOnOwnNodes=yes", "'/runOnOwnNodes': got string, want boolean"),
        ("nodeSelector.pool=1", "'/nodeSelector/pool': got number, want string"),
        ("affinity.node=x", "'/affinity': additional properties 'node' not allowed"),
        (
            "affinity.nodeAffinity.required=x",
            "'/affinity/nodeAffinity': additional properties 'required' not allowed",
        ),
        ("tolerations[0].operator=Is", "'/tolerations/0/operator': value must be one of"),
        ("tolerations[0].keys=a", "'/tolerations/0': additional properties 'keys' not allowed"),
        ("topologySpreadConstraints[0].maxSkew=0", "'/topologySpreadConstraints/0': missing properties"),
        ("imagePullSecrets[0]=registry", "'/imagePullSecrets/0': got string, want object"),
        // The selectors of the Deployment and the PodDisruptionBudget.
        ("podLabels.app\\.kubernetes\\.io/name=x", "'/podLabels/app.kubernetes.io~1name': false schema"),
        ("podAnnotations.a=1", "'/podAnnotations/a': got number, want string"),
        ("networkPolicy.enable=true", "'/networkPolicy': additional properties 'enable' not allowed"),
        ("serviceMonitor.interval=often", "'/serviceMonitor/interval': 'often' does not match pattern"),
        ("serviceMonitor.enabled=on", "'/serviceMonitor/enabled': got string, want boolean"),
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

/// The template of the agent's pods.
fn pods_template(values: &[&str]) -> Value {
    let objects = rendered(NAMESPACE, values);
    find(&objects, "Deployment").pointer("/spec/template").expect("a Deployment has a template").clone()
}

/// Keys of the tolerations.
fn tolerated(template: &Value) -> Vec<&str> {
    list(template, "/spec/tolerations").iter().filter_map(|one| text(one, "/key")).collect()
}

const NODE_TERMS: &str =
    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
/// The taint of a node that the agent hasn't registered yet.
const UNREGISTERED: &str = "karpenter.sh/unregistered";

#[test]
#[ignore = "needs tests/servers/helm"]
fn the_agent_stays_off_own_nodes_unless_told_otherwise() {
    let off = json!({"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"});
    let default = pods_template(&[]);
    assert_eq!(default.pointer(NODE_TERMS), Some(&json!([{"matchExpressions": [off]}])));
    // A node whose kubelet doesn't set the label has the taint.
    assert!(!tolerated(&default).contains(&UNREGISTERED));

    let terms = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let chosen = [
        format!("{terms}[0].matchExpressions[0].key=pool"),
        format!("{terms}[0].matchExpressions[0].operator=Exists"),
        format!("{terms}[1].matchFields[0].key=metadata.name"),
        format!("{terms}[1].matchFields[0].operator=In"),
        format!("{terms}[1].matchFields[0].values[0]=a"),
        "affinity.podAntiAffinity.x=y".to_owned(),
    ];
    let chosen: Vec<&str> = chosen.iter().map(String::as_str).collect();
    let pool = json!({"key": "pool", "operator": "Exists"});
    let name = json!({"key": "metadata.name", "operator": "In", "values": ["a"]});
    let kept = pods_template(&chosen);
    let both = json!([{"matchExpressions": [pool, off]}, {"matchFields": [name], "matchExpressions": [off]}]);
    assert_eq!(kept.pointer(NODE_TERMS), Some(&both), "one term without the rule lets own nodes in");
    assert_eq!(kept.pointer("/spec/affinity/podAntiAffinity"), Some(&json!({"x": "y"})));

    let own = pods_template(&["runOnOwnNodes=true"]);
    assert_eq!(own.pointer("/spec/affinity"), None);
    assert!(tolerated(&own).contains(&UNREGISTERED));
    let own: Vec<&str> = chosen.into_iter().chain(["runOnOwnNodes=true"]).collect();
    let both = json!([{"matchExpressions": [pool]}, {"matchFields": [name]}]);
    assert_eq!(pods_template(&own).pointer(NODE_TERMS), Some(&both));
}

#[test]
#[ignore = "needs tests/servers/helm"]
fn pods_have_what_the_values_add() {
    let default = pods_template(&[]);
    let linux = json!({"kubernetes.io/os": "linux"});
    assert_eq!(default.pointer("/spec/nodeSelector"), Some(&linux));
    let keys = list(&default, "/spec/topologySpreadConstraints").iter();
    let keys: Vec<_> = keys.filter_map(|one| text(one, "/topologyKey")).collect();
    assert_eq!(keys, ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]);
    let agents = json!({"matchLabels": {"app.kubernetes.io/name": "tenon-agent"}});
    let selectors = list(&default, "/spec/topologySpreadConstraints").iter();
    assert!(selectors.map(|one| &one["labelSelector"]).all(|selector| *selector == agents));
    for absent in ["/metadata/annotations", "/spec/imagePullSecrets"] {
        assert_eq!(default.pointer(absent), None);
    }

    let given = pods_template(&[
        "nodeSelector.pool=system",
        "tolerations[0].key=system",
        "tolerations[0].operator=Exists",
        "topologySpreadConstraints[0].maxSkew=2",
        "topologySpreadConstraints[0].topologyKey=rack",
        "topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
        "topologySpreadConstraints[0].labelSelector.matchLabels.a=b",
        "imagePullSecrets[0].name=registry",
        "podLabels.team=platform",
        "podAnnotations.a=b",
    ]);
    let selector = json!({"kubernetes.io/os": "linux", "pool": "system"});
    assert_eq!(given.pointer("/spec/nodeSelector"), Some(&selector));
    let added: Vec<&str> = tolerated(&default).into_iter().chain(["system"]).collect();
    assert_eq!(tolerated(&given), added);
    let spread = json!([{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"a": "b"}}}]);
    assert_eq!(given.pointer("/spec/topologySpreadConstraints"), Some(&spread));
    assert_eq!(given.pointer("/spec/imagePullSecrets"), Some(&json!([{"name": "registry"}])));
    let labels = json!({"app.kubernetes.io/name": "tenon-agent", "team": "platform"});
    assert_eq!(given.pointer("/metadata/labels"), Some(&labels));
    assert_eq!(given.pointer("/metadata/annotations"), Some(&json!({"a": "b"})));
}

#[test]
#[ignore = "needs tests/servers/helm"]
fn a_network_policy_and_a_service_monitor_are_made_where_they_are_asked_for() {
    let kinds = |values: &[&str]| -> Vec<String> {
        let objects = rendered(NAMESPACE, values);
        let kinds = objects.iter().filter_map(|one| text(one, "/kind"));
        let optional = ["NetworkPolicy", "Service", "ServiceMonitor"];
        kinds.filter(|kind| optional.contains(kind)).map(str::to_owned).collect()
    };
    assert!(kinds(&[]).is_empty());
    assert_eq!(kinds(&["networkPolicy.enabled=true"]), ["NetworkPolicy"]);
    assert_eq!(kinds(&["serviceMonitor.enabled=true"]), ["Service", "ServiceMonitor"]);

    let values = ["networkPolicy.enabled=true", "serviceMonitor.enabled=true", "serviceMonitor.labels.a=b"];
    let rule = "serviceMonitor.metricRelabelings[0].action=drop";
    let objects = rendered(NAMESPACE, &[&values[..], &["serviceMonitor.interval=30s", rule]].concat());
    let policy = find(&objects, "NetworkPolicy");
    let pods = json!({"app.kubernetes.io/name": "tenon-agent"});
    assert_eq!(policy["spec"]["podSelector"]["matchLabels"], pods);
    assert_eq!(policy["spec"]["ingress"], json!([{"ports": [{"protocol": "TCP", "port": 8080}]}]));
    let let_out = list(policy, "/spec/egress").iter().flat_map(|rule| list(rule, "/ports"));
    let let_out: Vec<_> = let_out.map(|port| (port["port"].as_u64(), text(port, "/protocol"))).collect();
    let expected = [(53, "UDP"), (53, "TCP"), (443, "TCP"), (6443, "TCP"), (80, "TCP")];
    assert_eq!(let_out, expected.map(|(port, protocol)| (Some(port), Some(protocol))));
    let credentials =
        json!([{"ipBlock": {"cidr": "169.254.170.23/32"}}, {"ipBlock": {"cidr": "fd00:ec2::23/128"}}]);
    assert_eq!(policy["spec"]["egress"][2]["to"], credentials, "port 80 of nothing else");

    let (service, monitor) = (find(&objects, "Service"), find(&objects, "ServiceMonitor"));
    assert_eq!(service["spec"]["selector"], pods);
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"]);
    let endpoint = json!([{"port": service["spec"]["ports"][0]["name"], "path": "/metrics", "interval": "30s",
        "metricRelabelings": [{"action": "drop"}]}]);
    assert_eq!(monitor["spec"]["endpoints"], endpoint);
    assert_eq!(text(monitor, "/metadata/labels/a"), Some("b"));
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

/// A Node of a NodePool, which kwok keeps Ready.
fn own_node(name: &str, taints: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "default", "kubernetes.io/os": "linux"}},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"},
            "capacity": {"cpu": "2", "memory": "4Gi", "pods": "10"}}})
}

/// Lets a namespace have pods of the Pod Security Standard `restricted` alone.
async fn restrict(admin: &Cluster, namespace: &str) {
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let object =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}});
    admin.apply_object(&object).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "namespace": namespace},
        "spec": {"containers": [{"name": "one", "image": "example.com/other"}]}});
    let refused = admin.try_create(&pod).await.expect_err("it isn't restricted");
    assert!(refused.message.contains("violates PodSecurity \"restricted:latest\""), "{}", refused.message);
}

/// The replicas that wait, because the only nodes are of a NodePool: one is registered, the other isn't.
async fn the_default_agent_waits(admin: &Cluster, namespace: &str) {
    let pods: Api<Pod> = Api::namespaced(admin.client(), namespace);
    let waits = |pod: &Pod| {
        let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
        let told: Vec<_> = conditions.filter_map(|one| one.message.as_deref()).collect();
        let reasons =
            ["1 node(s) didn't match Pod's node affinity/selector", "1 node(s) had untolerated taint"];
        reasons.iter().all(|reason| told.iter().any(|message| message.contains(reason)))
    };
    until("two replicas wait for another node", async || {
        let found = pods.list(&ListParams::default()).await.expect("pods can be listed").items;
        (found.iter().filter(|pod| waits(pod)).count() == 2).then_some(())
    })
    .await;
}

/// Helm owns the definitions that it installed, so docs/agent.md upgrades them by force.
async fn definitions_are_upgraded_by_force(admin: &Cluster) {
    for definition in definitions() {
        let name = object::name(&definition.object);
        let api = admin.api_of(&definition.object).await;
        let mut newer = definition.object.clone();
        let schema = newer.pointer_mut("/spec/versions/0/schema/openAPIV3Schema");
        let schema = schema.and_then(Value::as_object_mut).expect("a definition has a schema");
        schema.insert("description".to_owned(), "A newer release's.".into());
        let apply = PatchParams::apply("kubectl");
        let refused = api.patch(name, &apply, &Patch::Apply(&newer)).await;
        assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 409), "{refused:?}");
        let taken = api.patch(name, &apply.clone().force(), &Patch::Apply(&newer)).await;
        taken.unwrap_or_else(|error| panic!("`{name}` isn't upgraded: {error}"));
        admin.apply_object(&definition.object).await;
    }
}

#[tokio::test]
#[ignore = "needs tests/servers/helm and tests/servers/control-plane"]
async fn a_real_cluster_takes_it_and_lets_it_go() {
    let admin = Cluster::admin().await;
    let namespace = admin.namespace("chart").await;
    restrict(&admin, &namespace).await;
    for object in rendered(
        &namespace,
        &[
            "serviceAccount.annotations.eks\\.amazonaws\\.com/role-arn=arn:aws:iam::1:role/a",
            "networkPolicy.enabled=true",
        ],
    ) {
        let created = admin.try_create(&object).await;
        created.unwrap_or_else(|status| panic!("{status}\n{object:#}"));
    }
    let unregistered = json!([{"key": UNREGISTERED, "effect": "NoExecute"}]);
    let node = own_node(&namespace, &unregistered);
    let registered = own_node(&format!("{namespace}-registered"), &json!([]));
    admin.create_node(&node.to_string()).await;
    admin.create_node(&registered.to_string()).await;
    // As docs/agent.md installs it.
    let install =
        ["install", "tenon", "infra/chart", "--namespace", namespace.as_str(), "--create-namespace"];
    said(&with(&install, &GIVEN));
    for definition in definitions() {
        let name = object::name(&definition.object);
        let api = admin.api_of(&definition.object).await;
        assert!(api.get_opt(name).await.expect("it answers").is_some(), "{name} isn't installed");
    }
    definitions_are_upgraded_by_force(&admin).await;
    the_default_agent_waits(&admin, &namespace).await;
    admin.delete(&registered).await;
    let upgrade = ["upgrade", "tenon", "infra/chart", "--namespace", namespace.as_str(), "--reuse-values"];
    said(&with(&upgrade, &["runOnOwnNodes=true"]));
    the_upgraded_agent_runs(&admin, &namespace).await;
    let deployments: Api<Deployment> = Api::namespaced(admin.client(), &namespace);
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

/// Both replicas run on an unregistered node: they are what registers it.
async fn the_upgraded_agent_runs(admin: &Cluster, namespace: &str) {
    let deployments: Api<Deployment> = Api::namespaced(admin.client(), namespace);
    until("two replicas are ready", async || {
        let found = deployments.get("tenon-agent").await.expect("it is installed");
        let status = found.status?;
        (status.updated_replicas == Some(2) && status.ready_replicas == Some(2)).then_some(())
    })
    .await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(admin.client(), namespace);
    until("one of them may be evicted", async || {
        let found = budgets.get("tenon-agent").await.expect("it is installed");
        (found.status?.disruptions_allowed == 1).then_some(())
    })
    .await;
}
