//! `spec.kubelet` of an EC2NodeClass.
//!
//! Decides the fields that Karpenter interprets (aws/karpenter-provider-aws
//! `pkg/apis/v1/kubeletconfiguration.go`). Other fields are the kubelet's own: they reach the node unchanged, and only
//! AMI families that pass them on may have them. Expressions (`maxPods: "vcpus * 10"`) are accepted, and their class is
//! not ready: its nodes would reserve less than it says.
//!
//! A wrong field of a file is an error. An API server accepts any field of `spec.kubelet`, so a stored class is read
//! with its [`KubeletProblem`], and becomes not ready with the reason.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde_json::Value;

use super::decode::{At, KeepUnknown, ManifestContext, ManifestSource, Place, quoted, reread, told};
use super::duration;
use super::error::ObjectProblem;
use super::fields::{MOST, Positive, integer, one_of, within};
use super::kubelet_fields::{KUBELETS_OWN, KubeletField};
use crate::catalog::settings::{
    AmiFamily, EvictionThreshold, KubeletConfiguration, KubeletProblem, Reserved,
};
use crate::requirement::hints::nearest;

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
/// The most errors that a condition's message spells out.
const MOST_TOLD: usize = 3;
const RESERVED: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];
const SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];
/// Variables of expressions: a text with one of them isn't a quantity.
const VARIABLES: [&str; 6] =
    ["vcpus", "memory_mib", "default_enis", "ips_per_eni", "max_pods", "instance_type"];

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct KubeletFields {
    #[serde(rename = "clusterDNS")]
    cluster_dns: Vec<String>,
    max_pods: Option<OrExpression<PodCount>>,
    #[serde(deserialize_with = "within::<0, MOST, _, _>")]
    pods_per_core: Option<u32>,
    system_reserved: BTreeMap<Reservable, OrExpression<Positive>>,
    kube_reserved: BTreeMap<Reservable, OrExpression<Positive>>,
    eviction_hard: BTreeMap<EvictionSignal, EvictionThreshold>,
    eviction_soft: BTreeMap<EvictionSignal, EvictionThreshold>,
    eviction_soft_grace_period: BTreeMap<EvictionSignal, GracePeriod>,
    #[serde(rename = "evictionMaxPodGracePeriod", deserialize_with = "within::<0, MOST, _, _>")]
    _eviction_max_pod_grace_period: Option<u32>,
    #[serde(rename = "imageGCHighThresholdPercent", deserialize_with = "within::<0, 100, _, _>")]
    image_gc_high: Option<u32>,
    #[serde(rename = "imageGCLowThresholdPercent", deserialize_with = "within::<0, 100, _, _>")]
    image_gc_low: Option<u32>,
    #[serde(rename = "cpuCFSQuota")]
    _cpu_cfs_quota: Option<bool>,
}

/// A value, or an expression of one.
#[derive(Debug)]
enum OrExpression<T> {
    Value(T),
    Expression,
}

#[derive(Debug, Deserialize)]
struct PodCount(#[serde(deserialize_with = "integer::<0, MOST, _, _>")] u32);

/// A resource that can be reserved.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reservable(String);

/// An eviction signal.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EvictionSignal(String);

/// A duration of zero or more.
#[derive(Debug)]
struct GracePeriod;

impl<'de, T: DeserializeOwned> Deserialize<'de> for OrExpression<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Value::deserialize(deserializer)?;
        if is_expression(&given) { Ok(Self::Expression) } else { reread(&given).map(Self::Value) }
    }
}

impl<'de> Deserialize<'de> for Reservable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if RESERVED.contains(&name.as_str()) {
            return Ok(Self(name));
        }
        let remedy = nearest(&name, RESERVED).map_or("use one of these".to_owned(), did_you_mean);
        Err(Error::custom(told(
            format!("`{name}` can't be reserved: expected {}", quoted(&RESERVED)),
            remedy,
        )))
    }
}

impl<'de> Deserialize<'de> for EvictionSignal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        one_of(deserializer, "an eviction signal", &SIGNALS).map(Self)
    }
}

