//! Probes: of which capacity, by which claims, when. Times are seconds; the plans are made at 0.

use std::collections::BTreeSet;

use crate::support::*;
use proptest::prelude::*;
use tenon_domain::catalog::{
    Availability, CapacityType, InstanceTypeOption, OfferedReservation, Offering, Unavailability,
};
use tenon_domain::evidence::{CatalogPart, Waiting};
use tenon_domain::id::CommandId;
use tenon_domain::labels;
use tenon_domain::money::UsdPerHour;
use tenon_domain::quantity::Quantity;
use tenon_domain::requirement::Requirement;
use tenon_domain::reservation::ReservationKind;
use tenon_domain::resources::ResourceName;
use tenon_planning::provision::{
    AskReason, PlannedClaim, PoolInput, PoolStanding, ProvisionInput, ProvisionPlan, ProvisionReport,
    Purpose, plan,
};

/// Due some time ago, held for a while, or held for long with an old answer.
const DUE: (i64, i64) = (-10, 60);
const HELD: (i64, i64) = (40, 180);
const LONG_HELD: (i64, i64) = (7000, -1);

/// Marks the offerings of which the text is part of `type zone capacity-type`.
fn mark(types: &mut [InstanceTypeOption], text: &str, (until, last_resort_at): (i64, i64)) {
    for option in types {
        let name = option.facts.name.clone();
        let says = |o: &Offering| format!("{name} {} {}", o.zone, o.capacity_type).contains(text);
        for offering in option.offerings.iter_mut().filter(|offering| says(offering)) {
            offering.availability = Availability::Unavailable(Unavailability::Exhausted {
                until: at(until),
                last_resort_at: at(last_resort_at),
            });
        }
    }
}

/// A pool with one type of 4 CPUs, with marks.
fn marked(name: &str, marks: &[(&str, (i64, i64))]) -> PoolInput {
    let mut types = vec![FakeType::new("default.instance-type", 4, 4, 5).option()];
    // Spot at a third of the price, so that it matters.
    for offering in types.iter_mut().flat_map(|one| &mut one.offerings) {
        if offering.capacity_type.as_str() == "spot" {
            offering.price = offering.price.map(|price| UsdPerHour::from_nanos(price.nanos() / 3));
        }
    }
    for (text, times) in marks {
        mark(&mut types, text, *times);
    }
    pool(name, types)
}

/// Pods of which one type holds one.
fn web(count: usize) -> Vec<tenon_domain::api::Pod> {
    pods("web", count, shape(&[("cpu", "3")]))
}

fn asked(claim: &PlannedClaim) -> Vec<String> {
    let told = |o: &tenon_planning::provision::UsableOffering| {
        let how = match o.asked {
            AskReason::Available => "",
            AskReason::Probe => " again",
        };
        format!("{} {}{how}", o.zone, o.capacity_type)
    };
    claim.offerings.iter().map(told).collect()
}

fn planned(input: &ProvisionInput, expected: usize) -> (ProvisionPlan, ProvisionReport) {
    let (plan, report) = plan(input);
    assert_eq!(plan.claims.len(), expected, "{plan:#?} {report:#?}");
    (plan, report)
}

#[test]
fn where_everything_was_exhausted_one_claim_asks_and_nobody_is_refused_yet() {
    let world = input(web(7), vec![marked("default", &[("", DUE)])]);
    let (plan, report) = planned(&world, 1);
    let claim = &plan.claims[0];
    assert_eq!(claim.pods.len(), 1);
    assert!(claim.offerings.iter().all(|offering| offering.asked == AskReason::Probe));
    assert_eq!(claim.offerings.len(), 5);
    assert!(report.unschedulable.is_empty(), "the others wait for its answer");
}

#[test]
fn each_group_asks_for_itself() {
    let others = pods("gpu", 2, shape(&[("cpu", "2"), ("memory", "3Gi")]));
    let mut all = web(3);
    all.extend(others);
    let (plan, _) = planned(&input(all, vec![marked("default", &[("", DUE)])]), 2);
    let names: BTreeSet<_> =
        plan.claims.iter().map(|claim| claim.pods[0].name.name.split('-').next().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["gpu", "web"]));
}

