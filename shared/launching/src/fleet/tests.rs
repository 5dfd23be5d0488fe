//! The fleet of one claim.

use tenon_domain::labels;
use tenon_domain::requirement::Requirement;

use super::*;
use crate::testing::{planned, status, types};

/// Offerings as `type zone capacity-type price`; overrides as `image: type subnet`.
fn check(offerings: &[&str], expected: Option<(&str, &[&str])>) {
    check_claim(&planned("default-a", offerings), expected);
}

fn check_claim(claim: &PlannedClaim, expected: Option<(&str, &[&str])>) {
    let (status, types, marks) = (status("default"), types(), Marks::default());
    let now = Timestamp::UNIX_EPOCH;
    let (whole, taken) = (UnavailableKey::parse("request#12ab").unwrap(), BTreeSet::new());
    let requests = Requests { digests: &[], whole: std::slice::from_ref(&whole) };
    let input = FleetInput {
        status: &status,
        settings: &NodeSettings::default(),
        types: &types,
        marks: &marks,
        requests,
        taken: &taken,
        purpose: FleetPurpose::PendingPods,
        zones: &ZoneTally::default(),
        min_values: MinValuesPolicy::Strict,
        now,
    };
    let text = fleet(claim, input).ok().map(|fleet| {
        let overrides = fleet.overrides.iter().flat_map(|(key, overrides)| {
            let image = &key.image;
            overrides
                .iter()
                .map(move |o| format!("{image}: {} {}", o.instance_type, o.subnet.as_ref().unwrap()))
        });
        (fleet.capacity_type.as_str(), overrides.collect::<Vec<_>>())
    });
    let expected = expected.map(|(ct, list)| (ct, list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()));
    assert_eq!(text, expected);
}

#[test]
fn overrides_are_cheapest_first_in_the_emptiest_subnet() {
    check(
        &["m5.xlarge a on-demand 0.2", "m5.large b on-demand 0.1", "m5.large a on-demand 0.1"],
        Some((
            "on-demand",
            &["ami-x86: m5.large subnet-a2", "ami-x86: m5.large subnet-b1", "ami-x86: m5.xlarge subnet-a2"],
        )),
    );
}

#[test]
fn spot_goes_first_unless_it_is_dearer_than_on_demand() {
    check(
        &["m5.large a spot 0.04", "m5.large a on-demand 0.1", "m5.xlarge a spot 0.11"],
        Some(("spot", &["ami-x86: m5.large subnet-a2"])),
    );
    check(
        &["m5.large a spot 0.2", "m5.large a on-demand 0.1"],
        Some(("on-demand", &["ami-x86: m5.large subnet-a2"])),
    );
}

#[test]
fn what_is_asked_for_along_leaves_the_claim_what_it_would_have_had() {
    check(
        &["m5.large a spot 0.05 again", "m5.large a spot 0.2", "m5.large a on-demand 0.1"],
        Some(("on-demand", &["ami-x86: m5.large subnet-a2"])),
    );
    check(
        &["m5.large a on-demand 0.05 again", "g4dn.xlarge a on-demand 0.5"],
        Some(("on-demand", &["ami-x86: m5.large subnet-a2", "ami-x86: g4dn.xlarge subnet-a2"])),
    );
    check(&["m5.large a spot 0.05 again"], Some(("spot", &["ami-x86: m5.large subnet-a2"])));
}

#[test]
fn what_has_a_price_goes_before_what_has_none() {
    let offerings = ["m5.large a spot -", "m5.large a on-demand 0.1"];
    let mut claim = planned("default-a", &offerings);
    let on_demand = Some(("on-demand", &["ami-x86: m5.large subnet-a2"][..]));
    check_claim(&claim, on_demand);
    claim.requirements.add(Requirement::exists(labels::INSTANCE_TYPE).with_min_values(Some(1)));
    check_claim(&claim, on_demand);
    check(&["m5.large a spot -"], Some(("spot", &["ami-x86: m5.large subnet-a2"])));
}

#[test]
fn each_architecture_has_its_image_and_exotic_types_come_only_alone() {
    check(
        &["m6g.large a on-demand 0.05", "m5.large a on-demand 0.1", "g4dn.xlarge a on-demand 0.04"],
        Some(("on-demand", &["ami-arm: m6g.large subnet-a2", "ami-x86: m5.large subnet-a2"])),
    );
    check(&["g4dn.xlarge a on-demand 0.04"], Some(("on-demand", &["ami-x86: g4dn.xlarge subnet-a2"])));
}

#[test]
fn a_part_of_a_gpu_makes_no_type_exotic() {
    check(
        &["g6f.large a on-demand 0.05", "m5.large a on-demand 0.1", "g4dn.xlarge a on-demand 0.04"],
        Some(("on-demand", &["ami-x86: g6f.large subnet-a2", "ami-x86: m5.large subnet-a2"])),
    );
}

#[test]
fn without_a_subnet_there_is_no_fleet() {
    check(&["m5.large c on-demand 0.1"], None);
    check(&[], None);
}
