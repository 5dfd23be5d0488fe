//! Tags that launches set on what they make in EC2. Policies, the audit and people find our instances by them.
//!
//! Decides the tags' names. Which resource gets which of them is the launches' business.

/// What our own tags begin with.
pub const OWN: &str = "tenon.dev/";
/// The installation: rights of the functions end at it.
pub const INSTALLATION: &str = "tenon.dev/installation";
/// The cluster.
pub const CLUSTER: &str = "tenon.dev/cluster";
/// The launch.
pub const LAUNCH: &str = "tenon.dev/launch";
/// The claim, once the instance is dealt to one.
pub const CLAIM: &str = "karpenter.sh/nodeclaim";
/// What EC2's console shows: the claim too.
pub const NAME: &str = "Name";
/// The cluster, as EKS calls it.
pub const EKS_CLUSTER: &str = "eks:eks-cluster-name";
/// What the tag begins with by which Kubernetes' cloud provider knows a cluster's instances.
pub const KUBERNETES_CLUSTER: &str = "kubernetes.io/cluster";

/// The tag by which Kubernetes' cloud provider knows the cluster's instances.
#[must_use]
pub fn kubernetes_cluster(cluster: &str) -> String {
    format!("{KUBERNETES_CLUSTER}/{cluster}")
}
