//! Settings of a class and its cluster that change a node's resources.
//!
//! Plain values, validated by [`crate::manifest`]; defaults are Karpenter's. It decides only the properties of each
//! AMI family (aws/karpenter-provider-aws `pkg/providers/amifamily`), and the condition of a kubelet's problem.

use serde::Deserialize;

use crate::class_status::ConditionReason;
use crate::manifest::class_devices::{volume_size, volume_type};
use crate::manifest::fields::{WIDEST, integer, within};
use crate::placement::ResolvedPlacementGroup;
use crate::quantity::Quantity;

/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes in a GiB.
pub const GIB: u64 = 1 << 30;

/// Everything of a class that labels, capacity, overhead and compatibility are computed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// `spec.amiFamily`, or the alias's.
    pub ami_family: AmiFamily,
    /// `spec.kubelet`.
    pub kubelet: KubeletConfiguration,
    /// `spec.blockDeviceMappings`, in order; empty for the family's own.
    pub block_devices: Vec<BlockDevice>,
    /// `spec.instanceStorePolicy`.
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// `spec.networkInterfaces`, in order; empty where the class doesn't set them.
    pub network_interfaces: Vec<NetworkInterface>,
    /// `spec.connectionTracking`.
    pub connection_tracking: Option<ConnectionTracking>,
    /// `spec.cpuOptions.nestedVirtualization`.
    pub nested_virtualization: Option<NestedVirtualization>,
    /// The class's placement group, once it is resolved.
    pub placement: Option<ResolvedPlacementGroup>,
    /// Interfaces of each node that are not for pods (`reserved-enis`).
    pub reserved_enis: u32,
    /// The hypervisor's share of the stated memory, until a kubelet reports (`vm-memory-overhead-percent`).
    pub vm_memory_overhead: PartsPerMillion,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            ami_family: AmiFamily::Al2023,
            kubelet: KubeletConfiguration::default(),
            block_devices: Vec::new(),
            instance_store_policy: None,
            network_interfaces: Vec::new(),
            connection_tracking: None,
            nested_virtualization: None,
            placement: None,
            reserved_enis: 0,
            vm_memory_overhead: PartsPerMillion::VM_MEMORY_OVERHEAD,
        }
    }
}

/// An exact fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartsPerMillion(pub u32);

impl PartsPerMillion {
    /// Karpenter's default of `vm-memory-overhead-percent`, 0.075.
    pub const VM_MEMORY_OVERHEAD: Self = Self(75_000);
    /// The whole.
    pub const ONE: Self = Self(1_000_000);

    /// This share of an amount, rounded up.
    #[must_use]
    pub fn of_rounded_up(self, amount: u64) -> u64 {
        let parts = u128::from(amount) * u128::from(self.0);
        u64::try_from(parts.div_ceil(u128::from(Self::ONE.0))).unwrap_or(u64::MAX)
    }
}

crate::words! {
    /// `spec.amiFamily`: the kind of image, and so the setup of its nodes.
    #[derive(Deserialize)]
    #[serde(rename = "an AMI family")]
    pub enum AmiFamily {
        /// Amazon Linux 2.
        #[serde(rename = "AL2")]
        Al2 = "AL2",
        /// Amazon Linux 2023.
        #[serde(rename = "AL2023")]
        Al2023 = "AL2023",
        /// Bottlerocket.
        Bottlerocket,
        /// Windows Server 2019.
        Windows2019,
        /// Windows Server 2022.
        Windows2022,
        /// Windows Server 2025.
        Windows2025,
        /// An image of the user's own making.
        Custom,
    }
}

impl AmiFamily {
    /// The value of `node.kubernetes.io/windows-build`, for Windows.
    #[must_use]
    pub const fn windows_build(self) -> Option<&'static str> {
        match self {
            Self::Windows2019 => Some("10.0.17763"),
            Self::Windows2022 => Some("10.0.20348"),
            Self::Windows2025 => Some("10.0.26100"),
            Self::Al2 | Self::Al2023 | Self::Bottlerocket | Self::Custom => None,
        }
    }

    /// The limit on a node's pods, if the class sets none.
    #[must_use]
    pub const fn pod_density(self) -> PodDensity {
        match self {
            Self::Al2 | Self::Al2023 | Self::Bottlerocket | Self::Custom => PodDensity::Interfaces,
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => PodDensity::Fixed(110),
        }
    }

    /// The base of the kubelet's memory.
    #[must_use]
    pub const fn memory_overhead(self) -> MemoryOverhead {
        match self {
            Self::Al2 | Self::Al2023 | Self::Custom => MemoryOverhead::InterfacePods,
            Self::Bottlerocket | Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => {
                MemoryOverhead::Pods
            }
        }
    }

    /// Whether `podsPerCore` means anything to it.
    #[must_use]
    pub const fn honours_pods_per_core(self) -> bool {
        !matches!(self, Self::Bottlerocket)
    }

    /// The device that pods' ephemeral storage is on, and its size unless the class maps it; a custom image has none of
    /// its own.
    #[must_use]
    pub const fn ephemeral_device(self) -> Option<(&'static str, u64)> {
        match self {
            Self::Al2 | Self::Al2023 => Some(("/dev/xvda", 20 * GIB)),
            Self::Bottlerocket => Some(("/dev/xvdb", 20 * GIB)),
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => Some(("/dev/sda1", 50 * GIB)),
            Self::Custom => None,
        }
    }

    /// The devices that a node gets when the class maps none: name and size in bytes.
    #[must_use]
    pub const fn default_devices(self) -> &'static [(&'static str, u64)] {
        match self {
            Self::Al2 | Self::Al2023 => &[("/dev/xvda", 20 * GIB)],
            Self::Bottlerocket => &[("/dev/xvda", 4 * GIB), ("/dev/xvdb", 20 * GIB)],
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => &[("/dev/sda1", 50 * GIB)],
            Self::Custom => &[],
        }
    }
}

