//! The pages that change or remove an installation, in as far as a machine without servers can judge blocks that nobody
//! types: their commands are commands, in an order that keeps nodes from being orphaned, and name what was installed.

#![expect(clippy::unwrap_used, reason = "helpers of an integration test fail as tests do")]

use std::collections::BTreeSet;
use std::process::Command;

use tenon_structure_tests::{document, read};

const PAGES: [&str; 4] = ["docs/install.md", "docs/upgrade.md", "docs/restore.md", "docs/remove.md"];
/// The definitions that the chart installs.
const DEFINITIONS: [&str; 3] =
    ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"];
/// What the blocks' `kubectl` names besides the definitions' objects.
const OF_KUBERNETES: [&str; 2] = ["node", "nodes"];

/// The blocks of commands of a page, each without its prompts.
fn blocks(page: &str) -> Vec<String> {
    let text = read(page);
    let blocks = text.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let typed = |line: &str| line.strip_prefix("$ ").unwrap_or(line).to_owned() + "\n";
    blocks.map(|block| block.lines().map(typed).collect()).collect()
}

/// The block of a page that has a text.
fn block_with(page: &str, text: &str) -> String {
    blocks(page).into_iter().find(|block| block.contains(text)).unwrap()
}

#[test]
fn every_block_of_the_pages_is_bash() {
    for page in PAGES {
        for block in blocks(page) {
            let parsed = Command::new("bash").args(["-n", "-c", &block]).output().unwrap();
            assert!(parsed.status.success(), "{page}: {}\n{block}", String::from_utf8_lossy(&parsed.stderr));
        }
    }
}

/// Whoever deletes the cluster's stack first leaves instances that nobody terminates, without an identity.
#[test]
fn a_removal_with_nodes_goes_from_the_nodes_to_the_stack() {
    let block = block_with("docs/remove.md", "kubectl delete nodepools --all");
    let steps = [
        "kubectl delete nodepools --all",
        "kubectl wait --for=delete nodeclaims --all",
        "kubectl delete ec2nodeclasses --all",
        "aws ec2 describe-instances",
        "helm uninstall tenon",
        "aws cloudformation delete-stack",
    ];
    let at: Vec<usize> = steps.iter().map(|step| block.find(step).unwrap()).collect();
    assert!(at.is_sorted(), "{block}");
}

#[test]
fn a_removal_deletes_the_stacks_of_an_installation_and_the_clusters_own_last() {
    let installed = blocks("docs/install.md").join("\n");
    let commands = installed.split("aws cloudformation deploy").skip(1);
    let names =
        commands.map(|rest| rest.split("--stack-name ").nth(1).unwrap().split_whitespace().next().unwrap());
    let deployed: BTreeSet<String> = names.map(|name| name.replace("$CLUSTER", "prod")).collect();
    let block = block_with("docs/remove.md", "for stack in ");
    let list = block.split("for stack in ").nth(1).unwrap().split(';').next().unwrap();
    let deleted: Vec<String> = list.split_whitespace().map(str::to_owned).collect();
    assert_eq!(deleted.iter().cloned().collect::<BTreeSet<_>>(), deployed);
    assert_eq!(deleted.last().map(String::as_str), Some("tenon-prod"));
}

/// A command for instances takes the cluster's alone: the tag is that of its launches.
#[test]
fn commands_about_instances_name_the_cluster() {
    for page in ["docs/restore.md", "docs/remove.md"] {
        for block in blocks(page) {
            for command in block.split("aws ec2 describe-instances").skip(1) {
                assert!(command.contains("Name=tag:tenon.dev/cluster,Values=prod"), "{page}: {block}");
            }
        }
    }
}

#[test]
fn kinds_that_the_pages_type_are_defined() {
    let defined = DEFINITIONS.map(|name| {
        let definition = document(&format!("infra/chart/crds/{name}.yaml"));
        assert_eq!(definition["metadata"]["name"], name);
        definition["spec"]["names"].clone()
    });
    let mut known: BTreeSet<String> = OF_KUBERNETES.map(str::to_owned).into();
    for names in &defined {
        known.extend([&names["plural"], &names["singular"]].map(|name| name.as_str().unwrap().to_owned()));
    }
    for page in ["docs/upgrade.md", "docs/restore.md", "docs/remove.md"] {
        for block in blocks(page) {
            for verb in ["kubectl get ", "kubectl delete ", "kubectl patch ", "kubectl wait --for=delete "] {
                for rest in block.split(verb).skip(1) {
                    let kinds = rest.split_whitespace().next().unwrap();
                    // A variable's kind is what an earlier `get` printed, and a file's what it holds.
                    if kinds.starts_with(['$', '-']) {
                        continue;
                    }
                    let unknown = kinds.split(',').map(|kind| kind.split('/').next().unwrap());
                    let unknown: Vec<&str> = unknown.filter(|kind| !known.contains(*kind)).collect();
                    assert!(unknown.is_empty(), "{page}: no kinds {unknown:?}: {block}");
                }
            }
        }
    }
}

/// An upgrade begins with what the API server must know, and ends with what uses it.
#[test]
fn an_upgrade_goes_from_the_definitions_to_the_chart() {
    let block = block_with("docs/upgrade.md", "helm upgrade tenon");
    let steps = [
        "kubectl apply --server-side --force-conflicts -f infra/chart/crds",
        "ClustersWithoutLaunchRole=Allowed",
        "--template-file infra/cluster.yaml",
        "ClustersWithoutLaunchRole=Refused",
        "infra/image --push",
        "helm upgrade tenon infra/chart",
    ];
    let at: Vec<usize> = steps.iter().map(|step| block.find(step).unwrap()).collect();
    assert!(at.is_sorted(), "{block}");
    let allowed = &document("template.yaml")["Parameters"]["ClustersWithoutLaunchRole"]["AllowedValues"];
    let allowed: Vec<&str> =
        allowed.as_array().unwrap().iter().filter_map(serde_json::Value::as_str).collect();
    assert_eq!(allowed.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from(["Allowed", "Refused"]));
}
