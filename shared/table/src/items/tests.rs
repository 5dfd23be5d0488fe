//! One example of every kind: its golden form, its way back, and what a reader says of a broken one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use tenon_domain::Timestamp;
use tenon_domain::api::node_class::{InstanceProfile, ResolvedSecurityGroup};
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::catalog::{CapacityType, LearnedMemory, LearnedRecord};
use tenon_domain::claim::{
    Claim, ClaimPhase, ClaimState, CommandRole, Drift, DriftReason, LaunchFailure, LaunchedInstance,
    RemovalReason,
};
use tenon_domain::class_status::{
    ClassObservation, ClassStatus, ClassSubnet, ConditionReason, ConditionStatus, ResolvedImage,
    Seen as SeenPart, SeenReservations,
};
use tenon_domain::command::{Command, CommandState};
use tenon_domain::evidence::{CatalogPart, ErrorKind, Origin};
use tenon_domain::id::{ClaimName, ClusterName, CommandId, NamespacedName, NodeName, Region, Uid};
use tenon_domain::image::{ImageRecord, ImageState};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::launch::{CountedPod, Launch, LaunchCause, LaunchClaim, LaunchState};
use tenon_domain::money::{Currency, UsdPerHour};
use tenon_domain::pool_status::{PoolCondition, PoolConditionType, PoolStatus};
use tenon_domain::quantity::Quantity;
use tenon_domain::registry::{Allowances, Bootstrap, ClusterSettings, Gate, Gates, Registry};
use tenon_domain::reservation::{ClassReservation, MatchCriteria, ReservationKind, ReservedCapacity};
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::unavailable::{Mark, OfferingKey, Probe, UnavailableKey};
use tenon_domain::wake::FunctionName;

use super::*;
use crate::key::VERSION;
use crate::{Item, Key, Value, Write};

fn at(text: &str) -> Timestamp {
    format!("2026-01-01T{text}Z").parse().unwrap()
}

fn cluster() -> ClusterName {
    ClusterName::parse("prod").unwrap()
}

fn region() -> Region {
    Region::parse("us-east-1").unwrap()
}

fn name(text: &str) -> ClaimName {
    ClaimName::parse(text).unwrap()
}

