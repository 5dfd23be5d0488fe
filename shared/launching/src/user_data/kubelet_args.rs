//! The kubelet's settings, and its command line for families that take one.
//!
//! Decides the settings that a node's kubelet gets: those of `spec.kubelet`, with the plan's number of pods, reserves
//! without expressions, and the address of the cluster's DNS. Decides also their flags, for AL2 and Windows. It doesn't
//! validate them: reading the manifest does.
//!
//! Invariants: flags have one order, and their lists are sorted by key; a setting that isn't set has no flag.
//!
//! Source: kubernetes.io/docs/reference/command-line-tools-reference/kubelet; aws/karpenter-provider-aws
//! `pkg/providers/amifamily/bootstrap/bootstrap.go`; for the DNS address awslabs/amazon-eks-ami
//! `nodeadm/internal/kubelet/config.go`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;
use serde_json::{Map, Value};
use tenon_domain::catalog::settings::Reserved;

use super::{BootSettings, NodeSetup, UserDataError};

/// The place of the DNS service among the addresses of the services, which EKS keeps free for it.
const DNS_PLACE: u8 = 10;

/// The settings of a kubelet. Names are those of `KubeletConfiguration`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct KubeletSettings {
    /// All of `spec.kubelet` as it is written.
    #[serde(skip)]
    pub(super) document: Map<String, Value>,
    /// `clusterDNS`.
    #[serde(rename = "clusterDNS")]
    pub(super) cluster_dns: Vec<String>,
    /// `maxPods`.
    #[serde(skip)]
    pub(super) max_pods: Option<u32>,
    /// `podsPerCore`.
    pub(super) pods_per_core: Option<u32>,
    /// `systemReserved`.
    #[serde(skip)]
    pub(super) system_reserved: BTreeMap<String, String>,
    /// `kubeReserved`.
    #[serde(skip)]
    pub(super) kube_reserved: BTreeMap<String, String>,
    /// `evictionHard`.
    pub(super) eviction_hard: BTreeMap<String, String>,
    /// `evictionSoft`.
    pub(super) eviction_soft: BTreeMap<String, String>,
    /// `evictionSoftGracePeriod`.
    pub(super) eviction_soft_grace_period: BTreeMap<String, String>,
    /// `evictionMaxPodGracePeriod`.
    pub(super) eviction_max_pod_grace_period: Option<u32>,
    /// `imageGCHighThresholdPercent`.
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub(super) image_gc_high_threshold: Option<u32>,
    /// `imageGCLowThresholdPercent`.
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub(super) image_gc_low_threshold: Option<u32>,
    /// `cpuCFSQuota`.
    #[serde(rename = "cpuCFSQuota")]
    pub(super) cpu_cfs_quota: Option<bool>,
}

/// The settings of a node's kubelet.
pub(super) fn kubelet_settings(setup: &NodeSetup<'_>) -> Result<KubeletSettings, UserDataError> {
    let kubelet = &setup.class.settings.kubelet;
    let unreadable = |error: serde_json::Error| UserDataError::Kubelet(error.to_string());
    let mut document: Map<String, Value> = match &kubelet.document {
        None => Map::new(),
        Some(text) => serde_json::from_str(text).map_err(unreadable)?,
    };
    document.retain(|_, value| !value.is_null());
    let mut settings: KubeletSettings =
        serde_json::from_value(Value::Object(document.clone())).map_err(unreadable)?;
    settings.max_pods = setup.max_pods.or(kubelet.max_pods);
    settings.kube_reserved = reserved(document.get("kubeReserved"), kubelet.kube_reserved);
    settings.system_reserved = reserved(document.get("systemReserved"), kubelet.system_reserved);
    if settings.cluster_dns.is_empty() {
        settings.cluster_dns.extend(dns_address(&setup.registry.service_cidr));
    }
    settings.document = document;
    Ok(settings)
}

/// The amounts as they are written, without expressions, which the domain doesn't read as amounts.
fn reserved(written: Option<&Value>, read: Reserved) -> BTreeMap<String, String> {
    let amounts = [
        ("cpu", read.cpu),
        ("memory", read.memory),
        ("ephemeral-storage", read.ephemeral_storage),
        ("pid", read.pid),
    ];
    let amount = |(key, quantity): (&str, Option<_>)| {
        quantity?;
        let given = written?.get(key)?;
        Some((key.to_owned(), given.as_str().map_or_else(|| given.to_string(), str::to_owned)))
    };
    amounts.into_iter().filter_map(amount).collect()
}

/// The address of the cluster's DNS, from the services' CIDR.
pub(super) fn dns_address(service_cidr: &str) -> Option<String> {
    let (network, _) = service_cidr.split_once('/')?;
    Some(match network.parse().ok()? {
        IpAddr::V4(first) => {
            Ipv4Addr::from_bits(first.to_bits().checked_add(u32::from(DNS_PLACE))?).to_string()
        }
        IpAddr::V6(first) => {
            Ipv6Addr::from_bits(first.to_bits().checked_add(u128::from(DNS_PLACE))?).to_string()
        }
    })
}

/// The kubelet's flags, in one line.
pub(super) fn kubelet_args(node: &BootSettings<'_>) -> String {
    let kubelet = &node.kubelet;
    let labels = (!node.labels.is_empty()).then(|| flag("node-labels", &joined(&node.labels, "=")));
    let taints: Vec<String> = node
        .taints
        .iter()
        .map(|taint| format!("{}={}:{}", taint.key, taint.value, taint.effect.as_str()))
        .collect();
    let taints = (!taints.is_empty()).then(|| flag("register-with-taints", &taints.join(",")));
    let list = |name: &str, of: &BTreeMap<String, String>, sign: &str| {
        (!of.is_empty()).then(|| flag(name, &joined(of, sign)))
    };
    let number = |name: &str, of: Option<u32>| of.map(|count| format!("--{name}={count}"));
    [
        labels,
        taints,
        number("max-pods", kubelet.max_pods),
        number("pods-per-core", kubelet.pods_per_core),
        list("system-reserved", &kubelet.system_reserved, "="),
        list("kube-reserved", &kubelet.kube_reserved, "="),
        list("eviction-hard", &kubelet.eviction_hard, "<"),
        list("eviction-soft", &kubelet.eviction_soft, "<"),
        list("eviction-soft-grace-period", &kubelet.eviction_soft_grace_period, "="),
        number("eviction-max-pod-grace-period", kubelet.eviction_max_pod_grace_period),
        number("image-gc-high-threshold", kubelet.image_gc_high_threshold),
        number("image-gc-low-threshold", kubelet.image_gc_low_threshold),
        kubelet.cpu_cfs_quota.map(|is_enforced| format!("--cpu-cfs-quota={is_enforced}")),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join(" ")
}

/// A flag with a quoted value: systemd and PowerShell would split or expand some values.
fn flag(name: &str, value: &str) -> String {
    format!("--{name}=\"{value}\"")
}

/// `key=value` pairs with commas between them.
pub(super) fn joined(pairs: &BTreeMap<String, String>, sign: &str) -> String {
    pairs.iter().map(|(key, value)| format!("{key}{sign}{value}")).collect::<Vec<_>>().join(",")
}
