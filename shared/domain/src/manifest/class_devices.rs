//! Volumes, interfaces and processor options of an EC2NodeClass.
//!
//! Decides Karpenter's bounds for each (aws/karpenter-provider-aws
//! `pkg/apis/v1/ec2nodeclass.go`). Absent fields get the defaults of EC2 or of the AMI family.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::{Deserialize, Deserializer, Error};

use super::decode::{Place, reread, told};
use super::fields::one_of;
use crate::catalog::settings::{BlockDevice, ConnectionTracking, InterfaceType, NetworkInterface};
use crate::quantity::Quantity;

/// Karpenter's bounds.
const MAX_MAPPINGS: usize = 50;
const MAX_INTERFACES: usize = 150;
const VOLUME_TYPES: [&str; 7] = ["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"];
/// The largest volume in each unit.
const VOLUME_SIZES: [(&str, u32); 4] = [("Gi", 59_000), ("G", 64_000), ("Ti", 58), ("T", 64)];

pub(super) fn check_block_devices(devices: &[BlockDevice], list: &Place<'_>) {
    for (index, volume) in
        devices.iter().enumerate().filter_map(|(n, device)| Some((n, device.ebs.as_ref()?)))
    {
        let item = list.index(index);
        let place = item.key("ebs");
        if volume.snapshot_id.is_none() && volume.size.is_none() {
            place.error("`snapshotID` or `volumeSize` is required", "add `volumeSize`, such as `20Gi`");
        }
        if volume.snapshot_id.is_none() && volume.volume_initialization_rate.is_some() {
            let rate = place.key("volumeInitializationRate");
            rate.error("`volumeInitializationRate` needs `snapshotID`", "leave it out");
        }
    }
    if devices.len() > MAX_MAPPINGS {
        list.error(format!("more than {MAX_MAPPINGS} mappings"), "leave some out");
    }
    if devices.iter().filter(|device| device.root_volume).count() > 1 {
        list.error("more than one mapping with `rootVolume: true`", "keep one");
    }
}

/// `volumeType`.
pub(crate) fn volume_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    one_of(deserializer, "a volume type", &VOLUME_TYPES).map(Some)
}

/// `volumeSize`.
pub(crate) fn volume_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Quantity>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let fits = VOLUME_SIZES.iter().any(|(suffix, most)| {
        text.strip_suffix(suffix).is_some_and(|digits| {
            let plain = !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
            plain && digits.parse::<u32>().is_ok_and(|size| (1..=*most).contains(&size))
        })
    });
    if !fits {
        return Err(Error::custom(told(
            format_args!("`{text}` is not the size of a volume"),
            "write a whole number, 1 to 59000 with `Gi`, to 64000 with `G`, to 58 with `Ti` or to 64 with `T`",
        )));
    }
    reread(&text.into()).map(Some)
}

pub(super) fn check_interfaces(interfaces: &[NetworkInterface], list: &Place<'_>) {
    if interfaces.is_empty() {
        return;
    }
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

pub(super) fn check_tracking(tracking: Option<&ConnectionTracking>, place: &Place<'_>) {
    if tracking == Some(&ConnectionTracking::default()) {
        place.error("no timeout is given", "add at least one, or leave `connectionTracking` out");
    }
}
