//! `TEMPLATE#`: a launch template of a cluster: its request, and whether EC2 has it.

use tenon_domain::Timestamp;
use tenon_domain::id::{ImageId, NodeClassName};

use super::form::{Attributes, FieldError, Fields, ItemForm};

/// A launch template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateItem {
    /// Its name in EC2, which carries the digest of its content.
    pub name: String,
    /// The class.
    pub class: NodeClassName,
    /// The image in it.
    pub image: ImageId,
    /// When it was committed.
    pub created_at: Timestamp,
    /// When a launch last used it.
    pub used_at: Timestamp,
    /// The request that makes it, in its own stored form.
    pub request: String,
    /// When EC2 was first seen to have it.
    pub made_at: Option<Timestamp>,
}

impl ItemForm for TemplateItem {
    fn write(&self, to: &mut Attributes) {
        to.text("name", &self.name);
        to.text("class", &self.class);
        to.text("image", &self.image);
        to.time("created_at", self.created_at);
        to.time("used_at", self.used_at);
        to.text("request", &self.request);
        to.time_if("made_at", self.made_at);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            name: from.string("name")?,
            class: from.parsed("class")?,
            image: from.parsed("image")?,
            created_at: from.time("created_at")?,
            used_at: from.time("used_at")?,
            request: from.string("request")?,
            made_at: from.time_if("made_at")?,
        })
    }
}