#[test]
fn what_is_due_rides_along_with_what_can_be_had() {
    let world = input(web(3), vec![marked("default", &[("test-zone-1 spot", DUE)])]);
    let (plan, report) = planned(&world, 3);
    assert!(report.unschedulable.is_empty());
    for claim in &plan.claims {
        let expected = [
            "test-zone-1 on-demand",
            "test-zone-1 spot again",
            "test-zone-2 on-demand",
            "test-zone-2 spot",
            "test-zone-3 on-demand",
        ];
        let found: BTreeSet<String> = asked(claim).into_iter().collect();
        assert_eq!(found, expected.iter().map(|s| (*s).to_owned()).collect());
    }
}

#[test]
fn on_demand_is_asked_for_along_only_where_it_would_be_taken_first() {
    let mut types = vec![FakeType::new("default.instance-type", 4, 4, 5).option()];
    mark(&mut types, "spot", HELD);
    mark(&mut types, "test-zone-2 on-demand", DUE);
    let dearer = |types: &mut Vec<InstanceTypeOption>, zone: &str| {
        for offering in types.iter_mut().flat_map(|one| &mut one.offerings) {
            if offering.zone.as_str() == zone {
                offering.price = offering.price.map(|price| price + price);
            }
        }
    };
    let mut cheap = types.clone();
    dearer(&mut cheap, "test-zone-1");
    dearer(&mut cheap, "test-zone-3");
    let (plan, _) = planned(&input(web(1), vec![pool("default", cheap)]), 1);
    assert!(asked(&plan.claims[0]).contains(&"test-zone-2 on-demand again".to_owned()));
    dearer(&mut types, "test-zone-2");
    let (plan, _) = planned(&input(web(1), vec![pool("default", types)]), 1);
    assert_eq!(asked(&plan.claims[0]), ["test-zone-1 on-demand", "test-zone-3 on-demand"]);
}

#[test]
fn spot_that_was_exhausted_is_asked_for_before_all_pods_go_on_demand() {
    let world = input(web(4), vec![marked("default", &[("spot", DUE)])]);
    let (plan, report) = planned(&world, 1);
    assert_eq!(asked(&plan.claims[0]), ["test-zone-1 spot again", "test-zone-2 spot again"]);
    assert!(report.unschedulable.is_empty());
    // No pod waits for a held mark, or for one that saves nothing.
    let (plan, _) = planned(&input(web(4), vec![marked("default", &[("spot", HELD)])]), 4);
    assert_eq!(plan.claims[0].offerings.len(), 3);
    let mut dear = vec![FakeType::new("default.instance-type", 4, 4, 5).option()];
    mark(&mut dear, "spot", DUE);
    planned(&input(web(4), vec![pool("default", dear)]), 4);
}

#[test]
fn the_pool_that_is_tried_first_is_asked_first() {
    let mut heavy = marked("heavy", &[("", DUE)]);
    heavy.pool.weight = 10;
    let (plan, _) = planned(&input(web(3), vec![heavy.clone(), marked("light", &[])]), 1);
    assert_eq!(plan.claims[0].pool.as_str(), "heavy");
    let mut held = marked("heavy", &[("", HELD)]);
    held.pool.weight = 10;
    let (plan, _) = planned(&input(web(3), vec![held, marked("light", &[])]), 3);
    assert!(plan.claims.iter().all(|claim| claim.pool.as_str() == "light"));
}

#[test]
fn what_is_held_is_looked_at_again_when_its_own_time_comes() {
    let soonest = marked("default", &[("", LONG_HELD), ("test-zone", (500, 180)), ("zone-2 spot", HELD)]);
    let (plan, report) = planned(&input(web(1), vec![soonest]), 0);
    assert_eq!(plan.wake_at, Some(at(40)));
    assert_eq!(report.unschedulable[0].reason().into_str(), "AllOfferingsUnavailable");
    // Marks of unsuitable offerings don't matter.
    let mut types = vec![
        FakeType::new("default.instance-type", 4, 4, 5).option(),
        FakeType::new("small.instance-type", 2, 2, 5).option(),
    ];
    mark(&mut types, "default", (500, 180));
    mark(&mut types, "small", HELD);
    let (plan, _) = planned(&input(web(1), vec![pool("default", types)]), 0);
    assert_eq!(plan.wake_at, Some(at(180)));
}

