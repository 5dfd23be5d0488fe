use super::*;
use crate::api::node_class::{InstanceProfile, NodeIdentity, PlacementGroupSelector, SubnetSelectorTerm};
use crate::api::pod::{DoNotDisrupt, PodOrigin, PodVolume};
use crate::catalog::AmiFamily;
use crate::catalog::settings::{ConnectionTracking, InterfaceType, NestedVirtualization};
use crate::resources::ResourceName;
use proptest::prelude::*;

const POOL: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: default
spec:
  template:
    metadata:
      labels:
        team: web
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - key: karpenter.sh/capacity-type
          operator: In
          values: [spot, on-demand]
        - key: karpenter.k8s.aws/instance-cpu
          operator: Gt
          values: [\"3\"]
      expireAfter: Never
  limits:
    cpu: 1000
    memory: 1000Gi
";
const CLASS: &str = "\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata:
  name: default
spec:
  amiFamily: AL2023
  role: path/to/nodes
  amiSelectorTerms:
    - tags: {pipeline: golden}
      owner: self
  subnetSelectorTerms:
    - tags: {karpenter.sh/discovery: demo}
  securityGroupSelectorTerms:
    - name: nodes
  kubelet:
    maxPods: 58
    kubeReserved: {cpu: 200m}
    evictionHard: {memory.available: 5%}
  blockDeviceMappings:
    - deviceName: /dev/xvda
      ebs: {volumeSize: 50Gi, volumeType: gp3}
";
const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {karpenter.sh/do-not-disrupt: 1h30m}
    spec:
      priorityClassName: high
      containers:
        - name: web
          resources: {requests: {cpu: 900m, memory: 1.5Gi}}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: DoNotSchedule
          labelSelector: {matchLabels: {app: web}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
";

fn errors(text: &str) -> Vec<String> {
    match read_files(&[("a.yaml", text)]) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.0.iter().map(ToString::to_string).collect(),
    }
}

/// Expects exactly these lines in this order.
fn check(text: &str, expected: &[&str]) {
    assert_eq!(errors(text), expected, "{text}");
}

fn read(text: &str) -> ReadManifests {
    read_files(&[("a.yaml", text)]).unwrap_or_else(|errors| panic!("{errors}"))
}

fn warnings(text: &str) -> Vec<String> {
    read(text).warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_typo_in_an_operator() {
    check(
        &POOL.replace("operator: Gt", "operator: Gtt"),
        &[
            "a.yaml:17: spec.template.spec.requirements[1].operator: `Gtt` is not an operator: expected `In`, `NotIn`, \
           `Exists`, `DoesNotExist`, `Gt`, `Lt`, `Gte`, `Lte` (did you mean `Gt`?)",
        ],
    );
}

#[test]
fn the_kubelets_own_pods_are_static() {
    let check = |metadata: &str, expected: PodOrigin| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, {metadata}}}\nspec: {{containers: [{{name: a}}]}}\n"
        );
        assert_eq!(read(&text).manifests.pods[0].shape.origin, expected, "{metadata}");
    };
    let owned =
        |api: &str, kind: &str| format!("ownerReferences: [{{apiVersion: {api}, kind: {kind}, name: b}}]");
    check("annotations: {kubernetes.io/config.mirror: x}", PodOrigin::Static);
    check(&owned("v1", "Node"), PodOrigin::Static);
    check(&owned("longhorn.io/v1beta2", "Node"), PodOrigin::Api);
    check(&owned("apps/v1", "ReplicaSet"), PodOrigin::Api);
}

#[test]
fn several_errors_in_several_documents() {
    let text = format!(
        "{}---\n{}---\n{}",
        POOL.replace("memory: 1000Gi", "memory: 1.5.0Gi").replace("team: web", "te am: web"),
        CLASS.replace("maxPods: 58", "maxPods: many"),
        DEPLOYMENT.replace("replicas: 3", "replicas: -1"),
    );
    check(
        &text,
        &[
            "a.yaml:9: spec.template.metadata.labels[te am]: `te am` is not a label key (write `[domain/]name`: a \
             lower-case DNS domain, and at most 63 letters, digits, `-`, `_` and `.` that begin and end with a letter \
             or digit)",
            "a.yaml:22: spec.limits.memory: `1.5.0Gi` is not a quantity: a second decimal point after `1.5`; keep one \
             (write a number with an optional suffix, such as `500m` or `1.5Gi`)",
            "a.yaml:39: spec.kubelet.maxPods: expected an integer, found the string `many` (write an integer)",
            "a.yaml:51: spec.replicas: expected an integer from 0, found `-1` (write an integer from 0)",
        ],
    );
}

