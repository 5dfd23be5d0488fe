//! An image, as EC2 described it last.
//!
//! Decides the states of an image, and the facts of it that a launch depends on. A class takes only
//! [`ImageState::Available`].

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::catalog::facts::Architecture;
use crate::id::ImageId;

/// The record of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRecord {
    /// The count of its writes; 0 in a record of an older release.
    pub revision: u64,
    /// Its id.
    pub id: ImageId,
    /// Its name; empty if it was deregistered before it was ever described.
    pub name: String,
    /// Its state.
    pub state: ImageState,
    /// Its architecture; none if EC2 never described it.
    pub architecture: Option<Architecture>,
    /// Its creation time.
    pub created_at: Option<Timestamp>,
    /// The account that owns it.
    pub owner: String,
    /// The owner's alias, such as `amazon`; nothing in a record of an older release.
    pub owner_alias: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Its deprecation time.
    pub deprecated_at: Option<Timestamp>,
    /// What launches from it depend on; nothing in a record of an older release.
    pub facts: ImageFacts,
    /// The time of the first query that it was an answer to.
    pub first_seen_at: Timestamp,
    /// The time of the last recorded query.
    pub seen_at: Timestamp,
}

/// What a launch depends on, besides architecture and state. An absent fact isn't known.
///
/// DescribeImages has no attribute for NVMe drivers. Source: docs.aws.amazon.com/AWSEC2/latest/APIReference
/// `API_Image.html`, read November 2026.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ImageFacts {
    /// Its boot mode; absent if it has the instance type's default.
    pub boot_mode: Option<BootMode>,
    /// Whether it has ENA drivers, which every current instance type needs.
    pub ena: Option<EnaSupport>,
    /// Its platform, where it isn't Linux.
    pub platform: Option<ImagePlatform>,
    /// Where its root volume is.
    pub root_device_type: Option<RootDeviceType>,
    /// Its root volume's device name, such as `/dev/xvda`.
    pub root_device_name: Option<String>,
    /// Its volumes, by the devices' names.
    pub volumes: BTreeMap<String, ImageVolume>,
}

/// An EBS volume that EC2 makes for each instance of an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ImageVolume {
    /// The snapshot that it is made from.
    pub snapshot: Option<String>,
    /// Its size in GiB; a volume of a snapshot can't be smaller than the snapshot's.
    pub size_gib: Option<u32>,
    /// Whether it is encrypted.
    pub encrypted: Option<bool>,
}

impl ImageFacts {
    /// The snapshot of a device.
    #[must_use]
    pub fn snapshot(&self, device: &str) -> Option<&str> {
        self.volumes.get(device)?.snapshot.as_deref()
    }
}

crate::words! {
    /// An image's state, in EC2's words.
    pub enum ImageState else Invalid {
        /// Being made.
        Pending = "pending",
        /// Can be launched.
        Available = "available",
        /// Its making failed.
        Failed = "failed",
        /// EC2 doesn't return it any longer.
        Deregistered = "deregistered",
        /// Its owner disabled it.
        Disabled = "disabled",
        /// Any other state (`invalid`, `transient`, `error`): can't be launched.
        Invalid = "invalid",
    }
    /// How an image's instances boot, in EC2's words.
    pub enum BootMode {
        /// Legacy BIOS.
        LegacyBios = "legacy-bios",
        /// UEFI; a type without it isn't launched.
        Uefi = "uefi",
        /// UEFI where the type has it.
        UefiPreferred = "uefi-preferred",
    }

    /// Whether an image has drivers for enhanced networking (`EnaSupport`).
    pub enum EnaSupport {
        /// It has.
        Enabled = "enabled",
        /// It hasn't.
        Missing = "missing",
    }

    /// An image's platform. EC2 names only this one.
    pub enum ImagePlatform {
        /// Windows.
        Windows = "windows",
    }

    /// Where an image's root volume is, in EC2's words.
    pub enum RootDeviceType {
        /// On EBS.
        Ebs = "ebs",
        /// On the host's disks; no current instance type boots from them.
        InstanceStore = "instance-store",
    }
}
