//! EC2's descriptions, read into facts.
//!
//! Decides which fields are required. A type without one of them has no facts; the error names the field.

use super::limits::Limits;
use super::wire::{
    DeviceInfo, EbsInfo, InstanceStorageInfo, InstanceTypeInfo, MemoryInfo, NetworkInfo, items,
};
use crate::catalog::facts::{
    Architecture, BootModes, Ebs, EbsAttachments, Gpu, Hypervisor, InferenceAccelerator, InstanceStore,
    InstanceTypeFacts, Network, NetworkCard, NeuronDevice, PlacementStrategy, Processor, Support, UsageClass,
};
use crate::id::{InstanceType, ParseIdError};

/// A description that no facts can be made from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactsError {
    /// A field that the catalogue can't do without is missing.
    #[error("instance type `{instance_type}` has no `{field}`: leave the type out, or describe it again")]
    Missing {
        /// The type, empty where the name itself is missing.
        instance_type: String,
        /// The dotted path of the field.
        field: &'static str,
    },
    /// A field has an impossible value.
    #[error(
        "instance type `{instance_type}` has `{value}` as `{field}`: leave the type out, or describe it again"
    )]
    Malformed {
        /// The type.
        instance_type: String,
        /// The dotted path of the field.
        field: &'static str,
        /// The value as EC2 gave it.
        value: String,
    },
    /// The name isn't an instance type's.
    #[error("an instance type has a malformed name")]
    Name(#[source] ParseIdError),
}

/// Reads one description.
///
/// # Errors
/// [`FactsError`] naming the type and the field that is missing or malformed.
pub fn facts(info: &InstanceTypeInfo, limits: &Limits) -> Result<InstanceTypeFacts, FactsError> {
    let name = info.instance_type.as_deref().unwrap_or_default();
    let missing = |field| FactsError::Missing { instance_type: name.to_owned(), field };
    if name.is_empty() {
        return Err(missing("InstanceType"));
    }
    let processor = info.processor_info.as_ref().ok_or_else(|| missing("ProcessorInfo"))?;
    let architectures: Vec<_> = items(processor.supported_architectures.as_ref())
        .iter()
        .map(|name| Architecture::from_ec2(name))
        .collect();
    if architectures.is_empty() {
        return Err(missing("ProcessorInfo.SupportedArchitectures"));
    }
    Ok(InstanceTypeFacts {
        name: InstanceType::parse(name).map_err(FactsError::Name)?,
        vcpus: info
            .vcpu_info
            .as_ref()
            .and_then(|i| i.default_vcpus)
            .ok_or_else(|| missing("VCpuInfo.DefaultVCpus"))?,
        memory_mib: mib(info.memory_info.as_ref()).ok_or_else(|| missing("MemoryInfo.SizeInMiB"))?,
        architectures,
        processor: Processor {
            manufacturer: processor.manufacturer.clone(),
            clock_speed_mhz: processor
                .sustained_clock_speed_in_ghz
                .map(|ghz| megahertz(name, ghz))
                .transpose()?,
            features: items(processor.supported_features.as_ref()).to_vec(),
        },
        gpus: items(info.gpu_info.as_ref().and_then(|i| i.gpus.as_ref())).iter().map(gpu).collect(),
        neuron_devices: items(info.neuron_info.as_ref().and_then(|i| i.neuron_devices.as_ref()))
            .iter()
            .map(neuron_device)
            .collect(),
        inference_accelerators: items(
            info.inference_accelerator_info.as_ref().and_then(|i| i.accelerators.as_ref()),
        )
        .iter()
        .map(inference_accelerator)
        .collect(),
        instance_store: info.instance_storage_info.as_ref().and_then(instance_store),
        ebs: info.ebs_info.as_ref().map(ebs).unwrap_or_default(),
        network: network(name, info.network_info.as_ref().ok_or_else(|| missing("NetworkInfo"))?, limits)?,
        hypervisor: info.hypervisor.as_deref().filter(|name| !name.is_empty()).map(Hypervisor::from_ec2),
        bare_metal: info.bare_metal.unwrap_or_default(),
        nitro_enclaves: support(info.nitro_enclaves_support.as_deref()) != Support::Unsupported,
        burstable: info.burstable_performance_supported.unwrap_or_default(),
        current_generation: info.current_generation.unwrap_or_default(),
        usage_classes: items(info.supported_usage_classes.as_ref())
            .iter()
            .map(|n| UsageClass::from_ec2(n))
            .collect(),
        placement_strategies: items(
            info.placement_group_info.as_ref().and_then(|i| i.supported_strategies.as_ref()),
        )
        .iter()
        .filter_map(|name| PlacementStrategy::parse(name))
        .collect(),
        boot_modes: BootModes::from_ec2(items(info.supported_boot_modes.as_ref())),
    })
}

