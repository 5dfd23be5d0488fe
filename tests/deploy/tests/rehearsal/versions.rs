//! Versions: functions work with items of the version before or after theirs.
//!
//! There is one version so far. Items of another version differ by the forms' contract: another `v`, and unknown
//! attributes. The test changes all items of the table so, both ways, and everything must continue.

use tenon_domain::evidence::CatalogPart;
use tenon_table::items::form::VERSION_WRITTEN;
use tenon_table::{Commit, CommitToken, Item, Key, Table as _, Value, Write};

use crate::account::{REGION, RehearsalAccount};
use crate::cluster::CLUSTER;
use crate::images::{becomes, deregister, state_change};
use crate::launches::launch;
use crate::network::make_image;
use crate::wait::eventually;
use crate::world::{RehearsalWorld, rehearse};
use crate::{catalog, launches};

/// The attribute of another version's items.
const FOREIGN: &str = "of_another_version";

/// Of 1,395 items of one kind a few say as much.
const OF_A_KIND: usize = 20;

fn partitions() -> [String; 3] {
    [format!("REGION#{REGION}"), format!("CLUSTER#{CLUSTER}"), format!("AGENT#{CLUSTER}")]
}

/// The items that are rewritten.
async fn items(account: &RehearsalAccount) -> Vec<(Key, Item)> {
    let mut found = Vec::new();
    for partition in partitions() {
        let all = account.items(partition, "").await;
        let (types, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(key, _)| key.sk.starts_with("TYPE#"));
        found.extend(rest);
        found.extend(types.into_iter().take(OF_A_KIND));
    }
    // Counters have no form of their own.
    found.retain(|(_, item)| item.contains_key("v"));
    found
}

/// Changes the table like a binary of that version.
async fn rewrite(account: &RehearsalAccount, version: u64) -> Vec<Key> {
    let mut keys = Vec::new();
    for (key, _) in items(account).await {
        let set = Item::from([
            ("v".to_owned(), Value::number(version)),
            (FOREIGN.to_owned(), Value::text(format!("version {version}"))),
        ]);
        let token = CommitToken::of_texts(["rewrite", &version.to_string(), &key.pk, &key.sk]);
        let writes = vec![Write::Set { key: key.clone(), set, remove: Vec::new() }];
        account
            .table
            .commit(&Commit { token, conditions: Vec::new(), writes })
            .await
            .expect("it is rewritten");
        keys.push(key);
    }
    keys
}

/// Wakes functions of each kind, and waits for the results.
async fn work(world: &RehearsalWorld, known_image: &str) {
    let account = &world.account;
    let refreshed = || async {
        let entry = catalog::part(account, CatalogPart::InstanceTypes).await?;
        entry.get("refreshed_at")?.as_text().map(str::to_owned)
    };
    let before = refreshed().await;
    let refresh = r#"{"source":"tenon.schedule","detail-type":"Refresh","detail":{"part":"instance-types"}}"#;
    account.send("catalog", refresh).await;
    eventually("the catalogue's refresh", || async {
        refreshed().await.filter(|at| Some(at) != before.as_ref())
    })
    .await;
    deregister(&account.ec2, known_image).await;
    account.send("images", &state_change(known_image, "deregistered").to_string()).await;
    becomes(account, known_image, "deregistered").await;
    let (_, _, instance) = launch(world).await;
    let id = instance.instance_id().expect("an id").to_owned();
    eventually("the launch's end", || account.item(format!("INSTANCE#{id}"), "INSTANCE")).await;
    account.settled().await;
}

async fn goes_on(world: &RehearsalWorld, version: u64) {
    let account = &world.account;
    let dead_letters = account.dead_letters().await;
    let image = make_image(&account.ec2, &format!("of-version-{version}")).await;
    account.send("images", &state_change(&image, "available").to_string()).await;
    becomes(account, &image, "available").await;
    launch(world).await;
    account.settled().await;

    let rewritten = rewrite(account, version).await;
    work(world, &image).await;
    let now = items(account).await;
    let touched = |(_, item): &&(Key, Item)| item.get("v") == Some(&Value::number(VERSION_WRITTEN));
    let touched: Vec<&(Key, Item)> =
        now.iter().filter(|(key, _)| rewritten.contains(key)).filter(touched).collect();
    assert!(touched.len() >= 3, "too little was written over items of version {version}: {touched:?}");
    let lost: Vec<&Key> =
        touched.iter().filter(|(_, item)| !item.contains_key(FOREIGN)).map(|(key, _)| key).collect();
    assert!(
        lost.iter().all(|key| is_its_writers_own(key)),
        "attributes that aren't known were lost: {lost:?}"
    );
    assert_eq!(account.dead_letters().await, dead_letters);
    assert!(!launches::claims(account).await.is_empty());
}

/// Items that are replaced as a whole: named by their content, or written and read by one function alone.
fn is_its_writers_own(key: &Key) -> bool {
    key.pk.starts_with("AGENT#") || key.sk.starts_with("PACKED#") || key.sk.starts_with("SEEN#")
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn functions_work_on_items_of_the_next_version() {
    rehearse(|world| async { goes_on(world, VERSION_WRITTEN + 1).await });
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn functions_work_on_items_of_the_version_before() {
    rehearse(|world| async { goes_on(world, VERSION_WRITTEN - 1).await });
}
