//! `simulate` of what a cluster returned: statuses, deletions and Namespaces count as in the cluster.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

mod common;

use common::tenon;

const SUBNETS: &str = "subnets: [{id: subnet-0a, zone: us-east-1a, zoneID: use1-az6}, \
                       {id: subnet-0b, zone: us-east-1b, zoneID: use1-az2}]";
const DELETED: &str = ", deletionTimestamp: \"2026-01-01T00:00:00Z\"";

/// A NodePool: more of its metadata, of its `spec`, and its whole status.
fn pool(meta: &str, spec: &str, status: &str) -> String {
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: default{meta}}}\nspec:\n  template:\n    spec:\n      \
         nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}\n      requirements:\n      - {{key: \
         karpenter.sh/capacity-type, operator: In, values: [reserved, on-demand]}}\n      - {{key: \
         karpenter.k8s.aws/instance-family, operator: In, values: [m5]}}\n  {spec}\nstatus: {{{status}}}\n---\n"
    )
}

fn class(meta: &str, spec: &str, status: &str) -> String {
    format!(
        "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: default{meta}}}\nspec:\n  role: nodes\n  \
         amiSelectorTerms: [{{alias: al2023@latest}}]\n  subnetSelectorTerms: [{{id: subnet-0a}}]\n  \
         securityGroupSelectorTerms: [{{id: sg-1}}]\n  {spec}\nstatus: {{{status}}}\n---\n"
    )
}

/// A pod: more of its metadata, and of its `spec`.
fn pod(name: &str, meta: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}{meta}}}\nspec:\n  containers: [{{name: a, resources: \
         {{requests: {{cpu: 1}}}}}}]\n  {spec}\n---\n"
    )
}

fn node(name: &str, meta: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{karpenter.sh/nodepool: default, \
         karpenter.sh/initialized: \"true\", topology.kubernetes.io/zone: us-east-1b}}{meta}}}\nspec: {{providerID: \
         \"aws:///us-east-1b/i-0{name}\"}}\nstatus: {{capacity: {{cpu: 4, memory: 8Gi, pods: 20}}}}\n---\n"
    )
}

/// Plans the text: the output, the errors and the status.
fn simulate(text: &str, arguments: &[&str]) -> String {
    let (status, out, errors) = tenon(&[&["simulate", "-f", "-"], arguments].concat(), text);
    format!("{out}{errors}status {}\n", status.unwrap())
}

fn check(text: &str, arguments: &[&str], expected: &[&str]) {
    let told = simulate(text, arguments);
    expected.iter().for_each(|part| assert!(told.contains(part), "`{part}` in\n{told}\nof\n{text}"));
}

fn plain() -> String {
    pool("", "", "") + &class("", "", SUBNETS)
}

#[test]
fn reservations_of_a_status_are_used_behind_the_gate() {
    let listed = "capacityReservations: [{id: cr-1, availabilityZone: us-east-1a, instanceType: m5.large, \
                  instanceMatchCriteria: targeted, ownerID: \"123456789012\", reservationType: default, state: active}, \
                  {id: cr-2, availabilityZone: us-east-1a, instanceType: m5.xlarge, reservationType: capacity-block}]";
    let class = class("", "capacityReservationSelectorTerms: [{id: cr-1}]", &format!("{SUBNETS}, {listed}"));
    let text = pool("", "", "") + &class + &pod("web", "", "");
    check(
        &text,
        &[],
        &["on-demand", "NodePool `default`: the gate `ReservedCapacity` is Disabled", "status 0"],
    );
    let open = ["--reserved-capacity", "Enabled"];
    check(
        &text,
        &open,
        &[
            "reserved",
            "us-east-1a",
            "1 pod: 1 new node for 0 USD/h (no bound: capacity reservations are paid for anyway), 1 node in capacity \
             reservations, not in the price",
            "room for every node in capacity reservations `cr-1`",
            "interruptible reservations `cr-2`",
            "status 0",
        ],
    );
    check(&text, &[&open[..], &["-o", "json"]].concat(), &["\"priceUsdPerHour\": \"0.00000001\""]);
    let limited = text.replace("  template:", "  limits: {cpu: 1}\n  template:");
    check(
        &limited,
        &open,
        &["the `cpu` limit leaves no room", "1 pod: 0 new nodes for 0 USD/h (at least 0)"],
    );
    check(&text, &["--reserved-capacity", "yes"], &["expected `Enabled` or `Disabled`", "status 2"]);
    let unresolved = text.replace(listed, "conditions: []");
    check(&unresolved, &open, &["has no `status.capacityReservations`", "on-demand", "status 0"]);
}

