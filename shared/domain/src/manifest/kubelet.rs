//! `spec.kubelet` of an EC2NodeClass.
//!
//! Decides the fields that Karpenter interprets (aws/karpenter-provider-aws
//! `pkg/apis/v1/kubeletconfiguration.go`). Other fields are the kubelet's own and go to the
//! node as they are; only the families that pass them on may have them. Expressions (`maxPods: "vcpus * 10"`) are
//! accepted and named as unsupported.

use std::collections::BTreeMap;

use crate::catalog::settings::{AmiFamily, EvictionThreshold, Kubelet, Reserved};
use crate::quantity::Quantity;
use crate::requirement::hints::nearest;

use super::decode::{At, Fields, quoted};
use super::duration;
use super::tree::Value;

/// Fields that Karpenter interprets.
const KNOWN: [&str; 12] = [
    "clusterDNS",
    "maxPods",
    "podsPerCore",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "cpuCFSQuota",
];
const RESERVED: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];
const SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];
/// Variables of expressions: a text that names one isn't meant as a quantity.
const VARIABLES: [&str; 6] =
    ["vcpus", "memory_mib", "default_enis", "ips_per_eni", "max_pods", "instance_type"];
const COUNT: std::ops::RangeInclusive<i64> = 0..=i32::MAX as i64;

pub(super) fn read_kubelet(spec: At<'_>, family: AmiFamily, unsupported: &mut Vec<String>) -> Kubelet {
    let Some(at) = spec.object("kubelet", Fields::Any) else { return Kubelet::default() };
    check_fields(at, family);
    let cluster_dns = at.texts("clusterDNS");
    let passes_on = matches!(family, AmiFamily::Al2023 | AmiFamily::Custom);
    if cluster_dns.len() > 1
        && !passes_on
        && let Some(field) = at.field("clusterDNS")
    {
        field.error(format!("AMI family `{family}` takes one address"), "keep one");
    }
    let hard = read_signals(at, "evictionHard");
    check_soft(at);
    let _: Option<u32> = at.integer_of("evictionMaxPodGracePeriod", COUNT);
    at.boolean("cpuCFSQuota");
    check_image_gc(at);
    let of = |signal: &str| hard.get(signal).copied();
    Kubelet {
        max_pods: read_max_pods(at, unsupported),
        pods_per_core: at.integer_of("podsPerCore", COUNT),
        kube_reserved: read_reserved(at, "kubeReserved", unsupported),
        system_reserved: read_reserved(at, "systemReserved", unsupported),
        eviction_memory: of("memory.available"),
        eviction_nodefs: of("nodefs.available"),
        cluster_dns,
        document: Some(at.tree().to_json()),
    }
}

fn check_fields(at: At<'_>, family: AmiFamily) {
    let passes_on = matches!(family, AmiFamily::Al2023 | AmiFamily::Custom);
    for (key, value) in at.entries() {
        if key == "registerWithTaints" {
            value.error("taints of nodes aren't set here", "write `taints` in the NodePool's template");
        } else if key == "podsPerCore" && !family.honours_pods_per_core() {
            value.error(format!("AMI family `{family}` doesn't know `podsPerCore`"), "write `maxPods`");
        } else if !KNOWN.contains(&key) {
            let near = nearest(key, KNOWN);
            match near.filter(|near| near.eq_ignore_ascii_case(key)) {
                Some(near) => value.error("unknown field", format!("did you mean `{near}`?")),
                None if !passes_on => value.error(
                    format!("AMI family `{family}` doesn't pass this field on to the kubelet"),
                    "leave it out, or use `AL2023`",
                ),
                None => {}
            }
        }
    }
}

fn is_expression(text: &str) -> bool {
    VARIABLES.iter().any(|variable| text.contains(variable))
}

fn read_max_pods(at: At<'_>, unsupported: &mut Vec<String>) -> Option<u32> {
    let field = at.field("maxPods")?;
    match &field.tree().value {
        Value::Text(text) if is_expression(text) => {
            unsupported.push(field.to_string());
            None
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
            field.integer(COUNT)
        }
    }
}

