//! Deploying both stacks, once and again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use tenon_domain::registry::Registry;
use tenon_table::items::from_item;
use tenon_table::{Key, Value};

use crate::account::{ACCOUNT, INSTALLATION, REGION};
use crate::cluster::CLUSTER;
use crate::eks;
use crate::install::{REGIONS, architecture, page_blocks};
use crate::network::DISCOVERY;
use crate::tools::{aws, root, sam, shell};
use crate::world::rehearse;

/// The issuer of the cluster's service account tokens.
const ISSUER: &str = "oidc.eks.us-east-1.amazonaws.com/id/EXAMPLED539D4633E53DE1B71EXAMPLE";

/// Deploys a stack; returns sam's output.
async fn deploy(stack: &str, template: &str, parameters: &[String]) -> String {
    let mut arguments = vec!["deploy", "--template-file", template, "--stack-name", stack, "--resolve-s3"];
    arguments.extend(["--capabilities", "CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]);
    arguments.extend(["--no-confirm-changeset", "--no-fail-on-empty-changeset", "--no-progressbar"]);
    arguments.extend(["--region", REGION, "--parameter-overrides"]);
    arguments.extend(parameters.iter().map(String::as_str));
    sam(&arguments).await.well(&format!("the deployment of `{template}`"))
}

/// The region's stack, by the installation page's own command; how long it took. As the page says, the architecture is that
/// of the binaries, which run on this machine.
async fn first_region_stack() -> Duration {
    let mut commands = page_blocks().into_iter().flat_map(|block| block.commands);
    let command = commands.find(|command| command.starts_with(REGIONS)).expect("the page deploys it");
    let of = "Architecture=arm64";
    assert!(command.contains(of), "the page says the architecture: {command}");
    let command = command.replace(of, &format!("Architecture={}", architecture()));
    let begun = Instant::now();
    shell(&format!("export SAM_CLI_TELEMETRY=0\n{command}")).await.well(&command);
    begun.elapsed()
}

/// The same stack again.
async fn region_stack() -> String {
    deploy(INSTALLATION, "template.yaml", &[format!("Architecture={}", architecture())]).await
}

/// The stack of the one cluster.
async fn cluster_stack() -> String {
    let parameters = [
        ("Installation", INSTALLATION.to_owned()),
        ("Cluster", CLUSTER.to_owned()),
        ("Endpoint", eks::endpoint(CLUSTER).await.expect("EKS has the cluster")),
        ("CertificateAuthority", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t".to_owned()),
        ("KubernetesVersion", "1.35".to_owned()),
        ("ServiceCidr", "10.100.0.0/16".to_owned()),
        ("NodeRole1", node_role()),
        ("NodeRole2", "team/gpu".to_owned()),
        ("NodeRole2Profile", "gpu-node".to_owned()),
        ("SubnetTags", format!("{DISCOVERY}={CLUSTER}")),
        ("SecurityGroupTags", format!("{DISCOVERY}={CLUSTER}")),
        ("MaxNodes", "50".to_owned()),
        ("OidcProvider", ISSUER.to_owned()),
        // moto's account isn't ministack's, and owns moto's images.
        ("ImageOwners", "self,amazon,123456789012".to_owned()),
    ];
    let parameters: Vec<String> = parameters
        .into_iter()
        .map(|(key, value)| format!("ParameterKey={key},ParameterValue=\"{value}\""))
        .collect();
    deploy(&format!("{INSTALLATION}-{CLUSTER}"), "infra/cluster.yaml", &parameters).await
}

/// Deploys both, the region's first; how long that took.
pub(crate) async fn both_stacks() -> Duration {
    let bootstrap = root().join("target/functions/catalog/bootstrap");
    assert!(bootstrap.exists(), "`{}` isn't there: run `infra/build host`", bootstrap.display());
    let took = first_region_stack().await;
    make_node_role().await;
    cluster_stack().await;
    took
}

/// Makes the cluster in EKS, with the add-on for the agent's credentials. CloudFormation makes no access entries there.
pub(crate) async fn make_cluster() {
    eks::make_cluster(CLUSTER, "endpointPublicAccess=true").await;
    aws(&["eks", "create-addon", "--cluster-name", CLUSTER, "--addon-name", "eks-pod-identity-agent"]).await;
    let nodes = format!("arn:aws:iam::{ACCOUNT}:role/{}", node_role());
    let entry = ["--cluster-name", CLUSTER, "--type", "EC2_LINUX", "--principal-arn", nodes.as_str()];
    aws(&[&["eks", "create-access-entry"][..], &entry].concat()).await;
}

/// The role of the nodes, by the name that Karpenter's getting-started page gives it.
fn node_role() -> String {
    format!("KarpenterNodeRole-{CLUSTER}")
}

/// An account has the role before the cluster's stack makes its instance profile.
async fn make_node_role() {
    let trust = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}"#;
    aws(&["iam", "create-role", "--role-name", &node_role(), "--assume-role-policy-document", trust]).await;
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn a_role_has_the_instance_profile_that_the_stack_makes_or_names() {
    rehearse(|world| async {
        let made = format!("{INSTALLATION}-{REGION}-{CLUSTER}-{}", node_role());
        let found = aws(&["iam", "get-instance-profile", "--instance-profile-name", &made]).await;
        assert_eq!(found["InstanceProfile"]["InstanceProfileName"], made.as_str());

        let (pk, sk) = (format!("REGION#{REGION}"), format!("CLUSTER#{CLUSTER}"));
        let item = world.account.item(pk.as_str(), sk.as_str()).await.expect("the cluster's entry");
        let entry: Registry = from_item(&Key::new(pk, sk), &item).expect("an entry");
        let expected = [(node_role(), made.clone()), ("gpu".to_owned(), "gpu-node".to_owned())];
        assert_eq!(entry.allowed.node_roles, BTreeMap::from(expected));

        let class = world.account.item(format!("CLUSTER#{CLUSTER}"), "NODECLASS#default").await;
        let profile = class.expect("the class").get("instance_profile").cloned();
        assert_eq!(profile, Some(Value::text(&made)));
    });
}

/// That nodes are launched shows that the role can be taken.
#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn the_launch_role_has_the_installations_path_and_trusts_the_provisioner() {
    rehearse(|world| async {
        let (pk, sk) = (format!("REGION#{REGION}"), format!("CLUSTER#{CLUSTER}"));
        let item = world.account.item(pk.as_str(), sk.as_str()).await.expect("the cluster's entry");
        let entry: Registry = from_item(&Key::new(pk, sk), &item).expect("an entry");
        let arn = entry.launch_role.expect("a launch role");
        let name = arn.rsplit('/').next().expect("an ARN of a role");
        let found = aws(&["iam", "get-role", "--role-name", name]).await;
        assert_eq!(found["Role"]["Path"], format!("/tenon/{INSTALLATION}/{REGION}/"));
        let trusted = &found["Role"]["AssumeRolePolicyDocument"]["Statement"][0]["Principal"]["AWS"];
        let trusted = trusted.as_str().expect("one principal");
        assert!(trusted.starts_with(&format!("arn:aws:iam::{ACCOUNT}:role/")), "{trusted}");
        let policy = ["--role-name", name, "--policy-name", "launch-network"];
        let network = aws(&[&["iam", "get-role-policy"][..], &policy].concat()).await.to_string();
        assert!(network.contains("aws:ResourceTag/"), "{network}");
    });
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn the_agents_role_trusts_its_pods_and_the_tokens_of_its_service_account() {
    rehearse(|world| async {
        let (pk, sk) = (format!("REGION#{REGION}"), format!("CLUSTER#{CLUSTER}"));
        let item = world.account.item(pk.as_str(), sk.as_str()).await.expect("the cluster's entry");
        let entry: Registry = from_item(&Key::new(pk, sk), &item).expect("an entry");
        let name = entry.agent_role.rsplit('/').next().expect("an ARN of a role");
        let found = aws(&["iam", "get-role", "--role-name", name]).await;
        let trust = &found["Role"]["AssumeRolePolicyDocument"]["Statement"];
        assert_eq!(trust[0]["Principal"]["Service"], "pods.eks.amazonaws.com");
        let provider = format!("arn:aws:iam::{ACCOUNT}:oidc-provider/{ISSUER}");
        assert_eq!(trust[1]["Principal"]["Federated"], provider);
        let expected = json!({"StringEquals": {
            format!("{ISSUER}:aud"): "sts.amazonaws.com",
            format!("{ISSUER}:sub"): "system:serviceaccount:tenon-system:tenon-agent",
        }});
        assert_eq!(trust[1]["Condition"], expected);
    });
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn a_second_deployment_changes_nothing() {
    rehearse(|_| async {
        for printed in [region_stack().await, cluster_stack().await] {
            assert!(printed.contains("No changes to deploy"), "{printed}");
        }
    });
}
