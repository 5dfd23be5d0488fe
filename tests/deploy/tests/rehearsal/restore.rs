//! The restore page's commands, as a reader types them: a copy of the table takes its place, then the table does again.
//!
//! The server copies the table as it is, whatever time is asked for: what a restore to an earlier time does to the
//! functions is the simulation's subject.

use std::collections::BTreeSet;

use tenon_domain::registry::Registry;
use tenon_table::Key;
use tenon_table::items::from_item;

use crate::account::{INSTALLATION, REGION, RehearsalAccount};
use crate::cluster::CLUSTER;
use crate::images::{becomes, state_change};
use crate::launches::{instances, launch};
use crate::network::make_image;
use crate::page::{PageBlock, unmarked};
use crate::tools::{aws, root, shell};
use crate::world::rehearse;

/// The copy.
const COPY: &str = "tenon-restored";
/// The sections that put a table in place.
const SWITCH: [&str; 2] = ["4. Switch", "5. Give the table to the stack"];

fn commands<'p>(blocks: impl Iterator<Item = &'p PageBlock>) -> String {
    blocks.flat_map(|block| &block.commands).flat_map(|command| [command.as_str(), "\n"]).collect()
}

async fn run(commands: &str) {
    shell(&format!("export SAM_CLI_TELEMETRY=0\n{commands}")).await.well(commands);
}

/// Ids and states of the cluster's instances.
async fn states(account: &RehearsalAccount) -> BTreeSet<String> {
    let state = |found: &aws_sdk_ec2::types::Instance| format!("{:?} {:?}", found.instance_id, found.state);
    instances(account).await.iter().map(state).collect()
}

/// The table of the stack, and that of a function.
async fn tables_in_use() -> [String; 2] {
    let of = ["--stack-name", INSTALLATION, "--logical-resource-id", "Table"];
    let of_stack = aws(&[&["cloudformation", "describe-stack-resource"][..], &of].concat()).await;
    let of = ["--function-name", "tenon-lifecycle"];
    let of_function = aws(&[&["lambda", "get-function-configuration"][..], &of].concat()).await;
    let names = [
        &of_stack["StackResourceDetail"]["PhysicalResourceId"],
        &of_function["Environment"]["Variables"]["TENON_TABLE"],
    ];
    names.map(|name| name.as_str().expect("a name").to_owned())
}

/// The agent may use this table and no other.
async fn assert_agents_right(account: &RehearsalAccount, table: &str) {
    let (pk, sk) = (format!("REGION#{REGION}"), format!("CLUSTER#{CLUSTER}"));
    let item = account.item(pk.as_str(), sk.as_str()).await.expect("the cluster's entry");
    let entry: Registry = from_item(&Key::new(pk, sk), &item).expect("an entry");
    let role = entry.agent_role.rsplit('/').next().expect("an ARN of a role");
    let found = aws(&["iam", "get-role-policy", "--role-name", role, "--policy-name", "agent"]).await;
    let policy = found["PolicyDocument"].to_string();
    assert_eq!(policy.matches(":table/").count(), 2, "{policy}");
    assert_eq!(policy.matches(&format!(":table/{table}\"")).count(), 2, "{policy}");
}

/// The settings that a restored table lacks at first.
async fn assert_settings(table: &str) {
    let of = ["--table-name", table];
    let found = aws(&[&["dynamodb", "describe-time-to-live"][..], &of].concat()).await;
    let lives = &found["TimeToLiveDescription"];
    assert_eq!(lives["AttributeName"], "expires_at", "{found}");
    assert_eq!(lives["TimeToLiveStatus"], "ENABLED", "{found}");
    let found = aws(&[&["dynamodb", "describe-continuous-backups"][..], &of].concat()).await;
    let recovery = &found["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"];
    assert_eq!(recovery["PointInTimeRecoveryStatus"], "ENABLED", "{found}");
    let found = aws(&[&["dynamodb", "describe-table"][..], &of].concat()).await;
    assert_eq!(found["Table"]["DeletionProtectionEnabled"], true, "{found}");
}

/// An image's event, and then the record in the table of this account.
async fn assert_functions_write(account: &RehearsalAccount, image: &str) {
    let image = make_image(&account.ec2, image).await;
    account.send("images", &state_change(&image, "available").to_string()).await;
    becomes(account, &image, "available").await;
}

async fn delete(table: &str) {
    let of = ["--table-name", table];
    aws(&[&["dynamodb", "update-table", "--no-deletion-protection-enabled"][..], &of].concat()).await;
    aws(&[&["dynamodb", "delete-table"][..], &of].concat()).await;
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn a_restored_table_takes_the_place_of_the_stacks_and_no_instance_goes() {
    rehearse(|world| async {
        let account = &world.account;
        launch(world).await;
        account.settled().await;
        let before = states(account).await;
        let page = std::fs::read_to_string(root().join("docs/restore.md")).expect("the page");
        let blocks = unmarked(&page);
        run(&commands(blocks.iter())).await;

        assert_eq!(tables_in_use().await, [COPY, COPY]);
        assert_settings(COPY).await;
        let copy = RehearsalAccount::of_table(COPY).await;
        assert_agents_right(&copy, COPY).await;
        assert_functions_write(&copy, "restored").await;
        let sweep = r#"{"source":"tenon.schedule","detail-type":"Sweep","detail":{"cluster":"prod"}}"#;
        for function in ["lifecycle", "disruption", "provisioner"] {
            account.send(function, sweep).await;
        }
        account.settled().await;
        assert!(copy.item(format!("CLUSTER#{CLUSTER}"), "HALT").await.is_some(), "a person deletes it");
        assert_eq!(states(account).await, before);

        // The same steps take the table back that the stack had let go.
        let again = blocks.iter().filter(|block| SWITCH.contains(&block.section.as_str()));
        run(&format!("export CLUSTERS={CLUSTER} SUFFIX=\n{}", commands(again))).await;
        assert_eq!(tables_in_use().await, [INSTALLATION, INSTALLATION]);
        assert_agents_right(account, INSTALLATION).await;
        assert_functions_write(account, "back-again").await;
        assert_eq!(states(account).await, before);
        delete(COPY).await;
    });
}
