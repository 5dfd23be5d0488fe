//! The effect of an answer on marks.

use std::sync::Arc;

use tenon_domain::api::node_class::InstanceProfile;
use tenon_domain::catalog::describe::facts;
use tenon_domain::catalog::{PartData, ZoneOfferings};
use tenon_domain::class_status::{ClassObservation, ClassSubnet, ImageNotices, Seen};
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::InstanceType;
use tenon_domain::launch::LaunchCause;
use tenon_domain::money::UsdPerHour;
use tenon_domain::placement::LaunchPlacement;
use tenon_domain::reservation::{LaunchedInto, ReservationKind};
use tenon_domain::unavailable::{Mark, Probe, Refusal, RefusalCause, RequestDigest, UnavailableKey};
use tenon_ec2::data::Ec2Data;
use tenon_ec2::port::{
    FleetInstances, FleetItemError, FleetOverride, ImageArchitecture, InstanceState, Tags, TargetCapacityType,
};
use tenon_harness::claims;
use tenon_table::items::RefreshedParts;
use tenon_table::items::packed::RefreshedPart;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn key(text: &str) -> UnavailableKey {
    UnavailableKey::parse(text).unwrap()
}

/// A launch of a class with a subnet in us-east-1a; the catalogue knows us-east-1b too.
struct SettleWorld {
    cluster: ClusterName,
    launch: Launch,
    status: ClassStatus,
    parts: RefreshedParts,
    marks: Marks,
}

impl SettleWorld {
    fn new(marks: impl IntoIterator<Item = Mark>) -> Self {
        let observation = ClassObservation {
            name: "default".parse().unwrap(),
            generation: 1,
            uid: None,
            spec_digest: "spec".to_owned(),
            hash: None,
            subnets: Seen::Holds(vec![ClassSubnet {
                id: "subnet-1".parse().unwrap(),
                zone: "us-east-1a".parse().unwrap(),
                zone_id: "use1-az1".parse().unwrap(),
                free_addresses: 10,
                shifted: None,
            }]),
            security_groups: Seen::Holds(Vec::new()),
            images: Seen::Holds(Vec::new()),
            image_notices: ImageNotices::default(),
            instance_profile: Seen::Holds(InstanceProfile::Name("nodes".to_owned())),
            asked_profile: None,
            profile_seen: None,
            reservations: None,
            placement_group: None,
            shifts: None,
            validation: Seen::Holds(()),
            validation_note: None,
            unsupported: Vec::new(),
        };
        let launch = Launch {
            id: "launch-1".parse().unwrap(),
            revision: 1,
            pool: "default".parse().unwrap(),
            class: "default".parse().unwrap(),
            token: "token-1".parse().unwrap(),
            made_from: None,
            reservation: None,
            placement: None,
            request: String::new(),
            claims: Vec::new(),
            cause: LaunchCause::PendingPods,
            created_at: at(100),
            state: LaunchState::Requested { attempts: 0, not_before: at(100) },
        };
        Self {
            cluster: "prod".parse().unwrap(),
            launch,
            status: ClassStatus::observed(observation, None, at(0)),
            parts: parts(),
            marks: marks.into_iter().collect(),
        }
    }

    fn input<'a>(&'a self, claims: &'a [&'a Claim]) -> SettleInput<'a> {
        SettleInput {
            now: at(101),
            cluster: &self.cluster,
            launch: &self.launch,
            claims,
            status: Some(&self.status),
            marks: &self.marks,
            catalog: CatalogFacts::of(&self.parts),
            currency: Currency::Usd,
        }
    }

    /// Why a claim gets nothing by an answer.
    fn failed(&self, answer: &LaunchAnswer) -> Option<SettleFailure> {
        let claim = claims::claim(0, ClaimState::Planned);
        settle(self.input(&[&claim]), answer).failed
    }

    /// The words of an answer, as text.
    fn words(&self, answer: &LaunchAnswer) -> Vec<String> {
        let class = RequestDigest::of_class(&self.cluster, &self.status).to_string();
        let told = |word: MarkWord| {
            let said = match word.said {
                OfferingAnswer::Refused { vcpus: Some(vcpus), .. } => format!("refused from {vcpus}"),
                OfferingAnswer::Refused { vcpus: None, .. } => "refused".to_owned(),
                OfferingAnswer::Had => "had".to_owned(),
                OfferingAnswer::Untried => "untried".to_owned(),
                OfferingAnswer::Nothing => "nothing".to_owned(),
            };
            format!("{} {said}", word.key).replace(&class, "CLASS")
        };
        settle(self.input(&[]), answer).marks.into_iter().map(told).collect()
    }
}