fn network(name: &str, info: &NetworkInfo, limits: &Limits) -> Result<Network, FactsError> {
    let missing = |field| FactsError::Missing { instance_type: name.to_owned(), field };
    let default_card = info.default_network_card_index.unwrap_or(0);
    let mut cards: Vec<_> = items(info.network_cards.as_ref())
        .iter()
        .filter_map(|card| {
            Some(NetworkCard {
                index: card.network_card_index?,
                max_interfaces: card.maximum_network_interfaces?,
            })
        })
        .collect();
    cards.sort_unstable();
    let default_card_interfaces = cards
        .iter()
        .find(|card| card.index == default_card)
        .ok_or_else(|| missing("NetworkInfo.NetworkCards[DefaultNetworkCardIndex].MaximumNetworkInterfaces"))?
        .max_interfaces;
    Ok(Network {
        ena: support(info.ena_support.as_deref()),
        default_card_interfaces,
        cards,
        ipv4_per_interface: info
            .ipv4_addresses_per_interface
            .ok_or_else(|| missing("NetworkInfo.Ipv4AddressesPerInterface"))?,
        max_efa_interfaces: info.efa_info.as_ref().and_then(|efa| efa.maximum_efa_interfaces).unwrap_or(0),
        encryption_in_transit: info.encryption_in_transit_supported.unwrap_or_default(),
        bandwidth_mbps: limits.bandwidth_mbps.get(name).copied(),
        branch_interfaces: limits
            .eni
            .get(name)
            .filter(|eni| eni.trunking)
            .map_or(0, |eni| eni.branch_interfaces),
    })
}

fn gpu(info: &DeviceInfo) -> Gpu {
    Gpu {
        name: info.name.clone().unwrap_or_default(),
        manufacturer: info.manufacturer.clone().unwrap_or_default(),
        count: info.count.unwrap_or(0),
        memory_mib: mib(info.memory_info.as_ref()).unwrap_or(0),
    }
}

fn neuron_device(info: &DeviceInfo) -> NeuronDevice {
    NeuronDevice {
        name: info.name.clone().unwrap_or_default(),
        count: info.count.unwrap_or(0),
        cores: info.core_info.as_ref().and_then(|cores| cores.count).unwrap_or(0),
    }
}

fn inference_accelerator(info: &DeviceInfo) -> InferenceAccelerator {
    InferenceAccelerator {
        name: info.name.clone().unwrap_or_default(),
        manufacturer: info.manufacturer.clone().unwrap_or_default(),
        count: info.count.unwrap_or(0),
    }
}

fn instance_store(info: &InstanceStorageInfo) -> Option<InstanceStore> {
    Some(InstanceStore { total_gb: info.total_size_in_gb?, nvme: support(info.nvme_support.as_deref()) })
}

fn ebs(info: &EbsInfo) -> Ebs {
    Ebs {
        optimized: support(info.ebs_optimized_support.as_deref()),
        max_bandwidth_mbps: info.ebs_optimized_info.as_ref().and_then(|ebs| ebs.maximum_bandwidth_in_mbps),
        attachments: info.maximum_ebs_attachments.map(|most| match info.attachment_limit_type.as_deref() {
            Some("dedicated") => EbsAttachments::Dedicated(most),
            Some(_) | None => EbsAttachments::Shared(most),
        }),
    }
}

fn support(word: Option<&str>) -> Support {
    match word {
        Some("required" | "default") => Support::Always,
        Some("supported") => Support::Supported,
        Some(_) | None => Support::Unsupported,
    }
}

fn mib(info: Option<&MemoryInfo>) -> Option<u64> {
    info.and_then(|memory| memory.size_in_mib)
}