#[test]
fn selectors_that_mix_what_excludes_itself() {
    let mixed =
        CLASS.replace("    - tags: {karpenter.sh/discovery: demo}", "    - id: subnet-1\n      tags: {a: b}");
    check(
        &mixed,
        &[
            "a.yaml:12: spec.subnetSelectorTerms[0]: `id` can't be combined with `tags` (write them as separate terms, or \
           keep one of them)",
        ],
    );
    let beside = mixed.replace("  securityGroup", "    - tags: {c: d}\n  securityGroup");
    assert_eq!(
        warnings(&beside),
        [
            "a.yaml:12: spec.subnetSelectorTerms[0]: `id` can't be combined with `tags`; only `id` counts (write them as \
          separate terms, or keep one of them)"
        ]
    );
    let class = &read(&beside).manifests.node_classes[0];
    assert!(matches!(&class.subnet_selector[0], SubnetSelectorTerm::Id(id) if id.as_str() == "subnet-1"));
}

#[test]
fn an_instance_profile_is_a_name_or_an_arn_and_no_role() {
    let profile = |value: &str| CLASS.replace("role: path/to/nodes", &format!("instanceProfile: {value}"));
    check(
        &profile("arn:aws:iam::123456789012:role/nodes"),
        &[
            "a.yaml:7: spec.instanceProfile: `arn:aws:iam::123456789012:role/nodes` is the ARN of a role, not of an \
           instance profile (give the role's name as `role` instead, or the name or ARN of an instance profile that \
           holds the role)",
        ],
    );
    let arn = "arn:aws-cn:iam::123456789012:instance-profile/team/a/nodes";
    for (value, expected) in
        [(arn, InstanceProfile::Arn(arn.to_owned())), ("nodes", InstanceProfile::Name("nodes".to_owned()))]
    {
        let class = &read(&profile(value)).manifests.node_classes[0];
        assert_eq!(class.identity, NodeIdentity::InstanceProfile(expected));
    }
    assert_eq!(errors(&profile("arn:aws:iam::1:instance-profile/a")).len(), 1);
    assert_eq!(errors(&profile("nodes\n  role: nodes")).len(), 1);
}

#[test]
fn objects_are_given_as_they_are_written() {
    let text = "kind: List\nitems:\n- {kind: A, on: yes, n: .5, big: 1e999}\n- &b {kind: B, t: \"yes\"}\n---\n\
                kind: C\n<<: {x: 1}\n---\nkind: [\n---\njust text\n";
    let expected = [
        serde_json::json!({"kind": "A", "on": true, "n": 0.5, "big": "1e999"}),
        serde_json::json!({"kind": "B", "t": "yes"}),
        serde_json::json!({"kind": "C", "x": 1}),
    ];
    assert_eq!(objects("a.yaml", text), expected);
}

#[test]
fn unknown_fields_of_our_kinds_are_errors_and_of_others_are_not() {
    check(
        &POOL.replace("expireAfter", "expiresAfter"),
        &["a.yaml:19: spec.template.spec.expiresAfter: unknown field (did you mean `expireAfter`?)"],
    );
    check(&DEPLOYMENT.replace("  replicas: 3", "  replicas: 3\n  revisionHistory: 3"), &[]);
}

/// A cluster may be newer than this program: its dump stays readable, and the pods are refused by name.
#[test]
fn unknown_fields_of_a_pods_placement_are_warned_of_and_named_on_the_pods() {
    let text = DEPLOYMENT.replace("maxSkew: 1", "maxSkew: 1\n          maxSkews: 2");
    assert_ne!(text, DEPLOYMENT);
    let read = read_files(&[("a.yaml", &text)]).unwrap();
    let field = "spec.template.spec.topologySpreadConstraints[0].maxSkews";
    assert_eq!(read.manifests.workloads[0].template.unknown, [field]);
    let warnings: Vec<String> = read.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(field) && warnings[0].contains("did you mean `maxSkew`?"), "{warnings:?}");
}

