//! User data of Amazon Linux 2.
//!
//! Decides an archive with the user's parts and then a script, which starts the image's `/etc/eks/bootstrap.sh`. It
//! doesn't decide the kubelet's flags.
//!
//! Invariants: the script is last, because bootstrap.sh starts the kubelet; every value is quoted; a value follows its
//! flag after a space, as bootstrap.sh reads them.
//!
//! Source: awslabs/amazon-eks-ami `templates/al2/runtime/bootstrap.sh`; aws/karpenter-provider-aws
//! `pkg/providers/amifamily/bootstrap/eksbootstrap.go`.

use std::net::Ipv6Addr;

use tenon_domain::catalog::settings::InstanceStorePolicy;

use super::kubelet_args::kubelet_args;
use super::mime::{SHELL_SCRIPT, archive, part, parts_of};
use super::{BootSettings, UserDataError};

pub(super) fn text(node: &BootSettings<'_>) -> Result<String, UserDataError> {
    let mut parts = parts_of(node.setup.class.user_data.as_deref(), |_| SHELL_SCRIPT)?;
    parts.push(part(SHELL_SCRIPT, &script(node)));
    Ok(archive(&parts))
}

/// The script that makes the instance a node. Its output goes to `/var/log/user-data.log` and to cloud-init.
fn script(node: &BootSettings<'_>) -> String {
    let registry = node.setup.registry;
    let mut command = vec![
        format!("/etc/eks/bootstrap.sh {}", quoted(registry.cluster.as_str())),
        format!("--apiserver-endpoint {}", quoted(&registry.endpoint)),
        format!("--b64-cluster-ca {}", quoted(&registry.certificate_authority)),
    ];
    if let Some(dns) = node.kubelet.cluster_dns.first() {
        if dns.parse::<Ipv6Addr>().is_ok() {
            command.push("--ip-family ipv6".to_owned());
        }
        command.push(format!("--dns-cluster-ip {}", quoted(dns)));
    }
    // The flag `--max-pods` says how many.
    command.push("--use-max-pods false".to_owned());
    if let Some(InstanceStorePolicy::Raid0) = node.setup.class.settings.instance_store_policy {
        command.push("--local-disks raid0".to_owned());
    }
    command.push(format!("--kubelet-extra-args {}", quoted(&kubelet_args(node))));
    let command = command.join(" \\\n  ");
    format!("#!/bin/bash\nset -o errexit\nexec > >(tee -a /var/log/user-data.log) 2>&1\n{command}")
}

/// A word of the shell, in single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
