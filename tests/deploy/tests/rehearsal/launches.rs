//! Launches: an agent's doorbell ends in an instance.

use std::time::Instant;

use aws_sdk_ec2::types::{Filter, Instance};
use tenon_table::{Item, Value};

use crate::account::{INSTALLATION, RehearsalAccount};
use crate::classes::AL2023_STANDARD_X86_64;
use crate::cluster::CLUSTER;
use crate::wait::{eventually, timed};
use crate::world::{RehearsalWorld, rehearse};

/// The cluster's instances in EC2.
pub(crate) async fn instances(account: &RehearsalAccount) -> Vec<Instance> {
    instances_of(account, CLUSTER).await
}

/// A cluster's instances in EC2.
pub(crate) async fn instances_of(account: &RehearsalAccount, cluster: &str) -> Vec<Instance> {
    let ours = Filter::builder().name("tag:tenon.dev/cluster").values(cluster).build();
    let found = account.ec2.describe_instances().filters(ours).send().await.expect("EC2 answers");
    found.reservations.unwrap_or_default().into_iter().flat_map(|r| r.instances.unwrap_or_default()).collect()
}

/// Adds a pod and reports it; returns the times of the ring and of EC2's instance, and the instance.
pub(crate) async fn launch(world: &RehearsalWorld) -> (Instant, Instant, Instance) {
    let account = &world.account;
    let before: Vec<String> = instances(account).await.into_iter().filter_map(|i| i.instance_id).collect();
    let rung = world.cluster.lock().await.add_pod().await;
    let (instance, seen) = timed("an instance", || async {
        instances(account)
            .await
            .into_iter()
            .find(|i| i.instance_id.as_ref().is_some_and(|id| !before.contains(id)))
    })
    .await;
    (rung, seen, instance)
}

/// The claims in the table.
pub(crate) async fn claims(account: &RehearsalAccount) -> Vec<Item> {
    let items = account.items(format!("CLUSTER#{CLUSTER}"), "NODECLAIM#").await;
    items.into_iter().map(|(_, item)| item).collect()
}

fn text<'a>(item: &'a Item, name: &str) -> Option<&'a str> {
    item.get(name).and_then(Value::as_text)
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn a_doorbell_leads_to_an_instance() {
    rehearse(|world| async {
        let account = &world.account;
        let (_, _, instance) = launch(world).await;
        let id = instance.instance_id().expect("an id");
        let tag =
            |key: &str| instance.tags().iter().find(|tag| tag.key() == Some(key)).and_then(|tag| tag.value());
        assert_eq!(tag("tenon.dev/installation"), Some(INSTALLATION));
        assert_eq!(instance.image_id(), Some(AL2023_STANDARD_X86_64), "the alias's image for its type");
        let owner =
            eventually("the owner of the instance", || account.item(format!("INSTANCE#{id}"), "INSTANCE"))
                .await;
        let claim = text(&owner, "claim").expect("a claim").to_owned();
        let found = claims(account).await;
        let found = found.iter().find(|item| text(item, "name") == Some(&claim)).expect("its claim");
        assert_eq!((text(found, "phase"), text(found, "pool")), (Some("Launched"), Some("default")));

        // Everything that this woke is done: the pod is counted on its claim, and nothing more is launched for it.
        account.settled().await;
        let before = instances(account).await.len();
        world.cluster.lock().await.report().await;
        account
            .send(
                "provisioner",
                r#"{"source":"tenon.schedule","detail-type":"Sweep","detail":{"cluster":"prod"}}"#,
            )
            .await;
        account.settled().await;
        assert_eq!(instances(account).await.len(), before);
    });
}
