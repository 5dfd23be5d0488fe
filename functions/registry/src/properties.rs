//! The properties of the resource: the stack's description of a cluster.
//!
//! Decides the valid values of each property, and reports all problems at once. Defaults are those of the registry's
//! form.

mod allowances;
mod launch_role;
mod node_roles;
mod reader;
mod settings;

use serde_json::{Map, Value};
use tenon_domain::id::ClusterName;
use tenon_domain::registry::Registry;
use tenon_runtime::Installation;

use node_roles::role_name;
use reader::PropertyReader;

/// The cluster's name alone, if it is one.
pub(crate) fn cluster(properties: &Map<String, Value>) -> Option<ClusterName> {
    properties.get("Cluster").and_then(Value::as_str).and_then(|name| ClusterName::parse(name).ok())
}

/// The entry of these properties.
///
/// # Errors The problem of each property, by its name.
pub(crate) fn parse(
    installation: &Installation,
    properties: &Map<String, Value>,
) -> Result<Registry, Vec<String>> {
    let mut read = PropertyReader::of(properties);
    let cluster =
        read.parsed("Cluster", "1 to 100 letters, digits, `-` and `_`", |t| ClusterName::parse(t).ok());
    let endpoint = read.parsed("Endpoint", "the API server's URL, `https://…`", |text| {
        text.starts_with("https://").then(|| text.to_owned())
    });
    let certificate_authority = read.parsed("CertificateAuthority", "base64 of PEM", base64);
    let kubernetes_version = read.parsed("KubernetesVersion", "a version such as `1.35`", version);
    let service_cidr = read.parsed("ServiceCidr", "a CIDR such as `10.100.0.0/16`", cidr);
    let agent_queue = read
        .parsed("AgentQueue", "the queue's URL", |text| text.starts_with("http").then(|| text.to_owned()));
    let agent_role =
        read.parsed("AgentRole", "a role's ARN", |text| role_name(text).map(|_| text.to_owned()));
    let launch_role = read.launch_role(installation);
    let allowed = read.allowances();
    let gates = read.gates();
    let settings = read.settings();
    read.strangers();
    let PropertyReader { problems, .. } = read;
    if !problems.is_empty() {
        return Err(problems);
    }
    let entry = || {
        Some(Registry {
            installation: installation.id.clone(),
            cluster: cluster?,
            endpoint: endpoint?,
            certificate_authority: certificate_authority?,
            kubernetes_version: kubernetes_version?,
            service_cidr: service_cidr?,
            settings,
            gates,
            agent_queue: agent_queue?,
            agent_role: agent_role?,
            launch_role,
            allowed,
        })
    };
    // Each missing value has its own problem.
    entry().ok_or_else(Vec::new)
}

fn base64(text: &str) -> Option<String> {
    let body = text.trim_end_matches('=');
    let digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    (!body.is_empty() && text.len() - body.len() <= 2 && body.bytes().all(digit)).then(|| text.to_owned())
}

fn version(text: &str) -> Option<String> {
    let (major, minor) = text.split_once('.')?;
    let number = |text: &str| text.parse::<u32>().is_ok();
    (number(major) && number(minor)).then(|| text.to_owned())
}

fn cidr(text: &str) -> Option<String> {
    let (address, bits) = text.split_once('/')?;
    let address: std::net::IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (bits.parse::<u8>().ok()? <= most).then(|| text.to_owned())
}

#[cfg(test)]
mod tests;
