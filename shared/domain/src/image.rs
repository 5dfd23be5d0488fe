//! An image, as EC2 described it last.
//!
//! Decides the states of an image. A class takes only [`ImageState::Available`].

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::catalog::facts::Architecture;
use crate::id::ImageId;

/// The record of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRecord {
    /// Its id.
    pub id: ImageId,
    /// Its name; empty if it was deregistered before it was ever described.
    pub name: String,
    /// Its state.
    pub state: ImageState,
    /// Its architecture; none if EC2 never described it.
    pub architecture: Option<Architecture>,
    /// Its creation time.
    pub created_at: Option<Timestamp>,
    /// The account that owns it.
    pub owner: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Its deprecation time.
    pub deprecated_at: Option<Timestamp>,
    /// The time of the query.
    pub seen_at: Timestamp,
}

crate::words! {
    /// An image's state, in EC2's words.
    pub enum ImageState {
        /// Being made.
        Pending = "pending",
        /// Can be launched.
        Available = "available",
        /// Its making failed.
        Failed = "failed",
        /// EC2 doesn't return it any longer.
        Deregistered = "deregistered",
        /// Its owner disabled it.
        Disabled = "disabled",
        /// Any other state (`invalid`, `transient`, `error`): can't be launched.
        Invalid = "invalid",
    }
}
