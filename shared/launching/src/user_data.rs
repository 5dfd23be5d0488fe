//! User data: the configuration that a node reads when it boots.
//!
//! Decides the text for the supported AMI families: AL2023 gets a NodeConfig as the last MIME part, after the user's
//! own parts; Custom gets the user's text unchanged. Other families are refused by name.
//!
//! Invariants: the same input gives the same bytes, from which launch templates get their names; the generated part
//! is last, because nodeadm merges later parts over earlier ones.
//!
//! Source: aws/karpenter-provider-aws `pkg/providers/amifamily/bootstrap/nodeadm.go`, `custom.go`;
//! karpenter.sh/docs/concepts/nodeclasses, `spec.userData`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::catalog::AmiFamily;
use tenon_domain::catalog::settings::InstanceStorePolicy;
use tenon_domain::labels;
use tenon_domain::registry::Registry;
use tenon_domain::taint::{Taint, merge_taints};

/// EC2's limit on user data before it is encoded.
pub const USER_DATA_BYTES: usize = 16_384;

/// The boundary that the peer uses; longer where the user's text holds it.
const BOUNDARY: &str = "//";

/// Domains whose labels a kubelet may set on its own Node.
const KUBELET_DOMAINS: [&str; 2] = ["node.kubernetes.io", "kubelet.kubernetes.io"];

/// The settings of a node.
#[derive(Debug, Clone, Copy)]
pub struct NodeSetup<'a> {
    /// Its cluster.
    pub registry: &'a Registry,
    /// Its class.
    pub class: &'a Ec2NodeClass,
    /// Labels that its kubelet registers with.
    pub labels: &'a BTreeMap<String, String>,
    /// Taints that its kubelet registers with, besides [`Taint::unregistered`].
    pub taints: &'a [Taint],
}

/// Why there is no user data for a class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// Nothing here sets up nodes of the family.
    #[error("`amiFamily: {0}` isn't supported yet: use `AL2023`, or `Custom` with your own user data")]
    UnsupportedFamily(AmiFamily),
    /// The class's kubelet settings aren't a JSON object.
    #[error("`spec.kubelet` isn't an object")]
    Kubelet,
    /// The user's MIME text has no boundary.
    #[error("`spec.userData` is MIME multipart without a `boundary`")]
    Multipart,
    /// EC2 doesn't take that much.
    #[error("user data has {0} bytes, EC2 takes at most {USER_DATA_BYTES}: shorten `spec.userData`")]
    TooLong(usize),
}

/// The user data, not encoded; `None` for a Custom class without any.
///
/// # Errors [`UserDataError`] names what the class's owner can do.
pub fn user_data(setup: &NodeSetup<'_>) -> Result<Option<String>, UserDataError> {
    let text = match setup.class.settings.ami_family {
        AmiFamily::Al2023 => Some(multipart(setup)?),
        AmiFamily::Custom => setup.class.user_data.clone(),
        family @ (AmiFamily::Al2
        | AmiFamily::Bottlerocket
        | AmiFamily::Windows2019
        | AmiFamily::Windows2022
        | AmiFamily::Windows2025) => return Err(UserDataError::UnsupportedFamily(family)),
    };
    match &text {
        Some(text) if text.len() > USER_DATA_BYTES => Err(UserDataError::TooLong(text.len())),
        Some(_) | None => Ok(text),
    }
}

/// Whether a kubelet may set this label on its own Node; the API server refuses the Node otherwise.
#[must_use]
pub fn kubelet_may_set(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let within =
        |parent: &str| domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    KUBELET_DOMAINS.iter().any(|allowed| within(allowed)) || !(within("kubernetes.io") || within("k8s.io"))
}

