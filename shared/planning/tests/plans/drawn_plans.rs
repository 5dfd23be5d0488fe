//! Plans and prices of drawn worlds, word for word.
//!
//! They show for each change of the planner which worlds become cheaper or dearer, and by how much. A person reads
//! the difference before accepting it: a dearer world needs a reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::drawn::world;
use crate::support::at;
use tenon_domain::resources::ResourceName;
use tenon_planning::provision::{
    AskReason, PlannedClaim, ProvisionInput, ProvisionPlan, ProvisionReport, plan,
};
use tenon_planning::solve as bound;

const WORLDS: u64 = 72;

/// Equal texts once, with their number.
fn counted(texts: impl Iterator<Item = String>) -> impl Iterator<Item = (String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for text in texts {
        *counts.entry(text).or_default() += 1;
    }
    counts.into_iter()
}

/// A claim by its cheapest type and its price: enough to see how well pods of many sizes are packed.
fn in_short(claim: &PlannedClaim) -> String {
    let price = claim.price.unwrap_or_default();
    let ways: Vec<&str> = claim.capacity_types.iter().map(|one| one.as_str()).collect();
    format!("{} {price} {}", claim.instance_types[0], ways.join("/"))
}

fn in_full(claim: &PlannedClaim) -> String {
    let price = claim.price.map_or_else(|| "no price".to_owned(), |price| price.to_string());
    let ways: Vec<&str> = claim.capacity_types.iter().map(|one| one.as_str()).collect();
    let zones: Vec<&str> =
        claim.zones.iter().map(|zone| zone.as_str().trim_start_matches("test-zone-")).collect();
    let probes = claim.offerings.iter().filter(|one| one.asked == AskReason::Probe).count();
    let types: Vec<&str> = claim.instance_types.iter().map(AsRef::as_ref).collect();
    let (first, others) = types.split_at(types.len().min(2));
    let reserved = claim.offerings.iter().find_map(|one| one.reservation.as_ref());
    let reserved = reserved.map_or_else(String::new, |one| format!(" in {}", one.id));
    let of = |name: &ResourceName| claim.requests.get(name);
    format!(
        "{} {price} {}{reserved} {}: {} +{} ({} offerings, {probes} again) for {} pods, {} CPU, {} memory",
        claim.pool,
        ways.join("/"),
        zones.join("/"),
        first.join(" "),
        others.len(),
        claim.offerings.len(),
        claim.pods.len(),
        of(&ResourceName::CPU),
        of(&ResourceName::MEMORY),
    )
}

fn page(number: u64, world: &ProvisionInput, (plan, report): &(ProvisionPlan, ProvisionReport)) -> String {
    let mut page = format!("world {number}: {} pods, {} nodes\n", world.pods.len(), world.nodes.len());
    for (node, count) in counted(plan.placements.iter().map(|one| one.node.clone())) {
        writeln!(page, "  {count} on {node}").unwrap();
    }
    for (text, count) in
        counted(plan.claims.iter().map(if number.is_multiple_of(2) { in_short } else { in_full }))
    {
        writeln!(page, "  {count} x {text}").unwrap();
    }
    for (text, count) in counted(report.unschedulable.iter().map(|one| one.message())) {
        writeln!(page, "  {count} refused: {text}").unwrap();
    }
    if let Some(bound) = bound::linear(world, plan).filter(|bound| bound.nanos() > 0) {
        writeln!(page, "  {} an hour, at least {bound}", plan.price()).unwrap();
    }
    if let Some(wake_at) = plan.wake_at {
        writeln!(page, "  again after {:#}", wake_at.duration_since(at(0))).unwrap();
    }
    page
}

#[test]
fn drawn_worlds_are_planned_as_they_were() {
    let pages = (0..WORLDS).map(|number| {
        let world = world(number);
        page(number, &world, &plan(&world))
    });
    insta::assert_snapshot!(pages.collect::<String>());
}

#[test]
fn no_drawn_world_gets_more_nodes_than_its_registry_allows() {
    let mut full = 0;
    for number in 0..WORLDS {
        let (mut world, most) = (world(number), u32::try_from(number % 5).unwrap());
        world.pools.iter_mut().for_each(|pool| pool.nodes_left = Some(most));
        let claims = plan(&world).0.claims.len();
        assert!(claims <= most as usize, "world {number}: {claims} claims, {most} are allowed");
        full += usize::from(claims == most as usize);
    }
    assert!(full > 20, "the bound was reached in {full} worlds");
}
