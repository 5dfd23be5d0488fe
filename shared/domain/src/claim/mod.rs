//! A claim's life: one enum with data for each state, and one table of transitions.
//!
//! Decides which state may follow which. `lifecycle`, `interruption` and `disruption` decide when. Invariant: a
//! claim's state never goes back ([`ClaimPhase`] is ordered, and every transition goes up), but for a claim that a
//! consolidation gives up.

mod announced;
mod drift;
mod interrupted;
pub mod joining;
mod next_launch;
mod phase;
mod record;
mod removal;
mod terms;

pub use announced::{AnnouncementKind, InstanceAnnouncement, RebalanceOrder, forced_at};
pub use drift::{Drift, DriftReason, NO_LABEL};
pub use interrupted::InterruptionOrder;
pub use joining::LaunchOutcome;
pub use next_launch::NextLaunch;
pub use phase::{ClaimPhase, may_follow};
pub use record::{
    BINDING_WINDOW, Claim, ClaimState, CommandRole, Consolidatable, ImpossibleTransition, LaunchFailure,
    LaunchedInstance, MinValuesState, PodsCounted,
};
pub use removal::RemovalReason;
pub use terms::Terms;