#[test]
fn texts_that_are_no_yaml() {
    check("a: b\n\tc: d\n", &["a.yaml:2: not valid YAML: a tab in the indentation (indent with spaces)"]);
    let twice = POOL.replace("  limits:", "  weight: 1\n  weight: 2\n  limits:");
    check(&twice, &["a.yaml:21: key `weight` is given twice, first at line 20 (keep one of them)"]);
    let broken = format!("a: [\n---\n{}", POOL.replace("operator: Gt", "operator: Gtt"));
    let found = errors(&broken);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("not valid YAML") && found[1].starts_with("a.yaml:19: "), "{found:?}");
    let json = read_files(&[("a.json", "{\"apiVersion\": \"v1\",\n \"kind\": }")]).unwrap_err().to_string();
    assert!(json.starts_with("a.json:2: not valid JSON"), "{json}");
    check(
        "{}",
        &[
            "a.yaml:1: apiVersion: required, but not given (add the kind's version, such as `apiVersion: v1`)",
            "a.yaml:1: kind: required, but not given (add a kind, such as `kind: Pod`)",
        ],
    );
    check("x: !Ref y", &["a.yaml:1: tag `!Ref` isn't supported in a manifest (leave the tag out)"]);
}

#[test]
fn what_karpenter_rejects_of_a_pool() {
    for (from, to, expected) in [
        ("team: web", "karpenter.sh/nodepool: a", "label `karpenter.sh/nodepool` is restricted"),
        ("instance-cpu", "instance-cpus", "did you mean `karpenter.k8s.aws/instance-cpu`?"),
        ("[spot, on-demand]", "[]", "needs at least one value"),
        ("[spot, on-demand]", "[sport]", "no such value of `karpenter.sh/capacity-type`"),
        ("[\"3\"]", "[\"3\", \"4\"]", "takes exactly one integer"),
        ("[\"3\"]", "[\"-3\"]", "is not a label value"),
        ("[\"3\"]", "[3]", "expected a string, found the number `3` (write `\"3\"`)"),
        ("values: [spot, on-demand]", "values: [spot]\n          minValues: 2", "lists only `1`"),
        ("expireAfter: Never", "expireAfter: 30d", "`30d` is not a duration"),
        ("  limits:", "  weight: 101\n  limits:", "expected an integer from 1 to 100"),
        ("  limits:", "  replicas: 2\n  limits:", "a static NodePool has no limit but `nodes`"),
        ("  limits:", "  disruption: {budgets: [{nodes: 101%}]}\n  limits:", "is not a number of nodes"),
        (
            "  limits:",
            "  disruption: {budgets: [{nodes: \"1\", schedule: \"@daily\"}]}\n  limits:",
            "`duration` is missing",
        ),
        ("name: default}", "name: \"\"}", "spec.template.spec.nodeClassRef.name: must not be empty"),
        (
            "group: karpenter.k8s.aws",
            "group: karpenter.k8s.aws/v1",
            "nodeClassRef.group: `karpenter.k8s.aws/v1` is not an",
        ),
        ("kind: NodePool", "kind: NodePol", "did you mean `NodePool`?"),
        ("karpenter.sh/v1", "karpenter.sh/v1beta1", "write `karpenter.sh/v1`"),
    ] {
        let found = errors(&POOL.replace(from, to));
        assert!(found.iter().any(|error| error.contains(expected)), "{to}: {found:?}");
    }
}

#[test]
fn what_karpenter_rejects_of_a_class() {
    for (from, to, expected) in [
        ("  role: path/to/nodes\n", "", "either `role` or `instanceProfile` is required"),
        ("  amiFamily: AL2023\n", "", "spec.amiFamily: required"),
        (
            "- tags: {pipeline: golden}\n      owner: self",
            "- alias: al2023@latest\n    - id: ami-1",
            "an alias must be the only term",
        ),
        ("- tags: {pipeline: golden}", "- id: ami-1", "`id` can't be combined with `owner`"),
        (
            "- tags: {pipeline: golden}\n      owner: self",
            "- alias: al2024@latest",
            "did you mean `al2023@latest`?",
        ),
        (
            "- tags: {pipeline: golden}\n      owner: self",
            "- alias: al2@latest",
            "isn't the family of the alias",
        ),
        ("50Gi", "60000Gi", "is not the size of a volume"),
        ("gp3", "gp4", "did you mean `gp2`?"),
        ("cpu: 200m", "gpu: 1", "can't be reserved"),
        ("5%", "105%", "is not a percentage"),
        ("  kubelet:", "  tags: {karpenter.sh/nodepool: a}\n  kubelet:", "on every instance"),
        ("  kubelet:", "  metadataOptions: {httpPutResponseHopLimit: 65}\n  kubelet:", "from 1 to 64"),
        (
            "  kubelet:",
            "  metadataOptions: {httpTokens: must}\n  kubelet:",
            "`must` is not a metadata option",
        ),
        (
            "  kubelet:",
            "  networkInterfaces: []\n  connectionTracking: {}\n  kubelet:",
            "no timeout is given",
        ),
    ] {
        let found = errors(&CLASS.replace(from, to));
        assert!(found.iter().any(|error| error.contains(expected)), "{to}: {found:?}");
    }
}

