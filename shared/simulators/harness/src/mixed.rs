//! Pods of many kinds, as a burst has them: requests, zones, families and sizes of nodes differ.

use serde_json::{Value, json};

/// A kind of pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MixedKind {
    /// The requests of its container.
    pub requests: Value,
    /// Its node selector.
    pub selector: Value,
}

/// 40 kinds: eight sizes, each with five selectors.
#[must_use]
pub fn mixed_kinds() -> Vec<MixedKind> {
    let selectors = [
        json!({}),
        json!({"topology.kubernetes.io/zone": "us-east-1a"}),
        json!({"topology.kubernetes.io/zone": "us-east-1b"}),
        json!({"karpenter.k8s.aws/instance-category": "c"}),
        json!({"karpenter.k8s.aws/instance-family": "m6i"}),
    ];
    let requests = [
        ("100m", "128Mi"),
        ("250m", "1Gi"),
        ("500m", "512Mi"),
        ("1", "2Gi"),
        ("1500m", "6Gi"),
        ("2", "4Gi"),
        ("3", "3Gi"),
        ("4", "16Gi"),
    ];
    let of_size = |(cpu, memory): (&str, &str)| {
        let requests = json!({"cpu": cpu, "memory": memory});
        selectors.clone().map(|selector| MixedKind { requests: requests.clone(), selector })
    };
    requests.into_iter().flat_map(of_size).collect()
}
