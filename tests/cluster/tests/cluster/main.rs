//! A real Kubernetes control plane, as `tests/servers/control-plane` starts it.

mod manifests;
mod smoke;
