//! An image as EC2 last told it.
//!
//! Decides which states there are. Which of them a class may take is the class's: only [`ImageState::Available`].

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::catalog::facts::Architecture;
use crate::id::ImageId;

/// What is known of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRecord {
    /// Its id.
    pub id: ImageId,
    /// Its name; empty once it is deregistered and was never described.
    pub name: String,
    /// Its state.
    pub state: ImageState,
    /// Its architecture; none where EC2 never described it.
    pub architecture: Option<Architecture>,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// The account that owns it.
    pub owner: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// When it is, or was, deprecated.
    pub deprecated_at: Option<Timestamp>,
    /// When EC2 was asked.
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
    /// Gone: EC2 doesn't answer for it any more.
    Deregistered,
    /// Its owner took it out of use.
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

    /// The state of that word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}
