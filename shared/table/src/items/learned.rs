//! `LEARNED#`: memory that a cluster's kubelets of a type and image reported, under a `revision`.

use tenon_domain::catalog::{LearnedMemory, LearnedRecord};

use super::form::{Attributes, FieldError, Fields, ItemForm, seconds};
use crate::key::{EXPIRES_AT, REVISION};

impl ItemForm for LearnedRecord {
    fn write(&self, to: &mut Attributes) {
        let LearnedMemory(bytes) = self.memory;
        to.number(REVISION, self.revision);
        to.text("instance_type", &self.instance_type);
        to.text("image", &self.image);
        to.number("memory_bytes", bytes);
        to.time("seen_at", self.seen_at);
        if let Some(cluster) = &self.cluster {
            to.text("cluster", cluster);
            // Older readers require it.
            to.text("seen_by", cluster);
        }
        to.value(EXPIRES_AT, seconds(self.expires_at()));
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            instance_type: from.parsed("instance_type")?,
            image: from.parsed("image")?,
            revision: from.u64(REVISION)?,
            memory: LearnedMemory(from.u64("memory_bytes")?),
            seen_at: from.time("seen_at")?,
            cluster: from.parsed_if("cluster")?,
        })
    }
}
