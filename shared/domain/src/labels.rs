//! Keys of labels, annotations, finalizers and tags.
//!
//! Decides which label keys are well known, and which a NodePool may not set. It doesn't decide values.
//!
//! Source: kubernetes-sigs/karpenter and aws/karpenter-provider-aws, each `pkg/apis/v1/labels.go` (v1.14).

use std::fmt;

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident = $key:literal;)*) => {$($(#[$doc])* pub const $name: &str = $key;)*};
}

keys! {
    /// Kubernetes: the node's zone.
    ZONE = "topology.kubernetes.io/zone";
    /// Kubernetes: the node's region.
    REGION = "topology.kubernetes.io/region";
    /// AWS: the zone's id, the same in every account.
    ZONE_ID = "topology.k8s.aws/zone-id";
    /// Kubernetes: the EC2 instance type.
    INSTANCE_TYPE = "node.kubernetes.io/instance-type";
    /// Kubernetes: the CPU architecture.
    ARCH = "kubernetes.io/arch";
    /// Kubernetes: the operating system.
    OS = "kubernetes.io/os";
    /// Kubernetes: the node's host name.
    HOSTNAME = "kubernetes.io/hostname";
    /// Kubernetes: the build of Windows.
    WINDOWS_BUILD = "node.kubernetes.io/windows-build";
    /// Kubernetes: load balancers leave the node out.
    EXCLUDE_FROM_LOAD_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers";

    /// The NodePool that owns a claim or node.
    NODEPOOL = "karpenter.sh/nodepool";
    /// `on-demand`, `spot` or `reserved`.
    CAPACITY_TYPE = "karpenter.sh/capacity-type";
    /// `true` once the node is registered.
    REGISTERED = "karpenter.sh/registered";
    /// `true` once the node is initialised.
    INITIALIZED = "karpenter.sh/initialized";
    /// `true`: the kubelet registers the taints itself.
    DO_NOT_SYNC_TAINTS = "karpenter.sh/do-not-sync-taints";

    /// Annotation on pods and nodes: keep it where it is.
    DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt";
    /// Annotation: the pool's hash.
    NODEPOOL_HASH = "karpenter.sh/nodepool-hash";
    /// Annotation: the version of the pool's hash.
    NODEPOOL_HASH_VERSION = "karpenter.sh/nodepool-hash-version";
    /// Annotation: the deadline of the drain, RFC 3339.
    TERMINATION_TIMESTAMP = "karpenter.sh/nodeclaim-termination-timestamp";
    /// Annotation: `minValues` are lowered.
    MIN_VALUES_RELAXED = "karpenter.sh/nodeclaim-min-values-relaxed";
    /// Finalizer on claims and nodes.
    TERMINATION_FINALIZER = "karpenter.sh/termination";

    /// The EC2NodeClass of a claim or node.
    EC2NODECLASS = "karpenter.k8s.aws/ec2nodeclass";
    /// Annotation: the class's hash.
    EC2NODECLASS_HASH = "karpenter.k8s.aws/ec2nodeclass-hash";
    /// Annotation: the version of the class's hash.
    EC2NODECLASS_HASH_VERSION = "karpenter.k8s.aws/ec2nodeclass-hash-version";
    /// Annotation: the instance has its tags.
    TAGGED = "karpenter.k8s.aws/tagged";
    /// Annotation: the instance profile of a claim.
    INSTANCE_PROFILE_NAME = "karpenter.k8s.aws/instance-profile-name";
    /// Annotation: the cluster's name is among the instance's tags.
    CLUSTER_NAME_TAGGED = "compatibility.karpenter.k8s.aws/cluster-name-tagged";
    /// Finalizer on classes.
    EC2NODECLASS_FINALIZER = "karpenter.k8s.aws/termination";
    /// Annotation on classes, Tenon's own: which images they take.
    IMAGE_POLICY = "tenon.dev/image-policy";
    /// Annotation on pools, Tenon's own: what a consolidation must save.
    MINIMUM_SAVINGS = "tenon.dev/minimum-savings";
    /// Annotation on pools, Tenon's own: with `true` none of its nodes is disrupted voluntarily.
    PAUSE_DISRUPTION = "tenon.dev/pause-disruption";
    /// Annotation on pools, Tenon's own: what happens to an interrupted node's pods.
    INTERRUPTION = "tenon.dev/interruption";
    /// A NodePool's: what becomes of nodes of which EC2 recommends to move the pods.
    REBALANCE = "tenon.dev/rebalance-recommendation";
    /// Annotation on pools, Tenon's own: for how long an expired node waits for budgets.
    EXPIRE_WITHIN_BUDGETS = "tenon.dev/expire-within-budgets";
    /// Annotation on pools, Tenon's own: how long load balancers have to deregister the instance of a drained node.
    LOAD_BALANCER_DEREGISTRATION = "tenon.dev/load-balancer-deregistration";
    /// Annotation on pools, Tenon's own: the time zone of the schedules of its budgets.
    BUDGET_TIME_ZONE = "tenon.dev/budget-time-zone";
    /// Annotation on pools, Tenon's own: how old a consolidated node must be.
    MINIMUM_NODE_LIFETIME = "tenon.dev/minimum-node-lifetime";
    /// A NodePool's: how long pods rest that a consolidation moved.
    MOVED_PODS_REST = "tenon.dev/moved-pods-rest";
    /// `c`, `m`, `r`, …
    INSTANCE_CATEGORY = "karpenter.k8s.aws/instance-category";
    /// `m5`, `c7g`, …
    INSTANCE_FAMILY = "karpenter.k8s.aws/instance-family";
    /// `5` of `m5`.
    INSTANCE_GENERATION = "karpenter.k8s.aws/instance-generation";
    /// `large`, `metal`, …
    INSTANCE_SIZE = "karpenter.k8s.aws/instance-size";
    /// vCPUs.
    INSTANCE_CPU = "karpenter.k8s.aws/instance-cpu";
    /// `intel`, `amd`, `aws`, …
    INSTANCE_CPU_MANUFACTURER = "karpenter.k8s.aws/instance-cpu-manufacturer";
    /// MHz.
    INSTANCE_CPU_CLOCK_MHZ = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
    /// MiB.
    INSTANCE_MEMORY = "karpenter.k8s.aws/instance-memory";
    /// Mbps.
    INSTANCE_EBS_BANDWIDTH = "karpenter.k8s.aws/instance-ebs-bandwidth";
    /// Mbps.
    INSTANCE_NETWORK_BANDWIDTH = "karpenter.k8s.aws/instance-network-bandwidth";
    /// GB of instance store.
    INSTANCE_LOCAL_NVME = "karpenter.k8s.aws/instance-local-nvme";
    /// `nitro`, `xen`, or empty on bare metal.
    INSTANCE_HYPERVISOR = "karpenter.k8s.aws/instance-hypervisor";
    /// `true` or `false`.
    INSTANCE_ENCRYPTION_IN_TRANSIT = "karpenter.k8s.aws/instance-encryption-in-transit-supported";
    /// Nitro Enclaves are supported: `true` or `false`.
    NITRO_SANDBOX = "karpenter.k8s.aws/nitro-sandbox";
    /// `true` for flex families.
    INSTANCE_CAPABILITY_FLEX = "karpenter.k8s.aws/instance-capability-flex";
    /// The GPU's name.
    INSTANCE_GPU_NAME = "karpenter.k8s.aws/instance-gpu-name";
    /// The GPU's manufacturer.
    INSTANCE_GPU_MANUFACTURER = "karpenter.k8s.aws/instance-gpu-manufacturer";
    /// How many GPUs.
    INSTANCE_GPU_COUNT = "karpenter.k8s.aws/instance-gpu-count";
    /// MiB per GPU.
    INSTANCE_GPU_MEMORY = "karpenter.k8s.aws/instance-gpu-memory";
    /// The accelerator's name.
    INSTANCE_ACCELERATOR_NAME = "karpenter.k8s.aws/instance-accelerator-name";
    /// The accelerator's manufacturer.
    INSTANCE_ACCELERATOR_MANUFACTURER = "karpenter.k8s.aws/instance-accelerator-manufacturer";
    /// How many accelerators.
    INSTANCE_ACCELERATOR_COUNT = "karpenter.k8s.aws/instance-accelerator-count";
    /// `default` or `dedicated`.
    INSTANCE_TENANCY = "karpenter.k8s.aws/instance-tenancy";
    /// `cr-…`.
    CAPACITY_RESERVATION_ID = "karpenter.k8s.aws/capacity-reservation-id";
    /// `default` or `capacity-block`.
    CAPACITY_RESERVATION_TYPE = "karpenter.k8s.aws/capacity-reservation-type";
    /// `true` or `false`.
    CAPACITY_RESERVATION_INTERRUPTIBLE = "karpenter.k8s.aws/capacity-reservation-interruptible";
    /// `pg-…`.
    PLACEMENT_GROUP_ID = "karpenter.k8s.aws/placement-group-id";
    /// The partition's number.
    PLACEMENT_GROUP_PARTITION = "karpenter.k8s.aws/placement-group-partition";
}

/// The domain of Karpenter's own keys.
pub const KARPENTER_DOMAIN: &str = "karpenter.sh";
/// The domain of the provider's keys.
pub const PROVIDER_DOMAIN: &str = "karpenter.k8s.aws";

/// Keys that follow from instance types and offerings.
pub const PROVIDER_LABELS: [&str; 29] = [
    EC2NODECLASS,
    INSTANCE_CATEGORY,
    INSTANCE_FAMILY,
    INSTANCE_GENERATION,
    INSTANCE_SIZE,
    INSTANCE_CPU,
    INSTANCE_CPU_MANUFACTURER,
    INSTANCE_CPU_CLOCK_MHZ,
    INSTANCE_MEMORY,
    INSTANCE_EBS_BANDWIDTH,
    INSTANCE_NETWORK_BANDWIDTH,
    INSTANCE_LOCAL_NVME,
    INSTANCE_HYPERVISOR,
    INSTANCE_ENCRYPTION_IN_TRANSIT,
    NITRO_SANDBOX,
    INSTANCE_CAPABILITY_FLEX,
    INSTANCE_GPU_NAME,
    INSTANCE_GPU_MANUFACTURER,
    INSTANCE_GPU_COUNT,
    INSTANCE_GPU_MEMORY,
    INSTANCE_ACCELERATOR_NAME,
    INSTANCE_ACCELERATOR_MANUFACTURER,
    INSTANCE_ACCELERATOR_COUNT,
    INSTANCE_TENANCY,
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_TYPE,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    PLACEMENT_GROUP_ID,
    PLACEMENT_GROUP_PARTITION,
];

/// Well-known keys outside the provider's domain.
pub const CORE_LABELS: [&str; 9] =
    [NODEPOOL, CAPACITY_TYPE, ZONE, REGION, ZONE_ID, INSTANCE_TYPE, ARCH, OS, WINDOWS_BUILD];

/// Every well-known key, which a pod may require even if no NodePool defines it.
pub fn well_known() -> impl Iterator<Item = &'static str> {
    CORE_LABELS.into_iter().chain(PROVIDER_LABELS)
}

/// Whether a pod may require this key even if no NodePool defines it. Expects a normalised key.
#[must_use]
pub fn is_well_known(key: &str) -> bool {
    // The short list first; the long one is scanned only for keys of the provider's domain.
    CORE_LABELS.contains(&key) || (key.starts_with(PROVIDER_DOMAIN) && PROVIDER_LABELS.contains(&key))
}

/// Why a NodePool may not set a label or require it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RestrictedLabel {
    /// Every node of a NodePool gets it.
    SetByTenon,
    /// The kubelet sets it.
    SetByKubelet,
    /// The domain `karpenter.sh` is reserved.
    KarpenterDomain,
    /// The domain `karpenter.k8s.aws` holds only the provider's labels.
    ProviderDomain,
}

