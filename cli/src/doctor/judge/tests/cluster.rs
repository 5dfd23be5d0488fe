//! Checks of a cluster: EKS, the agent's credentials, the network, the nodes' roles.

use super::*;

#[test]
fn of_the_cluster_in_eks() {
    check(
        DoctorCheck::Cluster,
        &[
            (|_| {}, "passed", "Kubernetes 1.35"),
            (|facts| prod(facts).eks = Ok(None), "failed", "aws eks list-clusters --region us-east-1"),
            (|facts| eks(facts).version = "1.30".to_owned(), "failed", "Tenon needs 1.31"),
            (|facts| eks(facts).version = "new".to_owned(), "unknown", "`new`"),
            (|facts| prod(facts).eks = Err(DENIED), "unknown", "a:B"),
        ],
    );
    check(
        DoctorCheck::ClusterStatus,
        &[
            (|_| {}, "passed", "ACTIVE"),
            (|facts| eks(facts).status = "UPDATING".to_owned(), "warning", "aws eks wait cluster-active"),
            (|facts| eks(facts).status = "CREATING".to_owned(), "failed", "aws eks wait cluster-active"),
            (|facts| eks(facts).status = "FAILED".to_owned(), "failed", "cluster.health"),
            (|facts| prod(facts).eks = Ok(None), "notApplicable", "see `cluster`"),
        ],
    );
}

#[test]
fn of_the_agents_credentials() {
    fn by_token(facts: &mut DoctorFacts) {
        prod(facts).addon = Ok(None);
        let parameters = &mut facts.stacks.as_mut().unwrap()[2].parameters;
        parameters.insert("OidcProvider".to_owned(), "oidc.eks/id/A".to_owned());
    }
    check(
        DoctorCheck::PodIdentity,
        &[
            (|_| {}, "passed", "eks-pod-identity-agent"),
            (|facts| eks(facts).auto_mode = AutoMode::On, "passed", "Auto Mode"),
            (|facts| prod(facts).addon = Ok(Some("CREATING".to_owned())), "warning", "addon-active"),
            (|facts| prod(facts).addon = Ok(Some("DEGRADED".to_owned())), "failed", "addon.health"),
            (|facts| prod(facts).addon = Ok(None), "failed", "aws eks create-addon --cluster-name prod"),
            (by_token, "failed", "associate-iam-oidc-provider --cluster prod"),
            (
                |facts| {
                    by_token(facts);
                    prod(facts).oidc_provider = Ok(Some("arn:p".to_owned()));
                },
                "passed",
                "`arn:p`",
            ),
            (|facts| prod(facts).addon = Err(DENIED), "unknown", "a:B"),
        ],
    );
}

#[test]
fn of_the_network() {
    check(
        DoctorCheck::Subnets,
        &[
            (|_| {}, "passed", "1 subnet with `karpenter.sh/discovery=prod`"),
            (
                |facts| prod(facts).subnets.as_mut().unwrap().ids.clear(),
                "failed",
                "--resources SUBNET-ID --tags Key=karpenter.sh/discovery,Value=prod",
            ),
            (
                |facts| prod(facts).classes.as_mut().unwrap()[0].subnets = 0,
                "failed",
                "kubectl get ec2nodeclass default",
            ),
            (|facts| prod(facts).subnets = Err(DENIED), "unknown", "a:B"),
        ],
    );
    check(
        DoctorCheck::SecurityGroups,
        &[
            (|_| {}, "passed", "1 security group with"),
            (
                |facts| prod(facts).security_groups.as_mut().unwrap().ids.clear(),
                "failed",
                "--resources SECURITY-GROUP-ID",
            ),
            (
                |facts| prod(facts).classes.as_mut().unwrap()[0].security_groups = 0,
                "failed",
                "EC2NodeClass `default`",
            ),
            (|facts| prod(facts).security_groups = Err(DENIED), "unknown", "a:B"),
        ],
    );
}

#[test]
fn of_node_roles() {
    check(
        DoctorCheck::NodeRoles,
        &[
            (|_| {}, "passed", "`prod-node` may join"),
            (|facts| prod(facts).entries = Ok(Vec::new()), "failed", "Cluster=prod NodeRole=prod-node"),
            (|facts| prod(facts).report = Ok(None), "failed", "NodeRole=gpu-node"),
            (
                |facts| {
                    eks(facts).authentication_mode = Some("API_AND_CONFIG_MAP".to_owned());
                    prod(facts).entries = Ok(Vec::new());
                },
                "unknown",
                "aws-auth, which isn't read, may have it",
            ),
            (
                |facts| eks(facts).authentication_mode = Some("CONFIG_MAP".to_owned()),
                "unknown",
                "eksctl get iamidentitymapping",
            ),
            (
                |facts| prod(facts).entries.as_mut().unwrap()[1].entry_type = Ok("STANDARD".to_owned()),
                "failed",
                "instead of EC2_LINUX",
            ),
            (|facts| prod(facts).entries.as_mut().unwrap()[1].entry_type = Err(DENIED), "unknown", "a:B"),
            (|facts| prod(facts).entries = Err(DENIED), "unknown", "a:B"),
            (without_stacks, "notApplicable", "isn't deployed"),
        ],
    );
}
