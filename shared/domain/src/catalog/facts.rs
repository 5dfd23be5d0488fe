//! Facts about one instance type, in the words of DescribeInstanceTypes.
//!
//! Decides nothing: labels, capacity and compatibility are computed from it. Zones and prices are offerings, and no
//! fact depends on a class. Lists keep EC2's order if it has a meaning (architectures, devices).

use crate::id::InstanceType;
use crate::image::BootMode;

/// One instance type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceTypeFacts {
    /// Its name, such as `m5.large`.
    pub name: InstanceType,
    /// Virtual CPUs by default.
    pub vcpus: u32,
    /// Memory as EC2 states it; a kubelet sees less.
    pub memory_mib: u64,
    /// Architectures in EC2's order; never empty.
    pub architectures: Vec<Architecture>,
    /// `ProcessorInfo`.
    pub processor: Processor,
    /// Kinds of GPU, each with its count.
    pub gpus: Vec<Gpu>,
    /// Kinds of AWS Neuron device.
    pub neuron_devices: Vec<NeuronDevice>,
    /// Kinds of inference accelerator.
    pub inference_accelerators: Vec<InferenceAccelerator>,
    /// Disks of the host, if it has any.
    pub instance_store: Option<InstanceStore>,
    /// EBS volumes.
    pub ebs: Ebs,
    /// Network cards and addresses.
    pub network: Network,
    /// The hypervisor; bare metal has none.
    pub hypervisor: Option<Hypervisor>,
    /// Whether it is bare metal.
    pub bare_metal: bool,
    /// Whether Nitro Enclaves can run on it.
    pub nitro_enclaves: bool,
    /// Whether its CPU is given in bursts, against credits.
    pub burstable: bool,
    /// Whether EC2 lists it as current generation.
    pub current_generation: bool,
    /// How it can be bought, in EC2's order.
    pub usage_classes: Vec<UsageClass>,
    /// Strategies of the placement groups that it can be in.
    pub placement_strategies: Vec<PlacementStrategy>,
    /// The firmware that its instances boot with.
    pub boot_modes: BootModes,
}

impl InstanceTypeFacts {
    /// Whether a kubelet runs on one of its architectures. Macs are described and offered like any other type, but no
    /// plan uses one.
    #[must_use]
    pub fn is_for_nodes(&self) -> bool {
        self.architectures.iter().any(|architecture| match architecture {
            Architecture::X86_64 | Architecture::Arm64 => true,
            Architecture::Other(_) => false,
        })
    }
}

/// A processor architecture (`ProcessorInfo.SupportedArchitectures`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Architecture {
    /// `x86_64`: Kubernetes' `amd64`.
    X86_64,
    /// `arm64`.
    Arm64,
    /// An architecture without a kubelet (`i386`, `x86_64_mac`, `arm64_mac`), in EC2's word.
    Other(String),
}

impl Architecture {
    /// EC2's word.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Arm64 => "arm64",
            Self::Other(name) => name,
        }
    }

    /// Kubernetes' word; `None` if it has no kubelet.
    #[must_use]
    pub const fn kubernetes(&self) -> Option<&'static str> {
        match self {
            Self::X86_64 => Some("amd64"),
            Self::Arm64 => Some("arm64"),
            Self::Other(_) => None,
        }
    }

    /// The architecture that EC2 names so.
    #[must_use]
    pub fn from_ec2(name: &str) -> Self {
        match name {
            "x86_64" => Self::X86_64,
            "arm64" => Self::Arm64,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// The processor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Processor {
    /// `Intel`, `AMD`, `AWS`.
    pub manufacturer: Option<String>,
    /// Sustained clock speed in MHz, rounded; old types have none.
    pub clock_speed_mhz: Option<u32>,
    /// `SupportedFeatures`, such as `nested-virtualization`.
    pub features: Vec<String>,
}

/// A kind of GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Such as `A10G`.
    pub name: String,
    /// `NVIDIA`, `AMD`, `Habana`.
    pub manufacturer: String,
    /// Whole devices; 0 where a type has a part of one.
    pub count: u32,
    /// Memory of each device.
    pub memory_mib: u64,
}

/// A kind of AWS Neuron device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeuronDevice {
    /// Such as `Trainium`.
    pub name: String,
    /// Devices.
    pub count: u32,
    /// Cores on each.
    pub cores: u32,
}

/// A kind of inference accelerator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InferenceAccelerator {
    /// Such as `Inferentia`.
    pub name: String,
    /// Such as `AWS`.
    pub manufacturer: String,
    /// Devices.
    pub count: u32,
}

/// Disks of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceStore {
    /// Their sum in GB (decimal).
    pub total_gb: u64,
    /// Whether they are reached over NVMe.
    pub nvme: Support,
}

/// How far a type supports something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Support {
    /// Not at all.
    #[default]
    Unsupported,
    /// On request.
    Supported,
    /// Always (EC2's `required` or `default`).
    Always,
}