impl<'de> Deserialize<'de> for GracePeriod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let fits = duration::parse_go(&text).is_some_and(|duration| !duration.is_negative());
        let wrong =
            || told(format!("`{text}` is not a duration of zero or more"), "write `1m30s` or similar");
        fits.then_some(Self).ok_or_else(|| Error::custom(wrong()))
    }
}

impl<'de> Deserialize<'de> for EvictionThreshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if !text.ends_with('%') {
            return reread(&text.into()).map(|Positive(quantity)| Self::Quantity(quantity));
        }
        let wrong = || told(format!("`{text}` is not a percentage"), "write `0%` to `100%`");
        Self::parse_percentage(&text).ok_or_else(|| Error::custom(wrong()))
    }
}

fn did_you_mean(near: &str) -> String {
    format!("did you mean `{near}`?")
}

/// Reads `spec.kubelet`.
pub(super) fn read_kubelet(
    at: At<'_, '_>,
    family: AmiFamily,
    unsupported: &mut Vec<String>,
) -> KubeletConfiguration {
    let (place, context) = (&at.place, at.place.context());
    let document = Some(at.value.to_string());
    let before = context.errors();
    let written = at.read::<KeepUnknown<KubeletFields>>().map(|KeepUnknown(written)| written);
    if let Some(written) = &written {
        check_fields(at);
        check_soft(written, place);
        check_image_gc(written, place);
    }
    let invalid = problem_since(context, before).map(KubeletProblem::Invalid);
    let Some(written) = written else {
        return KubeletConfiguration { document, problem: invalid, ..KubeletConfiguration::default() };
    };
    check_family(at, &written, family);
    let not_told = problem_since(context, before).map(KubeletProblem::Unsupported);
    let first = unsupported.len();
    let max_pods = match written.max_pods {
        Some(OrExpression::Value(PodCount(count))) => Some(count),
        Some(OrExpression::Expression) => {
            unsupported.push(place.key("maxPods").to_string());
            None
        }
        None => None,
    };
    let kube_reserved = reserved(&written.kube_reserved, &place.key("kubeReserved"), unsupported);
    let system_reserved = reserved(&written.system_reserved, &place.key("systemReserved"), unsupported);
    let expressions = expressions(unsupported.get(first..).unwrap_or_default());
    let of = |signal: &str| written.eviction_hard.get(&EvictionSignal(signal.to_owned())).copied();
    KubeletConfiguration {
        max_pods,
        pods_per_core: written.pods_per_core,
        kube_reserved,
        system_reserved,
        eviction_memory: of("memory.available"),
        eviction_nodefs: of("nodefs.available"),
        cluster_dns: written.cluster_dns,
        document,
        problem: invalid.or(expressions).or(not_told),
    }
}

/// The problem of fields whose values are expressions.
fn expressions(fields: &[String]) -> Option<KubeletProblem> {
    let told = || {
        format!("expressions aren't supported: write values instead of those of `{}`", fields.join("`, `"))
    };
    (!fields.is_empty()).then(|| KubeletProblem::Expressions(told()))
}

/// The errors of a stored object since there were so many, in sentences; they no longer make the object unreadable.
/// Those of a file stay errors.
fn problem_since(context: &ManifestContext, before: usize) -> Option<String> {
    match context.source {
        ManifestSource::File => return None,
        ManifestSource::Server => {}
    }
    let found = context.problems.borrow_mut().split_off(before);
    let sentence = |problem: &ObjectProblem| {
        let ObjectProblem { field, message, remedy, .. } = problem;
        format!("`{field}`: {message} ({remedy})")
    };
    let mut told: Vec<String> = found.iter().take(MOST_TOLD).map(sentence).collect();
    let more = found.len().saturating_sub(MOST_TOLD);
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    (!told.is_empty()).then(|| told.join("; "))
}

const fn passes_on(family: AmiFamily) -> bool {
    matches!(family, AmiFamily::Al2023 | AmiFamily::Custom)
}

