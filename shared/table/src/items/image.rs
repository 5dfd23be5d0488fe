//! `IMAGE#`: an image as EC2 described it last.

use tenon_domain::catalog::facts::Architecture;
use tenon_domain::image::{ImageRecord, ImageState};

use super::form::{Attributes, FieldError, Fields, ItemForm};

impl ItemForm for ImageRecord {
    fn write(&self, to: &mut Attributes) {
        to.text("id", &self.id);
        to.text("name", &self.name);
        to.text("state", self.state.as_str());
        to.text_if("architecture", self.architecture.as_ref().map(Architecture::as_str));
        to.time_if("created_at", self.created_at);
        to.text("owner", &self.owner);
        to.labels("tags", &self.tags);
        to.time_if("deprecated_at", self.deprecated_at);
        to.time("seen_at", self.seen_at);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            id: from.parsed("id")?,
            name: from.string("name")?,
            state: from.word("state", ImageState::parse)?,
            architecture: from.text_if("architecture")?.map(Architecture::from_ec2),
            created_at: from.time_if("created_at")?,
            owner: from.string("owner")?,
            tags: from.labels("tags")?,
            deprecated_at: from.time_if("deprecated_at")?,
            seen_at: from.time("seen_at")?,
        })
    }
}
