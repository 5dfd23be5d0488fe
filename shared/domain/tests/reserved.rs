//! Capacity reservations as offerings: their zones, ranks and availability.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of an integration test aren't inside #[test] functions"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::Timestamp;
use tenon_domain::catalog::describe::{InstanceTypeInfo, Limits, facts};
use tenon_domain::catalog::{
    AmiFamily, Availability, Catalog, ClassNodes, Exhaustion, InstanceTypeFacts, InstanceTypeOption,
    LearnedOf, NodeSettings, Places, ZoneOfferings,
};
use tenon_domain::class_status::ClassSubnet;
use tenon_domain::evidence::{CatalogPart, Ready, require};
use tenon_domain::id::{InstanceType, Region, ReservationId, SubnetId, Zone, ZoneId};
use tenon_domain::labels;
use tenon_domain::money::UsdPerHour;
use tenon_domain::registry::{FeatureGate, GateName, Gates};
use tenon_domain::requirement::{Requirement, Requirements};
use tenon_domain::reservation::{
    ClassReservation, ClassReservations, MatchCriteria, ReservationKind, Reservations, ReservedCapacity,
};
use tenon_domain::unavailable::{Mark, Marks, UnavailableKey};

fn zone(letter: &str) -> Zone {
    Zone::parse(format!("us-east-1{letter}")).unwrap()
}