#[test]
fn where_nothing_else_is_left_what_is_held_for_long_is_asked_for_after_three_minutes() {
    let world = input(web(5), vec![marked("default", &[("", (7000, 100)), ("test-zone-1", LONG_HELD)])]);
    let (plan, _) = planned(&world, 1);
    assert_eq!(asked(&plan.claims[0]), ["test-zone-1 spot again", "test-zone-1 on-demand again"]);
    // A pod with an available offering causes no probe.
    let (plan, _) = planned(&input(web(5), vec![marked("default", &[("spot", LONG_HELD)])]), 5);
    assert!(plan.claims.iter().all(|claim| claim.offerings.iter().all(|o| o.asked == AskReason::Available)));
}

#[test]
fn a_reservation_that_refused_is_asked_again_like_anything_else() {
    let mut types = vec![FakeType::new("default.instance-type", 4, 4, 5).option()];
    mark(&mut types, "", LONG_HELD);
    let [first, ..] = &mut types[0].offerings[..] else { panic!("{types:?}") };
    first.capacity_type = CapacityType::Reserved;
    first.reservation =
        Some(OfferedReservation { kind: ReservationKind::Default, id: "cr-1".parse().unwrap(), left: 5 });
    types[0].offerings.truncate(1);
    let (plan, report) = planned(&input(web(3), vec![pool("default", types)]), 1);
    assert_eq!(asked(&plan.claims[0]), ["test-zone-1 reserved again"]);
    assert!(report.unschedulable.is_empty(), "the others wait for its answer");
}

#[test]
fn prices_that_are_done_without_are_no_reason_of_a_pod_that_is_refused_for_another() {
    let mut without = marked("default", &[]);
    without.without = Some(Waiting::CatalogNotHydrated { part: CatalogPart::SpotPrices });
    let large = pods("large", 1, shape(&[("cpu", "300")]));
    let (_, report) = planned(&input(large, vec![without]), 0);
    assert_eq!(report.unschedulable[0].reason().into_str(), "InsufficientResources");
    assert_eq!(report.waiting, []);
}

#[test]
fn a_pool_whose_requests_were_refused_tries_one_claim() {
    let refused = PoolInput { standing: PoolStanding::OnProbation, ..marked("default", &[]) };
    let mut all = web(3);
    all.extend(pods("other", 2, shape(&[("cpu", "2"), ("memory", "3Gi")])));
    let (plan, report) = planned(&input(all, vec![refused]), 1);
    assert!(plan.claims[0].offerings.iter().all(|offering| offering.asked == AskReason::Probe));
    assert!(report.unschedulable.is_empty());
}

#[test]
fn replacements_wait_for_what_can_be_had() {
    let command = CommandId::parse("command-1").unwrap();
    let world = ProvisionInput {
        purpose: Purpose::Replacement(command),
        ..input(web(1), vec![marked("default", &[("", DUE)])])
    };
    planned(&world, 0);
}

#[test]
fn replacements_that_nothing_is_left_for_ask_again_like_pending_pods() {
    let asking = |times| {
        let purpose = Purpose::AskingReplacement(CommandId::parse("command-1").unwrap());
        ProvisionInput { purpose, ..input(web(2), vec![marked("default", &[("", times)])]) }
    };
    let (plan, report) = planned(&asking(DUE), 1);
    assert!(plan.claims[0].asks_only());
    assert!(report.unschedulable.is_empty(), "the other one waits for its answer");
    planned(&asking(HELD), 0);
    planned(&asking(LONG_HELD), 1);
}

#[test]
fn limits_hold_for_what_is_asked_again() {
    let mut limited = marked("default", &[("", DUE)]);
    limited.pool.limits.insert(ResourceName::CPU, Quantity::from_integer(3));
    planned(&input(web(1), vec![limited]), 0);
}

