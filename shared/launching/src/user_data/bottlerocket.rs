//! User data of Bottlerocket.
//!
//! Decides settings in TOML: the user's, and over them those of the cluster and its kubelet. Labels are merged, ours
//! over the user's; taints are replaced; everything else of the user's stays. A pool of instance store disks is made by
//! a bootstrap command of ours.
//!
//! Invariants: keys are sorted, so equal settings give equal bytes; a text that isn't TOML is refused with its line.
//! Comments and the user's order of keys are lost.
//!
//! Source: bottlerocket.dev/en/os/latest/api/settings/kubernetes and `bootstrap-commands`; aws/karpenter-provider-aws
//! `pkg/providers/amifamily/bootstrap/bottlerocket.go` and `pkg/providers/version`, `SupportsDefaultBind`.

use std::collections::BTreeMap;

use tenon_domain::catalog::settings::InstanceStorePolicy;
use toml::{Table, Value};

use super::{BootSettings, UserDataError};

/// The bootstrap command that mounts instance store disks: before the user's own, which run in the order of their names.
const MOUNT_COMMAND: &str = "000-mount-instance-storage";
/// The first version whose `ephemeral-storage bind` knows the directories itself: major, minor.
const BINDS_BY_ITSELF: (u32, u32) = (1, 46);
/// The directories for earlier versions, and for images whose version isn't known.
const DIRECTORIES: [&str; 3] = ["/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"];

pub(super) fn text(node: &BootSettings<'_>) -> Result<String, UserDataError> {
    let own = node.setup.class.user_data.as_deref().unwrap_or_default();
    let mut document: Table = own.parse().map_err(|error| not_toml(own, &error))?;
    let settings = table(&mut document, "settings", "settings")?;
    set_kubernetes(table(settings, "kubernetes", "settings.kubernetes")?, node)?;
    if let Some(InstanceStorePolicy::Raid0) = node.setup.class.settings.instance_store_policy {
        let commands = table(settings, "bootstrap-commands", "settings.bootstrap-commands")?;
        commands.insert(MOUNT_COMMAND.to_owned(), Value::Table(mount_command(node.image_name)));
    }
    // The kubelet would wait for an Auto Scaling group, and the instance is in none.
    if let Some(waits) = settings.get_mut("autoscaling").and_then(|group| group.get_mut("should-wait")) {
        *waits = Value::Boolean(false);
    }
    toml::to_string(&document).map_err(|error| UserDataError::Settings(error.to_string()))
}

/// The error for a text that isn't TOML. Lines count from 1.
fn not_toml(text: &str, error: &toml::de::Error) -> UserDataError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    UserDataError::Toml { line: before.matches('\n').count() + 1, message: error.message().to_owned() }
}

/// A table of settings, made if it is absent.
fn table<'t>(within: &'t mut Table, key: &str, place: &str) -> Result<&'t mut Table, UserDataError> {
    let value = within.entry(key).or_insert_with(|| Value::Table(Table::new()));
    value.as_table_mut().ok_or_else(|| UserDataError::NotATable(place.to_owned()))
}

fn set_kubernetes(to: &mut Table, node: &BootSettings<'_>) -> Result<(), UserDataError> {
    let (registry, kubelet) = (node.setup.registry, &node.kubelet);
    let mut set = |key: &str, value: Option<Value>| to.extend(value.map(|value| (key.to_owned(), value)));
    let number = |count: Option<u32>| count.map(|count| Value::Integer(i64::from(count)));
    // Bottlerocket takes percentages as texts in all its versions.
    let percent = |count: Option<u32>| count.map(|count| Value::String(count.to_string()));
    set("cluster-name", Some(Value::from(registry.cluster.as_str())));
    set("api-server", Some(Value::from(registry.endpoint.as_str())));
    set("cluster-certificate", Some(Value::from(registry.certificate_authority.as_str())));
    set("cluster-dns-ip", kubelet.cluster_dns.first().map(|address| Value::from(address.as_str())));
    set("max-pods", number(kubelet.max_pods));
    set("kube-reserved", texts(&kubelet.kube_reserved));
    set("system-reserved", texts(&kubelet.system_reserved));
    set("eviction-hard", texts(&kubelet.eviction_hard));
    set("eviction-soft", texts(&kubelet.eviction_soft));
    set("eviction-soft-grace-period", texts(&kubelet.eviction_soft_grace_period));
    set("eviction-max-pod-grace-period", number(kubelet.eviction_max_pod_grace_period));
    set("image-gc-high-threshold-percent", percent(kubelet.image_gc_high_threshold));
    set("image-gc-low-threshold-percent", percent(kubelet.image_gc_low_threshold));
    set("cpu-cfs-quota-enforced", kubelet.cpu_cfs_quota.map(Value::Boolean));
    set("node-taints", Some(Value::Table(taints(node))));
    let labels = table(to, "node-labels", "settings.kubernetes.node-labels")?;
    labels.extend(node.labels.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))));
    Ok(())
}

/// A table of texts; `None` for none, which leaves the user's.
fn texts(of: &BTreeMap<String, String>) -> Option<Value> {
    let texts = || of.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect();
    (!of.is_empty()).then(|| Value::Table(texts()))
}

/// The values and effects of each taint, by key.
fn taints(node: &BootSettings<'_>) -> Table {
    let mut by_key: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for taint in &node.taints {
        let text = format!("{}:{}", taint.value, taint.effect.as_str());
        by_key.entry(&taint.key).or_default().push(Value::String(text));
    }
    by_key.into_iter().map(|(key, texts)| (key.to_owned(), Value::Array(texts))).collect()
}

/// The command that makes one pool of the instance store disks, and puts the kubelet's and containerd's data on it. It
/// runs at each boot: a stopped instance comes back with empty disks.
fn mount_command(image_name: &str) -> Table {
    let word = |text: &str| Value::String(text.to_owned());
    let mut bind: Vec<Value> = ["apiclient", "ephemeral-storage", "bind"].map(word).to_vec();
    if version(image_name).is_none_or(|version| version < BINDS_BY_ITSELF) {
        bind.push(word("--dirs"));
        bind.extend(DIRECTORIES.map(word));
    }
    let init = ["apiclient", "ephemeral-storage", "init"].map(word).to_vec();
    let commands = Value::Array(vec![Value::Array(init), Value::Array(bind)]);
    [("commands", commands), ("essential", Value::Boolean(true)), ("mode", word("always"))]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// The version in the name of an image of Bottlerocket's own: `1.46` of
/// `bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a`.
fn version(image_name: &str) -> Option<(u32, u32)> {
    let of = |part: &str| {
        let mut numbers = part.strip_prefix('v')?.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    image_name.split('-').find_map(of)
}