fn check_realistic(read: &ReadManifests) {
    assert_eq!(read.warnings, []);
    let manifests = &read.manifests;
    let (pool, class) = (&manifests.node_pools[0], &manifests.node_classes[0]);
    assert_eq!(pool.template.expire_after, None);
    assert_eq!(
        pool.template.requirements.to_string(),
        "karpenter.k8s.aws/instance-cpu Exists >=4, karpenter.sh/capacity-type In [on-demand spot]"
    );
    assert_eq!(pool.limits.get(&ResourceName::CPU).to_string(), "1k");
    assert_eq!(pool.disruption.budgets[0].nodes.to_string(), "10%");
    assert_eq!(class.identity, NodeIdentity::Role("nodes".to_owned()));
    assert_eq!(class.settings.ami_family, AmiFamily::Al2023);
    assert_eq!(class.settings.kubelet.max_pods, Some(58));
    let document =
        "{\"evictionHard\":{\"memory.available\":\"5%\"},\"kubeReserved\":{\"cpu\":\"200m\"},\"maxPods\":58}";
    assert_eq!(class.settings.kubelet.document.as_deref(), Some(document));
    assert!(class.unsupported.is_empty());
    let pods = expand_workloads(manifests);
    let names: Vec<String> = pods.iter().map(|pod| pod.name.to_string()).collect();
    assert_eq!(names, ["default/deployment/web-0", "default/deployment/web-1", "default/deployment/web-2"]);
    let shape = &pods[0].shape;
    assert_eq!(shape.requests.to_string(), "cpu: 900m, memory: 1536Mi, pods: 1");
    assert_eq!(shape.priority, 1000);
    assert_eq!(shape.do_not_disrupt, DoNotDisrupt::For(jiff::SignedDuration::from_mins(90)));
    assert!(std::sync::Arc::ptr_eq(shape, &pods[2].shape));
}

#[test]
fn a_realistic_file_is_read_as_yaml_and_as_a_json_list() {
    let text = format!("{POOL}---\n{CLASS}---\n{DEPLOYMENT}");
    check_realistic(&read(&text));
    let documents = yaml::parse("a.yaml", &text).documents;
    let items: Vec<String> = documents.iter().map(|document| document.value.to_string()).collect();
    let json = format!("{{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [{}]}}", items.join(",\n"));
    check_realistic(&read(&json));
    let value: serde_json::Value = serde_json::from_str(&items[0]).unwrap();
    assert!(matches!(read_value(&value, "cluster"), Ok(ManifestObject::NodePool(_))));
    let Ok(ManifestObject::NodePool(pool)) = read_stored(&value) else { panic!("{value}") };
    assert_eq!(*pool, read(&text).manifests.node_pools[0]);
}

#[test]
fn anchors_merge_keys_and_kubectls_scalars() {
    let text = "\
apiVersion: v1
kind: Pod
metadata: {name: a, labels: &labels {app: web, tier: '1'}}
spec:
  nodeSelector: {<<: *labels, tier: front}
  containers: [{name: a, resources: {requests: {cpu: 0x2, memory: 1e3}}}]
";
    let pod = &read(text).manifests.pods[0];
    assert_eq!(pod.shape.requests.to_string(), "cpu: 2, memory: 1k, pods: 1");
    let selector: Vec<_> = pod.shape.node_selector.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(selector, ["app=web", "tier=front"]);
    check(
        &text.replace("tier: front", "tier: yes"),
        &["a.yaml:5: spec.nodeSelector.tier: expected a string, found the boolean `true` (put it in quotes)"],
    );
    let bomb = (0..12).fold("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, n| {
        let alias = format!("*a{n}, ").repeat(9);
        format!("{text}a{}: &a{} [{alias}*a{n}]\n", n + 1, n + 1)
    });
    assert!(errors(&bomb)[0].contains("aliases expand to more than"));
}

#[test]
fn parts_that_nothing_acts_on_are_named() {
    let text = CLASS
        .replace("    - tags: {pipeline: golden}\n      owner: self", "    - alias: bottlerocket@latest")
        .replace("  amiFamily: AL2023\n", "")
        .replace("maxPods: 58", "maxPods: \"vcpus * 10\"");
    let class = &read(&text).manifests.node_classes[0];
    assert_eq!(class.settings.ami_family, AmiFamily::Bottlerocket);
    assert_eq!(class.unsupported, ["spec.kubelet.maxPods"]);
    let problem = class.settings.kubelet.problem.as_ref().unwrap();
    assert_eq!(problem.reason().as_str(), "KubeletExpressionsDisabled");
}

