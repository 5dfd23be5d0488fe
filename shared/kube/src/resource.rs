//! The API path of each kind: group, version, plural.
//!
//! Decides the names in URLs and RBAC rules. It needs no discovery: the kinds are a closed list.

use tenon_snapshot::object::{Kind, ResourceScope};

/// The plural by which URLs and RBAC rules name a kind: that of English, in small letters.
#[must_use]
pub fn plural(kind: Kind) -> String {
    let name = kind.as_str().to_lowercase();
    if name.ends_with('s') { name + "es" } else { name + "s" }
}

/// Group and version; the core group is empty.
#[must_use]
pub fn group_version(kind: Kind) -> (&'static str, &'static str) {
    kind.api_version().split_once('/').unwrap_or(("", kind.api_version()))
}

/// The path of a kind's collection in a namespace, or in all namespaces if `namespace` is empty.
#[must_use]
pub fn collection(kind: Kind, namespace: &str) -> String {
    let (group, _) = group_version(kind);
    let root = if group.is_empty() { "/api" } else { "/apis" };
    let within = match kind.scope() {
        ResourceScope::Namespaced if !namespace.is_empty() => format!("namespaces/{namespace}/"),
        ResourceScope::Namespaced | ResourceScope::Cluster => String::new(),
    };
    format!("{root}/{}/{within}{}", kind.api_version(), plural(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        let check = |kind, namespace, expected: &str| assert_eq!(collection(kind, namespace), expected);
        check(Kind::Pod, "", "/api/v1/pods");
        check(Kind::Pod, "shop", "/api/v1/namespaces/shop/pods");
        check(Kind::Node, "ignored", "/api/v1/nodes");
        check(Kind::NodeClaim, "", "/apis/karpenter.sh/v1/nodeclaims");
        check(Kind::Ec2NodeClass, "", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses");
        check(Kind::Lease, "kube-system", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases");
    }
}
