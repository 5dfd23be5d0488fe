//! The parts of Kubernetes' and Karpenter's objects that Tenon reads.
//!
//! Plain data: [`crate::manifest`] reads it from YAML and JSON and validates it. Fields have Kubernetes' meaning,
//! with the API server's defaults filled in.

pub mod meta;
pub mod node;
pub mod node_claim;
pub mod node_class;
pub mod node_pool;
pub mod pod;
pub mod storage;
pub mod workload;

pub use meta::{ObjectMeta, OwnerReference};
pub use node::{Node, NodeCondition};
pub use node_claim::NodeClaimObject;
pub use node_class::Ec2NodeClass;
pub use node_pool::NodePool;
pub use pod::{Pod, PodShape};
