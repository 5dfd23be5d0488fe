//! The status of a class: its resolved resources, and its conditions.
//!
//! [`ClassStatus`] is the stored status, [`Condition`] a condition in the peer's words, and [`ClassObservation`] the
//! result of one pass, from which both follow. `node-classes` decides which subnets, groups and images a class
//! selects.

#[cfg(test)]
mod combinations;
mod condition;
mod image;
mod observation;
mod refused_image;
mod status;

pub use condition::{Condition, ConditionReason, ConditionStatus, ConditionType};
pub use image::{
    ImageFault, ImageNotices, ImageRejection, ImageVariant, RejectedImage, ResolvedImage, VariantRequirement,
    image_for,
};
pub use observation::{ClassObservation, Seen, SeenReservations, ValidationNote};
pub use refused_image::{ImageRefusal, RefusedImage};
pub(crate) use status::DEPENDENTS;
pub use status::{ClassStatus, ClassSubnet, SeenProfile};
