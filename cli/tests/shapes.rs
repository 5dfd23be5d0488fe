//! Each shape of manifest that users of Karpenter know from its examples gets a plan, or is refused by name. The shapes
//! are those of aws/karpenter-provider-aws `examples/v1` and `examples/workloads`, read in November 2026.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

mod common;

use common::tenon;

const CMR: &str = "{key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}";
const MODERN: &str = "{key: karpenter.k8s.aws/instance-generation, operator: Gt, values: [\"2\"]}";
const ON_DEMAND: &str = "{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}";
const SPOT: &str = "{key: karpenter.sh/capacity-type, operator: In, values: [spot]}";
const AL2023: &str = "amiSelectorTerms: [{alias: al2023@latest}]";
const POD: &str = "containers: [{name: web, resources: {requests: {cpu: \"1\", memory: 256M}}}]";

fn pool(requirements: &[&str], template: &str, spec: &str) -> String {
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: shape}}\nspec:\n  template:\n    spec:\n      \
         nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: shape}}\n      requirements: [{}]\n      \
         {template}\n  {spec}\n---\n",
        requirements.join(", ")
    )
}

fn class(fields: &[&str]) -> String {
    let groups = "securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: \"${CLUSTER_NAME}\"}}]";
    let groups = if fields.iter().any(|field| field.starts_with("securityGroup")) { "" } else { groups };
    format!(
        "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: shape}}\nspec:\n  role: \
         KarpenterNodeRole-${{CLUSTER_NAME}}\n  subnetSelectorTerms: [{{tags: {{karpenter.sh/discovery: \
         \"${{CLUSTER_NAME}}\"}}}}]\n  {groups}\n  {}\n---\n",
        fields.join("\n  ")
    )
}

fn deployment(replicas: usize, pod: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  replicas: {replicas}\n  selector: \
         {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec:\n      \
         securityContext: {{runAsUser: 1000, fsGroup: 2000}}\n      {}\n",
        pod.replace('\n', "\n      ")
    )
}

/// Plans the text: the status, the output and the errors.
fn simulate(text: &str, region: &str) -> (Option<i32>, String) {
    let (status, out, errors) = tenon(&["simulate", "-f", "-", "--region", region], text);
    (status, out + &errors)
}

fn check(pool: &str, class: &str, deployment: &str, expected: &str) {
    let text = format!("{pool}{class}{deployment}");
    let (status, told) = simulate(&text, "us-east-1");
    assert_eq!(status, Some(0), "{text}\n{told}");
    assert!(told.contains(expected), "`{expected}` in\n{told}");
}

fn refused(pool: &str, class: &str, expected: &[&str]) {
    let (status, told) = simulate(&format!("{pool}{class}{}", deployment(1, POD)), "us-east-1");
    assert_eq!(status, Some(2), "{told}");
    expected.iter().for_each(|part| assert!(told.contains(part), "`{part}` in\n{told}"));
}

fn general() -> String {
    pool(&[CMR, MODERN, ON_DEMAND], "", "")
}

#[test]
fn each_shape_of_a_pool_is_planned() {
    let check = |pool: &str| check(pool, &class(&[AL2023]), &deployment(2, POD), "2 pods: ");
    check(&general());
    check(&pool(&[CMR, MODERN, ON_DEMAND], "", "limits: {cpu: 100}"));
    check(&pool(&[CMR, MODERN, SPOT], "", ""));
    let families = "{key: karpenter.k8s.aws/instance-family, operator: Exists, minValues: 5}";
    let types = "{key: node.kubernetes.io/instance-type, operator: Exists, minValues: 2}";
    check(&pool(&[CMR, MODERN, SPOT, families], "", ""));
    check(&pool(&[&CMR.replace('}', ", minValues: 2}"), MODERN, SPOT, families, types], "", ""));
    let large = "{key: karpenter.k8s.aws/instance-cpu, operator: Gt, values: [\"3\"]}";
    let memory = "{key: karpenter.k8s.aws/instance-memory, operator: Gt, values: [\"8191\"]}";
    check(&pool(&[large, memory], "", ""));
    let disruption = "disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 60s}";
    check(&pool(&[CMR, ON_DEMAND], "expireAfter: 168h", disruption));
    let nvme = "{key: karpenter.k8s.aws/instance-local-nvme, operator: Gt, values: [\"300\"]}";
    check(&pool(&[CMR, nvme], "", ""));
}

#[test]
fn each_shape_of_a_class_is_planned() {
    let check = |fields: &[&str]| check(&general(), &class(fields), &deployment(1, POD), "1 new node");
    let volumes = "blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeType: gp3, volumeSize: 4Gi}}, \
                   {deviceName: /dev/xvdb, ebs: {volumeType: gp3, volumeSize: 2000Gi, deleteOnTermination: true}}]";
    let images = "amiSelectorTerms: [{id: ami-123}, {id: ami-456}]";
    check(&["amiFamily: AL2", images, "userData: \"#!/bin/bash\""]);
    check(&["amiFamily: Custom", images]);
    check(&["amiFamily: Custom", "amiSelectorTerms: [{alias: bottlerocket@latest}]"]);
    check(&["amiSelectorTerms: [{alias: bottlerocket@latest}]", volumes]);
    check(&["amiSelectorTerms: [{alias: al2023@v20240625}]", "instanceStorePolicy: RAID0"]);
    check(&[AL2023, volumes]);
}