fn parts() -> RefreshedParts {
    let data = Ec2Data::get().unwrap();
    let types = ["m5.large", "m5.xlarge"].map(|name| {
        let facts = facts(data.types.get(&name.parse().unwrap()).unwrap(), &data.limits).unwrap();
        (facts.name.clone(), Arc::new(facts))
    });
    let zones = [("us-east-1a", "use1-az1"), ("us-east-1b", "use1-az2")]
        .map(|(zone, id)| (zone.parse().unwrap(), id.parse().unwrap()));
    let offerings = ZoneOfferings { zones: zones.into(), ..ZoneOfferings::default() };
    let large: InstanceType = "m5.large".parse().unwrap();
    let price = UsdPerHour::from_nanos;
    let spot = BTreeMap::from([("us-east-1a".parse().unwrap(), price(38_000_000))]);
    let part = |data| RefreshedPart { data: Arc::new(data), generation: 1, refreshed_at: at(0) };
    RefreshedParts::from([
        (CatalogPart::InstanceTypes, part(PartData::InstanceTypes(types.into()))),
        (CatalogPart::Offerings, part(PartData::Offerings(offerings))),
        (
            CatalogPart::OnDemandPrices,
            part(PartData::OnDemandPrices([(large.clone(), price(96_000_000))].into())),
        ),
        (CatalogPart::SpotPrices, part(PartData::SpotPrices([(large, spot)].into()))),
    ])
}

fn from(instance_type: &str, zone: &str) -> FleetOverride {
    FleetOverride {
        instance_type: instance_type.parse().unwrap(),
        subnet: "subnet-1".parse().ok(),
        zone: zone.parse().ok(),
        image: "ami-1".parse().ok(),
        priority: None,
    }
}

fn error(code: &str, from: Option<FleetOverride>) -> FleetItemError {
    let (code, message) = (code.to_owned(), String::new());
    FleetItemError { code, message, from, capacity_type: TargetCapacityType::OnDemand }
}

fn fleet(instances: &[FleetOverride], errors: Vec<FleetItemError>) -> LaunchAnswer {
    let instance = |from: &FleetOverride| FleetInstances {
        ids: vec!["i-1".parse().unwrap()],
        instance_type: from.instance_type.clone(),
        capacity_type: TargetCapacityType::OnDemand,
        from: from.clone(),
        launch_template: "tenon-1".to_owned(),
    };
    LaunchAnswer::Fleet(FleetResult {
        fleet_id: "fleet-1".parse().unwrap(),
        instances: instances.iter().map(instance).collect(),
        errors,
    })
}

/// A mark of another cluster.
fn mark(what: &str, now: i64) -> Mark {
    let refusal = Refusal {
        key: &key(what),
        code: "InsufficientInstanceCapacity",
        cluster: &"staging".parse().unwrap(),
        cause: RefusalCause::Launch(&"launch-9".parse().unwrap()),
        vcpus: Some(2),
        now: at(now),
    };
    Mark::refused(None, &refusal).unwrap()
}

fn leased(mark: &Mark, world: &SettleWorld) -> Mark {
    let launch = &world.launch;
    let asked = LaunchAsked { cluster: &world.cluster, launch: &launch.id, planned_at: launch.created_at };
    mark.leased(Probe::of(asked)).unwrap()
}

fn check(errors: Vec<FleetItemError>, expected: &[&str]) {
    assert_eq!(SettleWorld::new([]).words(&fleet(&[], errors)), expected);
}

