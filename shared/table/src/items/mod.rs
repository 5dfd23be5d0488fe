//! The forms of the table's items, by kind.
//!
//! [`keys`] are the keys, [`form`] is how a form is written and read; each other module is one kind. Forms are
//! versioned: readers accept one version before and after, ignore unknown attributes, and name the item and the
//! attribute of an error; writers preserve unknown attributes. The domain decides what items mean.

pub mod boot;
pub mod catalog;
pub mod claim;
pub mod class_status;
pub mod command;
mod deflated;
mod fields;
pub mod form;
pub mod image;
pub mod instance;
pub mod journal;
pub mod keys;
pub mod launch;
pub mod launch_verdict;
pub mod launched_pods;
pub mod learned;
pub mod packed;
mod packed_forms;
mod packed_spot;
mod placement;
pub mod pool_status;
pub mod registry;
mod reservation;
pub mod seen;
pub mod template;
pub mod told;
pub mod trial;
pub mod type_record;
mod uids;
pub mod unavailable;

pub use catalog::{CatalogMeta, PartMeta};
pub use form::{
    FieldError, FormError, ItemForm, from_item, from_items, from_known_items, put, set, set_expiring, to_item,
};
pub use image::ImageSweep;
pub use instance::InstanceOwner;
pub use journal::{Journal, journal_from_item};
pub use keys::{DecisionCounter, JournalOf};
pub use launch_verdict::DryRunLease;
pub use launched_pods::{ClaimPods, LaunchedPods, pods_named_in_launch};
pub use packed::{
    CatalogCache, CatalogError, Refresh, RefreshedParts, Substitute, failed, read_parts, refresh,
    refresh_without_answer,
};
pub use seen::{Generations, Halt, SeenRecord, add_step, revision_of, steps_of};
pub use template::{LeavingTemplates, TemplateItem};
pub use told::{RestingFinding, ToldFinding, ToldFindings};
pub use trial::Trial;
pub use type_record::{TypeRecord, TypesClaim};

#[cfg(test)]
mod tests;
