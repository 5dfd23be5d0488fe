//! Clusters of EKS. Their API servers don't exist.

use crate::account::ACCOUNT;
use crate::tools::aws;
use crate::wait::eventually;

/// Makes a cluster with this network, and waits until it is active.
pub(crate) async fn make_cluster(name: &str, network: &str) {
    let role = format!("arn:aws:iam::{ACCOUNT}:role/control-plane");
    let mut create = vec!["eks", "create-cluster", "--name", name, "--kubernetes-version", "1.35"];
    create.extend(["--role-arn", role.as_str(), "--access-config", "authenticationMode=API"]);
    create.extend(["--resources-vpc-config", network]);
    aws(&create).await;
    eventually("the cluster in EKS", || endpoint(name)).await;
}

/// The API server's address, once the cluster is active.
pub(crate) async fn endpoint(name: &str) -> Option<String> {
    let found = aws(&["eks", "describe-cluster", "--name", name]).await;
    let active = found["cluster"]["status"] == "ACTIVE";
    found["cluster"]["endpoint"].as_str().filter(|_| active).map(str::to_owned)
}
