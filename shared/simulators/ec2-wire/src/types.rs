//! Instance types on the wire.

use tenon_domain::catalog::describe::{DeviceInfo, InstanceTypeInfo, MemoryInfo, NetworkInfo, ProcessorInfo};

use crate::xml::Xml;

pub(crate) fn instance_type(xml: &mut Xml, info: &InstanceTypeInfo) {
    xml.maybe("instanceType", info.instance_type.as_ref());
    xml.maybe("bareMetal", info.bare_metal);
    xml.maybe("burstablePerformanceSupported", info.burstable_performance_supported);
    xml.maybe("currentGeneration", info.current_generation);
    xml.maybe("hypervisor", info.hypervisor.as_ref());
    xml.maybe("nitroEnclavesSupport", info.nitro_enclaves_support.as_ref());
    xml.texts("supportedBootModes", info.supported_boot_modes.as_ref());
    xml.texts("supportedUsageClasses", info.supported_usage_classes.as_ref());
    xml.texts("supportedVirtualizationTypes", info.supported_virtualization_types.as_ref());
    within(xml, "vCpuInfo", info.vcpu_info.as_ref(), |xml, cpu| xml.maybe("defaultVCpus", cpu.default_vcpus));
    memory(xml, info.memory_info.as_ref());
    within(xml, "processorInfo", info.processor_info.as_ref(), processor);
    within(xml, "gpuInfo", info.gpu_info.as_ref(), |xml, gpu| {
        devices(xml, "gpus", "item", gpu.gpus.as_ref());
    });
    within(xml, "neuronInfo", info.neuron_info.as_ref(), |xml, neuron| {
        devices(xml, "neuronDevices", "item", neuron.neuron_devices.as_ref());
    });
    within(xml, "inferenceAcceleratorInfo", info.inference_accelerator_info.as_ref(), |xml, inference| {
        devices(xml, "accelerators", "member", inference.accelerators.as_ref());
    });
    within(xml, "instanceStorageInfo", info.instance_storage_info.as_ref(), |xml, storage| {
        xml.maybe("totalSizeInGB", storage.total_size_in_gb);
        xml.maybe("nvmeSupport", storage.nvme_support.as_ref());
    });
    within(xml, "ebsInfo", info.ebs_info.as_ref(), |xml, ebs| {
        xml.maybe("ebsOptimizedSupport", ebs.ebs_optimized_support.as_ref());
        within(xml, "ebsOptimizedInfo", ebs.ebs_optimized_info.as_ref(), |xml, optimized| {
            xml.maybe("maximumBandwidthInMbps", optimized.maximum_bandwidth_in_mbps);
        });
        xml.maybe("maximumEbsAttachments", ebs.maximum_ebs_attachments);
        xml.maybe("attachmentLimitType", ebs.attachment_limit_type.as_ref());
    });
    within(xml, "networkInfo", info.network_info.as_ref(), network);
    within(xml, "placementGroupInfo", info.placement_group_info.as_ref(), |xml, placement| {
        xml.texts("supportedStrategies", placement.supported_strategies.as_ref());
    });
}

fn within<T>(xml: &mut Xml, tag: &str, info: Option<&T>, content: impl Fn(&mut Xml, &T)) {
    if let Some(info) = info {
        xml.within(tag, |xml| content(xml, info));
    }
}

fn memory(xml: &mut Xml, info: Option<&MemoryInfo>) {
    within(xml, "memoryInfo", info, |xml, memory| xml.maybe("sizeInMiB", memory.size_in_mib));
}

fn processor(xml: &mut Xml, info: &ProcessorInfo) {
    xml.maybe("manufacturer", info.manufacturer.as_ref());
    xml.texts("supportedArchitectures", info.supported_architectures.as_ref());
    xml.texts("supportedFeatures", info.supported_features.as_ref());
    xml.maybe("sustainedClockSpeedInGhz", info.sustained_clock_speed_in_ghz);
}

/// Devices, in a list with EC2's name for its elements.
fn devices(xml: &mut Xml, tag: &str, element: &str, list: Option<&Vec<DeviceInfo>>) {
    within(xml, tag, list, |xml, list| {
        for device in list {
            xml.within(element, |xml| {
                xml.maybe("name", device.name.as_ref());
                xml.maybe("manufacturer", device.manufacturer.as_ref());
                xml.maybe("count", device.count);
                memory(xml, device.memory_info.as_ref());
                within(xml, "coreInfo", device.core_info.as_ref(), |xml, core| {
                    xml.maybe("count", core.count)
                });
            });
        }
    });
}

fn network(xml: &mut Xml, info: &NetworkInfo) {
    xml.maybe("enaSupport", info.ena_support.as_ref());
    xml.maybe("defaultNetworkCardIndex", info.default_network_card_index);
    if let Some(cards) = &info.network_cards {
        xml.set("networkCards", cards, |xml, card| {
            xml.maybe("networkCardIndex", card.network_card_index);
            xml.maybe("maximumNetworkInterfaces", card.maximum_network_interfaces);
        });
    }
    xml.maybe("ipv4AddressesPerInterface", info.ipv4_addresses_per_interface);
    within(xml, "efaInfo", info.efa_info.as_ref(), |xml, efa| {
        xml.maybe("maximumEfaInterfaces", efa.maximum_efa_interfaces);
    });
    xml.maybe("encryptionInTransitSupported", info.encryption_in_transit_supported);
}
