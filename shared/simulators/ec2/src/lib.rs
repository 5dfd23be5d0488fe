//! The region twin: EC2 of one account and region as a deterministic state machine.
//!
//! It stands in for EC2 in simulation and on a machine without an AWS account. Decides EC2's answers, and changes
//! over time. The clock is an input, and the bus delivers its events.
//!
//! Beside EC2 it answers for the price list, ARC, Systems Manager's parameters, IAM's instance profiles and launch roles.
//!
//! Real: instance types, offerings, on-demand prices of us-east-1 (used for every region), CreateFleet's rules, token
//! buckets, names of published images. Synthetic: spot prices, delays, ids. Not modelled: volumes, network interfaces
//! beyond one address, racks of placement groups, unusual kinds of capacity reservations, default VPCs, practice runs of
//! zonal shifts.
//!
//! Invariant: everything follows from the seed, the clock and the order of calls.

mod buckets;
mod call;
mod calls;
mod capacity;
mod control;
mod denials;
mod events;
mod faults;
mod fleet;
mod images;
mod instance_profiles;
mod instances;
mod launch_roles;
mod network;
mod parameters;
mod placement;
mod prices;
mod published;
mod random;
mod records;
mod reservations;
mod state;
mod templates;
#[cfg(test)]
mod tests;
mod zonal_shift;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tenon_domain::id::{ClusterName, InstanceType, Region, Zone};
use tenon_domain::{SignedDuration, Timestamp};

pub use buckets::Throttling;
pub use call::Call;
pub use capacity::{CapacityPool, Quota, QuotaFamily};
pub use events::{HealthEvent, TwinEvent};
pub use faults::{Fault, FaultEffect, FaultWhen};
pub use images::{ImageDefect, ImageOutcome, NewImage};
pub use instance_profiles::UnknownProfiles;
pub use instances::Impairment;
pub use published::PublishedFamily;
pub use random::Span;
pub use records::{CallCount, InstanceRecord, LaunchRecord, RequestOutcome, RequestRecord};

use state::TwinState;
use tenon_ec2::data::DataError;

/// Where the twin reads the time.
pub type TwinClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Which instance types the region has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeSelection {
    /// All that it really offers.
    All,
    /// Only these, of those that it really offers: small worlds are quick.
    Only(BTreeSet<InstanceType>),
}

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// From pending to running.
    pub start: Span,
    /// From shutting-down to terminated.
    pub shut_down: Span,
    /// From stopping to stopped.
    pub stop: Span,
    /// From pending to available or failed, of an image.
    pub image: Span,
}

impl Default for Delays {
    /// Of the order that EC2 shows; the exact numbers are the twin's own.
    fn default() -> Self {
        Self {
            start: Span::seconds(5, 20),
            shut_down: Span::seconds(20, 60),
            stop: Span::seconds(10, 40),
            image: Span::seconds(60, 300),
        }
    }
}

/// A region to make.
#[derive(Clone)]
pub struct TwinConfig {
    /// The region; one of those that there is data for.
    pub region: Region,
    /// The account's id, twelve digits.
    pub account: String,
    /// The seed of all choices.
    pub seed: u64,
    /// Which types it has.
    pub types: TypeSelection,
    /// Which zones it has, by name; empty is all of the region.
    pub zones: Vec<Zone>,
    /// How long things take.
    pub delays: Delays,
    /// How long a new instance or tag can stay unseen at most.
    pub consistency_delay_max: SignedDuration,
    /// The life of a fleet's client token. EC2 documents at least 24 hours for instances' tokens, counted from
    /// termination, and nothing for fleets. Counting from the request is the shortest reading.
    pub token_life: SignedDuration,
    /// Whether calls are throttled.
    pub throttling: Throttling,
    /// What an instance profile is that nobody created.
    pub unknown_profiles: UnknownProfiles,
    /// How long a new instance profile, or its new role, is unknown to EC2.
    pub profile_delay: SignedDuration,
    /// The most items of a page, below EC2's own sizes: small pages make paging show.
    pub page_size_max: usize,
    /// Where the time is read.
    pub clock: TwinClock,
}

impl TwinConfig {
    /// A region with everything it offers, throttled as EC2 is, consistent within five seconds. Every instance profile
    /// is there; EC2 knows a new one ten seconds after IAM.
    #[must_use]
    pub fn new(region: Region, seed: u64, clock: TwinClock) -> Self {
        Self {
            region,
            account: "111122223333".to_owned(),
            seed,
            types: TypeSelection::All,
            zones: Vec::new(),
            delays: Delays::default(),
            consistency_delay_max: SignedDuration::from_secs(5),
            token_life: SignedDuration::from_hours(24),
            throttling: Throttling::Enforced,
            unknown_profiles: UnknownProfiles::Assumed,
            profile_delay: SignedDuration::from_secs(10),
            page_size_max: 1000,
            clock,
        }
    }
}

impl fmt::Debug for TwinConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwinConfig")
            .field("region", &self.region)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// An impossible request to the twin, such as interrupting an on-demand instance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotPossible(pub String);

fn refuse<T>(message: String) -> Result<T, NotPossible> {
    Err(NotPossible(message))
}

/// A region's EC2. A handle: clones are the same region.
#[derive(Clone)]
pub struct RegionTwin {
    state: Arc<Mutex<TwinState>>,
    clock: TwinClock,
    /// The cluster by whose launch role this handle asks; `None` by the caller's own rights.
    by: Option<ClusterName>,
}

impl fmt::Debug for RegionTwin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionTwin").finish_non_exhaustive()
    }
}

impl RegionTwin {
    /// A region with nothing in it: no image, no network, no instance.
    ///
    /// # Errors
    /// [`DataError`] for a region that there is no data for.
    pub fn new(config: TwinConfig) -> Result<Self, DataError> {
        let clock = Arc::clone(&config.clock);
        Ok(Self { state: Arc::new(Mutex::new(TwinState::new(config)?)), clock, by: None })
    }

    /// The state as of now.
    fn with<T>(&self, f: impl FnOnce(&mut TwinState) -> T) -> T {
        let now = (self.clock)();
        // A panic elsewhere leaves the state whole: it is changed in steps that each hold its invariants.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.settle(now);
        f(&mut state)
    }
}