/// The limit on a node's pods, if the class doesn't set `maxPods`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodDensity {
    /// Interfaces and their addresses.
    Interfaces,
    /// A number.
    Fixed(u32),
}

/// Which number of pods the kubelet's own memory is reckoned from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryOverhead {
    /// The pods that the interfaces allow, with none reserved and without regard to `maxPods`.
    InterfacePods,
    /// The pods that the node really takes.
    Pods,
}

/// `spec.kubelet`: fields that change a node's resources or setup.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KubeletConfiguration {
    /// `maxPods`.
    pub max_pods: Option<u32>,
    /// `podsPerCore`; 0 is unset.
    pub pods_per_core: Option<u32>,
    /// `kubeReserved`, key by key over the computed values.
    pub kube_reserved: Reserved,
    /// `systemReserved`.
    pub system_reserved: Reserved,
    /// `evictionHard["memory.available"]`.
    pub eviction_memory: Option<EvictionThreshold>,
    /// `evictionHard["nodefs.available"]`.
    pub eviction_nodefs: Option<EvictionThreshold>,
    /// `clusterDNS`.
    pub cluster_dns: Vec<String>,
    /// The whole of `spec.kubelet`, as compact JSON with sorted keys, for user data; `None` without `spec.kubelet`.
    pub document: Option<String>,
    /// Why no node can have these settings; only of a class that an API server accepted.
    pub problem: Option<KubeletProblem>,
}

/// What is wrong with `spec.kubelet`, in sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeletProblem {
    /// Fields are unknown or malformed, or contradict each other.
    Invalid(String),
    /// Values are expressions, which are Karpenter's behind a gate that is off by default (`NodeClassCEL`).
    Expressions(String),
    /// The AMI family's kubelet isn't told these fields.
    Unsupported(String),
}

impl KubeletProblem {
    /// The reason of the class's condition.
    #[must_use]
    pub const fn reason(&self) -> ConditionReason {
        match self {
            Self::Invalid(_) => ConditionReason::InvalidKubeletConfiguration,
            Self::Expressions(_) => ConditionReason::KubeletExpressionsDisabled,
            Self::Unsupported(_) => ConditionReason::UnsupportedKubeletConfiguration,
        }
    }

    /// The sentences.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Invalid(message) | Self::Expressions(message) | Self::Unsupported(message) => message,
        }
    }
}

/// Resources set aside; a key that is absent isn't set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reserved {
    /// `cpu`, in cores.
    pub cpu: Option<Quantity>,
    /// `memory`, in bytes.
    pub memory: Option<Quantity>,
    /// `ephemeral-storage`, in bytes.
    pub ephemeral_storage: Option<Quantity>,
    /// `pid`, a count.
    pub pid: Option<Quantity>,
}

/// A value of `evictionHard`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionThreshold {
    /// So many bytes.
    Quantity(Quantity),
    /// A share of the capacity. The whole of it means that the signal is disabled.
    Share(PartsPerMillion),
}

impl EvictionThreshold {
    /// Parses a percentage such as `10%` or `7.5%`; `None` unless it is between 0 and 100 with at most four decimals.
    #[must_use]
    pub fn parse_percentage(text: &str) -> Option<Self> {
        let number = text.strip_suffix('%')?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 4 {
            return None;
        }
        let parts: u32 = format!("{whole}{fraction:0<4}").parse().ok()?;
        (parts <= PartsPerMillion::ONE.0).then_some(Self::Share(PartsPerMillion(parts)))
    }

    /// The threshold for a capacity, in bytes.
    #[must_use]
    pub fn bytes_of(self, capacity_bytes: u64) -> u64 {
        match self {
            Self::Quantity(quantity) => whole(quantity),
            Self::Share(PartsPerMillion::ONE) => 0,
            Self::Share(share) => share.of_rounded_up(capacity_bytes),
        }
    }
}

