//! The exact user data of every family, as the files of `golden/user-data` have it, and what is refused.

use serde_json::{Value, json};
use tenon_domain::manifest::node_class_from_value;
use tenon_domain::taint::TaintEffect;

use super::*;
use crate::testing::registry;

macro_rules! golden {
    ($name:literal) => {
        include_str!(concat!("../../golden/user-data/", $name))
    };
}

const SCRIPT: &str = "#!/bin/sh\necho hello\n";
const MIME: &str = "\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=\"XX\"

--XX
Content-Type: text/x-shellscript; charset=\"us-ascii\"
MIME-Version: 1.0

#!/bin/sh
echo hello

--XX
Content-Type: text/cloud-config

packages:
  - htop
--XX--
";
const NODE_CONFIG: &str = "\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      serializeImagePulls: false
";
const SETTINGS: &str = r#"# The user's own.
[settings]
motd = "hello"
autoscaling = { should-wait = true }

[settings.kubernetes]
api-server = "https://other.example"
cluster-domain = "cluster.local"
max-pods = 5
eviction-hard = { "memory.available" = "15%" }

[settings.kubernetes.node-labels]
team = "b"
tier = "front"

[settings.kubernetes.node-taints]
old = ["x:NoSchedule"]

[settings.bootstrap-commands.setup]
commands = [["apiclient", "set", "motd=hello"]]
mode = "once"
"#;
/// An image that finds the directories itself.
const RECENT: &str = "bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a";