fn read_reserved(at: At<'_>, key: &str, unsupported: &mut Vec<String>) -> Reserved {
    let mut reserved = Reserved::default();
    let Some(map) = at.object(key, Fields::Any) else { return reserved };
    for (name, value) in map.entries() {
        if let Value::Text(text) = &value.tree().value
            && is_expression(text)
        {
            unsupported.push(value.to_string());
            continue;
        }
        let slot = match name {
            "cpu" => &mut reserved.cpu,
            "memory" => &mut reserved.memory,
            "ephemeral-storage" => &mut reserved.ephemeral_storage,
            "pid" => &mut reserved.pid,
            _ => {
                let near = nearest(name, RESERVED);
                let remedy =
                    near.map_or("use one of these".to_owned(), |near| format!("did you mean `{near}`?"));
                value.error(format!("`{name}` can't be reserved: expected {}", quoted(&RESERVED)), remedy);
                continue;
            }
        };
        *slot = value.quantity().filter(|quantity| not_negative(value, *quantity));
    }
    reserved
}

fn not_negative(at: At<'_>, quantity: Quantity) -> bool {
    if quantity.is_negative() {
        at.error(format!("`{quantity}` is negative"), "write zero or more");
    }
    !quantity.is_negative()
}

/// Reads thresholds by signal.
fn read_signals(at: At<'_>, key: &str) -> BTreeMap<String, EvictionThreshold> {
    let Some(map) = at.object(key, Fields::Any) else { return BTreeMap::new() };
    let mut thresholds = BTreeMap::new();
    for (name, value) in map.entries() {
        check_signal(value, name);
        let Some(text) = value.text() else { continue };
        let threshold = if text.ends_with('%') {
            let share = EvictionThreshold::parse_percentage(text);
            if share.is_none() {
                value.error(format!("`{text}` is not a percentage"), "write `0%` to `100%`");
            }
            share
        } else {
            value
                .quantity()
                .filter(|quantity| not_negative(value, *quantity))
                .map(EvictionThreshold::Quantity)
        };
        thresholds.extend(threshold.map(|threshold| (name.to_owned(), threshold)));
    }
    thresholds
}

fn check_signal(value: At<'_>, name: &str) {
    if !SIGNALS.contains(&name) {
        let near = nearest(name, SIGNALS);
        let remedy = near.map_or("use one of these".to_owned(), |near| format!("did you mean `{near}`?"));
        value.error(format!("`{name}` is not an eviction signal: expected {}", quoted(&SIGNALS)), remedy);
    }
}

/// Soft thresholds and their grace periods have to name the same signals.
fn check_soft(at: At<'_>) {
    read_signals(at, "evictionSoft");
    let periods = at.object("evictionSoftGracePeriod", Fields::Any);
    if let Some(map) = periods {
        for (name, value) in map.entries() {
            check_signal(value, name);
            let Some(text) = value.text() else { continue };
            if duration::parse_go(text).is_none_or(|duration| duration.is_negative()) {
                value
                    .error(format!("`{text}` is not a duration of zero or more"), "write `1m30s` or similar");
            }
        }
    }
    let has = |key: &str, name: &str| at.tree().get(key).is_some_and(|entry| entry.value.get(name).is_some());
    for (key, other) in
        [("evictionSoft", "evictionSoftGracePeriod"), ("evictionSoftGracePeriod", "evictionSoft")]
    {
        let Some(map) = at.field(key) else { continue };
        for (name, value) in map.entries().filter(|(name, _)| !has(other, name)) {
            value.error(
                format!("`{other}` has no `{name}`"),
                "give a threshold and a grace period for each signal",
            );
        }
    }
}

fn check_image_gc(at: At<'_>) {
    let high: Option<u32> = at.integer_of("imageGCHighThresholdPercent", 0..=100);
    let low: Option<u32> = at.integer_of("imageGCLowThresholdPercent", 0..=100);
    if let (Some(high), Some(low), Some(field)) = (high, low, at.field("imageGCHighThresholdPercent"))
        && high <= low
    {
        field.error(
            "`imageGCHighThresholdPercent` must be above `imageGCLowThresholdPercent`",
            format!("write more than {low}"),
        );
    }
}
