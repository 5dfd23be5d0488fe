//! Images as a user sees them: the table and the bus while EC2's images change.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]
#![expect(clippy::indexing_slicing, reason = "helpers of integration tests aren't inside #[test] functions")]

use std::collections::BTreeSet;

use jiff::SignedDuration;
use tenon_domain::id::{ClusterName, ImageId, NodeClassName};
use tenon_domain::image::{ImageRecord, ImageState};
use tenon_domain::registry::Registry;
use tenon_domain::wake::WakeCause;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{DisabledImages, ImageArchitecture, ImageFilter};
use tenon_harness::{FunctionWorld, Meeting, WorldConfig};
use tenon_images::Images;
use tenon_memory_table::block_on;
use tenon_runtime::{Handler, HandlerError, WakeScope};
use tenon_state::image_query::{ClassImages, digest};
use tenon_table::Table;
use tenon_table::content_commit;
use tenon_table::items::{self, ImageSweep, keys};
use tenon_table::{Item, Value, Write};
use tenon_twin::{Call, Fault, FaultEffect, FaultWhen, ImageOutcome, NewImage};

fn world() -> FunctionWorld {
    FunctionWorld::new(&WorldConfig::default()).unwrap()
}

fn wake(world: &FunctionWorld, cause: WakeCause) -> Result<(), HandlerError> {
    block_on(Images.handle(world, &WakeScope::Region, &[cause]))
}

/// A registered cluster with a class that selects images by name.
fn select(world: &FunctionWorld, name: &str) {
    let cluster = ClusterName::parse("prod").unwrap();
    let class = ClassImages { filters: BTreeSet::from([by_name(name)]) };
    let registry = Registry {
        installation: world.installation.id.clone(),
        cluster: cluster.clone(),
        endpoint: String::new(),
        certificate_authority: String::new(),
        kubernetes_version: "1.33".to_owned(),
        service_cidr: "10.100.0.0/16".to_owned(),
        settings: Default::default(),
        gates: Default::default(),
        agent_queue: String::new(),
        agent_role: String::new(),
        launch_role: None,
        allowed: Default::default(),
    };
    let class_key = keys::node_class(&cluster, &NodeClassName::parse("default").unwrap());
    let writes = vec![
        items::put(keys::registry(&world.installation.region, &cluster), &registry),
        items::put(class_key, &class),
    ];
    block_on(world.table.commit(&content_commit(Vec::new(), writes))).unwrap();
}

fn record(world: &FunctionWorld, id: &ImageId) -> Option<ImageRecord> {
    let key = keys::image(&world.installation.region, id);
    let item = world.table.peek(&key)?;
    Some(items::from_item(&key, &item).unwrap())
}

fn state(world: &FunctionWorld, id: &ImageId) -> Option<ImageState> {
    Some(record(world, id)?.state)
}

fn swept(world: &FunctionWorld) -> Option<ImageSweep> {
    let key = keys::image_sweep(&world.installation.region);
    Some(items::from_item(&key, &world.table.peek(&key)?).unwrap())
}

fn by_name(name: &str) -> ImageFilter {
    ImageFilter {
        names: vec![name.to_owned()],
        owners: vec!["self".to_owned()],
        disabled: DisabledImages::Include,
        ..ImageFilter::default()
    }
}

fn said(world: &FunctionWorld) -> Vec<String> {
    let events = world.signals.take_events().into_iter();
    events.map(|(kind, detail)| format!("{kind} {}", detail["state"].as_str().unwrap())).collect()
}

fn new(name: &str) -> NewImage {
    NewImage::named(name, ImageArchitecture::X86_64)
}

#[test]
fn a_pending_image_is_announced_only_once_ec2_says_available() {
    let world = world();
    let id = world.ec2.create_image(new("nodes-1"));
    wake(&world, WakeCause::ImageChanged(Some(id.clone()))).unwrap();
    assert_eq!((state(&world, &id), said(&world)), (Some(ImageState::Pending), vec![]));
    world.clock.advance(SignedDuration::from_secs(61));
    wake(&world, WakeCause::ImageChanged(Some(id.clone()))).unwrap();
    assert_eq!(state(&world, &id), Some(ImageState::Available));
    assert_eq!(said(&world), ["Image Available available"]);
    wake(&world, WakeCause::ImageChanged(Some(id))).unwrap();
    assert!(said(&world).is_empty(), "the same word twice is said once");
}

