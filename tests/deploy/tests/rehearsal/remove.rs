//! The removal page's way to leave a cluster's nodes, typed for the cluster of the installation page.
//!
//! Decides what is typed: the blocks of one section, with the cluster's name in place of the page's. Tenon must leave nothing
//! that holds or deletes a node, and each instance must run on.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::account::{INSTALLATION, REGION, RehearsalAccount};
use crate::control_plane::RealControlPlane;
use crate::kubelet::AgentContainer;
use crate::launches::instances_of;
use crate::page::unmarked;
use crate::page_shell::PageShell;
use crate::tools::{aws, root};

/// The page.
const PAGE: &str = "docs/remove.md";
/// Its section.
const SECTION: &str = "A cluster whose nodes stay";
/// How the command begins that ends the agent.
const UNINSTALL: &str = "helm uninstall";
/// A stack's name, as the page calls it.
const STACK: &str = "tenon-prod";
/// Nodes of all NodePools.
const NODES: [&str; 3] = ["nodes", "--selector", "karpenter.sh/nodepool"];

/// The section's commands. No other block of the page is without a mark.
fn commands() -> Vec<String> {
    let page = std::fs::read_to_string(root().join(PAGE)).expect("the page");
    let blocks = unmarked(&page);
    assert!(blocks.iter().all(|block| block.section == SECTION), "a block of another section isn't run");
    blocks.into_iter().flat_map(|block| block.commands).collect()
}

/// A command as it is typed.
fn typed(command: &str, cluster: &str) -> String {
    command.replace(STACK, &format!("{INSTALLATION}-{cluster}"))
}

#[test]
fn the_page_has_what_is_replaced_and_what_is_waited_for() {
    let commands = commands();
    assert_eq!(commands.iter().filter(|command| command.starts_with(UNINSTALL)).count(), 1);
    assert!(commands.iter().any(|command| command.contains(STACK)));
    assert_eq!(typed("a --stack-name tenon-prod-agent", "second"), "a --stack-name tenon-second-agent");
}

/// Ids and states of a cluster's instances.
async fn states(account: &RehearsalAccount, cluster: &str) -> BTreeSet<String> {
    let state = |found: &aws_sdk_ec2::types::Instance| format!("{:?} {:?}", found.instance_id, found.state);
    instances_of(account, cluster).await.iter().map(state).collect()
}

/// The Nodes of NodePools.
async fn nodes(servers: &RealControlPlane) -> Vec<Value> {
    let found = servers.get(&NODES).await;
    found["items"].as_array().cloned().unwrap_or_default()
}

fn names(nodes: &[Value]) -> BTreeSet<&str> {
    nodes.iter().filter_map(|node| node["metadata"]["name"].as_str()).collect()
}

/// Types the section. The agent's process ends with its chart, as its pods do.
pub(crate) async fn leave_nodes(
    shell: &PageShell,
    servers: &RealControlPlane,
    account: &RehearsalAccount,
    cluster: &str,
    mut agent: Option<AgentContainer>,
) {
    let (instances, before) = (states(account, cluster).await, nodes(servers).await);
    assert!(!before.is_empty(), "there are nodes to leave");
    for command in commands() {
        shell.run(&typed(&command, cluster)).await.well(&command);
        if command.starts_with(UNINSTALL) {
            drop(agent.take());
            account.settled().await;
        }
    }
    assert_eq!(states(account, cluster).await, instances);
    let after = nodes(servers).await;
    assert_eq!(names(&after), names(&before));
    for node in &after {
        let metadata = &node["metadata"];
        assert!(metadata["finalizers"].is_null() && metadata["ownerReferences"].is_null(), "{metadata}");
    }
    let left = servers.get(&["nodeclaims,nodepools,ec2nodeclasses"]).await;
    assert!(left["items"].as_array().is_none_or(Vec::is_empty), "{left}");
    let profile = format!("{INSTALLATION}-{REGION}-{cluster}-{cluster}-node");
    let found = aws(&["iam", "get-instance-profile", "--instance-profile-name", &profile]).await;
    assert_eq!(found["InstanceProfile"]["Roles"][0]["RoleName"], format!("{cluster}-node"), "{found}");
}
