//! Capacity, overhead and allocatable of a node.
//!
//! Decides cpu, memory, ephemeral storage, pods and devices of a node before it exists (aws/karpenter-provider-aws
//! `pkg/providers/instancetype/types.go`). It doesn't decide labels, nor whether a type suits a class. Invariants:
//! all numbers are whole, rounded as the kubelet and Karpenter round them; none is negative.

use crate::catalog::facts::{Architecture, InstanceTypeFacts};
use crate::catalog::settings::{
    BlockDevice, EvictionThreshold, GIB, InstanceStorePolicy, InterfaceType, MIB, MemoryOverhead,
    NodeSettings, PartsPerMillion, PodDensity, whole,
};
use crate::quantity::{Format, Quantity};
use crate::resources::{ResourceList, ResourceName};

/// Memory of an arm64 type's firmware, in MiB.
const ARM64_FIRMWARE_MIB: u64 = 64;
/// Memory of the kubelet and the container runtime: a base, and an amount for each pod.
const KUBELET_MEMORY: (u64, u64) = (255 * MIB, 11 * MIB);
/// The kubelet's reserve of ephemeral storage.
const KUBELET_EPHEMERAL_STORAGE: u64 = GIB;
/// The kubelet's default of `evictionHard["memory.available"]`.
const EVICTION_MEMORY: EvictionThreshold = EvictionThreshold::Quantity(Quantity::from_mebi(100));
/// The kubelet's default of `evictionHard["nodefs.available"]`.
const EVICTION_NODEFS: EvictionThreshold = EvictionThreshold::Share(PartsPerMillion(100_000));
/// The assumed storage of a custom image without mappings.
const CUSTOM_EPHEMERAL_STORAGE: u64 = 20 * GIB;
/// The percentage of what its type promises that a Node has at least. The peer takes it in
/// `pkg/controllers/nodeclaim/consistency/nodeshape.go`.
pub const LEAST_PERCENT: u32 = 90;
/// A GB in EC2's sizes of instance store disks.
const DECIMAL_GB: u64 = 1_000_000_000;
/// The kubelet's cpu, by cores: how many cores, and hundred-thousandths of them. The last takes the rest.
const KUBELET_CPU: [(u64, u64); 4] = [(1, 6_000), (1, 1_000), (2, 500), (u64::MAX, 250)];

/// The resources of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeShape {
    /// `status.capacity`.
    pub capacity: Amounts,
    /// `kubeReserved`.
    pub kube_reserved: Overhead,
    /// `systemReserved`.
    pub system_reserved: Overhead,
    /// The eviction threshold.
    pub eviction: Overhead,
    /// `status.allocatable`.
    pub allocatable: Amounts,
}

/// Amounts of a node's resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amounts {
    /// `cpu`, in thousandths.
    pub cpu_millis: u64,
    /// `memory`, in bytes.
    pub memory_bytes: u64,
    /// `ephemeral-storage`, in bytes.
    pub ephemeral_storage_bytes: u64,
    /// How `ephemeral-storage` is written: decimal for the host's disks, otherwise as the volume's size.
    pub ephemeral_storage_format: Format,
    /// `pods`.
    pub pods: u64,
    /// Devices and interfaces.
    pub devices: Devices,
}

impl Amounts {
    /// As Kubernetes lists them. Devices that a node doesn't have are left out.
    #[must_use]
    pub fn resources(&self) -> ResourceList {
        let cpu = Quantity::from_nanos(i128::from(self.cpu_millis) * NANOS_PER_MILLI, Format::DecimalSi);
        let mut list = ResourceList::new()
            .with(ResourceName::CPU, cpu)
            .with(ResourceName::MEMORY, units(self.memory_bytes, Format::BinarySi))
            .with(
                ResourceName::EPHEMERAL_STORAGE,
                units(self.ephemeral_storage_bytes, self.ephemeral_storage_format),
            )
            .with(ResourceName::PODS, units(self.pods, Format::DecimalSi));
        for (name, count) in self.devices.by_name() {
            if count > 0 {
                list.insert(ResourceName::from_static(name), units(count, Format::DecimalSi));
            }
        }
        list
    }
}

const NANOS_PER_MILLI: i128 = 1_000_000;

fn units(count: u64, format: Format) -> Quantity {
    Quantity::from_nanos(i128::from(count) * 1000 * NANOS_PER_MILLI, format)
}

