//! A cluster's entry through the requests of its stacks, on the table in memory.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

use serde_json::{Value, json};
use tenon_domain::SignedDuration;
use tenon_domain::id::{ClusterName, InstallationId, Region};
use tenon_domain::registry::Registry;
use tenon_domain::wake::FunctionName;
use tenon_harness::{Recorder, RungBell};
use tenon_memory_table::block_on;
use tenon_memory_table::{MemoryConfig, MemoryTable};
use tenon_registry::{CustomResourceRequest, CustomResourceResponse, ResponseStatus, answer};
use tenon_runtime::Installation;
use tenon_table::items::{from_item, keys};
use tenon_table::{Consistency, Item, Table};

/// The properties of a cluster's resource, as its stack sends them.
const PROPERTIES: &str = include_str!("properties.json");
const STACK: &str = "arn:aws:cloudformation:us-east-1:111122223333:stack/prod/1";
const OTHER: &str = "arn:aws:cloudformation:us-east-1:111122223333:stack/other/2";

struct RegistryWorld {
    table: MemoryTable,
    signals: Recorder,
    installation: Installation,
}

impl RegistryWorld {
    fn new() -> Self {
        let installation = Installation {
            id: InstallationId::parse("tenon").unwrap(),
            region: Region::parse("us-east-1").unwrap(),
            account: "111122223333".to_owned(),
            table: "tenon".to_owned(),
        };
        let clock = std::sync::Arc::new(|| tenon_domain::Timestamp::UNIX_EPOCH);
        let table = MemoryTable::new(MemoryConfig::strict(1), clock);
        Self { table, signals: Recorder::default(), installation }
    }

    fn ask(&self, kind: &str, stack: &str, change: Value) -> CustomResourceResponse {
        let mut properties: Value = serde_json::from_str(PROPERTIES).unwrap();
        let Value::Object(change) = change else { unreachable!("a change is an object") };
        properties.as_object_mut().unwrap().extend(change);
        let mut request = json!({
            "RequestType": kind, "ResponseURL": "https://example.com/answer", "StackId": stack,
            "RequestId": "request", "LogicalResourceId": "Registry", "ResourceType": "Custom::TenonCluster",
            "ResourceProperties": properties,
        });
        if kind != "Create" {
            let physical = json!("REGION#us-east-1/CLUSTER#prod");
            request.as_object_mut().unwrap().insert("PhysicalResourceId".to_owned(), physical);
        }
        let request: CustomResourceRequest = serde_json::from_value(request).unwrap();
        block_on(answer(&self.table, &self.signals, &self.installation, &request))
    }

    fn item(&self, cluster: &str) -> Option<Item> {
        let key = keys::registry(&self.installation.region, &ClusterName::parse(cluster).unwrap());
        block_on(self.table.get(&key, Consistency::Strong)).unwrap()
    }

    fn entry(&self, cluster: &str) -> Option<Registry> {
        let key = keys::registry(&self.installation.region, &ClusterName::parse(cluster).unwrap());
        self.item(cluster).map(|item| from_item(&key, &item).unwrap())
    }
}

#[test]
fn an_entry_is_made_changed_and_deleted() {
    let world = RegistryWorld::new();
    let made = world.ask("Create", STACK, json!({"MaxNodes": "10"}));
    assert_eq!(
        (made.status, made.physical_resource_id.as_str()),
        (ResponseStatus::Success, "REGION#us-east-1/CLUSTER#prod")
    );
    assert_eq!(world.entry("prod").unwrap().allowed.max_nodes, Some(10));
    let changed = world.ask("Update", STACK, json!({}));
    assert_eq!(
        (changed.status, changed.physical_resource_id),
        (ResponseStatus::Success, made.physical_resource_id)
    );
    assert_eq!(world.entry("prod").unwrap().allowed.max_nodes, None);
    assert_eq!(world.ask("Delete", STACK, json!({})).status, ResponseStatus::Success);
    assert!(world.item("prod").is_none());
}

#[test]
fn a_request_that_comes_twice_is_done_once() {
    let world = RegistryWorld::new();
    for kind in ["Create", "Create", "Update", "Update", "Delete", "Delete"] {
        assert_eq!(world.ask(kind, STACK, json!({})).status, ResponseStatus::Success, "{kind}");
    }
}

#[test]
fn a_written_entry_rings_what_launches_and_what_disrupts_in_its_cluster() {
    let world = RegistryWorld::new();
    let rung = |kind: &str, stack: &str, change: Value| {
        world.ask(kind, stack, change);
        world.signals.take()
    };
    let rings = [FunctionName::Provisioner, FunctionName::Disruption].map(|function| RungBell::Wake {
        function,
        cluster: ClusterName::parse("prod").unwrap(),
        after: SignedDuration::ZERO,
    });
    assert_eq!(rung("Create", STACK, json!({"MaxNodes": "10"})), rings);
    assert_eq!(rung("Update", STACK, json!({"VoluntaryDisruption": "Disabled"})), rings);
    // What isn't written rings nobody.
    assert_eq!(rung("Update", STACK, json!({"MaxNodes": "many"})), []);
    assert_eq!(rung("Create", OTHER, json!({})), []);
    assert_eq!(rung("Delete", STACK, json!({})), []);
}

