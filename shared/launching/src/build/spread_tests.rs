//! Where on-demand claims go that cost the same in several zones.

use tenon_ec2::port::{CreateFleetRequest, OnDemandAllocation};

use super::tests::with_input;
use super::*;
use crate::testing::{planned, types};

const THREE: [&str; 3] =
    ["m5.large a on-demand 0.1", "m5.large b on-demand 0.1", "m5.xlarge a on-demand 0.2"];

/// The claims of each launch with the zones that EC2 tries, each once.
fn launched(claims: &[PlannedClaim], there: &[(&str, usize)]) -> Vec<(usize, Vec<String>)> {
    let mut tally = ZoneTally::default();
    let pool = NodePoolName::parse("default").unwrap();
    for (zone, nodes) in there {
        tally.add(&pool, &format!("us-east-1{zone}").parse().unwrap(), *nodes);
    }
    with_input(types(), |input| {
        let input = LaunchInput { zones: &tally, ..input.clone() };
        let found = build(&input, claims, &LaunchCause::PendingPods);
        found.launches.iter().map(|built| (built.claims.len(), tried(&built.launch.request))).collect()
    })
}

fn tried(request: &str) -> Vec<String> {
    let request = CreateFleetRequest::from_stored(request).unwrap();
    assert_eq!(request.on_demand_allocation, OnDemandAllocation::Prioritized);
    let mut overrides: Vec<_> = request.launch_templates.iter().flat_map(|one| &one.overrides).collect();
    overrides.sort_by_key(|one| one.priority.expect("a priority each"));
    overrides
        .iter()
        .map(|one| {
            let zone = one.zone.as_ref().unwrap().as_str();
            format!("{} {}", one.instance_type, &zone[zone.len() - 1..])
        })
        .collect()
}

fn equal(count: usize) -> Vec<PlannedClaim> {
    (0..count).map(|n| planned(&format!("default-{n:02}"), &THREE)).collect()
}

fn order(words: [&str; 3]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

#[test]
fn equal_claims_are_spread_over_the_zones_of_the_lowest_price() {
    let a_first = order(["m5.large a", "m5.large b", "m5.xlarge a"]);
    let b_first = order(["m5.large b", "m5.large a", "m5.xlarge a"]);
    assert_eq!(launched(&equal(5), &[]), [(3, a_first.clone()), (2, b_first.clone())]);
    assert_eq!(launched(&equal(1), &[]), [(1, a_first)]);
    assert_eq!(launched(&equal(1), &[("a", 1)]), [(1, b_first)]);
}

#[test]
fn a_large_plan_has_no_more_launches_and_takes_turns() {
    // Labels make each of them a launch of its own.
    let own = |(n, claim): (usize, PlannedClaim)| PlannedClaim {
        labels: BTreeMap::from([("team".to_owned(), (n / 2).to_string())]),
        ..claim
    };
    let claims: Vec<PlannedClaim> = equal(60).into_iter().enumerate().map(own).collect();
    let found = launched(&claims, &[]);
    assert_eq!(found.len(), 30);
    let in_a = found.iter().filter(|(_, tried)| tried[0] == "m5.large a").map(|(n, _)| n).sum::<usize>();
    assert_eq!(in_a, 30);
}
