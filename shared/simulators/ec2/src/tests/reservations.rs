//! Capacity reservations: who is launched into which.

use super::*;

fn reserve(id: &str, match_criteria: MatchCriteria, instances: u32) -> CapacityReservation {
    CapacityReservation {
        id: ReservationId::parse(id).unwrap(),
        owner: "111122223333".to_owned(),
        instance_type: instance_type("m5.large"),
        zone: zone("us-east-1a"),
        match_criteria,
        kind: ReservationKind::Default,
        ends_at: None,
        available: instances,
        tags: Tags::from([("team".to_owned(), id.to_owned())]),
    }
}

impl TwinWorld {
    /// A fleet from a template with this preference.
    fn launch_with(&self, name: &str, says: ReservationPreference, count: u32) -> FleetResult {
        let data = LaunchTemplateData {
            image: Some(self.image.clone()),
            reservations: Some(says),
            ..LaunchTemplateData::default()
        };
        let template = CreateLaunchTemplate { name: name.to_owned(), data, tags: Tags::new() };
        now(self.twin.create_launch_template(&template)).unwrap();
        let mut request = fleet(name, count, &[over("m5.large", "us-east-1a")]);
        request.launch_templates[0].name = name.to_owned();
        self.launch(&request)
    }

    /// The free capacity of each reservation, as EC2 returns it.
    fn room(&self) -> Vec<(String, u32)> {
        let all = CapacityReservationFilter::default();
        let found = now(self.twin.describe_capacity_reservations(&all)).unwrap();
        found.into_iter().map(|one| (one.id.to_string(), one.available)).collect()
    }
}

fn of_reservation(world: &TwinWorld, result: &FleetResult) -> Vec<Option<String>> {
    let of = |id| world.twin.instance(&id).unwrap().instance.reservation.as_ref().map(ToString::to_string);
    result.instance_ids().into_iter().map(of).collect()
}

#[test]
fn a_targeted_reservation_takes_who_names_it_until_it_is_full() {
    let world = TwinWorld::plain();
    world.twin.add_reservation(reserve("cr-1", MatchCriteria::Targeted, 2)).unwrap();
    // The pool is dry: reserved capacity isn't taken from it.
    world.twin.set_capacity(pool(TargetCapacityType::OnDemand, "m5.large", "us-east-1a"), Some(0));
    let only = || ReservationPreference::Only(ReservationId::parse("cr-1").unwrap());
    let result = world.launch_with("first", only(), 3);
    assert_eq!(of_reservation(&world, &result), vec![Some("cr-1".to_owned()); 2]);
    assert_eq!(codes_of(&result), ["ReservationCapacityExceeded"]);
    assert_eq!(world.room(), [("cr-1".to_owned(), 0)]);
    now(world.twin.terminate_instances(&result.instance_ids())).unwrap();
    world.pass(MINUTE);
    assert_eq!(world.room(), [("cr-1".to_owned(), 2)]);
    assert!(world.launch(&fleet("pool", 1, &[over("m5.large", "us-east-1a")])).instances.is_empty());
    let ended = ReservationId::parse("cr-1").unwrap();
    world.twin.end_reservation(&ended).unwrap();
    assert_eq!(codes_of(&world.launch_with("second", only(), 1)), ["ReservationCapacityExceeded"]);
}

#[test]
fn an_open_reservation_takes_who_says_nothing_and_not_who_asks_for_none() {
    let world = TwinWorld::plain();
    world.twin.add_reservation(reserve("cr-1", MatchCriteria::Open, 1)).unwrap();
    let none = world.launch_with("none", ReservationPreference::None, 1);
    assert_eq!(of_reservation(&world, &none), [None]);
    let plain = world.launch(&fleet("plain", 2, &[over("m5.large", "us-east-1a")]));
    let mut taken = of_reservation(&world, &plain);
    taken.sort();
    assert_eq!(taken, [None, Some("cr-1".to_owned())]);
    world.twin.end_reservation(&ReservationId::parse("cr-1").unwrap()).unwrap();
    assert_eq!(of_reservation(&world, &plain), [None, None]);
}

#[test]
fn reservations_are_found_by_id_tag_and_criteria() {
    let world = TwinWorld::plain();
    world.twin.add_reservation(reserve("cr-1", MatchCriteria::Open, 1)).unwrap();
    world.twin.add_reservation(reserve("cr-2", MatchCriteria::Targeted, 1)).unwrap();
    let found = |filter: CapacityReservationFilter| {
        let found = now(world.twin.describe_capacity_reservations(&filter)).unwrap();
        found.into_iter().map(|one| one.id.to_string()).collect::<Vec<_>>()
    };
    let any = CapacityReservationFilter::default;
    assert_eq!(found(any()), ["cr-1", "cr-2"]);
    assert_eq!(found(CapacityReservationFilter { ids: vec!["cr-2".to_owned()], ..any() }), ["cr-2"]);
    let criteria = Some(MatchCriteria::Open);
    assert_eq!(found(CapacityReservationFilter { match_criteria: criteria, ..any() }), ["cr-1"]);
    let tags = vec![TagFilter::equals("team", "cr-2")];
    assert_eq!(found(CapacityReservationFilter { tags, ..any() }), ["cr-2"]);
    assert_eq!(found(CapacityReservationFilter { owner: Some("9".to_owned()), ..any() }), [""; 0]);
    let unknown = CapacityReservationFilter { ids: vec!["cr-9".to_owned()], ..any() };
    let error = now(world.twin.describe_capacity_reservations(&unknown)).unwrap_err();
    assert_eq!(error.class(), ErrorClass::NotFound);
}
