//! A fleet's choice among a claim's offerings: marked ones with their leases, subnets, reservations, and the cut of a
//! full fleet.

use tenon_domain::catalog::OfferedReservation;
use tenon_domain::id::{ClusterName, LaunchId, SubnetId, Zone, ZoneId};
use tenon_domain::labels;
use tenon_domain::quantity::Quantity;
use tenon_domain::requirement::Requirement;
use tenon_domain::reservation::ReservationKind;
use tenon_domain::unavailable::{LaunchAsked, Mark, Probe};

use super::*;
use crate::testing::{many_types, mark, planned, status, types};

/// The input of a fleet, without the claim.
struct Market {
    status: ClassStatus,
    types: Vec<InstanceTypeOption>,
    marks: Marks,
    taken: BTreeSet<UnavailableKey>,
    purpose: FleetPurpose,
}

impl Market {
    fn marked(keys: &[&str]) -> Self {
        Self {
            status: status("default"),
            types: types(),
            marks: keys.iter().map(|key| mark(key)).collect(),
            taken: BTreeSet::new(),
            purpose: FleetPurpose::PendingPods,
        }
    }

    /// The same where other launches of the plan ask for these first.
    fn taken(self, keys: &[&str]) -> Self {
        Self { taken: keys.iter().map(|key| UnavailableKey::parse(key).unwrap()).collect(), ..self }
    }

    fn fleet(&self, claim: &PlannedClaim) -> Result<Fleet, NoFleet> {
        self.fleet_of(&NodeSettings::default(), claim)
    }

    fn fleet_of(&self, settings: &NodeSettings, claim: &PlannedClaim) -> Result<Fleet, NoFleet> {
        let whole = UnavailableKey::parse("request#12ab").unwrap();
        let input = FleetInput {
            status: &self.status,
            settings,
            types: &self.types,
            marks: &self.marks,
            requests: Requests { digests: &[], whole: std::slice::from_ref(&whole) },
            taken: &self.taken,
            purpose: self.purpose,
            zones: &ZoneTally::default(),
            min_values: MinValuesPolicy::Strict,
            now: Timestamp::UNIX_EPOCH,
        };
        fleet(claim, input)
    }

    /// Overrides as `type subnet`, and leases.
    fn check(&self, claim: &PlannedClaim, overrides: &[&str], leases: &[&str]) {
        let found = self.fleet(claim).unwrap();
        let named: Vec<String> = all(&found)
            .map(|one| format!("{} {}", one.instance_type, one.subnet.as_ref().unwrap()))
            .collect();
        let keys: Vec<String> = found.leases.iter().map(ToString::to_string).collect();
        assert_eq!((named, keys), (own(overrides), own(leases)));
    }
}

