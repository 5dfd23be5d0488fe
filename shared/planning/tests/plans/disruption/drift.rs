//! Which claims drift, and why.

use super::*;

#[test]
fn another_image_marks_drift_and_the_same_one_clears_it() {
    let world = cluster(vec![settled(0, OLD, busy(0)), drifted(1, -30, busy(1))], BudgetNodes::Percent(0));
    let (marked, _) = plan(&world);
    assert_eq!((marked.marks.len(), marked.commands.len(), marked.wake_at), (1, 0, Some(at(0))));
    assert!(!marked.is_empty(), "a mark is something to do");
    let drift = marked.marks[0].drift.as_ref().unwrap();
    assert_eq!((drift.from.as_str(), drift.to.as_str(), drift.reason.as_str()), (OLD, NEW, "AMIDrift"));
    let mut back = cluster(vec![drifted(1, -30, busy(1))], BudgetNodes::Percent(100));
    back.classes[0].images[0].id = ImageId::parse(OLD).unwrap();
    let (cleared, _) = plan(&back);
    assert_eq!((cleared.marks[0].drift.is_none(), cleared.commands.len()), (true, 0));
}

#[test]
fn a_node_of_an_image_that_failed_later_stays() {
    let mut world = cluster(vec![settled(0, OLD, busy(0))], BudgetNodes::Percent(100));
    world.classes[0].failed_images.insert(ImageId::parse(OLD).unwrap());
    assert!(plan(&world).0.marks.is_empty());
}

/// A class of an alias has an image for types with GPUs beside the one for types without.
#[test]
fn another_variants_image_is_no_drift() {
    let mut world = cluster(vec![settled(0, NEW, busy(0))], BudgetNodes::Percent(100));
    let standard = ResolvedImage { variant: ImageVariant::Standard, ..world.classes[0].images[0].clone() };
    let nvidia =
        ResolvedImage { id: ImageId::parse(OLD).unwrap(), variant: ImageVariant::Nvidia, ..standard.clone() };
    world.classes[0].images = vec![nvidia, standard];
    assert!(plan(&world).0.marks.is_empty());
}