#[test]
fn an_error_marks_what_it_is_about() {
    let m5 = || Some(from("m5.large", "us-east-1a"));
    let offering = "offering#on-demand#use1-az1#m5.large refused from 2";
    check(vec![error("InsufficientInstanceCapacity", m5())], &[offering]);
    check(vec![error("MaxFleetCountExceeded", m5())], &[offering]);
    check(vec![error("InsufficientFreeAddressesInSubnet", m5())], &["subnet#subnet-1 refused from 2"]);
    check(vec![error("RequestLimitExceeded", m5())], &[]);
    check(vec![error("InvalidLaunchTemplateName.NotFoundException", m5())], &[]);
    // The class left the zone since: the catalogue has its id.
    check(
        vec![error("InsufficientInstanceCapacity", Some(from("m5.large", "us-east-1b")))],
        &["offering#on-demand#use1-az2#m5.large refused from 2"],
    );
}

/// Before the catalogue ever arrived.
#[test]
fn a_zone_that_the_catalogue_does_not_know_is_known_from_the_classs_subnets() {
    let world = SettleWorld { parts: RefreshedParts::new(), ..SettleWorld::new([]) };
    let dry = |zone| fleet(&[], vec![error("InsufficientInstanceCapacity", Some(from("m5.large", zone)))]);
    assert_eq!(world.words(&dry("us-east-1a")), ["offering#on-demand#use1-az1#m5.large refused"]);
    assert_eq!(world.words(&dry("us-east-1b")), [""; 0]);
}

#[test]
fn a_missing_service_linked_role_marks_all_of_spot_and_no_other_refusal_does() {
    let world = SettleWorld::new([]);
    let words =
        |code: &str| world.words(&LaunchAnswer::Refused(Ec2Error::from_code("CreateFleet", code, "")));
    let role = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
    assert_eq!(words(role), ["capacity-type#spot refused"]);
    for code in ["UnauthorizedOperation", "VcpuLimitExceeded", "PendingVerification"] {
        assert_eq!(words(code), [""; 0], "{code}");
    }
}

#[test]
fn a_quota_is_refused_from_the_smallest_size_on() {
    let of = |name| error("VcpuLimitExceeded", Some(from(name, "us-east-1a")));
    check(vec![of("m5.xlarge")], &["quota#on-demand#m5 refused from 4"]);
    check(vec![of("m5.xlarge"), of("m5.large")], &["quota#on-demand#m5 refused from 2"]);
    check(vec![of("m5.large"), of("m5.xlarge")], &["quota#on-demand#m5 refused from 2"]);
}

#[test]
fn what_a_class_can_not_have_others_may() {
    let unsupported = vec![error("Unsupported", Some(from("m5.large", "us-east-1a")))];
    check(unsupported, &["request#CLASS#on-demand#use1-az1#m5.large refused from 2"]);
}

#[test]
fn an_error_about_no_override_marks_no_offering() {
    for code in ["InsufficientInstanceCapacity", "VcpuLimitExceeded", "Unsupported"] {
        check(vec![error(code, None)], &[]);
    }
}

#[test]
fn a_limit_of_the_account_marks_no_family() {
    let world = SettleWorld::new([]);
    for code in ["VolumeLimitExceeded", "PendingVerification", "AddressLimitExceeded"] {
        let answer = fleet(&[], vec![error(code, Some(from("m5.large", "us-east-1a")))]);
        assert_eq!(world.words(&answer), Vec::<String>::new(), "{code}");
    }
}

#[test]
fn an_instance_is_a_word_against_every_mark_that_concerns_it() {
    let class = RequestDigest::of_class(&"prod".parse().unwrap(), &SettleWorld::new([]).status);
    let unsupported = format!("request#{class}#on-demand#use1-az1#m5.large");
    let world = SettleWorld::new([
        mark("offering#on-demand#use1-az1#m5.large", 0),
        mark("quota#on-demand#m5", 0),
        mark("subnet#subnet-1", 0),
        mark("subnet#subnet-2", 0),
        mark("offering#on-demand#use1-az2#m5.large", 0),
        mark("quota#spot#m5", 0),
        mark(&unsupported, 0),
        mark("request#ffff#on-demand#use1-az1#m5.large", 0),
    ]);
    let launched = fleet(&[from("m5.large", "us-east-1a")], vec![]);
    assert_eq!(
        world.words(&launched),
        [
            "offering#on-demand#use1-az1#m5.large had",
            "quota#on-demand#m5 had",
            "subnet#subnet-1 had",
            "request#CLASS#on-demand#use1-az1#m5.large had",
        ]
    );
    // Some instances were launched before the capacity ran out.
    let error = error("InsufficientInstanceCapacity", Some(from("m5.large", "us-east-1a")));
    let partly = fleet(&[from("m5.large", "us-east-1a")], vec![error]);
    assert_eq!(world.words(&partly)[0], "offering#on-demand#use1-az1#m5.large refused from 2");
}