fn multipart(setup: &NodeSetup<'_>) -> Result<String, UserDataError> {
    let mut parts = match setup.class.user_data.as_deref().map(str::trim_start) {
        None | Some("") => Vec::new(),
        Some(text) => own_parts(text)?,
    };
    parts.push(part("application/node.eks.aws", &node_config(setup)?.to_string()));
    let mut boundary = BOUNDARY.to_owned();
    while parts.iter().any(|part| part.contains(&format!("--{boundary}"))) {
        boundary.push('/');
    }
    let mut text = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n");
    for part in parts {
        text.push_str(&format!("--{boundary}\n{part}"));
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    text.push_str(&format!("--{boundary}--\n"));
    Ok(text)
}

fn part(content_type: &str, body: &str) -> String {
    format!("Content-Type: {content_type}\n\n{body}")
}

/// The user's parts: MIME's own parts as they are, a NodeConfig, or a shell script.
fn own_parts(text: &str) -> Result<Vec<String>, UserDataError> {
    let mime = text.starts_with("MIME-Version:") || text.starts_with("Content-Type: multipart/");
    if mime {
        return mime_parts(&text.replace("\r\n", "\n"));
    }
    let is_node_config = text.lines().any(|line| line.trim_start().starts_with("apiVersion: node.eks.aws/"));
    let content_type =
        if is_node_config { "application/node.eks.aws" } else { "text/x-shellscript; charset=\"us-ascii\"" };
    Ok(vec![part(content_type, text)])
}

fn mime_parts(text: &str) -> Result<Vec<String>, UserDataError> {
    let (head, body) = text.split_once("\n\n").ok_or(UserDataError::Multipart)?;
    let boundary = head.split_once("boundary=").ok_or(UserDataError::Multipart)?.1;
    let boundary = match boundary.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => boundary.split([';', '\n', ' ']).next(),
    };
    let boundary = boundary.filter(|text| !text.is_empty()).ok_or(UserDataError::Multipart)?;
    let (line, end) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut parts: Vec<String> = Vec::new();
    let mut within = false;
    for text in body.lines() {
        if text.trim_end() == end {
            break;
        }
        if text.trim_end() == line {
            parts.push(String::new());
            within = true;
        } else if let (true, Some(part)) = (within, parts.last_mut()) {
            part.push_str(text);
            part.push('\n');
        }
    }
    Ok(parts)
}

