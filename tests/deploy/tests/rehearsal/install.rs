//! The installation page's commands, as a reader types them, for another cluster.
//!
//! Decides which: every block without the comment that says why it isn't run, but for the region's, which the rehearsal
//! deploys itself. They are one script, because later commands use the variables of earlier ones.

use tenon_domain::registry::Registry;
use tenon_table::Key;
use tenon_table::items::from_item;

use crate::account::{ACCOUNT, INSTALLATION, REGION};
use crate::eks::make_cluster;
use crate::network::{DISCOVERY, make_untagged_network};
use crate::page::unmarked;
use crate::tools::{aws, root, shell};
use crate::world::rehearse;

/// The cluster's name.
const CLUSTER: &str = "second";
/// Its node group, as the page calls it.
const NODEGROUP: &str = "system";
/// How the block begins that the rehearsal plays in its own form.
const REGIONS: &str = "infra/build arm64";
/// What stands for a text of the page: the other cluster's name; and what the server's EKS doesn't know without a container
/// engine, or moto's EC2 doesn't know of it.
const STANDS_FOR: [(&str, &str); 3] = [
    ("CLUSTER=prod", "CLUSTER=second"),
    ("certificateAuthority.data", "'LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t'"),
    ("clusterSecurityGroupId", "securityGroupIds[0]"),
];

/// The script of a page.
fn script(page: &str) -> String {
    let blocks = unmarked(page).into_iter().filter(|block| !block.commands.starts_with(REGIONS));
    let commands: String = blocks.map(|block| block.commands).collect();
    STANDS_FOR.iter().fold(commands, |text, (of, by)| {
        assert!(text.contains(of), "the page has `{of}`");
        text.replace(of, by)
    })
}

#[test]
fn blocks_without_a_mark_are_the_script() {
    let page = "```console\n$ export CLUSTER=prod\n```\n\n<!-- not run: A -->\n```console\n$ no\n```\nB\n\n\
        ```console\n$ a certificateAuthority.data \\\n    b\n$ clusterSecurityGroupId\n```\n";
    let expected =
        "export CLUSTER=second\na 'LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t' \\\n    b\nsecurityGroupIds[0]\n";
    assert_eq!(script(page), expected);
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn the_installation_page_prepares_and_registers_a_cluster() {
    rehearse(|world| async {
        let account = &world.account;
        let (subnet, group) = make_untagged_network(&account.ec2).await;
        make_cluster(CLUSTER, &format!("subnetIds={subnet},securityGroupIds={group}")).await;
        let role = format!("arn:aws:iam::{ACCOUNT}:role/system");
        let of = ["--cluster-name", CLUSTER, "--nodegroup-name", NODEGROUP];
        let made = ["eks", "create-nodegroup", "--subnets", &subnet, "--node-role", &role];
        aws(&[&made[..], &of].concat()).await;

        let page = std::fs::read_to_string(root().join("docs/install.md")).expect("the page");
        let script = script(&page);
        let commands = script.lines().filter(|line| !line.starts_with(' ')).count();
        println!("{commands} commands of the installation page run");
        shell(&script).await.well(&script);

        let (pk, sk) = (format!("REGION#{REGION}"), format!("CLUSTER#{CLUSTER}"));
        let item = account.item(pk.as_str(), sk.as_str()).await.expect("the cluster's entry");
        let entry: Registry = from_item(&Key::new(pk.as_str(), sk.as_str()), &item).expect("an entry");
        let found = aws(&["eks", "describe-cluster", "--name", CLUSTER]).await;
        assert_eq!(Some(entry.endpoint.as_str()), found["cluster"]["endpoint"].as_str());
        assert_eq!(entry.kubernetes_version, "1.35");
        let role = format!("{CLUSTER}-node");
        let roles: Vec<&String> = entry.allowed.node_roles.keys().collect();
        assert_eq!((roles, entry.allowed.max_nodes), (vec![&role], Some(20)));
        let policies = aws(&["iam", "list-attached-role-policies", "--role-name", &role]).await;
        assert_eq!(policies["AttachedPolicies"].as_array().map(Vec::len), Some(3));
        let tag = format!("Name=tag:{DISCOVERY},Values={CLUSTER}");
        let tagged = aws(&["ec2", "describe-subnets", "--filters", &tag]).await;
        assert_eq!(tagged["Subnets"][0]["SubnetId"], subnet.as_str());

        let stack = format!("{INSTALLATION}-{CLUSTER}");
        aws(&["cloudformation", "delete-stack", "--stack-name", &stack]).await;
        aws(&["cloudformation", "wait", "stack-delete-complete", "--stack-name", &stack]).await;
        assert_eq!(account.item(pk, sk).await, None, "the stack's end is the entry's");
    });
}
