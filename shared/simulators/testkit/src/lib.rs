//! Deterministic simulation: a region under faults, and its invariants at every step.
//!
//! One seed is one history. [`simulate`] plays it; a violation names its invariant, its seed and its step, and the
//! same seed plays the same history again. [`Sabotage`] breaks the code in one place, at its ports, so that a test
//! can show that each invariant fails when it should.

pub mod accepted;
mod bounded;
pub mod budgets;
mod chaos;
mod class_deleted;
mod consolidated;
mod crowded;
mod deeds;
mod deletions;
mod deregistered;
mod detached;
mod drifted;
mod drought;
mod empty;
mod ended;
pub mod evidence;
mod expiry;
mod first_wakes;
mod history;
mod hostile;
pub mod invariants;
pub mod learned;
pub mod marks;
mod money;
mod next_tries;
mod opened;
mod outage;
mod own_role;
mod pace;
pub mod passed_over;
pub mod pauses;
mod pipeline;
mod random;
mod reached;
mod repaired;
mod replaced_first;
mod rested;
mod sabotage;
mod scarcity;
pub mod selected;
pub mod shifts;
mod silence;
mod simulate;
mod standing;
mod stepped;
mod storm;
mod taken;
pub mod turns;
pub mod unjoined;
pub mod validation;
mod watched;
mod world;

pub use chaos::Chaos;
pub use drought::{LOOK_SLACK, drought};
pub use first_wakes::{
    CANONICAL, CallFault, Failing, FirstWakes, FirstWakesOutcome, ORDERS, WakeOrder, calls,
};
pub use history::History;
pub use hostile::hostile;
pub use invariants::{Invariant, Violation};
pub use money::{HistoryCosts, spent};
pub use pace::HistoryPace;
pub use reached::Situation;
pub use sabotage::Sabotage;
pub use simulate::{SimulationOptions, SimulationOutcome, simulate, simulate_digest};
pub use storm::storm;
pub use turns::turns;
pub use unjoined::unjoined;
pub use world::zonal_volume;

/// For all that plays histories: the system's allocator would take a third of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
