//! The form in which EC2 describes instance types, and its reading into facts.
//!
//! [`InstanceTypeInfo`] is one element of DescribeInstanceTypes' `InstanceTypes[]`: fields that nothing here needs are
//! ignored, and every field may be missing. [`facts`] decides which of them a catalogue can't do without, and joins
//! the two tables that EC2 doesn't serve ([`Limits`]). It doesn't decide what a node of the type offers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalog::facts::{
    Architecture, Ebs, Gpu, Hypervisor, InferenceAccelerator, InstanceStore, InstanceTypeFacts, Network,
    NetworkCard, NeuronDevice, PlacementStrategy, Processor, Support, UsageClass,
};
use crate::id::{InstanceType, ParseIdError};

/// Declares structures of EC2's wire form: every field may be missing, and what is missing isn't written.
macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $key:literal => $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        pub struct $name {$(
            $(#[$field_doc])*
            #[serde(rename = $key, default, skip_serializing_if = "Option::is_none")]
            pub $field: Option<$type>,
        )*}
    )*};
}

wire! {
    /// One element of `InstanceTypes[]`.
    InstanceTypeInfo {
        /// The type's name.
        instance_type: "InstanceType" => String,
        /// Whether it is bare metal.
        bare_metal: "BareMetal" => bool,
        /// Whether its CPU is given in bursts.
        burstable_performance_supported: "BurstablePerformanceSupported" => bool,
        /// Whether it is of the current generation.
        current_generation: "CurrentGeneration" => bool,
        /// `nitro` or `xen`.
        hypervisor: "Hypervisor" => String,
        /// `supported` or `unsupported`.
        nitro_enclaves_support: "NitroEnclavesSupport" => String,
        /// `on-demand`, `spot`, `capacity-block`.
        supported_usage_classes: "SupportedUsageClasses" => Vec<String>,
        /// `hvm`, `paravirtual`.
        supported_virtualization_types: "SupportedVirtualizationTypes" => Vec<String>,
        /// Virtual CPUs.
        vcpu_info: "VCpuInfo" => VCpuInfo,
        /// Memory.
        memory_info: "MemoryInfo" => MemoryInfo,
        /// Processor.
        processor_info: "ProcessorInfo" => ProcessorInfo,
        /// GPUs.
        gpu_info: "GpuInfo" => GpuInfo,
        /// AWS Neuron devices.
        neuron_info: "NeuronInfo" => NeuronInfo,
        /// Inference accelerators.
        inference_accelerator_info: "InferenceAcceleratorInfo" => InferenceAcceleratorInfo,
        /// Disks of the host.
        instance_storage_info: "InstanceStorageInfo" => InstanceStorageInfo,
        /// EBS.
        ebs_info: "EbsInfo" => EbsInfo,
        /// Network.
        network_info: "NetworkInfo" => NetworkInfo,
        /// Placement groups.
        placement_group_info: "PlacementGroupInfo" => PlacementGroupInfo,
    }
    /// `VCpuInfo`.
    VCpuInfo {
        /// Virtual CPUs by default.
        default_vcpus: "DefaultVCpus" => u32,
    }
    /// `MemoryInfo`, of a type, a GPU or another device.
    MemoryInfo {
        /// In MiB.
        size_in_mib: "SizeInMiB" => u64,
    }
    /// `ProcessorInfo`.
    ProcessorInfo {
        /// `Intel`, `AMD`, `AWS`.
        manufacturer: "Manufacturer" => String,
        /// `x86_64`, `arm64` and others, in order.
        supported_architectures: "SupportedArchitectures" => Vec<String>,
        /// Such as `nested-virtualization`.
        supported_features: "SupportedFeatures" => Vec<String>,
        /// In GHz, as EC2 writes it.
        sustained_clock_speed_in_ghz: "SustainedClockSpeedInGhz" => f64,
    }
    /// `GpuInfo`.
    GpuInfo {
        /// Kinds of GPU.
        gpus: "Gpus" => Vec<DeviceInfo>,
    }
    /// `InferenceAcceleratorInfo`.
    InferenceAcceleratorInfo {
        /// Kinds of accelerator.
        accelerators: "Accelerators" => Vec<DeviceInfo>,
    }
    /// `NeuronInfo`.
    NeuronInfo {
        /// Kinds of device.
        neuron_devices: "NeuronDevices" => Vec<DeviceInfo>,
    }
    /// A kind of device: an element of `Gpus`, `Accelerators` or `NeuronDevices`.
    DeviceInfo {
        /// Such as `A10G`.
        name: "Name" => String,
        /// Such as `NVIDIA`; Neuron devices have none.
        manufacturer: "Manufacturer" => String,
        /// Devices.
        count: "Count" => u32,
        /// Memory of each.
        memory_info: "MemoryInfo" => MemoryInfo,
        /// Cores of each, for Neuron devices.
        core_info: "CoreInfo" => CoreInfo,
    }
    /// `CoreInfo`.
    CoreInfo {
        /// Cores.
        count: "Count" => u32,
    }
    /// `InstanceStorageInfo`.
    InstanceStorageInfo {
        /// In GB (decimal).
        total_size_in_gb: "TotalSizeInGB" => u64,
        /// `unsupported`, `supported` or `required`.
        nvme_support: "NvmeSupport" => String,
    }
    /// `EbsInfo`.
    EbsInfo {
        /// `unsupported`, `supported` or `default`.
        ebs_optimized_support: "EbsOptimizedSupport" => String,
        /// Its bandwidth.
        ebs_optimized_info: "EbsOptimizedInfo" => EbsOptimizedInfo,
    }
    /// `EbsOptimizedInfo`.
    EbsOptimizedInfo {
        /// In Mbps.
        maximum_bandwidth_in_mbps: "MaximumBandwidthInMbps" => u32,
    }
    /// `NetworkInfo`.
    NetworkInfo {
        /// `unsupported`, `supported` or `required`.
        ena_support: "EnaSupport" => String,
        /// The card of the primary interface.
        default_network_card_index: "DefaultNetworkCardIndex" => u32,
        /// The cards.
        network_cards: "NetworkCards" => Vec<NetworkCardInfo>,
        /// IPv4 addresses of an interface.
        ipv4_addresses_per_interface: "Ipv4AddressesPerInterface" => u32,
        /// Elastic Fabric Adapters.
        efa_info: "EfaInfo" => EfaInfo,
        /// Whether traffic between instances is encrypted.
        encryption_in_transit_supported: "EncryptionInTransitSupported" => bool,
    }
    /// An element of `NetworkCards`.
    NetworkCardInfo {
        /// Its index.
        network_card_index: "NetworkCardIndex" => u32,
        /// Interfaces that it takes.
        maximum_network_interfaces: "MaximumNetworkInterfaces" => u32,
    }
    /// `EfaInfo`.
    EfaInfo {
        /// Adapters.
        maximum_efa_interfaces: "MaximumEfaInterfaces" => u32,
    }
    /// `PlacementGroupInfo`.
    PlacementGroupInfo {
        /// `cluster`, `partition`, `spread`.
        supported_strategies: "SupportedStrategies" => Vec<String>,
    }
}

