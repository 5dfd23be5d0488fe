//! A region on this machine beside a real cluster: the functions, the table and EC2 are the region's, the API server, the
//! scheduler and the pods are real.
//!
//! Decides how the two meet: the region's time is the real one, its instances become Nodes of the cluster, and the agent's
//! core runs over kube-rs with the region's table. It decides nothing about claims, and nothing that a cluster's own
//! controllers decide. What stands in for the kubelets of the Nodes isn't its business either: kwok does, where nothing else
//! is there.
//!
//! Invariant: only a cluster on this machine is touched ([`LiveError::Elsewhere`]): Nodes without machines would draw pods
//! that somebody needs.

mod agent;
mod cluster;
mod kubelets;

pub use agent::AgentNews;
pub use cluster::{AgentHold, ClusterTelling, LiveCluster, LiveError, LiveWorld, classes, client};
pub use kube::Client;