#[test]
fn a_probe_that_ec2_says_nothing_of_is_given_back() {
    let mut world = SettleWorld::new([]);
    let spot = leased(&mark("offering#on-demand#use1-az2#m5.large", 0), &world);
    let others = mark("offering#on-demand#use1-az1#m5.xlarge", 0);
    world.marks = [spot, others].into_iter().collect();
    let elsewhere = fleet(&[from("m5.large", "us-east-1a")], vec![]);
    assert_eq!(world.words(&elsewhere), ["offering#on-demand#use1-az2#m5.large untried"]);
    let nothing = LaunchAnswer::Found(Vec::new());
    assert_eq!(world.words(&nothing), ["offering#on-demand#use1-az2#m5.large nothing"]);
}

#[test]
fn a_probe_of_another_launch_is_left_to_it() {
    let words = |cluster: &str, launch: &str| {
        let mut world = SettleWorld::new([]);
        let (cluster, launch) = (cluster.parse().unwrap(), launch.parse().unwrap());
        let asked = LaunchAsked { cluster: &cluster, launch: &launch, planned_at: at(100) };
        let leased = mark("offering#on-demand#use1-az2#m5.large", 0).leased(Probe::of(asked)).unwrap();
        world.marks = [leased].into_iter().collect();
        world.words(&fleet(&[from("m5.large", "us-east-1a")], vec![]))
    };
    assert_eq!(words("prod", "launch-1"), ["offering#on-demand#use1-az2#m5.large untried"]);
    assert_eq!(words("prod", "launch-2"), [""; 0]);
    assert_eq!(words("staging", "launch-1"), [""; 0]);
}

/// One answer, settled by two functions, or again after a crash, is one refusal.
#[test]
fn a_word_said_again_changes_nothing() {
    let world = SettleWorld::new([]);
    let asked = LaunchAsked {
        cluster: &world.cluster,
        launch: &world.launch.id,
        planned_at: world.launch.created_at,
    };
    let (key, code) = (key("offering#on-demand#use1-az1#m5.large"), "X".to_owned());
    let word = MarkWord { key, said: OfferingAnswer::Refused { code, message: None, vcpus: None } };
    let first = word.next(None, asked, at(101)).unwrap();
    assert_eq!(word.next(Some(&first), asked, at(101)), None);
    let raised = word.next(Some(&leased(&first, &world)), asked, at(103)).unwrap();
    assert_eq!((first.count, raised.count), (1, 2));
    assert_eq!(word.next(Some(&raised), asked, at(104)), None);
}

#[test]
fn a_call_that_is_refused_as_a_whole_says_why_and_is_not_planned_around() {
    let check = |code: &str, expected: &str, failed: SettleFailure| {
        let refused = Ec2Error::from_code("CreateFleet", code, "");
        let (failure, kind) = failure(&LaunchAnswer::Refused(refused));
        assert_eq!((failure.reason.as_str(), kind), (expected, failed), "{code}");
    };
    check("VcpuLimitExceeded", "VCPULimitExceeded", SettleFailure::Request);
    check("MaxSpotInstanceCountExceeded", "SpotQuotaExceeded", SettleFailure::Request);
    check("MaxFleetCountExceeded", "FleetQuotaExceeded", SettleFailure::Request);
    check("PendingVerification", "AccountPendingVerification", SettleFailure::Request);
    check(
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        "SpotSLRCreationFailed",
        SettleFailure::Capacity,
    );
}

