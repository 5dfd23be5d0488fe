//! The planners' decisions in a small world of invented types. It is one binary, so that the compiler sees the use of
//! shared helpers.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests fail as tests do")]
#![expect(unused_must_use, reason = "checks assert; what they return is for further checks")]

mod arrivals;
mod broken_plans;
mod catalogue;
mod causes;
mod checker;
mod choices;
mod claims_checker;
mod cluster_bounds;
mod counted;
mod daemon_sets;
mod default_spread;
mod disruption;
mod drawn;
mod drawn_plans;
mod explain;
mod followers;
mod limits;
mod min_values;
mod no_domain;
mod order;
mod probes;
mod provision;
mod provision_properties;
mod refusals;
mod repelling;
mod replays;
mod reserved;
mod sized_plans;
mod sized_worlds;
mod support;
mod tainted_spreads;
mod topology;
mod trials;
mod volumes;

/// The system's allocator would take a third of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
