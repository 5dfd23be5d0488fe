//! Instance types and their offerings.
//!
//! Decides how EC2's description becomes the port's. It is lenient: the catalogue names a type with a missing field,
//! and keeps the others.

use aws_sdk_ec2::types as sdk;
use tenon_domain::catalog::describe::{
    CoreInfo, DeviceInfo, EbsInfo, EbsOptimizedInfo, EfaInfo, GpuInfo, InferenceAcceleratorInfo,
    InstanceStorageInfo, MemoryInfo, NetworkCardInfo, NetworkInfo, NeuronInfo, PlacementGroupInfo,
    ProcessorInfo, VCpuInfo,
};
use tenon_ec2::port::{AvailabilityZone, InstanceTypeInfo, TypeOffering};

use crate::reading::{Malformed, parsed, required};

pub(crate) fn instance_type(from: sdk::InstanceTypeInfo) -> InstanceTypeInfo {
    InstanceTypeInfo {
        instance_type: from.instance_type.map(|t| t.as_str().to_owned()),
        bare_metal: from.bare_metal,
        burstable_performance_supported: from.burstable_performance_supported,
        current_generation: from.current_generation,
        hypervisor: from.hypervisor.map(|h| h.as_str().to_owned()),
        nitro_enclaves_support: from.nitro_enclaves_support.map(|s| s.as_str().to_owned()),
        supported_boot_modes: from.supported_boot_modes.map(|list| words(&list)),
        supported_usage_classes: from.supported_usage_classes.map(|list| words(&list)),
        supported_virtualization_types: from.supported_virtualization_types.map(|list| words(&list)),
        vcpu_info: from.v_cpu_info.map(|info| VCpuInfo { default_vcpus: count(info.default_v_cpus) }),
        memory_info: from.memory_info.and_then(|info| mib(info.size_in_mib)),
        processor_info: from.processor_info.map(|info| ProcessorInfo {
            manufacturer: info.manufacturer,
            supported_architectures: info.supported_architectures.map(|list| words(&list)),
            supported_features: info.supported_features.map(|list| words(&list)),
            sustained_clock_speed_in_ghz: info.sustained_clock_speed_in_ghz,
        }),
        gpu_info: from.gpu_info.map(|info| GpuInfo { gpus: info.gpus.map(|list| mapped(list, gpu)) }),
        neuron_info: from.neuron_info.map(|info| NeuronInfo {
            neuron_devices: info.neuron_devices.map(|list| mapped(list, neuron_device)),
        }),
        inference_accelerator_info: from.inference_accelerator_info.map(|info| InferenceAcceleratorInfo {
            accelerators: info.accelerators.map(|list| mapped(list, inference_accelerator)),
        }),
        instance_storage_info: from.instance_storage_info.map(|info| InstanceStorageInfo {
            total_size_in_gb: info.total_size_in_gb.and_then(|size| u64::try_from(size).ok()),
            nvme_support: info.nvme_support.map(|s| s.as_str().to_owned()),
        }),
        ebs_info: from.ebs_info.map(ebs),
        network_info: from.network_info.map(network),
        placement_group_info: from.placement_group_info.map(|info| PlacementGroupInfo {
            supported_strategies: info.supported_strategies.map(|list| words(&list)),
        }),
    }
}

fn mapped<T, U>(list: Vec<T>, map: impl Fn(T) -> U) -> Vec<U> {
    list.into_iter().map(map).collect()
}

/// EC2's words for the values of one of the SDK's enumerations, unknown ones among them.
fn words<T: AsRef<str>>(list: &[T]) -> Vec<String> {
    list.iter().map(|word| word.as_ref().to_owned()).collect()
}

/// A count; one below zero is none.
fn count(value: Option<i32>) -> Option<u32> {
    value.and_then(|value| u32::try_from(value).ok())
}

fn mib<N>(value: Option<N>) -> Option<MemoryInfo>
where
    u64: TryFrom<N>,
{
    let size_in_mib = value.and_then(|value| u64::try_from(value).ok())?;
    Some(MemoryInfo { size_in_mib: Some(size_in_mib) })
}

fn gpu(info: sdk::GpuDeviceInfo) -> DeviceInfo {
    DeviceInfo {
        name: info.name,
        manufacturer: info.manufacturer,
        count: count(info.count),
        memory_info: info.memory_info.and_then(|memory| mib(memory.size_in_mib)),
        core_info: None,
    }
}

fn neuron_device(info: sdk::NeuronDeviceInfo) -> DeviceInfo {
    DeviceInfo {
        name: info.name,
        manufacturer: None,
        count: count(info.count),
        memory_info: info.memory_info.and_then(|memory| mib(memory.size_in_mib)),
        core_info: info.core_info.map(|core| CoreInfo { count: count(core.count) }),
    }
}

fn inference_accelerator(info: sdk::InferenceDeviceInfo) -> DeviceInfo {
    DeviceInfo {
        name: info.name,
        manufacturer: info.manufacturer,
        count: count(info.count),
        memory_info: info.memory_info.and_then(|memory| mib(memory.size_in_mib)),
        core_info: None,
    }
}

fn ebs(info: sdk::EbsInfo) -> EbsInfo {
    EbsInfo {
        ebs_optimized_support: info.ebs_optimized_support.map(|s| s.as_str().to_owned()),
        ebs_optimized_info: info.ebs_optimized_info.map(|optimized| EbsOptimizedInfo {
            maximum_bandwidth_in_mbps: count(optimized.maximum_bandwidth_in_mbps),
        }),
        maximum_ebs_attachments: count(info.maximum_ebs_attachments),
        attachment_limit_type: info.attachment_limit_type.map(|limit| limit.as_str().to_owned()),
    }
}

fn network(info: sdk::NetworkInfo) -> NetworkInfo {
    let card = |card: sdk::NetworkCardInfo| NetworkCardInfo {
        network_card_index: count(card.network_card_index),
        maximum_network_interfaces: count(card.maximum_network_interfaces),
    };
    NetworkInfo {
        ena_support: info.ena_support.map(|s| s.as_str().to_owned()),
        default_network_card_index: count(info.default_network_card_index),
        network_cards: info.network_cards.map(|cards| mapped(cards, card)),
        ipv4_addresses_per_interface: count(info.ipv4_addresses_per_interface),
        efa_info: info
            .efa_info
            .map(|efa| EfaInfo { maximum_efa_interfaces: count(efa.maximum_efa_interfaces) }),
        encryption_in_transit_supported: info.encryption_in_transit_supported,
    }
}

pub(crate) fn offering(from: &sdk::InstanceTypeOffering) -> Result<TypeOffering, Malformed> {
    Ok(TypeOffering {
        instance_type: parsed(from.instance_type.as_ref().map(AsRef::as_ref), "InstanceType")?,
        location: required(from.location.clone(), "Location")?,
    })
}

/// The zones that this account may use, which excludes zones without opt-in.
pub(crate) fn zones(from: &[sdk::AvailabilityZone]) -> Result<Vec<AvailabilityZone>, Malformed> {
    let mut zones = from
        .iter()
        .filter(|zone| zone.opt_in_status != Some(sdk::AvailabilityZoneOptInStatus::NotOptedIn))
        .map(|zone| {
            Ok(AvailabilityZone {
                name: parsed(zone.zone_name.as_deref(), "ZoneName")?,
                id: parsed(zone.zone_id.as_deref(), "ZoneId")?,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    zones.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(zones)
}
