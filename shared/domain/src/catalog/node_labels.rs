//! Labels of a node that follow from its instance type and AMI family.
//!
//! Decides the labels of aws/karpenter-provider-aws `pkg/providers/instancetype/types.go`, except an offering's own
//! (zone, region, capacity type, reservation). Invariant: every type has every key; a key without a value is an
//! explicit `DoesNotExist`. So a pod that requires a GPU never matches a type without one, and a pod that requires
//! its absence does.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::catalog::facts::{Architecture, Hypervisor, InstanceTypeFacts, Support};
use crate::catalog::settings::AmiFamily;
use crate::labels;
use crate::requirement::{Requirement, Requirements};

type LabelText<'a> = Option<Cow<'a, str>>;

/// The labels of the type's nodes, as requirements.
#[must_use]
pub fn requirements(facts: &InstanceTypeFacts, family: AmiFamily) -> Requirements {
    let mut requirements = Requirements::new();
    for (key, value) in values(facts, family) {
        requirements.replace(match value {
            Some(value) => Requirement::one_of(key, [value]),
            None => Requirement::does_not_exist(key),
        });
    }
    requirements.replace(Requirement::one_of(labels::INSTANCE_TENANCY, ["default", "dedicated"]));
    requirements
}

/// The labels that a type gives its nodes: those with one value. The value may be empty: bare metal has an empty
/// hypervisor, by which pods can select it.
#[must_use]
pub fn labels_of_type(facts: &InstanceTypeFacts, family: AmiFamily) -> BTreeMap<&'static str, String> {
    values(facts, family)
        .into_iter()
        .filter_map(|(key, value)| value.map(|value| (key, value.into_owned())))
        .collect()
}

/// The same without `nitro-sandbox` and empty values, which Karpenter's reference of instance types lacks.
#[must_use]
pub fn published_labels(facts: &InstanceTypeFacts, family: AmiFamily) -> BTreeMap<&'static str, String> {
    let mut published = labels_of_type(facts, family);
    published.retain(|key, value| *key != labels::NITRO_SANDBOX && !value.is_empty());
    published
}

/// The labels of a family's nodes that a type doesn't give them under the default family: those of Windows.
#[must_use]
pub fn labels_of_family(family: AmiFamily) -> BTreeMap<&'static str, &'static str> {
    let windows = |build| BTreeMap::from([(labels::OS, "windows"), (labels::WINDOWS_BUILD, build)]);
    family.windows_build().map(windows).unwrap_or_default()
}

fn values(facts: &InstanceTypeFacts, family: AmiFamily) -> Vec<(&'static str, LabelText<'_>)> {
    let name = facts.name.as_str();
    let (type_family, size) = name.split_once('.').unwrap_or((name, ""));
    let category = category_and_generation(type_family);
    let architecture = architecture(facts);
    let os = match family.windows_build() {
        None => Some(Cow::Borrowed("linux")),
        Some(_) if architecture == "amd64" => Some(Cow::Borrowed("windows")),
        Some(_) => None,
    };
    let store = facts.instance_store.filter(|store| store.nvme != Support::Unsupported);
    let ebs = facts.ebs.max_bandwidth_mbps.filter(|_| facts.ebs.optimized == Support::Always);
    let mut values = vec![
        (labels::INSTANCE_TYPE, text(name)),
        (labels::ARCH, Some(architecture)),
        (labels::OS, os),
        (labels::WINDOWS_BUILD, family.windows_build().map(Cow::Borrowed)),
        (labels::INSTANCE_CATEGORY, category.map(|(category, _)| Cow::Borrowed(category))),
        (labels::INSTANCE_GENERATION, category.map(|(_, generation)| Cow::Borrowed(generation))),
        (labels::INSTANCE_FAMILY, text(type_family)),
        (labels::INSTANCE_SIZE, text(size)),
        (labels::INSTANCE_CPU, number(facts.vcpus)),
        (labels::INSTANCE_MEMORY, number(facts.memory_mib)),
        (labels::INSTANCE_CPU_MANUFACTURER, facts.processor.manufacturer.as_deref().map(lower_kebab)),
        // Types for which EC2 states no speed have 0, as with Karpenter: pools that ask for `Lt` match them.
        (labels::INSTANCE_CPU_CLOCK_MHZ, number(facts.processor.clock_speed_mhz.unwrap_or(0))),
        (labels::INSTANCE_EBS_BANDWIDTH, ebs.and_then(number)),
        (labels::INSTANCE_NETWORK_BANDWIDTH, facts.network.bandwidth_mbps.and_then(number)),
        (labels::INSTANCE_LOCAL_NVME, store.and_then(|store| number(store.total_gb))),
        (labels::INSTANCE_CAPABILITY_FLEX, truth(type_family.contains("-flex"))),
        (labels::INSTANCE_HYPERVISOR, text(facts.hypervisor.as_ref().map_or("", Hypervisor::as_str))),
        (labels::INSTANCE_ENCRYPTION_IN_TRANSIT, truth(facts.network.encryption_in_transit)),
        (labels::NITRO_SANDBOX, truth(facts.nitro_enclaves)),
    ];
    values.extend(gpu(facts));
    values.extend(accelerator(facts));
    values
}

