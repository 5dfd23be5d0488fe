//! A real Kubernetes control plane, as `tests/servers/control-plane` starts it.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of an integration test fail as tests do"
)]

mod attached;
mod calibration;
mod manifests;
mod smoke;
mod stage;