#[test]
fn a_subnet_that_the_class_no_longer_has_marks_drift() {
    let subnets =
        |names: &[&str]| names.iter().map(|name| SubnetId::parse(*name).unwrap()).collect::<Vec<_>>();
    let world = |given: &[&str]| {
        let mut world = cluster(vec![settled(0, NEW, busy(0))], BudgetNodes::Percent(0));
        world.classes[0].subnets = subnets(given);
        world
    };
    assert!(plan(&world(&["subnet-1", "subnet-2"])).0.marks.is_empty());
    let mut moved = world(&["subnet-3", "subnet-2"]);
    let (marked, _) = plan(&moved);
    let drift = marked.marks[0].drift.clone().unwrap();
    assert_eq!((drift.reason.as_str(), drift.from.as_str()), ("SubnetDrift", "subnet-1"));
    assert_eq!(drift.to, "subnet-2,subnet-3");
    // Other free addresses give another order, and no other mark.
    moved.claims[0].claim.drift = Some(drift);
    moved.classes[0].subnets.reverse();
    assert!(plan(&moved).0.marks.is_empty());
    let many: Vec<String> = (2..10).map(|n| format!("subnet-{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let to = plan(&world(&many)).0.marks.remove(0).drift.unwrap().to;
    assert_eq!(to, "subnet-2,subnet-3,subnet-4,subnet-5,subnet-6 and 3 more");
    let to = plan(&world(&many[..5])).0.marks.remove(0).drift.unwrap().to;
    assert_eq!(to, "subnet-2,subnet-3,subnet-4,subnet-5,subnet-6");
}

#[test]
fn of_a_subnet_that_was_never_kept_nothing_is_said() {
    let mut view = settled(0, NEW, busy(0));
    let instance = LaunchedInstance { subnet: None, ..instance(0, NEW) };
    view.claim.state = ClaimState::Initialized { instance, node: node_name(0), at: at(-900) };
    let mut world = cluster(vec![view], BudgetNodes::Percent(100));
    world.classes[0].subnets = vec![SubnetId::parse("subnet-2").unwrap()];
    assert!(plan(&world).0.is_empty());
}

/// A claim whose launch named `cr-1`, of a class with these reservations behind that gate.
fn reserved(gate: FeatureGate, ids: &[&str]) -> DisruptionInput {
    let mut view = settled(0, NEW, busy(0));
    let into = LaunchedInto { id: "cr-1".parse().unwrap(), kind: ReservationKind::Default };
    let instance = LaunchedInstance { reservation: Some(into), ..instance(0, NEW) };
    view.claim.state = ClaimState::Initialized { instance, node: node_name(0), at: at(-900) };
    let mut world = cluster(vec![view], BudgetNodes::Percent(100));
    let reservation = |id: &&str| ClassReservation {
        id: id.parse().unwrap(),
        owner: "111122223333".to_owned(),
        instance_type: InstanceType::parse("default.instance-type").unwrap(),
        zone: Zone::parse("test-zone-1").unwrap(),
        match_criteria: MatchCriteria::Targeted,
        kind: ReservationKind::Default,
        ends_at: None,
        available: 0,
    };
    let of_class = ClassReservations::restored(ids.iter().map(reservation).collect());
    world.classes[0].reservations =
        ReservedCapacity::behind(&Gates::default().with(GateName::ReservedCapacity, gate))
            .map(|right| DriftingReservations { right, of_class });
    world
}

#[test]
fn a_claim_drifts_from_a_reservation_that_its_class_lost_only_behind_the_gate() {
    let (marked, _) = plan(&reserved(FeatureGate::Enabled, &["cr-2", "cr-3"]));
    let drift = marked.marks[0].drift.clone().unwrap();
    assert_eq!((drift.reason.as_str(), drift.from.as_str()), ("CapacityReservationDrift", "cr-1"));
    assert_eq!(drift.to, "cr-2,cr-3");
    let (alone, _) = plan(&reserved(FeatureGate::Enabled, &[]));
    assert_eq!(alone.marks[0].drift.as_ref().unwrap().to, "none");
    assert!(plan(&reserved(FeatureGate::Enabled, &["cr-1", "cr-2"])).0.is_empty());
    assert!(plan(&reserved(FeatureGate::Disabled, &["cr-2"])).0.is_empty());
    // A reservation that drifted while the gate was open is no drift once it is off.
    let mut off = reserved(FeatureGate::Disabled, &["cr-2"]);
    off.claims[0].claim.drift = Some(drift);
    assert_eq!(plan(&off).0.marks[0].drift, None);
}

#[test]
fn an_instance_that_an_open_reservation_took_never_drifts_from_it() {
    // The launch named no reservation, so the claim has none.
    let mut world = reserved(FeatureGate::Enabled, &["cr-2"]);
    world.claims = vec![settled(0, NEW, busy(0))];
    assert!(plan(&world).0.is_empty());
}

/// Also a selector that is new, and one that is gone: a node can't move into a group, or out of it.
#[test]
fn a_claim_drifts_from_another_placement_group_than_its_class_has_and_not_from_its_partition() {
    let check = |launched: Option<&str>, partition: Option<u32>, selected: Option<&str>| {
        let mut view = settled(0, NEW, busy(0));
        let placement = launched.map(|id| LaunchPlacement { group: id.parse().unwrap(), partition });
        let instance = LaunchedInstance { placement, ..instance(0, NEW) };
        view.claim.state = ClaimState::Initialized { instance, node: node_name(0), at: at(-900) };
        let mut world = cluster(vec![view], BudgetNodes::Percent(0));
        world.classes[0].placement_group = selected.map(|id| id.parse().unwrap());
        let drift = plan(&world).0.marks.pop().and_then(|mark| mark.drift);
        drift.map(|drift| format!("{} {} {}", drift.reason.as_str(), drift.from, drift.to))
    };
    assert_eq!(check(Some("pg-1"), None, Some("pg-1")), None);
    assert_eq!(check(Some("pg-1"), Some(2), Some("pg-1")), None);
    assert_eq!(check(None, None, None), None);
    let drifts = |text: &str| Some(format!("PlacementGroupDrift {text}"));
    assert_eq!(check(Some("pg-1"), Some(2), Some("pg-2")), drifts("pg-1 pg-2"));
    assert_eq!(check(None, None, Some("pg-1")), drifts("none pg-1"));
    assert_eq!(check(Some("pg-1"), None, None), drifts("pg-1 none"));
}

#[test]
fn nothing_is_known_to_have_drifted_while_the_class_is_not_ready() {
    let mut world = cluster(vec![settled(0, OLD, busy(0))], BudgetNodes::Percent(100));
    world.classes[0].readiness = ClassReadiness::NotReady;
    assert!(plan(&world).0.is_empty());
    world.classes.clear();
    assert!(plan(&world).0.is_empty());
}

/// The drift that is found of one initialised node in a changed world.
fn found(change: impl Fn(&mut DisruptionInput)) -> Option<(DriftReason, String, String)> {
    let mut world = cluster(vec![settled(0, NEW, busy(0))], BudgetNodes::Percent(100));
    change(&mut world);
    let (plan, _) = plan(&world);
    let mark = plan.marks.into_iter().next()?;
    mark.drift.map(|drift| (drift.reason, drift.from, drift.to))
}

fn reason(change: impl Fn(&mut DisruptionInput)) -> Option<DriftReason> {
    found(change).map(|(reason, ..)| reason)
}

#[test]
fn an_edited_template_of_the_pool_is_drift_and_an_edited_requirement_is_where_labels_differ() {
    assert_eq!(found(|_| {}), None);
    let labelled = |world: &mut DisruptionInput| {
        world.pools[0].template.labels.insert("team".to_owned(), "a".to_owned());
    };
    assert_eq!(reason(labelled), Some(DriftReason::NodePoolDrifted));
    let requiring = |requirement: Requirement, label: Option<&str>| {
        found(|world| {
            world.pools[0].template.requirements.add(requirement.clone());
            let labels = label.map(|value| ("team".to_owned(), value.to_owned()));
            world.world.nodes[0].labels.extend(labels);
        })
    };
    let asked = || Requirement::one_of("team", ["a", "b"]);
    assert_eq!(requiring(asked(), Some("b")), None);
    let (reason, from, to) = requiring(asked(), Some("c")).unwrap();
    assert_eq!((reason, from.as_str()), (DriftReason::RequirementsDrifted, "team=c"));
    assert!(to.contains("team") && to.contains('a'), "{to}");
    let (reason, from, _) = requiring(asked(), None).unwrap();
    assert_eq!(from, "no label team");
    let to = "team In [a]".to_owned();
    let drift = Drift { reason, since: at(0), from, to, fields: Vec::new() };
    let claim = settled(0, NEW, Vec::new()).claim;
    assert_eq!(drift.words(&claim), "its Node has no label `team`, its NodePool requires `team In [a]`");
    let edited = |reason| Drift { reason, ..drift.clone() }.words(&claim);
    let since = "changed since its launch at `2025-12-31T23:43:20Z`";
    assert_eq!(edited(DriftReason::NodePoolDrifted), format!("the template of NodePool `default` {since}"));
    assert_eq!(edited(DriftReason::NodeClassDrift), format!("the spec of EC2NodeClass `default` {since}"));
    let fields = vec!["metadata.labels".to_owned(), "spec.taints".to_owned()];
    let named = Drift { reason: DriftReason::NodePoolDrifted, fields, ..drift.clone() };
    assert_eq!(
        named.words(&claim),
        format!(
            "the template of NodePool `default` {since}: `spec.template.metadata.labels`, \
             `spec.template.spec.taints`"
        )
    );
    assert_eq!(requiring(Requirement::does_not_exist("team"), None), None);
}

#[test]
fn a_drift_names_the_edited_fields_if_the_claim_knows_what_it_was_launched_with() {
    let fields = |known: Option<FieldDigests>| {
        let mut world = cluster(vec![settled(0, NEW, busy(0))], BudgetNodes::Percent(100));
        world.claims[0].claim.pool_fields = known;
        world.pools[0].template.labels.insert("team".to_owned(), "a".to_owned());
        let drift = plan(&world).0.marks[0].drift.clone().unwrap();
        assert_eq!(drift.reason, DriftReason::NodePoolDrifted);
        drift.fields
    };
    assert_eq!(fields(Some(FieldDigests::of_template(&node_pool("default").template))), ["metadata.labels"]);
    assert_eq!(fields(None), [""; 0]);
}

#[test]
fn an_edited_class_and_other_security_groups_are_drift() {
    let hashes = |had: &'static str, has: &'static str| {
        reason(move |world| {
            world.claims[0].claim.class_hash = Some(had.parse().unwrap());
            world.classes[0].hash = Some(has.parse().unwrap());
        })
    };
    assert_eq!(hashes("1", "1"), None);
    assert_eq!(hashes("1", "2"), Some(DriftReason::NodeClassDrift));
    let groups = found(|world| world.classes[0].security_groups = ["sg-1", "sg-2"].map(group).into());
    let (reason, from, to) = groups.unwrap();
    assert_eq!((reason, from.as_str(), to.as_str()), (DriftReason::SecurityGroupDrift, "sg-1", "sg-1,sg-2"));
}

#[test]
fn a_type_that_the_pool_has_no_longer_is_drift_of_nodes_that_are_an_hour_old() {
    let without = |age: i64, change: &dyn Fn(&mut DisruptionInput)| {
        reason(|world| {
            world.claims[0].claim.created_at = at(-age);
            change(world);
        })
    };
    let types = |world: &mut DisruptionInput| {
        world.world.pools[0].types = Arc::new(vec![FakeType::new("other.instance-type", 4, 4, 5).option()]);
    };
    let gone = Some(DriftReason::InstanceTypeNotFound);
    assert_eq!(without(3600, &types), gone);
    assert_eq!(without(3599, &types), None);
    // No catalogue is no fact.
    assert_eq!(without(3600, &|world| world.world.pools[0].types = Arc::new(Vec::new())), None);
    let paid = |way: CapacityType| {
        move |world: &mut DisruptionInput| {
            if let ClaimState::Initialized { instance, .. } = &mut world.claims[0].claim.state {
                instance.zone = Zone::parse("test-zone-3").unwrap();
                instance.capacity_type = way;
            }
        }
    };
    // Zone 3 has no spot capacity, and a reserved node stays where its type is sold on demand.
    assert_eq!(without(3600, &paid(CapacityType::Spot)), gone);
    assert_eq!(without(3600, &paid(CapacityType::Reserved)), None);
}

#[test]
fn a_claim_of_an_older_release_adopts_what_it_did_not_note() {
    let mut world = cluster(vec![settled(0, NEW, busy(0)), settled(1, OLD, busy(1))], BudgetNodes::Count(1));
    for view in &mut world.claims {
        view.claim.pool_hash = None;
        view.claim.security_groups = None;
    }
    world.pools[0].template.labels.insert("team".to_owned(), "a".to_owned());
    world.classes[0].hash = Some("7".parse().unwrap());
    let (first, _) = plan(&world);
    let hash = Some(PoolHash::of(&world.pools[0].template));
    let adopted = |index| Adoption {
        claim: claim_name(index),
        pool_hash: hash,
        class_hash: Some("7".parse().unwrap()),
        security_groups: Some(BTreeSet::from([group("sg-1")])),
    };
    // What drifts for another reason is written for that.
    assert_eq!((first.adopted, first.marks.len()), (vec![adopted(0)], 1));
    world.claims[0].claim.pool_hash = hash;
    world.claims[0].claim.class_hash = Some("7".parse().unwrap());
    world.claims[0].claim.security_groups = Some(BTreeSet::from([group("sg-1")]));
    assert_eq!(plan(&world).0.adopted, []);
}

#[test]
fn a_replacement_with_the_drift_that_it_was_made_for_stays() {
    let command = CommandId::parse("command-9").unwrap();
    let mut view = settled(0, NEW, busy(0));
    view.claim.role = CommandRole::Replacement(command.clone());
    let mut world = cluster(vec![view], BudgetNodes::Percent(100));
    // Something takes the label away that new nodes get.
    world.pools[0].template.requirements.add(Requirement::one_of("team", ["a", "b"]));
    world.now = at(-900);
    let found = plan(&world).0.marks[0].drift.clone().unwrap();
    assert_eq!(found.reason, DriftReason::RequirementsDrifted);
    world.claims[0].claim.drift = Some(found.clone());
    world.now = at(0);
    world.replaced_drift.insert(command.clone(), found.clone());
    let (stays, report) = plan(&world);
    assert_eq!((stays.commands.len(), stays.wake_at), (0, Some(at(85_400))));
    assert_eq!(refusals(&report), BTreeMap::from([("DriftsAgain", 1)]));
    // A day after it was made, once more.
    world.now = at(85_400);
    assert_eq!(plan(&world).0.commands.len(), 1);
    // Its drift began long after it was made: what is asked for went back and forth.
    world.now = at(0);
    world.claims[0].claim.drift.as_mut().unwrap().since = at(-30);
    assert_eq!(plan(&world).0.commands.len(), 1);
    // Another drift.
    world.claims[0].claim.drift = Some(found.clone());
    world.replaced_drift.insert(command, Drift { to: "team In [c]".to_owned(), ..found });
    assert_eq!(plan(&world).0.commands.len(), 1);
}
