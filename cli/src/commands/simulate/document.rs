//! The document of a simulation.
//!
//! Decides the form of quantities, prices and the ratio; the order is the plan's. A sum is exact, and null without a
//! known price in the region.
//!
//! Invariant: what is long in a claim (its types, requirements and pods) stays the plan's and is written from there. A
//! plan of 100,000 pods has thousands of claims that share hundreds of instance types.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use tenon_domain::catalog::CapacityType;
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{InstanceType, Zone};
use tenon_domain::launch::CountedPod;
use tenon_domain::money::UsdPerHour;
use tenon_domain::requirement::{Requirements, WrittenRequirement};
use tenon_domain::resources::ResourceList;
use tenon_planning::provision::{PlanCompletion, PlannedClaim, Unschedulable};
use tenon_planning::solve::BoundOmission;

use super::Simulated;
use super::explain::Explanation;
use super::reservations;
use crate::catalogue::{PriceOrigin, SpotOrigin};
use crate::output::API_VERSION;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Simulation<'p> {
    api_version: &'static str,
    pub(super) claims: Vec<ClaimDocument<'p>>,
    pub(super) existing: Vec<ExistingDocument>,
    pub(super) unschedulable: Vec<UnschedulableDocument>,
    pub(super) waiting: Vec<WaitingDocument>,
    pub(super) warnings: Vec<String>,
    pub(super) summary: SimulationSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) explain: Option<Explanation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timing: Option<Timing>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimDocument<'p> {
    pub(super) name: &'p str,
    pub(super) node_pool: &'p str,
    node_class: &'p str,
    pub(super) instance_types: TypeNames<'p>,
    pub(super) zones: Vec<&'p str>,
    pub(super) capacity_types: Vec<&'static str>,
    requirements: RequirementTexts<'p>,
    pub(super) pods: PodNames<'p>,
    pub(super) requests: Quantities<'p>,
    pub(super) price_usd_per_hour: Option<String>,
    /// The price is a guess from the on-demand price.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) price_assumed: bool,
    /// It comes from a capacity reservation first: its price only ranks it.
    #[serde(skip)]
    pub(super) reserved: bool,
}

/// Names of instance types, in the plan's order.
#[derive(Debug, Clone, Copy)]
pub(super) struct TypeNames<'p>(pub(super) &'p [InstanceType]);

impl Serialize for TypeNames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(InstanceType::as_str))
    }
}

/// Names of pods, bytewise.
#[derive(Debug, Clone, Copy)]
pub(super) struct PodNames<'p>(pub(super) &'p [CountedPod]);

impl Serialize for PodNames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        sorted(self.0.iter().map(name_of)).serialize(serializer)
    }
}

/// Quantities by resource, without those of nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quantities<'p>(&'p ResourceList);

impl<'p> Quantities<'p> {
    pub(super) fn texts(self) -> BTreeMap<&'p str, String> {
        let nonzero = self.0.iter().filter(|(_, quantity)| !quantity.is_zero());
        nonzero.map(|(name, quantity)| (name.as_str(), quantity.to_string())).collect()
    }
}

impl Serialize for Quantities<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.texts().serialize(serializer)
    }
}

/// Requirements as `spec.requirements` has them.
#[derive(Debug, Clone, Copy)]
struct RequirementTexts<'p>(&'p Requirements);

impl Serialize for RequirementTexts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.written().into_iter().map(RequirementDocument::from))
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequirementDocument<'p> {
    key: &'p str,
    operator: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<Cow<'p, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_values: Option<u32>,
}

