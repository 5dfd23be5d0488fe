//! The parts of the catalogue: how fresh each must be, where its content is from, and how a refresh fails.
//!
//! Decides how old a part may become. Whether it is that old decides [`require`](super::require).

use jiff::SignedDuration;
use jiff::civil::Date;

use crate::id::Region;

crate::words! {
    /// A part of the catalogue. Each is refreshed, and becomes stale, on its own. The table and the command line have
    /// its word.
    pub enum CatalogPart {
        /// The answers of DescribeInstanceTypes.
        InstanceTypes = "instance-types",
        /// Which type is offered in which zone.
        Offerings = "offerings",
        /// On-demand prices.
        OnDemandPrices = "on-demand-prices",
        /// Spot prices by zone.
        SpotPrices = "spot-prices",
    }
}

impl CatalogPart {
    /// How often it is refreshed.
    #[must_use]
    pub const fn refresh_every(self) -> SignedDuration {
        match self {
            Self::InstanceTypes | Self::Offerings => SignedDuration::from_hours(6),
            Self::OnDemandPrices => SignedDuration::from_hours(12),
            Self::SpotPrices => SignedDuration::from_mins(10),
        }
    }

    /// The age from which the part supports no decision. Types and list prices change over months, so several
    /// refreshes may fail; a spot price means little after some hours.
    #[must_use]
    pub const fn stale_after(self) -> SignedDuration {
        match self {
            Self::InstanceTypes | Self::Offerings => SignedDuration::from_hours(7 * 24),
            Self::OnDemandPrices => SignedDuration::from_hours(30 * 24),
            Self::SpotPrices => SignedDuration::from_hours(6),
        }
    }
}

crate::words! {
    /// The error of a part's refresh. Transient errors are told apart from those that need a person. The table, events
    /// and the command line have its word.
    pub enum ErrorKind {
        /// Too many requests.
        Throttled,
        /// The caller may not ask.
        Denied,
        /// No answer came.
        NoAnswer,
        /// AWS's own fault.
        Server,
        /// The answer is empty.
        Empty,
        /// The answer is much smaller than the last one, so it may be incomplete.
        Shrunk,
        /// The answer is unreadable, or the request was refused as invalid.
        Malformed,
        /// The region has no such API.
        NoApi,
    }
}

impl ErrorKind {
    /// Whether asking again later is no help by itself.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        match self {
            Self::Denied | Self::NoApi => true,
            Self::Throttled
            | Self::NoAnswer
            | Self::Server
            | Self::Empty
            | Self::Shrunk
            | Self::Malformed => false,
        }
    }
}

/// A refresh of a part that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshFailure {
    /// Its kind.
    pub kind: ErrorKind,
    /// The message for people.
    pub message: String,
}

/// Where a part's content is from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PartOrigin {
    /// AWS answered so.
    #[default]
    Answered,
    /// The price list of the release, for regions without an API.
    Shipped {
        /// The day of which it is.
        as_of: Date,
        /// Its region; another one if the release has none for the region itself.
        region: Region,
    },
}
