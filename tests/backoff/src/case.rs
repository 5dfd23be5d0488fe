//! The worlds: the types that pods may use, and so the cheapest five offerings.

use serde_json::{Value, json};
use tenon_region::scenario::{ClusterForm, ImageForm, Scenario};

/// The cluster.
pub(crate) const CLUSTER: &str = "burst";
/// The Deployment.
pub(crate) const DEPLOYMENT: &str = "web";

/// The types of the cases with few types.
const FIVE_TYPES: [&str; 5] = ["c5.4xlarge", "c6i.4xlarge", "m5.4xlarge", "m6i.4xlarge", "m7i.4xlarge"];

tenon_domain::words! {
    /// The types that pods may use. The command line has its word.
    pub enum Case {
        /// Any x86 type with 16 vCPUs, in any zone, on-demand: hundreds of offerings remain.
        Wide = "wide",
        /// Five types in one zone, spot or on-demand: the five cheapest are their spot offerings.
        Narrow = "narrow",
        /// The same types in one zone, spot alone: no offering remains.
        NothingElse = "nothing-else",
    }
}

impl Case {
    /// Its title, for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Wide => "Any x86 type with 16 vCPUs, in any zone, on-demand",
            Self::Narrow => "Five types in one zone, spot or on-demand",
            Self::NothingElse => "Five types in one zone, spot alone",
        }
    }

    /// The types that the region offers; all if empty. More types would only cost time.
    const fn types(self) -> &'static [&'static str] {
        match self {
            Self::Wide => &[],
            Self::Narrow | Self::NothingElse => &FIVE_TYPES,
        }
    }

    fn requirements(self) -> Vec<Value> {
        let is = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
        let one_zone = || {
            vec![
                is("node.kubernetes.io/instance-type", &FIVE_TYPES),
                is("topology.kubernetes.io/zone", &["us-east-1a"]),
            ]
        };
        let capacity_types = |types: &[&str]| is("karpenter.sh/capacity-type", types);
        match self {
            Self::Wide => vec![
                is("karpenter.k8s.aws/instance-cpu", &["16"]),
                is("kubernetes.io/arch", &["amd64"]),
                capacity_types(&["on-demand"]),
            ],
            Self::Narrow => [one_zone(), vec![capacity_types(&["spot", "on-demand"])]].concat(),
            Self::NothingElse => [one_zone(), vec![capacity_types(&["spot"])]].concat(),
        }
    }

    pub(crate) fn scenario(self) -> Scenario {
        let image = ImageForm::tagged("node", ("team", "platform"));
        Scenario {
            title: self.title().to_owned(),
            region: "us-east-1".to_owned(),
            seed: 1,
            types: self.types().iter().map(|&name| name.to_owned()).collect(),
            zones: Vec::new(),
            clusters: vec![ClusterForm {
                name: CLUSTER.to_owned(),
                objects: vec![node_class(), self.pool(), deployment()],
                ..ClusterForm::default()
            }],
            images: vec![image],
            steps: Vec::new(),
        }
    }

    fn pool(self) -> Value {
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
            "spec": {
                "template": {"spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": self.requirements(),
                    "expireAfter": "Never",
                }},
                "disruption": {"consolidateAfter": "Never"},
            },
        })
    }
}

fn node_class() -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{"tags": {"team": "platform"}}],
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": CLUSTER}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": CLUSTER}}],
            "role": format!("{CLUSTER}-node"),
        },
    })
}

/// Fifteen pods fill a node of 16 vCPUs.
fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": DEPLOYMENT, "namespace": "default"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": DEPLOYMENT}},
            "template": {
                "metadata": {"labels": {"app": DEPLOYMENT}},
                "spec": {
                    "containers": [
                        {"name": "web", "resources": {"requests": {"cpu": "1", "memory": "1536Mi"}}},
                    ],
                },
            },
        },
    })
}