/// nodeadm's NodeConfig. JSON, which is YAML too; keys are sorted.
fn node_config(setup: &NodeSetup<'_>) -> Result<Value, UserDataError> {
    let registry = setup.registry;
    let settings = &setup.class.settings;
    let mut config: Map<String, Value> = match &settings.kubelet.document {
        None => Map::new(),
        Some(text) => serde_json::from_str(text).map_err(|_| UserDataError::Kubelet)?,
    };
    let taints = merge_taints(setup.taints, &[Taint::unregistered()]);
    let taints: Vec<Value> = taints
        .iter()
        .map(|taint| json!({"key": taint.key, "value": taint.value, "effect": taint.effect.as_str()}))
        .collect();
    config.insert("registerWithTaints".to_owned(), Value::Array(taints));
    let mut labels = setup.labels.clone();
    labels.insert(labels::DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned());
    let labels: Vec<String> = labels
        .iter()
        .filter(|(key, _)| kubelet_may_set(key))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let mut spec = json!({
        "cluster": {
            "name": registry.cluster.as_str(),
            "apiServerEndpoint": registry.endpoint,
            "certificateAuthority": registry.certificate_authority,
            "cidr": registry.service_cidr,
        },
        "kubelet": { "config": config, "flags": [format!("--node-labels={}", labels.join(","))] },
    });
    if let (Some(InstanceStorePolicy::Raid0), Some(spec)) =
        (settings.instance_store_policy, spec.as_object_mut())
    {
        spec.insert("instance".to_owned(), json!({"localStorage": {"strategy": "RAID0"}}));
    }
    Ok(json!({"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "metadata": {}, "spec": spec}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{class, registry};
    use tenon_domain::taint::TaintEffect;

    fn check(own: Option<&str>, expected: &str) {
        let class = Ec2NodeClass { user_data: own.map(str::to_owned), ..class("default") };
        let labels = BTreeMap::from(
            [("karpenter.sh/nodepool", "web"), ("kubernetes.io/arch", "arm64"), ("team", "a")]
                .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        let taints = [Taint { value: "yes".to_owned(), ..Taint::new("dedicated", TaintEffect::NoSchedule) }];
        let registry = registry("prod");
        let setup = NodeSetup { registry: &registry, class: &class, labels: &labels, taints: &taints };
        assert_eq!(user_data(&setup).unwrap().unwrap(), expected);
    }

    const NODE_CONFIG: &str = concat!(
        "Content-Type: application/node.eks.aws\n\n",
        r#"{"apiVersion":"node.eks.aws/v1alpha1","kind":"NodeConfig","metadata":{},"spec":{"#,
        r#""cluster":{"apiServerEndpoint":"https://prod.example","certificateAuthority":"Q0E=","#,
        r#""cidr":"10.100.0.0/16","name":"prod"},"kubelet":{"config":{"maxPods":42,"registerWithTaints":["#,
        r#"{"effect":"NoSchedule","key":"dedicated","value":"yes"},"#,
        r#"{"effect":"NoExecute","key":"karpenter.sh/unregistered","value":""}]},"#,
        r#""flags":["--node-labels=karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=web,team=a"]}}}"#,
        "\n--//--\n"
    );
    const HEAD: &str = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\n";

    #[test]
    fn al2023_gets_a_node_config() {
        check(None, &format!("{HEAD}{NODE_CONFIG}"));
    }

    #[test]
    fn the_users_parts_come_first() {
        let script = "Content-Type: text/x-shellscript; charset=\"us-ascii\"\n\n#!/bin/sh\necho hello\n";
        check(Some("#!/bin/sh\necho hello"), &format!("{HEAD}{script}--//\n{NODE_CONFIG}"));
        let mime = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"XX\"\n\n--XX\n\
                    Content-Type: text/x-shellscript; charset=\"us-ascii\"\n\n#!/bin/sh\necho hello\n--XX--\n";
        check(Some(mime), &format!("{HEAD}{script}--//\n{NODE_CONFIG}"));
        let config = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n";
        let own = format!("Content-Type: application/node.eks.aws\n\n{config}");
        check(Some(config), &format!("{HEAD}{own}--//\n{NODE_CONFIG}"));
    }

    #[test]
    fn a_custom_class_keeps_its_text_and_other_families_are_refused() {
        let registry = registry("prod");
        let labels = BTreeMap::new();
        let with = |family, text: Option<&str>| {
            let mut class = Ec2NodeClass { user_data: text.map(str::to_owned), ..class("default") };
            class.settings.ami_family = family;
            user_data(&NodeSetup { registry: &registry, class: &class, labels: &labels, taints: &[] })
        };
        assert_eq!(with(AmiFamily::Custom, Some("anything")), Ok(Some("anything".to_owned())));
        assert_eq!(with(AmiFamily::Custom, None), Ok(None));
        let refused = with(AmiFamily::Bottlerocket, None);
        assert_eq!(refused, Err(UserDataError::UnsupportedFamily(AmiFamily::Bottlerocket)));
        let long = "x".repeat(USER_DATA_BYTES + 1);
        assert_eq!(with(AmiFamily::Custom, Some(&long)), Err(UserDataError::TooLong(USER_DATA_BYTES + 1)));
    }

    #[test]
    fn a_kubelet_may_not_set_what_the_api_server_refuses() {
        let check = |key: &str, expected: bool| assert_eq!(kubelet_may_set(key), expected, "{key}");
        check("team", true);
        check("karpenter.sh/nodepool", true);
        check("kubernetes.io/arch", false);
        check("topology.kubernetes.io/zone", false);
        check("node.kubernetes.io/role", true);
        check("a.kubelet.kubernetes.io/b", true);
        check("topology.k8s.aws/zone-id", true);
    }
}