#[test]
fn of_several_errors_the_one_that_is_not_about_capacity_is_told() {
    let m5 = || Some(from("m5.large", "us-east-1a"));
    let check = |codes: &[&str], expected: (&str, SettleFailure)| {
        let errors = codes.iter().map(|code| error(code, m5())).collect();
        let (failure, kind) = failure(&fleet(&[], errors));
        assert_eq!((failure.reason.as_str(), kind), expected, "{codes:?}");
    };
    let (dry, denied) = ("InsufficientInstanceCapacity", "UnauthorizedOperation");
    check(&[dry], ("InsufficientCapacityError", SettleFailure::Capacity));
    check(&[denied], ("Unauthorized", SettleFailure::Request));
    check(&[dry, denied], ("Unauthorized", SettleFailure::Request));
    check(&[denied, dry], ("Unauthorized", SettleFailure::Request));
}

/// The same request would get the same answer.
#[test]
fn what_no_mark_can_hold_is_not_planned_again_at_once() {
    let world = SettleWorld::new([]);
    let m5 = || Some(from("m5.large", "us-east-1a"));
    let failed = |errors: Vec<FleetItemError>| world.failed(&fleet(&[], errors));
    assert_eq!(failed(vec![error("InsufficientInstanceCapacity", m5())]), Some(SettleFailure::Capacity));
    assert_eq!(failed(vec![error("RequestLimitExceeded", m5())]), Some(SettleFailure::Unmarked));
    assert_eq!(failed(vec![error("InsufficientInstanceCapacity", None)]), Some(SettleFailure::Unmarked));
    assert_eq!(failed(vec![]), Some(SettleFailure::Unmarked));
    assert_eq!(world.failed(&LaunchAnswer::Found(Vec::new())), Some(SettleFailure::Capacity));
}

/// Spot is marked and an on-demand launch is refused for spot's role all the same, or a launch is refused what it was
/// planned around.
#[test]
fn a_refusal_that_changes_no_plan_is_a_refused_request() {
    let role = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
    let no_role = LaunchAnswer::Refused(Ec2Error::from_code("CreateFleet", role, ""));
    let dry = error("InsufficientInstanceCapacity", Some(from("m5.large", "us-east-1a")));
    let dry = fleet(&[], vec![dry]);
    let check = |marks: &[Mark], answer: &LaunchAnswer, expected: SettleFailure| {
        assert_eq!(SettleWorld::new(marks.iter().cloned()).failed(answer), Some(expected), "{marks:?}");
    };
    let offering = |now| mark("offering#on-demand#use1-az1#m5.large", now);
    check(&[], &no_role, SettleFailure::Capacity);
    check(&[mark("capacity-type#spot", 90)], &no_role, SettleFailure::Request);
    check(&[offering(90)], &dry, SettleFailure::Request);
    // Another launch was refused it since this one was planned.
    check(&[offering(101)], &dry, SettleFailure::Capacity);
    let world = SettleWorld::new([mark("capacity-type#spot", 90)]);
    let claim = claims::claim(0, ClaimState::Planned);
    let told = settle(world.input(&[&claim]), &no_role).marks;
    let is_request = |word: &MarkWord| matches!(word.key, UnavailableKey::Request(_));
    assert_eq!(told.iter().filter(|word| is_request(word)).count(), 1, "the NodePool says so: {told:?}");
}

#[test]
fn what_a_launch_into_a_reservation_is_told_is_about_the_reservation() {
    let mut world = SettleWorld::new([mark("reservation#cr-1", 90)]);
    let into = LaunchedInto { id: "cr-1".parse().unwrap(), kind: ReservationKind::Default };
    world.launch.reservation = Some(into.clone());
    let m5 = || from("m5.large", "us-east-1a");
    let full = vec![error("ReservationCapacityExceeded", Some(m5()))];
    assert_eq!(world.words(&fleet(&[], full)), ["reservation#cr-1 refused from 2"]);
    let dry = vec![error("InsufficientInstanceCapacity", Some(m5()))];
    assert_eq!(world.words(&fleet(&[], dry)), ["reservation#cr-1 refused from 2"]);
    // A further refusal is about its own offering, not the on-demand one.
    let unsupported = vec![error("Unsupported", Some(m5()))];
    assert_eq!(
        world.words(&fleet(&[], unsupported)),
        ["request#CLASS#reserved#use1-az1#m5.large refused from 2"]
    );
    assert_eq!(world.words(&fleet(&[m5()], Vec::new())), ["reservation#cr-1 had"]);
    let held = instances(&world.launch, &fleet(&[m5()], Vec::new()));
    assert_eq!((held[0].capacity_type, held[0].reservation.clone()), (CapacityType::Reserved, Some(into)));
    // Nothing is made of a reservation that the launch didn't ask for.
    world.launch.reservation = None;
    let full = vec![error("ReservationCapacityExceeded", Some(m5()))];
    assert_eq!(world.words(&fleet(&[], full)), [""; 0]);
    let held = instances(&world.launch, &fleet(&[m5()], Vec::new()));
    assert_eq!((held[0].capacity_type, held[0].reservation.clone()), (CapacityType::OnDemand, None));
}

