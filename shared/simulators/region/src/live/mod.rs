//! A region on this machine beside a real cluster: functions, table and EC2 are the region's; the API server, the
//! scheduler and the pods are real.
//!
//! Decides how they connect: the region runs in real time, its instances become Nodes of the cluster, and the agent's
//! core runs over kube-rs with the region's table. It makes no decision about claims, and none of the cluster's own
//! controllers. Something else stands in for the kubelets' pods, such as kwok.
//!
//! Invariant: only a cluster on this machine is changed ([`LiveError::Elsewhere`]): Nodes without machines would
//! attract pods that somebody needs.

mod agent;
mod cluster;
mod kubelets;

pub use agent::AgentNews;
pub use cluster::{AgentHold, ClusterTelling, LiveCluster, LiveError, LiveWorld, classes, client};
pub use kube::Client;