/// The GPU's labels, when there is one kind.
fn gpu(facts: &InstanceTypeFacts) -> [(&'static str, LabelText<'_>); 4] {
    let only = match facts.gpus.as_slice() {
        [gpu] => Some(gpu),
        _ => None,
    };
    [
        (labels::INSTANCE_GPU_NAME, only.map(|gpu| lower_kebab(&gpu.name))),
        (labels::INSTANCE_GPU_MANUFACTURER, only.map(|gpu| lower_kebab(&gpu.manufacturer))),
        (labels::INSTANCE_GPU_COUNT, only.and_then(|gpu| number(gpu.count))),
        (labels::INSTANCE_GPU_MEMORY, only.and_then(|gpu| number(gpu.memory_mib))),
    ]
}

/// The accelerator's labels, if there is one kind. Neuron devices come before EC2's inference accelerators.
fn accelerator(facts: &InstanceTypeFacts) -> [(&'static str, LabelText<'_>); 3] {
    let only = match (facts.inference_accelerators.as_slice(), facts.neuron_devices.as_slice()) {
        ([one], []) => Some((&one.name, one.manufacturer.as_str(), one.count)),
        (_, [one]) => Some((&one.name, "aws", one.count)),
        _ => None,
    };
    [
        (labels::INSTANCE_ACCELERATOR_NAME, only.map(|(name, _, _)| lower_kebab(name))),
        (
            labels::INSTANCE_ACCELERATOR_MANUFACTURER,
            only.map(|(_, manufacturer, _)| lower_kebab(manufacturer)),
        ),
        (labels::INSTANCE_ACCELERATOR_COUNT, only.and_then(|(_, _, count)| number(count))),
    ]
}

/// Kubernetes' name of the first architecture that it has one for; otherwise EC2's list as it is.
pub(super) fn architecture(facts: &InstanceTypeFacts) -> Cow<'_, str> {
    let known = facts.architectures.iter().find_map(Architecture::kubernetes);
    known.map_or_else(
        || {
            let names: Vec<_> = facts.architectures.iter().map(Architecture::as_str).collect();
            Cow::Owned(format!("[{}]", names.join(" ")))
        },
        Cow::Borrowed,
    )
}

/// `c` and `7` of `c7gn`, `u` and `1` of `u-6tb1`; none if letters aren't followed by digits (`mac-m4`).
fn category_and_generation(type_family: &str) -> Option<(&str, &str)> {
    let category = leading(type_family, |c| c.is_ascii_lowercase())?;
    let rest = type_family.strip_prefix(category)?;
    let terabytes = rest.strip_prefix('-').and_then(|rest| {
        let digits = leading(rest, |c| c.is_ascii_digit())?;
        rest.strip_prefix(digits)?.strip_prefix("tb")
    });
    Some((category, leading(terabytes.unwrap_or(rest), |c| c.is_ascii_digit())?))
}

fn leading(text: &str, belongs: fn(char) -> bool) -> Option<&str> {
    let end = text.find(|c| !belongs(c)).unwrap_or(text.len());
    text.get(..end).filter(|head| !head.is_empty())
}

fn text(value: &str) -> LabelText<'_> {
    Some(Cow::Borrowed(value))
}

fn number<'a>(value: impl ToString) -> LabelText<'a> {
    Some(Cow::Owned(value.to_string()))
}

fn truth<'a>(value: bool) -> LabelText<'a> {
    Some(Cow::Borrowed(if value { "true" } else { "false" }))
}

fn lower_kebab(value: &str) -> Cow<'_, str> {
    if value.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        return Cow::Borrowed(value);
    }
    Cow::Owned(value.to_lowercase().replace(' ', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(type_family: &str, expected: Option<(&str, &str)>) {
        assert_eq!(category_and_generation(type_family), expected, "{type_family}");
    }

    #[test]
    fn category_and_generation_are_read_from_the_family() {
        check("c7gn", Some(("c", "7")));
        check("u-6tb1", Some(("u", "1")));
        check("u7i-12tb", Some(("u", "7")));
        check("c10g", Some(("c", "10")));
        check("p6-b200", Some(("p", "6")));
        check("mac-m4", None);
        check("mac2-m1ultra", Some(("mac", "2")));
    }

    #[test]
    fn manufacturers_and_names_are_lower_case_with_dashes() {
        assert_eq!(lower_kebab("RTX PRO Server 6000"), "rtx-pro-server-6000");
        assert_eq!(lower_kebab("NVIDIA"), "nvidia");
    }
}
