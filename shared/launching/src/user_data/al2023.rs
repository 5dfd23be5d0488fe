//! User data of Amazon Linux 2023.
//!
//! Decides an archive with the user's parts and then a NodeConfig. The user's text is an archive, a NodeConfig or a
//! shell script.
//!
//! Invariants: the generated NodeConfig is last, because nodeadm merges later ones over earlier ones; it has no field
//! that isn't set, so that the user's NodeConfig may set it.
//!
//! The NodeConfig is JSON, which is YAML too. A YAML library would add a dependency, and its releases may change the
//! bytes from which the launch template's name comes.
//!
//! Source: awslabs.github.io/amazon-eks-ami/nodeadm/doc/api; aws/karpenter-provider-aws
//! `pkg/providers/amifamily/bootstrap/nodeadm.go`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenon_domain::catalog::settings::InstanceStorePolicy;

use super::kubelet_args::joined;
use super::mime::{NODE_CONFIG, SHELL_SCRIPT, archive, part, parts_of};
use super::{BootSettings, UserDataError};

pub(super) fn text(node: &BootSettings<'_>) -> Result<String, UserDataError> {
    let kind = |text: &str| if is_node_config(text) { NODE_CONFIG } else { SHELL_SCRIPT };
    let mut parts = parts_of(node.setup.class.user_data.as_deref(), kind)?;
    parts.push(part(NODE_CONFIG, &node_config(node).to_string()));
    Ok(archive(&parts))
}

fn is_node_config(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with("apiVersion: node.eks.aws/"))
}

/// nodeadm's NodeConfig; keys are sorted.
fn node_config(node: &BootSettings<'_>) -> Value {
    let registry = node.setup.registry;
    let mut spec = json!({
        "cluster": {
            "name": registry.cluster.as_str(),
            "apiServerEndpoint": registry.endpoint,
            "certificateAuthority": registry.certificate_authority,
            "cidr": registry.service_cidr,
        },
        "kubelet": {
            "config": kubelet_config(node),
            "flags": [format!("--node-labels={}", joined(&node.labels, "="))],
        },
    });
    if let (Some(InstanceStorePolicy::Raid0), Some(spec)) =
        (node.setup.class.settings.instance_store_policy, spec.as_object_mut())
    {
        spec.insert("instance".to_owned(), json!({"localStorage": {"strategy": "RAID0"}}));
    }
    json!({"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "metadata": {}, "spec": spec})
}

/// All of `spec.kubelet`, with the values that the plan resolved.
fn kubelet_config(node: &BootSettings<'_>) -> Value {
    let kubelet = &node.kubelet;
    let mut config = kubelet.document.clone();
    let mut set = |key: &str, value: Option<Value>| {
        config.remove(key);
        config.extend(value.map(|value| (key.to_owned(), value)));
    };
    let some = |amounts: &BTreeMap<String, String>| (!amounts.is_empty()).then(|| json!(amounts));
    set("maxPods", kubelet.max_pods.map(Value::from));
    set("kubeReserved", some(&kubelet.kube_reserved));
    set("systemReserved", some(&kubelet.system_reserved));
    set("clusterDNS", (!kubelet.cluster_dns.is_empty()).then(|| json!(kubelet.cluster_dns)));
    let taint = |taint: &tenon_domain::taint::Taint| json!({"key": taint.key, "value": taint.value, "effect": taint.effect.as_str()});
    set("registerWithTaints", Some(node.taints.iter().map(taint).collect()));
    Value::Object(config)
}