fn own(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn all(fleet: &Fleet) -> impl Iterator<Item = &FleetOverride> {
    fleet.overrides.values().flatten()
}

/// A claim for the first types by name, each in so many zones, with those words after the zone.
fn claim_of(types: &[InstanceTypeOption], zones: &[&str], words: &str) -> PlannedClaim {
    let offerings: Vec<String> = types
        .iter()
        .flat_map(|one| zones.iter().map(move |zone| format!("{} {zone} {words}", one.facts.name)))
        .collect();
    planned("default-a", &offerings.iter().map(String::as_str).collect::<Vec<_>>())
}

const LARGE: &str = "offering#on-demand#use1-az-a#m5.large";
const XLARGE: &str = "offering#on-demand#use1-az-a#m5.xlarge";
const ASKS_FOR_BOTH: [&str; 2] = ["m5.large a on-demand 0.1 again", "m5.xlarge a on-demand 0.2 again"];
const ASKS_ALONG: [&str; 2] = ["m5.large a on-demand 0.1", "m5.xlarge a on-demand 0.2 again"];

/// Eighty offerings are marked, and another one isn't.
#[test]
fn a_launch_takes_more_leases_where_it_asks_for_nothing_else() {
    let check = |more: &[&str], purpose: FleetPurpose, expected: Option<(usize, usize)>| {
        let types = many_types();
        let mut claim = claim_of(&types[..40], &["a", "b"], "on-demand 0.1 again");
        let marked =
            |one: &UsableOffering| mark(&format!("offering#on-demand#{}#{}", one.zone_id, one.instance_type));
        let marks = claim.offerings.iter().map(marked).collect();
        let more_offerings = planned("default-a", more).offerings;
        claim.offerings.extend(more_offerings.iter().cloned());
        let from = Market { types, marks, purpose, ..Market::marked(&[]) };
        let found = from.fleet(&claim).ok().map(|found| (found.leases.len(), all(&found).count()));
        assert_eq!(found, expected, "{more:?} {purpose:?}");
    };
    let free = ["r6i.large a on-demand 0.2"];
    check(&[], FleetPurpose::PendingPods, Some((64, 64)));
    check(&free, FleetPurpose::PendingPods, Some((16, 17)));
    check(&free, FleetPurpose::Replacement, Some((0, 1)));
    check(&[], FleetPurpose::Replacement, Some((64, 64)));
}

#[test]
fn what_another_launch_of_the_plan_asks_for_first_is_left_to_it() {
    let from = Market::marked(&[LARGE, XLARGE]);
    let both = planned("default-a", &ASKS_FOR_BOTH);
    from.check(&both, &["m5.large subnet-a2", "m5.xlarge subnet-a2"], &[LARGE, XLARGE]);
    // Its answer is an answer to this one too.
    let from = from.taken(&[LARGE]);
    assert_eq!(from.fleet(&both), Err(NoFleet::Taken));
    // A claim with another available offering uses that.
    let from = Market::marked(&[XLARGE]).taken(&[XLARGE]);
    from.check(&planned("default-a", &ASKS_ALONG), &["m5.large subnet-a2"], &[]);
}

#[test]
fn where_another_cluster_asks_for_all_that_is_left_there_is_no_fleet() {
    let (cluster, launch) = (ClusterName::parse("other").unwrap(), LaunchId::parse("launch-1").unwrap());
    let asked = LaunchAsked { cluster: &cluster, launch: &launch, planned_at: Timestamp::UNIX_EPOCH };
    let probed = mark(LARGE).leased(Probe::of(asked)).unwrap();
    let from = Market { marks: Marks::from_iter([probed]), ..Market::marked(&[]) };
    let claim = planned("default-a", &["m5.large a on-demand 0.1 again"]);
    assert_eq!(from.fleet(&claim), Err(NoFleet::Taken));
    let claim = planned("default-a", &["m5.large a on-demand 0.1 again", "m5.large b on-demand 0.1"]);
    from.check(&claim, &["m5.large subnet-b1"], &[]);
}

/// Only a full fleet's cut counts against `minValues`: the next launch may get the offerings that another probes.
#[test]
fn min_values_that_are_short_of_what_others_ask_for_refuse_no_fleet() {
    let mut claim = planned("default-a", &ASKS_ALONG);
    claim.requirements.add(Requirement::exists(labels::INSTANCE_TYPE).with_min_values(Some(2)));
    let from = Market::marked(&[XLARGE]).taken(&[XLARGE]);
    from.check(&claim, &["m5.large subnet-a2"], &[]);
}

#[test]
fn a_subnet_that_was_full_is_taken_only_where_its_zone_has_no_other() {
    let claim = planned("default-a", &["m5.large a on-demand 0.1"]);
    let check = |full: &[(&str, i64)], expected: &str, leases: &[&str]| {
        let until = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        let marks = full.iter().map(|(key, seconds)| Mark { until: until(*seconds), ..mark(key) }).collect();
        let from = Market { marks, ..Market::marked(&[]) };
        from.check(&claim, &[expected], leases);
    };
    check(&[], "m5.large subnet-a2", &[]);
    check(&[("subnet#subnet-a2", 60)], "m5.large subnet-a1", &[]);
    check(&[("subnet#subnet-a1", 60)], "m5.large subnet-a2", &[]);
    // The subnet whose mark ends first.
    let both = |a1: i64, a2: i64| [("subnet#subnet-a1", a1), ("subnet#subnet-a2", a2)];
    check(&both(60, 90), "m5.large subnet-a1", &["subnet#subnet-a1"]);
    check(&both(90, 60), "m5.large subnet-a2", &["subnet#subnet-a2"]);
}

#[test]
fn a_claim_that_was_planned_for_a_reservation_is_launched_into_that_one_alone() {
    let mut claim = planned(
        "default-a",
        &[
            "m5.large a reserved 0",
            "m5.xlarge a reserved 0",
            "m5.large b reserved 0",
            "m5.large b on-demand 0.1",
        ],
    );
    for (offering, id) in claim.offerings.iter_mut().zip(["cr-1", "cr-2", "cr-1"]) {
        let (kind, id) = (ReservationKind::Default, id.parse().unwrap());
        offering.reservation = Some(OfferedReservation { kind, id, left: 1 });
    }
    let from = Market::marked(&[]);
    let into = from.fleet(&claim).unwrap().reservation.unwrap();
    assert_eq!((into.id.as_str(), into.kind), ("cr-1", ReservationKind::Default));
    from.check(&claim, &["m5.large subnet-a2", "m5.large subnet-b1"], &[]);
    // A launch into a marked reservation takes its lease.
    let again = Market::marked(&["reservation#cr-1"]);
    again.check(&claim, &["m5.large subnet-a2", "m5.large subnet-b1"], &["reservation#cr-1"]);
}

/// Sixty types in six zones are more than an instant fleet takes.
#[test]
fn a_fleet_has_no_more_overrides_than_ec2_takes() {
    let zones = ["a", "b", "c", "d", "e", "f"];
    let mut from = Market { types: many_types(), ..Market::marked(&[]) };
    from.status.subnets.extend(zones.iter().skip(2).map(|letter| ClassSubnet {
        id: SubnetId::parse(format!("subnet-{letter}1")).unwrap(),
        zone: Zone::parse(format!("us-east-1{letter}")).unwrap(),
        zone_id: ZoneId::parse(format!("use1-az-{letter}")).unwrap(),
        free_addresses: 100,
        shifted: None,
    }));
    let check = |count: usize, expected: usize| {
        let claim = claim_of(&from.types[..count], &zones, "on-demand 0.1");
        assert_eq!(all(&from.fleet(&claim).unwrap()).count(), expected);
    };
    check(49, 294);
    check(50, 300);
    check(60, 300);
}

/// Sixty types are cheaper in zone a; the only type of zone b is another one, and dear.
#[test]
fn a_fleet_that_is_cut_keeps_the_zones_that_min_values_ask_for() {
    let check = |key: Option<&str>, expected: &[&str]| {
        let types = many_types();
        let (dear, others) = types.split_last().unwrap();
        assert!(others.len() >= TYPES_PER_FLEET);
        let mut claim = claim_of(others, &["a"], "on-demand 0.1");
        let of_dear = claim_of(std::slice::from_ref(dear), &["b"], "on-demand 9");
        claim.offerings.extend(of_dear.offerings.iter().cloned());
        if let Some(key) = key {
            claim.requirements.add(Requirement::exists(key).with_min_values(Some(2)));
        }
        let from = Market { types: types.clone(), ..Market::marked(&[]) };
        let found = from.fleet(&claim).unwrap();
        let zones: BTreeSet<&str> = all(&found).map(|one| one.zone.as_ref().unwrap().as_str()).collect();
        assert_eq!(zones, expected.iter().copied().collect(), "{key:?}");
        assert_eq!(all(&found).count(), TYPES_PER_FLEET);
    };
    check(None, &["us-east-1a"]);
    check(Some(labels::ZONE), &["us-east-1a", "us-east-1b"]);
    check(Some(labels::ZONE_ID), &["us-east-1a", "us-east-1b"]);
}

/// `m5.large` runs 29 pods by its interfaces, `m5.xlarge` 58.
#[test]
fn types_with_different_pod_counts_have_a_template_each() {
    let claim = planned("default-a", &["m5.large a on-demand 0.1", "m5.xlarge a on-demand 0.2"]);
    let counts = |ami_family: AmiFamily, reserved_enis: u32| {
        let settings = NodeSettings { ami_family, reserved_enis, ..NodeSettings::default() };
        let market = Market::marked(&[]);
        let found = market.fleet_of(&settings, &claim).unwrap();
        found.overrides.keys().map(|key| key.max_pods).collect::<Vec<_>>()
    };
    assert_eq!(counts(AmiFamily::Al2, 0), [Some(29), Some(58)]);
    assert_eq!(counts(AmiFamily::Bottlerocket, 0), [Some(29), Some(58)]);
    assert_eq!(counts(AmiFamily::Custom, 0), [None]);
    // nodeadm knows nothing of reserved interfaces.
    assert_eq!(counts(AmiFamily::Al2023, 0), [None]);
    assert_eq!(counts(AmiFamily::Al2023, 1), [Some(29), Some(58)]);
}

#[test]
fn a_fleet_has_no_more_templates_than_its_commit_takes() {
    let mut types = many_types();
    for (count, option) in (1_i64..).zip(&mut types) {
        option.capacity.insert(ResourceName::PODS, Quantity::from_integer(count));
    }
    let claim = claim_of(&types[..40], &["a"], "on-demand 0.1");
    let market = Market { types, ..Market::marked(&[]) };
    let of = |ami_family| NodeSettings { ami_family, ..NodeSettings::default() };
    let found = market.fleet_of(&of(AmiFamily::Al2), &claim).unwrap();
    assert_eq!((found.overrides.len(), all(&found).count()), (TEMPLATES_PER_FLEET, TEMPLATES_PER_FLEET));
    let of_custom = market.fleet_of(&of(AmiFamily::Custom), &claim).unwrap();
    assert_eq!((of_custom.overrides.len(), all(&of_custom).count()), (1, 40));
}
