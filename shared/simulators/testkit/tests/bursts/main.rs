//! Bursts of pods in a region of all instance types.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of an integration test aren't inside #[test] functions"
)]

mod launched;
mod region;
mod throttled;