#[test]
fn a_cluster_of_another_stack_isnt_taken_over() {
    let world = RegistryWorld::new();
    world.ask("Create", STACK, json!({}));
    let refused = world.ask("Create", OTHER, json!({"KubernetesVersion": "1.36"}));
    assert_eq!(refused.status, ResponseStatus::Failed);
    assert!(refused.reason.contains(STACK), "{}", refused.reason);
    // A stack that kept the resource when it was deleted leaves an entry that no stack can delete.
    assert!(refused.reason.contains("delete item `REGION#us-east-1/CLUSTER#prod`"), "{}", refused.reason);
    // CloudFormation rolls the refused creation back.
    assert_eq!(world.ask("Delete", OTHER, json!({})).status, ResponseStatus::Success);
    // Nor by an update of another stack's own cluster.
    assert_eq!(world.ask("Create", OTHER, json!({"Cluster": "next"})).status, ResponseStatus::Success);
    let refused = world.ask("Update", OTHER, json!({"KubernetesVersion": "1.36"}));
    assert_eq!(refused.status, ResponseStatus::Failed);
    assert_eq!(world.entry("prod").unwrap().kubernetes_version, "1.35");
    // The name is free when its stack has gone.
    world.ask("Delete", STACK, json!({}));
    assert_eq!(world.ask("Create", OTHER, json!({})).status, ResponseStatus::Success);
}

/// The name alone says nothing: a stack of another account or region may have it too.
#[test]
fn a_stack_of_another_account_or_region_changes_nothing() {
    let world = RegistryWorld::new();
    world.ask("Create", STACK, json!({}));
    let moved = |from: &str, to: &str| STACK.replace(from, to);
    for stack in [
        moved("111122223333", "444455556666"),
        moved("us-east-1", "eu-west-1"),
        moved("arn:aws", "arn:aws-cn"),
    ] {
        for kind in ["Create", "Update", "Delete"] {
            let refused = world.ask(kind, &stack, json!({"KubernetesVersion": "1.36"}));
            assert_eq!(refused.status, ResponseStatus::Failed, "{kind} of {stack}");
            assert!(refused.reason.contains("expected a stack of this account"), "{}", refused.reason);
        }
        assert_eq!(world.ask("Create", &stack, json!({"Cluster": "next"})).status, ResponseStatus::Failed);
    }
    assert_eq!(world.entry("prod").unwrap().kubernetes_version, "1.35");
    assert!(world.item("next").is_none());
}

#[test]
fn another_name_is_another_resource() {
    let world = RegistryWorld::new();
    world.ask("Create", STACK, json!({}));
    let moved = world.ask("Update", STACK, json!({"Cluster": "next"}));
    assert_eq!(moved.physical_resource_id, "REGION#us-east-1/CLUSTER#next");
    assert!(world.item("prod").is_some() && world.item("next").is_some());
    // Which CloudFormation answers by deleting the one before.
    world.ask("Delete", STACK, json!({}));
    assert!(world.item("prod").is_none() && world.item("next").is_some());
}

#[test]
fn what_is_wrong_changes_nothing_and_is_told() {
    let world = RegistryWorld::new();
    world.ask("Create", STACK, json!({}));
    let refused = world.ask("Update", STACK, json!({"Cluster": "a b", "ServiceCidr": "10"}));
    assert_eq!(refused.status, ResponseStatus::Failed);
    assert_eq!(refused.physical_resource_id, "REGION#us-east-1/CLUSTER#prod");
    assert!(
        refused.reason.contains("`Cluster`") && refused.reason.contains("`ServiceCidr`"),
        "{}",
        refused.reason
    );
    let answered = serde_json::to_value(&refused).unwrap();
    assert_eq!((&answered["Status"], &answered["LogicalResourceId"]), (&json!("FAILED"), &json!("Registry")));
    // Deleting a name that was never registered succeeds.
    assert_eq!(world.ask("Delete", STACK, json!({"Cluster": "a b"})).status, ResponseStatus::Success);
    assert_eq!(world.entry("prod").unwrap().service_cidr, "10.100.0.0/16");
}

#[test]
fn what_a_writer_doesnt_know_stays() {
    use tenon_table::{Commit, CommitToken, Value as Attribute, Write};
    let world = RegistryWorld::new();
    world.ask("Create", STACK, json!({}));
    let key = keys::registry(&world.installation.region, &ClusterName::parse("prod").unwrap());
    let set = Item::from([("later".to_owned(), Attribute::text("kept"))]);
    let write = Write::Set { key, set, remove: Vec::new() };
    let token = CommitToken::parse("later").unwrap();
    block_on(world.table.commit(&Commit { token, conditions: Vec::new(), writes: vec![write] })).unwrap();
    world.ask("Update", STACK, json!({"KubernetesVersion": "1.36"}));
    assert_eq!(world.item("prod").unwrap()["later"], Attribute::text("kept"));
}