#[derive(Debug, Serialize)]
pub(super) struct ExistingDocument {
    pub(super) node: String,
    pub(super) pods: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct UnschedulableDocument {
    pub(super) pod: String,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WaitingDocument {
    pub(super) reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_class: Option<String>,
    #[serde(skip)]
    pub(super) sentence: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SimulationSummary {
    pub(super) pods: usize,
    pub(super) claims: usize,
    pub(super) price_usd_per_hour: Option<String>,
    pub(super) bound_usd_per_hour: Option<String>,
    pub(super) ratio: Option<String>,
    pub(super) unpriced: usize,
    /// Claims whose price is assumed.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) assumed: usize,
    #[serde(skip)]
    pub(super) bound_omission: Option<BoundOmission>,
    #[serde(skip)]
    price: Option<UsdPerHour>,
    /// The price without what is reserved.
    #[serde(skip)]
    pub(super) paid: Option<UsdPerHour>,
    /// Claims that come from capacity reservations first.
    #[serde(skip)]
    pub(super) reserved: usize,
    /// Whether a plan could use reservations, which the bound takes as nearly free.
    #[serde(skip)]
    pub(super) may_reserve: bool,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Timing {
    pub(super) plan_micros: u64,
    pub(super) peak_bytes: Option<u64>,
}

/// The second plan's surplus over the first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SimulationDifference {
    pub(super) pods: i64,
    pub(super) claims: i64,
    pub(super) unschedulable: i64,
    pub(super) price_usd_per_hour: Option<String>,
    /// The same without what is reserved.
    #[serde(skip)]
    pub(super) paid: Option<String>,
}

impl<'p> Simulation<'p> {
    /// The document of a plan.
    pub(super) fn new(simulated: &'p Simulated, timing: Option<Timing>) -> Self {
        let Simulated { input, plan, report, bound, origin, warnings, .. } = simulated;
        let claims: Vec<ClaimDocument<'p>> =
            plan.claims.iter().map(|claim| ClaimDocument::new(claim, simulated)).collect();
        let mut existing: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for placement in &plan.placements {
            existing.entry(&placement.node).or_default().push(name_of(&placement.pod));
        }
        let mut warnings = warnings.clone();
        match report.outcome {
            PlanCompletion::Complete => {}
            PlanCompletion::BudgetExhausted => {
                warnings
                    .push("the plan is incomplete: it ran out of steps; what is planned is valid".to_owned());
            }
        }
        let unpriced = claims.iter().filter(|claim| claim.price_usd_per_hour.is_none()).count();
        let known_bound = bound.and_then(Result::ok);
        let price = match origin {
            PriceOrigin::Own => Some(plan.price()),
            PriceOrigin::Borrowed => None,
        };
        let counted = plan.claims.iter().filter(|claim| !is_reserved(claim));
        let paid = price.map(|_| counted.filter_map(|claim| claim.price).sum());
        Self {
            api_version: API_VERSION,
            summary: SimulationSummary {
                pods: input.pods.len(),
                claims: claims.len(),
                price_usd_per_hour: price.map(|price| price.to_string()),
                bound_usd_per_hour: known_bound.map(|bound| bound.to_string()),
                ratio: price.zip(known_bound).and_then(|(price, bound)| ratio(price, bound)),
                unpriced,
                assumed: claims.iter().filter(|claim| claim.price_assumed).count(),
                bound_omission: bound.and_then(Result::err),
                price,
                paid,
                reserved: claims.iter().filter(|claim| claim.reserved).count(),
                may_reserve: reservations::may_be_used(input),
            },
            claims,
            existing: existing.into_iter().map(|(node, pods)| ExistingDocument::new(node, pods)).collect(),
            unschedulable: report.unschedulable.iter().map(UnschedulableDocument::new).collect(),
            waiting: report.waiting.iter().map(WaitingDocument::new).collect(),
            warnings,
            explain: None,
            timing,
        }
    }
}

impl<'p> ClaimDocument<'p> {
    fn new(claim: &'p PlannedClaim, simulated: &Simulated) -> Self {
        let price = match simulated.origin {
            PriceOrigin::Own => claim.price,
            PriceOrigin::Borrowed => None,
        };
        let mut capacity_types: Vec<&'static str> = claim.capacity_types.iter().map(|c| c.as_str()).collect();
        capacity_types.sort_unstable();
        let of_spot = claim.bought() == Some(CapacityType::Spot);
        Self {
            name: claim.name.as_str(),
            node_pool: claim.pool.as_str(),
            node_class: claim.class.as_str(),
            instance_types: TypeNames(&claim.instance_types),
            zones: claim.zones.iter().map(Zone::as_str).collect(),
            capacity_types,
            requirements: RequirementTexts(&claim.requirements),
            pods: PodNames(&claim.pods),
            requests: Quantities(&claim.requests),
            price_usd_per_hour: price.map(|price| price.to_string()),
            price_assumed: price.is_some() && of_spot && simulated.spot_origin == SpotOrigin::Assumed,
            reserved: is_reserved(claim),
        }
    }
}

impl<'p> From<WrittenRequirement<'p>> for RequirementDocument<'p> {
    fn from(written: WrittenRequirement<'p>) -> Self {
        let WrittenRequirement { key, operator, values, min_values } = written;
        Self { key, operator: operator.as_str(), values, min_values }
    }
}

impl ExistingDocument {
    fn new(node: &str, pods: Vec<String>) -> Self {
        Self { node: node.to_owned(), pods: sorted(pods.into_iter()) }
    }
}

impl UnschedulableDocument {
    fn new(pod: &Unschedulable) -> Self {
        Self { pod: name_of(&pod.pod), reason: pod.reason().into_str(), message: pod.message() }
    }
}

impl WaitingDocument {
    fn new(waiting: &Waiting) -> Self {
        let (part, age_seconds, node_class) = match waiting {
            Waiting::CatalogNotHydrated { part } => (Some(part.as_str()), None, None),
            Waiting::CatalogStale { part, age } => (Some(part.as_str()), Some(age.as_secs()), None),
            Waiting::SnapshotStale { age } => (None, Some(age.as_secs()), None),
            Waiting::NodeClassNotReady { class, .. } => (None, None, Some(class.clone())),
            Waiting::SnapshotMissing
            | Waiting::SnapshotAhead { .. }
            | Waiting::SnapshotTooLarge { .. }
            | Waiting::NodePoolNotReady { .. }
            | Waiting::LaunchRefused { .. }
            | Waiting::NodesNotJoining { .. }
            | Waiting::NodesNotInitialized { .. }
            | Waiting::KarpenterRuns { .. }
            | Waiting::ClusterNotRegistered
            | Waiting::TableRestored => (None, None, None),
        };
        Self { reason: waiting.into_str(), part, age_seconds, node_class, sentence: waiting.to_string() }
    }
}

impl SimulationDifference {
    /// The second plan's surplus over the first.
    pub(super) fn between(first: &Simulation<'_>, second: &Simulation<'_>) -> Self {
        let count = |of: fn(&Simulation<'_>) -> usize| {
            let of = |simulation| i64::try_from(of(simulation)).unwrap_or(i64::MAX);
            of(second) - of(first)
        };
        Self {
            pods: count(|s| s.summary.pods),
            claims: count(|s| s.summary.claims),
            unschedulable: count(|s| s.unschedulable.len()),
            price_usd_per_hour: first.summary.price.zip(second.summary.price).map(|(a, b)| signed(a, b)),
            paid: first.summary.paid.zip(second.summary.paid).map(|(a, b)| signed(a, b)),
        }
    }
}

/// A launch takes a reservation before all else.
fn is_reserved(claim: &PlannedClaim) -> bool {
    claim.capacity_types.first() == Some(&CapacityType::Reserved)
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// `<namespace>/<name>`.
fn name_of(pod: &CountedPod) -> String {
    pod.name.to_string()
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// How many times the bound the price is: two decimals, half up; none for a bound of nothing.
fn ratio(price: UsdPerHour, bound: UsdPerHour) -> Option<String> {
    let (price, bound) = (u128::from(price.nanos()), u128::from(bound.nanos()));
    let hundredths = (price * 200 + bound).checked_div(bound * 2)?;
    Some(format!("{}.{:02}", hundredths / 100, hundredths % 100))
}

/// The second price less the first, with its sign.
fn signed(first: UsdPerHour, second: UsdPerHour) -> String {
    let (sign, nanos) = if second < first {
        ("-", first.nanos() - second.nanos())
    } else {
        ("", second.nanos() - first.nanos())
    };
    format!("{sign}{}", UsdPerHour::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(price: &str, bound: &str, expected: Option<&str>, difference: &str) {
        let parse = |text| UsdPerHour::parse(text).unwrap();
        assert_eq!(ratio(parse(price), parse(bound)).as_deref(), expected);
        assert_eq!(signed(parse(price), parse(bound)), difference);
    }

    #[test]
    fn ratios_have_two_decimals_half_up_and_differences_a_sign() {
        check("0.153", "0.149", Some("1.03"), "-0.004");
        check("1", "1", Some("1.00"), "0");
        check("1.005", "1", Some("1.01"), "-0.005");
        check("0.5", "1", Some("0.50"), "0.5");
        check("1", "0", None, "-1");
    }
}