impl fmt::Display for RestrictedLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SetByTenon => "it is set for every node of a NodePool; leave it out",
            Self::SetByKubelet => "the kubelet sets it; leave it out",
            Self::KarpenterDomain => {
                "the domain `karpenter.sh` is reserved, but for `karpenter.sh/capacity-type`; use a domain of your own"
            }
            Self::ProviderDomain => {
                "the domain `karpenter.k8s.aws` is reserved for the provider's labels; use a domain of your own"
            }
        })
    }
}

/// Why a NodePool may not use this label key in its template; `None` if it may.
#[must_use]
pub fn restricted_label(key: &str) -> Option<RestrictedLabel> {
    match key {
        CAPACITY_TYPE => return None,
        NODEPOOL => return Some(RestrictedLabel::SetByTenon),
        HOSTNAME => return Some(RestrictedLabel::SetByKubelet),
        _ => {}
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    if within(domain, KARPENTER_DOMAIN) {
        Some(RestrictedLabel::KarpenterDomain)
    } else if within(domain, PROVIDER_DOMAIN) && !PROVIDER_LABELS.contains(&key) {
        Some(RestrictedLabel::ProviderDomain)
    } else {
        None
    }
}

fn within(domain: &str, parent: &str) -> bool {
    domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether a text is a label's value: at most 63 letters, digits, `-`, `_` and `.`, ends alphanumeric, or empty.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

/// Whether a text is a qualified name, `[domain/]name`: the form of keys of labels, annotations and taints.
#[must_use]
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => crate::id::is_dns_subdomain(domain) && is_name_part(name),
        None => is_name_part(text),
    }
}