#[test]
fn a_pod_that_isnt_planned_for_is_explained_by_what_places_it() {
    let text = plain()
        + &node("a", "")
        + &pod("waits", "", "")
        + &pod("runs", "", "nodeName: a")
        + &pod("other", "", "schedulerName: volcano")
        + &pod("ended", "", "nodeName: a").replace("---", "status: {phase: Succeeded}\n---");
    let check = |name: &str, expected: &str| check(&text, &["--explain", name], &[expected]);
    check("waits", "rules about other pods aren't looked at");
    check("runs", "pod `default/runs` isn't planned for: it runs on node `a`");
    check("default/other", "pod `default/other` isn't planned for: scheduler `volcano` places it");
    check("ended", "pod `default/ended` isn't planned for: it has ended");
    check("gone", "no pending pod `gone`");
}

#[test]
fn a_controllers_pod_is_explained_by_its_whole_name_or_a_short_one() {
    let web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2, selector: {matchLabels: {a: b}}, \
               template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}\n";
    let text = plain().replace("on-demand]", "spot]") + web;
    for name in ["default/deployment/web-1", "default/web-1", "web-1"] {
        let told = ["POD default/deployment/web-1: on NodeClaim", "spot      ~0.04416"];
        check(&text, &["--explain", name], &told);
    }
    check(&text, &["--explain", "other/web-1"], &["no pending pod `other/web-1`"]);
}

#[test]
fn what_is_not_ready_or_is_being_deleted_gets_no_nodes() {
    let check = |pool: &str, class: &str, expected: &[&str]| {
        check(&format!("{pool}{class}{}", pod("web", "", "")), &[], expected);
    };
    let (ready_pool, ready_class) = (pool("", "", ""), class("", "", SUBNETS));
    let not = |reason: &str| format!("conditions: [{{type: Ready, status: \"False\", reason: {reason}}}]");
    let conditions = format!("{SUBNETS}, {}", not("SubnetsNotReady"));
    let told = [
        "EC2NodeClass `default` isn't ready: SubnetsNotReady",
        "NodePool `default` gets no new nodes",
        "status 1",
    ];
    check(&ready_pool, &class("", "", &conditions), &told);
    let told = ["EC2NodeClass `default` isn't ready: it is being deleted", "status 1"];
    check(&ready_pool, &class(DELETED, "", SUBNETS), &told);
    let told = [
        "NodePool `default` gets no new nodes: NodePool `default` isn't ready: NoClass: the NodePool's conditions say what to do",
        "status 1",
    ];
    check(&pool("", "", &not("NoClass")), &ready_class, &told);
    let message =
        format!("{}, message: \"no EC2NodeClass `default`.\"}}]", not("NoClass").trim_end_matches("}]"));
    let told = ["NodePool `default` isn't ready (NoClass): no EC2NodeClass `default`\n", "status 1"];
    check(&pool("", "", &message), &ready_class, &told);
    let conditions = format!("{SUBNETS}, conditions: [{{type: Ready, status: \"True\", reason: Ready}}]");
    let told = ["though its own `Ready` isn't True (NoClass): EC2NodeClass `default` is ready", "status 0"];
    check(&pool("", "", &not("NoClass")), &class("", "", &conditions), &told);
    let told = [
        "NodePool `default` is being deleted, and there is no other: create one",
        "ignoring NodePool `default`: it is being deleted",
        "no NodePool is left to plan with",
        "status 1",
    ];
    check(&pool(DELETED, "", ""), &ready_class, &told);
    let told = ["OnlyStaticNodePools", "NodePool `default` is static (`spec.replicas`)", "status 1"];
    check(&pool("", "replicas: 2", ""), &ready_class, &told);
    let kubelet = "kubelet: {maxPods: \"min(10, max_pods)\"}";
    let told =
        ["isn't ready: KubeletExpressionsDisabled", "instead of those of `spec.kubelet.maxPods`", "status 1"];
    check(&ready_pool, &class("", kubelet, SUBNETS), &told);
}