fn name(text: &str) -> InstanceType {
    InstanceType::parse(text).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn described(name: &str, vcpus: u32) -> Arc<InstanceTypeFacts> {
    let info: InstanceTypeInfo = serde_json::from_value(serde_json::json!({
        "InstanceType": name,
        "VCpuInfo": {"DefaultVCpus": vcpus},
        "MemoryInfo": {"SizeInMiB": 8192},
        "ProcessorInfo": {"Manufacturer": "Intel", "SupportedArchitectures": ["x86_64"]},
        "SupportedUsageClasses": ["on-demand", "spot"],
        "SupportedVirtualizationTypes": ["hvm"],
        "NetworkInfo": {
            "NetworkCards": [{"NetworkCardIndex": 0, "MaximumNetworkInterfaces": 3}],
            "Ipv4AddressesPerInterface": 10
        }
    }))
    .unwrap();
    Arc::new(facts(&info, &Limits::default()).unwrap())
}

struct ReservationsWorld {
    region: Region,
    types: BTreeMap<InstanceType, Arc<InstanceTypeFacts>>,
    offerings: ZoneOfferings,
    on_demand: BTreeMap<InstanceType, UsdPerHour>,
    marks: Marks,
    now: Timestamp,
}

/// Four types of two prices (only m5.xlarge costs more), offered in zones a and b of a, b and c.
fn world() -> ReservationsWorld {
    let types: Vec<_> = [("a1.large", 2), ("m5.large", 2), ("m5.xlarge", 4), ("m5a.large", 2)]
        .map(|(n, v)| described(n, v))
        .into();
    let zones = ["a", "b", "c"].map(|z| (zone(z), ZoneId::parse(format!("use1-az-{z}")).unwrap()));
    let price = |text| UsdPerHour::parse(text).unwrap();
    ReservationsWorld {
        region: Region::parse("us-east-1").unwrap(),
        offerings: ZoneOfferings {
            zones: zones.into(),
            offered: types
                .iter()
                .map(|facts| (facts.name.clone(), BTreeSet::from([zone("a"), zone("b")])))
                .collect(),
        },
        types: types.into_iter().map(|facts| (facts.name.clone(), facts)).collect(),
        on_demand: [
            ("a1.large", "0.096"),
            ("m5.large", "0.096"),
            ("m5.xlarge", "0.192"),
            ("m5a.large", "0.096"),
        ]
        .map(|(n, p)| (name(n), price(p)))
        .into(),
        marks: Marks::default(),
        now: at(0),
    }
}

fn right() -> ReservedCapacity {
    ReservedCapacity::behind(&Gates::default().with(GateName::ReservedCapacity, FeatureGate::Enabled))
        .unwrap()
}

/// A reservation as `id type zone-letter kind available`; blocks end an hour after the epoch.
fn reservation(text: &str) -> ClassReservation {
    let words: Vec<&str> = text.split(' ').collect();
    let kind = ReservationKind::parse(words[3]).unwrap();
    ClassReservation {
        id: ReservationId::parse(words[0]).unwrap(),
        owner: "111122223333".to_owned(),
        instance_type: name(words[1]),
        zone: zone(words[2]),
        match_criteria: MatchCriteria::Targeted,
        kind,
        ends_at: (kind == ReservationKind::CapacityBlock).then(|| at(3600)),
        available: words[4].parse().unwrap(),
    }
}

fn ready<T>(part: CatalogPart, value: T) -> Ready<T> {
    require(part, Some((value, at(0))), at(0)).unwrap()
}

fn options(
    world: &ReservationsWorld,
    settings: &NodeSettings,
    places: Places<'_>,
    reservations: &[&str],
) -> Vec<InstanceTypeOption> {
    let spot = BTreeMap::new();
    let catalog = Catalog {
        region: &world.region,
        types: ready(CatalogPart::InstanceTypes, &world.types),
        offerings: ready(CatalogPart::Offerings, &world.offerings),
        on_demand: Some(ready(CatalogPart::OnDemandPrices, &world.on_demand)),
        spot: Some(ready(CatalogPart::SpotPrices, &spot)),
        learned: LearnedOf::NOTHING,
    };
    let exhaustion = Exhaustion { marks: &world.marks, requests: &[], now: world.now };
    let mut options = catalog.options(settings, places, exhaustion);
    let kept = reservations.iter().map(|text| reservation(text)).collect();
    let kept = ClassReservations::resolved(right(), kept);
    let left = Reservations::left(right(), &kept, &BTreeMap::new());
    catalog.offer_reserved(&mut options, &left, ClassNodes { settings, places }, exhaustion);
    options
}

/// Reserved offerings as `type zone-letter id price availability`.
fn reserved(options: &[InstanceTypeOption]) -> Vec<String> {
    let mut lines = Vec::new();
    for option in options {
        for offering in &option.offerings {
            let Some(reservation) = &offering.reservation else { continue };
            let availability = match &offering.availability {
                Availability::Available => "Available",
                Availability::Unavailable(why) => why.into_str(),
            };
            let price = offering.price.map_or("-".to_owned(), |price| price.to_string());
            let place = offering.zone.as_str().trim_start_matches("us-east-1");
            lines.push(format!("{} {place} {} {price} {availability}", option.facts.name, reservation.id));
        }
    }
    lines
}

fn check(world: &ReservationsWorld, reservations: &[&str], expected: &[&str]) {
    let options = options(world, &NodeSettings::default(), Places::AllZones, reservations);
    assert_eq!(reserved(&options), expected);
}

#[test]
fn a_reservation_is_an_offering_of_its_type_and_zone_at_a_ten_millionth_of_the_price() {
    let mut world = world();
    check(
        &world,
        &[
            "cr-1 m5.large a default 3",
            "cr-2 m5.large b default 0",
            "cr-3 m5.xlarge a default 1",
            // The type isn't offered in the zone to those without a reservation.
            "cr-4 m5.large c default 1",
            // Neither the zone nor the type are known.
            "cr-5 m5.large z default 1",
            "cr-6 m9.huge a default 1",
        ],
        &[
            "m5.large a cr-1 0.00000001 Available",
            "m5.large b cr-2 0.00000001 ReservationUsedUp",
            "m5.large c cr-4 0.00000001 Available",
            "m5.xlarge a cr-3 0.00000002 Available",
        ],
    );
    let block = &["cr-1 m5.large a capacity-block 3"];
    world.now = at(3600 - 2401);
    check(&world, block, &["m5.large a cr-1 0.00000001 Available"]);
    world.now = at(3600 - 2400);
    check(&world, block, &["m5.large a cr-1 0.00000001 ReservationExpiring"]);
}

#[test]
fn what_ec2_refused_of_one_reservation_keeps_no_other_from_being_had() {
    let mut world = world();
    let mark = Mark {
        key: UnavailableKey::Reservation(ReservationId::parse("cr-1").unwrap()),
        revision: 1,
        code: "ReservationCapacityExceeded".to_owned(),
        message: None,
        count: 1,
        since: at(0),
        asked_at: at(0),
        until: at(60),
        from_vcpus: None,
        probe: None,
        seen_by: "prod".parse().unwrap(),
    };
    world.marks = [mark].into_iter().collect();
    let two = ["cr-1 m5.large a default 3", "cr-2 m5.large a default 3"];
    check(&world, &two, &["m5.large a cr-1 0.00000001 Exhausted", "m5.large a cr-2 0.00000001 Available"]);
    world.now = at(60);
    check(&world, &two, &["m5.large a cr-1 0.00000001 Available", "m5.large a cr-2 0.00000001 Available"]);
}

#[test]
fn a_class_has_no_reservation_where_it_has_no_subnet_or_cant_have_the_type() {
    let world = world();
    let subnets = [ClassSubnet {
        id: SubnetId::parse("subnet-1").unwrap(),
        zone: zone("b"),
        zone_id: ZoneId::parse("use1-az-b").unwrap(),
        free_addresses: 9,
        shifted: None,
    }];
    let settings = NodeSettings { ami_family: AmiFamily::Al2023, ..NodeSettings::default() };
    let some = ["cr-1 m5.large a default 3", "cr-2 m5.large b default 3", "cr-3 a1.large b default 3"];
    let found = options(&world, &settings, Places::Subnets(&subnets), &some);
    assert_eq!(
        reserved(&found),
        [
            "a1.large b cr-3 0.00000001 Incompatible",
            "m5.large a cr-1 0.00000001 NoSubnet",
            "m5.large b cr-2 0.00000001 Available",
        ]
    );
}

#[test]
fn labels_say_which_reservations_a_type_has_and_requirements_select_among_them() {
    let world = world();
    let some = ["cr-1 m5.large a default 3", "cr-2 m5.large a interruptible 3"];
    let options = options(&world, &NodeSettings::default(), Places::AllZones, &some);
    let label = |option: &InstanceTypeOption, key: &str| option.labels.get(key).unwrap().to_string();
    let [_, large, xlarge, _] = options.as_slice() else { panic!("four types") };
    assert_eq!(
        [labels::CAPACITY_TYPE, labels::CAPACITY_RESERVATION_ID, labels::CAPACITY_RESERVATION_INTERRUPTIBLE]
            .map(|key| label(large, key)),
        [
            "karpenter.sh/capacity-type In [on-demand reserved spot]",
            "karpenter.k8s.aws/capacity-reservation-id In [cr-1 cr-2]",
            "karpenter.k8s.aws/capacity-reservation-interruptible In [false true]",
        ]
    );
    assert_eq!(
        label(xlarge, labels::CAPACITY_RESERVATION_ID),
        "karpenter.k8s.aws/capacity-reservation-id DoesNotExist"
    );
    let found = |asked: &[Requirement]| {
        let asked: Requirements = asked.iter().cloned().collect();
        let (_, offering) = large.cheapest(&asked).unwrap();
        offering.reservation.as_ref().map_or("none".to_owned(), |reservation| reservation.id.to_string())
    };
    assert_eq!(found(&[]), "cr-1");
    let interruptible = Requirement::one_of(labels::CAPACITY_RESERVATION_INTERRUPTIBLE, ["true"]);
    assert_eq!(found(&[interruptible]), "cr-2");
    assert_eq!(found(&[Requirement::does_not_exist(labels::CAPACITY_RESERVATION_ID)]), "none");
    assert_eq!(found(&[Requirement::none_of(labels::CAPACITY_TYPE, ["reserved"])]), "none");
}

/// The reservation that is taken first of all the types'.
fn first(reservations: &[&str]) -> String {
    let options = options(&world(), &NodeSettings::default(), Places::AllZones, reservations);
    let anything = Requirements::new();
    let ranks = options.iter().filter_map(|option| option.cheapest(&anything));
    let (_, offering) = ranks.min_by_key(|(rank, _)| *rank).unwrap();
    offering.reservation.as_ref().map_or("none".to_owned(), |reservation| reservation.id.to_string())
}

#[test]
fn c044_the_cheapest_goes_first_then_default_before_blocks_before_interruptible() {
    let check = |reservations: &[&str], expected: &str| assert_eq!(first(reservations), expected);
    check(&["cr-1 m5.xlarge a default 1", "cr-2 m5.large a interruptible 1"], "cr-2");
    check(&["cr-1 m5.large a capacity-block 1", "cr-2 m5a.large a default 1"], "cr-2");
    check(&["cr-1 m5.large a interruptible 1", "cr-2 m5a.large a capacity-block 1"], "cr-2");
    // An unavailable reservation doesn't count.
    check(&["cr-1 m5.xlarge a default 1", "cr-2 m5.large a default 0"], "cr-1");
}

#[test]
fn c046_reserved_goes_before_all_else_and_of_a_zone_the_one_with_the_most_room() {
    let check = |reservations: &[&str], expected: &str| assert_eq!(first(reservations), expected);
    check(&["cr-1 m5.large a default 1", "cr-2 m5.large a default 2"], "cr-2");
    check(&["cr-9 m5.large a default 2", "cr-2 m5.large a default 2"], "cr-2");
    check(&["cr-1 m5.large a default 0"], "none");
    check(&[], "none");
}