/// Interfaces of one type, as AWS publishes them for the VPC resource controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EniLimits {
    /// Interfaces over all cards.
    pub interfaces: u32,
    /// IPv4 addresses of each.
    pub ipv4_per_interface: u32,
    /// Interfaces for security groups of pods.
    pub branch_interfaces: u32,
    /// The card of the primary interface.
    pub default_card: u32,
    /// Whether the type can trunk, without which branch interfaces don't count.
    pub trunking: bool,
}

/// The tables that DescribeInstanceTypes doesn't serve. A type that is missing in one has no branch interfaces, or no
/// known bandwidth.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// Interfaces by type.
    pub eni: BTreeMap<String, EniLimits>,
    /// Baseline network bandwidth in Mbps by type.
    pub bandwidth_mbps: BTreeMap<String, u32>,
}

/// A table of limits that isn't of the expected form.
#[derive(Debug, thiserror::Error)]
#[error("the table of `{table}` is not a map from instance type to its limits")]
pub struct LimitsError {
    /// Which of the two tables.
    pub table: &'static str,
    /// What the parser said.
    #[source]
    pub source: serde_json::Error,
}

impl Limits {
    /// Reads both tables, each a JSON object with instance types as keys.
    ///
    /// # Errors
    /// [`LimitsError`] naming the table that isn't of that form.
    pub fn parse(eni_json: &str, bandwidth_json: &str) -> Result<Self, LimitsError> {
        let eni = serde_json::from_str(eni_json)
            .map_err(|source| LimitsError { table: "network interfaces", source })?;
        let bandwidth_mbps = serde_json::from_str(bandwidth_json)
            .map_err(|source| LimitsError { table: "network bandwidth", source })?;
        Ok(Self { eni, bandwidth_mbps })
    }
}

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
    /// A field's value can't be what it says.
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

impl InstanceTypeInfo {
    /// Whether the type is one that a catalogue asks for: it runs `hvm` images and is `x86_64` or `arm64`.
    /// (KARPENTER.md 2.1.1: the request's filters.)
    #[must_use]
    pub fn is_for_nodes(&self) -> bool {
        let hvm = items(self.supported_virtualization_types.as_ref()).iter().any(|kind| kind == "hvm");
        let architectures =
            self.processor_info.as_ref().and_then(|info| info.supported_architectures.as_ref());
        hvm && items(architectures).iter().any(|name| name == "x86_64" || name == "arm64")
    }
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
        .filter_map(|name| PlacementStrategy::from_ec2(name))
        .collect(),
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

fn items<T>(list: Option<&Vec<T>>) -> &[T] {
    list.map_or(&[], Vec::as_slice)
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
