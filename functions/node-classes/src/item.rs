//! `NODECLASS#` as this function writes it: the class's status, and the queries for its images.

use tenon_domain::class_status::ClassStatus;
use tenon_state::image_query::ClassImages;
use tenon_table::items::form::{Attributes, Fields};
use tenon_table::items::{FieldError, ItemForm};

/// A class's item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClassItem {
    pub(crate) status: ClassStatus,
    pub(crate) images: ClassImages,
}

impl ItemForm for ClassItem {
    fn write(&self, to: &mut Attributes) {
        self.status.write(to);
        self.images.write(to);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self { status: ClassStatus::read(from)?, images: ClassImages::read(from)? })
    }
}
