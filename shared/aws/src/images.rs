//! Images in every state, so that callers see unusable ones.

use aws_sdk_ec2::types as sdk;
use tenon_ec2::port::{
    BootMode, EnaSupport, Image, ImageArchitecture, ImageFacts, ImagePlatform, ImageState, ImageVolume,
    RootDeviceType, SnapshotState, VolumeSnapshot,
};

use crate::reading::{Malformed, optional, parsed, required, tags};

pub(crate) fn image(from: &sdk::Image) -> Result<Image, Malformed> {
    Ok(Image {
        id: parsed(from.image_id.as_deref(), "ImageId")?,
        // A failed image may have no name.
        name: from.name.clone().unwrap_or_default(),
        owner: from.owner_id.clone().unwrap_or_default(),
        owner_alias: from.image_owner_alias.clone().filter(|alias| !alias.is_empty()),
        architecture: from.architecture.as_ref().and_then(|a| ImageArchitecture::parse(a.as_str())),
        state: state(required(from.state.as_ref(), "State")?),
        created_at: optional(from.creation_date.as_deref(), "CreationDate")?,
        deprecated_at: optional(from.deprecation_time.as_deref(), "DeprecationTime")?,
        facts: facts(from),
        tags: tags(from.tags()),
    })
}

/// An attribute that EC2 leaves out, or a word that isn't known here, is no fact.
fn facts(from: &sdk::Image) -> ImageFacts {
    let ena = |supported| if supported { EnaSupport::Enabled } else { EnaSupport::Missing };
    let volume = |mapped: &sdk::BlockDeviceMapping| {
        let ebs = mapped.ebs.as_ref()?;
        let volume = ImageVolume {
            snapshot: ebs.snapshot_id.clone(),
            size_gib: ebs.volume_size.and_then(|size| u32::try_from(size).ok()),
            encrypted: ebs.encrypted,
        };
        Some((mapped.device_name.clone()?, volume))
    };
    ImageFacts {
        boot_mode: from.boot_mode.as_ref().and_then(|mode| BootMode::parse(mode.as_str())),
        ena: from.ena_support.map(ena),
        // The API's reference has `windows`, the SDK's enum `Windows`.
        platform: from
            .platform
            .as_ref()
            .and_then(|platform| ImagePlatform::parse(&platform.as_str().to_ascii_lowercase())),
        root_device_type: from
            .root_device_type
            .as_ref()
            .and_then(|kind| RootDeviceType::parse(kind.as_str())),
        root_device_name: from.root_device_name.clone(),
        volumes: from.block_device_mappings().iter().filter_map(volume).collect(),
    }
}

pub(crate) fn snapshot(from: &sdk::Snapshot) -> Result<VolumeSnapshot, Malformed> {
    Ok(VolumeSnapshot {
        id: required(from.snapshot_id.clone(), "SnapshotId")?,
        owner: required(from.owner_id.clone(), "OwnerId")?,
        owner_alias: from.owner_alias.clone().filter(|alias| !alias.is_empty()),
        state: from.state.as_ref().and_then(|state| SnapshotState::parse(state.as_str())),
        tags: tags(from.tags()),
    })
}

/// A state that isn't known, a newer one among them, can't be launched.
fn state(from: &sdk::ImageState) -> ImageState {
    ImageState::parse(from.as_str()).unwrap_or(ImageState::Invalid)
}
