//! Images as EC2 returns them, with a state that callers must check.

use tenon_domain::Timestamp;
use tenon_domain::catalog::facts;
use tenon_domain::id::ImageId;
pub use tenon_domain::image::{
    BootMode, EnaSupport, ImageFacts, ImagePlatform, ImageState, ImageVolume, RootDeviceType,
};

use super::{TagFilter, Tags};

tenon_domain::words! {
    /// A snapshot's state, in EC2's words.
    pub enum SnapshotState {
        /// Being made: no volume can be made from it yet.
        Pending = "pending",
        /// Whole.
        Completed = "completed",
        /// Its making failed.
        Error = "error",
        /// In the recycle bin.
        Recoverable = "recoverable",
        /// On its way back from the recycle bin.
        Recovering = "recovering",
    }

    /// An image's architecture, of those that nodes run on. Its words are EC2's.
    pub enum ImageArchitecture {
        /// `x86_64`, Kubernetes' `amd64`.
        X86_64 = "x86_64",
        /// `arm64`.
        Arm64 = "arm64",
    }
}

impl ImageArchitecture {
    /// Kubernetes' word, the value of `kubernetes.io/arch`.
    #[must_use]
    pub const fn kubernetes(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

impl From<ImageArchitecture> for facts::Architecture {
    fn from(architecture: ImageArchitecture) -> Self {
        match architecture {
            ImageArchitecture::X86_64 => Self::X86_64,
            ImageArchitecture::Arm64 => Self::Arm64,
        }
    }
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    /// Its id.
    pub id: ImageId,
    /// Its name.
    pub name: String,
    /// The account that owns it.
    pub owner: String,
    /// The owner's alias, such as `amazon`.
    pub owner_alias: Option<String>,
    /// Its architecture; `None` for one that nodes can't run on.
    pub architecture: Option<ImageArchitecture>,
    /// Its state at the moment of the answer.
    pub state: ImageState,
    /// Its creation time.
    pub created_at: Option<Timestamp>,
    /// Its deprecation time.
    pub deprecated_at: Option<Timestamp>,
    /// What launches from it depend on.
    pub facts: ImageFacts,
    /// Its tags.
    pub tags: Tags,
}

/// A snapshot of a volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeSnapshot {
    /// Its id.
    pub id: String,
    /// The account that owns it.
    pub owner: String,
    /// The owner's alias, such as `amazon`.
    pub owner_alias: Option<String>,
    /// Its state; `None` for one that isn't known.
    pub state: Option<SnapshotState>,
    /// Its tags. EC2 doesn't show tags of another account's snapshots.
    pub tags: Tags,
}

/// Whether disabled images are answered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum DisabledImages {
    /// They are, with their state.
    #[default]
    Include,
    /// They aren't.
    Omit,
}

/// Images by id, owner, name and tag. Criteria are ANDed; empty ones don't restrict. Deprecated images are always
/// included.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ImageFilter {
    /// Any of these ids; one that doesn't exist is `NotFound`.
    pub ids: Vec<ImageId>,
    /// Any of these owners: an account's id, `self`, or an alias such as `amazon`.
    pub owners: Vec<String>,
    /// Any of these names, wildcards allowed.
    pub names: Vec<String>,
    /// All of these.
    pub tags: Vec<TagFilter>,
    /// Any of these states; empty for every state, so that the caller sees unavailable images.
    pub states: Vec<ImageState>,
    /// Whether disabled images are answered for.
    pub disabled: DisabledImages,
}