fn strings(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn tags(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn requests() -> ResourceList {
    ResourceList::new()
        .with(ResourceName::CPU, Quantity::parse("3600m").unwrap())
        .with(ResourceName::MEMORY, Quantity::parse("6000Mi").unwrap())
}

fn instance() -> LaunchedInstance {
    LaunchedInstance {
        id: "i-0abc".parse().unwrap(),
        instance_type: "m5.large".parse().unwrap(),
        zone: "us-east-1a".parse().unwrap(),
        subnet: Some("subnet-0123456789abcdef0".parse().unwrap()),
        reservation: None,
        capacity_type: CapacityType::Spot,
        image: "ami-0abc".parse().unwrap(),
    }
}

fn claim(state: ClaimState) -> Claim {
    Claim {
        name: name("default-3k9x2"),
        revision: 4,
        pool: "default".parse().unwrap(),
        class: "linux".parse().unwrap(),
        launch: "launch-7".parse().unwrap(),
        created_at: at("00:00:00"),
        state,
        drift: None,
        role: CommandRole::None,
        requests: requests(),
    }
}

/// A claim in every phase, with all that can be known in it.
fn states() -> Vec<ClaimState> {
    let at = at("00:00:05.25");
    let node: NodeName = "ip-10-0-0-1.ec2.internal".parse().unwrap();
    let command: CommandId = "command-1".parse().unwrap();
    let reason = RemovalReason::SpotInterrupted;
    let failure = LaunchFailure { reason: "InsufficientCapacityError".into(), message: "no capacity".into() };
    let state = |phase| match phase {
        ClaimPhase::Planned => ClaimState::Planned,
        ClaimPhase::LaunchFailed => ClaimState::LaunchFailed { at, failure: failure.clone() },
        ClaimPhase::Launched => ClaimState::Launched { instance: instance(), at },
        ClaimPhase::Registered => ClaimState::Registered { instance: instance(), node: node.clone(), at },
        ClaimPhase::Initialized => ClaimState::Initialized { instance: instance(), node: node.clone(), at },
        ClaimPhase::Disrupting => {
            ClaimState::Disrupting { instance: instance(), node: node.clone(), command: command.clone(), at }
        }
        ClaimPhase::Draining => ClaimState::Draining {
            instance: instance(),
            node: Some(node.clone()),
            reason,
            at,
            deadline: Some(at),
        },
        ClaimPhase::Drained => ClaimState::Drained { instance: instance(), node: None, reason, at },
        ClaimPhase::Terminating => {
            ClaimState::Terminating { instance: instance(), node: Some(node.clone()), reason, at }
        }
        ClaimPhase::Terminated => ClaimState::Terminated { instance: None, node: None, reason, at },
    };
    ClaimPhase::ALL.into_iter().map(state).collect()
}

fn launch() -> Launch {
    let pod = |name: &str| CountedPod {
        name: NamespacedName { namespace: "shop".into(), name: name.into() },
        uid: Uid::parse("5d1c").unwrap(),
    };
    Launch {
        id: "launch-7".parse().unwrap(),
        revision: 1,
        pool: "default".parse().unwrap(),
        class: "linux".parse().unwrap(),
        token: "tenon-7".parse().unwrap(),
        reservation: None,
        request: "{\"v\":1}".into(),
        claims: vec![
            LaunchClaim { name: name("default-3k9x2"), pods: vec![pod("web-1"), pod("web-2")] },
            LaunchClaim { name: name("default-aaaaa"), pods: vec![] },
        ],
        cause: LaunchCause::PendingPods,
        created_at: at("00:00:00"),
        state: LaunchState::Requested { attempts: 2, not_before: at("00:00:10") },
    }
}

fn command(state: CommandState) -> Command {
    Command {
        id: "command-1".parse().unwrap(),
        revision: 2,
        pool: "default".parse().unwrap(),
        reason: RemovalReason::Drifted,
        candidates: vec![name("default-3k9x2")],
        replacements: vec![name("default-bbbbb")],
        state,
        created_at: at("00:00:00"),
    }
}

fn registry_entry() -> Registry {
    Registry {
        installation: "tenon".parse().unwrap(),
        cluster: cluster(),
        endpoint: "https://example.eks.amazonaws.com".into(),
        certificate_authority: "LS0t".into(),
        kubernetes_version: "1.33".into(),
        service_cidr: "10.100.0.0/16".into(),
        settings: ClusterSettings::default(),
        gates: Gates { reserved_capacity: Gate::Enabled },
        agent_queue: "https://sqs.us-east-1.amazonaws.com/1/agent-prod".into(),
        agent_role: "arn:aws:iam::1:role/agent-prod".into(),
        allowed: Allowances {
            node_roles: strings(&["nodes"]),
            instance_profiles: strings(&["nodes"]),
            subnet_tags: tags(&[("karpenter.sh/discovery", "prod")]),
            security_group_tags: tags(&[("karpenter.sh/discovery", "*")]),
            image_owners: strings(&["amazon", "self"]),
            max_nodes: Some(100),
        },
        bootstrap: Some(Bootstrap { pool: "default".parse().unwrap(), nodes: 1 }),
    }
}

fn class_status() -> ClassStatus {
    let observation = ClassObservation {
        name: "linux".parse().unwrap(),
        generation: 3,
        spec_digest: "12ab".into(),
        subnets: SeenPart::Holds(vec![ClassSubnet {
            id: "subnet-0abc".parse().unwrap(),
            zone: "us-east-1a".parse().unwrap(),
            zone_id: "use1-az1".parse().unwrap(),
            free_addresses: 250,
        }]),
        security_groups: SeenPart::Holds(vec![ResolvedSecurityGroup {
            id: "sg-0abc".parse().unwrap(),
            name: "nodes".into(),
        }]),
        images: SeenPart::Holds(vec![ResolvedImage {
            id: "ami-0abc".parse().unwrap(),
            name: "linux-1".into(),
            architecture: Architecture::Arm64,
            created_at: at("00:00:00"),
        }]),
        instance_profile: SeenPart::Holds(InstanceProfile::Name("nodes".into())),
        reservations: Some(SeenReservations {
            right: ReservedCapacity::behind(Gates { reserved_capacity: Gate::Enabled }).unwrap(),
            seen: SeenPart::Holds(vec![ClassReservation {
                id: "cr-0abc".parse().unwrap(),
                owner: "111122223333".into(),
                instance_type: "m5.large".parse().unwrap(),
                zone: "us-east-1a".parse().unwrap(),
                match_criteria: MatchCriteria::Targeted,
                kind: ReservationKind::Default,
                ends_at: Some(at("12:00:00")),
                available: 3,
            }]),
        }),
        validation: SeenPart::Unseen {
            reason: ConditionReason::ValidationIncomplete,
            message: "EC2 throttled the dry run".into(),
            next_try: at("00:01:00"),
        },
        unsupported: vec!["spec.context".into()],
    };
    ClassStatus::observed(observation, None, at("00:00:30"))
}

fn pool_status() -> PoolStatus {
    PoolStatus {
        name: "default".parse().unwrap(),
        revision: 9,
        generation: 2,
        nodes: 3,
        resources: requests(),
        conditions: vec![PoolCondition {
            condition: PoolConditionType::NodeClassReady,
            status: ConditionStatus::False,
            reason: "NodeClassNotReady".into(),
            message: "EC2NodeClass `linux` isn't ready".into(),
            since: at("00:00:00"),
        }],
    }
}

fn image_record() -> ImageRecord {
    ImageRecord {
        id: "ami-0abc".parse().unwrap(),
        name: "linux-1".into(),
        state: ImageState::Pending,
        architecture: Some(Architecture::X86_64),
        created_at: Some(at("00:00:00")),
        owner: "111122223333".into(),
        tags: tags(&[("team", "images")]),
        deprecated_at: None,
        seen_at: at("00:00:01"),
    }
}

fn mark() -> Mark {
    Mark {
        key: UnavailableKey::parse("offering#spot#use1-az1#m5.large").unwrap(),
        revision: 3,
        code: "InsufficientInstanceCapacity".into(),
        count: 2,
        since: at("00:00:00"),
        asked_at: at("00:01:30"),
        until: at("00:03:30"),
        from_vcpus: None,
        probe: None,
        seen_by: cluster(),
    }
}

fn probed_quota() -> Mark {
    let probe = Probe {
        cluster: "staging".parse().unwrap(),
        launch: "launch-7".parse().unwrap(),
        at: at("00:04:00"),
        until: at("00:07:00"),
    };
    Mark {
        key: UnavailableKey::parse("quota#on-demand#m5").unwrap(),
        code: "VcpuLimitExceeded".into(),
        from_vcpus: Some(48),
        probe: Some(probe),
        ..mark()
    }
}

fn learned() -> LearnedRecord {
    LearnedRecord {
        instance_type: "m5.large".parse().unwrap(),
        image: "ami-0abc".parse().unwrap(),
        revision: 2,
        memory: LearnedMemory(8_011_382_784),
        seen_at: at("00:00:00"),
        seen_by: cluster(),
    }
}

fn seen_by_provisioner() -> Seen {
    Seen {
        function: FunctionName::Provisioner,
        generations: Generations {
            snapshot: 7,
            revision: 12,
            steps: 30,
            catalog: BTreeMap::from([(CatalogPart::SpotPrices, 4)]),
        },
        deadline: Some(at("00:01:00")),
        at: at("00:00:01"),
        refusals: Some("12ab".into()),
    }
}

fn catalog_meta() -> CatalogMeta {
    let part = PartMeta {
        generation: 4,
        refreshed_at: Some(at("00:00:00")),
        count: 851,
        items: 1,
        digest: "12ab".into(),
        packed_until: Some(at("00:20:00")),
        origin: Origin::Answered,
        currency: Some(Currency::Usd),
        last_error: Some("RequestLimitExceeded".into()),
        last_error_kind: Some(ErrorKind::Throttled),
        failing_since: Some(at("00:10:00")),
    };
    let shipped = PartMeta {
        generation: 1,
        refreshed_at: Some(at("00:00:00")),
        origin: Origin::Shipped { as_of: "2026-11-01".parse().unwrap(), region: region() },
        currency: Some(Currency::Usd),
        ..PartMeta::default()
    };
    let parts = [(CatalogPart::SpotPrices, part), (CatalogPart::OnDemandPrices, shipped)];
    CatalogMeta { revision: 6, parts: BTreeMap::from(parts) }
}

fn type_record() -> TypeRecord {
    let price = |text| UsdPerHour::parse(text).unwrap();
    TypeRecord {
        name: "m5.large".parse().unwrap(),
        labels: tags(&[("karpenter.k8s.aws/instance-family", "m5")]),
        capacity: requests(),
        zones: vec!["us-east-1a".into()],
        currency: Currency::Usd,
        on_demand: Some(price("0.096")),
        on_demand_of: None,
        spot: BTreeMap::from([("us-east-1a".into(), price("0.031"))]),
    }
}

fn template_record() -> Template {
    Template {
        name: "tenon-prod-12ab".into(),
        class: "linux".parse().unwrap(),
        image: "ami-0abc".parse().unwrap(),
        created_at: at("00:00:00"),
        used_at: at("00:00:01"),
        request: r#"{"v":1}"#.into(),
        made_at: Some(at("00:00:01")),
    }
}

fn journal_record() -> JournalRecord {
    let subject = Subject { kind: SubjectKind::Claim, name: "default-3k9x2".into() };
    JournalRecord::new(subject, at("00:00:01"), "provisioner", Decision::Planned, "planned for 2 pods")
        .detail("launch", "launch-7")
        .evidence("snapshot", 7)
}

/// A kind's golden text; asserts that what is written reads back as it was.
fn golden<T: Form + PartialEq + std::fmt::Debug>(text: &mut String, key: Key, value: &T) {
    let item = to_item(value);
    assert_eq!(from_item::<T>(&key, &item).unwrap(), *value);
    render(text, &key, &item);
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

#[test]
fn every_kind_has_its_golden_form_and_reads_back() {
    let (c, r) = (&cluster(), &region());
    let text = &mut String::new();
    golden(text, keys::registry(r, c), &registry_entry());
    for state in states() {
        golden(text, keys::claim(c, &name("default-3k9x2")), &claim(state));
    }
    let drift = Drift {
        reason: DriftReason::AmiDrift,
        since: at("00:00:07"),
        from: "ami-0abc".into(),
        to: "ami-0def".into(),
    };
    let role = CommandRole::Replacement("command-1".parse().unwrap());
    golden(
        text,
        keys::claim(c, &name("default-3k9x2")),
        &Claim { drift: Some(drift), role, ..claim(ClaimState::Planned) },
    );
    golden(text, keys::launch(c, &launch().id), &launch());
    let settled = Launch {
        cause: LaunchCause::Replacement("command-1".parse().unwrap()),
        state: LaunchState::Settled { at: at("00:00:09"), instances: 2 },
        ..launch()
    };
    golden(text, keys::launch(c, &launch().id), &settled);
    let since = at("00:00:08");
    for state in [
        CommandState::Replacing { since, attempts: 1, not_before: since },
        CommandState::Draining { since },
        CommandState::Done { at: since },
    ] {
        golden(text, keys::command(c, &"command-1".parse().unwrap()), &command(state));
    }
    golden(text, keys::node_class(c, &"linux".parse().unwrap()), &class_status());
    golden(text, keys::node_pool(c, &"default".parse().unwrap()), &pool_status());
    golden(text, keys::template(c, "tenon-prod-12ab"), &template_record());
    golden(text, keys::seen(c, FunctionName::Provisioner), &seen_by_provisioner());
    golden(text, keys::halt(c), &Halt { since, reason: "instances of launches that the table lost".into() });
    let owner = InstanceOwner {
        instance: instance().id,
        cluster: cluster(),
        claim: name("default-3k9x2"),
        offering: OfferingKey::parse("spot#use1-az1#m5.large"),
    };
    golden(text, keys::instance(&owner.instance), &owner);
    golden(text, keys::image(r, &image_record().id), &image_record());
    golden(text, keys::unavailable(r, &mark().key), &mark());
    golden(text, keys::unavailable(r, &probed_quota().key), &probed_quota());
    golden(text, keys::learned(r, &learned().instance_type, &learned().image), &learned());
    golden(text, keys::catalog(r), &catalog_meta());
    golden(text, keys::instance_type(r, &type_record().name), &type_record());
    for write in journal_writes(JournalOf::Cluster(c), &journal_record(), 12, 0) {
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
    // What was written under the other name before goes.
    let Write::Set { remove, .. } = set(key, &chinese) else { panic!() };
    assert!(remove.contains(&"on_demand_usd_per_hour".to_owned()), "{remove:?}");
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
        "attribute `phase`: `Lost` isn't a word of its list",
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
        "attribute `v`: version 3 of the form can't be read: expected at most 2, update this function first"
    );
}

/// As before marks had a revision, and instances an offering.
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

/// DynamoDB may delete a mark only when it says nothing any more; a lease that ends is one attribute less.
#[test]
fn a_mark_expires_when_it_is_forgotten() {
    let check = |mark: &Mark, forgotten: &str| {
        assert_eq!(to_item(mark)["expires_at"], Value::number(at(forgotten).as_second()));
    };
    check(&mark(), "02:03:30");
    check(&probed_quota(), "02:07:00");
    check(&Mark { count: 0, ..mark() }, "00:03:30");
    let Write::Set { remove, .. } = set(keys::halt(&cluster()), &mark()) else { panic!() };
    assert_eq!(remove, ["from_vcpus", "probe"]);
}

#[test]
fn a_registry_of_before_learns_memory() {
    let (key, mut item) = (keys::registry(&region(), &cluster()), to_item(&registry_entry()));
    let Some(Value::M(settings)) = item.get_mut("settings") else { panic!() };
    settings.remove("learned_memory").unwrap();
    assert_eq!(from_item::<Registry>(&key, &item).unwrap(), registry_entry());
    let Some(Value::M(settings)) = item.get_mut("settings") else { panic!() };
    settings.insert("learned_memory".into(), Value::text("Disabled"));
    assert_eq!(from_item::<Registry>(&key, &item).unwrap().settings.learned_memory, Gate::Disabled);
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
        let bytes = crate::value::item_size(&key, &to_item(&claim(state)));
        assert!(bytes <= 1024, "{bytes}");
    }
}