#[test]
fn a_placement_group_is_selected_by_name_or_id() {
    let check = |selector: &str, expected: PlacementGroupSelector| {
        let text = CLASS.replace("  kubelet:", &format!("  placementGroupSelector: {selector}\n  kubelet:"));
        let class = &read(&text).manifests.node_classes[0];
        assert_eq!(class.placement_group, Some(expected));
        assert!(class.unsupported.is_empty(), "{:?}", class.unsupported);
    };
    check("{name: near}", PlacementGroupSelector::Name("near".to_owned()));
    check("{id: pg-12345}", PlacementGroupSelector::Id("pg-12345".parse().unwrap()));
    for wrong in ["{}", "{name: ''}", "{id: sg-1}", "{name: near, id: pg-12345}"] {
        let text = CLASS.replace("  kubelet:", &format!("  placementGroupSelector: {wrong}\n  kubelet:"));
        let found = errors(&text);
        assert!(found.iter().any(|error| error.contains("placementGroupSelector")), "{wrong}: {found:?}");
    }
}

#[test]
fn interfaces_and_processor_options_are_read() {
    let fields = "  ipPrefixCount: 2
  connectionTracking: {tcpEstablishedTimeout: 350, udpTimeout: 45}
  cpuOptions: {nestedVirtualization: enabled}
  networkInterfaces:
    - {networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}
    - {networkCardIndex: 1, deviceIndex: 1, interfaceType: efa-only}
  kubelet:";
    let class = &read(&CLASS.replace("  kubelet:", fields)).manifests.node_classes[0];
    let tracking = ConnectionTracking {
        tcp_established_timeout_seconds: Some(350),
        udp_stream_timeout_seconds: None,
        udp_timeout_seconds: Some(45),
    };
    assert_eq!(class.ip_prefix_count, Some(2));
    assert_eq!(class.settings.connection_tracking, Some(tracking));
    assert_eq!(class.settings.nested_virtualization, Some(NestedVirtualization::Enabled));
    let kinds: Vec<InterfaceType> =
        class.settings.network_interfaces.iter().map(|interface| interface.interface_type).collect();
    assert_eq!(kinds, [InterfaceType::Interface, InterfaceType::EfaOnly]);
    assert!(class.unsupported.is_empty(), "{:?}", class.unsupported);
}

#[test]
fn a_controller_whose_pods_are_given_makes_no_others() {
    let pod = "\
---
apiVersion: v1
kind: Pod
metadata:
  name: web-6d4-x
  labels: {app: web, pod-template-hash: 6d4}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-6d4, uid: u, controller: true}]
spec: {containers: [{name: web}]}
";
    let read = read(&format!("{DEPLOYMENT}{pod}"));
    assert!(expand_workloads(&read.manifests).is_empty());
    assert_eq!(read.manifests.pods.len(), 1);
}

#[test]
fn a_stateful_sets_pods_have_their_claims() {
    let text = "\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: data}
spec:
  replicas: 2
  template: {spec: {containers: [{name: db}]}}
  volumeClaimTemplates: [{metadata: {name: disk}, spec: {storageClassName: gp3}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk-db-0, namespace: data}
spec: {storageClassName: gp3}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ignored}
";
    let read = read(text);
    assert_eq!(read.manifests.skipped, ["ConfigMap"]);
    let pods = expand_workloads(&read.manifests);
    assert_eq!(pods[0].shape.volumes, [PodVolume::Claim("disk-db-0".to_owned())]);
    assert!(matches!(&pods[1].shape.volumes[0], PodVolume::Ephemeral { volume, .. } if volume == "disk"));
    assert_ne!(pods[0].uid, pods[1].uid);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in "[-a-z:{}\\[\\] \n\t&*<>|!'\"#%@0-9,.]{0,120}") {
        let _ = read_files(&[("a", &text)]);
    }

    #[test]
    fn no_change_of_a_manifest_panics(at in 0_usize..1200, insert in "[-:{}\\[\\] \n\ta*&!|\"'é]{0,4}", cut in 0_usize..30) {
        let mut text: Vec<char> = format!("{POOL}---\n{CLASS}---\n{DEPLOYMENT}").chars().collect();
        let at = at.min(text.len());
        let end = (at + cut).min(text.len());
        text.splice(at..end, insert.chars());
        let _ = read_files(&[("a", &text.into_iter().collect::<String>())]);
    }
}
