//! Images in every state, so that callers see unusable ones.

use aws_sdk_ec2::types as sdk;
use tenon_ec2::port::{Image, ImageArchitecture, ImageState, VolumeSnapshot};

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
        root_device_name: from.root_device_name.clone(),
        snapshots: from
            .block_device_mappings()
            .iter()
            .filter_map(|mapped| {
                let snapshot = mapped.ebs.as_ref()?.snapshot_id.clone()?;
                Some((mapped.device_name.clone()?, snapshot))
            })
            .collect(),
        tags: tags(from.tags()),
    })
}

pub(crate) fn snapshot(from: &sdk::Snapshot) -> Result<VolumeSnapshot, Malformed> {
    Ok(VolumeSnapshot {
        id: required(from.snapshot_id.clone(), "SnapshotId")?,
        owner: required(from.owner_id.clone(), "OwnerId")?,
        owner_alias: from.owner_alias.clone().filter(|alias| !alias.is_empty()),
        tags: tags(from.tags()),
    })
}

/// A state that isn't known, a newer one among them, can't be launched.
fn state(from: &sdk::ImageState) -> ImageState {
    ImageState::parse(from.as_str()).unwrap_or(ImageState::Invalid)
}
