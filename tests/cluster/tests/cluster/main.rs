//! A real Kubernetes control plane, as `tests/servers/control-plane` starts it.

#![expect(clippy::indexing_slicing, reason = "helpers of an integration test fail as tests do")]

mod manifests;
mod smoke;