/// Extended resources: a count each, nothing of which is set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Devices {
    /// `nvidia.com/gpu`.
    pub nvidia_gpu: u64,
    /// `amd.com/gpu`.
    pub amd_gpu: u64,
    /// `habana.ai/gaudi`.
    pub gaudi: u64,
    /// `aws.amazon.com/neuron`.
    pub neuron: u64,
    /// `aws.amazon.com/neuroncore`.
    pub neuron_core: u64,
    /// `vpc.amazonaws.com/efa`.
    pub efa: u64,
    /// `vpc.amazonaws.com/pod-eni`.
    pub pod_eni: u64,
    /// `vpc.amazonaws.com/PrivateIPv4Address`.
    pub private_ipv4_address: u64,
}

impl Devices {
    /// Each with its resource name, in the names' order.
    #[must_use]
    pub const fn by_name(&self) -> [(&'static str, u64); 8] {
        [
            ("amd.com/gpu", self.amd_gpu),
            ("aws.amazon.com/neuron", self.neuron),
            ("aws.amazon.com/neuroncore", self.neuron_core),
            ("habana.ai/gaudi", self.gaudi),
            ("nvidia.com/gpu", self.nvidia_gpu),
            ("vpc.amazonaws.com/PrivateIPv4Address", self.private_ipv4_address),
            ("vpc.amazonaws.com/efa", self.efa),
            ("vpc.amazonaws.com/pod-eni", self.pod_eni),
        ]
    }
}

/// The reserve of the three resources that pods share with the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overhead {
    /// `cpu`, in thousandths.
    pub cpu_millis: u64,
    /// `memory`, in bytes.
    pub memory_bytes: u64,
    /// `ephemeral-storage`, in bytes.
    pub ephemeral_storage_bytes: u64,
}

/// Memory that a kubelet on the same type and image really reported, in bytes; it replaces the estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LearnedMemory(pub u64);

/// The resources of a node of the type under the class's settings.
#[must_use]
pub fn node_shape(
    facts: &InstanceTypeFacts,
    settings: &NodeSettings,
    learned: Option<LearnedMemory>,
) -> NodeShape {
    let pods = pods(facts, settings);
    let (ephemeral_storage_bytes, ephemeral_storage_format) = ephemeral_storage(facts, settings);
    let capacity = Amounts {
        cpu_millis: u64::from(facts.vcpus).saturating_mul(1000),
        memory_bytes: learned
            .map_or_else(|| estimated_memory_bytes(facts, settings), |LearnedMemory(bytes)| bytes),
        ephemeral_storage_bytes,
        ephemeral_storage_format,
        pods,
        devices: devices(facts, settings),
    };
    with_capacity(facts, settings, capacity)
}

/// `ephemeral-storage` in capacity and allocatable of a node of the type that has so many bytes of it.
#[must_use]
pub fn storage_of(facts: &InstanceTypeFacts, settings: &NodeSettings, bytes: u64) -> [Quantity; 2] {
    let before = node_shape(facts, settings, None).capacity;
    let capacity =
        Amounts { ephemeral_storage_bytes: bytes, ephemeral_storage_format: Format::BinarySi, ..before };
    let shape = with_capacity(facts, settings, capacity);
    [shape.capacity, shape.allocatable]
        .map(|amounts| units(amounts.ephemeral_storage_bytes, Format::BinarySi))
}

/// The `ephemeral-storage` in a Node's `status.capacity`, in bytes; `None` before its kubelet reports any.
#[must_use]
pub fn reported_storage(capacity: &ResourceList) -> Option<u64> {
    let bytes = u64::try_from(capacity.get(&ResourceName::EPHEMERAL_STORAGE).value_ceil()).ok()?;
    (bytes > 0).then_some(bytes)
}

/// The bytes of the host's disks where they are a node's `ephemeral-storage`, instead of a volume.
#[must_use]
pub fn disk_storage(facts: &InstanceTypeFacts, settings: &NodeSettings) -> Option<u64> {
    // The peer counts the disks of Windows' nodes too, though nothing there makes them the kubelet's: a pod that needs
    // them would get node after node, and fit none.
    match (settings.instance_store_policy, facts.instance_store, settings.ami_family.windows_build()) {
        (Some(InstanceStorePolicy::Raid0), Some(disks), None) => {
            Some(disks.total_gb.saturating_mul(DECIMAL_GB))
        }
        (Some(InstanceStorePolicy::Raid0) | None, Some(_) | None, Some(_) | None) => None,
    }
}