/// Zone ids are an account's own.
#[test]
fn the_zone_ids_of_a_class_are_the_accounts() {
    let asking =
        |id: &str| plain() + &pod("web", "", &format!("nodeSelector: {{topology.k8s.aws/zone-id: {id}}}"));
    check(&asking("use1-az2"), &[], &["us-east-1b", "status 0"]);
    check(&asking("use1-az6"), &[], &["us-east-1a", "status 0"]);
    check(&asking("use1-az4"), &[], &["status 1"]);
}

#[test]
fn a_namespace_has_its_name_as_a_label() {
    let asking = |selector: &str| {
        let term = format!(
            "{{topologyKey: topology.kubernetes.io/zone, labelSelector: {{matchLabels: {{app: db}}}}, namespaceSelector: \
             {{matchLabels: {{{selector}}}}}}}"
        );
        let affinity = format!(
            "affinity: {{podAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{term}]}}}}"
        );
        let other = pod("db", ", namespace: prod, labels: {app: db}", "nodeName: old");
        plain() + &node("old", "") + &other + &pod("web", "", &affinity)
    };
    check(&asking("kubernetes.io/metadata.name: prod"), &[], &["status 0"]);
    check(&asking("kubernetes.io/metadata.name: other"), &[], &["status 1"]);
    check(&asking("env: prod"), &[], &["the files lack `default`, `prod`", "status 1"]);
    let given = "apiVersion: v1\nkind: Namespace\nmetadata: {name: prod, labels: {env: prod}}\n---\n";
    check(&format!("{given}{}", asking("env: prod")), &[], &["the files lack `default`", "status 0"]);
}

#[test]
fn pods_of_nodes_that_are_being_deleted_need_another_place() {
    let daemon = pod(
        "agent",
        ", ownerReferences: [{kind: DaemonSet, name: agent, controller: true}]",
        "nodeName: old",
    );
    let pods = pod("web", "", "nodeName: old") + &daemon;
    let deleted = format!("{}{}{pods}", plain(), node("old", DELETED));
    check(&deleted, &[], &["1 pod: 1 new node", "status 0"]);
    let claim = format!(
        "apiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {{name: default-abcde{DELETED}}}\nspec:\n  nodeClassRef: \
         {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}\n  requirements: []\nstatus: {{nodeName: \
         old}}\n---\n"
    );
    check(&format!("{}{}{claim}{pods}", plain(), node("old", "")), &[], &["1 pod: 1 new node", "status 0"]);
    check(&format!("{}{}{pods}", plain(), node("old", "")), &[], &["0 pods: 0 new nodes", "status 0"]);
}

#[test]
fn nodes_have_the_types_that_the_images_of_a_status_are_for() {
    let amis = "amis: [{id: ami-1, name: arm, requirements: [{key: kubernetes.io/arch, operator: In, values: [arm64]}]}]";
    let rest = class("", "", &format!("{SUBNETS}, {amis}")) + &pod("web", "", "");
    let both = pool("", "", "").replace("[m5]", "[m5, m7g]") + &rest;
    check(&both, &["-o", "json"], &["\"m7g.", "status 0"]);
    assert!(!simulate(&both, &["-o", "json"]).contains("\"m5."));
    check(&(pool("", "", "") + &rest), &[], &["no instance type matches", "status 1"]);
}

#[test]
fn a_starting_node_has_the_devices_of_its_node_claim() {
    let starting = node("new", "").replace("karpenter.sh/initialized: \"true\", ", "");
    let asks = pod("web", "", "").replace(
        "{requests: {cpu: 1}}",
        "{requests: {cpu: 1, nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}}",
    );
    let claim = |status: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {{name: default-abcde}}\nspec:\n  nodeClassRef: \
             {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}\n  requirements: []\nstatus: {{nodeName: \
             new{status}}}\n---\n"
        )
    };
    let text = |status: &str| format!("{}{starting}{}{asks}", plain(), claim(status));
    let allocatable = ", allocatable: {cpu: 4, memory: 8Gi, pods: 20, nvidia.com/gpu: 1}";
    check(&text(allocatable), &[], &["1 pod: 0 new nodes", "status 0"]);
    check(&text(""), &[], &["status 1"]);
}
