//! One example of every kind: its golden form, its reading, and the error for a broken one.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tenon_domain::catalog::LearnedRecord;
use tenon_domain::claim::{
    Claim, ClaimState, CommandRole, Consolidatable, Drift, DriftReason, LaunchedInstance, Terms,
};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::command::CommandState;
use tenon_domain::launch::{Launch, LaunchCause, LaunchState};
use tenon_domain::launch_verdict::ClassVerdicts;
use tenon_domain::money::Currency;
use tenon_domain::placement::{LaunchPlacement, Tenancy};
use tenon_domain::registry::{
    Allowances, FeatureGate, MinValuesPolicy, Permission, PlanPolicies, PreferencePolicy, Registry,
};
use tenon_domain::unavailable::{Mark, OfferingKey};
use tenon_domain::wake::FunctionName;
use tenon_domain::zonal_shift::ShiftEnd;

use super::*;
use crate::key::VERSION;
use crate::{Item, Key, Value, Write};

mod claim_samples;
mod class_samples;
mod later_words;
mod other_releases;
mod samples;

use claim_samples::*;
use class_samples::*;
use samples::*;

/// What is done with the example of each kind.
trait SampleVisitor {
    fn visit<T: ItemForm + PartialEq + std::fmt::Debug>(&mut self, key: Key, value: &T);
}

/// The kinds' golden text; asserts that each reads back as the same value.
#[derive(Default)]
struct GoldenText(String);

impl SampleVisitor for GoldenText {
    fn visit<T: ItemForm + PartialEq + std::fmt::Debug>(&mut self, key: Key, value: &T) {
        let item = to_item(value);
        assert_eq!(from_item::<T>(&key, &item).unwrap(), *value);
        render(&mut self.0, &key, &item);
    }
}

