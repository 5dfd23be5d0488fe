//! Tags that launches set in EC2. Policies, the audit and people find our instances by them.
//!
//! Decides the tags' names. Launches decide which resource gets which tag.

/// The prefix of our own tags.
pub const OWN: &str = "tenon.dev/";
/// The installation: rights of the functions end at it.
pub const INSTALLATION: &str = "tenon.dev/installation";
/// The cluster.
pub const CLUSTER: &str = "tenon.dev/cluster";
/// The launch.
pub const LAUNCH: &str = "tenon.dev/launch";
/// The claim, once the instance belongs to one.
pub const CLAIM: &str = "karpenter.sh/nodeclaim";
/// The name in EC2's console: the claim.
pub const NAME: &str = "Name";
/// The cluster, as EKS calls it.
pub const EKS_CLUSTER: &str = "eks:eks-cluster-name";
/// The prefix of the tag by which Kubernetes' cloud provider finds a cluster's instances.
pub const KUBERNETES_CLUSTER: &str = "kubernetes.io/cluster";

/// The tag by which Kubernetes' cloud provider knows the cluster's instances.
#[must_use]
pub fn kubernetes_cluster(cluster: &str) -> String {
    format!("{KUBERNETES_CLUSTER}/{cluster}")
}
