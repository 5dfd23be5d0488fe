//! Launch templates: which leave and when, and that a deletion and a launch exclude each other.

use tenon_domain::catalog::facts::Architecture;
use tenon_domain::class_status::{ClassStatus, ResolvedImage};
use tenon_domain::launch_verdict::{ClassVerdicts, JudgedRequest, LaunchVerdict, VerdictOutcome};
use tenon_domain::reservation::ClassReservations;
use tenon_domain::unavailable::RequestDigest;
use tenon_ec2::Ec2;
use tenon_ec2::port::{
    CreateFleetRequest, CreateLaunchTemplate, FleetLaunchTemplate, FleetTags, LaunchTemplateData,
    LaunchTemplateFilter, OnDemandAllocation, SpotAllocation,
};
use tenon_table::items::{LeavingTemplates, TemplateItem, add_step};
use tenon_table::{Commit, WriteCondition};

use super::*;
use crate::templates::{
    DELETED_MOST, LEAVES_FOR, LOOK_EVERY, LaunchUse, TemplatePlan, TemplatesView, UNNEEDED_FOR,
};
use crate::unneeded::UnneededTemplates;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn hours(n: i64) -> Timestamp {
    EPOCH + HOUR * i32::try_from(n).unwrap()
}

fn item(name: &str) -> TemplateItem {
    TemplateItem {
        name: name.to_owned(),
        class: "default".parse().unwrap(),
        image: "ami-1".parse().unwrap(),
        created_at: EPOCH,
        used_at: EPOCH,
        request: String::new(),
        made_at: Some(EPOCH),
    }
}

/// Templates that both the table and EC2 have, and that were noted as unneeded at the epoch.
fn view(names: &[&str]) -> TemplatesView {
    let names = || names.iter().map(|name| (*name).to_owned());
    TemplatesView {
        revision: 7,
        in_ec2: names().map(|name| (name, "default".parse().unwrap())).collect(),
        items: names().map(|name| (name.clone(), item(&name))).collect(),
        uses: BTreeMap::new(),
        leaving: LeavingTemplates::default(),
        unneeded: UnneededTemplates { revision: 1, since: names().map(|name| (name, EPOCH)).collect() },
    }
}

/// The class `default` with these images.
fn class(images: &[&str]) -> ClassStatus {
    let image = |id: &&str| ResolvedImage {
        id: id.parse().unwrap(),
        name: (*id).to_owned(),
        architecture: Architecture::X86_64,
        variant: tenon_domain::class_status::ImageVariant::Any,
        boot_mode: None,
        created_at: EPOCH,
        own_snapshots: BTreeMap::new(),
    };
    ClassStatus {
        name: "default".parse().unwrap(),
        revision: 1,
        generation: 1,
        uid: None,
        spec_digest: String::new(),
        subnets: vec![],
        security_groups: vec![],
        images: images.iter().map(image).collect(),
        rejected_images: vec![],
        refused_images: vec![],
        reservations: ClassReservations::default(),
        hash: None,
        placement_group: None,
        profile_seen: None,
        instance_profile: None,
        conditions: vec![],
        resolved_at: EPOCH,
    }
}

fn look(view: &TemplatesView, now: Timestamp) -> TemplatePlan {
    crate::templates::plan(view, &input(now, vec![], vec![]))
}

