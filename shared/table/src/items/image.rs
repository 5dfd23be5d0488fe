//! `IMAGE#`: an image as EC2 described it last, under a `revision`. `IMAGES`: which queries of classes the records
//! answer.

use std::collections::BTreeSet;

use tenon_domain::catalog::facts::Architecture;
use tenon_domain::image::{
    BootMode, EnaSupport, ImageFacts, ImagePlatform, ImageRecord, ImageState, ImageVolume, RootDeviceType,
};

use tenon_domain::Timestamp;

use super::form::{Attributes, FieldError, Fields, ItemForm};
use crate::key::REVISION;

/// The last sweep of the region's images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSweep {
    /// When it began: every image that one of its queries matched then has a record that is no older.
    pub at: Timestamp,
    /// The digests of the queries that EC2 answered.
    pub queries: BTreeSet<String>,
}

impl ItemForm for ImageSweep {
    fn write(&self, to: &mut Attributes) {
        to.time("at", self.at);
        to.texts("queries", &self.queries);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self { at: from.time("at")?, queries: from.texts("queries")? })
    }
}

impl ItemForm for ImageRecord {
    fn write(&self, to: &mut Attributes) {
        to.number(REVISION, self.revision);
        to.text("id", &self.id);
        to.text("name", &self.name);
        to.text("state", self.state.as_str());
        to.text_if("architecture", self.architecture.as_ref().map(Architecture::as_str));
        to.time_if("created_at", self.created_at);
        to.text("owner", &self.owner);
        to.text_if("owner_alias", self.owner_alias.as_ref());
        to.labels("tags", &self.tags);
        to.time_if("deprecated_at", self.deprecated_at);
        write_facts(&self.facts, to);
        to.time("first_seen_at", self.first_seen_at);
        to.time("seen_at", self.seen_at);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            // Records of older releases have none.
            revision: from.u64_if(REVISION)?.unwrap_or(0),
            id: from.parsed("id")?,
            name: from.string("name")?,
            state: ImageState::of_any_release(from.text("state")?),
            architecture: from.text_if("architecture")?.map(Architecture::from_ec2),
            created_at: from.time_if("created_at")?,
            owner: from.string("owner")?,
            owner_alias: from.string_if("owner_alias")?,
            tags: from.labels("tags")?,
            deprecated_at: from.time_if("deprecated_at")?,
            facts: read_facts(from)?,
            // Records of older releases have none.
            first_seen_at: from.time_if("first_seen_at")?.map_or_else(|| from.time("seen_at"), Ok)?,
            seen_at: from.time("seen_at")?,
        })
    }
}

fn write_facts(facts: &ImageFacts, to: &mut Attributes) {
    to.text_if("boot_mode", facts.boot_mode.map(BootMode::as_str));
    to.text_if("ena", facts.ena.map(EnaSupport::as_str));
    to.text_if("platform", facts.platform.map(ImagePlatform::as_str));
    to.text_if("root_device_type", facts.root_device_type.map(RootDeviceType::as_str));
    to.text_if("root_device_name", facts.root_device_name.as_ref());
    let volumes = (!facts.volumes.is_empty()).then_some(&facts.volumes);
    to.list_if("volumes", volumes, |(device, volume), to| {
        to.text("device", device);
        to.text_if("snapshot", volume.snapshot.as_ref());
        to.number_if("size_gib", volume.size_gib);
        to.truth_if("encrypted", volume.encrypted);
    });
}

fn read_facts(from: Fields<'_>) -> Result<ImageFacts, FieldError> {
    let volumes = from.list_if("volumes", |from| {
        let volume = ImageVolume {
            snapshot: from.string_if("snapshot")?,
            size_gib: from.u32_if("size_gib")?,
            encrypted: from.truth_if("encrypted")?,
        };
        Ok((from.string("device")?, volume))
    })?;
    // A word that isn't known is none, as where EC2 says it.
    Ok(ImageFacts {
        boot_mode: from.known_word_if("boot_mode", BootMode::parse)?,
        ena: from.known_word_if("ena", EnaSupport::parse)?,
        platform: from.known_word_if("platform", ImagePlatform::parse)?,
        root_device_type: from.known_word_if("root_device_type", RootDeviceType::parse)?,
        root_device_name: from.string_if("root_device_name")?,
        volumes: volumes.into_iter().collect(),
    })
}
