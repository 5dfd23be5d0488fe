//! Consequences of EC2's answers alone: the chosen image, and the report.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::json;
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::class_status::{ClassStatus, ConditionReason, Seen};
use tenon_domain::id::ImageId;
use tenon_domain::registry::Registry;
use tenon_domain::report::{Finding, Report};
use tenon_ec2::port::{Image, ImageArchitecture, ImageFacts, ImageFilter, ImageState, ResourceFilter};
use tenon_ec2::{Ec2, InstanceProfiles};
use tenon_memory_table::block_on;
use tenon_node_classes::choose::{self, KnownImages};
use tenon_node_classes::failed_image::FailedImages;
use tenon_node_classes::plan::{Answers, LookScope, NodeClassesInput, PartAnswer, SelectedImages, plan};
use tenon_node_classes::resolve::JudgedClass;
use tenon_snapshot::snapshot::{ChunkCache, read_classes};
use tenon_table::Consistency;
use tenon_table::items::{self, keys};
use tenon_twin::Call;

use crate::running::{Running, allowances, class, image, running, throttled};

/// A running cluster with one class, and both as they are read.
fn read() -> (Running, Ec2NodeClass, Registry) {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    let (table, cluster) = (&running.world.table, &running.cluster);
    let mut chunks = ChunkCache::default();
    let snapshot = read_classes(table, cluster, Consistency::Strong, &mut chunks);
    let class = block_on(snapshot).unwrap().unwrap().node_classes.remove(0);
    let key = keys::registry(&running.world.installation.region, cluster);
    let registry = items::from_item(&key, &table.peek(&key).unwrap()).unwrap();
    (running, class, registry)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// An image by id, name, and times of creation and deprecation.
fn made(id: &str, name: &str, created: Option<i64>, deprecated: Option<i64>) -> Image {
    Image {
        id: ImageId::parse(id).unwrap(),
        name: name.to_owned(),
        owner: "111122223333".to_owned(),
        owner_alias: None,
        architecture: Some(ImageArchitecture::X86_64),
        state: ImageState::Available,
        created_at: created.map(at),
        deprecated_at: deprecated.map(at),
        facts: ImageFacts::default(),
        tags: BTreeMap::new(),
    }
}

#[test]
fn the_best_image_of_an_architecture_is_taken_in_whatever_order_ec2_tells_them() {
    let (_, class, registry) = read();
    let judged = JudgedClass { class: &class, registry: &registry, account: "111122223333", now: at(100) };
    let unfinished = BTreeMap::new();
    let failed = FailedImages::default();
    let known =
        KnownImages { previous: &[], told: "", refused: &[], failed: &failed, unfinished: &unfinished };
    let check = |best: Image, other: Image| {
        let arm =
            Image { architecture: Some(ImageArchitecture::Arm64), ..made("ami-0", "arm", Some(1), None) };
        for found in [[best.clone(), other.clone(), arm.clone()], [arm, other, best.clone()]] {
            let chosen = choose::images(judged, &SelectedImages::none(), &found, known);
            let Seen::Holds(images) = chosen.seen else { panic!("{found:?}") };
            let ids: BTreeSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
            assert_eq!(ids, BTreeSet::from(["ami-0", best.id.as_str()]));
        }
    };
    check(made("ami-1", "a", Some(3), None), made("ami-2", "b", Some(2), None));
    check(made("ami-2", "b", Some(3), None), made("ami-1", "a", Some(2), None));
    check(made("ami-1", "a", Some(2), None), made("ami-2", "b", None, None));
    check(made("ami-1", "a", Some(2), None), made("ami-2", "b", Some(3), Some(100)));
    check(made("ami-1", "a", Some(3), Some(101)), made("ami-2", "b", Some(2), None));
    check(made("ami-1", "b", Some(2), None), made("ami-2", "a", Some(2), None));
    check(made("ami-2", "a", Some(2), None), made("ami-1", "a", Some(2), None));
}

/// EC2's answers for a class that selects everything.
fn answered(running: &Running) -> Answers {
    let ec2 = &running.world.ec2;
    let everything = ResourceFilter::default();
    Answers {
        subnets: PartAnswer::Answered(block_on(ec2.describe_subnets(&everything))),
        security_groups: PartAnswer::Answered(block_on(ec2.describe_security_groups(&everything))),
        images: SelectedImages {
            answer: block_on(ec2.describe_images(&ImageFilter::default(), None)).map(|page| page.items),
            ..SelectedImages::none()
        },
        profile: Some(PartAnswer::Answered(block_on(ec2.instance_profile("nodes")))),
        ..Answers::none()
    }
}

#[test]
fn a_report_names_what_was_kept_without_an_answer_and_what_keeps_a_class_from_being_ready() {
    let (running, class, registry) = read();
    let now = running.world.clock.now();
    let look = |answers: Answers, before: Option<&ClassStatus>| {
        plan(&NodeClassesInput {
            now,
            cluster: running.cluster.clone(),
            account: running.world.installation.account.clone(),
            registry: Ok(registry.clone()),
            looked: vec![(class.clone(), answers)],
            unfinished: BTreeMap::new(),
            statuses: before.map(|status| (status.name.clone(), status.clone())).into_iter().collect(),
            gone: BTreeSet::new(),
            used: BTreeMap::from([("ending".parse().unwrap(), BTreeSet::new())]),
            refused: BTreeMap::new(),
            spot_refused: None,
            boots: Vec::new(),
            verdicts: BTreeMap::new(),
            unreadable: Vec::new(),
            snapshot: 1,
            scope: LookScope::Everything,
            look_at: now,
        })
    };
    let told = |report: Report| {
        let mut findings: Vec<Finding> = Vec::new();
        report.deliver(&mut findings);
        findings.iter().map(|finding| finding.message("node-classes")).collect::<Vec<_>>()
    };
    let (first, report) = look(answered(&running), None);
    assert_eq!(told(report), [""; 0]);
    let status = &first.changes[0].status;
    let unanswered = || Answers {
        subnets: PartAnswer::Answered(Err(throttled(Call::DescribeSubnets))),
        ..answered(&running)
    };
    let (_, report) = look(unanswered(), Some(status));
    let kept = "keeping what EC2NodeClass `default` last resolved to: AWS didn't answer about `SubnetsReady`; next \
                attempt in 20 s";
    assert_eq!(told(report), [kept]);
    // A class that was never resolved shows it in its conditions.
    let (plan, report) = look(unanswered(), None);
    assert_eq!(told(report), [""; 0]);
    let obstacle = plan.changes[0].status.obstacle().unwrap();
    assert_eq!(obstacle.reason, ConditionReason::SubnetResolutionFailed);
}