/// The bytes of the volume that is a node's `ephemeral-storage` where the host's disks aren't.
#[must_use]
pub fn volume_storage(settings: &NodeSettings) -> u64 {
    let (bytes, _) = volume(settings);
    bytes
}

fn with_capacity(facts: &InstanceTypeFacts, settings: &NodeSettings, capacity: Amounts) -> NodeShape {
    let kube_reserved = kube_reserved(facts, settings, capacity.pods);
    let system = &settings.kubelet.system_reserved;
    let system_reserved = Overhead {
        cpu_millis: system.cpu.map_or(0, millis),
        memory_bytes: system.memory.map_or(0, whole),
        ephemeral_storage_bytes: system.ephemeral_storage.map_or(0, whole),
    };
    let eviction = eviction(settings, &capacity);
    let left = |whole: u64, part: fn(&Overhead) -> u64| {
        [&kube_reserved, &system_reserved, &eviction].into_iter().map(part).fold(whole, u64::saturating_sub)
    };
    let allocatable = Amounts {
        cpu_millis: left(capacity.cpu_millis, |overhead| overhead.cpu_millis),
        memory_bytes: left(capacity.memory_bytes, |overhead| overhead.memory_bytes),
        ephemeral_storage_bytes: left(capacity.ephemeral_storage_bytes, |overhead| {
            overhead.ephemeral_storage_bytes
        }),
        ..capacity
    };
    NodeShape { capacity, kube_reserved, system_reserved, eviction, allocatable }
}

/// The stated memory less firmware and hypervisor; the hypervisor's share is in whole MiB, rounded up.
pub(super) fn estimated_memory_bytes(facts: &InstanceTypeFacts, settings: &NodeSettings) -> u64 {
    let firmware_mib = match facts.architectures.first() {
        Some(Architecture::Arm64) => ARM64_FIRMWARE_MIB,
        Some(Architecture::X86_64 | Architecture::Other(_)) | None => 0,
    };
    let mib = facts.memory_mib.saturating_sub(firmware_mib);
    mib.saturating_sub(settings.vm_memory_overhead.of_rounded_up(mib)).saturating_mul(MIB)
}

fn ephemeral_storage(facts: &InstanceTypeFacts, settings: &NodeSettings) -> (u64, Format) {
    disk_storage(facts, settings).map_or_else(|| volume(settings), |bytes| (bytes, Format::DecimalSi))
}

fn volume(settings: &NodeSettings) -> (u64, Format) {
    let devices = &settings.block_devices;
    let mapped = devices.iter().find(|device| device.root_volume).and_then(volume_size).or_else(|| {
        match settings.ami_family.ephemeral_device() {
            None => devices.last().and_then(volume_size),
            Some((ephemeral, _)) => devices
                .iter()
                .find(|device| device.device_name.as_deref() == Some(ephemeral))
                .and_then(volume_size),
        }
    });
    let default_bytes =
        settings.ami_family.ephemeral_device().map_or(CUSTOM_EPHEMERAL_STORAGE, |(_, bytes)| bytes);
    mapped.map_or((default_bytes, Format::BinarySi), |size| (whole(size), size.format()))
}

fn volume_size(device: &BlockDevice) -> Option<Quantity> {
    device.ebs.as_ref().and_then(|ebs| ebs.size)
}

fn millis(quantity: Quantity) -> u64 {
    u64::try_from(quantity.milli_ceil()).unwrap_or(0)
}

/// Pods that the addresses of a node's interfaces allow, when so many interfaces aren't for pods.
fn interface_pods(facts: &InstanceTypeFacts, settings: &NodeSettings, reserved: u32) -> u64 {
    let without_addresses = settings
        .network_interfaces
        .iter()
        .filter(|nic| nic.network_card_index == 0 && nic.interface_type == InterfaceType::EfaOnly)
        .fold(0_u32, |count, _| count.saturating_add(1));
    let network = &facts.network;
    let interfaces =
        network.default_card_interfaces.saturating_sub(reserved).saturating_sub(without_addresses);
    if interfaces == 0 {
        return 0;
    }
    // The first address of an interface is the node's; two pods of every node use the host's network.
    u64::from(interfaces) * u64::from(network.ipv4_per_interface.saturating_sub(1)) + 2
}