fn render(text: &mut String, key: &Key, item: &Item) {
    writeln!(text, "{key}").unwrap();
    for (name, value) in item {
        writeln!(text, "  {name}: {}", show(value)).unwrap();
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::S(found) => format!("{found:?}"),
        Value::N(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::B(bytes) => format!("{} bytes", bytes.len()),
        Value::Null => "null".into(),
        Value::L(values) => format!("[{}]", values.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::M(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}: {}", show(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A claim with all that disruption writes.
fn drifted_claim() -> Claim {
    let drift = Drift {
        reason: DriftReason::AmiDrift,
        since: at("00:00:07"),
        from: "ami-0abc".into(),
        to: "ami-0def".into(),
        fields: Vec::new(),
    };
    let role = CommandRole::Replacement("command-1".parse().unwrap());
    let could_go = Consolidatable { since: at("00:10:00"), pods: Some("3k9x2".into()) };
    Claim { drift: Some(drift), consolidatable: Some(could_go), role, ..claim(ClaimState::Planned) }
}

fn visit_samples(to: &mut impl SampleVisitor) {
    let (c, r) = (&cluster(), &region());
    to.visit(keys::registry(r, c), &registry_entry());
    for state in states() {
        to.visit(keys::claim(c, &name("default-3k9x2")), &claim(state));
    }
    to.visit(keys::claim(c, &name("default-3k9x2")), &drifted_claim());
    to.visit(keys::launch(c, &launch().id), &launch());
    let settled = Launch {
        cause: LaunchCause::Replacement("command-1".parse().unwrap()),
        state: LaunchState::Settled { at: at("00:00:09"), instances: 2 },
        ..launch()
    };
    to.visit(keys::launch(c, &launch().id), &settled);
    let since = at("00:00:08");
    for state in [
        CommandState::Replacing { since, attempts: 1, not_before: since, unplanned: 0 },
        CommandState::Replacing { since, attempts: 1, not_before: since, unplanned: 2 },
        CommandState::Draining { since },
        CommandState::Done { at: since },
    ] {
        to.visit(keys::command(c, &"command-1".parse().unwrap()), &command(state));
    }
    to.visit(keys::node_class(c, &"linux".parse().unwrap()), &class_status());
    to.visit(keys::node_class(c, &"linux".parse().unwrap()), &verdicts());
    to.visit(keys::node_pool(c, &"default".parse().unwrap()), &pool_status());
    to.visit(keys::template(c, "tenon-prod-12ab"), &template_record());
    to.visit(keys::leaving_templates(c), &leaving_templates());
    to.visit(keys::seen(c, FunctionName::Provisioner), &seen_by_provisioner());
    to.visit(keys::told(c, FunctionName::Provisioner), &told());
    to.visit(keys::trial(c, FunctionName::Provisioner), &trial());
    to.visit(keys::halt(c), &Halt { since, reason: "instances of launches that the table lost".into() });
    let owner = InstanceOwner {
        instance: instance().id,
        cluster: cluster(),
        claim: name("default-3k9x2"),
        offering: OfferingKey::parse("spot#use1-az1#m5.large"),
    };
    to.visit(keys::instance(&owner.instance), &owner);
    to.visit(keys::image(r, &image_record().id), &image_record());
    to.visit(keys::image_sweep(r), &image_sweep());
    let waiting = Some("next".parse().unwrap());
    let lease = DryRunLease { revision: 3, free_at: at("00:00:08"), cluster: cluster(), waiting };
    to.visit(keys::dry_run(r), &lease);
    to.visit(keys::unavailable(r, &mark().key), &mark());
    to.visit(keys::unavailable(r, &probed_quota().key), &probed_quota());
    to.visit(keys::learned(r, &learned().instance_type, &learned().image, &cluster()), &learned());
    to.visit(keys::boot(r, c, &boot().class, &boot().image), &boot());
    to.visit(keys::catalog(r), &catalog_meta());
    to.visit(keys::instance_type(r, &type_record().name), &type_record());
    to.visit(keys::types_claim(r), &TypesClaim { revision: 3, until: at("00:01:00") });
    to.visit(keys::launched_pods(c, launched_pods().at, &launched_pods().launch), &launched_pods());
}

#[test]
fn every_kind_has_its_golden_form_and_reads_back() {
    let mut golden = GoldenText::default();
    visit_samples(&mut golden);
    let text = &mut golden.0;
    for write in
        Journal::of(JournalOf::Cluster(&cluster())).writes(&journal_record(), DecisionCounter::Subject(12))
    {
        let Write::Put { key, item } = write else { panic!("{write:?}") };
        journal_from_item(&key, &item).unwrap();
        render(text, &key, &item);
    }
    insta::assert_snapshot!(text);
}

#[test]
fn prices_are_named_by_their_currency_and_by_whose_they_are() {
    let of = Some("us-east-1".parse().unwrap());
    let chinese = TypeRecord { currency: Currency::Cny, on_demand_of: of, ..type_record() };
    let item = to_item(&chinese);
    assert_eq!(item["on_demand_cny_per_hour"].as_text(), Some("0.096"));
    assert_eq!(item["on_demand_of_region"].as_text(), Some("us-east-1"));
    assert!(item.keys().all(|name| !name.contains("usd")), "{item:?}");
    let key = keys::instance_type(&region(), &chinese.name);
    assert_eq!(from_item::<TypeRecord>(&key, &item).unwrap(), chinese);
    // The attribute with the other currency's name is removed.
    let Write::Set { remove, .. } = set(key, &chinese) else { panic!() };
    assert!(remove.contains(&"on_demand_usd_per_hour".to_owned()), "{remove:?}");
}

#[test]
fn what_a_node_lacked_is_kept() {
    let lacked = Some("Node `n` isn't Ready".to_owned());
    let given_up = Claim { lacked, ..claim(ClaimState::Planned) };
    let key = keys::claim(&cluster(), &given_up.name);
    assert_eq!(from_item::<Claim>(&key, &to_item(&given_up)).unwrap(), given_up);
}

fn check_error(change: impl FnOnce(&mut Item), expected: &str) {
    let key = keys::claim(&cluster(), &name("default-3k9x2"));
    let mut item = to_item(&claim(ClaimState::Launched { instance: instance(), at: at("00:00:00") }));
    change(&mut item);
    let error = from_item::<Claim>(&key, &item).unwrap_err();
    assert_eq!(error.to_string(), "item `CLUSTER#prod/NODECLAIM#default-3k9x2`");
    assert_eq!(error.field.to_string(), expected);
}

#[test]
fn an_item_without_its_form_names_the_attribute() {
    check_error(|item| drop(item.remove("pool")), "attribute `pool`: it is missing");
    check_error(
        |item| drop(item.insert("phase".into(), Value::number(1_u64))),
        "attribute `phase`: it isn't a text",
    );
    check_error(
        |item| drop(item.insert("phase".into(), Value::text("Lost"))),
        "attribute `phase`: `Lost` is unknown",
    );
    check_error(
        |item| {
            let Some(Value::M(instance)) = item.get_mut("instance") else { panic!() };
            instance.insert("id".into(), Value::text("x"));
        },
        "attribute `instance.id`: `x` is not a valid instance id: expected `i-` and hexadecimal digits",
    );
    check_error(
        |item| drop(item.insert("requests".into(), Value::M([("cpu".into(), Value::Bool(true))].into()))),
        "attribute `requests.cpu`: it isn't a text",
    );
}

#[test]
fn versions_are_read_one_before_and_one_after() {
    let key = keys::halt(&cluster());
    let halt = Halt { since: at("00:00:00"), reason: "restored".into() };
    let read = |version: u64| {
        let mut item = to_item(&halt);
        item.insert(VERSION.into(), Value::number(version));
        item.insert("from_the_future".into(), Value::Bool(true));
        from_item::<Halt>(&key, &item)
    };
    for version in 0..=2 {
        assert_eq!(read(version).unwrap(), halt);
    }
    assert_eq!(
        read(3).unwrap_err().field.to_string(),
        "attribute `v`: can't read version 3 of the form: expected at most 2; update this function first"
    );
}

/// Older marks without a revision, and instances without an offering.
#[test]
fn a_launchs_request_is_deflated_and_read_plain_as_well() {
    let key = keys::launch(&cluster(), &launch().id);
    let long =
        Launch { request: format!("[{}]", r#"{"instance_type":"m5.large"},"#.repeat(300)), ..launch() };
    let mut item = to_item(&long);
    assert!(matches!(&item["request"], Value::B(bytes) if bytes.len() < 200), "{item:?}");
    assert_eq!(from_item::<Launch>(&key, &item).unwrap(), long);
    item.insert("request".to_owned(), Value::text(&long.request));
    assert_eq!(from_item::<Launch>(&key, &item).unwrap(), long);
    item.insert("request".to_owned(), Value::B(vec![0xff; 9]));
    let error = from_item::<Launch>(&key, &item).unwrap_err();
    assert_eq!(error.field.to_string(), "attribute `request`: corrupt deflate stream");
}

#[test]
fn a_mark_and_an_owner_of_before_are_read() {
    let (key, mut item) = (keys::unavailable(&region(), &mark().key), to_item(&mark()));
    for gone in ["revision", "asked_at", "next_probe"] {
        item.remove(gone).unwrap();
    }
    let read = from_item::<Mark>(&key, &item).unwrap();
    assert_eq!(read, Mark { revision: 0, asked_at: mark().since, ..mark() });
    let (instance, claim) = (instance().id, name("default-3k9x2"));
    let owner = InstanceOwner { instance, cluster: cluster(), claim, offering: None };
    let (key, item) = (keys::instance(&owner.instance), to_item(&owner));
    assert!(!item.contains_key("offering"));
    assert_eq!(from_item::<InstanceOwner>(&key, &item).unwrap(), owner);
}

/// DynamoDB may delete a mark only after its effect has ended; an ended lease is one attribute less.
#[test]
fn a_mark_expires_when_it_is_forgotten() {
    let check = |mark: &Mark, forgotten: &str| {
        assert_eq!(to_item(mark)["expires_at"], Value::number(at(forgotten).as_second()));
    };
    check(&mark(), "02:03:30");
    check(&probed_quota(), "02:07:00");
    check(&Mark { count: 0, ..mark() }, "00:03:30");
    let Write::Set { remove, .. } = set(keys::halt(&cluster()), &mark()) else { panic!() };
    assert_eq!(remove, ["message", "from_vcpus", "probe"]);
}

#[test]
fn a_registry_of_before_learns_memory() {
    let (key, mut item) = (keys::registry(&region(), &cluster()), to_item(&registry_entry()));
    let Some(Value::M(settings)) = item.get_mut("settings") else { panic!() };
    settings.remove("learned_memory").unwrap();
    assert_eq!(from_item::<Registry>(&key, &item).unwrap(), registry_entry());
    let Some(Value::M(settings)) = item.get_mut("settings") else { panic!() };
    settings.insert("learned_memory".into(), Value::text("Disabled"));
    assert_eq!(from_item::<Registry>(&key, &item).unwrap().settings.learned_memory, FeatureGate::Disabled);
}

#[test]
fn roles_of_a_registry_of_before_have_profiles_of_their_names() {
    let (key, mut item) = (keys::registry(&region(), &cluster()), to_item(&registry_entry()));
    let Some(Value::M(allowed)) = item.get_mut("allowed") else { panic!() };
    allowed.remove("node_profiles").unwrap();
    let read = from_item::<Registry>(&key, &item).unwrap();
    assert_eq!(read.allowed.node_roles, tags(&[("nodes", "nodes"), ("team", "team")]));
    assert_eq!(to_item(&read), item, "there is nothing to say of such profiles");
}

#[test]
fn an_entry_of_a_stack_before_the_bounds_has_none() {
    let (key, mut item) = (keys::registry(&region(), &cluster()), to_item(&registry_entry()));
    let Some(Value::M(allowed)) = item.get_mut("allowed") else { panic!() };
    for bound in ["max_vcpus", "families", "public_addresses", "imds_v1", "user_data"] {
        allowed.remove(bound).unwrap();
    }
    let read = from_item::<Registry>(&key, &item).unwrap().allowed;
    let unbounded = Allowances {
        max_vcpus: None,
        families: BTreeSet::new(),
        public_addresses: Permission::Allowed,
        imds_v1: Permission::Allowed,
        user_data: Permission::Allowed,
        ..registry_entry().allowed
    };
    assert_eq!(read, unbounded);
}

#[test]
fn an_entry_of_a_stack_before_launch_roles_names_none() {
    let (key, mut item) = (keys::registry(&region(), &cluster()), to_item(&registry_entry()));
    item.remove("launch_role").unwrap();
    assert_eq!(from_item::<Registry>(&key, &item).unwrap().launch_role, None);
}

#[test]
fn learned_memory_of_before_its_cluster_was_kept_is_nobodys_own() {
    let key = Key::new(keys::region_pk(&region()), "LEARNED#m5.large#ami-0abc");
    let mut item = to_item(&learned());
    item.remove("cluster").unwrap();
    assert_eq!(item["seen_by"], Value::text("prod"), "who reads the form of before asks for it");
    assert_eq!(
        from_item::<LearnedRecord>(&key, &item).unwrap(),
        LearnedRecord { cluster: None, ..learned() }
    );
}

#[test]
fn a_registry_of_before_doesnt_ask_for_zonal_shifts() {
    let (key, mut item) = (keys::registry(&region(), &cluster()), to_item(&registry_entry()));
    let Some(Value::M(settings)) = item.get_mut("settings") else { panic!() };
    settings.remove("zonal_shift").unwrap();
    assert_eq!(from_item::<Registry>(&key, &item).unwrap().settings.zonal_shift, FeatureGate::Disabled);
}

#[test]
fn a_registry_of_before_asks_by_dry_runs() {
    let (key, mut item) = (keys::registry(&region(), &cluster()), to_item(&registry_entry()));
    let Some(Value::M(settings)) = item.get_mut("settings") else { panic!() };
    settings.remove("dry_runs").unwrap();
    assert_eq!(from_item::<Registry>(&key, &item).unwrap().settings.dry_runs, FeatureGate::Enabled);
}

#[test]
fn a_registry_of_before_plans_as_before() {
    let (key, mut item) = (keys::registry(&region(), &cluster()), to_item(&registry_entry()));
    let Some(Value::M(settings)) = item.get_mut("settings") else { panic!() };
    settings.remove("preference_policy").unwrap();
    settings.remove("min_values_policy").unwrap();
    let settings = from_item::<Registry>(&key, &item).unwrap().settings;
    let before = PlanPolicies { preferences: PreferencePolicy::Respect, min_values: MinValuesPolicy::Strict };
    assert_eq!(settings.policies, before);
}

#[test]
fn a_registry_of_before_lists_no_default_spread() {
    let (key, mut item) = (keys::registry(&region(), &cluster()), to_item(&registry_entry()));
    let Some(Value::M(settings)) = item.get_mut("settings") else { panic!() };
    settings.remove("default_spread").unwrap();
    assert_eq!(from_item::<Registry>(&key, &item).unwrap().settings.default_spread, []);
}

/// Both functions write one item, and neither removes what the other wrote.
#[test]
fn a_class_and_its_verdicts_share_an_item() {
    let key = keys::node_class(&cluster(), &class_status().name);
    let names = |write: Write| {
        let Write::Set { set, remove, .. } = write else { panic!() };
        let written = set.into_keys().filter(|name| name != VERSION);
        written.chain(remove).collect::<std::collections::BTreeSet<_>>()
    };
    let of_verdicts = names(set(key.clone(), &verdicts()));
    assert!(names(set(key.clone(), &class_status())).is_disjoint(&of_verdicts));
    assert_eq!(
        from_item::<ClassVerdicts>(&key, &to_item(&class_status())).unwrap(),
        ClassVerdicts::default()
    );
}

/// The class's conditions, each with this reason, and the item.
#[test]
fn an_autoshift_without_an_end_reads_back() {
    let mut status = class_status();
    for subnet in &mut status.subnets {
        subnet.shifted = Some(ShiftEnd::Open);
    }
    let key = keys::node_class(&cluster(), &status.name);
    assert_eq!(from_item::<ClassStatus>(&key, &to_item(&status)).unwrap(), status);
}

#[test]
fn a_claim_of_before_its_subnet_was_kept_is_read() {
    let key = keys::claim(&cluster(), &name("default-3k9x2"));
    let at = at("00:00:01");
    let mut item = to_item(&claim(ClaimState::Launched { instance: instance(), at }));
    let Some(Value::M(fields)) = item.get_mut("instance") else { panic!() };
    fields.remove("subnet").unwrap();
    let read = from_item::<Claim>(&key, &item).unwrap();
    assert_eq!(read.state.instance().unwrap(), &LaunchedInstance { subnet: None, ..instance() });
}

#[test]
fn a_launch_and_its_claim_keep_their_placement() {
    let key = keys::launch(&cluster(), &launch().id);
    assert!(!to_item(&launch()).contains_key("placement_group"));
    for partition in [None, Some(2)] {
        let placement = Some(LaunchPlacement { group: "pg-1".parse().unwrap(), partition });
        let placed = Launch { placement: placement.clone(), ..launch() };
        assert_eq!(from_item::<Launch>(&key, &to_item(&placed)).unwrap(), placed);
        let key = keys::claim(&cluster(), &name("default-3k9x2"));
        let instance = LaunchedInstance { placement, ..instance() };
        let placed = claim(ClaimState::Launched { instance, at: at("00:00:01") });
        assert_eq!(from_item::<Claim>(&key, &to_item(&placed)).unwrap(), placed);
    }
}

#[test]
fn a_claim_keeps_the_labels_of_its_node_and_that_its_hardware_is_dedicated() {
    let key = keys::claim(&cluster(), &name("default-3k9x2"));
    let plain = claim(ClaimState::Planned);
    let item = to_item(&plain);
    assert!(!item.contains_key("tenancy") && !item.contains_key("labels"));
    let labels = tags(&[("team", "a"), ("example.com/disk", "ssd")]);
    let kept = Claim { tenancy: Tenancy::Dedicated, labels, ..plain };
    assert_eq!(from_item::<Claim>(&key, &to_item(&kept)).unwrap(), kept);
}

#[test]
fn a_claim_that_was_made_before_its_terms_were_kept_is_read_without() {
    let key = keys::claim(&cluster(), &name("default-3k9x2"));
    let kept = claim(ClaimState::Planned);
    let mut item = to_item(&kept);
    assert_eq!(from_item::<Claim>(&key, &item).unwrap().terms, kept.terms);
    item.remove("termination_grace_period").unwrap();
    item.remove("load_balancer_deregistration").unwrap();
    let endless = kept.terms.map(|Terms { expire_after, .. }| Terms {
        expire_after,
        termination_grace_period: None,
        load_balancer_deregistration: None,
    });
    assert_eq!(from_item::<Claim>(&key, &item).unwrap().terms, endless);
    item.remove("expire_after").unwrap();
    assert_eq!(from_item::<Claim>(&key, &item).unwrap().terms, None);
}

#[test]
fn a_step_removes_what_its_state_no_longer_has() {
    let key = keys::claim(&cluster(), &name("default-3k9x2"));
    let Write::Set { set, remove, .. } = set(key, &claim(ClaimState::Planned)) else { panic!() };
    assert!(!set.contains_key("instance"));
    for gone in ["phase_at", "instance", "node", "removal", "failure", "command", "deadline", "drift"] {
        assert!(remove.iter().any(|name| name == gone), "{gone}");
    }
    let expiring = set_expiring(keys::halt(&cluster()), &claim(ClaimState::Planned), at("01:00:00"));
    let Write::Set { set, .. } = expiring else { panic!() };
    assert_eq!(set["expires_at"], Value::number(at("01:00:00").as_second()));
}

#[test]
fn a_claim_is_at_most_one_kilobyte() {
    for state in states() {
        let key = keys::claim(&cluster(), &name("default-3k9x2"));
        let bytes = crate::value::item_size(&key, &to_item(&with_fields(claim(state))));
        assert!(bytes <= 1024, "{bytes}");
    }
}

/// With digests of all fields of a template and a class.
fn with_fields(claim: Claim) -> Claim {
    let digests = |fields: usize| Some("0a1f".repeat(fields).parse().unwrap());
    Claim { pool_fields: digests(7), class_fields: digests(17), ..claim }
}

#[test]
fn a_claim_keeps_the_fields_that_it_was_launched_with_and_those_that_were_edited() {
    let key = keys::claim(&cluster(), &name("default-3k9x2"));
    let drift = Drift {
        reason: DriftReason::NodePoolDrifted,
        since: at("00:00:07"),
        from: "1".into(),
        to: "2".into(),
        fields: vec!["spec.taints".into(), "metadata.labels".into()],
    };
    let kept = Claim { drift: Some(drift), ..with_fields(claim(ClaimState::Planned)) };
    assert_eq!(from_item::<Claim>(&key, &to_item(&kept)).unwrap(), kept);
}
