//! An instance type as DescribeInstanceTypes tells it: the fields that labels, capacity and compatibility need.
//!
//! Decides nothing: names, nesting and units are EC2's (API version 2016-11-15). Fields that EC2 doesn't send are
//! `None` or empty; fields that aren't needed are ignored when read.

use serde::{Deserialize, Serialize};

macro_rules! records {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $(@rename $wire:literal)? $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        pub struct $name { $($(#[$field_doc])* $(#[serde(rename = $wire)])? pub $field: $type,)* }
    )*};
}

records! {
    /// One of `InstanceTypes[]`.
    InstanceTypeInfo {
        /// The type's name, such as `m5.large`.
        instance_type: String,
        /// Whether it is of the current generation.
        current_generation: Option<bool>,
        /// Whether it has no hypervisor.
        bare_metal: Option<bool>,
        /// `nitro` or `xen`; none on bare metal.
        hypervisor: Option<String>,
        /// `on-demand`, `spot`, `capacity-block`.
        supported_usage_classes: Vec<String>,
        /// `hvm`, `paravirtual`.
        supported_virtualization_types: Vec<String>,
        /// `ebs`, `instance-store`.
        supported_root_device_types: Vec<String>,
        /// vCPUs and cores.
        @rename "VCpuInfo" vcpu_info: VCpuInfo,
        /// Memory.
        memory_info: MemoryInfo,
        /// The processor.
        processor_info: ProcessorInfo,
        /// GPUs.
        gpu_info: Option<GpuInfo>,
        /// Neuron devices.
        neuron_info: Option<NeuronInfo>,
        /// Inference accelerators.
        inference_accelerator_info: Option<InferenceAcceleratorInfo>,
        /// Local disks.
        instance_storage_info: Option<InstanceStorageInfo>,
        /// EBS.
        ebs_info: Option<EbsInfo>,
        /// The network.
        network_info: NetworkInfo,
        /// Placement groups.
        placement_group_info: Option<PlacementGroupInfo>,
        /// `supported` or `unsupported`.
        nitro_enclaves_support: Option<String>,
        /// Whether it bursts.
        burstable_performance_supported: Option<bool>,
        /// Whether it runs on dedicated hosts.
        dedicated_hosts_supported: Option<bool>,
    }
    /// vCPUs and cores.
    VCpuInfo {
        /// vCPUs with the default options.
        @rename "DefaultVCpus" default_vcpus: u32,
        /// Cores with the default options.
        default_cores: Option<u32>,
        /// Threads of a core with the default options.
        default_threads_per_core: Option<u32>,
    }
    /// An amount of memory.
    MemoryInfo {
        /// MiB.
        @rename "SizeInMiB" size_in_mib: u64,
    }
    /// The processor.
    ProcessorInfo {
        /// Such as `Intel`.
        manufacturer: Option<String>,
        /// `x86_64`, `arm64`, `i386`, `x86_64_mac`, `arm64_mac`; the first is the usual one.
        supported_architectures: Vec<String>,
        /// Such as `nested-virtualization`.
        supported_features: Vec<String>,
        /// GHz.
        sustained_clock_speed_in_ghz: Option<f64>,
    }
    /// GPUs.
    GpuInfo {
        /// One for each kind of GPU.
        gpus: Vec<GpuDevice>,
        /// MiB, of all together.
        @rename "TotalGpuMemoryInMiB" total_gpu_memory_in_mib: Option<u64>,
    }
    /// A kind of GPU.
    GpuDevice {
        /// Such as `T4`.
        name: Option<String>,
        /// Such as `NVIDIA`.
        manufacturer: Option<String>,
        /// How many.
        count: u32,
        /// Memory of each.
        memory_info: Option<MemoryInfo>,
    }
    /// Neuron devices.
    NeuronInfo {
        /// One for each kind of device.
        neuron_devices: Vec<NeuronDevice>,
    }
    /// A kind of Neuron device.
    NeuronDevice {
        /// Such as `Trainium`.
        name: Option<String>,
        /// How many.
        count: u32,
        /// Cores of each.
        core_info: Option<NeuronCoreInfo>,
        /// Memory of each.
        memory_info: Option<MemoryInfo>,
    }
    /// A Neuron device's cores.
    NeuronCoreInfo {
        /// Cores of a device.
        count: u32,
        /// The cores' version.
        version: Option<u32>,
    }
    /// Inference accelerators.
    InferenceAcceleratorInfo {
        /// One for each kind.
        accelerators: Vec<InferenceDevice>,
    }
    /// A kind of inference accelerator.
    InferenceDevice {
        /// Such as `Inferentia`.
        name: Option<String>,
        /// Such as `AWS`.
        manufacturer: Option<String>,
        /// How many.
        count: u32,
        /// Memory of each.
        memory_info: Option<MemoryInfo>,
    }
    /// Local disks.
    InstanceStorageInfo {
        /// GB (decimal), of all together.
        @rename "TotalSizeInGB" total_size_in_gb: Option<u64>,
        /// `required`, `supported` or `unsupported`.
        nvme_support: Option<String>,
        /// One for each kind of disk.
        disks: Vec<Disk>,
    }
    /// A kind of local disk.
    Disk {
        /// How many.
        count: u32,
        /// GB (decimal) of each.
        @rename "SizeInGB" size_in_gb: u64,
        /// `ssd` or `hdd`.
        @rename "Type" kind: Option<String>,
    }
    /// EBS.
    EbsInfo {
        /// `default`, `supported` or `unsupported`.
        ebs_optimized_support: Option<String>,
        /// `supported` or `unsupported`.
        encryption_support: Option<String>,
        /// `required`, `supported` or `unsupported`.
        nvme_support: Option<String>,
        /// What the optimisation gives.
        ebs_optimized_info: Option<EbsOptimizedInfo>,
        /// `shared` (with interfaces) or `dedicated`.
        attachment_limit_type: Option<String>,
        /// How many volumes.
        maximum_ebs_attachments: Option<u32>,
    }
    /// What EBS optimisation gives.
    EbsOptimizedInfo {
        /// Mbps.
        baseline_bandwidth_in_mbps: Option<u32>,
        /// Mbps.
        maximum_bandwidth_in_mbps: Option<u32>,
    }
    /// The network.
    NetworkInfo {
        /// In words.
        network_performance: Option<String>,
        /// Interfaces of all cards together.
        maximum_network_interfaces: u32,
        /// How many cards.
        maximum_network_cards: Option<u32>,
        /// The card of the first interface.
        default_network_card_index: Option<u32>,
        /// The cards.
        network_cards: Vec<NetworkCard>,
        /// IPv4 addresses of an interface.
        ipv4_addresses_per_interface: u32,
        /// IPv6 addresses of an interface.
        ipv6_addresses_per_interface: Option<u32>,
        /// Whether it speaks IPv6.
        ipv6_supported: Option<bool>,
        /// `required`, `supported` or `unsupported`.
        ena_support: Option<String>,
        /// Whether it has EFA.
        efa_supported: Option<bool>,
        /// EFA's limits.
        efa_info: Option<EfaInfo>,
        /// Whether traffic between instances is encrypted by itself.
        encryption_in_transit_supported: Option<bool>,
    }
    /// A network card.
    NetworkCard {
        /// Its index.
        network_card_index: u32,
        /// Interfaces that it takes.
        maximum_network_interfaces: u32,
        /// `interface`, `efa`, `efa-only`.
        interface_types: Vec<String>,
        /// Gbps.
        baseline_bandwidth_in_gbps: Option<f64>,
        /// Gbps.
        peak_bandwidth_in_gbps: Option<f64>,
    }
    /// EFA's limits.
    EfaInfo {
        /// How many EFA interfaces.
        maximum_efa_interfaces: Option<u32>,
    }
    /// Placement groups.
    PlacementGroupInfo {
        /// `cluster`, `partition`, `spread`.
        supported_strategies: Vec<String>,
    }
}

impl InstanceTypeInfo {
    /// Whether the type can be launched as this usage class (`on-demand`, `spot`, `capacity-block`).
    #[must_use]
    pub fn supports_usage_class(&self, class: &str) -> bool {
        self.supported_usage_classes.iter().any(|c| c == class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_empty_and_what_is_unknown_is_ignored() {
        let info: InstanceTypeInfo = serde_json::from_str(
            r#"{"InstanceType": "x9.large", "VCpuInfo": {"DefaultVCpus": 2}, "MemoryInfo": {"SizeInMiB": 8192},
                "NetworkInfo": {"Ipv4AddressesPerInterface": 10}, "Shiny": {"New": true}}"#,
        )
        .unwrap();
        assert_eq!(info.vcpu_info.default_vcpus, 2);
        assert_eq!(info.memory_info.size_in_mib, 8192);
        assert_eq!(info.gpu_info, None);
        assert_eq!(info.network_info.ipv4_addresses_per_interface, 10);
    }
}
