//! The agent's port of an API server over kube-rs.
