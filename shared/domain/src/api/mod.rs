//! Kubernetes' and Karpenter's objects, as far as Tenon reads them.
//!
//! Plain data after reading: [`crate::manifest`] makes these from YAML and JSON and holds the validation. Fields have
//! Kubernetes' meaning; a default that the API server would fill in is filled in here.

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
