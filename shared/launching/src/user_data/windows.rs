//! User data of Windows.
//!
//! Decides a PowerShell script: the user's own, then the call of the image's `Start-EKSBootstrap.ps1`. It doesn't
//! decide the kubelet's flags. Instance store disks stay as Windows finds them.
//!
//! Invariants: the call is last, because it starts the kubelet; every value is quoted.
//!
//! Source: docs.aws.amazon.com/eks/latest/userguide/eks-optimized-windows-ami.html, "Bootstrap script configuration
//! parameters"; aws/karpenter-provider-aws `pkg/providers/amifamily/bootstrap/windows.go`.

use super::BootSettings;
use super::kubelet_args::kubelet_args;

/// Where the image has the script.
const SCRIPT: &str = r#"& "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1""#;

pub(super) fn text(node: &BootSettings<'_>) -> String {
    let registry = node.setup.registry;
    let own = node.setup.class.user_data.as_deref().unwrap_or_default();
    let mut text = format!("<powershell>\n{own}");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let parameters = [
        ("EKSClusterName", Some(registry.cluster.as_str())),
        ("APIServerEndpoint", Some(registry.endpoint.as_str())),
        ("Base64ClusterCA", Some(registry.certificate_authority.as_str())),
        ("KubeletExtraArgs", Some(kubelet_args(node).as_str())),
        ("DNSClusterIP", node.kubelet.cluster_dns.first().map(String::as_str)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some(format!(" -{name} {}", quoted(value?))))
    .collect::<String>();
    text.push_str(&format!("{SCRIPT}{parameters}\n</powershell>\n"));
    text
}

/// A text of PowerShell, in single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