fn set_of(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_template_leaves_a_day_after_nothing_needed_it() {
    let noted = |plan: &TemplatePlan| plan.unneeded.as_ref().map(|unneeded| unneeded.since.clone());
    let mut fresh = view(&["a"]);
    fresh.unneeded = UnneededTemplates::default();
    let plan = look(&fresh, hours(30));
    assert_eq!(noted(&plan), Some(BTreeMap::from([("a".to_owned(), hours(30))])));
    assert_eq!((plan.leaving, plan.delete), (None, BTreeSet::new()));
    assert_eq!(look(&view(&["a"]), hours(23)), TemplatePlan { revision: 7, ..TemplatePlan::default() });
    let plan = look(&view(&["a"]), hours(24));
    let leaving = plan.leaving.unwrap();
    assert_eq!((leaving.revision, leaving.since), (1, BTreeMap::from([("a".to_owned(), hours(24))])));
    assert_eq!((plan.delete, plan.forgotten), (set_of(&["a"]), set_of(&["a"])));
    assert_eq!(plan.unneeded, Some(UnneededTemplates { revision: 2, since: BTreeMap::new() }));
    let [record] = plan.journal.as_slice() else { panic!("{:?}", plan.journal) };
    assert_eq!((record.decision, record.subject.name.as_str()), (Decision::TemplatesDeleted, "default"));
    assert_eq!(
        record.message,
        "deleting launch template `a` of EC2NodeClass `default`: neither the class nor a launch has needed it for 24 h"
    );
}

#[test]
fn launches_and_the_class_that_makes_it_need_a_template() {
    let check = |used: Option<LaunchUse>, images: &[&str], leaves: bool, counts: bool| {
        let mut seen = view(&["a"]);
        seen.uses.extend(used.map(|used| ("a".to_owned(), used)));
        let mut input = input(hours(48), vec![], vec![]);
        input.classes.insert("default".parse().unwrap(), class(images));
        let plan = crate::templates::plan(&seen, &input);
        assert_eq!(plan.leaving.is_some(), leaves, "{used:?} {images:?}");
        let noted = plan.unneeded.map_or(1, |unneeded| unneeded.since.len());
        assert_eq!(noted == 1, counts, "{used:?} {images:?}");
    };
    // A name that leaves is noted no longer; a need ends the note.
    check(None, &["ami-2"], true, false);
    check(Some(LaunchUse::At(hours(24))), &["ami-2"], true, false);
    check(Some(LaunchUse::At(hours(25))), &["ami-2"], false, true);
    check(Some(LaunchUse::At(hours(48))), &["ami-2"], false, false);
    check(Some(LaunchUse::Open), &["ami-2"], false, false);
    check(Some(LaunchUse::At(hours(1))), &["ami-2", "ami-1"], false, false);
    // A class has such a template for each NodePool that it ever had; this one's launches ended a week ago.
    check(None, &["ami-1"], true, false);
}

#[test]
fn a_verdict_needs_the_templates_of_its_question_while_it_holds() {
    let check = |template: &str, until: Timestamp, leaves: bool| {
        let mut input = input(hours(48), vec![], vec![]);
        let digest = RequestDigest::of(["spec"]);
        let request = JudgedRequest { digest: &digest, refresh: None };
        let answer = VerdictOutcome::Allowed;
        let verdict = LaunchVerdict::of_dry_run(None, request, &Architecture::Arm64, answer, hours(36));
        let verdict = LaunchVerdict { until, templates: set_of(&[template]), ..verdict };
        input.verdicts.insert("default".parse().unwrap(), ClassVerdicts(vec![verdict]));
        let plan = crate::templates::plan(&view(&["a"]), &input);
        assert_eq!(plan.leaving.is_some(), leaves, "{template} {until}");
    };
    check("a", hours(49), false);
    check("a", hours(48), true);
    check("b", hours(49), true);
}

#[test]
fn a_template_without_an_item_and_an_item_without_a_template_leave_too() {
    let mut seen = view(&["in-ec2", "in-the-table"]);
    seen.items.remove("in-ec2");
    seen.in_ec2.remove("in-the-table");
    let plan = look(&seen, hours(24));
    let names = set_of(&["in-ec2", "in-the-table"]);
    assert_eq!(plan.leaving.unwrap().since.into_keys().collect::<BTreeSet<_>>(), names);
    assert_eq!((plan.delete, plan.forgotten), (set_of(&["in-ec2"]), names));
    assert_eq!(plan.journal.len(), 1);
}

#[test]
fn a_name_is_free_when_ec2_lacks_the_template_for_good() {
    let leaving = |in_ec2: bool, age: SignedDuration| {
        let mut seen = view(&["a"]);
        seen.unneeded = UnneededTemplates::default();
        seen.items.clear();
        seen.leaving = LeavingTemplates { revision: 3, since: BTreeMap::from([("a".to_owned(), EPOCH)]) };
        if !in_ec2 {
            seen.in_ec2.clear();
        }
        look(&seen, EPOCH + age)
    };
    let unchanged = TemplatePlan { revision: 7, ..TemplatePlan::default() };
    // The first call was lost or throttled.
    assert_eq!(leaving(true, LEAVES_FOR * 9), TemplatePlan { delete: set_of(&["a"]), ..unchanged.clone() });
    assert_eq!(leaving(false, LEAVES_FOR - SignedDuration::from_secs(1)), unchanged);
    let free = LeavingTemplates { revision: 4, since: BTreeMap::new() };
    assert_eq!(leaving(false, LEAVES_FOR), TemplatePlan { leaving: Some(free), ..unchanged });
}

#[test]
fn a_look_deletes_a_few_and_the_next_audit_looks_for_the_rest() {
    let names: Vec<String> = (0..DELETED_MOST + 3).map(|n| format!("t-{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let many = look(&view(&names), hours(24));
    assert_eq!((many.delete.len(), many.left, many.journal.len()), (DELETED_MOST, 3, 1));
    let told = &many.journal[0].message;
    assert!(told.starts_with("deleting launch template `t-00` and 19 more of"), "{told}");
    let looked_at = |names: &[&str]| {
        let mut seen = with_ec2(input(hours(24), vec![], vec![]), vec![]);
        seen.audit.at = None;
        seen.audit.templates_at = Some(EPOCH);
        seen.templates = Some(view(names));
        planned(&seen).0.audit.record.unwrap().templates_at
    };
    assert_eq!(looked_at(&names), Some(EPOCH));
    assert_eq!(looked_at(&["a"]), Some(hours(24)));
}

#[test]
fn nothing_leaves_while_halt_stands() {
    let mut seen = with_ec2(input(hours(24), vec![], vec![]), vec![]);
    seen.audit.at = None;
    seen.audit.templates_at = Some(EPOCH);
    seen.templates = Some(view(&["a"]));
    assert!(planned(&seen).0.templates.leaving.is_some());
    seen.halt = Some(Halt { since: EPOCH, reason: String::new() });
    assert_eq!(planned(&seen).0.templates, TemplatePlan::default());
    assert!(!crate::templates::is_due(&seen));
}

fn make(world: &FunctionWorld, name: &str) {
    let tags = [
        (tenon_domain::tags::INSTALLATION, world.installation.id.as_str()),
        (tenon_domain::tags::CLUSTER, "prod"),
        (labels::EC2NODECLASS, "default"),
    ];
    let made = CreateLaunchTemplate {
        name: name.to_owned(),
        data: LaunchTemplateData::default(),
        tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
    };
    block_on(world.ec2.create_launch_template(&made)).unwrap();
    commit(world, vec![put(keys::template(&cluster(), name), &item(name))]);
}

fn in_ec2(world: &FunctionWorld) -> BTreeSet<String> {
    let found =
        block_on(world.ec2.describe_launch_templates(&LaunchTemplateFilter::default(), None)).unwrap();
    found.items.into_iter().map(|template| template.name).collect()
}

/// Sweeps until so much time has passed.
fn live(world: &FunctionWorld, lifecycle: &Lifecycle, time: SignedDuration) {
    let until = world.clock.now() + time;
    while world.clock.now() < until {
        world.clock.advance(SignedDuration::from_mins(10));
        sweep(world, lifecycle);
    }
}

fn launch_of(name: &str, at: Timestamp) -> Launch {
    let request = CreateFleetRequest {
        client_token: "token".parse().unwrap(),
        target_capacity: 1,
        capacity_type: TargetCapacityType::OnDemand,
        on_demand_allocation: OnDemandAllocation::LowestPrice,
        spot_allocation: SpotAllocation::PriceCapacityOptimized,
        launch_templates: vec![FleetLaunchTemplate {
            name: name.to_owned(),
            version: "$Latest".to_owned(),
            overrides: vec![],
        }],
        tags: FleetTags { instance: Tags::new(), volume: Tags::new(), fleet: Tags::new() },
        context: None,
    };
    let launch = with_launch(input(at, vec![], vec![]), settled()).launches.into_values().next().unwrap();
    Launch { request: request.to_stored(), created_at: at, ..launch }
}

#[test]
fn an_unneeded_template_is_deleted_and_its_name_is_free_later() {
    let (world, lifecycle) = (world_with(&[]), Lifecycle::new());
    make(&world, "old");
    make(&world, "used");
    let launch = launch_of("used", EPOCH);
    commit(&world, vec![put(keys::launch(&cluster(), &launch.id), &launch)]);
    let class = class(&["ami-1"]);
    commit(&world, vec![put(keys::node_class(&cluster(), &class.name), &class)]);
    live(&world, &lifecycle, LOOK_EVERY + UNNEEDED_FOR - HOUR);
    assert_eq!(in_ec2(&world), set_of(&["old", "used"]));
    live(&world, &lifecycle, LOOK_EVERY + HOUR);
    assert_eq!(in_ec2(&world), set_of(&["used"]));
    assert_eq!(world.table.peek(&keys::template(&cluster(), "old")), None);
    let leaving = || {
        let key = keys::leaving_templates(&cluster());
        let item: LeavingTemplates = from_item(&key, &world.table.peek(&key).unwrap()).unwrap();
        item.since.into_keys().collect::<BTreeSet<_>>()
    };
    assert_eq!(leaving(), set_of(&["old"]));
    live(&world, &lifecycle, LOOK_EVERY + HOUR);
    assert_eq!(leaving(), BTreeSet::new());
    assert!(world.table.peek(&keys::template(&cluster(), "used")).is_some());
}

/// A launch that is committed after the look raises the revision.
#[test]
fn a_launch_committed_after_the_look_stops_the_deletion() {
    let world = world_with(&[]);
    make(&world, "old");
    let mut seen = with_ec2(input(hours(24), vec![], vec![]), vec![]);
    seen.audit = AuditRecord { templates_at: Some(EPOCH), ..AuditRecord::default() };
    seen.templates = Some(TemplatesView { revision: 0, ..view(&["old"]) });
    seen.templates.as_mut().unwrap().unneeded.revision = 0;
    let (planned, _) = planned(&seen);
    assert_eq!(planned.templates.delete, set_of(&["old"]));
    let cluster = cluster();
    let condition = WriteCondition::Cluster { cluster: cluster.clone(), revision: 0 };
    let launch: Commit = content_commit(vec![condition], vec![add_step(&cluster)]);
    block_on(world.table.commit(&launch)).unwrap();
    let done = block_on(crate::commit::commit(&world, &cluster, &planned, seen.now)).unwrap();
    block_on(crate::execute::execute(&world, &cluster, &planned, &done, seen.now)).unwrap();
    assert_eq!(in_ec2(&world), set_of(&["old"]));
    assert!(world.table.peek(&keys::template(&cluster, "old")).is_some());
}