/// EBS volumes: bandwidth, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ebs {
    /// Whether it has bandwidth of its own for EBS.
    pub optimized: Support,
    /// The most it reaches, in Mbps.
    pub max_bandwidth_mbps: Option<u32>,
    /// The most volumes, the node's own among them; `None` from a catalogue that doesn't know.
    pub attachments: Option<EbsAttachments>,
}

/// How many EBS volumes an instance may have (`MaximumEbsAttachments`, `AttachmentLimitType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EbsAttachments {
    /// So many.
    Dedicated(u32),
    /// So many together with network interfaces beyond the first.
    Shared(u32),
}

/// Network cards, interfaces and addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Elastic Network Adapter.
    pub ena: Support,
    /// Interfaces that the default card takes.
    pub default_card_interfaces: u32,
    /// All cards, by index.
    pub cards: Vec<NetworkCard>,
    /// IPv4 addresses of each interface, its own among them.
    pub ipv4_per_interface: u32,
    /// Elastic Fabric Adapters it takes, 0 for none.
    pub max_efa_interfaces: u32,
    /// Whether traffic between instances is encrypted by the hardware.
    pub encryption_in_transit: bool,
    /// Baseline bandwidth in Mbps, if known.
    pub bandwidth_mbps: Option<u32>,
    /// Interfaces for security groups of pods; 0 where the type can't trunk or isn't in the table.
    pub branch_interfaces: u32,
}

/// One network card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkCard {
    /// `NetworkCardIndex`.
    pub index: u32,
    /// Interfaces that it takes.
    pub max_interfaces: u32,
}

/// A hypervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hypervisor {
    /// `nitro`.
    Nitro,
    /// `xen`.
    Xen,
    /// One that is newer than this list, as EC2 writes it.
    Other(String),
}

impl Hypervisor {
    /// EC2's word, also the label's value.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Nitro => "nitro",
            Self::Xen => "xen",
            Self::Other(name) => name,
        }
    }

    /// The hypervisor that EC2 names so.
    #[must_use]
    pub fn from_ec2(name: &str) -> Self {
        match name {
            "nitro" => Self::Nitro,
            "xen" => Self::Xen,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// How a type can be bought (`SupportedUsageClasses`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UsageClass {
    /// `on-demand`.
    OnDemand,
    /// `spot`.
    Spot,
    /// `capacity-block`.
    CapacityBlock,
    /// One that is newer than this list, as EC2 writes it.
    Other(String),
}

impl UsageClass {
    /// The usage class that EC2 names so.
    #[must_use]
    pub fn from_ec2(name: &str) -> Self {
        match name {
            "on-demand" => Self::OnDemand,
            "spot" => Self::Spot,
            "capacity-block" => Self::CapacityBlock,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// The firmware that a type's instances boot with (`SupportedBootModes`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum BootModes {
    /// Not known, such as in a catalogue of an older release.
    #[default]
    Untold,
    /// Legacy BIOS only.
    LegacyBios,
    /// UEFI only, as every Arm type.
    Uefi,
    /// Both.
    Both,
}

impl BootModes {
    /// The modes that EC2 names so. A mode newer than this list leaves them unknown, because images of it may exist.
    #[must_use]
    pub fn from_ec2(words: &[String]) -> Self {
        let has = |mode: BootMode| words.iter().any(|word| word == mode.as_str());
        match (has(BootMode::LegacyBios), has(BootMode::Uefi), words.len()) {
            (true, true, 2) => Self::Both,
            (true, false, 1) => Self::LegacyBios,
            (false, true, 1) => Self::Uefi,
            (_, _, _) => Self::Untold,
        }
    }

    /// Whether an image of this boot mode boots on the type; one without a mode boots by the type's default.
    ///
    /// Source: "Instance type requirements for UEFI boot mode" of the EC2 User Guide, read November 2026.
    #[must_use]
    pub const fn boots(self, image: Option<BootMode>) -> bool {
        match (image, self) {
            (None | Some(BootMode::UefiPreferred), _) | (_, Self::Untold | Self::Both) => true,
            (Some(BootMode::LegacyBios), modes) => matches!(modes, Self::LegacyBios),
            (Some(BootMode::Uefi), modes) => matches!(modes, Self::Uefi),
        }
    }
}

crate::words! {
    /// A placement group's strategy. Its words are EC2's.
    pub enum PlacementStrategy {
        /// `cluster`.
        Cluster = "cluster",
        /// `partition`.
        Partition = "partition",
        /// `spread`.
        Spread = "spread",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_boots_images_of_its_modes_and_those_without_one() {
        let check = |modes: BootModes, expected: [bool; 4]| {
            let images =
                [None, Some(BootMode::LegacyBios), Some(BootMode::Uefi), Some(BootMode::UefiPreferred)];
            assert_eq!(images.map(|image| modes.boots(image)), expected, "{modes:?}");
        };
        check(BootModes::Untold, [true; 4]);
        check(BootModes::Both, [true; 4]);
        check(BootModes::LegacyBios, [true, true, false, true]);
        check(BootModes::Uefi, [true, false, true, true]);
    }
}