#[test]
fn windows_is_planned() {
    let os = "{key: kubernetes.io/os, operator: In, values: [windows]}";
    for year in ["2019", "2022", "2025"] {
        let alias = format!("amiSelectorTerms: [{{alias: windows{year}@latest}}]");
        let metadata = "metadataOptions: {httpProtocolIPv6: disabled, httpTokens: required}";
        let class = class(&[&alias, metadata]);
        check(&pool(&[CMR, os, ON_DEMAND], "", ""), &class, &deployment(1, POD), "1 new node");
        // The cheapest types are of arm64, for which Windows has no images.
        check(&pool(&[ON_DEMAND], "", ""), &class, &deployment(1, POD), "t3a.");
        let arm = "nodeSelector: {kubernetes.io/arch: arm64}";
        let text =
            format!("{}{class}{}", pool(&[ON_DEMAND], "", ""), deployment(1, &format!("{POD}\n{arm}")));
        assert_eq!(simulate(&text, "us-east-1").0, Some(1));
    }
}

#[test]
fn each_shape_of_a_workload_is_planned() {
    let wide = pool(&[], "", "");
    let check = |replicas: usize, pod: &str, expected: &str| {
        check(&wide, &class(&[AL2023]), &deployment(replicas, &format!("{POD}\n{pod}")), expected);
    };
    check(1, "nodeSelector: {kubernetes.io/arch: arm64}", "t4g.");
    check(2, "nodeSelector: {karpenter.sh/capacity-type: spot}", "spot");
    let prefers = |weight: u32, arch: &str| {
        format!(
            "{{weight: {weight}, preference: {{matchExpressions: [{{key: kubernetes.io/arch, operator: In, values: \
             [{arch}]}}]}}}}"
        )
    };
    let both = format!("[{}, {}]", prefers(1, "amd64"), prefers(50, "arm64"));
    check(
        1,
        &format!("affinity: {{nodeAffinity: {{preferredDuringSchedulingIgnoredDuringExecution: {both}}}}}"),
        "t4g.",
    );
    let spread = |key: &str, skew: u32| {
        format!(
            "{{maxSkew: {skew}, topologyKey: {key}, whenUnsatisfiable: DoNotSchedule, labelSelector: {{matchLabels: \
             {{app: web}}}}}}"
        )
    };
    let (host, zone) = (spread("kubernetes.io/hostname", 2), spread("topology.kubernetes.io/zone", 5));
    check(10, &format!("topologySpreadConstraints: [{host}]"), "10 pods: ");
    check(50, &format!("topologySpreadConstraints: [{host}, {zone}]"), "50 pods: ");
    let devices = |name: &str| POD.replace("requests", &format!("limits: {{{name}: \"1\"}}, requests"));
    for (name, family) in [("nvidia.com/gpu", "g4dn."), ("aws.amazon.com/neuron", "inf1.")] {
        check_wide(&wide, &devices(name), family);
    }
}

fn check_wide(pool: &str, pod: &str, expected: &str) {
    check(pool, &class(&[AL2023]), &deployment(1, pod), expected);
}

/// EC2's catalogue has no type with these devices: the pod is refused by name, and the explanation says so.
#[test]
fn devices_that_no_type_has_are_named() {
    for name in ["amd.com/gpu", "nvidia.com/mig-1g.5gb"] {
        let pod = POD.replace("requests", &format!("limits: {{{name}: \"1\"}}, requests"));
        let (status, told) = simulate(
            &format!("{}{}{}", pool(&[], "", ""), class(&[AL2023]), deployment(1, &pod)),
            "us-east-1",
        );
        assert_eq!(status, Some(1), "{told}");
        assert!(
            told.contains(&format!("no instance type offers pods any `{name}`, `1` is requested")),
            "{told}"
        );
    }
}

/// Nothing is launched from it in a cluster either.
#[test]
fn a_class_of_another_provider_gives_no_node() {
    let other = general().replace("group: karpenter.k8s.aws", "group: example.com");
    let text = format!("{other}{}{}", class(&[AL2023]), deployment(1, POD));
    let (status, told) = simulate(&text, "us-east-1");
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("of group `karpenter.k8s.aws`: correct it"), "{told}");
    assert!(told.contains("kind `EC2NodeClass` of group `example.com`"), "{told}");
}

/// Karpenter 1.14 rejects these too: its CRDs don't have the fields, and its aliases are another list.
#[test]
fn what_karpenter_rejects_is_refused_by_name() {
    let typo = pool(&[ON_DEMAND], "terminationGracePeirod: 24h", "");
    refused(&typo, &class(&[AL2023]), &["terminationGracePeirod", "did you mean `terminationGracePeriod`?"]);
    let fips = ["amiSelectorTerms: [{alias: bottlerocket-fips@latest}]"];
    refused(&general(), &class(&fips), &["`bottlerocket-fips` is not an alias family"]);
    let group = [AL2023, "placementGroup: {name: analytics, partition: 2}"];
    refused(&general(), &class(&group), &["spec.placementGroup: unknown field"]);
    let versioned = general().replace("group: karpenter.k8s.aws", "group: karpenter.k8s.aws/v1");
    let expected =
        ["nodeClassRef.group: `karpenter.k8s.aws/v1` is not an API group", "write `karpenter.k8s.aws`"];
    refused(&versioned, &class(&[AL2023]), &expected);
    let vpc = [AL2023, "securityGroupSelectorTerms: [{name: k8s-node, vpcID: vpc-12345678}]"];
    refused(&general(), &class(&vpc), &["spec.securityGroupSelectorTerms[0].vpcID: unknown field"]);
}