#[test]
fn what_a_launch_into_a_placement_group_is_told_is_about_such_requests() {
    let mut world = SettleWorld::new([]);
    let placement = LaunchPlacement { group: "pg-1".parse().unwrap(), partition: Some(2) };
    world.launch.placement = Some(placement.clone());
    let m5 = || from("m5.large", "us-east-1a");
    let dry = vec![error("InsufficientInstanceCapacity", Some(m5()))];
    assert_eq!(world.words(&fleet(&[], dry)), ["request#CLASS#on-demand#use1-az1#m5.large refused from 2"]);
    let held = instances(&world.launch, &fleet(&[m5()], Vec::new()));
    assert_eq!(held[0].placement, Some(placement));
}

/// The n-th instance that carries the launch's tag.
fn found(n: usize, state: InstanceState) -> Instance {
    let held = claims::instance(n);
    Instance {
        id: held.id,
        instance_type: held.instance_type,
        image: held.image,
        architecture: ImageArchitecture::X86_64,
        capacity_type: TargetCapacityType::OnDemand,
        reservation: None,
        zone: held.zone,
        zone_id: None,
        partition: None,
        subnet: held.subnet,
        security_groups: Vec::new(),
        state,
        state_reason: None,
        launched_at: at(100),
        private_ip: String::new(),
        private_dns_name: String::new(),
        client_token: None,
        fleet: None,
        tags: Tags::new(),
    }
}

#[test]
fn an_instance_that_goes_is_nobodys_and_the_next_one_is_dealt() {
    let world = SettleWorld::new([]);
    let check = |states: &[InstanceState], expected: Option<usize>| {
        let all = states.iter().enumerate().map(|(n, state)| found(n, *state)).collect();
        let claim = claims::claim(0, ClaimState::Planned);
        let settlement = settle(world.input(&[&claim]), &LaunchAnswer::Found(all));
        let dealt = settlement.claims[0].state.instance().map(|instance| instance.id.clone());
        assert_eq!(dealt, expected.map(claims::instance_id), "{states:?}");
        let failed = settlement.claims[0].phase() == ClaimPhase::LaunchFailed;
        assert_eq!((failed, settlement.failed.is_some()), (expected.is_none(), expected.is_none()));
    };
    use InstanceState::{Pending, Running, ShuttingDown, Terminated};
    check(&[Pending], Some(0));
    check(&[Running], Some(0));
    check(&[ShuttingDown], None);
    check(&[Terminated], None);
    check(&[ShuttingDown, Running], Some(1));
    check(&[Terminated, ShuttingDown, Pending], Some(2));
}

#[test]
fn a_launch_has_the_price_of_what_ec2_gave() {
    let check = |of: &str, capacity_type: TargetCapacityType, expected: Option<&str>| {
        let LaunchAnswer::Fleet(mut result) = fleet(&[from(of, "us-east-1a")], Vec::new()) else { panic!() };
        result.instances[0].capacity_type = capacity_type;
        let claim = claims::claim(0, ClaimState::Planned);
        let world = SettleWorld::new([]);
        let settlement = settle(world.input(&[&claim]), &LaunchAnswer::Fleet(result));
        let told = &settlement.records[0].details;
        assert_eq!(told.get("launchedPrice").map(String::as_str), expected, "{of}");
        assert_eq!(told.get("currency").map(String::as_str), expected.map(|_| "USD"), "{of}");
    };
    check("m5.large", TargetCapacityType::OnDemand, Some("0.096"));
    check("m5.large", TargetCapacityType::Spot, Some("0.038"));
    check("m5.xlarge", TargetCapacityType::OnDemand, None);
}
