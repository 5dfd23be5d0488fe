//! `IMAGEBOOT#`: what instances of an image showed when they booted, for a class of a cluster, under a `revision`.

use tenon_domain::boot::{BootFailure, BootFault, BootForm, BootRecord};

use super::form::{Attributes, FieldError, Fields, ItemForm, seconds};
use crate::key::{EXPIRES_AT, REVISION};

impl ItemForm for BootRecord {
    fn write(&self, to: &mut Attributes) {
        to.number(REVISION, self.revision);
        to.text("cluster", &self.cluster);
        to.text("class", &self.class);
        to.text("image", &self.image);
        to.time_if("joined_at", self.joined_at);
        to.map_if("failure", self.failure.as_ref(), |failure, to| {
            to.text("reason", failure.fault.as_str());
            to.text_if("code", failure.code.as_ref());
            to.text("message", &failure.message);
            to.text("instance", &failure.instance);
            to.time("at", failure.at);
            // For people: readers compute it.
            to.time("until", failure.until());
            to.text("spec_digest", &failure.form.spec_digest);
            to.text_if("refresh", failure.form.refresh.as_ref());
        });
        to.value(EXPIRES_AT, seconds(self.expires_at()));
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            cluster: from.parsed("cluster")?,
            class: from.parsed("class")?,
            image: from.parsed("image")?,
            revision: from.u64(REVISION)?,
            joined_at: from.time_if("joined_at")?,
            failure: from.map_if("failure", |from| {
                Ok(BootFailure {
                    fault: BootFault::of_any_release(from.text("reason")?),
                    code: from.string_if("code")?,
                    message: from.string("message")?,
                    instance: from.parsed("instance")?,
                    at: from.time("at")?,
                    form: BootForm {
                        spec_digest: from.string("spec_digest")?,
                        refresh: from.string_if("refresh")?,
                    },
                })
            })?,
        })
    }
}
