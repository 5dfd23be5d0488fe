//! Which claims use capacity reservations, and the rest without room in one.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::*;
use tenon_domain::api::Pod;
use tenon_domain::api::pod::NodeSelectorTerm;
use tenon_domain::catalog::offering::{Availability, CapacityType, Offering};
use tenon_domain::catalog::{InstanceTypeOption, OfferedReservation};
use tenon_domain::id::{CommandId, ReservationId, Zone, ZoneId};
use tenon_domain::labels;
use tenon_domain::money::UsdPerHour;
use tenon_domain::requirement::Requirement;
use tenon_domain::reservation::ReservationKind;
use tenon_domain::resources::ResourceName;
use tenon_planning::provision::{PlanTrials, PoolInput, ProvisionPlan, ProvisionReport, Purpose, plan};

/// The type with reservations of so many instances in the first zone.
fn with(fake: &FakeType, reservations: &[(&str, u32)]) -> InstanceTypeOption {
    let mut option = fake.option();
    for (id, left) in reservations {
        option.offerings.push(Offering {
            zone: Zone::parse(ZONES[0]).unwrap(),
            zone_id: ZoneId::parse("tstz1").unwrap(),
            capacity_type: CapacityType::Reserved,
            reservation: Some(OfferedReservation {
                kind: ReservationKind::Default,
                id: ReservationId::parse(*id).unwrap(),
                left: *left,
            }),
            price: Some(UsdPerHour::from_nanos(fake.price().nanos().div_ceil(10_000_000))),
            availability: Availability::Available,
        });
    }
    let capacity_types = ["on-demand", "reserved", "spot"];
    option.labels.replace(Requirement::one_of(labels::CAPACITY_TYPE, capacity_types));
    let ids = reservations.iter().map(|(id, _)| *id);
    option.labels.replace(Requirement::one_of(labels::CAPACITY_RESERVATION_ID, ids));
    option
}

fn small() -> FakeType {
    FakeType::new("small.instance-type", 2, 4, 10)
}

fn medium() -> FakeType {
    FakeType::new("medium.instance-type", 4, 8, 10)
}

fn pool_of(types: Vec<InstanceTypeOption>) -> PoolInput {
    pool("default", types)
}

fn waiting(count: usize, cpu: &str) -> Vec<Pod> {
    pods("p", count, shape(&[("cpu", cpu)]))
}

/// How many claims go where: a reservation's id, or the capacity type that a fleet would use first.
fn taken(plan: &ProvisionPlan) -> BTreeMap<String, usize> {
    let mut taken = BTreeMap::new();
    for claim in &plan.claims {
        let mut reserved = claim.offerings.iter().filter_map(|offering| offering.reservation.as_ref());
        let to = reserved
            .next()
            .map_or(claim.capacity_types.first().unwrap().to_string(), |into| into.id.to_string());
        assert!(reserved.all(|other| other.id.as_str() == to), "one reservation a claim");
        *taken.entry(to).or_default() += 1;
    }
    taken
}

fn check(
    pods: Vec<Pod>,
    pools: Vec<PoolInput>,
    expected: &[(&str, usize)],
) -> (ProvisionPlan, ProvisionReport) {
    let placed = pods.len();
    let (plan, report) = plan(&input(pods, pools));
    let expected: BTreeMap<String, usize> = expected.iter().map(|(to, n)| ((*to).to_owned(), *n)).collect();
    assert_eq!(taken(&plan), expected, "{:#?}", report.unschedulable);
    assert_eq!(plan.claims.iter().map(|claim| claim.pods.len()).sum::<usize>(), placed);
    (plan, report)
}

#[test]
fn c103_reservations_that_overlap_are_filled_by_one_plan_and_the_rest_is_bought() {
    let types = vec![with(&small(), &[("cr-small", 1)]), with(&medium(), &[("cr-medium", 1)])];
    let expected = [("cr-medium", 1), ("cr-small", 1), ("spot", 1)];
    // The medium one holds two of them.
    check(waiting(4, "1.8"), vec![pool_of(types)], &expected);
}

#[test]
fn c103_four_exclusive_pods_take_three_places_and_one_node_is_bought() {
    let types = vec![with(&small(), &[("cr-a", 1), ("cr-b", 2)])];
    check(waiting(4, "1.8"), vec![pool_of(types)], &[("cr-a", 1), ("cr-b", 2), ("spot", 1)]);
}

#[test]
fn c103_a_pool_of_lower_weight_takes_only_what_no_reservation_has_room_for() {
    let mut reserved = pool("reserved", vec![with(&small(), &[("cr-a", 2)])]);
    reserved.pool.weight = 10;
    reserved.pool.template.requirements.add(Requirement::one_of(labels::CAPACITY_TYPE, ["reserved"]));
    for (count, expected) in [(2, &[("cr-a", 2)][..]), (3, &[("cr-a", 2), ("spot", 1)])] {
        let pools = vec![pool_of(vec![small().option()]), reserved.clone()];
        let (plan, _) = check(waiting(count, "1.8"), pools, expected);
        let bought = plan.claims.iter().filter(|claim| claim.pool.as_str() == "default").count();
        assert_eq!(bought, count - 2);
    }
}