/// GHz to whole MHz, half up, on the number's decimal digits: 2.3 as a float times 1000 isn't 2300 exactly.
fn megahertz(name: &str, ghz: f64) -> Result<u32, FactsError> {
    let text = ghz.to_string();
    let parsed = || {
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let mut digits = fraction.chars().chain(std::iter::repeat('0')).map(|digit| digit.to_digit(10));
        let mut mhz = whole.parse::<u32>().ok()?;
        for _ in 0..3 {
            mhz = mhz.checked_mul(10)?.checked_add(digits.next()??)?;
        }
        mhz.checked_add(u32::from(digits.next()?? >= 5))
    };
    parsed().ok_or_else(|| FactsError::Malformed {
        instance_type: name.to_owned(),
        field: "ProcessorInfo.SustainedClockSpeedInGhz",
        value: text.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described() -> serde_json::Value {
        serde_json::json!({
            "InstanceType": "m5.large",
            "VCpuInfo": {"DefaultVCpus": 2},
            "MemoryInfo": {"SizeInMiB": 8192},
            "ProcessorInfo": {"Manufacturer": "Intel", "SupportedArchitectures": ["x86_64"]},
            "NetworkInfo": {
                "NetworkCards": [{"NetworkCardIndex": 0, "MaximumNetworkInterfaces": 3}],
                "Ipv4AddressesPerInterface": 10
            },
            "SomethingNew": {"Anything": 1}
        })
    }

    fn check_missing(path: &[&str], field: &str) {
        let mut value = described();
        let (last, parents) = path.split_last().unwrap();
        let parent = parents.iter().fold(&mut value, |value, key| &mut value[*key]);
        parent.as_object_mut().unwrap().remove(*last);
        let info = serde_json::from_value(value).unwrap();
        let error = facts(&info, &Limits::default()).unwrap_err().to_string();
        assert!(error.contains(&format!("has no `{field}`")), "{error}");
    }

    fn check_clock(ghz: f64, expected: Option<u32>) {
        assert_eq!(megahertz("m5.large", ghz).ok(), expected, "{ghz}");
    }

    #[test]
    fn a_description_with_the_least_gives_facts() {
        let info: InstanceTypeInfo = serde_json::from_value(described()).unwrap();
        let facts = facts(&info, &Limits::default()).unwrap();
        assert_eq!((facts.vcpus, facts.memory_mib, facts.network.default_card_interfaces), (2, 8192, 3));
        assert_eq!(facts.network.branch_interfaces, 0);
    }

    #[test]
    fn a_missing_field_is_named_with_its_type() {
        check_missing(&["InstanceType"], "InstanceType");
        check_missing(&["VCpuInfo"], "VCpuInfo.DefaultVCpus");
        check_missing(&["MemoryInfo", "SizeInMiB"], "MemoryInfo.SizeInMiB");
        check_missing(&["ProcessorInfo", "SupportedArchitectures"], "ProcessorInfo.SupportedArchitectures");
        check_missing(
            &["NetworkInfo", "NetworkCards"],
            "NetworkInfo.NetworkCards[DefaultNetworkCardIndex].MaximumNetworkInterfaces",
        );
    }

    #[test]
    fn clock_speeds_are_rounded_on_their_decimal_digits() {
        check_clock(2.3, Some(2300));
        check_clock(3.0, Some(3000));
        check_clock(2.3996, Some(2400));
        check_clock(-1.0, None);
        check_clock(f64::NAN, None);
    }

    #[test]
    fn what_was_read_is_written_back_without_what_was_missing() {
        let info: InstanceTypeInfo = serde_json::from_value(described()).unwrap();
        let mut expected = described();
        expected.as_object_mut().unwrap().remove("SomethingNew");
        assert_eq!(serde_json::to_value(&info).unwrap(), expected);
    }

    #[test]
    fn branch_interfaces_count_only_with_trunking() {
        let info: InstanceTypeInfo = serde_json::from_value(described()).unwrap();
        let limits = |trunking: &str| {
            let eni = format!(
                r#"{{"m5.large": {{"interfaces": 3, "ipv4_per_interface": 10, "branch_interfaces": 9, "default_card": 0, "trunking": {trunking}}}}}"#
            );
            Limits::parse(&eni, r#"{"m5.large": 750}"#).unwrap()
        };
        assert_eq!(facts(&info, &limits("true")).unwrap().network.branch_interfaces, 9);
        assert_eq!(facts(&info, &limits("false")).unwrap().network.branch_interfaces, 0);
        assert_eq!(facts(&info, &limits("true")).unwrap().network.bandwidth_mbps, Some(750));
    }
}
