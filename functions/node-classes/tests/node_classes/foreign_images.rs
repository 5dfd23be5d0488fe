//! Images of other accounts that look like the cluster's own.

use jiff::SignedDuration;
use serde_json::json;
use tenon_domain::image::{ImageFacts, ImageRecord, ImageState};
use tenon_domain::registry::Allowances;
use tenon_domain::wake::WakeCause;
use tenon_memory_table::block_on;
use tenon_table::Table;
use tenon_table::content_commit;
use tenon_table::items::{self, keys};
use tenon_twin::NewImage;

use crate::running::{Running, allowances, class, image, running, set, tags};

const STRANGER: &str = "999988887777";

/// Images of a name and tags that are the same, one after the other: the cluster's own is the oldest.
fn with_images(owners: &[&str], alias: Option<&str>) -> Running {
    let running = running(Allowances { image_owners: set(owners), ..allowances() });
    let tagged = NewImage { tags: tags(), ..image("nodes-1") };
    running.world.ec2.add_image(tagged.clone());
    running.world.clock.advance(SignedDuration::from_secs(60));
    running.world.ec2.add_image(NewImage {
        owner: Some(STRANGER.to_owned()),
        owner_alias: alias.map(str::to_owned),
        ..tagged
    });
    running
}

fn check(owners: &[&str], alias: Option<&str>, selector: serde_json::Value, expected: &str) {
    let running = with_images(owners, alias);
    running.report(&[class(json!({"amiSelectorTerms": [selector]}))]);
    running.wake(WakeCause::SnapshotChanged);
    let own = running.world.installation.account.clone();
    let owner = |id: &tenon_domain::id::ImageId| {
        let images = tenon_ec2::port::ImageFilter { ids: vec![id.clone()], ..everything() };
        let found =
            tenon_memory_table::block_on(tenon_ec2::Ec2::describe_images(&running.world.ec2, &images, None));
        found.unwrap().items.remove(0).owner
    };
    let found: Vec<&str> =
        running.images().iter().map(|id| if owner(id) == own { "own" } else { "stranger's" }).collect();
    let found = if found.is_empty() { running.obstacle() } else { found.join(" ") };
    assert_eq!(found, expected, "{owners:?} {alias:?}");
}

fn everything() -> tenon_ec2::port::ImageFilter {
    tenon_ec2::port::ImageFilter::default()
}

#[test]
fn a_newer_image_of_a_stranger_is_taken_only_where_its_owner_is_allowed() {
    let by_tags = || json!({"tags": {"karpenter.sh/discovery": "prod"}});
    check(&["self"], None, by_tags(), "own");
    check(&["self", "amazon"], None, by_tags(), "own");
    check(&["self", "amazon"], Some("amazon"), by_tags(), "stranger's");
    check(&["self"], Some("amazon"), by_tags(), "own");
    check(&["self", STRANGER], None, by_tags(), "stranger's");
    // IAM knows AWS's own images by the alias alone.
    check(&["self", STRANGER], Some("amazon"), by_tags(), "own");
    check(&[STRANGER], Some("aws-marketplace"), by_tags(), "AMIsReady=False NotAllowed");
    check(&["aws-marketplace"], Some("aws-marketplace"), by_tags(), "stranger's");
    check(&[STRANGER], None, by_tags(), "stranger's");
    check(&["amazon"], None, by_tags(), "AMIsReady=False NotAllowed");
}

#[test]
fn a_name_without_an_owner_finds_no_stranger() {
    check(&["self", STRANGER], None, json!({"name": "nodes-*"}), "own");
    check(&["self", STRANGER], None, json!({"name": "nodes-*", "owner": STRANGER}), "stranger's");
    check(&["self"], None, json!({"name": "nodes-*", "owner": STRANGER}), "AMIsReady=False NotAllowed");
}

#[test]
fn an_image_of_a_stranger_asks_nothing_of_ec2_where_a_class_selects_its_own() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    let asks = |owner: &str| {
        let told = ImageRecord {
            revision: 1,
            id: format!("ami-{owner}").parse().unwrap(),
            name: "nodes-2".to_owned(),
            state: ImageState::Available,
            architecture: None,
            created_at: None,
            owner: owner.to_owned(),
            owner_alias: None,
            tags: tags(),
            deprecated_at: None,
            facts: ImageFacts::default(),
            first_seen_at: running.world.clock.now(),
            seen_at: running.world.clock.now(),
        };
        let key = keys::image(&running.world.installation.region, &told.id);
        let commit = content_commit(Vec::new(), vec![items::put(key, &told)]);
        block_on(running.world.table.commit(&commit)).unwrap();
        let before = running.world.ec2.calls();
        running.wake(WakeCause::ImageChanged(Some(told.id)));
        running.world.ec2.calls() != before
    };
    assert!(!asks(STRANGER));
    assert!(asks(&running.world.installation.account));
}
