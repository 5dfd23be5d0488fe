//! EC2's own form of an instance type, in answers and in catalogue files.
//!
//! Unknown fields are ignored, and every field is optional. It doesn't decide which fields are required.

use serde::{Deserialize, Serialize};

/// Declares structures of EC2's wire form: every field is optional, and absent fields aren't written.
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
        /// `legacy-bios`, `uefi`.
        supported_boot_modes: "SupportedBootModes" => Vec<String>,
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
        /// The most volumes.
        maximum_ebs_attachments: "MaximumEbsAttachments" => u32,
        /// `shared` with network interfaces, or `dedicated`.
        attachment_limit_type: "AttachmentLimitType" => String,
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

impl InstanceTypeInfo {
    /// Whether the type runs `hvm` images, which all images of nodes are.
    #[must_use]
    pub fn is_hvm(&self) -> bool {
        items(self.supported_virtualization_types.as_ref()).iter().any(|kind| kind == "hvm")
    }

    /// Whether nodes can be of the type: it runs `hvm` images and is `x86_64` or `arm64`. Source: the
    /// filters of aws/karpenter-provider-aws `pkg/providers/instancetype/instancetype.go`.
    #[must_use]
    pub fn is_for_nodes(&self) -> bool {
        let architectures =
            self.processor_info.as_ref().and_then(|info| info.supported_architectures.as_ref());
        self.is_hvm() && items(architectures).iter().any(|name| name == "x86_64" || name == "arm64")
    }
}

/// A list that may be missing.
pub(super) fn items<T>(list: Option<&Vec<T>>) -> &[T] {
    list.map_or(&[], Vec::as_slice)
}