/// A pipeline tags an image long after its creation: a class that selects by that tag is woken.
#[test]
fn a_pipelines_word_of_a_tagged_image_wakes_its_classes_though_its_state_is_known() {
    let world = world();
    let id = world.ec2.add_image(new("nodes-1"));
    wake(&world, WakeCause::ImageChanged(Some(id.clone()))).unwrap();
    assert_eq!(said(&world), ["Image Available available"]);
    world.ec2.tag_image(&id, "channel", "stable").unwrap();
    wake(&world, WakeCause::ImageChanged(Some(id.clone()))).unwrap();
    assert_eq!(said(&world), ["Image Available available"]);
    wake(&world, WakeCause::ImageChanged(Some(id))).unwrap();
    assert!(said(&world).is_empty(), "the same word twice is said once");
}

#[test]
fn a_failed_image_is_rejected_and_not_asked_for_again() {
    let world = world();
    let failed = NewImage { outcome: ImageOutcome::Failed("no disk".to_owned()), ..new("nodes-1") };
    let id = world.ec2.create_image(failed);
    world.clock.advance(SignedDuration::from_secs(61));
    wake(&world, WakeCause::ImageChanged(Some(id.clone()))).unwrap();
    assert_eq!(
        (state(&world, &id), said(&world)),
        (Some(ImageState::Failed), vec!["Image Rejected failed".to_owned()])
    );
    let before = world.ec2.calls();
    wake(&world, WakeCause::Sweep).unwrap();
    assert_eq!(world.ec2.calls(), before);
}

#[test]
fn the_sweep_alone_finds_what_events_would_have_said() {
    let world = world();
    select(&world, "nodes-*");
    let id = world.ec2.create_image(new("nodes-1"));
    world.ec2.create_image(new("other"));
    wake(&world, WakeCause::Sweep).unwrap();
    assert_eq!(state(&world, &id), Some(ImageState::Pending));
    world.clock.advance(SignedDuration::from_secs(61));
    wake(&world, WakeCause::Sweep).unwrap();
    assert_eq!(said(&world), ["Image Available available"]);
    world.ec2.disable_image(&id).unwrap();
    wake(&world, WakeCause::Sweep).unwrap();
    assert_eq!(said(&world), ["Image Rejected disabled"]);
    world.ec2.deregister_image(&id).unwrap();
    wake(&world, WakeCause::Sweep).unwrap();
    assert_eq!(
        (state(&world, &id), said(&world)),
        (Some(ImageState::Deregistered), vec!["Image Rejected deregistered".to_owned()])
    );
    wake(&world, WakeCause::Sweep).unwrap();
    assert!(said(&world).is_empty());
    let images = world.table.dump().filter(|(key, _)| key.sk.starts_with("IMAGE#")).count();
    assert_eq!(images, 1, "images that nobody selects aren't recorded");
}

#[test]
fn a_throttled_look_changes_nothing_and_comes_back() {
    let world = world();
    let id = world.ec2.add_image(new("nodes-1"));
    wake(&world, WakeCause::ImageChanged(Some(id.clone()))).unwrap();
    said(&world);
    let throttled = Ec2Error::Throttled { action: "DescribeImages".to_owned() };
    world.ec2.inject(Fault {
        call: Call::DescribeImages,
        when: FaultWhen::Next(1),
        effect: FaultEffect::Refused(throttled),
    });
    let error = wake(&world, WakeCause::ImageChanged(Some(id.clone()))).unwrap_err();
    assert_eq!(error.error_type(), "Ec2");
    assert_eq!((state(&world, &id), said(&world)), (Some(ImageState::Available), vec![]));
}

#[test]
fn every_change_of_state_has_its_record() {
    let world = world();
    let id = world.ec2.add_image(new("nodes-1"));
    wake(&world, WakeCause::ImageChanged(Some(id.clone()))).unwrap();
    let pk = format!("JOURNAL#REGION#us-east-1#image#{id}");
    let records: Vec<_> = world.table.dump().filter(|(key, _)| key.pk == pk).collect();
    assert_eq!(records.len(), 1);
    let message = records[0].1["message"].as_text().unwrap();
    assert_eq!(message, format!("image `{id}` is available: EC2NodeClasses that select it can use it"));
}