fn is_name_part(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.chars().all(|c| alphanumeric(c) || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_pool_may_not_set_what_others_own() {
        for (key, expected) in [
            ("karpenter.sh/capacity-type", None),
            ("karpenter.sh/nodepool", Some(RestrictedLabel::SetByTenon)),
            ("karpenter.sh/registered", Some(RestrictedLabel::KarpenterDomain)),
            ("my.karpenter.sh/label", Some(RestrictedLabel::KarpenterDomain)),
            ("notkarpenter.sh/label", None),
            ("kubernetes.io/hostname", Some(RestrictedLabel::SetByKubelet)),
            ("karpenter.k8s.aws/instance-cpu", None),
            ("karpenter.k8s.aws/instance-color", Some(RestrictedLabel::ProviderDomain)),
            ("team", None),
            ("example.com/team", None),
        ] {
            assert_eq!(restricted_label(key), expected, "{key}");
        }
    }

    #[test]
    fn well_known_keys_are_found_and_no_others() {
        assert!(well_known().all(is_well_known));
        assert!(well_known().all(is_qualified_name));
        assert!(!is_well_known("karpenter.k8s.aws/instance-color"));
        assert!(!is_well_known("kubernetes.io/hostname"));
    }

    #[test]
    fn qualified_names_and_values_follow_kubernetes() {
        for (key, expected) in [
            ("a", true),
            ("example.com/a_b.c-d", true),
            ("example.com/", false),
            ("/a", false),
            ("a/b/c", false),
            ("-a", false),
            ("Example.com/a", false),
            ("a b", false),
            ("", false),
        ] {
            assert_eq!(is_qualified_name(key), expected, "{key}");
        }
        assert!(is_label_value("") && is_label_value("a.b") && !is_label_value("a/b"));
        assert!(!is_label_value(&"a".repeat(64)));
    }
}
