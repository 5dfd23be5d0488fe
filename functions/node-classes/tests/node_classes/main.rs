//! Node classes as their users see them: their resources, and why they aren't ready.
#![expect(clippy::indexing_slicing, reason = "helpers of integration tests aren't inside #[test] functions")]
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

mod answers;
mod edits;
mod failed_images;
mod foreign_images;
mod image_checks;
mod image_policy;
mod image_records;
mod placement;
mod reservations;
mod resolving;
mod running;
mod snapshots;
mod upgrade;
mod validating;
mod zonal_shift;