/// Checks the names of all fields, and the types of those that Karpenter doesn't interpret.
fn check_fields(at: At<'_, '_>) {
    for (key, value) in at.value.as_object().into_iter().flatten() {
        let field = at.place.key(key);
        if key == "registerWithTaints" {
            field.error("node taints can't be set here", "write `taints` in the NodePool's template");
        } else if !KNOWN.contains(&key.as_str()) {
            match KUBELETS_OWN.iter().find(|(name, _)| name == key) {
                Some((_, form)) => check_form(*form, value, &field),
                None => {
                    let names = KNOWN.into_iter().chain(KUBELETS_OWN.iter().map(|(name, _)| *name));
                    let remedy = nearest(key, names).map_or("leave it out".to_owned(), did_you_mean);
                    field.error("unknown field", remedy);
                }
            }
        }
    }
}

fn check_form(form: KubeletField, value: &Value, field: &Place<'_>) {
    if !value.is_null() && !form.takes(value) {
        field.error(format!("expected {}", form.words()), format!("write {}", form.words()));
    }
}

/// Checks that the family's kubelet is told each field.
fn check_family(at: At<'_, '_>, written: &KubeletFields, family: AmiFamily) {
    let place = &at.place;
    if written.cluster_dns.len() > 1 && !passes_on(family) {
        place.key("clusterDNS").error(format!("AMI family `{family}` takes one address"), "keep one");
    }
    for key in at.value.as_object().into_iter().flat_map(|fields| fields.keys()) {
        let field = place.key(key);
        if key == "podsPerCore" && !family.honours_pods_per_core() {
            field.error(format!("AMI family `{family}` doesn't know `podsPerCore`"), "write `maxPods`");
        } else if !passes_on(family) && KUBELETS_OWN.iter().any(|(name, _)| name == key) {
            field.error(
                format!("AMI family `{family}` doesn't pass this field on to the kubelet"),
                "leave it out, or use `AL2023`",
            );
        }
    }
}

fn check_image_gc(written: &KubeletFields, place: &Place<'_>) {
    if let (Some(high), Some(low)) = (written.image_gc_high, written.image_gc_low)
        && high <= low
    {
        place.key("imageGCHighThresholdPercent").error(
            "`imageGCHighThresholdPercent` must be above `imageGCLowThresholdPercent`",
            format!("write more than {low}"),
        );
    }
}

fn is_expression(given: &Value) -> bool {
    given.as_str().is_some_and(|text| VARIABLES.iter().any(|variable| text.contains(variable)))
}

fn reserved(
    amounts: &BTreeMap<Reservable, OrExpression<Positive>>,
    place: &Place<'_>,
    unsupported: &mut Vec<String>,
) -> Reserved {
    let mut reserved = Reserved::default();
    for (Reservable(name), amount) in amounts {
        let quantity = match amount {
            OrExpression::Value(Positive(quantity)) => *quantity,
            OrExpression::Expression => {
                unsupported.push(place.key(name).to_string());
                continue;
            }
        };
        let slot = match name.as_str() {
            "cpu" => &mut reserved.cpu,
            "memory" => &mut reserved.memory,
            "ephemeral-storage" => &mut reserved.ephemeral_storage,
            _ => &mut reserved.pid,
        };
        *slot = Some(quantity);
    }
    reserved
}

/// Checks that soft thresholds and their grace periods name the same signals.
fn check_soft(written: &KubeletFields, place: &Place<'_>) {
    let thresholds: BTreeSet<&EvictionSignal> = written.eviction_soft.keys().collect();
    let periods: BTreeSet<&EvictionSignal> = written.eviction_soft_grace_period.keys().collect();
    for (key, own, other, others) in [
        ("evictionSoft", &thresholds, "evictionSoftGracePeriod", &periods),
        ("evictionSoftGracePeriod", &periods, "evictionSoft", &thresholds),
    ] {
        for EvictionSignal(name) in own.difference(others) {
            place.key(key).key(name).error(
                format!("`{other}` has no `{name}`"),
                "give a threshold and a grace period for each signal",
            );
        }
    }
}