/// Another pass writes the record between this one's answer and its commit: whose answer is newer isn't known, so EC2
/// is asked again.
#[test]
fn an_answer_is_not_written_over_a_record_that_changed_since_it_was_read() {
    let check = |cause: fn(&ImageId) -> WakeCause, other: ImageState, asked: u64| {
        let world = world();
        select(&world, "nodes-*");
        let id = world.ec2.add_image(new("nodes-1"));
        wake(&world, WakeCause::ImageChanged(Some(id.clone()))).unwrap();
        let known = record(&world, &id).unwrap();
        said(&world);
        world.ec2.tag_image(&id, "channel", "stable").unwrap();
        let key = keys::image(&world.installation.region, &id);
        let theirs = ImageRecord { revision: known.revision + 1, state: other, ..known };
        let commit = content_commit(Vec::new(), vec![items::set(key.clone(), &theirs)]);
        let writes =
            move |commit: &tenon_table::Commit| commit.writes.iter().any(|write| *write.key() == key);
        let meeting = Meeting::new(&world, commit, writes);
        let before = world.ec2.calls()[&Call::DescribeImages].made;
        block_on(Images.handle(&meeting, &WakeScope::Region, &[cause(&id)])).unwrap();
        assert!(meeting.met());
        let found = record(&world, &id).unwrap();
        assert_eq!((found.state, found.revision, found.tags.len()), (ImageState::Available, 3, 1));
        assert_eq!(said(&world), ["Image Available available"], "announced once");
        assert_eq!(world.ec2.calls()[&Call::DescribeImages].made - before, asked);
        assert_eq!(swept(&world).is_some(), cause(&id) == WakeCause::Sweep);
    };
    let event = |id: &ImageId| WakeCause::ImageChanged(Some(id.clone()));
    check(event, ImageState::Pending, 2);
    check(event, ImageState::Disabled, 2);
    check(|_| WakeCause::Sweep, ImageState::Disabled, 2);
}

#[test]
fn a_record_of_an_older_release_is_written_over() {
    let world = world();
    let id = world.ec2.add_image(new("nodes-1"));
    wake(&world, WakeCause::ImageChanged(Some(id.clone()))).unwrap();
    let key = keys::image(&world.installation.region, &id);
    let mut item = world.table.peek(&key).unwrap();
    item.remove("revision");
    let put = tenon_table::Write::Put { key, item };
    block_on(world.table.commit(&content_commit(Vec::new(), vec![put]))).unwrap();
    world.ec2.disable_image(&id).unwrap();
    wake(&world, WakeCause::ImageChanged(Some(id.clone()))).unwrap();
    assert_eq!(
        record(&world, &id).map(|record| (record.state, record.revision)),
        Some((ImageState::Disabled, 1))
    );
}

#[test]
fn a_class_that_cant_be_read_hides_no_image_of_other_clusters() {
    let world = world();
    select(&world, "nodes-*");
    let broken = ClusterName::parse("broken").unwrap();
    let text = |name: &str| Item::from([(name.to_owned(), Value::text("x"))]);
    let class = keys::node_class(&broken, &NodeClassName::parse("default").unwrap());
    let writes = vec![
        Write::Put { key: keys::registry(&world.installation.region, &broken), item: text("cluster") },
        Write::Put { key: class, item: text("image_queries") },
    ];
    block_on(world.table.commit(&content_commit(Vec::new(), writes))).unwrap();
    let id = world.ec2.add_image(new("nodes-1"));
    assert!(matches!(wake(&world, WakeCause::Sweep), Err(HandlerError::Item { .. })));
    assert_eq!(state(&world, &id), Some(ImageState::Available));
    assert_eq!(swept(&world).unwrap().queries, BTreeSet::from([digest(&by_name("nodes-*"))]));
}

#[test]
fn a_sweep_says_which_queries_its_records_answer_and_only_if_all_were_answered() {
    let world = world();
    select(&world, "nodes-*");
    let id = world.ec2.add_image(new("nodes-1"));
    wake(&world, WakeCause::ImageChanged(Some(id.clone()))).unwrap();
    assert_eq!(swept(&world), None, "an event is no sweep");
    let at = world.clock.now();
    wake(&world, WakeCause::Sweep).unwrap();
    let queries = BTreeSet::from([digest(&by_name("nodes-*"))]);
    assert_eq!(swept(&world), Some(ImageSweep { at, queries }));
    // The image no longer matches the query, which only a query by its id can tell.
    let other = world.ec2.add_image(new("other"));
    wake(&world, WakeCause::ImageChanged(Some(other))).unwrap();
    world.clock.advance(SignedDuration::from_secs(1));
    let throttled = Ec2Error::Throttled { action: "DescribeImages".to_owned() };
    world.ec2.inject(Fault {
        call: Call::DescribeImages,
        when: FaultWhen::Nth(2),
        effect: FaultEffect::Refused(throttled),
    });
    wake(&world, WakeCause::Sweep).unwrap_err();
    assert_eq!(swept(&world).map(|swept| swept.at), Some(at));
}