fn pods(facts: &InstanceTypeFacts, settings: &NodeSettings) -> u64 {
    let kubelet = &settings.kubelet;
    let count = match (kubelet.max_pods, settings.ami_family.pod_density()) {
        (Some(max), PodDensity::Interfaces | PodDensity::Fixed(_)) => u64::from(max),
        (None, PodDensity::Interfaces) => interface_pods(facts, settings, settings.reserved_enis),
        (None, PodDensity::Fixed(count)) => u64::from(count),
    };
    match kubelet.pods_per_core {
        Some(per_core) if per_core > 0 && settings.ami_family.honours_pods_per_core() => {
            count.min(u64::from(per_core) * u64::from(facts.vcpus))
        }
        Some(_) | None => count,
    }
}

fn devices(facts: &InstanceTypeFacts, settings: &NodeSettings) -> Devices {
    let gpus = |manufacturer: &str| {
        facts.gpus.iter().filter(|gpu| gpu.manufacturer == manufacturer).map(|gpu| u64::from(gpu.count)).sum()
    };
    let efa_only =
        || settings.network_interfaces.iter().filter(|nic| nic.interface_type == InterfaceType::EfaOnly);
    Devices {
        nvidia_gpu: gpus("NVIDIA"),
        amd_gpu: gpus("AMD"),
        gaudi: gpus("Habana"),
        neuron: facts.neuron_devices.iter().map(|device| u64::from(device.count)).sum(),
        neuron_core: facts
            .neuron_devices
            .first()
            .map_or(0, |kind| u64::from(kind.count) * u64::from(kind.cores)),
        efa: if settings.network_interfaces.is_empty() {
            u64::from(facts.network.max_efa_interfaces)
        } else {
            efa_only().fold(0, |count, _| count + 1)
        },
        pod_eni: u64::from(facts.network.branch_interfaces),
        private_ipv4_address: match settings.ami_family.windows_build() {
            Some(_) => u64::from(facts.network.ipv4_per_interface.saturating_sub(1)),
            None => 0,
        },
    }
}

fn kube_reserved(facts: &InstanceTypeFacts, settings: &NodeSettings, pods: u64) -> Overhead {
    let set = &settings.kubelet.kube_reserved;
    let counted = match settings.ami_family.memory_overhead() {
        MemoryOverhead::InterfacePods => interface_pods(facts, settings, 0),
        MemoryOverhead::Pods => pods,
    };
    let (base, each) = KUBELET_MEMORY;
    Overhead {
        cpu_millis: set.cpu.map_or_else(|| kubelet_cpu_millis(u64::from(facts.vcpus)), millis),
        memory_bytes: set.memory.map_or_else(|| base.saturating_add(each.saturating_mul(counted)), whole),
        ephemeral_storage_bytes: set.ephemeral_storage.map_or(KUBELET_EPHEMERAL_STORAGE, whole),
    }
}

fn kubelet_cpu_millis(cores: u64) -> u64 {
    let mut left = cores;
    let mut millis = 0;
    for (bracket, share) in KUBELET_CPU {
        let taken = left.min(bracket);
        millis += taken * share / 100;
        left -= taken;
    }
    millis
}

fn eviction(settings: &NodeSettings, capacity: &Amounts) -> Overhead {
    let kubelet = &settings.kubelet;
    Overhead {
        cpu_millis: 0,
        memory_bytes: kubelet.eviction_memory.unwrap_or(EVICTION_MEMORY).bytes_of(capacity.memory_bytes),
        ephemeral_storage_bytes: kubelet
            .eviction_nodefs
            .unwrap_or(EVICTION_NODEFS)
            .bytes_of(capacity.ephemeral_storage_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cores: u64, expected: u64) {
        assert_eq!(kubelet_cpu_millis(cores), expected, "{cores} cores");
    }

    #[test]
    fn the_kubelet_takes_less_of_every_further_core() {
        check(1, 60);
        check(2, 70);
        check(4, 80);
        check(8, 90);
        check(16, 110);
        check(48, 190);
        check(96, 310);
    }
}