/// An item of `spec.blockDeviceMappings`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BlockDevice {
    /// `deviceName`.
    pub device_name: Option<String>,
    /// `rootVolume`: whether the kubelet's storage is on it.
    pub root_volume: bool,
    /// `ebs`.
    pub ebs: Option<EbsVolume>,
}

/// `ebs` of a mapping; absent fields are left to EC2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EbsVolume {
    /// `volumeSize`, in bytes.
    #[serde(rename = "volumeSize", deserialize_with = "volume_size")]
    pub size: Option<Quantity>,
    /// `volumeType`.
    #[serde(deserialize_with = "volume_type")]
    pub volume_type: Option<String>,
    /// `encrypted`.
    pub encrypted: Option<bool>,
    /// `deleteOnTermination`.
    pub delete_on_termination: Option<bool>,
    /// `iops`.
    #[serde(deserialize_with = "within::<0, WIDEST, _, _>")]
    pub iops: Option<u32>,
    /// `throughput`, in MiB/s.
    #[serde(deserialize_with = "within::<0, WIDEST, _, _>")]
    pub throughput: Option<u32>,
    /// `kmsKeyID`.
    #[serde(rename = "kmsKeyID")]
    pub kms_key_id: Option<String>,
    /// `snapshotID`.
    #[serde(rename = "snapshotID")]
    pub snapshot_id: Option<String>,
    /// `volumeInitializationRate`, in MiB/s.
    #[serde(deserialize_with = "within::<100, 300, _, _>")]
    pub volume_initialization_rate: Option<u32>,
}

crate::words! {
    /// `spec.instanceStorePolicy`.
    #[derive(Deserialize)]
    #[serde(rename = "an instance store policy")]
    pub enum InstanceStorePolicy {
        /// `RAID0`: the host's disks as one, for the kubelet and containerd.
        #[serde(rename = "RAID0")]
        Raid0 = "RAID0",
    }
}

/// An item of `spec.networkInterfaces`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// `networkCardIndex`.
    #[serde(deserialize_with = "integer::<0, WIDEST, _, _>")]
    pub network_card_index: u32,
    /// `deviceIndex`.
    #[serde(deserialize_with = "integer::<0, WIDEST, _, _>")]
    pub device_index: u32,
    /// `interfaceType`.
    pub interface_type: InterfaceType,
}

crate::words! {
    /// `interfaceType`.
    #[derive(Deserialize)]
    #[serde(rename = "an interface type", rename_all = "kebab-case")]
    pub enum InterfaceType {
        /// `interface`: has addresses.
        Interface = "interface",
        /// `efa-only`: an Elastic Fabric Adapter without addresses.
        EfaOnly = "efa-only",
    }
}

/// `spec.connectionTracking`, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(default)]
pub struct ConnectionTracking {
    /// `tcpEstablishedTimeout`.
    #[serde(rename = "tcpEstablishedTimeout", deserialize_with = "within::<60, 432_000, _, _>")]
    pub tcp_established_timeout_seconds: Option<u32>,
    /// `udpStreamTimeout`.
    #[serde(rename = "udpStreamTimeout", deserialize_with = "within::<60, 180, _, _>")]
    pub udp_stream_timeout_seconds: Option<u32>,
    /// `udpTimeout`.
    #[serde(rename = "udpTimeout", deserialize_with = "within::<30, 60, _, _>")]
    pub udp_timeout_seconds: Option<u32>,
}

crate::words! {
    /// `spec.cpuOptions.nestedVirtualization`.
    #[derive(Deserialize)]
    #[serde(rename = "a CPU option", rename_all = "lowercase")]
    pub enum NestedVirtualization {
        /// `enabled`.
        Enabled = "enabled",
        /// `disabled`.
        Disabled = "disabled",
    }
}

/// A quantity in whole units, rounded up; nothing if it is negative.
pub(super) fn whole(quantity: Quantity) -> u64 {
    u64::try_from(quantity.value_ceil()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, capacity: u64, expected: Option<u64>) {
        assert_eq!(
            EvictionThreshold::parse_percentage(text).map(|t| t.bytes_of(capacity)),
            expected,
            "{text}"
        );
    }

    #[test]
    fn percentages_are_exact_and_rounded_up() {
        check("10%", 1001, Some(101));
        check("7.5%", 1000, Some(75));
        check("0%", 1000, Some(0));
        check("100%", 1000, Some(0));
        for text in ["101%", "-1%", "%", "10", "1.00001%", "a%"] {
            check(text, 1000, None);
        }
    }

    #[test]
    fn families_are_found_by_the_words_of_the_spec() {
        for family in AmiFamily::ALL {
            assert_eq!(AmiFamily::parse(family.as_str()), Some(family));
        }
        assert_eq!(AmiFamily::parse("al2023"), None);
    }
}