#[test]
fn a_pool_that_does_without_spot_prices_says_so_to_pods_that_want_spot() {
    let mut without = marked("default", &[]);
    let types = std::sync::Arc::make_mut(&mut without.types);
    for offering in types.iter_mut().flat_map(|one| &mut one.offerings) {
        if offering.capacity_type.as_str() == "spot" {
            offering.availability = Availability::Unavailable(Unavailability::PriceUnknown);
        }
    }
    let waiting = Waiting::CatalogNotHydrated { part: CatalogPart::SpotPrices };
    without.without = Some(waiting.clone());
    planned(&input(web(2), vec![without.clone()]), 2);
    let mut spot = shape(&[("cpu", "3")]);
    spot.node_selector.insert(labels::CAPACITY_TYPE.to_owned(), "spot".to_owned());
    let (_, report) = planned(&input(pods("spot", 1, spot), vec![without]), 0);
    assert_eq!(report.waiting, [waiting]);
    assert_eq!(report.unschedulable[0].reason().into_str(), "NodeClassNotReady");
}

#[test]
fn what_has_no_price_is_taken_last() {
    let mut types = vec![
        FakeType::new("a-unpriced.instance-type", 4, 4, 5).option(),
        FakeType::new("default.instance-type", 4, 4, 5).option(),
    ];
    for offering in &mut types[0].offerings {
        offering.price = None;
    }
    let (plan, _) = planned(&input(web(1), vec![pool("default", types.clone())]), 1);
    let names: Vec<&str> = plan.claims[0].instance_types.iter().map(|name| name.as_str()).collect();
    assert_eq!(names, ["default.instance-type", "a-unpriced.instance-type"]);
    mark(&mut types, "default.instance-type", HELD);
    let (plan, _) = planned(&input(web(1), vec![pool("default", types)]), 1);
    assert_eq!(plan.claims[0].price, None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// One exhausted offering never keeps another from being launched.
    #[test]
    fn who_can_have_something_gets_it_whatever_else_is_marked(
        marks in prop::collection::vec((0_usize..30, -300_i64..7200, -300_i64..300), 0..30),
        free in 0_usize..30,
        zone in prop::option::of(0_usize..3),
    ) {
        let mut types = six();
        let keys: Vec<(usize, usize)> = types
            .iter()
            .enumerate()
            .flat_map(|(index, one)| (0..one.offerings.len()).map(move |place| (index, place)))
            .collect();
        let free = keys[free % keys.len()];
        for (key, until, last_resort_at) in marks {
            let (index, place) = keys[key % keys.len()];
            if (index, place) != free {
                types[index].offerings[place].availability =
                    Availability::Unavailable(Unavailability::Exhausted {
                        until: at(until),
                        last_resort_at: at(last_resort_at),
                    });
            }
        }
        let mut asked = shape(&[("cpu", "1")]);
        let name = types[free.0].facts.name.as_str().to_owned();
        if let Some(zone) = zone {
            let of = types[free.0].offerings[free.1].zone.as_str();
            prop_assume!(of == ZONES[zone]);
            asked.node_selector.insert(labels::ZONE.to_owned(), of.to_owned());
        }
        let only = Requirement::one_of(labels::INSTANCE_TYPE, [name.as_str()]);
        let mut pool = pool("default", types);
        pool.pool.template.requirements = [only].into_iter().collect();
        let (plan, report) = plan(&input(pods("web", 3, asked), vec![pool]));
        prop_assert!(report.unschedulable.is_empty(), "{:?}", report.unschedulable);
        // Every pod has a place, or one claim probes a better offering and the rest waits for the answer.
        let placed: usize = plan.claims.iter().map(|claim| claim.pods.len()).sum();
        let asks = plan.claims.iter().any(|c| c.offerings.iter().all(|o| o.asked == AskReason::Probe));
        prop_assert!(placed == 3 || asks, "{plan:#?}");
    }
}

#[test]
fn a_pool_in_which_only_what_is_due_is_large_enough_asks_before_the_next_pool_takes_the_pods() {
    let mut types =
        vec![FakeType::new("a.large", 8, 8, 5).option(), FakeType::new("a.little", 2, 2, 5).option()];
    mark(&mut types, "a.large", DUE);
    let mut first = pool("first", types);
    first.pool.weight = 10;
    let second = pool("second", vec![FakeType::new("a.large", 8, 8, 5).option()]);
    let (plan, _) = planned(&input(web(1), vec![first, second]), 1);
    assert_eq!(plan.claims[0].pool.as_str(), "first");
}
