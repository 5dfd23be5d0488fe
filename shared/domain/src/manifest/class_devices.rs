//! Volumes, interfaces and processor options of an EC2NodeClass.
//!
//! Decides Karpenter's bounds for each (aws/karpenter-provider-aws
//! `pkg/apis/v1/ec2nodeclass.go`). What is absent is left to EC2 or to the family.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::settings::{
    BlockDevice, ConnectionTracking, EbsVolume, InterfaceType, NestedVirtualization, NetworkInterface,
};
use crate::quantity::Quantity;

use super::decode::{At, Fields};

/// Karpenter's bounds.
const MAX_MAPPINGS: usize = 50;
const MAX_INTERFACES: usize = 150;
const VOLUME_TYPES: [&str; 7] = ["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"];
/// The largest volume in each unit.
const VOLUME_SIZES: [(&str, u32); 4] = [("Gi", 59_000), ("G", 64_000), ("Ti", 58), ("T", 64)];
const WHOLE: std::ops::RangeInclusive<i64> = 0..=u32::MAX as i64;

pub(super) fn read_block_devices(spec: At<'_>) -> Vec<BlockDevice> {
    let Some(list) = spec.list("blockDeviceMappings") else { return Vec::new() };
    let devices: Vec<BlockDevice> = list
        .items()
        .filter(|item| item.check_map(Fields::Only(&["deviceName", "rootVolume", "ebs"])))
        .map(|item| BlockDevice {
            device_name: item.text_of("deviceName"),
            root_volume: item.boolean("rootVolume").unwrap_or(false),
            ebs: read_volume(item),
        })
        .collect();
    if devices.len() > MAX_MAPPINGS {
        list.error(format!("more than {MAX_MAPPINGS} mappings"), "leave some out");
    }
    if devices.iter().filter(|device| device.root_volume).count() > 1 {
        list.error("more than one mapping with `rootVolume: true`", "keep one");
    }
    devices
}

fn read_volume(item: At<'_>) -> Option<EbsVolume> {
    let at = item.object(
        "ebs",
        Fields::Only(&[
            "deleteOnTermination",
            "encrypted",
            "iops",
            "kmsKeyID",
            "snapshotID",
            "throughput",
            "volumeInitializationRate",
            "volumeSize",
            "volumeType",
        ]),
    )?;
    if !at.has("snapshotID") && !at.has("volumeSize") {
        at.error("`snapshotID` or `volumeSize` is required", "add `volumeSize`, such as `20Gi`");
    }
    if !at.has("snapshotID")
        && let Some(field) = at.field("volumeInitializationRate")
    {
        field.error("`volumeInitializationRate` needs `snapshotID`", "leave it out");
    }
    Some(EbsVolume {
        size: at.field("volumeSize").and_then(read_size),
        volume_type: at
            .field("volumeType")
            .and_then(|field| field.one_of("a volume type", &VOLUME_TYPES))
            .map(str::to_owned),
        encrypted: at.boolean("encrypted"),
        delete_on_termination: at.boolean("deleteOnTermination"),
        iops: at.integer_of("iops", WHOLE),
        throughput: at.integer_of("throughput", WHOLE),
        kms_key_id: at.text_of("kmsKeyID"),
        snapshot_id: at.text_of("snapshotID"),
        volume_initialization_rate: at.integer_of("volumeInitializationRate", 100..=300),
    })
}

fn read_size(at: At<'_>) -> Option<Quantity> {
    let text = at.text()?;
    let fits = VOLUME_SIZES.iter().any(|(suffix, most)| {
        text.strip_suffix(suffix).is_some_and(|digits| {
            let plain = !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
            plain && digits.parse::<u32>().is_ok_and(|size| (1..=*most).contains(&size))
        })
    });
    if !fits {
        at.error(
            format!("`{text}` is not the size of a volume"),
            "write a whole number, 1 to 59000 with `Gi`, to 64000 with `G`, to 58 with `Ti` or to 64 with `T`",
        );
        return None;
    }
    at.quantity()
}

pub(super) fn read_network_interfaces(spec: At<'_>) -> Vec<NetworkInterface> {
    let Some(list) = spec.list("networkInterfaces") else { return Vec::new() };
    let fields = Fields::Only(&["networkCardIndex", "deviceIndex", "interfaceType"]);
    let interfaces: Vec<NetworkInterface> =
        list.items().filter(|item| item.check_map(fields)).filter_map(read_interface).collect();
    check_interfaces(list, &interfaces);
    interfaces
}

fn read_interface(item: At<'_>) -> Option<NetworkInterface> {
    for key in ["networkCardIndex", "deviceIndex", "interfaceType"] {
        if !item.has(key) {
            item.missing(key, "it");
        }
    }
    let interface_type =
        match item.field("interfaceType")?.one_of("an interface type", &["interface", "efa-only"])? {
            "efa-only" => InterfaceType::EfaOnly,
            _ => InterfaceType::Interface,
        };
    Some(NetworkInterface {
        network_card_index: item.integer_of("networkCardIndex", WHOLE)?,
        device_index: item.integer_of("deviceIndex", WHOLE)?,
        interface_type,
    })
}

fn check_interfaces(list: At<'_>, interfaces: &[NetworkInterface]) {
    if interfaces.len() > MAX_INTERFACES {
        list.error(format!("more than {MAX_INTERFACES} interfaces"), "leave some out");
    }
    let primary =
        NetworkInterface { network_card_index: 0, device_index: 0, interface_type: InterfaceType::Interface };
    if !interfaces.contains(&primary) {
        list.error(
            "no primary interface",
            "add one with `networkCardIndex: 0`, `deviceIndex: 0` and `interfaceType: interface`",
        );
    }
    let places: BTreeSet<_> = interfaces.iter().map(|i| (i.network_card_index, i.device_index)).collect();
    if places.len() < interfaces.len() {
        list.error("two interfaces with one `networkCardIndex` and `deviceIndex`", "give each its own");
    }
    let mut efa_only: BTreeMap<u32, u32> = BTreeMap::new();
    for interface in interfaces.iter().filter(|i| i.interface_type == InterfaceType::EfaOnly) {
        let count = efa_only.entry(interface.network_card_index).or_default();
        *count = count.saturating_add(1);
    }
    if efa_only.values().any(|count| *count > 1) {
        list.error("more than one `efa-only` interface on a network card", "keep one on each card");
    }
}

pub(super) fn read_connection_tracking(spec: At<'_>) -> Option<ConnectionTracking> {
    let fields = Fields::Only(&["tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout"]);
    let at = spec.object("connectionTracking", fields)?;
    let tracking = ConnectionTracking {
        tcp_established_timeout_seconds: at.integer_of("tcpEstablishedTimeout", 60..=432_000),
        udp_stream_timeout_seconds: at.integer_of("udpStreamTimeout", 60..=180),
        udp_timeout_seconds: at.integer_of("udpTimeout", 30..=60),
    };
    if !["tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout"].iter().any(|key| at.has(key)) {
        at.error("no timeout is given", "add at least one, or leave `connectionTracking` out");
    }
    Some(tracking)
}

pub(super) fn read_nested_virtualization(spec: At<'_>) -> Option<NestedVirtualization> {
    let at = spec.object("cpuOptions", Fields::Only(&["nestedVirtualization"]))?;
    match at.field("nestedVirtualization")?.one_of("a CPU option", &["enabled", "disabled"])? {
        "enabled" => Some(NestedVirtualization::Enabled),
        _ => Some(NestedVirtualization::Disabled),
    }
}
