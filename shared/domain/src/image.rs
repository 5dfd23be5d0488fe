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

/// An image's state, in EC2's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageState {
    /// Being made.
    Pending,
    /// Can be launched.
    Available,
    /// Its making failed.
    Failed,
    /// EC2 doesn't return it any longer.
    Deregistered,
    /// Its owner disabled it.
    Disabled,
    /// Any other state (`invalid`, `transient`, `error`): can't be launched.
    Invalid,
}

impl ImageState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Available, Self::Failed, Self::Deregistered, Self::Disabled, Self::Invalid];

    /// EC2's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Available => "available",
            Self::Failed => "failed",
            Self::Deregistered => "deregistered",
            Self::Disabled => "disabled",
            Self::Invalid => "invalid",
        }
    }

    /// Parses the word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}
