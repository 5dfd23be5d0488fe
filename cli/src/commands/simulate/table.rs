//! A simulation as tables.

use tenon_domain::catalog::CapacityType;
use tenon_domain::report::counted;
use tenon_planning::solve::BoundOmission;

use super::document::{ClaimDocument, Simulation, SimulationDifference};
use super::explain::Explanation;
use crate::output::{self, Columns};

/// How many instance types of a claim are named; the rest is counted.
const TYPES_NAMED: usize = 3;

/// Instead of the price of what a capacity reservation has.
pub(super) const RESERVED: &str = CapacityType::Reserved.as_str();

/// The text of a simulation, and of the one to compare.
pub(super) fn text(simulation: &Simulation<'_>, other: Option<&Simulation<'_>>) -> String {
    let Some(other) = other else { return one(simulation) };
    let SimulationDifference { pods, claims, unschedulable, price_usd_per_hour: _, paid } =
        SimulationDifference::between(simulation, other);
    let price = paid.map_or("unknown".to_owned(), |price| format!("{price} USD/h"));
    format!(
        "FIRST\n{}\nCOMPARED\n{}\nDIFFERENCE\n{}, {}, {} without a place, price {price}\n",
        one(simulation),
        one(other),
        more(claims, "claim", "claims"),
        more(pods, "pod", "pods"),
        more(unschedulable, "pod", "pods")
    )
}

/// A difference with its sign, and the noun.
fn more(difference: i64, one: &str, many: &str) -> String {
    let noun = if difference.unsigned_abs() == 1 { one } else { many };
    format!("{difference:+} {noun}")
}

fn one(simulation: &Simulation<'_>) -> String {
    output::warn(&simulation.warnings);
    let mut parts = Vec::new();
    if !simulation.claims.is_empty() {
        parts.push(claims(&simulation.claims));
    }
    if !simulation.existing.is_empty() {
        let mut table = Columns::new(&["EXISTING NODE", "NEW PODS"]);
        for node in &simulation.existing {
            table.row([node.node.clone(), pods(&node.pods)]);
        }
        parts.push(table.text());
    }
    if !simulation.unschedulable.is_empty() {
        let mut table = Columns::new(&["POD WITHOUT A PLACE", "REASON", "MESSAGE"]);
        for pod in &simulation.unschedulable {
            table.row([pod.pod.clone(), pod.reason.to_owned(), pod.message.clone()]);
        }
        parts.push(table.text());
    }
    parts.extend(simulation.waiting.iter().map(|waiting| format!("waiting: {}\n", waiting.sentence)));
    parts.push(summary(simulation));
    parts.extend(simulation.explain.as_ref().map(Explanation::text));
    parts.join("\n")
}

fn claims(claims: &[ClaimDocument<'_>]) -> String {
    let heads = ["CLAIM", "POOL", "INSTANCE TYPES", "ZONES", "CAPACITY", "PODS", "CPU", "MEMORY", "USD/H"];
    let mut table = Columns::new(&heads).right(&[5, 6, 7, 8]);
    for claim in claims {
        let requests = claim.requests.texts();
        let request = |name: &str| requests.get(name).cloned().unwrap_or_else(|| "0".to_owned());
        table.row([
            claim.name.to_owned(),
            claim.node_pool.to_owned(),
            some_of(claim.instance_types.0),
            claim.zones.join(","),
            claim.capacity_types.join(","),
            claim.pods.0.len().to_string(),
            request("cpu"),
            request("memory"),
            price(claim),
        ]);
    }
    table.text()
}

const fn why_omitted(omission: BoundOmission) -> &'static str {
    match omission {
        BoundOmission::TooLarge => "too many kinds of pods, NodePools and instance types",
        BoundOmission::TimeUp => "it would take more than a second",
        BoundOmission::Unsolved => "the solver found none",
    }
}

/// A price; `~` marks an assumed one. That of a reservation only ranks it: it is paid for anyway.
fn price(claim: &ClaimDocument<'_>) -> String {
    if claim.reserved {
        return RESERVED.to_owned();
    }
    let mark = if claim.price_assumed { "~" } else { "" };
    claim.price_usd_per_hour.as_ref().map_or_else(|| "-".to_owned(), |price| format!("{mark}{price}"))
}

fn some_of<N: AsRef<str>>(names: &[N]) -> String {
    let named: Vec<&str> = names.iter().take(TYPES_NAMED).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(TYPES_NAMED) {
        0 => named.join(","),
        more => format!("{} +{more}", named.join(",")),
    }
}

fn pods(names: &[String]) -> String {
    some_of(names)
}

fn summary(simulation: &Simulation<'_>) -> String {
    let summary = &simulation.summary;
    let placed: usize = simulation.existing.iter().map(|node| node.pods.len()).sum();
    let price = summary.paid.map_or_else(|| "?".to_owned(), |price| price.to_string());
    let (pods, nodes) =
        (counted(summary.pods, "pod", "pods"), counted(summary.claims, "new node", "new nodes"));
    let mut text = format!("{pods}: {nodes} for {price} USD/h");
    if summary.may_reserve {
        text += " (no bound: capacity reservations are paid for anyway)";
    } else if let Some(bound) = &summary.bound_usd_per_hour {
        let ratio = summary.ratio.as_ref().map(|ratio| format!(", {ratio} times that")).unwrap_or_default();
        text += &format!(" (at least {bound}{ratio})");
    }
    if let Some(omission) = summary.bound_omission.filter(|_| !summary.may_reserve) {
        text += &format!(" (no bound: {})", why_omitted(omission));
    }
    if summary.reserved > 0 {
        let nodes = counted(summary.reserved, "node", "nodes");
        text += &format!(", {nodes} in capacity reservations, not in the price");
    }
    if summary.assumed > 0 {
        text += &format!(", {} at an assumed spot price (~)", counted(summary.assumed, "node", "nodes"));
    }
    if placed > 0 {
        text += &format!(", {placed} on existing nodes");
    }
    if !simulation.unschedulable.is_empty() {
        text += &format!(", {} without a place", simulation.unschedulable.len());
    }
    if let Some(timing) = simulation.timing {
        let memory = timing.peak_bytes.map_or(String::new(), |bytes| format!(", {} MiB", bytes >> 20));
        text += &format!("; planned in {} ms{memory}", timing.plan_micros / 1000);
    }
    text + "\n"
}