/// The fields of a class's spec that user data depends on.
fn with(user_data: Option<&str>, more: &Value) -> Value {
    let mut spec = json!({ "userData": user_data });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// Everything that Karpenter reads of `spec.kubelet`; the expression counts for nothing.
fn kubelet() -> Value {
    json!({
        "clusterDNS": ["10.0.100.10"],
        "maxPods": 110,
        "podsPerCore": 10,
        "systemReserved": {"cpu": "50m", "memory": "100Mi"},
        "kubeReserved": {"cpu": "200m", "ephemeral-storage": "1Gi", "memory": "vcpus * 64"},
        "evictionHard": {"memory.available": "5%", "nodefs.available": "10Gi"},
        "evictionSoft": {"memory.available": "10%"},
        "evictionSoftGracePeriod": {"memory.available": "1m30s"},
        "evictionMaxPodGracePeriod": 60,
        "imageGCHighThresholdPercent": 85,
        "imageGCLowThresholdPercent": 80,
        "cpuCFSQuota": false
    })
}

/// The user data of a class in the cluster `prod`, on nodes for 29 pods.
fn made(family: AmiFamily, image: &str, more: &Value) -> Result<Option<String>, UserDataError> {
    let mut manifest = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "amiFamily": family.as_str(),
            "role": "nodes",
            "amiSelectorTerms": [{"name": "nodes-*", "owner": "self"}],
            "subnetSelectorTerms": [{"tags": {"team": "web"}}],
            "securityGroupSelectorTerms": [{"tags": {"team": "web"}}]
        }
    });
    manifest["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let class = node_class_from_value(&manifest).unwrap();
    let labels = BTreeMap::from(
        [("karpenter.sh/nodepool", "web"), ("kubernetes.io/arch", "arm64"), ("team", "a")]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let taints = [
        Taint { value: "yes".to_owned(), ..Taint::new("dedicated", TaintEffect::NoSchedule) },
        Taint::new("cni", TaintEffect::NoExecute),
    ];
    let setup = NodeSetup {
        registry: &registry("prod"),
        class: &class,
        labels: &labels,
        taints: &taints,
        max_pods: Some(29),
    };
    user_data(&setup, image)
}

fn check(family: AmiFamily, spec: &Value, golden: &str) {
    assert_eq!(made(family, RECENT, spec).unwrap().unwrap(), golden, "{family}: {spec}");
}

#[test]
fn al2_gets_a_script_after_the_users_parts() {
    let check = |spec: &Value, golden: &str| check(AmiFamily::Al2, spec, golden);
    check(&json!({}), golden!("al2-plain.txt"));
    check(&with(Some(SCRIPT), &json!({})), golden!("al2-script.txt"));
    check(&with(Some(MIME), &json!({})), golden!("al2-mime.txt"));
    check(&with(Some(&MIME.replace('\n', "\r\n")), &json!({})), golden!("al2-mime.txt"));
    let full = json!({"kubelet": kubelet(), "instanceStorePolicy": "RAID0"});
    check(&full, golden!("al2-full.txt"));
}

#[test]
fn al2023_gets_a_node_config_after_the_users_parts() {
    let check = |spec: &Value, golden: &str| check(AmiFamily::Al2023, spec, golden);
    check(&json!({}), golden!("al2023-plain.txt"));
    check(&with(Some(SCRIPT), &json!({})), golden!("al2023-script.txt"));
    check(&with(Some(MIME), &json!({})), golden!("al2023-mime.txt"));
    check(&with(Some(NODE_CONFIG), &json!({})), golden!("al2023-node-config.txt"));
    let mut kubelet = kubelet();
    kubelet["serializeImagePulls"] = json!(false);
    let full = json!({"kubelet": kubelet, "instanceStorePolicy": "RAID0"});
    check(&full, golden!("al2023-full.txt"));
}

#[test]
fn bottlerocket_gets_settings_over_the_users() {
    let check = |spec: &Value, golden: &str| check(AmiFamily::Bottlerocket, spec, golden);
    check(&json!({}), golden!("bottlerocket-plain.toml"));
    check(&with(Some(SETTINGS), &json!({})), golden!("bottlerocket-own.toml"));
    let mut kubelet = kubelet();
    kubelet.as_object_mut().unwrap().remove("podsPerCore");
    let full = json!({"kubelet": kubelet, "instanceStorePolicy": "RAID0"});
    check(&full, golden!("bottlerocket-full.toml"));
}

#[test]
fn an_earlier_or_unknown_bottlerocket_is_told_the_directories() {
    let check = |image: &str, expected: bool| {
        let spec = json!({"instanceStorePolicy": "RAID0"});
        let text = made(AmiFamily::Bottlerocket, image, &spec).unwrap().unwrap();
        let told = r#""--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]"#;
        assert_eq!(text.contains(told), expected, "{image}");
    };
    check("bottlerocket-aws-k8s-1.33-x86_64-v1.45.0-431fe75a", true);
    check("bottlerocket-aws-k8s-1.33-x86_64-v1.9.2-431fe75a", true);
    check("golden-image-2", true);
    check("", true);
    check(RECENT, false);
    check("bottlerocket-aws-k8s-1.40-x86_64-v2.0.0-431fe75a", false);
}

#[test]
fn windows_gets_a_call_after_the_users_script() {
    let check = |spec: &Value, golden: &str| check(AmiFamily::Windows2022, spec, golden);
    check(&json!({}), golden!("windows-plain.txt"));
    check(&with(Some("Write-Host \"hello\""), &json!({})), golden!("windows-script.txt"));
    let full = json!({"kubelet": kubelet(), "instanceStorePolicy": "RAID0"});
    check(&full, golden!("windows-full.txt"));
}

#[test]
fn a_custom_class_keeps_its_text() {
    check(AmiFamily::Custom, &with(Some(golden!("custom.txt")), &json!({})), golden!("custom.txt"));
    assert_eq!(made(AmiFamily::Custom, "", &json!({})), Ok(None));
}

#[test]
fn a_dns_address_of_version_6_makes_the_node_one_of_version_6() {
    let spec = json!({"kubelet": {"clusterDNS": ["fd00:10:96::a"]}});
    let text = made(AmiFamily::Al2, "", &spec).unwrap().unwrap();
    assert!(text.contains("--ip-family ipv6 \\\n  --dns-cluster-ip 'fd00:10:96::a' \\\n"), "{text}");
}

#[test]
fn values_are_quoted_for_their_shell() {
    let spec = json!({"kubelet": {"clusterDNS": ["a'b"]}});
    let check = |family, expected: &str| {
        let text = made(family, "", &spec).unwrap().unwrap();
        assert!(text.contains(expected), "{text}");
    };
    check(AmiFamily::Al2, r"--dns-cluster-ip 'a'\''b'");
    check(AmiFamily::Windows2019, "-DNSClusterIP 'a''b'");
}

#[test]
fn a_boundary_in_the_users_text_makes_ours_longer() {
    let text = made(AmiFamily::Al2, "", &with(Some("#!/bin/sh\necho --//\n"), &json!({}))).unwrap().unwrap();
    assert!(
        text.starts_with("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"///\"\n"),
        "{text}"
    );
    assert!(text.ends_with("\n--///--\n"), "{text}");
}

#[test]
fn what_cant_be_read_or_sent_is_refused() {
    let check = |family, text: &str, expected: UserDataError| {
        assert_eq!(made(family, "", &with(Some(text), &json!({}))), Err(expected), "{text}");
    };
    let archive = "Content-Type: multipart/mixed\n\n--XX\n\nhello\n--XX--\n";
    check(AmiFamily::Al2, archive, UserDataError::Multipart);
    check(AmiFamily::Al2023, "Content-Type: text/plain\n\nhello\n", UserDataError::Multipart);
    check(AmiFamily::Bottlerocket, "settings = 1\n", UserDataError::NotATable("settings".to_owned()));
    check(
        AmiFamily::Bottlerocket,
        "[settings.kubernetes]\nnode-labels = [\"a\"]\n",
        UserDataError::NotATable("settings.kubernetes.node-labels".to_owned()),
    );
    let refused = made(
        AmiFamily::Bottlerocket,
        "",
        &with(Some("[settings]\nmotd = \"a\"\n#!/bin/sh\necho\n"), &json!({})),
    );
    assert!(matches!(refused, Err(UserDataError::Toml { line: 4, .. })), "{refused:?}");
    let long = "x".repeat(USER_DATA_BYTES + 1);
    check(AmiFamily::Custom, &long, UserDataError::TooLong(USER_DATA_BYTES + 1));
}

#[test]
fn the_dns_address_is_the_tenth_of_the_services() {
    let check = |cidr: &str, expected: Option<&str>| {
        assert_eq!(kubelet_args::dns_address(cidr).as_deref(), expected, "{cidr}");
    };
    check("172.20.0.0/16", Some("172.20.0.10"));
    check("fd00:10:96::/108", Some("fd00:10:96::a"));
    check("", None);
}

#[test]
fn a_kubelet_may_not_set_what_the_api_server_refuses() {
    let check = |key: &str, expected: bool| assert_eq!(kubelet_may_set(key), expected, "{key}");
    check("team", true);
    check("karpenter.sh/nodepool", true);
    check("kubernetes.io/arch", false);
    check("topology.kubernetes.io/zone", false);
    check("node.kubernetes.io/role", true);
    check("a.kubelet.kubernetes.io/b", true);
    check("topology.k8s.aws/zone-id", true);
}