#[test]
fn c103_a_preference_is_given_up_only_where_the_preferred_reservation_is_full() {
    let mut preferring = shape(&[("cpu", "1.8")]);
    preferring.preferred_node_affinity = vec![(
        1,
        NodeSelectorTerm {
            match_expressions: vec![Requirement::one_of(labels::CAPACITY_RESERVATION_ID, ["cr-b"])],
            match_fields: Vec::new(),
        },
    )];
    let types = vec![with(&small(), &[("cr-a", 1), ("cr-b", 2)])];
    let expected = [("cr-a", 1), ("cr-b", 2), ("spot", 1)];
    check(pods("p", 2, preferring.clone()), vec![pool_of(types.clone())], &[("cr-b", 2)]);
    check(pods("p", 4, preferring), vec![pool_of(types)], &expected);
}

#[test]
fn what_finds_no_room_in_a_reservation_is_packed_as_if_there_were_none() {
    // Reserved, the large type is almost free; bought, six pods of one vCPU fit on less.
    let large = FakeType::new("large.instance-type", 64, 128, 1);
    let types = vec![with(&large, &[("cr-large", 2)]), small().option()];
    let (plan, _) = check(waiting(4, "1"), vec![pool_of(types)], &[("cr-large", 2), ("spot", 2)]);
    let bought = plan.claims.iter().filter(|claim| !claim.capacity_types.contains(&CapacityType::Reserved));
    for claim in bought {
        assert_eq!(claim.instance_types.first().unwrap().as_str(), "small.instance-type");
        assert!(claim.price.unwrap() >= small().price(), "{:?}", claim.price);
    }
}

#[test]
fn pools_share_a_reservation_and_its_room() {
    let first = || pool_of(vec![with(&small(), &[("cr-a", 3)])]);
    let mut second = pool("second", vec![with(&small(), &[("cr-a", 3)])]);
    second.pool.weight = 10;
    second.pool.limits = list(&[("nodes", "2")]);
    let (plan, _) = check(waiting(6, "1.8"), vec![first(), second], &[("cr-a", 3), ("spot", 3)]);
    let of_second = plan.claims.iter().filter(|claim| claim.pool.as_str() == "second").count();
    assert_eq!(of_second, 2, "capacity beyond the reservation returns to the limits");
}

#[test]
fn limits_are_charged_once_for_what_is_packed_again() {
    let mut limited = pool_of(vec![with(&small(), &[("cr-a", 1)])]);
    limited.pool.limits = list(&[("cpu", "8")]);
    assert_eq!(limited.pool.limits.get(&ResourceName::CPU), list(&[("cpu", "8")]).get(&ResourceName::CPU));
    check(waiting(4, "1.8"), vec![limited], &[("cr-a", 1), ("spot", 3)]);
}

#[test]
fn a_pool_of_reserved_capacity_alone_buys_nothing() {
    let mut reserved = pool_of(vec![with(&small(), &[("cr-a", 1)])]);
    reserved.pool.template.requirements.add(Requirement::one_of(labels::CAPACITY_TYPE, ["reserved"]));
    let (plan, report) = plan(&input(waiting(3, "1.8"), vec![reserved]));
    assert_eq!(taken(&plan), BTreeMap::from([("cr-a".to_owned(), 1)]));
    let reasons: Vec<&str> = report.unschedulable.iter().map(|one| one.reason().into_str()).collect();
    assert_eq!(reasons, ["AllOfferingsUnavailable"; 2]);
}

#[test]
fn a_pool_without_reserved_capacity_leaves_reservations_alone() {
    let mut bought = pool_of(vec![with(&small(), &[("cr-a", 9)])]);
    bought.pool.template.requirements.add(Requirement::one_of(labels::CAPACITY_TYPE, ["on-demand"]));
    check(waiting(3, "1.8"), vec![bought], &[("on-demand", 3)]);
}

/// Two replacements of one look can't count on the same place.
#[test]
fn a_reservation_that_a_taken_plan_fills_is_full_for_the_next() {
    let world = input(waiting(2, "1.8"), vec![pool_of(vec![with(&small(), &[("cr-a", 1)])])]);
    let moving = Purpose::Replacement(CommandId::parse("command-1").unwrap());
    let mut trials = PlanTrials::new(&world, |_| true, &world.pods);
    let none = BTreeSet::new();
    let [one, other] = [&world.pods[..1], &world.pods[1..]];
    let first = trials.plan(&moving, &none, one).0;
    assert_eq!(taken(&first), BTreeMap::from([("cr-a".to_owned(), 1)]));
    assert_eq!(taken(&trials.plan(&moving, &none, other).0), taken(&first), "a trial alone takes nothing");
    trials.take(&none, &first, one);
    let second = trials.plan(&moving, &none, other).0;
    assert_eq!(taken(&second), BTreeMap::from([("spot".to_owned(), 1)]));
}
